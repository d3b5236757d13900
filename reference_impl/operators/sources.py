"""Rewindable sources: rows in memory, and Parquet files.

A source is cut into splits, each read in order. A position is the number of the *next* record of a split
(what was read ends before it), and 0 is a position like any other, not the lack of one. Subtask i of p
reads the splits i, i + p, ... of the list, one after the other or in turn; a batch never crosses splits (SRC-1).
Watermarks need them in turn: the event time of a subtask has come only as far as that of its slowest split.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from barrier_tck.reference_impl.operators.api import DataPlane, NothingYet, Payload
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.protocol.messages import SplitPosition
from barrier_tck.reference_impl.runtime_errors import JobUsageError, RestoreError
from barrier_tck.reference_impl.storage.filesystem import FileSystem

PAUSED_WAIT_MS = 5.0
"""After this time it is looked again whether a paused split may be read."""


class SplitFormat(Protocol):
    """How a kind of source reads its splits."""

    def batches(self, split: str, offset: int) -> Iterator[tuple[Payload, int]]:
        """Read a split from a record on: batches, each with its number of records (at least one).

        Raises RestoreError if the split has fewer records than ``offset``.
        """

    def close(self) -> None:
        """Release files."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A time in which a split has no record, although it has not ended."""

    split: str
    offset: int
    """From which record on; what lies before it is there."""
    polls: int
    """How often a reader that stands there is given nothing, in each attempt."""
    wait_ms: float
    """How long it waits each time."""

    def __post_init__(self) -> None:
        if self.offset < 0 or self.polls < 1 or self.wait_ms <= 0:
            raise JobUsageError(
                f"a gap needs an offset of 0 or more, and polls and wait_ms above 0, not {self}"
            )


class SplitReader:
    """A ``SourceReader`` over the splits of one subtask."""

    def __init__(
        self,
        all_splits: Sequence[str],
        subtask_index: int,
        parallelism: int,
        split_format: SplitFormat,
        start_offset: int,
        rate_limit: float | None,
        in_turn: bool = False,
        gaps: Sequence[Gap] = (),
    ) -> None:
        """Read the subtask's splits one after another or, ``in_turn``, a batch of each at a time."""
        self.splits = tuple(all_splits[subtask_index::parallelism])
        self.offsets = dict.fromkeys(self.splits, start_offset)
        """Split -> number of its next record."""
        self._all_splits = frozenset(all_splits)
        self._format = split_format
        self._rate_limit = rate_limit
        self._in_turn = in_turn
        self._open = list(self.splits)
        """The splits that have not ended; in turn, the one that comes next stands first."""
        self._batches: dict[str, Iterator[tuple[Payload, int]]] = {}
        self._gaps = {split: [gap for gap in gaps if gap.split == split] for split in self.splits}
        self._waited: dict[str, int] = {}
        """Split -> how often the reader was given nothing at the gap where it stands."""
        self._quiet: dict[str, None] = {}
        self._paused: Collection[str] = ()
        self._split = ""

    def restore(self, positions: Sequence[SplitPosition]) -> None:
        """Continue at these positions (REC-1); raises RestoreError for a split that this subtask does not have."""
        for position in positions:
            if position.split not in self.offsets:
                why = (
                    "is another subtask's now; the list of splits must not change between attempts"
                    if position.split in self._all_splits
                    else f"is missing; the source has {', '.join(sorted(self._all_splits)) or 'no splits'}"
                )
                raise RestoreError(f"the checkpoint has a position in split {position.split!r}, which {why}")
            if position.offset < 0:
                raise RestoreError(f"the position {position.offset} in split {position.split!r} is negative")
            self.offsets[position.split] = position.offset
            ahead = [gap for gap in self._gaps[position.split] if gap.offset >= position.offset]
            self._gaps[position.split] = ahead

    def poll(self) -> Payload | NothingYet | None:
        waits: list[float] = []
        for split in list(self._open):
            if split in self._paused:
                waits.append(PAUSED_WAIT_MS)
                continue
            wait_ms = self._gap_of(split)
            batch = self._next_of(split) if wait_ms is None else None
            if batch is not None:
                payload, records = batch
                self.offsets[split] += records
                self._quiet.pop(split, None)
                self._split = split
                if self._in_turn:
                    self._open.remove(split)
                    self._open.append(split)
                return payload
            if wait_ms is None:
                self._open.remove(split)
                continue
            waits.append(wait_ms)
            if not self._in_turn:
                break
        return NothingYet(min(waits)) if waits else None

    def pause(self, splits: Collection[str]) -> None:
        self._paused = splits
        for split in splits:
            self._quiet.pop(split, None)

    def _gap_of(self, split: str) -> float | None:
        """Return how long to wait for the next record of a split; None if it is there, or the split has ended."""
        gaps = self._gaps[split]
        if not gaps or self.offsets[split] < gaps[0].offset:
            return None
        waited = self._waited[split] = self._waited.get(split, 0) + 1
        if waited > gaps[0].polls:
            del gaps[0], self._waited[split]
            return self._gap_of(split)
        self._quiet[split] = None
        return gaps[0].wait_ms

    def _next_of(self, split: str) -> tuple[Payload, int] | None:
        if split not in self._batches:
            self._batches[split] = self._format.batches(split, self.offsets[split])
        batch = next(self._batches[split], None)
        if batch is None:
            del self._batches[split]
        return batch

    @property
    def split(self) -> str:
        """The split of the last batch."""
        return self._split

    @property
    def open_splits(self) -> Collection[str]:
        """The splits that have not ended, as far as this is known."""
        return self._open

    @property
    def quiet_splits(self) -> Collection[str]:
        """The splits that had no record when they were asked last."""
        return self._quiet

    def positions(self) -> tuple[SplitPosition, ...]:
        return tuple(SplitPosition(split, offset) for split, offset in self.offsets.items())

    @property
    def rate_limit(self) -> float | None:
        return self._rate_limit

    def close(self) -> None:
        self._batches.clear()
        self._format.close()


def _require_positive(source: str, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and value <= 0:
            raise JobUsageError(f"{source}: {name} must be greater than 0, not {value}")


def _require_start(source: str, start_offset: int) -> None:
    if start_offset < 0:
        raise JobUsageError(f"{source}: start_offset must be 0 or more, not {start_offset}")


def _require_distinct(source: str, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise JobUsageError(f"{source}: the split {twice[0]!r} occurs twice; positions need distinct names")


@dataclass(frozen=True, slots=True)
class CollectionSource:
    """A source of rows held in memory, for tests and generated workloads."""

    splits: tuple[tuple[str, tuple[Row, ...]], ...]
    """Name and rows of each split."""
    batch_records: int
    """Records per batch; the last batch of a split may have fewer."""
    rate_limit: float | None = None
    """Records per second and subtask; None: as fast as it can."""
    start_offset: int = 0
    """Where each split begins: records before it are not part of the input."""
    in_turn: bool = False
    """Whether a subtask reads its splits in turn, a batch of each at a time."""
    gaps: tuple[Gap, ...] = ()
    """Where there is no record for a time."""

    def __post_init__(self) -> None:
        _require_positive("CollectionSource", batch_records=self.batch_records, rate_limit=self.rate_limit)
        _require_start("CollectionSource", self.start_offset)
        _require_distinct("CollectionSource", [name for name, _ in self.splits])

    def open(self, subtask_index: int, parallelism: int, files: FileSystem, plane: DataPlane) -> SplitReader:
        """Return the reader of the subtask's share."""
        rows = _RowSplits(dict(self.splits), self.batch_records, self.start_offset, plane)
        names = [name for name, _ in self.splits]
        return SplitReader(
            names,
            subtask_index,
            parallelism,
            rows,
            self.start_offset,
            self.rate_limit,
            self.in_turn,
            self.gaps,
        )


class _RowSplits:
    """The ``SplitFormat`` of rows in memory."""

    def __init__(
        self, rows: dict[str, tuple[Row, ...]], batch_records: int, start_offset: int, plane: DataPlane
    ) -> None:
        self._rows = rows
        self._batch_records = batch_records
        self._start_offset = start_offset
        self._plane = plane

    def batches(self, split: str, offset: int) -> Iterator[tuple[Payload, int]]:
        rows = self._rows[split]
        _require_within(split, offset, len(rows), self._start_offset)
        for first in range(offset, len(rows), self._batch_records):
            batch = rows[first : first + self._batch_records]
            yield self._plane.from_rows(batch), len(batch)

    def close(self) -> None:
        """Do nothing: no file is open."""


def _require_within(split: str, offset: int, records: int, start_offset: int) -> None:
    # A split that ends before the start of the input is empty, and its position stays where it started.
    if offset > max(records, start_offset):
        raise RestoreError(
            f"the position {offset} lies behind the end of split {split!r}, which has {records} records: "
            "it has changed since the checkpoint"
        )


@dataclass(frozen=True, slots=True)
class ParquetSource:
    """A source over local Parquet files, one split per file; payloads are Arrow record batches."""

    paths: str | tuple[str, ...]
    """Files, or directories: their ``*.parquet`` files, but not those that begin with ``.`` or ``_``."""
    columns: tuple[str, ...] | None = None
    """Columns to read, in this order; None: all."""
    batch_rows: int = 1 << 18
    """Rows per batch; the last batch of a split, and the first after a restore, may have fewer."""
    rate_limit: float | None = None
    """Records per second and subtask; None: as fast as it can."""
    repeat: int = 1
    """How often the files are read; above 1, each file is the splits ``name#0``, ``name#1``, and so on."""
    start_offset: int = 0
    """Where each split begins: records before it are not part of the input."""
    in_turn: bool = False
    """Whether a subtask reads its splits in turn, a batch of each at a time."""
    gaps: tuple[Gap, ...] = ()
    """Where there is no record for a time."""

    def __post_init__(self) -> None:
        _require_positive(
            "ParquetSource", batch_rows=self.batch_rows, rate_limit=self.rate_limit, repeat=self.repeat
        )
        _require_start("ParquetSource", self.start_offset)

    def split_files(self) -> dict[str, Path]:
        """Return every split and its file, sorted by name, with numbers in names sorted by value (``split-2`` before
        ``split-10``); raises JobUsageError if there is none.
        """
        found: list[Path] = []
        paths = (self.paths,) if isinstance(self.paths, str) else self.paths
        for path in map(Path, paths):
            if path.is_dir():
                found.extend(file for file in path.glob("*.parquet") if not file.name.startswith(("_", ".")))
            elif path.is_file():
                found.append(path)
            else:
                raise JobUsageError(f"ParquetSource: there is no file or directory {path}")
        if not found:
            raise JobUsageError(
                f"ParquetSource: no *.parquet file in {', '.join(paths) or 'no paths at all'}"
            )
        _require_distinct("ParquetSource", [file.name for file in found])
        files = {file.name: file for file in sorted(found, key=_by_number)}
        if self.repeat == 1:
            return files
        return {f"{name}#{turn}": file for turn in range(self.repeat) for name, file in files.items()}

    def open(self, subtask_index: int, parallelism: int, files: FileSystem, plane: DataPlane) -> SplitReader:
        """Return the reader of the subtask's share; raises JobUsageError if a file or column is missing."""
        if plane.name != "arrow":
            raise JobUsageError(
                f"ParquetSource gives Arrow record batches, which the plane {plane.name!r} cannot take"
            )
        splits = self.split_files()
        parquet = _parquet_splits(splits, self.columns, self.batch_rows, self.start_offset)
        return SplitReader(
            list(splits),
            subtask_index,
            parallelism,
            parquet,
            self.start_offset,
            self.rate_limit,
            self.in_turn,
            self.gaps,
        )


def _by_number(file: Path) -> tuple[list[str | int], str]:
    """Return a key that sorts numbers in names by value, and names with equal numbers (``1``, ``01``) by their text."""
    parts = re.split(r"([0-9]+)", file.name)
    return [int(part) if position % 2 else part for position, part in enumerate(parts)], file.name


def _parquet_splits(
    files: dict[str, Path], columns: tuple[str, ...] | None, batch_rows: int, start_offset: int
) -> SplitFormat:
    # Imported on use: the simulator runs without Arrow, and importing it takes longer than a thousand steps.
    from barrier_tck.reference_impl.operators.parquet_splits import ParquetSplits

    return ParquetSplits(files, columns, batch_rows, start_offset, _require_within)


__all__ = ["CollectionSource", "Gap", "ParquetSource", "SplitFormat", "SplitReader"]
