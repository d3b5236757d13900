"""The coordinator's deletions fail at the first try, those at the very end of the job, too (COO-3, COO-4).

What cannot be deleted must not be forgotten: it is deleted when the next checkpoint completes, or before the job
finishes. By chance no storage of a drawn plan refuses to delete anything. Here few checkpoints are retained, so that
each further one deletes an older one, and from some checkpoint on deletions fail: one, a few, or all that follow.
Now and then the coordinator, or a subtask, dies afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_REFUSES = next(kind for kind in KINDS.values() if kind.fault.needs is TargetKind.DELETIONS)
_RETAINED = (1, 2)
_SURE = _RETAINED[1] + 4
"""Checkpoints that are certain to come: those that are retained, those that delete others, and some to spare."""
_KILL_PER_MILLE = 400


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    return (
        Capability.DELETION_FAULTS in capabilities
        and profile.faults.number[0] <= 1 <= profile.faults.number[1]
    )


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    return replace(counted, checkpoints=replace(counted.checkpoints, retained=_RETAINED))


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    return long_enough(plan, drawing.profile.limits.settle_ms, _SURE)


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw the refusals, and perhaps something that dies; none if no deletion is certain to follow."""
    draw, checkpoints = drawing.draw, job.plan.checkpoints
    counted = checkpoints.max_concurrent == 1 and is_long_enough(job, drawing.profile.limits.settle_ms, _SURE)
    if not (counted and job.hit_by(_REFUSES) and checkpoints.retained <= _RETAINED[1]):
        return ()
    begins = draw(numbers(1, checkpoints.retained + 2))
    refused = ScheduledFault(
        _REFUSES.fault.drawn(DrawnChoices(draw), Aim("")),
        After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=begins),
    )
    killers = [kind for kind in kinds if kind.fault.ends is not None]
    several = drawing.profile.faults.number[1] > 1
    if not (killers and several and chance(draw, _KILL_PER_MILLE)):
        return (refused,)
    aim = Aim(draw(st.sampled_from(job.view.names)))
    killed = draw(st.sampled_from(killers)).fault.drawn(DrawnChoices(draw), aim)
    return (refused, ScheduledFault(killed, After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=begins)))


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    load=_load,
    faults=_faults,
)
