"""Running aggregates over Arrow batches: one numpy array per aggregate, one element per key.

Batches are folded with ``numpy.add.at``, which adds in the order of the rows: float sums have the same bits
as on the row plane. Sums of integers are exact; what leaves 64 bits is refused rather than wrapped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barrier_tck.reference_impl.operators.api import LookUp
from barrier_tck.reference_impl.operators.arrow_keys import (
    Ints,
    as_int64,
    bounds_of,
    columns_of,
)
from barrier_tck.reference_impl.operators.arrow_slots import ArrowSlots, ordered_by_slot
from barrier_tck.reference_impl.operators.arrow_values import Column
from barrier_tck.reference_impl.operators.encoding import (
    INT64_MAX,
    INT64_MIN,
    accumulator_header,
    decode_accumulator,
)
from barrier_tck.reference_impl.operators.functions import (
    Additive,
    Count,
    CountIf,
    FloatSum,
    Sum,
    not_an_integer,
)
from barrier_tck.reference_impl.runtime_errors import JobUsageError

Numbers = npt.NDArray[Any]
"""int64 or float64."""


def contributions(aggregate: Additive, batch: Any) -> Numbers | int:
    """Return what each row of a batch adds to an aggregate; a plain number if it is the same for all."""
    if isinstance(aggregate, Count):
        return 1
    column = columns_of(batch, [aggregate.column], "aggregate")[0]
    if isinstance(aggregate, CountIf):
        return _truth(column).astype(np.int64)
    if pa.types.is_null(column.type):
        return 0
    if isinstance(aggregate, Sum):
        integers = as_int64(column)
        if integers is None:
            raise not_an_integer(aggregate.column, column.type)
        filled: Numbers = (integers.fill_null(0) if integers.null_count else integers).to_numpy()
        return filled
    assert isinstance(aggregate, FloatSum)
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise JobUsageError(f"FloatSum({aggregate.column!r}) adds numbers, not {column.type}")
    floats = column.cast(pa.float64(), safe=False)
    numbers: Numbers = (floats.fill_null(0.0) if floats.null_count else floats).to_numpy()
    return numbers


def _truth(column: Column) -> npt.NDArray[np.bool_]:
    """Return where a column is true in Python's sense."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), dtype=np.bool_)
    if pa.types.is_boolean(kind):
        truth = column
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        truth = pc.not_equal(column, pa.scalar(0, type=kind))
    elif pa.types.is_decimal(kind):
        truth = pc.not_equal(column, pa.scalar(Decimal(0), type=kind))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        truth = pc.greater(pc.binary_length(column), 0)
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        truth = column.is_valid()
    else:
        raise JobUsageError(
            f"CountIf needs a column of booleans, numbers, strings, dates or timestamps, not {kind}"
        )
    found: npt.NDArray[np.bool_] = truth.fill_null(False).to_numpy(zero_copy_only=False)
    return found


class Totals:
    """The running values of one aggregate, by slot."""

    def __init__(self, aggregate: Additive, capacity: int) -> None:
        self.aggregate = aggregate
        self.floating = aggregate.floating
        self.values: Numbers = np.zeros(capacity, dtype=np.float64 if self.floating else np.int64)
        self._bound = 0
        """No value of an integer aggregate is further from zero than this."""

    def set(self, slots: Ints, values: Any) -> None:
        """Set the values of at least one slot."""
        self.values[slots] = values
        if not self.floating:
            low, high = bounds_of(self.values[slots])
            self._bound = max(self._bound, -low, high)

    def add(self, slots: Ints, added: Numbers | int) -> None:
        """Add contributions to slots, which may repeat; raises JobUsageError if a sum leaves 64 bits."""
        if not self.floating and not self._fits(slots, added):
            self._add_exactly(slots, added)
        else:
            np.add.at(self.values, slots, added)

    def _fits(self, slots: Ints, added: Numbers | int) -> bool:
        """Return whether no sum can overflow, from a bound that is cheap to keep."""
        low, high = (added, added) if isinstance(added, int) else bounds_of(added)
        growth = max(-low, high) * len(slots)
        if self._bound + growth > INT64_MAX:
            low, high = bounds_of(self.values)
            self._bound = max(-low, high)
        self._bound += growth
        return self._bound <= INT64_MAX

    def _add_exactly(self, slots: Ints, added: Numbers | int) -> None:
        distinct, inverse = np.unique(slots, return_inverse=True)
        sums = self.values[distinct].astype(object)
        np.add.at(sums, inverse, np.broadcast_to(np.asarray(added), len(slots)).astype(object))
        for total in sums.tolist():
            if not INT64_MIN <= total <= INT64_MAX:
                raise JobUsageError(f"an aggregate left the range of 64-bit integers: {total}")
        self.values[distinct] = sums.astype(np.int64)

    def grow(self, count: int) -> None:
        """Make room for so many slots; there may be more than that."""
        capacity = len(self.values)
        if count > capacity:
            more = max(2 * capacity, count) - capacity
            self.values = np.concatenate([self.values, np.zeros(more, dtype=self.values.dtype)])

    def copy(self) -> Totals:
        """Return the same values, to be changed apart."""
        other = Totals(self.aggregate, 0)
        other.values, other._bound = self.values.copy(), self._bound
        return other

    def running(self, slots: Ints, order: Ints, starts: Ints, added: Numbers | int) -> Numbers:
        """Return the value after each row; ``order`` groups the rows by slot, groups begin at ``starts``.

        Takes the values before the batch, so it is called before ``add``.
        """
        values = np.empty(len(slots), dtype=self.values.dtype)
        values[order] = self._running(slots, order, starts, added)
        return values

    def _running(self, slots: Ints, order: Ints, starts: Ints, added: Numbers | int) -> Numbers:
        """Return the values in the order of the slots."""
        each = np.broadcast_to(np.asarray(added, dtype=self.values.dtype), len(slots))[order]
        before = self.values[slots[order[starts]]]
        ends = np.append(starts[1:], len(each))
        if self.floating:
            # Added one by one, as on the row plane: a difference of prefix sums has other bits.
            for begin, end, value in zip(starts.tolist(), ends.tolist(), before.tolist(), strict=True):
                each[begin] += value
                each[begin:end] = np.cumsum(each[begin:end])
            return each
        # Exact even if the prefix sums wrap around: 64-bit differences do so too.
        sums = np.cumsum(each)
        result: Numbers = sums + np.repeat(before - (sums[starts] - each[starts]), ends - starts)
        return result


class ArrowAccumulatorTable(ArrowSlots):
    """An ``AccumulatorTable`` of sums over Arrow batches; rows come in the order of first sight of their keys."""

    def __init__(
        self,
        key: Sequence[str],
        aggregates: Mapping[str, Additive],
        carry: Sequence[str],
        max_parallelism: int,
    ) -> None:
        super().__init__(key, max_parallelism)
        self._names = tuple(aggregates)
        self._carry = tuple(carry)
        self._totals = [Totals(aggregate, 1024) for aggregate in aggregates.values()]
        floats = tuple(totals.floating for totals in self._totals)
        self._header = accumulator_header(floats)
        fields = [("header", f"V{len(self._header)}")]
        fields += [(f"value{i}", "<f8" if floating else "<i8") for i, floating in enumerate(floats)]
        self._entry_type = np.dtype(fields)

    def load(self, entries: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Take restored entries; they count neither as dirty nor as changed."""
        slots = self.add_keys([encoded for _, encoded, _ in entries])
        self._grow()
        values = [decode_accumulator(accumulator) for _, _, accumulator in entries]
        for totals, column in zip(self._totals, zip(*values, strict=True), strict=False):
            totals.set(slots, column)

    def update(self, payload: Any, emit_each: bool, look_up: LookUp | None = None) -> Any | None:
        if not payload.num_rows:
            return None
        columns, slots, fresh = self.slots_of(payload)
        self._grow()
        if look_up is not None:
            self._fetch(fresh, look_up)
        added = [contributions(totals.aggregate, payload) for totals in self._totals]
        output = self._running_rows(payload, columns, slots, added) if emit_each else None
        for totals, each in zip(self._totals, added, strict=True):
            totals.add(slots, each)
        self.mark(slots)
        return output

    def _fetch(self, slots: Ints, look_up: LookUp) -> None:
        """Take the accumulators of the keys of new slots."""
        where, present = self.found_of(slots, look_up)
        if not present:
            return
        size, header = self._entry_type.itemsize, self._header
        if all(len(value) == size and value.startswith(header) for value in present):
            packed = np.frombuffer(b"".join(present), dtype=self._entry_type)
            for position, totals in enumerate(self._totals):
                totals.set(where, packed[f"value{position}"])
            return
        values = map(decode_accumulator, present)
        for totals, column in zip(self._totals, zip(*values, strict=True), strict=True):
            totals.set(where, column)

    def take_dirty(self) -> tuple[list[int], list[bytes], list[bytes]]:
        slots = self.take_dirty_slots()
        packed = np.empty(len(slots), dtype=self._entry_type)
        packed["header"] = np.void(self._header)
        for position, totals in enumerate(self._totals):
            packed[f"value{position}"] = totals.values[slots]
        values: list[bytes] = packed.view(f"V{self._entry_type.itemsize}").tolist()
        return *self.keys_of(slots), values

    def clear(self) -> None:
        """Forget all keys; a table for any kind of key goes on as such, with the types last seen."""
        super().clear()
        self._totals = [Totals(totals.aggregate, 1024) for totals in self._totals]

    def _grow(self) -> None:
        for totals in self._totals:
            totals.grow(len(self))

    def _rows(self, slots: Ints) -> Any | None:
        if not len(slots):
            return None
        totals = [pa.array(totals.values[slots]) for totals in self._totals]
        return pa.RecordBatch.from_arrays([*self.key_columns_of(slots), *totals], [*self.key, *self._names])

    def _running_rows(
        self, payload: Any, key_columns: Sequence[Column], slots: Ints, added: Sequence[Numbers | int]
    ) -> Any:
        order, starts = ordered_by_slot(slots)
        outputs = [
            pa.array(totals.running(slots, order, starts, each))
            for totals, each in zip(self._totals, added, strict=True)
        ]
        carried = columns_of(payload, self._carry, "aggregate")
        return pa.RecordBatch.from_arrays(
            [*carried, *key_columns, *outputs], [*self._carry, *self.key, *self._names]
        )
