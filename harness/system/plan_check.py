"""Checks a plan against a system before anything runs."""

from __future__ import annotations

from barrier_tck.faults.schedule import ScheduleError, validate
from barrier_tck.harness.plan.reading import check_values
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_under_test import ShowsChannels, SystemUnderTest


def check_plan(plan: TrialPlan, system: SystemUnderTest, source: str = "the plan") -> None:
    """Raise UsageProblem unless the system can run the plan as it is meant.

    Checked: numbers are in range, and the subtasks and channels that faults name exist. A fault that the system cannot
    suffer is not refused here: the trial records it as skipped, with the reason, and is UNKNOWN.
    """
    check_values(plan, source)
    try:
        channels = system.channels(plan) if isinstance(system, ShowsChannels) else None
        validate(plan.faults, system.subtasks(plan), channels)
    except ScheduleError as error:
        raise UsageProblem(f"{source}: {error}") from error
