"""Which clauses a trial's breaches break, and which of them first."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.moments import fault_before, time_of
from barrier_tck.harness.oracle.sign import Breach
from barrier_tck.harness.record.verdict import Evidence, Finding, Verdict


def evidence_of(context: TrialContext, breaches: Sequence[Breach]) -> tuple[Evidence, ...]:
    """Return the first breach of each clause, in the order of the history; equals stand as they were found."""
    first: dict[str, Evidence] = {}
    for breach in sorted(breaches, key=lambda breach: _moment(breach.operation)):
        if breach.sign.clause not in first:
            first[breach.sign.clause] = Evidence(
                clause=breach.sign.clause,
                sentence=breach.sentence,
                sign=breach.sign.seen,
                place=breach.place,
                checkpoint=breach.checkpoint,
                attempt=breach.attempt,
                operation=breach.operation,
                at_ms=time_of(context, breach.operation),
                after=fault_before(context, breach.operation),
            )
    return tuple(first.values())


def with_evidence(finding: Finding, context: TrialContext, breaches: Sequence[Breach]) -> Finding:
    """Return an INVALID finding that names first what was broken first.

    The clauses that its evidence breaks stand before the others for which its checker speaks, and the example that
    shows the first one before the others.
    """
    evidence = evidence_of(context, breaches)
    clauses = dict.fromkeys((*(entry.clause for entry in evidence), *finding.clauses))
    return Finding(
        finding.checker,
        tuple(clauses),
        Verdict.INVALID,
        finding.summary,
        finding.counts,
        tuple(dict.fromkeys((*(entry.sentence for entry in evidence[:1]), *finding.examples)))[:10],
        finding.details,
        evidence,
    )


def moment_of(finding: Finding) -> float:
    """Return which line of the history shows first what a finding says; infinity if only the end does."""
    return _moment(finding.first.operation if finding.first is not None else None)


def _moment(operation: int | None) -> float:
    return inf if operation is None else operation
