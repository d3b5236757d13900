"""Running aggregates of any kind over Arrow batches: an accumulator for each key, and batches folded by key at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from barrier_tck.reference_impl.operators.api import LookUp
from barrier_tck.reference_impl.operators.arrow_folds import fold, result_type, values_for
from barrier_tck.reference_impl.operators.arrow_keys import BatchKeys, Ints, columns_of, key_columns
from barrier_tck.reference_impl.operators.arrow_slots import ArrowSlots, ordered_by_slot
from barrier_tck.reference_impl.operators.arrow_table import Totals, contributions
from barrier_tck.reference_impl.operators.arrow_values import Column, array_of
from barrier_tck.reference_impl.operators.encoding import decode_accumulator, encode_accumulator
from barrier_tck.reference_impl.operators.functions import (
    Additive,
    Aggregate,
    Folded,
    partial_aggregates,
)


class _Values(Protocol):
    """What one aggregate has for each slot."""

    def grow(self, count: int) -> None:
        """Make room for so many slots."""

    def set(self, slots: Ints, stored: Sequence[Any]) -> None:
        """Take stored values of at least one slot."""

    def fold(self, slots: Ints, batch: Any) -> None:
        """Fold a batch in, each row into its slot."""

    def running(self, slots: Ints, batch: Any) -> Column:
        """Fold a batch in, and return the result after each row."""

    def stored(self, slots: Ints) -> list[Any]:
        """Return what a snapshot keeps of slots."""

    def results(self, slots: Ints) -> Column:
        """Return what is emitted for slots."""

    def emptied(self) -> _Values:
        """Return the same without any slot."""


class _Sums:
    """``_Values`` of a sum of contributions."""

    def __init__(self, aggregate: Additive, capacity: int = 1024) -> None:
        self._totals = Totals(aggregate, capacity)

    def grow(self, count: int) -> None:
        self._totals.grow(count)

    def set(self, slots: Ints, stored: Sequence[Any]) -> None:
        self._totals.set(slots, stored)

    def fold(self, slots: Ints, batch: Any) -> None:
        self._totals.add(slots, contributions(self._totals.aggregate, batch))

    def running(self, slots: Ints, batch: Any) -> Column:
        added = contributions(self._totals.aggregate, batch)
        found = self._totals.running(slots, *ordered_by_slot(slots), added)
        self._totals.add(slots, added)
        return pa.array(found)

    def stored(self, slots: Ints) -> list[Any]:
        found: list[Any] = self._totals.values[slots].tolist()
        return found

    def results(self, slots: Ints) -> Column:
        return pa.array(self._totals.values[slots])

    def emptied(self) -> _Sums:
        return _Sums(self._totals.aggregate)


class _Accumulators:
    """``_Values`` of an aggregate that folds."""

    def __init__(self, aggregate: Folded, kind: Any | None = None) -> None:
        self._aggregate = aggregate
        self._accumulators: list[Any] = []
        self._type = kind
        """Of results, as far as the columns seen so far tell."""

    def grow(self, count: int) -> None:
        create = self._aggregate.create
        self._accumulators.extend(create() for _ in range(count - len(self._accumulators)))

    def set(self, slots: Ints, stored: Sequence[Any]) -> None:
        for slot, value in zip(slots.tolist(), stored, strict=True):
            self._accumulators[slot] = self._aggregate.restored(value)

    def fold(self, slots: Ints, batch: Any) -> None:
        fold(self._aggregate, self._accumulators, slots, self._column(batch))

    def running(self, slots: Ints, batch: Any) -> Column:
        aggregate, accumulators = self._aggregate, self._accumulators
        results = []
        for slot, value in zip(slots.tolist(), self._column(batch).to_pylist(), strict=True):
            accumulators[slot] = aggregate.add(accumulators[slot], value)
            results.append(aggregate.result(accumulators[slot]))
        return array_of(results, self._type)

    def stored(self, slots: Ints) -> list[Any]:
        return [self._aggregate.stored(self._accumulators[slot]) for slot in slots.tolist()]

    def results(self, slots: Ints) -> Column:
        found = [self._aggregate.result(self._accumulators[slot]) for slot in slots.tolist()]
        return array_of(found, self._type)

    def emptied(self) -> _Accumulators:
        return _Accumulators(self._aggregate, self._type)

    def _column(self, batch: Any) -> Column:
        name = self._aggregate.column
        column = values_for(self._aggregate, columns_of(batch, [name], "aggregate")[0])
        if not pa.types.is_null(column.type):
            self._type = result_type(self._aggregate, column.type)
        return column


def _values_of(aggregate: Aggregate) -> _Values:
    return _Sums(aggregate) if isinstance(aggregate, Additive) else _Accumulators(aggregate)


class ArrowFoldedTable(ArrowSlots):
    """An ``AccumulatorTable`` of any aggregates over Arrow batches; rows come in the order of first sight of keys.

    A batch is folded with a step of Python for each of its keys. Only ``Emission.EACH_RECORD`` takes one for each row.
    """

    def __init__(
        self,
        key: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        carry: Sequence[str],
        max_parallelism: int,
    ) -> None:
        super().__init__(key, max_parallelism)
        self._names = tuple(aggregates)
        self._carry = tuple(carry)
        self._values = [_values_of(aggregate) for aggregate in aggregates.values()]

    def load(self, entries: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Take restored entries; they count neither as dirty nor as changed."""
        slots = self.add_keys([encoded for _, encoded, _ in entries])
        self._grow()
        self._set(slots, [accumulator for _, _, accumulator in entries])

    def update(self, payload: Any, emit_each: bool, look_up: LookUp | None = None) -> Any | None:
        if not payload.num_rows:
            return None
        columns, slots, fresh = self.slots_of(payload)
        self._grow()
        if look_up is not None:
            self._set(*self.found_of(fresh, look_up))
        self.mark(slots)
        if not emit_each:
            for values in self._values:
                values.fold(slots, payload)
            return None
        results = [values.running(slots, payload) for values in self._values]
        carried = columns_of(payload, self._carry, "aggregate")
        return pa.RecordBatch.from_arrays(
            [*carried, *columns, *results], [*self._carry, *self.key, *self._names]
        )

    def take_dirty(self) -> tuple[list[int], list[bytes], list[bytes]]:
        slots = self.take_dirty_slots()
        stored = [values.stored(slots) for values in self._values]
        return *self.keys_of(slots), [encode_accumulator(each) for each in zip(*stored, strict=True)]

    def clear(self) -> None:
        """Forget all keys; the types last seen stay."""
        super().clear()
        self._values = [values.emptied() for values in self._values]

    def _set(self, slots: Ints, accumulators: Sequence[bytes]) -> None:
        if accumulators:
            stored = zip(*map(decode_accumulator, accumulators), strict=True)
            for values, column in zip(self._values, stored, strict=True):
                values.set(slots, column)

    def _grow(self) -> None:
        for values in self._values:
            values.grow(len(self))

    def _rows(self, slots: Ints) -> Any | None:
        if not len(slots):
            return None
        results = [values.results(slots) for values in self._values]
        return pa.RecordBatch.from_arrays([*self.key_columns_of(slots), *results], [*self.key, *self._names])


def _partial_results(aggregate: Folded, keys: BatchKeys, present: Ints, batch: Any) -> Column:
    """Return the results for the codes that occur; accumulators are made for these only."""
    slots = np.zeros(keys.size, dtype=np.int64)
    slots[present] = np.arange(len(present))
    values = _Accumulators(aggregate)
    values.grow(len(present))
    values.fold(slots[keys.codes], batch)
    return values.results(slots[present])


def combine(batch: Any, key: Sequence[str], aggregates: Mapping[str, Aggregate]) -> Any | None:
    """Return the aggregates of one batch alone, one row per key, or None: a partial aggregation."""
    if not batch.num_rows:
        return None
    keys = BatchKeys(key_columns(batch, key, "combine"))
    present = keys.present()
    outputs = []
    for aggregate in partial_aggregates(aggregates).values():
        if isinstance(aggregate, Additive):
            sums = _Sums(aggregate, keys.size)
            sums.fold(keys.codes, batch)
            outputs.append(sums.results(present))
        else:
            outputs.append(_partial_results(aggregate, keys, present, batch))
    return pa.RecordBatch.from_arrays([*keys.columns(present), *outputs], [*key, *aggregates])
