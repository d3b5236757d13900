"""Chains of conditions: what happens finds what the one before it has left (REC-3, REC-5, RSC-2, STA-1, SNP-5).

A failure, a long good run, a failure with a delay that has grown; narrower, slots back, deployed again; a timer for a
time that has passed, then a restore; a second increment after a restart, then a restore from copies on hosts. By chance
such things are next to never drawn one after the other, and one scenario for each would not draw the next one that
matters. So a chain is a sentence of a small grammar: a few ``Link`` values in any order, each of which says how many
checkpoints complete first, and what strikes or is asked for then. One checkpoint is in flight at a time, so their
numbers are certain. What the job keeps decides what each restore meets: timers, increments, copies on hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS, FaultKind
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, chance, numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.counted_checkpoints import one_by_one
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.input_length import is_long_enough, long_enough
from barrier_tck.harness.draw.lost_executors import LOST, can_lose_executors
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.rescaled_jobs import jobs_of, least_subtasks
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.draw.scenarios import windows
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.system.system_under_test import Capability


class Act(Enum):
    """What ends the attempt that runs."""

    SUBTASK_DIES = auto()
    SUBTASK_DIES_IN_RESTORE = auto()
    """A subtask dies while its state is restored: the attempt ends before it ran. One without a restore ends when it
    runs."""
    COORDINATOR_DIES = auto()
    EXECUTOR_IS_LATE = auto()
    """An executor dies, and the one in its place comes only when the job has gone on narrower."""
    EXECUTOR_IS_LOST = auto()
    STOP = auto()
    """The job is stopped with a savepoint, and another one goes on from it."""


@dataclass(frozen=True, slots=True)
class Link:
    """One condition, and what is tied to it."""

    checkpoints: int
    """How many checkpoints complete first; 0: the act comes as soon as the attempt runs."""
    act: Act


AGAIN = Link(0, Act.SUBTASK_DIES)
IN_DEPLOYMENT = Link(0, Act.SUBTASK_DIES_IN_RESTORE)
LINKS = (
    Link(1, Act.SUBTASK_DIES),
    Link(2, Act.SUBTASK_DIES),
    # A long good run, after which a delay that has grown is the first one again.
    Link(5, Act.SUBTASK_DIES),
    AGAIN,
    IN_DEPLOYMENT,
    Link(1, Act.COORDINATOR_DIES),
    Link(1, Act.STOP),
    Link(2, Act.STOP),
    Link(1, Act.EXECUTOR_IS_LATE),
    Link(1, Act.EXECUTOR_IS_LATE),
    Link(2, Act.EXECUTOR_IS_LOST),
)
"""The words of the grammar; any may follow any."""
_RESTORE = (ProtocolPoint.RESTORE_STARTED, ProtocolPoint.RESTORED)
_LENGTH = (3, 5)
"""How many links a chain has."""
_DIES = next(
    kind for kind in KINDS.values() if kind.fault.needs is TargetKind.WORKER and kind.fault.ends is not None
)
_KINDS: dict[Act, FaultKind] = {
    Act.SUBTASK_DIES: _DIES,
    Act.SUBTASK_DIES_IN_RESTORE: _DIES,
    Act.COORDINATOR_DIES: next(kind for kind in KINDS.values() if kind.fault.ends is Ends.COORDINATOR),
    Act.EXECUTOR_IS_LATE: next(
        kind
        for kind in KINDS.values()
        if kind.fault.needs is TargetKind.EXECUTOR and kind.fault.ends is not None
    ),
    Act.EXECUTOR_IS_LOST: LOST,
}
_WINDOWS_PER_MILLE = 600
"""How many of these jobs in 1,000 hold records back; mostly for less time than a restart takes."""
_LOCAL_PER_MILLE, _INCREMENTAL_PER_MILLE = 600, 700
WAIT_MS = 10
"""How long an elastic job waits for slots."""
LATER_MS = 12
"""How much later than that a late executor comes."""


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    able = {Capability.SAVEPOINTS, Capability.WORKER_KILL, Capability.EXECUTOR_KILL} <= capabilities
    return able and can_lose_executors(profile, capabilities) and profile.faults.number[1] >= _LENGTH[0]


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    counted = one_by_one(profile)
    return replace(
        counted,
        workload=replace(
            counted.workload, batch_records=(1, 2), batches=(10, 20), keys=(6, 20), records_per_second=(100,)
        ),
        # Wide vertices, so that a job can become narrower.
        job=replace(
            counted.job, sources=(1, 2), keyed=(2, 4), sinks=(1, 3), drawn_per_mille=0, window_ms=(5, 20)
        ),
        checkpoints=replace(
            counted.checkpoints,
            interval_ms=(12, 25),
            async_ms_max=(0, 4),
            retained=(2, 3),
            incremental_per_mille=_INCREMENTAL_PER_MILLE,
        ),
        storage=replace(counted.storage, local_recovery_per_mille=_LOCAL_PER_MILLE, on_unreadable=("fail",)),
        restarts=replace(
            counted.restarts,
            strategies=("exponential_delay", "exponential_delay", "fixed_delay"),
            delay_ms=(5, 30),
            counted_ms=(60, 100),
        ),
        faults=replace(counted.faults, lose_unsynced_per_mille=0, unreadable_per_mille=0),
        savepoints=replace(counted.savepoints, rescale_per_mille=500),
    )


def _savepoints(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Draw the chain: its stops, its faults, and the length of the input for all that is to happen."""
    links = [drawing.draw(st.sampled_from(LINKS)) for _ in range(drawing.draw(numbers(*_LENGTH)))]
    return chained(drawing, plan, links)


def chained(drawing: Drawing, plan: TrialPlan, links: Sequence[Link]) -> TrialPlan:
    """Return the plan with the stops and the faults of these links, and with an input that is long enough for them.

    Whoever dies in a restore is the same subtask at the same point each time. Of others it is not certain how often
    they came that far. In the place of a coordinator whose memory holds the checkpoints a subtask dies.
    """
    stops: list[SavepointPlan] = []
    faults: list[ScheduledFault] = []
    completed, running, restores = 0, 1, 0  # how often an attempt has run by then, and begun with a restore
    restoring: After | None = None
    in_memory = plan.checkpoints.storage == "memory"
    for link in links:
        completed += link.checkpoints
        act = Act.SUBTASK_DIES if in_memory and link.act is Act.COORDINATOR_DIES else link.act
        if act is Act.STOP:
            stops.append(SavepointPlan(after_checkpoints=completed, stop=True))
            completed += 1  # the savepoint
        elif act is Act.SUBTASK_DIES_IN_RESTORE and completed:
            restoring = restoring or _in_restore(drawing.draw, plan)
            aim = Aim(restoring.subtask or "")
            dies = _KINDS[act].fault.drawn(DrawnChoices(drawing.draw), aim)
            faults.append(ScheduledFault(dies, msgspec.structs.replace(restoring, nth=restores)))
            running -= 1
        else:
            trigger = After(ProtocolPoint.ATTEMPT_RUNNING, nth=running)
            if link.checkpoints:
                trigger = After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=completed)
            faults.append(_fault(drawing.draw, plan, act, trigger))
        running += 1
        restores += completed > 0
    plan = msgspec.structs.replace(plan, savepoints=tuple(stops), faults=tuple(faults))
    return long_enough(plan, drawing.profile.limits.settle_ms, completed + 3)


def _in_restore(draw: st.DrawFn, plan: TrialPlan) -> After:
    """Draw at which point of its restore a subtask is, and of which vertex it is the first one."""
    vertex = draw(st.sampled_from(plan.job.vertices))
    return After(draw(st.sampled_from(_RESTORE)), f"{vertex.name}[0]")


def _fault(draw: st.DrawFn, plan: TrialPlan, act: Act, trigger: After) -> ScheduledFault:
    """Draw whom it hits: the first subtask of a vertex, which every job of the trial has."""
    vertex = draw(st.sampled_from(plan.job.vertices))
    return ScheduledFault(_KINDS[act].fault.drawn(DrawnChoices(draw), Aim(f"{vertex.name}[0]")), trigger)


def _slots(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let the job be elastic if the chain takes slots away, and as many slots be there as it has subtasks.

    If an executor is lost at the end of the chain, and none was away before, the coordinator dies while the job waits.
    """
    lost = sum(planned.fault.needs is TargetKind.CAPACITY for planned in plan.faults)
    late = any(planned.fault.needs is TargetKind.EXECUTOR for planned in plan.faults)
    if not (lost or late):
        return plan
    plan = msgspec.structs.replace(plan, rescales=())  # a job that is narrow already would become no narrower
    least = max(least_subtasks(job, ()) for job in jobs_of(plan))
    executors = max(len(plan.job.subtasks), least + lost + late)
    deployment = msgspec.structs.replace(
        plan.deployment,
        executors=executors,
        slots_per_executor=1,
        elastic_wait_ms=WAIT_MS,
        replaced_after_ms=plan.restart.delay_ms + WAIT_MS + LATER_MS if late else 0,
    )
    able = plan.checkpoints.storage != "memory"
    if able and lost == 1 and not late and plan.faults[-1].fault.needs is TargetKind.CAPACITY:
        crash = _fault(drawing.draw, plan, Act.COORDINATOR_DIES, After(ProtocolPoint.WAITING_FOR_SLOTS))
        plan = msgspec.structs.replace(plan, faults=(*plan.faults, crash))
    return msgspec.structs.replace(plan, deployment=deployment)


def _faults(drawing: Drawing, job: DrawnJob, _: Sequence[FaultKind]) -> Sequence[ScheduledFault]:
    """Return the faults of the chain; none if a campaign made its input too short, or checkpoints overlap."""
    completions = [
        planned.trigger.nth
        for planned in job.plan.faults
        if isinstance(planned.trigger, After) and planned.trigger.point is ProtocolPoint.CHECKPOINT_COMPLETED
    ]
    counted = job.plan.checkpoints.max_concurrent == 1 and is_long_enough(
        job, drawing.profile.limits.settle_ms, max(completions, default=0) + 1
    )
    return job.plan.faults if counted else ()


def _last(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    return windows.SCENARIO.last(drawing, plan) if chance(drawing.draw, _WINDOWS_PER_MILLE) else plan


SCENARIO = Scenario(
    settles=frozenset({Part.INPUT, Part.OPERATORS, Part.PACE, Part.SAVEPOINTS, Part.FAULTS}),
    possible=_possible,
    profile=_profile,
    savepoints=_savepoints,
    slots=_slots,
    faults=_faults,
    last=_last,
)
