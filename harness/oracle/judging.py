"""Runs checkers and composes their findings: a trial's history goes in, findings and one verdict come out.

A checker judges one property. The verdicts are composed by taking the worst one. A checker that crashes says nothing
about the system, so its finding is UNKNOWN and contains the traceback's last line and the plan that made it crash.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable

from barrier_tck.harness.oracle.checker import Checker, TrialContext
from barrier_tck.harness.oracle.vacuity import without_vacuous_clauses
from barrier_tck.harness.plan.trial_plan import to_builtins
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.support.wall_clock import TooLate


def compose(checkers: Iterable[Checker], context: TrialContext) -> tuple[Verdict, tuple[Finding, ...]]:
    """Run all checkers, in order; return the worst verdict and every finding (UNKNOWN if there was none)."""
    findings = tuple(_guarded(checker, context) for checker in checkers)
    return Verdict.worst(finding.verdict for finding in findings), findings


def _guarded(checker: Checker, context: TrialContext) -> Finding:
    try:
        found = checker.check(context)
        if not isinstance(found, Finding):
            raise TypeError(f"it returned {found!r}, which is no Finding")
        return without_vacuous_clauses(found, checker, context)
    except (KeyboardInterrupt, TooLate):
        raise
    except BaseException as error:  # noqa: BLE001 - a crash costs only its own verdict, not the record
        last_line = traceback.format_exception_only(error)[-1].strip()
        return Finding(
            checker=checker.name,
            clauses=checker.clauses,
            verdict=Verdict.UNKNOWN,
            summary=f"the checker itself crashed: {last_line}",
            details={"traceback": traceback.format_exc(), "plan": to_builtins(context.plan)},
        )
