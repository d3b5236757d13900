"""Copies on hosts are damaged in many plans with local recovery, and most of these have a format of their own."""

from __future__ import annotations

from collections import Counter

from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.targets import Damage
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans

COPIES = profile_named("standard").with_shares(
    copies=1_000, compressed_copies=1_000, merged_increments=0, fallbacks=0, overlapping_copies=0
)
PLANS = 200


def test_damage_of_local_copies_is_drawn_often_and_where_their_checksum_is_their_own() -> None:
    local = [plan for plan in draw_plans(4, PLANS, COPIES) if plan.local_recovery]
    damages = Counter(
        scheduled.fault.damage
        for plan in local
        for scheduled in plan.faults
        if isinstance(scheduled.fault, DamageLocalCopy)
    )
    assert damages.total() > len(local) / 4 > 10
    assert damages[Damage.BIT_FLIPPED] and damages[Damage.TRUNCATED] and damages[Damage.OTHER_LINEAGE]
    hit = [plan for plan in local if any(isinstance(one.fault, DamageLocalCopy) for one in plan.faults)]
    assert all(plan.checkpoints.local_compression not in (None, plan.checkpoints.compression) for plan in hit)
    spared = [plan for plan in local if plan not in hit]
    assert any(plan.checkpoints.local_compression == plan.checkpoints.compression for plan in spared)
