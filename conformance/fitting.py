"""Fits a plan of the suite to a system's subtasks, scale and plan fields, or says why the system cannot run the plan.

A plan needs more than the marks of its test declare: protocol points at which faults are aimed, targets that they hit,
roles of subtasks, and certain plan fields. A system that lacks one of these cannot show what the test is about.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from barrier_tck.conformance.plans import CALM, scaled
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.lose_host import LoseHost
from barrier_tck.faults.targets import TargetKind
from barrier_tck.faults.vocabulary import After, ScheduledFault
from barrier_tck.harness.draw.plug_in_profiles import profiles_of
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.exposed_targets import targets_of
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.plan_fields import in_short, unused_by, value_of, without
from barrier_tck.harness.system.role_aims import NoSuchRole, resolved
from barrier_tck.harness.system.scale import scale_of
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.workloads.workload_names import workload_named


class CannotBeShown(Exception):
    """A system cannot run a plan as intended; the message says what the system lacks."""


def fitted(plan: TrialPlan, system: SystemUnderTest) -> TrialPlan:
    """Return the plan as the system runs it; raises CannotBeShown if the system cannot run it.

    A field that the system does not use gets its default value. If the plan's own value is neither the default nor
    that of the suite's standard plan, the test is about this field, and the system cannot show it.
    """
    unused = unused_by(system)
    indifferent = (CALM, TrialPlan())
    unused_fields = [
        field
        for field in unused
        if value_of(plan, field) not in [value_of(other, field) for other in indifferent]
    ]
    if unused_fields:
        raise CannotBeShown(f"{system.name} does not use: {in_short(unused_fields)}")
    own = without(scaled(without(_with_own_kills(plan, system), unused), scale_of(system)), unused)
    is_standard = (plan.workload.name, plan.job) == (CALM.workload.name, CALM.job)
    try:
        if is_standard:
            own = _with_own_workload(own, system)
        view = system.job(own)
        named = resolved(own, view, system.name)
    except NoSuchRole as error:
        raise CannotBeShown(str(error)) from error
    except UsageProblem as error:
        if is_standard:
            raise  # a system that cannot run the standard job fails here instead of being skipped
        raise CannotBeShown(f"{system.name} cannot run the job: {error}") from error
    for reason in _lacking(named, view, system):
        raise CannotBeShown(reason)
    return named


def _with_own_workload(plan: TrialPlan, system: SystemUnderTest) -> TrialPlan:
    """Return the plan with the first workload of the system's own profiles if it refuses that of the suite.

    What tests with the standard job are about is not the job: that nothing is lost or doubled holds for each.
    """
    own = [name for profile in profiles_of(system) for name in profile.workload.names]
    if not own or plan.workload.name in own:
        return plan
    try:
        system.job(plan)
    except UsageProblem:
        shapes = workload_named(own[0]).shapes
        takes_it = plan.job.shape in shapes or "job" in unused_by(system)
        return msgspec.structs.replace(
            plan,
            workload=msgspec.structs.replace(plan.workload, name=own[0]),
            job=plan.job if takes_it else JobPlan(shapes[0]),
        )
    return plan


def _with_own_kills(plan: TrialPlan, system: SystemUnderTest) -> TrialPlan:
    """Return the plan with kills of workers if the system has no executors; each worker runs a single subtask."""
    exposed = targets_of(system)
    if TargetKind.EXECUTOR in exposed or TargetKind.WORKER not in exposed:
        return plan
    return msgspec.structs.replace(
        plan,
        faults=tuple(
            ScheduledFault(KillWorker(scheduled.fault.subtask), scheduled.trigger)
            if isinstance(scheduled.fault, KillExecutor) and not scheduled.fault.lose_unsynced
            else scheduled
            for scheduled in plan.faults
        ),
    )


def _lacking(plan: TrialPlan, view: JobView, system: SystemUnderTest) -> Iterator[str]:
    """Yield a sentence for each thing that the plan needs and the system lacks."""
    exposed = targets_of(system)
    if plan.checkpoints.overtakes and Capability.UNALIGNED_CHECKPOINTS not in system.capabilities:
        yield f"{system.name} does not declare: UNALIGNED_CHECKPOINTS ({Capability.UNALIGNED_CHECKPOINTS.value})"
    if plan.job.loops and Capability.LOOPS not in system.capabilities:
        yield f"{system.name} does not declare: LOOPS ({Capability.LOOPS.value})"
    if plan.checkpoints.records_all and Capability.CHANDY_LAMPORT not in system.capabilities:
        yield f"{system.name} does not declare: CHANDY_LAMPORT ({Capability.CHANDY_LAMPORT.value})"
    for scheduled in plan.faults:
        fault, trigger = scheduled.fault, scheduled.trigger
        if fault.needs not in exposed:
            yield f"{system.name} exposes no target of the kind {fault.needs.value} ({fault.label})"
        if fault.loses_unsynced and Capability.UNSYNCED_LOSS not in system.capabilities:
            yield f"{system.name} does not declare: UNSYNCED_LOSS ({Capability.UNSYNCED_LOSS.value})"
        if (
            isinstance(fault, LoseHost)
            and fault.returns
            and Capability.HOST_RETURN not in system.capabilities
        ):
            yield f"{system.name} does not declare: HOST_RETURN ({Capability.HOST_RETURN.value})"
        if fault.link is not None and fault.link not in view.connections:
            yield f"{system.name} has no connection from {fault.link[0]} to {fault.link[1]}"
        if not isinstance(trigger, After):
            continue
        if trigger.point not in view.shows:
            yield f"{system.name} cannot be stopped at {trigger.point.value}"
        elif trigger.subtask is not None and trigger.point not in view.points_of(trigger.subtask):
            yield f"{trigger.subtask} of {system.name} cannot be stopped at {trigger.point.value}"
