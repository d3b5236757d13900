"""Checks a plan against a system before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.faults.schedule import ScheduleError, validate
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.plan.reading import check_backend
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.system_under_test import SystemUnderTest


def check_plan(plan: TrialPlan, system: SystemUnderTest, source: str = "the plan") -> None:
    """Raise UsageProblem unless the system can run the plan as it is meant.

    Checked: the subtasks, links and points that faults name exist in the system's view of the job. A fault that the
    system cannot suffer is not refused here: the trial records it as skipped, with the reason, and is UNKNOWN.
    """
    check_backend(plan, source)
    try:
        view = system.job(plan)
    except UsageProblem as error:
        raise UsageProblem(f"{source}: {error}") from error
    try:
        validate(plan.faults, view.names, view.connections)
    except ScheduleError as error:
        raise UsageProblem(f"{source}: {error}") from error
    _check_points(plan, view, system.name, source)


def _check_points(plan: TrialPlan, view: JobView, system: str, source: str) -> None:
    """Raise UsageProblem for an aim at a point at which nobody, or not the one that is meant, can be stopped."""
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
