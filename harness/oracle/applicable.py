"""Which checkers judge a trial: those whose property the plan requires and the system can show."""

from __future__ import annotations

from collections.abc import Collection

from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.standard_checker import TrialToJudge
from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload import Workload
from barrier_tck.harness.workloads.workload_names import workload_named


def checkers_for(
    plan: FilledPlan,
    capabilities: Collection[Capability],
    workload: Workload | None = None,
    modelled: bool = True,
    unused: Collection[str] = (),
) -> tuple[Checker, ...]:
    """Return the checkers that apply to this plan; they share its input, which is made once.

    ``workload`` overrides the plan's, for instance to read an input from elsewhere. ``modelled`` is False if the
    workload's meaning is not that of the job (``ProvidesOwnJob``). ``unused`` are the fields of plans that the system
    leaves unused: what they ask for is not judged. Raises UsageError for a workload that does not
    exist.
    """
    trial_input = TrialInput(workload or workload_named(plan.workload.name), plan)
    trial = TrialToJudge(trial_input, frozenset(capabilities), modelled, frozenset(unused))
    return tuple(
        checker.made_for(trial)
        for checker in standard_checkers()
        if checker.needs <= trial.capabilities
        and not checker.of_fields & trial.unused
        and checker.applies(trial)
    )
