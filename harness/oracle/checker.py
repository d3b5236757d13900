"""Checkers and their composition: a trial's history goes in, findings and one verdict come out.

A checker judges one property. Composing takes the worst verdict; a checker that crashes says nothing about
the system, so its finding is UNKNOWN and carries the traceback's last line and the plan that made it crash.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from faults.vocabulary import ScheduledFault
from harness.oracle.history import History
from harness.oracle.verdict import Finding, Verdict
from harness.plan import TrialPlan, to_builtins
from harness.record import AttemptRecord, CheckpointRecord, FaultRecord, SnapshotRecord


@dataclass(frozen=True, slots=True)
class TrialContext:
    """Everything that a checker may look at: the plan, and what the trial left. Times in milliseconds."""

    plan: TrialPlan
    history: History
    faults: tuple[FaultRecord, ...] = ()
    """What became of each planned fault, in the order of the plan."""
    attempts: tuple[AttemptRecord, ...] = ()
    checkpoints: tuple[CheckpointRecord, ...] = ()
    snapshots: tuple[SnapshotRecord, ...] = ()
    subtasks: tuple[str, ...] = ()
    """Every subtask, upstream first."""
    duration_ms: float = 0.0
    """Length of the run on its own clock."""
    capabilities: frozenset[str] = frozenset()
    """Names of ``harness.suts.system.Capability`` that the system declares, e.g. SNAPSHOT_INSPECTION."""

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


def _guarded(checker: Checker, context: TrialContext) -> Finding:
    try:
        return checker.check(context)
    except Exception as error:  # noqa: BLE001 - a crash costs its own verdict only, not the record
        last_line = traceback.format_exception_only(error)[-1].strip()
        return Finding(
            checker=checker.name,
            clauses=checker.clauses,
            verdict=Verdict.UNKNOWN,
            summary=f"the checker itself crashed: {last_line}",
            details={"traceback": traceback.format_exc(), "plan": to_builtins(context.plan)},
        )
