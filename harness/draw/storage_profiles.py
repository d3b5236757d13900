"""How a profile changes for plans in which copies of state are hit."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.fault import CopyPlace
from barrier_tck.faults.targets import Damage, TargetKind
from barrier_tck.harness.draw.choices import chance
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.trial_plan import TrialPlan

_RETAINED_MIN = 2
"""The smallest number of checkpoints that a plan for faults of copies retains, so that an older one can be restored."""
_TOLERATED = (1_000, 3, 1, 1, 0)
"""How many checkpoints in a row may fail: often as many as a fault lets fail, so that one more would end an attempt."""
_MANY_KEYS, _MANY_GROUPS, _FEW_SUBTASKS = (20, 40), 64, 12


def for_storage_faults(profile: Profile) -> Profile:
    """Return the profile of plans in which copies of state are hit. Checkpoints come one by one, often and reliably,
    and each subtask has state, in several files if it keeps copies.
    """
    earliest, latest = profile.interval_ms
    quickest, slowest = profile.async_ms_max
    return replace(
        profile,
        tiny_inputs_per_mille=0,
        keys=_MANY_KEYS,
        max_parallelism=tuple(groups for groups in profile.max_parallelism if groups >= _MANY_GROUPS)
        or (_MANY_GROUPS,),
        subtasks_max=min(_FEW_SUBTASKS, profile.subtasks_max),
        max_concurrent=(1, 1),
        slow_factors=(min(profile.slow_factors),),
        records_per_second=(min((rate for rate in profile.records_per_second if rate), default=None),),
        latency_ms_max=(
            profile.latency_ms_max[0],
            max(profile.latency_ms_max[0], profile.latency_ms_max[1] // 4),
        ),
        interval_ms=(earliest, (earliest + latest) // 2),
        min_pause_ms=(0,),
        timeouts_ms=(max(profile.timeouts_ms),),
        tolerated_failures=_TOLERATED if len(profile.tolerated_failures) > 1 else profile.tolerated_failures,
        async_ms_max=(quickest, (quickest + slowest) // 2),
        late_async_per_mille=0,
        slow_channel_per_mille=profile.slow_channel_per_mille if profile.slow_channel_into_keyed else 0,
        retained=(max(_RETAINED_MIN, profile.retained[0]), max(_RETAINED_MIN, profile.retained[1])),
        local_recovery_per_mille=max(570, profile.local_recovery_per_mille),
    )


_KEEP_EXECUTORS = (TargetKind.WORKER, TargetKind.STORAGE, TargetKind.MESSAGES)
"""What faults need after which every executor still lives."""


def with_copies_in_memory(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return a plan that keeps its local copies in the executors' memory, if it is drawn and every fault can hit them.

    A fault of a copy needs one: there must be room, and the executor must not have died before. No directory in memory
    can become unreadable.
    """
    if not plan.local_recovery or not chance(draw, profile.local_memory_per_mille):
        return plan
    faults = [scheduled.fault for scheduled in plan.faults]
    hits = [hit for fault in faults if (hit := fault.copies_hit) is not None and not hit.whole_host]
    local = [hit.damage for hit in hits if hit.place is CopyPlace.LOCAL]
    lasting = all(fault.needs in _KEEP_EXECUTORS for fault in faults)
    if local and (Damage.UNREADABLE in local or not lasting):
        return plan
    size = draw(st.sampled_from(profile.local_memory_bytes[: 1 if hits else None]))
    checkpoints = msgspec.structs.replace(plan.checkpoints, local_copies="memory", local_memory_bytes=size)
    return msgspec.structs.replace(plan, checkpoints=checkpoints)


def with_compression(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return a plan whose snapshots are compressed, if it is drawn."""
    if not chance(draw, profile.compressed_per_mille):
        return plan
    return msgspec.structs.replace(
        plan, checkpoints=msgspec.structs.replace(plan.checkpoints, compression="zstd")
    )
