"""Local copies of state are kept in the executors' memory, and are lost with it (LOC-1)."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.fault import CopyPlace
from barrier_tck.faults.targets import Damage, TargetKind
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan

_KEEP_EXECUTORS = (TargetKind.WORKER, TargetKind.STORAGE, TargetKind.MESSAGES)
"""What faults need after which every executor still lives."""


def _last(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Move the copies of a plan that keeps any, if every fault can hit them there.

    A fault of a copy needs one: there must be room, and the executor must not have died before. No directory in memory
    can become unreadable.
    """
    if not plan.local_recovery:
        return plan
    faults = [scheduled.fault for scheduled in plan.faults]
    hits = [hit for fault in faults if (hit := fault.copies_hit) is not None and not hit.whole_host]
    local = [hit.damage for hit in hits if hit.place is CopyPlace.LOCAL]
    lasting = all(fault.needs in _KEEP_EXECUTORS for fault in faults)
    if local and (Damage.UNREADABLE in local or not lasting):
        return plan
    sizes = drawing.profile.storage.local_memory_bytes
    size = drawing.draw(st.sampled_from(sizes[: 1 if hits else None]))
    checkpoints = msgspec.structs.replace(plan.checkpoints, local_copies="memory", local_memory_bytes=size)
    return msgspec.structs.replace(plan, checkpoints=checkpoints)


SCENARIO = Scenario(per_mille=160, last=_last)
