"""Runs checkers and composes their findings: a trial's history goes in, findings and one verdict come out.

A checker judges one property. The verdicts are composed by taking the worst one. A checker that crashes says nothing
about the system, so its finding is UNKNOWN and contains the traceback's last line and the plan that made it crash.

Of the findings that are INVALID, that stands first which says what was broken first: by the line of the history that
shows it and, of two at one moment, by how near to the cause its checker looks. So its first clause is the trial's.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable

from barrier_tck.harness.oracle.checker import Checker, TrialContext
from barrier_tck.harness.oracle.evidence.first_breaches import moment_of, with_evidence
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.vacuity import without_vacuous_clauses
from barrier_tck.harness.plan.trial_plan import to_builtins
from barrier_tck.harness.record.unknown_trials import CRASHED
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.exception_line import exception_line
from barrier_tck.harness.support.wall_clock import TooLate


def compose(checkers: Iterable[Checker], context: TrialContext) -> tuple[Verdict, tuple[Finding, ...]]:
    """Run all checkers, in order; return the worst verdict and every finding (UNKNOWN if there was none)."""
    judged = [(checker, _guarded(checker, context)) for checker in checkers]
    findings = tuple(finding for _, finding in sorted(judged, key=_place_of))
    return Verdict.worst(finding.verdict for finding in findings), findings


def _place_of(judged: tuple[Checker, Finding]) -> tuple[bool, float, int]:
    checker, finding = judged
    if finding.verdict is not Verdict.INVALID:
        return True, 0.0, 0
    directness = getattr(checker, "directness", Directness.CONTENT)
    return False, moment_of(finding), int(directness)


def _with_evidence(finding: Finding, context: TrialContext) -> Finding:
    """Let what a checker says of its only clause, or of its first one, be the evidence that this clause is broken."""
    if finding.verdict is not Verdict.INVALID or finding.evidence or not finding.clauses:
        return finding
    sentence = next(iter(finding.examples), finding.summary)
    return with_evidence(finding, context, [Breach(Sign("", finding.clauses[0]), sentence)])


def _guarded(checker: Checker, context: TrialContext) -> Finding:
    try:
        found = checker.check(context)
        if not isinstance(found, Finding):
            raise TypeError(f"it returned {found!r}, which is no Finding")
        return _with_evidence(without_vacuous_clauses(found, checker, context), context)
    except (KeyboardInterrupt, TooLate):
        raise
    except BaseException as error:  # noqa: BLE001 - a crash costs only its own verdict, not the record
        last_line = exception_line(error)
        return Finding(
            checker=checker.name,
            clauses=checker.clauses,
            verdict=Verdict.UNKNOWN,
            summary=f"{CRASHED}: {last_line}",
            details={"traceback": traceback.format_exc(), "plan": to_builtins(context.plan)},
        )
