"""Plans of elastic jobs: an executor is lost for good, and fewer slots are left than the job has subtasks (RSC-2).

By chance the number of slots is next to never between what the job wants and what it needs. Here it is counted: all
subtasks have room as long as every executor is there, and each vertex has room for one subtask when one is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.faults.catalogue import KINDS
from barrier_tck.faults.drawing import Aim
from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.choices import DrawnChoices, between, chance
from barrier_tck.harness.draw.drawn_savepoints import groups_that_change
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.job_view import JobView, Role

_EXECUTORS_MIN = 2
_FIXED_PER_MILLE = 85
"""How many elastic jobs in 1,000 have a vertex that is to keep its parallelism."""
_MORE_SINKS_PER_MILLE = 220
"""How many elastic jobs in 1,000 have more sinks than other plans, so that some of them are gone after the loss."""
_MORE_SINKS = (3, 5)
_WAIT_MS_MIN = 10
"""How much longer a job waits, at least, than a restart is put off, where executors are replaced late."""
_TRIGGERS = (
    After(ProtocolPoint.ATTEMPT_RUNNING),
    After(ProtocolPoint.CHECKPOINT_COMPLETED),
    After(ProtocolPoint.ALL_ACKNOWLEDGED),
    After(ProtocolPoint.CHECKPOINT_TRIGGERED),
)
"""Each of these comes in every job, and nobody has left at the first one of its kind."""


def for_elastic(profile: Profile) -> Profile:
    """Return the profile of the other faults of such plans: with the loss there are no more than it says."""
    least, most = profile.faults
    return replace(profile, faults=(max(0, least - 1), max(0, most - 1)))


def with_few_slots(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Return the plan with an elastic job, and with as many slots as this needs; its job must be filled in."""
    plan = _with_more_sinks(draw, plan)
    names = [vertex.name for vertex in plan.job.vertices]
    fixed = (draw(st.sampled_from(names)),) if chance(draw, _FIXED_PER_MILLE) else ()
    executors = max(plan.deployment.executors, _EXECUTORS_MIN)
    jobs = [plan.after_stops(stops).job for stops in range(len(plan.rescales) + 1)]
    needed = max(least_subtasks(job, fixed) for job in jobs)
    slots = max(-(-len(plan.job.subtasks) // executors), -(-needed // (executors - 1)))
    deployment = msgspec.structs.replace(
        plan.deployment,
        executors=executors,
        slots_per_executor=slots,
        elastic_wait_ms=between(draw, profile.elastic_wait_ms),
        fixed_vertices=fixed,
    )
    return msgspec.structs.replace(plan, deployment=deployment)


def with_late_replacements(
    draw: st.DrawFn, profile: Profile, plan: TrialPlan, faults: tuple[ScheduledFault, ...]
) -> tuple[TrialPlan, tuple[ScheduledFault, ...]]:
    """Return plan and faults with executors that are replaced only after a while, if this is drawn for an elastic job.

    The slots are missing when the next attempt is to begin: most often they come back while the job waits for them, and
    now and then they come too late. If several executors are to be lost for good, the first one comes back now: whether
    the job waits again is seen at the second one. The job waits for longer than a restart is put off, because otherwise
    nobody could tell who does not wait. Where kills leave too few slots for any parallelism, the job has to wait for a
    replacement however late it is. So none comes too late there, and none is late if kills may follow each other.
    """
    deployment = plan.deployment
    if deployment.elastic_wait_ms is None or not chance(draw, profile.replaced_late_per_mille):
        return plan, faults
    wait_ms = plan.restart.delay_ms + max(_WAIT_MS_MIN, deployment.elastic_wait_ms)
    latest_ms = wait_ms + wait_ms // 4
    if not _has_room_after(plan, faults):
        if sum(_takes_slots(one) for one in faults) > 1:
            return plan, faults
        latest_ms = wait_ms // 2
    after_ms = plan.restart.delay_ms + between(draw, (1, latest_ms))
    lost = [one for one in faults if one.fault.needs is TargetKind.CAPACITY]
    if len(lost) > 1:
        kill = next(
            one.fault for one in KINDS.values() if one.fault.needs is TargetKind.EXECUTOR and one.fault.ends
        )
        (whose,) = lost[0].fault.subtasks
        back = ScheduledFault(kill.drawn(DrawnChoices(draw), Aim(whose)), lost[0].trigger)
        faults = tuple(back if one is lost[0] else one for one in faults)
    late = msgspec.structs.replace(deployment, elastic_wait_ms=wait_ms, replaced_after_ms=after_ms)
    return msgspec.structs.replace(plan, deployment=late), faults


def _takes_slots(planned: ScheduledFault) -> bool:
    return planned.fault.ends is Ends.SUBTASKS and planned.fault.needs in (
        TargetKind.EXECUTOR,
        TargetKind.HOST,
        TargetKind.CAPACITY,
    )


def _has_room_after(plan: TrialPlan, faults: Sequence[ScheduledFault]) -> bool:
    """Tell whether every job of the trial can go on if all executors that are killed are missing at once."""
    deployment = plan.deployment
    left = deployment.executors - sum(map(_takes_slots, faults))
    jobs = [plan.after_stops(stops).job for stops in range(len(plan.rescales) + 1)]
    least = max(least_subtasks(job, deployment.fixed_vertices) for job in jobs)
    return left * (deployment.slots_per_executor or 0) >= least


def _with_more_sinks(draw: st.DrawFn, plan: TrialPlan) -> TrialPlan:
    """Return the plan with a wide sink, if it is drawn and a sink may change."""
    kinds = {vertex.name: vertex.kind for vertex in plan.job.vertices}
    able = [
        group
        for group in groups_that_change(plan.job)
        if any(kinds[name] == SINK for name in group) and not any(kinds[name] == SOURCE for name in group)
    ]
    if not able or not chance(draw, _MORE_SINKS_PER_MILLE):
        return plan
    width = min(between(draw, _MORE_SINKS), plan.deployment.max_parallelism)
    return msgspec.structs.replace(
        plan, job=plan.job.at_widths(dict.fromkeys(draw(st.sampled_from(able)), width))
    )


def least_subtasks(job: JobPlan, fixed: tuple[str, ...]) -> int:
    """Return with how few subtasks a job can go on: one for each vertex that may change."""
    changing = [group for group in groups_that_change(job) if not any(name in fixed for name in group)]
    names = [name for group in changing for name in group]
    return sum(1 if vertex.name in names else vertex.parallelism for vertex in job.vertices)


def draw_lost_executor(draw: st.DrawFn, view: JobView, others: Sequence[ScheduledFault]) -> ScheduledFault:
    """Draw when an executor is lost for good: that of a sink, which is there until the end.

    If it is lost when the sink takes a snapshot, several sinks may have prepared what no restore will ever commit.
    Timed faults strike soon after the first attempt runs, so the loss comes later: they need somebody to hit.
    """
    kind = draw(st.sampled_from([one for one in KINDS.values() if one.fault.needs is TargetKind.CAPACITY]))
    sink = draw(st.sampled_from(view.in_role(Role.SINK)))
    timed = any(isinstance(other.trigger, At) for other in others)
    able = [one for one in _TRIGGERS if not (timed and one.point is ProtocolPoint.ATTEMPT_RUNNING)]
    if sink in view.passing(ProtocolPoint.SNAPSHOT_TAKEN):
        able.append(After(ProtocolPoint.SNAPSHOT_TAKEN, sink))
    return ScheduledFault(kind.fault.drawn(DrawnChoices(draw), Aim(sink)), draw(st.sampled_from(able)))
