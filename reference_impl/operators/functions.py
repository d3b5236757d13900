"""What a user's job is made of: functions over rows, aggregates over keys, and when aggregates are emitted.

A row function is a plain callable over a row (a dict from column name to value) and must not change its
argument, which may be referred to elsewhere: map returns a new row, filter a truth value, flat map any
number of rows. ``Vectorized`` adds a form over whole Arrow record batches, which the Arrow plane prefers;
both must agree. All rows of a batch have the same columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from barrier_tck.reference_impl.ids import AttemptNumber, SubtaskId
from barrier_tck.reference_impl.runtime_errors import JobUsageError

Row = dict[str, Any]
"""A record: column name to None, bool, int, float or str."""


@dataclass(frozen=True, slots=True)
class Vectorized:
    """A function given twice: over one row, and over a whole ``pyarrow.RecordBatch``."""

    rows: Callable[[Row], Any]
    """The form over one row, which defines the result."""
    batch: Callable[[Any], Any]
    """Record batch to record batch (map, flat map), or to a boolean array (filter; null is false)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a function runs: which subtask of which attempt."""

    job: str
    subtask: SubtaskId
    """As text, for instance, ``flights[1]``."""
    parallelism: int
    """How many subtasks the vertex has."""
    attempt: AttemptNumber


@dataclass(frozen=True, slots=True)
class PerSubtask:
    """A function that is made for each subtask of each attempt, from the place where it runs.

    It may be given instead of a row function, and instead of a keyed function.
    """

    make: Callable[[Place], Any]


def function_at(function: Any, place: Place) -> Any:
    """Return the function that a subtask calls: one made for its place, or the given one."""
    return function.make(place) if isinstance(function, PerSubtask) else function


class Emission(Enum):
    """When the aggregates of a key go downstream."""

    EACH_RECORD = "each_record"
    """One row per input row: carried columns, key, and the aggregates up to and including that row."""
    CHANGES = "changes"
    """Ahead of each barrier and at the end of input, one row per key changed since the previous emission."""
    FINAL = "final"
    """One row per key, at the end of input."""


@dataclass(frozen=True, slots=True)
class Count:
    """The number of records."""

    @property
    def column(self) -> None:
        """Return None: no column is read."""
        return None

    @property
    def floating(self) -> bool:
        """Return False: the result is a 64-bit integer."""
        return False

    def contribution(self, row: Row) -> int:
        """Return what a row adds."""
        return 1

    def merging(self, column: str) -> Sum:
        """Return the aggregate that merges partial results found in a column."""
        return Sum(column)


@dataclass(frozen=True, slots=True)
class CountIf:
    """The number of records whose column is true in Python's sense: not null, zero, false, or empty."""

    column: str

    @property
    def floating(self) -> bool:
        """Return False: the result is a 64-bit integer."""
        return False

    def contribution(self, row: Row) -> int:
        """Return what a row adds."""
        return 1 if row[self.column] else 0

    def merging(self, column: str) -> Sum:
        """Return the aggregate that merges partial results found in a column."""
        return Sum(column)


@dataclass(frozen=True, slots=True)
class Sum:
    """The exact sum of a column of 64-bit integers; nulls are ignored, so the sum of no values is 0."""

    column: str

    @property
    def floating(self) -> bool:
        """Return False: the result is a 64-bit integer."""
        return False

    def contribution(self, row: Row) -> int:
        """Return what a row adds; raises JobUsageError for a value that is not an integer."""
        value = row[self.column]
        if type(value) is int:
            return value
        if value is None:
            return 0
        raise not_an_integer(self.column, value)

    def merging(self, column: str) -> Sum:
        """Return the aggregate that merges partial results found in a column."""
        return Sum(column)


@dataclass(frozen=True, slots=True)
class FloatSum:
    """The sum of a column of numbers as a float; nulls are ignored.

    Float addition depends on the order, so partial sums (``combine``) may differ in the last bits from a sum
    record by record.
    """

    column: str

    @property
    def floating(self) -> bool:
        """Return True: the result is a 64-bit float."""
        return True

    def contribution(self, row: Row) -> float:
        """Return what a row adds; raises JobUsageError for a value that is not a number."""
        value = row[self.column]
        if type(value) is float:
            return value
        if value is None:
            return 0.0
        if type(value) is int:
            return float(value)
        raise JobUsageError(f"FloatSum({self.column!r}) adds numbers, not {value!r} ({type(value).__name__})")

    def merging(self, column: str) -> FloatSum:
        """Return the aggregate that merges partial results found in a column."""
        return FloatSum(column)


Aggregate = Count | CountIf | Sum | FloatSum
"""An aggregate: a sum, over the records of a key, of what each record contributes; it starts at zero."""


def not_an_integer(column: str, found: object) -> JobUsageError:
    """Return the error for a value that ``Sum`` cannot add exactly."""
    return JobUsageError(
        f"Sum({column!r}) adds integers exactly and found {found!r}; "
        "use FloatSum for floats and CountIf for booleans"
    )


def missing_column(column: object, present: Iterable[str], where: str) -> JobUsageError:
    """Return the error for a column that a record does not have."""
    return JobUsageError(
        f"{where}: there is no column {column!r}; the record has {', '.join(present) or 'no columns'}"
    )


def merging_aggregates(aggregates: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    """Return the aggregates that merge partial results, each found in the column of its own name."""
    return {name: aggregate.merging(name) for name, aggregate in aggregates.items()}
