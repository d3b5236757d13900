"""The rows of a query's input from which a row of its output comes, as far as columns tell.

Nothing of the query is looked at: a column of the output that has the name of one of the input is taken for the same.
So what is found is said to have the same values, and by which columns it was found. A window in the output is taken for
one of the input's only column with times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barrier_tck.harness.record.history import InputRow
from barrier_tck.harness.streaming.query_rpc import RowNames

_SHOWN = 10
_LONGEST = 200
"""Characters of a row that are shown."""
_OF_SPARK, _FLAT = ("start", "end"), ("window_start", "window_end")
"""The names of the two bounds of a window: Spark's own in one column, and those of two columns."""


@dataclass(frozen=True)
class Origin:
    """Rows of the input."""

    found_by: tuple[str, ...] = ()
    """The columns in which they have the values that were looked for; empty: there are none to look by."""
    rows: tuple[InputRow, ...] = ()
    """The first of them."""
    number: int = 0
    read_by: tuple[int, ...] = ()
    """The micro-batches that took them."""
    within: str = ""
    """The column of the input whose times lie in the window of the row that was looked for; empty: it has no window."""


@dataclass(frozen=True)
class _Window:
    """A window of time in a row of the output: from its start to before its end."""

    column: str
    """The input's column with times."""
    start: datetime
    end: datetime

    def holds(self, times: pa.ChunkedArray) -> Any:
        """Return which times lie in it."""
        bounds = [_as_in(times.type, bound) for bound in (self.start, self.end)]
        inside = pc.and_(pc.greater_equal(times, bounds[0]), pc.less(times, bounds[1]))
        return pc.fill_null(inside, False)


class InputRows:
    """The input of one trial: a directory of Parquet files."""

    def __init__(self, directory: Path, taken: Mapping[str, int], names: RowNames) -> None:
        """Take the files, which micro-batch took each, and what identifies a row."""
        self._files = sorted(directory.glob("*.parquet"))
        self._taken = taken
        self._names = names

    def of(self, values: Mapping[str, Any]) -> Origin:
        """Return the rows that have the values of a row of the output: by id, or by key, or by all that is shared."""
        schema = pq.read_schema(self._files[0]) if self._files else pa.schema([])
        by = self._columns({name for name in values if name in schema.names}, values)
        window = None if self._names.id_column in by else _window_of(values, schema)
        if not by and window is None:
            return Origin()
        found = [(file, row) for file in self._files for row in _matching(file, by, values, window)]
        if not found and by and window is not None:  # it was no window, or its rows are in no file
            window = None
            found = [(file, row) for file in self._files for row in _matching(file, by, values, window)]
        shown = tuple(
            InputRow(file.name, number, rendered(row), self._taken.get(file.name))
            for file, (number, row) in found[:_SHOWN]
        )
        batches = {self._taken[file.name] for file, _ in found if file.name in self._taken}
        if not found:
            return Origin()
        within = "" if window is None else window.column
        return Origin(by, shown, len(found), tuple(sorted(batches)), within)

    def _columns(self, shared: set[str], values: Mapping[str, Any]) -> tuple[str, ...]:
        if self._names.id_column in shared:
            return (self._names.id_column,)
        if self._names.key_columns and shared.issuperset(self._names.key_columns):
            return self._names.key_columns
        if not self._names.any_columns:
            return ()
        # A time has another zone in a file than in a row that Spark gives.
        return tuple(
            name for name, value in values.items() if name in shared and not isinstance(value, datetime)
        )


def rendered(values: Mapping[str, Any]) -> str:
    """Return a row as readers see it."""
    text = ", ".join(f"{name}={value}" for name, value in values.items())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _matching(
    file: Path, by: Sequence[str], values: Mapping[str, Any], window: _Window | None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file that have the same values, with their place from 1."""
    table = pq.read_table(file)
    masks = [_equal(table[name], values[name]) for name in by]
    if any(mask is None for mask in masks):
        return
    if window is not None:
        masks.append(window.holds(table[window.column]))
    places = pc.indices_nonzero(reduce(pc.and_, masks)).to_pylist()
    for place in places:
        yield place + 1, table.slice(place, 1).to_pylist()[0]


def _window_of(values: Mapping[str, Any], schema: pa.Schema) -> _Window | None:
    """Return the window in a row of the output; None if it has none, or several, or the input has not one time."""
    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    nested = [(_fields_of(value), _OF_SPARK) for value in values.values()]
    found = [
        (start, end)
        for parts, (first, last) in ((values, _FLAT), *nested)
        if isinstance(start := parts.get(first), datetime) and isinstance(end := parts.get(last), datetime)
    ]
    if len(times) != 1 or len(found) != 1:
        return None
    return _Window(times[0], *found[0])


def _fields_of(value: Any) -> Mapping[str, Any]:
    """Return the fields of a value of several, as Spark gives it."""
    names = getattr(value, "__fields__", None)
    return dict(zip(names, value, strict=True)) if names is not None else {}


def _as_in(kind: pa.TimestampType, time: datetime) -> pa.Scalar:
    """Return a time of Spark's, which is in the zone of this process, as a column of the input has it."""
    return pa.scalar(time if kind.tz is None else time.astimezone(), kind)


def _equal(column: pa.ChunkedArray, value: object) -> Any:
    """Return where a column has a value; None if it can have no such value."""
    if value is None:
        return pc.is_null(column)
    try:
        return pc.fill_null(pc.equal(column, pa.scalar(value).cast(column.type)), False)
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        pa.ArrowTypeError,
    ):  # another type, or one of many parts
        return None
