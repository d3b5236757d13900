"""The coordinator is lost, and the job is started again from its newest savepoint (COO-4, COO-5).

Newer checkpoints were under way by then, so their ids were given out, and must not be given out again. Some may be
complete, and the job must not go on from these. By chance that is never drawn: a job that is stopped with a savepoint
has given out no newer id. Here the coordinator dies while the checkpoint behind the savepoint is under way, or one
after it. Often the job goes on to a stop, or fails once more.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim, Plainest
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability

_AFTER = (0, 4)
"""After how many completed checkpoints the savepoint is asked for."""
_LATER = (1, 3)
"""How many more complete before what comes last, if anything does."""
_NEWER = (0, 2)
"""How many checkpoints behind the savepoint are complete when the coordinator dies."""
_STOP_PER_MILLE, _AGAIN_PER_MILLE = 400, 400
_MOMENTS = (ProtocolPoint.CHECKPOINT_TRIGGERED, ProtocolPoint.ALL_ACKNOWLEDGED)
"""When the coordinator dies: the id of the newer checkpoint is given out, and it is not complete."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    able = {Capability.SAVEPOINTS, Capability.COORDINATOR_CRASH, Capability.FROM_SAVEPOINT} <= capabilities
    return able and profile.faults.number[1] > 0


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    return one_by_one(profile)


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Ask for the savepoint, and perhaps for a stop of the job that was started from it."""
    if not plan.checkpoints.enabled:
        return plan
    draw = drawing.draw
    asked = [SavepointPlan(after_checkpoints=between(draw, _AFTER))]
    if chance(draw, _STOP_PER_MILLE):
        stop_after = asked[0].after_checkpoints + 1 + _NEWER[1] + between(draw, _LATER)
        asked.append(SavepointPlan(after_checkpoints=stop_after, stop=True))
    plan = msgspec.structs.replace(plan, savepoints=tuple(asked))
    return long_enough(plan, drawing.profile.limits.settle_ms, _checkpoints(plan))


def _faults(drawing: Drawing, job: DrawnJob, kinds: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Draw the crash, and perhaps a failure of the job that follows; none if the input is too short."""
    draw, plan = drawing.draw, job.plan
    counted = plan.checkpoints.max_concurrent == 1 and is_long_enough(
        job, drawing.profile.limits.settle_ms, _checkpoints(plan)
    )
    crash = next(kind for kind in KINDS.values() if kind.fault.ends is Ends.COORDINATOR)
    if not (plan.savepoints and counted and job.hit_by(crash)):
        return ()
    behind = plan.savepoints[0].after_checkpoints + 2 + between(draw, _NEWER)
    unsynced_per_mille = drawing.profile.faults.lose_unsynced_per_mille
    aim = Aim("", lose_unsynced_per_mille=unsynced_per_mille, from_savepoint_per_mille=1_000)
    lost = ScheduledFault(
        crash.fault.drawn(DrawnChoices(draw), aim), After(draw(st.sampled_from(_MOMENTS)), nth=behind)
    )
    killers = [kind for kind in kinds if kind.fault.ends is Ends.SUBTASKS]
    several = drawing.profile.faults.number[1] > 1
    if not (killers and several and chance(draw, _AGAIN_PER_MILLE)):
        return (lost,)
    subtask = draw(st.sampled_from(job.view.names))
    again = draw(st.sampled_from(killers)).fault.drawn(Plainest(), Aim(subtask))
    return (lost, ScheduledFault(again, After(ProtocolPoint.ATTEMPT_RUNNING, nth=2)))


def _checkpoints(plan: TrialPlan) -> int:
    """Return how many checkpoints must come while there is input: those that are counted, and two to spare."""
    return max((asked.after_checkpoints for asked in plan.savepoints), default=0) + 4 + _NEWER[1]


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    savepoints=_savepoints,
    faults=_faults,
)
