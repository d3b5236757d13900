"""Lengths of time that more than one report shows: recoveries, and the parts of snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from math import inf
from operator import itemgetter

from barrier_tck.harness.record.records import RestoreRecord, SnapshotRecord, TrialRecord
from barrier_tck.reports.smallest import Smallest

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
    """In order: all of them or, if there are very many, SAMPLE_MAX drawn ones."""
    count: int
    """How many there are."""
    most: float
    """The largest of all."""
    colour: str
    trials: int
    """How many trials the values are from: records of subtasks and attempts are kept of some trials only."""


SAMPLE_MAX = 10_000
"""How many values of a kind are kept: of so many, a percentile is hardly ever wrong by more than 1 % of all values."""

ALIGNMENT_COLOUR = "#e69f00"
SYNC_COLOUR = "#0072b2"
ASYNC_COLOUR = "#56b4e9"
RECOVERY_COLOUR = "#cc79a7"
OTHER_COLOUR = "#8a93a0"


class _Sample:
    """Values of one kind: all, or as many as are enough for percentiles."""

    def __init__(self) -> None:
        self._drawn = Smallest[tuple[bytes, int, float]](SAMPLE_MAX, itemgetter(0))
        self._most = -inf

    def add(self, value: float) -> None:
        place = self._drawn.count
        # The digest of a place is as good as a random number, and the same every time.
        self._drawn.add((blake2b(b"%d" % place, digest_size=8).digest(), place, value))
        self._most = max(self._most, value)

    def series(self, name: str, colour: str, trials: int) -> Series:
        values = tuple(value for _, _, value in sorted(self._drawn.values(), key=itemgetter(1)))
        return Series(name, values, self.count, self._most, colour, trials)

    @property
    def count(self) -> int:
        return self._drawn.count


class Lengths:
    """Values of each kind, added up trial by trial: what every trial measured, and the records of some."""

    def __init__(self) -> None:
        self._measured: dict[str, _Sample] = {}
        self._recorded: dict[str, _Sample] = {}
        self._records = 0

    def add(self, measurements: Mapping[str, float]) -> None:
        """Add what a trial measured."""
        for name, value in measurements.items():
            self._measured.setdefault(name, _Sample()).add(value)

    def add_record(self, record: TrialRecord) -> None:
        """Add the parts of snapshots and the recoveries of a trial that was kept in full.

        Alignment of subtasks that had nothing to align (0 ms and nothing buffered, such as sources) is left out,
        for it would hide the others.
        """
        self._records += 1
        for part in record.snapshots:
            if _aligned(part):
                self._add_recorded("alignment_ms", part.alignment_ms)
            self._add_recorded("sync_ms", part.sync_ms)
            self._add_recorded("async_ms", part.async_ms)
        for recovery in recoveries(record):
            if recovery.length_ms is not None:
                self._add_recorded("recovery_ms", recovery.length_ms)

    def _add_recorded(self, name: str, value: float) -> None:
        self._recorded.setdefault(name, _Sample()).add(value)

    def series(self) -> tuple[Series, ...]:
        """Return what there is to show as distributions; a kind without a single value is left out."""
        recorded = (
            self._recorded[name].series(name, colour, self._records)
            for name, colour in _RECORDED.items()
            if name in self._recorded
        )
        measured = (
            sample.series(name, OTHER_COLOUR, sample.count) for name, sample in sorted(self._measured.items())
        )
        return (*recorded, *measured)


_RECORDED = {
    "alignment_ms": ALIGNMENT_COLOUR,
    "sync_ms": SYNC_COLOUR,
    "async_ms": ASYNC_COLOUR,
    "recovery_ms": RECOVERY_COLOUR,
}
"""What records of trials have, and how it is drawn."""


def _aligned(part: SnapshotRecord) -> bool:
    """Return whether a subtask had anything to align."""
    return part.alignment_ms > 0 or part.alignment_buffered_bytes > 0
