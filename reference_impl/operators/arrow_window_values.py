"""What windows keep of their aggregates, one value for each key: arrays of sums, and lists of accumulators.

A snapshot reads them while records go on coming. Whoever changes values that a snapshot still reads takes a ``copy``
of them first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import numpy as np
import pyarrow as pa

from barrier_tck.reference_impl.operators.arrow_folds import fold, result_type, values_for
from barrier_tck.reference_impl.operators.arrow_keys import Ints, columns_of
from barrier_tck.reference_impl.operators.arrow_slots import ordered_by_slot
from barrier_tck.reference_impl.operators.arrow_table import Totals, contributions
from barrier_tck.reference_impl.operators.arrow_values import Column, array_of
from barrier_tck.reference_impl.operators.encoding import decode_accumulator, encode_accumulator
from barrier_tck.reference_impl.operators.folds import Average, DecimalSum, DistinctSketch, Max, Min
from barrier_tck.reference_impl.operators.functions import Additive, Aggregate, Folded

Source = Any
"""What the rows of a batch give to an aggregate: an array, or a number if it is the same for all."""
Results = Any
"""An array of sums, or a list of results."""

_UNCHANGING = (Min, Max, DecimalSum, Average)
"""Aggregates whose accumulators are never changed in place."""


class WindowValues(Protocol):
    """The values of one aggregate, by place."""

    def grow(self, count: int) -> None:
        """Make room for so many places."""

    def set(self, places: Ints, stored: Sequence[Any]) -> None:
        """Take stored values of at least one place."""

    def add(self, places: Ints, source: Source) -> None:
        """Add what rows give, each to its place."""

    def running(self, places: Ints, source: Source) -> Results:
        """Add what rows give, and return the result behind each of them."""

    def results(self, places: Ints) -> Results:
        """Return what is emitted for places."""

    def stored(self, places: Ints) -> Any:
        """Return what a snapshot has for places: an array of numbers, or a list of bytes."""

    def merge(self, places: Ints, others: Ints) -> None:
        """Merge the values of other places into those of places, which may repeat, in their order."""

    def clear(self, places: Ints) -> None:
        """Let places have the values of no record."""

    def copy(self) -> Self:
        """Return the same values, which may be changed while others read these."""


class _Sums:
    """``WindowValues`` of a sum."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals

    def grow(self, count: int) -> None:
        self._totals.grow(count)

    def set(self, places: Ints, stored: Sequence[Any]) -> None:
        self._totals.set(places, stored)

    def add(self, places: Ints, source: Source) -> None:
        self._totals.add(places, source)

    def running(self, places: Ints, source: Source) -> Results:
        found = self._totals.running(places, *ordered_by_slot(places), source)
        self._totals.add(places, source)
        return found

    def results(self, places: Ints) -> Results:
        return self._totals.values[places]

    def stored(self, places: Ints) -> Any:
        return self._totals.values[places]

    def merge(self, places: Ints, others: Ints) -> None:
        self._totals.add(places, self._totals.values[others])

    def clear(self, places: Ints) -> None:
        self._totals.values[places] = 0

    def copy(self) -> _Sums:
        return _Sums(self._totals.copy())


class _Folds:
    """``WindowValues`` of an aggregate that folds."""

    def __init__(self, aggregate: Folded, accumulators: list[Any], own: bytearray | None = None) -> None:
        self._aggregate = aggregate
        self._accumulators = accumulators
        self._own = own
        """Which accumulators nobody else reads; None: all."""

    def grow(self, count: int) -> None:
        create, more = self._aggregate.create, count - len(self._accumulators)
        self._accumulators.extend(create() for _ in range(more))
        if self._own is not None:
            self._own.extend(b"\x01" * more)

    def set(self, places: Ints, stored: Sequence[bytes]) -> None:
        for place, value in zip(places.tolist(), stored, strict=True):
            self._accumulators[place] = self._aggregate.restored(decode_accumulator(value)[0])

    def add(self, places: Ints, source: Source) -> None:
        self._make_own(places)
        fold(self._aggregate, self._accumulators, places, source)

    def running(self, places: Ints, source: Source) -> Results:
        self._make_own(places)
        aggregate, accumulators, results = self._aggregate, self._accumulators, []
        for place, value in zip(places.tolist(), source.to_pylist(), strict=True):
            accumulators[place] = aggregate.add(accumulators[place], value)
            results.append(aggregate.result(accumulators[place]))
        return results

    def results(self, places: Ints) -> Results:
        return [self._aggregate.result(self._accumulators[place]) for place in places.tolist()]

    def stored(self, places: Ints) -> Any:
        return [self._stored(self._accumulators[place]) for place in places.tolist()]

    def merge(self, places: Ints, others: Ints) -> None:
        self._make_own(places)
        self._make_own(others)
        merge, accumulators = self._aggregate.merge, self._accumulators
        for place, other in zip(places.tolist(), others.tolist(), strict=True):
            accumulators[place] = merge(accumulators[place], accumulators[other])

    def clear(self, places: Ints) -> None:
        for place in places.tolist():
            self._accumulators[place] = self._aggregate.create()
            if self._own is not None:
                self._own[place] = 1

    def copy(self) -> _Folds:
        unchanging = isinstance(self._aggregate, _UNCHANGING)
        own = None if unchanging else bytearray(len(self._accumulators))
        return _Folds(self._aggregate, self._accumulators.copy(), own)

    def _make_own(self, places: Ints) -> None:
        """Put copies in place of accumulators that others read."""
        if self._own is None:
            return
        for place in places.tolist():
            if not self._own[place]:
                stored = self._stored(self._accumulators[place])
                self._accumulators[place] = self._aggregate.restored(decode_accumulator(stored)[0])
                self._own[place] = 1

    def _stored(self, accumulator: Any) -> bytes:
        return encode_accumulator((self._aggregate.stored(accumulator),))


class WindowedAggregate:
    """One aggregate of windows: what it reads of a batch, and what its results look like."""

    def __init__(self, aggregate: Aggregate) -> None:
        self._aggregate = aggregate
        self._type: Any | None = None
        """Of results that are no numbers, as far as the columns seen so far tell."""

    def empty(self) -> WindowValues:
        """Return the values of no place."""
        if isinstance(self._aggregate, Additive):
            return _Sums(Totals(self._aggregate, 64))
        return _Folds(self._aggregate, [])

    def source(self, batch: Any) -> Source:
        """Return what the rows of a batch give; raises JobUsageError if they have not the column."""
        if isinstance(self._aggregate, Additive):
            return contributions(self._aggregate, batch)
        name = self._aggregate.column
        column = values_for(self._aggregate, columns_of(batch, [name], "window")[0])
        if not pa.types.is_null(column.type):
            self._type = result_type(self._aggregate, column.type)
        return column

    def column(self, parts: Sequence[Results]) -> Column:
        """Return parts of results, of which there is at least one, as one column."""
        if isinstance(self._aggregate, Additive):
            return pa.array(parts[0] if len(parts) == 1 else np.concatenate(parts))
        return array_of([result for part in parts for result in part], self._type)

    def depends_on_order(self, source: Source) -> bool:
        """Return whether results depend on the order in which rows are added: by rounding, or by the user's will."""
        aggregate = self._aggregate
        if isinstance(aggregate, Average):
            return bool(pa.types.is_floating(source.type))
        if isinstance(aggregate, Additive):
            return aggregate.floating
        return not isinstance(aggregate, Min | Max | DecimalSum | DistinctSketch)

    @property
    def floating(self) -> bool | None:
        """Whether stored values are floats; None: they are bytes."""
        return self._aggregate.floating if isinstance(self._aggregate, Additive) else None


def rows_of(source: Source, rows: Ints) -> Source:
    """Return what some rows of a batch give."""
    if isinstance(source, int):
        return source
    return source[rows] if isinstance(source, np.ndarray) else source.take(pa.array(rows))
