"""Copies on hosts are compressed in another way than the primary (LOC-7).

Each format has a checksum of its own, so a copy that is to be damaged mostly has another one than the primary.
"""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.fault import CopyPlace
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.plan.trial_plan import CompressionName, TrialPlan

_FORMATS: tuple[CompressionName, ...] = ("zstd", "none")


def _damages_copies(plan: TrialPlan) -> bool:
    """Return whether a fault of the plan damages copies on hosts."""
    hits = [hit for planned in plan.faults if (hit := planned.fault.copies_hit) is not None]
    return any(hit.place is CopyPlace.LOCAL and hit.damage is not None and not hit.whole_host for hit in hits)


def _last(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    if not plan.local_recovery:
        return plan
    formats = [name for name in _FORMATS if name != plan.checkpoints.compression or not _damages_copies(plan)]
    second = drawing.draw(st.sampled_from(formats))
    checkpoints = msgspec.structs.replace(plan.checkpoints, local_compression=second)
    return msgspec.structs.replace(plan, checkpoints=checkpoints)


SCENARIO = Scenario(per_mille=350, last=_last)
