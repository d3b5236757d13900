"""Which clauses a finding may speak for: those that apply to the system, and that the trial had a chance to break.

A clause that had no chance to be broken is not reported as kept. A clause about a mechanism that the system does not
have is not reported at all: if nothing is aligned, wrong output is no sign of a wrong alignment.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.operations import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Committed,
    FaultFired,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

JUDGES_OUTPUT = "judges_output"
"""Name of an attribute that is true for a checker that compares the committed output with the input. Such a checker
shows what was survived, no matter how.
"""


def spoken_for(finding: Finding, checker: object, context: TrialContext) -> Finding:
    """Return the finding with the clauses that it may speak for."""
    clauses = tuple(clause for clause in finding.clauses if _has(clause, context))
    if finding.verdict is Verdict.VALID:
        clauses = tuple(clause for clause in clauses if _had_a_chance(clause, checker, context))
    return finding if clauses == finding.clauses else msgspec.structs.replace(finding, clauses=clauses)


def _has(clause: str, context: TrialContext) -> bool:
    needed = _NEEDS.get(clause)
    return needed is None or needed.name in context.capabilities


def _had_a_chance(clause: str, checker: object, context: TrialContext) -> bool:
    if clause in _SHOWN_BY_OUTPUT and getattr(checker, JUDGES_OUTPUT, False) and _survived(context):
        return True
    chance = _CHANCES.get(clause)
    return chance is None or chance(context)


def _recovered(context: TrialContext) -> bool:
    return sum(1 for _ in context.history.of(AttemptStarted)) > 1


def _survived(context: TrialContext) -> bool:
    """Tell whether processes were killed, and the system went on without another attempt.

    Some systems replace killed processes within an attempt. To show that they went on, something must be committed
    that had not begun when the fault struck: work that was under way already may not have needed the killed process
    any more.
    """
    history = context.history
    kills = [
        fired.time_ms
        for fired in history.of(FaultFired)
        if 0 <= fired.operation.fault < len(context.planned_faults)
        and context.planned_faults[fired.operation.fault].fault.ends is not None
    ]
    if not kills:
        return False
    begun = {line.operation.checkpoint: line.time_ms for line in history.of(CheckpointTriggered)}
    return any(
        begun.get(line.operation.checkpoint, line.time_ms) > kills[0]
        if line.operation.checkpoint is not None
        else line.time_ms > kills[0]
        for line in history.of(Committed)
    )


def _aborted(context: TrialContext) -> bool:
    return any(context.history.of(CheckpointAborted))


def _had_wrong_acknowledgements(context: TrialContext) -> bool:
    """Tell whether an acknowledgement may have come late, again, or from nobody."""
    messages = any(
        record.outcome == "fired" and context.planned_faults[record.index].fault.needs is TargetKind.MESSAGES
        for record in context.faults
    )
    return messages or _aborted(context)


def _completed(context: TrialContext) -> bool:
    return any(context.history.of(CheckpointCompleted))


def _coordinator_crashed(context: TrialContext) -> bool:
    return any(
        record.outcome == "fired" and context.planned_faults[record.index].fault.ends is Ends.COORDINATOR
        for record in context.faults
    )


_NEEDS: dict[str, Capability] = {
    "ALN-1": Capability.BARRIERS,
    "ALO-1": Capability.BARRIERS,
    "BAR-1": Capability.BARRIERS,
}
"""Clauses about a mechanism that not every system has -> the capability that says so."""

_SHOWN_BY_OUTPUT = ("REC-1", "SRC-1")
"""Clauses that right output shows after a kill, whether or not there was a second attempt."""

_CHANCES: dict[str, Callable[[TrialContext], bool]] = {
    "REC-1": _recovered,
    "REC-2": _recovered,
    "SRC-1": _recovered,
    "SNP-1": _completed,
    "COO-2": _aborted,
    "COO-3": _had_wrong_acknowledgements,
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
"""Clause -> what must have happened in a trial; otherwise the trial says nothing about the clause."""
