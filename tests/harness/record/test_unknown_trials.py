"""Why trials are UNKNOWN, and how many of them CI allows; grain: functions, and trials of the simulator."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.plan.trial_plan import FilledPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.unknown_trials import WhyUnknown, counted, too_many_unknown, why_unknown
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import OperatingError
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.trial_run import run_trial

SMALL = TrialPlan(workload=WorkloadPlan(batches=1, batch_records=1))


class Crashes:
    """A checker that crashes."""

    name = "crashes"
    clauses = ("REC-1",)

    def check(self, context: TrialContext) -> Finding:
        raise IndexError(context.plan.seed)


class Decides:
    """A checker that cannot decide, for instance because no fault struck."""

    name = "decides"
    clauses = ("CAM-3",)

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict

    def check(self, context: TrialContext) -> Finding:
        return Finding(self.name, self.clauses, self.verdict, f"seed {context.plan.seed}")


class NoMachine(ReferenceSimulated):
    """A system that has no machine."""

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        raise OperatingError("there is no machine to run on")


@pytest.mark.parametrize(
    ("system", "checkers", "why"),
    [
        (ReferenceSimulated, [Decides(Verdict.UNKNOWN)], WhyUnknown.NOTHING_HAPPENED),
        (ReferenceSimulated, [Decides(Verdict.UNKNOWN), Crashes()], WhyUnknown.CHECKER_CRASHED),
        (NoMachine, [Decides(Verdict.VALID)], WhyUnknown.NOT_RUN),
        (ReferenceSimulated, [Decides(Verdict.VALID)], None),
        (ReferenceSimulated, [Decides(Verdict.INVALID), Crashes()], None),
    ],
)
def test_a_trial_says_why_it_is_unknown(
    system: type[ReferenceSimulated],
    checkers: list[Decides | Crashes],
    why: WhyUnknown | None,
    tmp_path: Path,
) -> None:
    record = run_trial(SMALL, system(), tmp_path, checkers)
    assert why_unknown(record.verdict, record.findings) is why
    assert why is None or why.of_the_schedule is (why is WhyUnknown.NOTHING_HAPPENED)


@pytest.mark.parametrize(
    ("trials", "why", "said"),
    [
        (10, [WhyUnknown.NOTHING_HAPPENED], 0),
        (10, [WhyUnknown.NOTHING_HAPPENED] * 2, 1),
        (100, [WhyUnknown.NOTHING_HAPPENED] * 5, 0),
        (100, [WhyUnknown.NOTHING_HAPPENED] * 6, 1),
        (100, [WhyUnknown.NOT_RUN, WhyUnknown.CHECKER_CRASHED], 0),
        (100, [WhyUnknown.NOT_RUN, WhyUnknown.CHECKER_CRASHED, WhyUnknown.NOT_RUN], 1),
        (10, [WhyUnknown.CHECKER_CRASHED] * 2 + [WhyUnknown.NOTHING_HAPPENED] * 2, 2),
    ],
)
def test_ci_allows_more_trials_in_which_nothing_happens_than_trials_that_are_not_judged(
    trials: int, why: list[WhyUnknown], said: int
) -> None:
    assert len(list(too_many_unknown(counted([*why, None]), trials))) == said
