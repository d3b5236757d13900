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
from typing import Any, Protocol, TypeGuard

from barrier_tck.reference_impl.ids import AttemptNumber, SubtaskId
from barrier_tck.reference_impl.runtime_errors import JobUsageError

Row = dict[str, Any]
"""A record: column name to None, bool, int, float, str, Decimal, date, or datetime with a time zone.

A partial result that is on its way to be merged (``combine``) may be bytes.
"""


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


Additive = Count | CountIf | Sum | FloatSum
"""An aggregate that is a sum, over the records of a key, of what each record contributes; it starts at zero."""


class Folded(Protocol):
    """An aggregate that folds the values of one column, in the order of the records, into an accumulator.

    Accumulators may be changed in place: one that was given to ``add`` or ``merge`` is not used again, apart from
    what they return.
    """

    @property
    def column(self) -> str:
        """Return the column that is read."""

    def create(self) -> Any:
        """Return the accumulator of no values."""

    def add(self, accumulator: Any, value: Any) -> Any:
        """Return the accumulator with one more value; raises JobUsageError for a value that it cannot take."""

    def merge(self, first: Any, second: Any) -> Any:
        """Return the accumulator of the values of both."""

    def result(self, accumulator: Any) -> Any:
        """Return what is emitted."""

    def stored(self, accumulator: Any) -> Any:
        """Return what a snapshot keeps (see ``scalars.stored_form``); equal for equal accumulators on all planes."""

    def restored(self, stored: Any) -> Any:
        """Return the accumulator of what a snapshot kept."""

    def partial(self) -> Folded:
        """Return the aggregate whose result can be merged: the accumulator, in a form that a column can hold."""

    def merging(self, column: str) -> Folded:
        """Return the aggregate that merges partial results found in a column."""


Aggregate = Additive | Folded
"""What is kept for each key of a keyed aggregate."""


def not_an_integer(column: str, found: object) -> JobUsageError:
    """Return the error for a value that ``Sum`` cannot add exactly."""
    return JobUsageError(
        f"Sum({column!r}) adds integers exactly and found {found!r}; "
        "use FloatSum for floats, DecimalSum for decimals and CountIf for booleans"
    )


def missing_column(column: object, present: Iterable[str], where: str) -> JobUsageError:
    """Return the error for a column that a record does not have."""
    return JobUsageError(
        f"{where}: there is no column {column!r}; the record has {', '.join(present) or 'no columns'}"
    )


def merging_aggregates(aggregates: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    """Return the aggregates that merge partial results, each found in the column of its own name."""
    return {name: aggregate.merging(name) for name, aggregate in aggregates.items()}


def partial_aggregates(aggregates: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    """Return the aggregates whose results ``merging_aggregates`` merges; a sum is merged as it is."""
    return {
        name: aggregate if isinstance(aggregate, Additive) else aggregate.partial()
        for name, aggregate in aggregates.items()
    }


def all_additive(aggregates: Mapping[str, Aggregate]) -> TypeGuard[Mapping[str, Additive]]:
    """Return whether all aggregates are sums of contributions."""
    return all(isinstance(aggregate, Additive) for aggregate in aggregates.values())
