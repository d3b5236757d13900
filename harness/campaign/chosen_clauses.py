"""Campaigns that judge only some clauses: which checkers judge, and whether each clause was judged at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.system.system_under_test import SystemUnderTest
from barrier_tck.harness.trial.trial_run import checkers_of


def judges_of(plan: FilledPlan, system: SystemUnderTest, only: Collection[str]) -> tuple[Checker, ...]:
    """Return the checkers of a trial that cover one of the clauses, and those that always judge.

    A checker that covers no clause stays: it may stand for checkers that could not be made.
    """
    return tuple(
        checker
        for checker in checkers_of(plan, system)
        if not checker.clauses or getattr(checker, "always", False) or _clauses_of(checker) & {*only}
    )


def _clauses_of(checker: Checker) -> set[str]:
    """Return the clauses for which a checker speaks, and those that it says are broken by what it sees."""
    return {*checker.clauses, *(sign.clause for sign in getattr(checker, "signs", ()))}


def require_judged(only: Sequence[str], plans: Iterable[FilledPlan], system: SystemUnderTest) -> None:
    """Raise UsageProblem for the first clause for which no checker of these plans speaks."""
    known = {
        clause: None for plan in plans for checker in checkers_of(plan, system) for clause in checker.clauses
    }
    for clause in only:
        if clause not in known:
            raise UsageProblem(
                f"only: no checker of these trials covers {clause!r}{nearest(clause, known)}; "
                f"clauses that can be judged here: {', '.join(sorted(known))}"
            )


class JudgedClauses:
    """Returns whether a campaign that judges only some clauses judged each of them in at least one trial."""

    def __init__(self, only: Sequence[str]) -> None:
        self._left = dict.fromkeys(only)

    def add(self, findings: Iterable[Finding]) -> None:
        """Take a trial's findings."""
        for finding in findings:
            for clause in finding.clauses:
                self._left.pop(clause, None)

    def finding(self) -> Finding | None:
        """Return a finding that names the clauses for which no trial was judged; None if there are none."""
        if not self._left:
            return None
        return Finding(
            "judged-clauses",
            tuple(self._left),
            Verdict.UNKNOWN,
            f"no trial was judged for {', '.join(self._left)}: no trial could have violated them; run more "
            "trials, or different ones",
        )
