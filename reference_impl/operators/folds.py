"""Aggregates that are more than a sum: least, greatest, mean, sum of decimals, distinct values, and a user's own.

Each folds the values of one column, which have one type. Nulls are ignored, except by ``OwnAggregate``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Protocol, Self

from barrier_tck.reference_impl.operators.distinct_sketch import DistinctValues
from barrier_tck.reference_impl.operators.encoding import decode_accumulator, encode_accumulator
from barrier_tck.reference_impl.operators.functions import Folded
from barrier_tck.reference_impl.operators.scalars import DECIMAL_DIGITS, EXACT, canonical, canonical_decimal
from barrier_tck.reference_impl.runtime_errors import JobUsageError

MEAN_SCALE = 18
"""Digits after the point of a mean of decimals."""

_ROUNDING = Context(prec=200, rounding=ROUND_HALF_EVEN)


@dataclass(frozen=True, slots=True)
class _Extreme(ABC):
    """One of the values of a column, chosen by comparing two at a time; what is kept is the value itself."""

    column: str

    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        """Return the chosen one of two values; raises JobUsageError for values of two types."""
        return _chosen(type(self).__name__, self.column, self._before, accumulator, canonical(value))

    @abstractmethod
    def _before(self, first: Any, second: Any) -> bool:
        """Return whether the first of two values is the one to choose."""

    def merge(self, first: Any, second: Any) -> Any:
        return self.add(first, second)

    def result(self, accumulator: Any) -> Any:
        return accumulator

    def stored(self, accumulator: Any) -> Any:
        return accumulator

    def restored(self, stored: Any) -> Any:
        return stored

    def partial(self) -> Self:
        """Return the aggregate itself: the chosen value is merged as it is."""
        return self

    def merging(self, column: str) -> Self:
        return type(self)(column)


@dataclass(frozen=True, slots=True)
class Min(_Extreme):
    """The least value of a column, or null if it has none; NaN is greater than every other float."""

    def _before(self, first: Any, second: Any) -> bool:
        return bool(first < second)


@dataclass(frozen=True, slots=True)
class Max(_Extreme):
    """The greatest value of a column, or null if it has none; NaN is greater than every other float."""

    def _before(self, first: Any, second: Any) -> bool:
        return bool(first > second)


def _chosen(name: str, column: str, before: Callable[[Any, Any], bool], present: Any, value: Any) -> Any:
    if value is None:
        return present
    if present is None:
        return value
    if type(value) is not type(present):
        raise JobUsageError(
            f"{name}({column!r}) compares values of one type, and found {present!r} and {value!r}; "
            "convert the column in a map before"
        )
    if type(value) is float and (math.isnan(value) or math.isnan(present)):
        return value if before(math.isnan(value), math.isnan(present)) else present
    return value if before(value, present) else present


@dataclass(frozen=True, slots=True)
class DecimalSum:
    """The exact sum, as a decimal, of a column of decimals or integers; nulls are ignored, so that of no values is 0.

    Unlike ``Sum`` it may leave 64 bits: it has up to 38 digits.
    """

    column: str

    def create(self) -> Decimal:
        return Decimal(0)

    def add(self, accumulator: Decimal, value: Any) -> Decimal:
        """Return the sum; raises JobUsageError for a value that is neither a decimal nor an integer."""
        if value is None:
            return accumulator
        if type(value) not in (Decimal, int):
            raise not_a_decimal(self.column, value)
        return EXACT.add(accumulator, canonical_decimal(Decimal(value)))

    def merge(self, first: Decimal, second: Decimal) -> Decimal:
        return EXACT.add(first, second)

    def result(self, accumulator: Decimal) -> Decimal:
        """Return the sum; raises JobUsageError if it has more than 38 digits."""
        return canonical_decimal(accumulator)

    def stored(self, accumulator: Decimal) -> Decimal:
        return accumulator

    def restored(self, stored: Decimal) -> Decimal:
        return stored

    def partial(self) -> DecimalSum:
        """Return the aggregate itself: sums are added up as they are."""
        return self

    def merging(self, column: str) -> DecimalSum:
        return DecimalSum(column)


def not_a_decimal(column: str, found: object) -> JobUsageError:
    """Return the error for a value that ``DecimalSum`` cannot add."""
    return JobUsageError(
        f"DecimalSum({column!r}) adds decimals and integers exactly and found {found!r}; use FloatSum for floats"
    )


@dataclass(frozen=True, slots=True)
class Average:
    """The mean of a column of numbers, or null if it has none.

    Of integers it is the float next to their exact mean, of floats their sum (``FloatSum``) divided by their number. Of
    decimals it is a decimal: the exact mean rounded half to even, to 18 digits after the point, and to 38 in all.
    """

    column: str

    def create(self) -> tuple[Any, int]:
        """Return the sum and the number of no values."""
        return 0, 0

    def add(self, accumulator: tuple[Any, int], value: Any) -> tuple[Any, int]:
        """Return sum and number; raises JobUsageError for a value that is not a number."""
        if value is None:
            return accumulator
        if type(value) not in (int, float, Decimal):
            raise not_a_number(self.column, value)
        return self.merge(accumulator, (canonical(value), 1))

    def merge(self, first: tuple[Any, int], second: tuple[Any, int]) -> tuple[Any, int]:
        (one, of_one), (other, of_other) = first, second
        if not of_other:
            return first
        if not of_one:
            return second
        if isinstance(one, Decimal) is not isinstance(other, Decimal):
            raise JobUsageError(
                f"Average({self.column!r}) found decimals and other numbers; convert the column in a map before"
            )
        total = EXACT.add(one, other) if isinstance(one, Decimal) else one + other
        return total, of_one + of_other

    def result(self, accumulator: tuple[Any, int]) -> Any:
        total, count = accumulator
        if not count:
            return None
        if isinstance(total, Decimal):
            # The division is exact to far more digits than are kept; a large mean has room for fewer after the point.
            mean = _ROUNDING.divide(total, Decimal(count))
            scale = min(MEAN_SCALE, DECIMAL_DIGITS - max(0, mean.adjusted() + 1))
            return canonical_decimal(_ROUNDING.quantize(mean, Decimal(1).scaleb(-scale)))
        return total / count

    def stored(self, accumulator: tuple[Any, int]) -> list[Any]:
        total, count = accumulator
        return [canonical(total), count]

    def restored(self, stored: list[Any]) -> tuple[Any, int]:
        total, count = stored
        return total, count

    def partial(self) -> Folded:
        return Partial(self)

    def merging(self, column: str) -> Folded:
        return Merged(self, column)


def not_a_number(column: str, found: object) -> JobUsageError:
    """Return the error for a value that ``Average`` cannot take."""
    return JobUsageError(f"Average({column!r}) takes integers, floats and decimals, and found {found!r}")


@dataclass(frozen=True, slots=True)
class DistinctSketch:
    """About how many distinct values a column has, by a sketch of bounded size; needs the package ``datasketches``.

    Up to 4,096 values the number is exact. Beyond, its standard error is 1.6 percent, and a key's sketch has 32 KiB.
    Values are distinct if they would be distinct keys; nulls do not count.
    """

    column: str

    def create(self) -> DistinctValues:
        """Return the sketch of no values; raises JobUsageError if the package is missing."""
        return DistinctValues()

    def add(self, accumulator: DistinctValues, value: Any) -> DistinctValues:
        if value is not None:
            accumulator.add(value)
        return accumulator

    def merge(self, first: DistinctValues, second: DistinctValues) -> DistinctValues:
        first.merge(second)
        return first

    def result(self, accumulator: DistinctValues) -> int:
        """Return about how many values there are."""
        return accumulator.estimate()

    def stored(self, accumulator: DistinctValues) -> bytes:
        return accumulator.stored()

    def restored(self, stored: bytes) -> DistinctValues:
        return DistinctValues(stored)

    def partial(self) -> Folded:
        return Partial(self)

    def merging(self, column: str) -> Folded:
        return Merged(self, column)


class AggregateFunction(Protocol):
    """What a user gives to ``OwnAggregate``; it is shipped to subtasks.

    An accumulator is made of null, booleans, numbers, strings, bytes, decimals, dates and timestamps, and of lists,
    tuples and dicts (by strings or integers) of them. It may be changed in place.

    A function may also have a method ``add_batch(accumulator, values)``. The Arrow plane then calls it with a
    ``pyarrow.Array`` of the values that a key has in a batch, in their order, in place of ``add`` for each; both must
    agree. With ``Emission.EACH_RECORD``, ``add`` is called.
    """

    def create(self) -> Any:
        """Return the accumulator of no values."""

    def add(self, accumulator: Any, value: Any) -> Any:
        """Return the accumulator with one more value, which may be None."""

    def merge(self, first: Any, second: Any) -> Any:
        """Return the accumulator of the values of both (``combine``)."""

    def result(self, accumulator: Any) -> Any:
        """Return what is emitted: a value that a column may hold."""


@dataclass(frozen=True, slots=True)
class OwnAggregate:
    """A user's own aggregate of a column. Nulls are given to it, too."""

    column: str
    function: AggregateFunction

    def create(self) -> Any:
        return self.function.create()

    def add(self, accumulator: Any, value: Any) -> Any:
        return self.function.add(accumulator, value)

    def merge(self, first: Any, second: Any) -> Any:
        return self.function.merge(first, second)

    def result(self, accumulator: Any) -> Any:
        return self.function.result(accumulator)

    def stored(self, accumulator: Any) -> Any:
        return accumulator

    def restored(self, stored: Any) -> Any:
        return stored

    def partial(self) -> Folded:
        return Partial(self)

    def merging(self, column: str) -> Folded:
        return Merged(self, column)


@dataclass(frozen=True, slots=True)
class Partial:
    """An aggregate whose result is its accumulator as bytes, for ``Merged``."""

    aggregate: Folded

    @property
    def column(self) -> str:
        return self.aggregate.column

    def create(self) -> Any:
        return self.aggregate.create()

    def add(self, accumulator: Any, value: Any) -> Any:
        return self.aggregate.add(accumulator, value)

    def merge(self, first: Any, second: Any) -> Any:
        return self.aggregate.merge(first, second)

    def result(self, accumulator: Any) -> bytes:
        return encode_accumulator((self.aggregate.stored(accumulator),))

    def stored(self, accumulator: Any) -> Any:
        return self.aggregate.stored(accumulator)

    def restored(self, stored: Any) -> Any:
        return self.aggregate.restored(stored)

    def partial(self) -> Partial:
        return self

    def merging(self, column: str) -> Folded:
        return self.aggregate.merging(column)


@dataclass(frozen=True, slots=True)
class Merged:
    """An aggregate of partial results, which ``Partial`` has put into a column."""

    aggregate: Folded
    column: str

    def create(self) -> Any:
        return self.aggregate.create()

    def add(self, accumulator: Any, value: bytes) -> Any:
        (stored,) = decode_accumulator(value)
        return self.aggregate.merge(accumulator, self.aggregate.restored(stored))

    def merge(self, first: Any, second: Any) -> Any:
        return self.aggregate.merge(first, second)

    def result(self, accumulator: Any) -> Any:
        return self.aggregate.result(accumulator)

    def stored(self, accumulator: Any) -> Any:
        return self.aggregate.stored(accumulator)

    def restored(self, stored: Any) -> Any:
        return self.aggregate.restored(stored)

    def partial(self) -> Folded:
        return Partial(self)

    def merging(self, column: str) -> Folded:
        return Merged(self.aggregate, column)
