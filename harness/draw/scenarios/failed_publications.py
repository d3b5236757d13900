"""An attempt fails while a checkpoint of it is published; mostly the publication fails, too (COO-1, COO-2, REC-1).

The job must not start again before the outcome is known, because the checkpoint may be complete. It must start again
when the write has ended, whether it succeeded or not. By chance an attempt fails next to never within the moment of the
write, so a second failure hardly ever meets a coordinator that still waits for the outcome of something. Here something
dies when all have acknowledged a checkpoint, whose metadata often cannot be written; now and then the coordinator dies,
too, before the write has ended. Storage is slow, so that often nothing is left of the attempt when it ends. One
checkpoint is in flight at a time: its number is known.
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
from barrier_tck.harness.draw.choices import between, chance
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
_WRITTEN_PER_MILLE = 250
"""Of 1,000 of these plans, in how many the write succeeds."""
_CRASH_PER_MILLE = 200
"""Of 1,000 of these plans, in how many the coordinator dies as soon as it knows that the attempt has failed."""
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
    faults = [ScheduledFault(dies, After(ProtocolPoint.ALL_ACKNOWLEDGED, nth=number))]
    if not chance(draw, _WRITTEN_PER_MILLE):
        faults.insert(0, ScheduledFault(fails, After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=number)))
    crashes = [kind for kind in kinds if kind.fault.ends is Ends.COORDINATOR]
    if crashes and len(faults) < drawing.profile.faults.number[1] and chance(draw, _CRASH_PER_MILLE):
        crash = draw(st.sampled_from(crashes)).fault.drawn(Plainest(), aim)
        faults.append(ScheduledFault(crash, After(ProtocolPoint.ATTEMPT_FAILED)))
    return faults


SCENARIO = Scenario(
    per_mille=40,
    settles=frozenset({Part.INPUT, Part.PACE, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    faults=_faults,
)
