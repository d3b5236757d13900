"""Campaigns that judge some clauses only: who judges then, and whether the clauses were judged at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.oracle.faults_fired import FaultsFired
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.trial_run import checkers_of
from barrier_tck.harness.workloads.workload_names import filled


def judges_of(plan: TrialPlan, system: SystemUnderTest, only: Collection[str]) -> tuple[Checker, ...]:
    """Return a trial's checkers that speak for one of the clauses, and the one that says whether all faults fired.

    A checker that speaks for no clause stays: it may stand for checkers that could not be made.
    """
    return tuple(
        checker
        for checker in checkers_of(filled(plan), system)
        if not checker.clauses or checker.name == FaultsFired.name or set(checker.clauses) & set(only)
    )


def require_judged(only: Sequence[str], plans: Iterable[TrialPlan], system: SystemUnderTest) -> None:
    """Raise UsageProblem for the first clause for which no checker of such plans speaks."""
    known = {
        clause: None
        for plan in plans
        for checker in checkers_of(filled(plan), system)
        for clause in checker.clauses
    }
    for clause in only:
        if clause not in known:
            raise UsageProblem(
                f"only: no checker of these trials speaks for {clause!r}{nearest(clause, known)}; "
                f"clauses that can be judged here: {', '.join(sorted(known))}"
            )


class JudgedClauses:
    """What a campaign that judges some clauses only must have seen: at least one trial judged for each."""

    def __init__(self, only: Sequence[str]) -> None:
        """Take the clauses; none means all, of which nothing is owed."""
        self._left = dict.fromkeys(only)

    def add(self, findings: Iterable[Finding]) -> None:
        """Take a trial's findings."""
        for finding in findings:
            for clause in finding.clauses:
                self._left.pop(clause, None)

    def finding(self) -> Finding | None:
        """Return which clauses no trial was judged for; None if there are none."""
        if not self._left:
            return None
        return Finding(
            "judged-clauses",
            tuple(self._left),
            Verdict.UNKNOWN,
            f"no trial was judged for {', '.join(self._left)}: none gave the clause a chance to be broken; run more "
            "trials, or others",
        )
