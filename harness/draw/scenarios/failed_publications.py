"""An attempt fails while a checkpoint of it is published, and the publication fails, too (COO-1, COO-2, REC-1).

The job must not start again before the outcome is known, because the checkpoint may be complete. It must start again
when the write has failed. By chance an attempt fails next to never within the moment of the write, and then the write
succeeds. Here something dies when all have acknowledged a checkpoint whose metadata cannot be written. Storage is slow,
so that often nothing is left of the attempt when the write ends. One checkpoint is in flight at a time: its number is
known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import between
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_FAILS = (1, 3)
"""Which checkpoint fails."""
_SURE = _FAILS[1] + 2
_SLOW_MS = (15, 40)
"""How long storage takes at the most, a checkpoint's metadata half as long."""
_FAULTS = 2
_METADATA = "metadata"
"""The field of a fault that says whether the coordinator's writes fail."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    fewest, most = profile.faults.number
    able = {Capability.STORAGE_FAULTS, Capability.SLOW_SNAPSHOTS} <= capabilities
    return able and fewest <= _FAULTS <= most


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    return replace(counted, checkpoints=replace(counted.checkpoints, async_ms_max=_SLOW_MS))


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    return long_enough(plan, drawing.profile.limits.settle_ms, _SURE)


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw what dies and which checkpoint it is; nothing if that checkpoint is not certain to come."""
    killers = [kind for kind in kinds if kind.fault.ends is Ends.SUBTASKS]
    refused = [kind for kind in kinds if _METADATA in kind.fault.__struct_fields__]
    if not (killers and refused and is_long_enough(job, drawing.profile.limits.settle_ms, _SURE)):
        return ()
    draw, number = drawing.draw, between(drawing.draw, _FAILS)
    aim = Aim(draw(st.sampled_from(job.view.names)))
    dies = draw(st.sampled_from(killers)).fault.drawn(Plainest(), aim)
    fails = msgspec.structs.replace(refused[0].fault.drawn(Plainest(), aim), **{_METADATA: True})
    return (
        ScheduledFault(fails, After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=number)),
        ScheduledFault(dies, After(ProtocolPoint.ALL_ACKNOWLEDGED, nth=number)),
    )


SCENARIO = Scenario(
    per_mille=25,
    settles=frozenset({Part.INPUT, Part.PACE, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    faults=_faults,
)
