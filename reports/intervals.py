"""Lengths of time that more than one report shows: recoveries, and the parts of snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from barrier_tck.harness.record.records import RestoreRecord, SnapshotRecord, TrialRecord

LOCAL = "secondary"
"""What a restore record says of a copy on the subtask's own host."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """From the end of a failed attempt to the moment when every subtask of the next one ran."""

    attempt: int
    """The attempt that recovered."""
    failed_at_ms: float
    running_at_ms: float | None
    """None if the attempt never came to run."""
    gave_up_at_ms: float
    """When the attempt ended; bounds a recovery that never came to run."""
    reason: str
    """Why the earlier attempt ended."""
    restored_checkpoint: int | None
    restores: tuple[RestoreRecord, ...] = ()
    """Which copy served what; empty if the system does not report it."""

    @property
    def from_local_copies(self) -> int:
        """Return how many state files the subtasks' own copies served."""
        return sum(restore.served_by == LOCAL for restore in self.restores)

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Return who read the primary copy, and why, one phrase for each reason."""
        return tuple(
            dict.fromkeys(
                restore.subtask + (f" ({restore.reason})" if restore.reason else "")
                for restore in self.restores
                if restore.served_by != LOCAL
            )
        )

    @property
    def length_ms(self) -> float | None:
        """Return how long it took, or None if it did not succeed."""
        return None if self.running_at_ms is None else self.running_at_ms - self.failed_at_ms


def recoveries(record: TrialRecord) -> tuple[Recovery, ...]:
    """Return the recoveries of a trial, in order."""
    return tuple(
        Recovery(
            attempt=after.attempt,
            failed_at_ms=before.ended_at_ms,
            running_at_ms=after.running_at_ms,
            gave_up_at_ms=after.ended_at_ms,
            reason=before.reason,
            restored_checkpoint=after.restored_checkpoint,
            restores=tuple(restore for restore in record.restores if restore.attempt == after.attempt),
        )
        for before, after in pairwise(record.attempts)
    )


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one kind over several trials."""

    name: str
    """With its unit at the end, for instance ``alignment_ms``."""
    values: tuple[float, ...]
    colour: str
    trials: int
    """How many trials the values are from: records of subtasks and attempts are kept of some trials only."""


ALIGNMENT_COLOUR = "#e69f00"
SYNC_COLOUR = "#0072b2"
ASYNC_COLOUR = "#56b4e9"
RECOVERY_COLOUR = "#cc79a7"
OTHER_COLOUR = "#8a93a0"


def series_of(records: Iterable[TrialRecord], measurements: Iterable[dict[str, float]]) -> tuple[Series, ...]:
    """Return what there is to show as distributions; a kind without a single value is left out.

    Alignment of subtasks that had nothing to align (0 ms and nothing buffered, such as sources) is left out,
    for it would hide the others.
    """
    trials = tuple(records)
    snapshots = [snapshot for record in trials for snapshot in record.snapshots]
    recovered = [recovery.length_ms for record in trials for recovery in recoveries(record)]
    of_records = (
        ("alignment_ms", [part.alignment_ms for part in snapshots if _aligned(part)], ALIGNMENT_COLOUR),
        ("sync_ms", [part.sync_ms for part in snapshots], SYNC_COLOUR),
        ("async_ms", [part.async_ms for part in snapshots], ASYNC_COLOUR),
        ("recovery_ms", [length for length in recovered if length is not None], RECOVERY_COLOUR),
    )
    named: dict[str, list[float]] = {}
    for trial in measurements:
        for name, value in trial.items():
            named.setdefault(name, []).append(value)
    found = (
        *(Series(name, tuple(values), colour, len(trials)) for name, values, colour in of_records),
        *(Series(name, tuple(named[name]), OTHER_COLOUR, len(named[name])) for name in sorted(named)),
    )
    return tuple(series for series in found if series.values)


def _aligned(part: SnapshotRecord) -> bool:
    """Return whether a subtask had anything to align."""
    return part.alignment_ms > 0 or part.alignment_buffered_bytes > 0
