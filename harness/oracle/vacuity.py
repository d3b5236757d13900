"""Which clauses a finding may cover: those that apply to the system, and that were at stake in the trial.

A clause that nothing could have broken is not reported as kept. A clause about a mechanism that the system does not
have is not reported at all. Each checker says what must have happened, clause by clause. Of a plug-in that does not, a
clause needs what the first checker of the suite that covers it requires.
"""

from __future__ import annotations

import msgspec

from barrier_tck.harness.oracle.checker import Checker, TrialContext
from barrier_tck.harness.oracle.clause_mechanisms import lacks_mechanism
from barrier_tck.harness.oracle.precondition import ALWAYS, Precondition
from barrier_tck.harness.record.verdict import Finding, Verdict


def without_vacuous_clauses(finding: Finding, checker: Checker, context: TrialContext) -> Finding:
    """Return the finding with the clauses that it may cover."""
    judges_output = bool(getattr(checker, "judges_output", False))
    valid = finding.verdict is Verdict.VALID
    clauses = tuple(
        clause
        for clause in finding.clauses
        # What was seen to be broken is said, whatever the system declares.
        if not (finding.verdict is not Verdict.INVALID and lacks_mechanism(clause, context.capabilities))
        and _has_mechanism(needed := precondition_of(clause, checker), context)
        and (not valid or _was_exercised(needed, context, judges_output))
    )
    if clauses == finding.clauses:
        return finding
    evidence = tuple(entry for entry in finding.evidence if entry.clause in clauses)
    return msgspec.structs.replace(finding, clauses=clauses, evidence=evidence)


def precondition_of(clause: str, checker: Checker) -> Precondition:
    """Return what must have happened for a checker to say something about a clause."""
    of_checker = getattr(checker, "covers", {})
    if clause in of_checker:
        found: Precondition = of_checker[clause]
        return found
    # Imported here: a caller with checkers of its own that say it needs none of the suite's, and they import much.
    from barrier_tck.harness.oracle.catalogue import standard_checkers

    of_suite = (each.covers[clause] for each in standard_checkers() if clause in each.covers)
    return next(of_suite, ALWAYS)


def _has_mechanism(needed: Precondition, context: TrialContext) -> bool:
    return needed.mechanism is None or needed.mechanism.name in context.capabilities


def _was_exercised(needed: Precondition, context: TrialContext, judges_output: bool) -> bool:
    return needed.shown_in_output(context) if judges_output else needed.holds(context)
