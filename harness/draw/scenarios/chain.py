"""Chains: recover, checkpoint, rescale, recover again (REC-5).

Independent draws almost never give a chain, because each step must come after the one before while there is still
input. So the steps are placed by the numbers of checkpoints. Each job but the last one recovers from its first
checkpoint, completes another one, and is stopped with a savepoint. The last one fails while it starts from its
savepoint, when it has started, or after its own first checkpoint. One checkpoint is in flight at a time, so their
numbers are known in advance.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import FaultKind
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_FAULTS_MIN = 2
_CHECKPOINTS_EACH = 3
"""How many checkpoints each job but the last completes: one to recover from, one more, and the savepoint with
which it is stopped."""
_STOPS_MAX = 2


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    """Return whether jobs are rescaled, and several faults may strike."""
    able = {Capability.SAVEPOINTS, Capability.RESCALING} <= capabilities
    return able and profile.savepoints.rescale_per_mille > 0 and profile.faults.number[1] >= _FAULTS_MIN


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return one_by_one(profile)


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Draw one or two stops with a savepoint, and make the input long enough for the whole chain."""
    fewest, most = drawing.profile.faults.number
    stops_max = min(_STOPS_MAX, most - 1)
    stops_min = min(stops_max, max(1, fewest - 1))
    stops = _stops(drawing.draw(numbers(stops_min, stops_max)))
    plan = msgspec.structs.replace(plan, savepoints=stops)
    return long_enough(plan, drawing.profile.limits.settle_ms, _checkpoints(plan))


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw the failures of a chain; none if a campaign file sets other stops, or too short an input."""
    plan = job.plan
    stops = len(plan.savepoints)
    killers = [kind for kind in kinds if kind.fault.ends is not None]
    fits = plan.savepoints == _stops(stops) and len(plan.rescales) == stops > 0
    counted = plan.checkpoints.max_concurrent == 1 and is_long_enough(
        job, drawing.profile.limits.settle_ms, _checkpoints(plan)
    )
    if not (killers and fits and counted):
        return ()
    recovered = [
        After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=_CHECKPOINTS_EACH * number + 1)
        for number in range(stops)
    ]
    last = _trigger_in_last_job(drawing.draw, job, stops)
    return tuple(_failure(drawing, job, killers, trigger) for trigger in (*recovered, last))


def _stops(number: int) -> tuple[SavepointPlan, ...]:
    return tuple(
        SavepointPlan(after_checkpoints=_CHECKPOINTS_EACH * stop + _CHECKPOINTS_EACH - 1, stop=True)
        for stop in range(number)
    )


def _checkpoints(plan: TrialPlan) -> int:
    """Return how many checkpoints must come while there is input: those of the chain, and two to spare."""
    return _CHECKPOINTS_EACH * len(plan.savepoints) + 3


def _trigger_in_last_job(draw: st.DrawFn, job: DrawnJob, stops: int) -> After:
    """Draw when the last job fails. Each job before it has two attempts; all attempts but the very first restore."""
    point = draw(
        st.sampled_from(
            (
                ProtocolPoint.CHECKPOINT_COMPLETED,
                ProtocolPoint.RESTORE_STARTED,
                ProtocolPoint.RESTORED,
                ProtocolPoint.ATTEMPT_RUNNING,
            )
        )
    )
    if point is ProtocolPoint.CHECKPOINT_COMPLETED:
        return After(point, nth=_CHECKPOINTS_EACH * stops + 1)
    if point is ProtocolPoint.ATTEMPT_RUNNING:
        return After(point, nth=2 * stops + 1)
    return After(point, draw(st.sampled_from(job.view.passing(point))), nth=2 * stops)


def _failure(drawing: Drawing, job: DrawnJob, killers: Sequence[FaultKind], trigger: After) -> ScheduledFault:
    """Draw a fault of the subtask at the trigger's point; of any subtask if the coordinator is there."""
    draw, ranges = drawing.draw, drawing.profile.faults
    kind = draw(st.sampled_from(killers))
    subtask = trigger.subtask or draw(st.sampled_from(job.view.names))
    aim = Aim(
        subtask,
        lose_unsynced_per_mille=ranges.lose_unsynced_per_mille,
        unreadable_per_mille=ranges.unreadable_per_mille,
        returns_per_mille=ranges.returns_per_mille,
    )
    assert kind.fault.ends in (Ends.SUBTASKS, Ends.COORDINATOR)
    return ScheduledFault(kind.fault.drawn(DrawnChoices(draw), aim), trigger)


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    savepoints=_savepoints,
    faults=_faults,
)
