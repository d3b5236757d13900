"""Checkers and their composition: a trial's history goes in, findings and one verdict come out.

A checker judges one property. Composing takes the worst verdict; a checker that crashes says nothing about
the system, so its finding is UNKNOWN and carries the traceback's last line and the plan that made it crash.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.vocabulary import ScheduledFault
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_builtins
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import AttemptStarted, CheckpointAborted, CheckpointCompleted
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.record.verdict import Finding, Verdict


@dataclass(frozen=True, slots=True)
class TrialContext:
    """Everything that a checker may look at: the plan, and what the trial left. Times in milliseconds."""

    plan: TrialPlan
    history: History
    faults: tuple[FaultRecord, ...] = ()
    """What became of each planned fault, in the order of the plan."""
    subtasks: tuple[str, ...] = ()
    """Every subtask, upstream first."""
    capabilities: frozenset[str] = frozenset()
    """Names of ``harness.system.system_under_test.Capability`` that the system declares, e.g. SNAPSHOT_INSPECTION."""

    @property
    def planned_faults(self) -> tuple[ScheduledFault, ...]:
        """Return the plan's fault schedule."""
        return self.plan.faults


class Checker(Protocol):
    """Judges one property in one trial. One checker per file, named for its property."""

    @property
    def name(self) -> str:
        """Return the property's name, for instance ``exactly-once-output``."""

    @property
    def clauses(self) -> tuple[str, ...]:
        """Return the ids of the clauses that the property speaks for."""

    def check(self, context: TrialContext) -> Finding:
        """Judge the trial. Raising means that the checker could not judge: the finding becomes UNKNOWN."""


def compose(checkers: Iterable[Checker], context: TrialContext) -> tuple[Verdict, tuple[Finding, ...]]:
    """Run all checkers, in order; return the worst verdict and every finding (UNKNOWN if there was none)."""
    findings = tuple(_guarded(checker, context) for checker in checkers)
    return Verdict.worst(finding.verdict for finding in findings), findings


def _recovered(context: TrialContext) -> bool:
    return sum(1 for _ in context.history.of(AttemptStarted)) > 1


def _aborted(context: TrialContext) -> bool:
    return any(context.history.of(CheckpointAborted))


def _completed(context: TrialContext) -> bool:
    return any(context.history.of(CheckpointCompleted))


def _coordinator_crashed(context: TrialContext) -> bool:
    return any(
        record.outcome == "fired" and context.planned_faults[record.index].fault.ends is Ends.COORDINATOR
        for record in context.faults
    )


_CHANCES: dict[str, Callable[[TrialContext], bool]] = {
    "REC-1": _recovered,
    "REC-2": _recovered,
    "SRC-1": _recovered,
    "SNP-1": _completed,
    "COO-2": _aborted,
    "COO-3": _aborted,
    "SNP-2": _aborted,
    "ALN-1": _completed,
    "ALN-2": _completed,
    "BAR-1": _completed,
    "STA-3": _completed,
    "ALO-1": _completed,
    "ALO-2": _recovered,
    "ALO-3": _recovered,
    "BAR-2": _completed,
    "COO-1": _completed,
    "COO-4": _completed,
    "COO-6": _coordinator_crashed,
}
"""Clauses that a trial says nothing about unless this happened in it: a clause without a chance to be broken is
not reported as kept."""


def _with_chances(finding: Finding, context: TrialContext) -> Finding:
    """Drop from a VALID finding the clauses that this trial had no chance to break."""
    if finding.verdict is not Verdict.VALID:
        return finding
    spoken = tuple(
        clause for clause in finding.clauses if clause not in _CHANCES or _CHANCES[clause](context)
    )
    return finding if spoken == finding.clauses else msgspec.structs.replace(finding, clauses=spoken)


def _guarded(checker: Checker, context: TrialContext) -> Finding:
    try:
        return _with_chances(checker.check(context), context)
    except Exception as error:  # noqa: BLE001 - a crash costs its own verdict only, not the record
        last_line = traceback.format_exception_only(error)[-1].strip()
        return Finding(
            checker=checker.name,
            clauses=checker.clauses,
            verdict=Verdict.UNKNOWN,
            summary=f"the checker itself crashed: {last_line}",
            details={"traceback": traceback.format_exc(), "plan": to_builtins(context.plan)},
        )
