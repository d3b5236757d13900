"""Executors that an elastic job loses for good, and those that are replaced late (RSC-2)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, between, chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.rescaled_jobs import jobs_of, least_subtasks
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.job_view import JobView, Role
from barrier_tck.harness.system.system_under_test import Capability

LOST = next(kind for kind in KINDS.values() if kind.fault.needs is TargetKind.CAPACITY)
"""The kind of fault with which an executor is lost for good."""
_KILLED = next(
    kind for kind in KINDS.values() if kind.fault.needs is TargetKind.EXECUTOR and kind.fault.ends is not None
)
_ELASTIC = frozenset({Capability.ELASTIC, Capability.EXECUTOR_LOSS})
_WAIT_MS_MIN = 10
"""Where executors are replaced late, a job waits for slots at least this much longer than the restart delay."""
_CRASH_WHILE_WAITING_PER_MILLE = 400
"""Of 1,000 plans whose only fault is a lost executor, in how many the coordinator crashes while the job waits."""
_TRIGGERS = (
    After(ProtocolPoint.ATTEMPT_RUNNING),
    After(ProtocolPoint.CHECKPOINT_COMPLETED),
    After(ProtocolPoint.ALL_ACKNOWLEDGED),
    After(ProtocolPoint.CHECKPOINT_TRIGGERED),
)
"""Every job passes each of these points, and no subtask has finished when it does so for the first time."""


def can_lose_executors(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    """Return whether an elastic job can lose executors for good. Under Chandy-Lamport no job is elastic (CHL-2)."""
    return capabilities >= _ELASTIC and profile.checkpoints.protocol == "barriers"


def draw_lost_executor(draw: st.DrawFn, view: JobView, others: Sequence[ScheduledFault]) -> ScheduledFault:
    """Draw the loss of a sink's executor for good, and its trigger. A sink is there until the end.

    If it is lost when the sink takes a snapshot, several sinks may have prepared transactions that no restore will ever
    commit. Timed faults strike soon after the first attempt runs, and need a target then. So beside them the loss is
    triggered later.
    """
    sink = draw(st.sampled_from(view.in_role(Role.SINK)))
    timed = any(isinstance(other.trigger, At) for other in others)
    possible = [
        trigger for trigger in _TRIGGERS if not (timed and trigger.point is ProtocolPoint.ATTEMPT_RUNNING)
    ]
    if sink in view.passing(ProtocolPoint.SNAPSHOT_TAKEN):
        possible.append(After(ProtocolPoint.SNAPSHOT_TAKEN, sink))
    return ScheduledFault(LOST.fault.drawn(DrawnChoices(draw), Aim(sink)), draw(st.sampled_from(possible)))


def with_crash_while_waiting(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Return the plan with a coordinator that crashes while its elastic job waits for slots, if that is drawn.

    The job is sure to wait if it waits for slots at all, an executor is lost for good, and too few slots are left for
    its full parallelism.
    """
    draw, deployment = drawing.draw, plan.deployment
    kinds = [KINDS[name] for name, weight in drawing.profile.faults.kinds if weight]
    crashes = [kind for kind in kinds if kind.fault.ends is Ends.COORDINATOR]
    left = (deployment.executors - 1) * (deployment.slots_per_executor or 0)
    waits = deployment.elastic_wait_ms and not deployment.replaced_after_ms and left < len(plan.job.subtasks)
    can_crash = crashes and Capability.COORDINATOR_CRASH in drawing.capabilities and not plan.savepoints
    if not (waits and can_crash) or plan.checkpoints.storage == "memory" or len(plan.faults) != 1:
        return plan
    if not chance(draw, _CRASH_WHILE_WAITING_PER_MILLE):
        return plan
    crash = draw(st.sampled_from(crashes)).fault.drawn(DrawnChoices(draw), Aim(plan.job.subtasks[0]))
    waiting = ScheduledFault(crash, After(ProtocolPoint.WAITING_FOR_SLOTS))
    return msgspec.structs.replace(plan, faults=(*plan.faults, waiting))


def with_late_replacements(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Return the plan with executors that are replaced only after a while, if this is drawn for its elastic job.

    The slots are missing when the next attempt is to begin. Mostly they come back while the job waits for them, and
    sometimes too late. If several executors are to be lost for good, the first loss becomes a kill, after which the
    executor is replaced: whether the job waits a second time shows at the next loss. The job waits longer than the
    restart delay, or else a job that does not wait could not be told from one that does.

    If the kills leave too few slots for any parallelism, the job has to wait for a replacement, however late it comes.
    Then no replacement comes after the wait is over, and none is late if one kill may follow another.
    """
    draw, deployment = drawing.draw, plan.deployment
    if deployment.elastic_wait_ms is None or not chance(
        draw, drawing.profile.elastic.replaced_late_per_mille
    ):
        return plan
    wait_ms = plan.restart.delay_ms + max(_WAIT_MS_MIN, deployment.elastic_wait_ms)
    latest_ms = wait_ms + wait_ms // 4
    if not _has_capacity_after_faults(plan):
        if sum(map(_takes_slots, plan.faults)) > 1:
            return plan
        latest_ms = wait_ms // 2
    after_ms = plan.restart.delay_ms + between(draw, (1, latest_ms))
    late = msgspec.structs.replace(deployment, elastic_wait_ms=wait_ms, replaced_after_ms=after_ms)
    return msgspec.structs.replace(plan, deployment=late, faults=_with_first_loss_replaced(draw, plan.faults))


def _with_first_loss_replaced(
    draw: st.DrawFn, faults: Sequence[ScheduledFault]
) -> tuple[ScheduledFault, ...]:
    """Return the faults, with a kill instead of the first of several losses."""
    lost = [planned for planned in faults if planned.fault.needs is TargetKind.CAPACITY]
    if len(lost) < 2:
        return tuple(faults)
    (subtask,) = lost[0].fault.subtasks
    kill = ScheduledFault(_KILLED.fault.drawn(DrawnChoices(draw), Aim(subtask)), lost[0].trigger)
    return tuple(kill if planned is lost[0] else planned for planned in faults)


def _takes_slots(planned: ScheduledFault) -> bool:
    return planned.fault.ends is Ends.SUBTASKS and planned.fault.needs in (
        TargetKind.EXECUTOR,
        TargetKind.HOST,
        TargetKind.CAPACITY,
    )


def _has_capacity_after_faults(plan: TrialPlan) -> bool:
    """Return whether every job of the trial can go on if all executors that are killed are missing at once."""
    deployment = plan.deployment
    left = deployment.executors - sum(map(_takes_slots, plan.faults))
    least = max(least_subtasks(job, deployment.fixed_vertices) for job in jobs_of(plan))
    return left * (deployment.slots_per_executor or 0) >= least
