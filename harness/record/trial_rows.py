"""One row for every trial of a run: lines of ``trials.jsonl``, or files of Parquet below ``trials.parquet``.

Lines are for a campaign in one place, whose reader is a person or a script. Parquet is for campaigns of very many
trials: a fifth of the size, and any engine reads its columns. Both hold the same ``TrialSummary``, as JSON; the other
columns of Parquet only repeat what one asks for.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import EnvironmentProblem

if TYPE_CHECKING:
    import pyarrow

LINES, PARQUET = "trials.jsonl", "trials.parquet"
"""The file of lines, and the directory of Parquet files, in a run directory."""

ROWS_OF_A_PART = 1_000
"""The most trials of one Parquet file: what is kept in memory meanwhile."""
PART_S = 15.0
"""The longest time between two Parquet files: a campaign that is killed loses the trials of at most this time."""

_COLUMNS: dict[str, type] = {
    "trial": int,
    "verdict": str,
    "seed": int,
    "trace_digest": str,
    "setup": str,
    "note": str,
    "end": str,
    "started_at": str,
    "wall_seconds": float,
    "duration_ms": float,
    "faults_planned": int,
    "faults_fired": int,
    "recoveries": int,
    "checkpoints_completed": int,
    "checkpoints_aborted": int,
}
"""Columns that repeat what the JSON says."""

CopyPart = Callable[[str, "pyarrow.Table"], None]
"""Copies one Parquet file, by its name, to another place."""


class TrialRows(Protocol):
    """Writes rows, in the order of the trials."""

    def append(self, trial: TrialSummary) -> None:
        """Add a trial."""

    def flush(self) -> None:
        """Write what is still in memory."""


class RowsInLines:
    """Writes each row at once, as a line."""

    def __init__(self, run: Path) -> None:
        self._path = run / LINES

    def append(self, trial: TrialSummary) -> None:
        """Add a trial's line."""
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(trial) + b"\n")

    def flush(self) -> None:
        """Do nothing: all lines are written."""


class RowsInParquet:
    """Writes some rows at a time, each time as a file of its own, which is there as a whole or not at all."""

    def __init__(self, run: Path, copy: CopyPart | None = None) -> None:
        self._path = run / PARQUET
        self._copy = copy
        self._waiting: list[TrialSummary] = []
        self._written = time.monotonic()

    def append(self, trial: TrialSummary) -> None:
        """Add a trial; some trials together make a file."""
        self._waiting.append(trial)
        if len(self._waiting) >= ROWS_OF_A_PART or time.monotonic() - self._written > PART_S:
            self.flush()

    def flush(self) -> None:
        """Write the trials that are not in a file yet."""
        if self._waiting:
            name = f"part-{self._waiting[0].trial:08d}.parquet"
            table = _table(self._waiting)
            content = io.BytesIO()
            _parquet().write_table(table, content, compression="zstd")
            self._path.mkdir(exist_ok=True)
            write_atomically(self._path / name, content.getvalue())
            if self._copy is not None:
                self._copy(name, table)
            self._waiting.clear()
        self._written = time.monotonic()


def _parquet() -> Any:
    # Imported here: it takes a while, and most campaigns have lines.
    import pyarrow.parquet

    return pyarrow.parquet


def _table(trials: Sequence[TrialSummary]) -> pyarrow.Table:
    import pyarrow

    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64()}
    columns = {
        name: pyarrow.array([getattr(trial, name) for trial in trials], kinds[kind])
        for name, kind in _COLUMNS.items()
    }
    columns["summary"] = pyarrow.array(
        [msgspec.json.encode(trial).decode() for trial in trials], pyarrow.string()
    )
    return pyarrow.table(columns)


def parts_of(run: Path) -> list[Path]:
    """Return the Parquet files of a run directory, in the order of their trials."""
    return sorted((run / PARQUET).glob("part-*.parquet"))


def lines_of_part(part: Path) -> Iterator[bytes]:
    """Yield the JSON of each trial of a Parquet file; raises ValueError if it is none, OSError if it is unreadable."""
    import pyarrow

    try:
        with part.open("rb") as file:
            for batch in _parquet().ParquetFile(file).iter_batches(batch_size=100, columns=["summary"]):
                for value in batch.column(0).to_pylist():
                    if not isinstance(value, str):
                        raise ValueError("its column 'summary' has no text in a row")
                    yield value.encode()
    except (pyarrow.ArrowException, KeyError, IndexError) as error:
        if isinstance(error, OSError):
            raise
        raise ValueError(str(error)) from error


def rows_of(run: Path, copy: CopyPart | None = None) -> TrialRows:
    """Return what writes further rows of a run directory, in the form of those that are there."""
    return RowsInLines(run) if (run / LINES).is_file() else RowsInParquet(run, copy)


def make_rows(run: Path, in_parquet: bool, copy: CopyPart | None = None) -> TrialRows:
    """Begin the rows of a new run directory; raises EnvironmentProblem."""
    if not in_parquet:
        write_atomically(run / LINES, b"")
        return RowsInLines(run)
    try:
        (run / PARQUET).mkdir()
    except OSError as error:
        raise EnvironmentProblem(f"cannot make {run / PARQUET}: {error.strerror or error}") from error
    return RowsInParquet(run, copy)
