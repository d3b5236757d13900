"""The plans of the suite: written once in the simulator's scale, stretched for a real cluster.

A plan that takes a hundred virtual milliseconds would be over on a cluster before the first checkpoint; one that
takes seconds of real time would waste a simulator. So a test writes the plan that it means, and `scaled` turns
it into the same trial of another world: more and larger batches, longer times, the same faults at the same
protocol points. Subtasks are named by their roles, for only the system knows what it calls them.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.plug_in_profiles import chosen_profile, profiles_of
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    NetworkPlan,
    RestartPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.role_aims import by_role
from barrier_tck.harness.system.scale import Scale, scale_of
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.workloads.kind_catalogue import kind_named

CALM = TrialPlan(
    workload=WorkloadPlan("keyed-totals", batches=20, batch_records=3, keys=5, records_per_second=600),
    checkpoints=CheckpointPlan(interval_ms=15),
    note="a plan of the conformance suite",
)
"""The standard job, paced so that it takes several checkpoints, without faults: what other plans vary."""


SOURCE, STATEFUL, STATELESS, SINK = (
    by_role(role) for role in (Role.SOURCE, Role.STATEFUL, Role.STATELESS, Role.SINK)
)
"""The first subtask of each role, whatever a system calls it."""
OTHER_SOURCE, OTHER_STATEFUL, OTHER_SINK = (
    by_role(role, 1) for role in (Role.SOURCE, Role.STATEFUL, Role.SINK)
)
"""The second one."""


def scaled(plan: TrialPlan, scale: Scale) -> TrialPlan:
    """Return the plan in a system's scale. Inputs of no record or of exactly one stay what they are."""
    factor = scale.time_factor
    checkpoints, deployment = plan.checkpoints, plan.deployment
    slow_by_default = checkpoints.async_ms_max == CheckpointPlan().async_ms_max
    return msgspec.structs.replace(
        plan,
        workload=_scaled_workload(plan.workload, scale),
        job=_scaled_job(plan.job, factor),
        deployment=msgspec.structs.replace(
            deployment,
            executors=max(deployment.executors, scale.executors_min),
            slow_batch_ms=deployment.slow_batch_ms * factor,
            elastic_wait_ms=None
            if deployment.elastic_wait_ms is None
            else deployment.elastic_wait_ms * factor,
        ),
        checkpoints=msgspec.structs.replace(
            checkpoints,
            interval_ms=checkpoints.interval_ms * factor,
            min_pause_ms=checkpoints.min_pause_ms * factor,
            timeout_ms=max(checkpoints.timeout_ms, scale.timeout_ms_min),
            async_ms_max=checkpoints.async_ms_max * (1 if slow_by_default else factor),
            alignment_timeout_ms=checkpoints.alignment_timeout_ms * factor,
        ),
        restart=_scaled_restart(plan.restart, factor),
        limits=msgspec.structs.replace(plan.limits, wall_s=min(plan.limits.wall_s, scale.wall_s)),
        savepoints=tuple(
            msgspec.structs.replace(planned, delay_ms=planned.delay_ms * factor)
            for planned in plan.savepoints
        ),
        faults=tuple(_scaled_fault(scheduled, scale) for scheduled in plan.faults),
    )


def _scaled_restart(restart: RestartPlan, factor: int) -> RestartPlan:
    times = ("delay_ms", "delay_ms_max", "interval_ms", "reset_after_ms")
    return msgspec.structs.replace(restart, **{name: getattr(restart, name) * factor for name in times})


def _scaled_job(job: JobPlan, factor: int) -> JobPlan:
    """Return the job with windows that are longer by the factor, as far as they may be."""
    vertices = tuple(
        msgspec.structs.replace(
            vertex,
            parameters={
                **vertex.parameters,
                holds.parameter: min(vertex.parameters[holds.parameter] * factor, holds.longest_ms),
            },
        )
        if (holds := kind_named(vertex.kind).holds_back) is not None
        else vertex
        for vertex in job.vertices
    )
    return msgspec.structs.replace(job, vertices=vertices)


def _scaled_workload(workload: WorkloadPlan, scale: Scale) -> WorkloadPlan:
    if workload.batches * workload.batch_records <= 1:
        return workload
    return msgspec.structs.replace(
        workload,
        batches=workload.batches * scale.batches_factor,
        batch_records=scale.batch_records or workload.batch_records,
        keys=scale.keys or workload.keys,
        records_per_second=scale.records_per_second or workload.records_per_second,
    )


def _scaled_fault(scheduled: ScheduledFault, scale: Scale) -> ScheduledFault:
    fault, trigger = scheduled.fault.scaled(scale.time_factor, scale.bytes_factor), scheduled.trigger
    match trigger:
        case At(time_ms=time_ms):
            return ScheduledFault(fault, At(time_ms * scale.time_factor))
        case After():
            return ScheduledFault(fault, trigger)  # a protocol point is the same point in every world


def profile_for(name: str, system: SystemUnderTest) -> Profile:
    """Return the profile from which plans for a system are drawn when a property asks for ``name``.

    The system's scale names it, or else it is the first profile that the system brings. In every system,
    ``faultless`` has no faults, ``heavy`` has several if the system can suffer any, and ``at-least-once`` has that
    mode.
    """
    own = profiles_of(system)
    other = dict(scale_of(system).profiles).get(name, own[0].name if own else name)
    profile = chosen_profile(other, system, None)
    if name == "at-least-once":
        return replace(profile, checkpoints=replace(profile.checkpoints, modes=("at_least_once",)))
    fewest, most = profile.faults.number
    if name == "heavy" and most > 0:
        return replace(profile, faults=replace(profile.faults, number=(max(2, fewest), max(2, most))))
    if name == "faultless":
        return replace(profile, faults=replace(profile.faults, number=(0, 0)))
    return profile


# --- building plans -----------------------------------------------------------------------------------------


def varied(
    plan: TrialPlan = CALM,
    *,
    workload: WorkloadPlan | None = None,
    job: JobPlan | None = None,
    deployment: DeploymentPlan | None = None,
    checkpoints: CheckpointPlan | None = None,
) -> TrialPlan:
    """Return the plan with some of its parts replaced."""
    return msgspec.structs.replace(
        plan,
        workload=workload or plan.workload,
        job=job or plan.job,
        deployment=deployment or plan.deployment,
        checkpoints=checkpoints or plan.checkpoints,
    )


def with_faults(*faults: ScheduledFault, plan: TrialPlan = CALM) -> TrialPlan:
    """Return the plan with these faults."""
    return msgspec.structs.replace(plan, faults=faults)


def kill_executor(of: str, at: At | After) -> ScheduledFault:
    """Kill the executor that hosts a subtask."""
    return ScheduledFault(KillExecutor(of), at)


def kill_worker(of: str, at: At | After) -> ScheduledFault:
    """Kill the process of one subtask."""
    return ScheduledFault(KillWorker(of), at)


def crash_coordinator(at: At | After, lose_unsynced: bool = False, unreadable_ms: int = 0) -> ScheduledFault:
    """Kill the coordinator, with or without what its host had not synced; storage may be unreadable after that."""
    return ScheduledFault(CrashCoordinator(lose_unsynced, unreadable_ms), at)


def kill_at(point: ProtocolPoint, subtask: str, nth: int = 1) -> ScheduledFault:
    """Kill the executor of a subtask while that subtask stands at a point."""
    return kill_executor(subtask, After(point, subtask, nth))


AFTER_THE_FIRST_CHECKPOINT = kill_executor(STATEFUL, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK))
"""A kill after which the first checkpoint is restored: it is complete, and nothing of it is committed."""

SIX_AIMS: dict[str, TrialPlan] = {
    "before-the-first-barrier": with_faults(kill_at(ProtocolPoint.RECORDS_PROCESSED, STATEFUL)),
    "during-alignment": with_faults(kill_at(ProtocolPoint.ALIGNMENT_STARTED, STATEFUL)),
    "between-sync-and-async": with_faults(
        kill_worker(STATEFUL, After(ProtocolPoint.SNAPSHOT_TAKEN, STATEFUL))
    ),
    "all-acknowledged": with_faults(kill_executor(STATEFUL, After(ProtocolPoint.ALL_ACKNOWLEDGED))),
    "complete-not-committed": with_faults(kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK))),
    "during-restore": with_faults(
        AFTER_THE_FIRST_CHECKPOINT, kill_at(ProtocolPoint.RESTORE_STARTED, STATEFUL)
    ),
}
"""One kill for each place of the protocol at which a snapshot can be torn apart.

On a cluster the process of a subtask may outlive its executor for a moment, and what it acknowledges or commits
meanwhile counts. So where the subtask itself must not get past the point, the fault kills its worker.
"""

UNACKNOWLEDGED = msgspec.structs.replace(
    with_faults(kill_worker(STATEFUL, After(ProtocolPoint.SNAPSHOT_STORED, STATEFUL))),
    network=NetworkPlan(latency_ms_max=2),
)
"""A subtask dies when its part of the first checkpoint is stored, and before it could say so."""
