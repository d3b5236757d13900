"""The rows of a query's input from which a row of its output comes, as far as columns tell.

Nothing of the query is looked at: a column of the output that has the name of one of the input is taken for the same.
So what is found is said to have the same values, and by which columns it was found.
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


class InputRows:
    """The input of one trial: a directory of Parquet files."""

    def __init__(self, directory: Path, taken: Mapping[str, int], names: RowNames) -> None:
        """Take the files, which micro-batch took each, and what identifies a row."""
        self._files = sorted(directory.glob("*.parquet"))
        self._taken = taken
        self._names = names

    def of(self, values: Mapping[str, Any]) -> Origin:
        """Return the rows that have the values of a row of the output: by id, or by key, or by all that is shared."""
        columns = set(pq.read_schema(self._files[0]).names) if self._files else set[str]()
        by = self._columns({name for name in values if name in columns}, values)
        if not by:
            return Origin()
        found = [(file, row) for file in self._files for row in _matching(file, by, values)]
        shown = tuple(
            InputRow(file.name, number, rendered(row), self._taken.get(file.name))
            for file, (number, row) in found[:_SHOWN]
        )
        batches = {self._taken[file.name] for file, _ in found if file.name in self._taken}
        return Origin(by if found else (), shown, len(found), tuple(sorted(batches)))

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
    file: Path, by: Sequence[str], values: Mapping[str, Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file that have the same values, with their place from 1."""
    table = pq.read_table(file)
    masks = [_equal(table[name], values[name]) for name in by]
    if any(mask is None for mask in masks):
        return
    places = pc.indices_nonzero(reduce(pc.and_, masks)).to_pylist()
    for place in places:
        yield place + 1, table.slice(place, 1).to_pylist()[0]


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
