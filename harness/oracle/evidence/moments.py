"""When something was seen: which line of a history shows it, at what time, and which fault had struck before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.operations import AttemptStarted, CheckpointCompleted, FaultFired


@dataclass(frozen=True, slots=True)
class _Moments:
    completed: Mapping[int, int]
    """Checkpoint -> the line that shows that it was complete: its completion, or a start from it."""
    started: Mapping[int, int]
    """Attempt -> the line of its start."""
    faults: tuple[tuple[int, str], ...]
    """Line and description of each fault that fired."""


def _moments(context: TrialContext) -> _Moments:
    completed: dict[int, int] = {}
    started: dict[int, int] = {}
    faults: list[tuple[int, str]] = []
    records = {record.index: record for record in context.faults}
    for line in context.history.operations:
        match line.operation:
            case CheckpointCompleted(checkpoint=checkpoint):
                completed.setdefault(checkpoint, line.index)
            case AttemptStarted(attempt=attempt, restored_checkpoint=restored):
                started.setdefault(attempt, line.index)
                if restored is not None:
                    completed.setdefault(restored, line.index)
            case FaultFired(fault=fault, target=target):
                record = records.get(fault)
                what = record.label if record is not None else f"fault {fault}"
                hit = f" ({target})" if target else ""
                faults.append((line.index, f"{what}{hit} at {line.time_ms:g} ms"))
    return _Moments(completed, started, tuple(faults))


def completed_at(context: TrialContext, checkpoint: int | None) -> int | None:
    """Return the line that shows that a checkpoint was complete; None if none does."""
    return context.once(_moments).completed.get(checkpoint if checkpoint is not None else -1)


def started_at(context: TrialContext, attempt: int | None) -> int | None:
    """Return the line of an attempt's start; None if there is none."""
    return context.once(_moments).started.get(attempt if attempt is not None else -1)


def time_of(context: TrialContext, operation: int | None) -> float | None:
    """Return the time of a line in milliseconds."""
    lines = context.history.operations
    return lines[operation].time_ms if operation is not None and operation < len(lines) else None


def fault_before(context: TrialContext, operation: int | None) -> str:
    """Return the last fault that had struck before a line, or at all before the end; empty if none had."""
    before = [
        described
        for line, described in context.once(_moments).faults
        if operation is None or line < operation
    ]
    return before[-1] if before else ""


def line_at(context: TrialContext, time_ms: float | None) -> int | None:
    """Return the first line at or after a time; None if there is none."""
    if time_ms is None:
        return None
    return next((line.index for line in context.history.operations if line.time_ms >= time_ms), None)
