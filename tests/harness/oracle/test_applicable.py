"""Which checkers judge a trial: all that the page names for such a trial, whatever else its plan says.

A checker that is left out makes no trial INVALID, so it is missed by nobody. The rules here say for each checker what a
plan must have; nothing else may decide.

Grain: drawn plans; no trial is run.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barrier_tck.harness.oracle.applicable import checkers_for
from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload_names import filled, workload_named
from tests.harness.draw.test_drawn_values import plans

EVENT_TIME = ("event-time", "hourly-flights", "aircraft-sessions", "flights-in-weather")

Rule = Callable[[TrialPlan], bool]


def always(_: TrialPlan) -> bool:
    return True


def never(_: TrialPlan) -> bool:
    return False


def in_sequence(plan: TrialPlan) -> bool:
    """Return whether the workload has a sequential model."""
    return workload_named(plan.workload.name).spec is not None


def in_event_time(plan: TrialPlan) -> bool:
    """Return whether the order of arrival is replayed."""
    return plan.workload.name in EVENT_TIME


def early(plan: TrialPlan) -> bool:
    """Return whether records behind a barrier may be taken early, in one of the jobs of the trial."""
    jobs = [plan.after_stops(stops).job for stops in range(len(plan.rescales) + 1)]
    return plan.checkpoints.mode == "at_least_once" and any(job.shuffles for job in jobs)


def barriers(plan: TrialPlan) -> bool:
    return plan.checkpoints.protocol == "barriers"


def has_windows(job: JobPlan) -> bool:
    return any(
        operator.kind in ("window", "session", "overdue")
        for vertex in job.vertices
        for operator in vertex.operators
    )


RULES: dict[str, Rule] = {
    "exactly-once-output": lambda plan: in_sequence(plan) and not early(plan),
    "at-least-once-output": lambda plan: in_sequence(plan) and early(plan),
    "channel-order": lambda plan: plan.workload.name == "keyed-totals" and not early(plan),
    "snapshot-formula": lambda plan: in_sequence(plan) and not early(plan),
    "at-least-once-snapshots": lambda plan: in_sequence(plan) and early(plan),
    "dataflow": lambda plan: (
        not in_sequence(plan)
        and not in_event_time(plan)
        and plan.workload.name not in ("components", "changed-totals")
    ),
    "event-time": in_event_time,
    "changed-totals": lambda plan: plan.workload.name == "changed-totals",
    "consistent-cut": lambda plan: bool(plan.job.loops) or not barriers(plan),
    "timers": lambda plan: has_windows(plan.job),
    "conservation": lambda plan: plan.workload.name == "money",
    "labels": lambda plan: plan.workload.name == "components",
    "checkpoint-life-cycle": always,
    "checkpoint-admission": always,
    "checkpoints-go-on": always,
    "checkpoint-expiry": always,
    "tolerated-failures": always,
    "aborts-obeyed": always,
    "snapshot-order": lambda plan: plan.checkpoints.mode != "at_least_once" and barriers(plan),
    "nothing-held-back": lambda plan: plan.checkpoints.mode == "at_least_once",
    "failures-explained": always,
    "restored-latest": never,
    "no-garbage": always,
    "reachability": always,
    "stored-checkpoints": always,
    "shared-files": lambda plan: plan.checkpoints.incremental,
    "snapshot-costs": always,
    "savepoints": lambda plan: bool(plan.savepoints),
    "savepoints-answered": lambda plan: bool(plan.savepoints),
    "stop-with-savepoint": lambda plan: bool(plan.savepoints),
    "restorability": always,
    "committed-transactions": always,
    "input-reads": always,
    "finished-subtasks": always,
    "local-recovery": lambda plan: bool(plan.local_recovery),
    "restart-strategy": always,
    "narrowed-jobs": lambda plan: plan.deployment.elastic_wait_ms is not None,
    "progress": always,
    "faults-fired": always,
}
"""Checker -> which drawn plans it judges, on a system that can do everything; drawn plans have checkpoints.

The test of a newer checker says this of its checker.
"""


def judges(plan: TrialPlan, *lacking: Capability) -> set[str]:
    capabilities = frozenset(ReferenceSimulated().capabilities) - set(lacking)
    return {checker.name for checker in checkers_for(filled(plan), capabilities)} & set(RULES)


def test_every_rule_is_about_a_checker() -> None:
    assert set(RULES) <= {checker.name for checker in standard_checkers()}


@pytest.mark.long
def test_what_a_plan_asks_for_is_judged_whatever_else_it_says() -> None:
    judged: set[str] = set()
    for plan in plans():
        expected = {name for name, rule in RULES.items() if rule(plan)}
        assert judges(plan) == expected, plan
        judged |= expected
    assert judged == set(RULES) - {"restored-latest"}, "every rule was met by some plan"


OPENED = (
    "snapshot-formula at-least-once-snapshots conservation no-garbage reachability stored-checkpoints shared-files "
    "snapshot-costs savepoints restorability committed-transactions input-reads finished-subtasks consistent-cut timers"
)
CONTROL = (
    "checkpoint-life-cycle checkpoint-admission checkpoints-go-on checkpoint-expiry tolerated-failures aborts-obeyed "
    "snapshot-order nothing-held-back failures-explained"
)
LOST = {
    Capability.SNAPSHOT_INSPECTION: OPENED,
    Capability.CHECKPOINTS: CONTROL,
    Capability.BARRIERS: f"{CONTROL} restart-strategy",
    Capability.FIFO_CHANNELS: "channel-order",
    Capability.EARLY_FINISH: "finished-subtasks",
    Capability.SAVEPOINTS: "savepoints savepoints-answered stop-with-savepoint",
    Capability.MESSAGE_LOG: "consistent-cut",
    Capability.REQUEST_LOG: "snapshot-costs",
    Capability.LOCAL_RECOVERY: "local-recovery",
    Capability.ATTEMPTS: "restart-strategy",
    Capability.ELASTIC: "narrowed-jobs",
}
"""Capability -> the checkers that need it. No checker needs any other."""


@pytest.mark.nightly
@pytest.mark.parametrize("lacking", list(Capability), ids=lambda capability: str(capability.name))
def test_a_system_that_lacks_something_is_judged_by_all_that_do_not_need_it(lacking: Capability) -> None:
    lost: set[str] = set()
    for plan in plans()[::2]:
        missing = judges(plan) - judges(plan, lacking)
        assert missing <= set(LOST.get(lacking, "").split()), plan
        lost |= missing
    assert lost == set(LOST.get(lacking, "").split())


def test_what_a_plan_asks_of_a_field_that_the_system_leaves_unused_is_not_judged() -> None:
    plan, every = filled(TrialPlan()), ReferenceSimulated().capabilities

    def names(unused: tuple[str, ...]) -> set[str]:
        return {checker.name for checker in checkers_for(plan, every, unused=unused)}

    assert names(()) - names(("restart.strategy",)) == {"restart-strategy"}
    assert names(("restart.delay_ms",)) == names(())
