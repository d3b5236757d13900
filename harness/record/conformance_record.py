"""What a run of the conformance suite showed of a system under test, test by test and clause by clause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from barrier_tck.harness.record.verdict import Verdict

CaseStatus = Literal["passed", "failed", "known failure", "not shown", "not claimed"]
"""What became of a test. *Known failure*: it failed, and the file of known failures says so. *Not shown*: what it is
about did not happen. *Not claimed*: it asks for something that the system does not declare, or cannot do."""
ClauseStatus = Literal["shown", "failed", "known failure", "not shown", "not claimed"]
"""What all tests of a clause say together; one that failed outweighs one that passed."""

_WORST_FIRST: tuple[CaseStatus, ...] = ("failed", "known failure", "passed", "not shown", "not claimed")


class CaseOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one test of the suite."""

    name: str
    """As files of known failures name it, for instance ``test_smoke.py::test_exactly_one_record_is_committed_once``."""
    clauses: tuple[str, ...]
    status: CaseStatus
    broken: tuple[str, ...] = ()
    """If it failed: the clauses that were broken, as far as that is known; otherwise any of its own may be."""
    reason: str = ""
    """Why it did not pass; for a known failure, what the file says of it."""
    unclaimed: dict[str, str] = {}
    """Clauses of it about mechanisms that the system does not have, with what it does not declare: if it passes, it
    says nothing of them."""
    seconds: float = 0.0

    def says_of(self, clause: str) -> CaseStatus:
        """Return what it says of a clause: of one that it was to show and that it did not find broken, nothing."""
        if clause in self.unclaimed and clause not in self.broken:
            return "not claimed"
        failed = self.status in ("failed", "known failure")
        if failed and self.broken and clause not in self.broken:
            return "not shown"
        return self.status

    def why_not_claimed(self, clause: str) -> str:
        """Return what the system does not declare, so that it says nothing of a clause."""
        return self.unclaimed.get(clause, self.reason)


class ClauseOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the tests of one clause say together."""

    clause: str
    status: ClauseStatus
    passed: int
    """How many of its tests passed."""
    tests: int
    """How many of its tests ran."""
    reason: str = ""
    """Why it is not shown: a name of a test, or what the system does not claim."""


class ConformanceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the suite on one system."""

    schema: int = 1
    system: str
    """As ``--system`` names it."""
    verdict: Verdict
    seed: int
    started_at: str
    """ISO 8601 with time zone."""
    seconds: float
    environment: dict[str, str]
    outcomes: tuple[CaseOutcome, ...]
    interrupted: bool = False
    """Whether Ctrl-C ended it before all tests had run."""
    passes_now: tuple[str, ...] = ()
    """Tests that the file of known failures lists, and that passed."""

    def count(self, status: CaseStatus) -> int:
        """Return how many tests ended so."""
        return sum(outcome.status == status for outcome in self.outcomes)

    @property
    def clauses(self) -> tuple[ClauseOutcome, ...]:
        """Return what the tests say of each clause, by its id."""
        return _clauses_of(self.outcomes)


def verdict_of(outcomes: tuple[CaseOutcome, ...], interrupted: bool) -> Verdict:
    """Return INVALID if a test failed of which that was not known; VALID if all ran, a clause was shown, and no test
    showed nothing; UNKNOWN otherwise.
    """
    statuses = [outcome.status for outcome in outcomes]
    if "failed" in statuses:
        return Verdict.INVALID
    shown = any(clause.status == "shown" for clause in _clauses_of(outcomes))
    if interrupted or "not shown" in statuses or not shown:
        return Verdict.UNKNOWN
    return Verdict.VALID


def _clauses_of(outcomes: Iterable[CaseOutcome]) -> tuple[ClauseOutcome, ...]:
    speaking: dict[str, list[CaseOutcome]] = {}
    for outcome in outcomes:
        for clause in dict.fromkeys((*outcome.clauses, *outcome.broken)):
            speaking.setdefault(clause, []).append(outcome)
    return tuple(_together(clause, speaking[clause]) for clause in sorted(speaking, key=_in_order))


def _in_order(clause: str) -> tuple[str, int]:
    group, _, number = clause.rpartition("-")
    return group, int(number) if number.isdigit() else 0


_REASONS_MAX = 3
"""So many reasons for which a clause is not claimed are given."""


def _shortest(reasons: Iterable[str]) -> str:
    """Return the shortest of the different reasons, and how many others there are: who declares so much gets tests."""
    different = sorted(dict.fromkeys(reasons), key=len)
    left = len(different) - _REASONS_MAX
    more = [f"and {left} more"] if left > 0 else []
    return "; ".join([*different[:_REASONS_MAX], *more])


def _together(clause: str, outcomes: list[CaseOutcome]) -> ClauseOutcome:
    said = [outcome.says_of(clause) for outcome in outcomes]
    status = next(one for one in _WORST_FIRST if one in said)
    those = [outcome for outcome, one in zip(outcomes, said, strict=True) if one == status]
    reasons = {
        "passed": "",
        "not claimed": _shortest(outcome.why_not_claimed(clause) for outcome in those),
    }
    return ClauseOutcome(
        clause=clause,
        status="shown" if status == "passed" else status,
        passed=said.count("passed"),
        tests=len(said) - said.count("not claimed"),
        reason=reasons.get(status, ", ".join(outcome.name for outcome in those)),
    )
