"""Checks a plan against a system before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.faults.schedule import ScheduleError, validate
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.oracle.evidence.slots import least_subtasks
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.reading import check_names
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageError, UsageProblem
from barrier_tck.harness.support.third_party import what_happened
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.plan_fields import set_in, unused_by, value_of
from barrier_tck.harness.system.system_names import is_ours
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.system.taken_settings import why_settings_are_refused
from barrier_tck.harness.workloads.workload_names import job_of


def check_plan(plan: TrialPlan, system: SystemUnderTest, source: str = "the plan") -> None:
    """Raise UsageProblem unless the system can run the plan as it is meant.

    The system must understand its settings and use every field that the plan sets; the subtasks, links and points that
    the faults name must exist in the system's view of the job. A fault that the system cannot suffer is not refused
    here: the trial records it as skipped, with the reason, and is UNKNOWN.
    """
    check_names(plan, source)
    _check_settings(plan, system, source)
    _check_fields(plan, system, source)
    _check_mode(plan, system, source)
    _check_capacity(plan, source)
    view = _view_of(plan, system, source)
    try:
        validate(plan.faults, view.names, view.connections)
    except ScheduleError as error:
        raise UsageProblem(f"{source}: {error}") from error
    _check_points(plan, view, system.name, source)


def _view_of(plan: TrialPlan, system: SystemUnderTest, source: str) -> JobView:
    """Return what the system says of the job; raises UsageProblem if it refuses the plan, or fails at it."""
    try:
        return system.job(plan)
    except UsageError as error:
        raise UsageProblem(f"{source}: {error}") from error
    except (Exception, SystemExit) as error:
        if is_ours(system):
            raise
        raise UsageProblem(
            f"{source}: {system.name} fails when it is asked for its job: {what_happened(error)}"
        ) from error


def _check_settings(plan: TrialPlan, system: SystemUnderTest, source: str) -> None:
    """Raise UsageProblem for settings that the system does not understand, or if it takes none at all."""
    refused = why_settings_are_refused(system, plan.system)
    if refused is not None:
        raise UsageProblem(f"{source}: {refused}")


def _check_fields(plan: TrialPlan, system: SystemUnderTest, source: str) -> None:
    """Raise UsageProblem for a field that is set although the system does not use it."""
    unused = unused_by(system)
    if not unused:
        return
    try:
        own_job = job_of(plan.workload.name, JobPlan())
    except UsageProblem as error:
        raise UsageProblem(f"{source}: {error}") from error
    for field in set_in(plan, unused, own_job):
        shown = "not the workload's own" if field == "job" else repr(value_of(plan, field))
        raise UsageProblem(
            f"{source}: {field} is {shown}, but {system.name} does not use it; leave it out, or choose another system"
        )


def _check_mode(plan: TrialPlan, system: SystemUnderTest, source: str) -> None:
    """Raise UsageProblem for a checkpointing mode, a protocol or a loop that the system does not have."""
    for wanted, capability, what in (
        (plan.checkpoints.records_all, Capability.CHANDY_LAMPORT, "checkpoints.protocol is 'chandy_lamport'"),
        (bool(plan.job.loops), Capability.LOOPS, "the job has a loop"),
    ):
        if wanted and capability not in system.capabilities:
            raise UsageProblem(
                f"{source}: {what}, but {system.name} does not declare {capability.name}; choose another system"
            )
    if plan.checkpoints.overtakes and Capability.UNALIGNED_CHECKPOINTS not in system.capabilities:
        raise UsageProblem(
            f"{source}: checkpoints.mode is {plan.checkpoints.mode!r}, but no barrier of {system.name} overtakes a "
            "record; choose exactly_once or at_least_once, or another system"
        )


def _check_capacity(plan: TrialPlan, source: str) -> None:
    """Raise UsageProblem if a job has no room though every executor is there; it could only wait until it fails."""
    deployment = plan.deployment
    if deployment.slots_per_executor is None or not plan.job.vertices:
        return
    slots = deployment.executors * deployment.slots_per_executor
    for stops in range(len(plan.rescales) + 1):
        later = plan.after_stops(stops)
        elastic = deployment.elastic_wait_ms is not None
        needed = least_subtasks(later) if elastic else len(later.job.subtasks)
        if slots < needed:
            raise UsageProblem(
                f"{source}: the job needs {needed} slots{' at its narrowest' if elastic else ''}, and "
                f"deployment.executors and slots_per_executor give {slots}; raise one of them"
            )


def _check_points(plan: TrialPlan, view: JobView, system: str, source: str) -> None:
    """Raise UsageProblem if a fault is aimed at a point at which no process, or not the named subtask, can be
    stopped."""
    for index, scheduled in enumerate(plan.faults):
        trigger = scheduled.trigger
        if not isinstance(trigger, After):
            continue
        where = f"{source}: faults[{index}].trigger.point is {trigger.point.value!r}, at which"
        if trigger.point not in view.shows:
            shown = _listed(view.shows) or "none: use a time, {'type': 'at'}"
            raise UsageProblem(f"{where} {system} cannot be stopped; its points are {shown}")
        if trigger.subtask is not None and trigger.point not in view.points_of(trigger.subtask):
            shown = _listed(view.points_of(trigger.subtask)) or "none"
            raise UsageProblem(f"{where} {trigger.subtask!r} cannot be stopped; its points are {shown}")


def _listed(points: Sequence[ProtocolPoint]) -> str:
    return ", ".join(point.value for point in points)
