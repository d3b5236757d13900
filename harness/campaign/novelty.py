"""What a trial reached, as names: a plan that reaches a name that no plan had reached is worth keeping.

Each way to look at a trial is a ``Coverage``. The names of all of them together are what a campaign has covered.
Drawing that is guided by coverage adds others here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Protocol

from barrier_tck.harness.oracle.catalogue import standard_checkers
from barrier_tck.harness.oracle.sometimes import Sometimes
from barrier_tck.harness.record.records import TrialRecord, TrialSummary


class Coverage(Protocol):
    """One way to look at what a trial reached."""

    def reached(self, record: TrialRecord, summary: TrialSummary) -> Iterator[str]:
        """Yield names; the same trial always has the same, and a name says what it is of."""


class PhasesOfFaults:
    """In which phase of the protocol which kind of fault fired: a cell of the matrix of reports."""

    def reached(self, record: TrialRecord, summary: TrialSummary) -> Iterator[str]:
        for fault in summary.faults:
            if fault.outcome == "fired" and fault.phase is not None:
                yield f"fault: {fault.kind} in {fault.phase}"


class SometimesShown:
    """What checkers say must be seen now and then."""

    def reached(self, record: TrialRecord, summary: TrialSummary) -> Iterator[str]:
        by_checker = _sometimes_by_checker()
        for finding in summary.findings:
            for wanted in by_checker.get(finding.checker, ()):
                for thing, times in (wanted.seen(finding, summary) or {}).items():
                    if times > 0:
                        yield f"{wanted.name}: {thing}"


class KindsInModes:
    """Which kinds of operator ran in which mode, with checkpoints in which storage."""

    def reached(self, record: TrialRecord, summary: TrialSummary) -> Iterator[str]:
        checkpoints = record.plan.checkpoints
        mode = checkpoints.mode if checkpoints.protocol == "barriers" else checkpoints.protocol
        for vertex in record.plan.job.vertices:
            for operator in vertex.operators:
                yield f"kind: {operator.kind} in {mode} on {checkpoints.storage}"


COVERAGES: tuple[Coverage, ...] = (PhasesOfFaults(), SometimesShown(), KindsInModes())


@cache
def _sometimes_by_checker() -> dict[str, tuple[Sometimes, ...]]:
    return {checker.name: tuple(checker.sometimes) for checker in standard_checkers() if checker.sometimes}


def reached_by(record: TrialRecord, summary: TrialSummary) -> dict[str, None]:
    """Return all that a trial reached."""
    return {name: None for coverage in COVERAGES for name in coverage.reached(record, summary)}
