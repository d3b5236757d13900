"""Running aggregates over Arrow batches: one numpy array per aggregate, one element per key.

Batches are folded with ``numpy.add.at``, which adds in the order of the rows: float sums have the same bits
as on the row plane. Sums of integers are exact; what leaves 64 bits is refused rather than wrapped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barrier_tck.reference_impl.operators.api import LookUp
from barrier_tck.reference_impl.operators.arrow_keys import (
    BatchKeys,
    Column,
    GenericKeyIndex,
    IntKeyIndex,
    Ints,
    KeyIndex,
    as_int64,
    bounds_of,
    columns_of,
    stable_order,
)
from barrier_tck.reference_impl.operators.encoding import (
    INT64_MAX,
    INT64_MIN,
    Key,
    accumulator_header,
    decode_accumulator,
    decode_key,
)
from barrier_tck.reference_impl.operators.functions import (
    Aggregate,
    Count,
    CountIf,
    FloatSum,
    Sum,
    not_an_integer,
)
from barrier_tck.reference_impl.runtime_errors import JobUsageError

Numbers = npt.NDArray[Any]
"""int64 or float64."""

_DIRTY, _CHANGED = np.uint8(1), np.uint8(2)


def contributions(aggregate: Aggregate, batch: Any) -> Numbers | int:
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
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        truth = pc.greater(pc.binary_length(column), 0)
    else:
        raise JobUsageError(f"CountIf needs a column of booleans, numbers or strings, not {kind}")
    found: npt.NDArray[np.bool_] = truth.fill_null(False).to_numpy(zero_copy_only=False)
    return found


class _Totals:
    """The running values of one aggregate, by slot."""

    def __init__(self, aggregate: Aggregate, capacity: int) -> None:
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

    def running(self, slots: Ints, order: Ints, starts: Ints, added: Numbers | int) -> Numbers:
        """Return the value after each row; ``order`` groups the rows by slot, groups begin at ``starts``.

        Takes the values before the batch, so it is called before ``add``.
        """
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


class ArrowAccumulatorTable:
    """An ``AccumulatorTable`` over Arrow batches; rows come in the order of first sight of their keys."""

    def __init__(
        self,
        key: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        carry: Sequence[str],
        max_parallelism: int,
    ) -> None:
        self._key = tuple(key)
        self._names = tuple(aggregates)
        self._carry = tuple(carry)
        self._max_parallelism = max_parallelism
        self._index: KeyIndex = IntKeyIndex() if len(self._key) == 1 else GenericKeyIndex(len(self._key))
        self._totals = [_Totals(aggregate, 1024) for aggregate in aggregates.values()]
        self._marks = np.zeros(1024, dtype=np.uint8)
        floats = tuple(totals.floating for totals in self._totals)
        self._header = accumulator_header(floats)
        fields = [("header", f"V{len(self._header)}")]
        fields += [(f"value{i}", "<f8" if floating else "<i8") for i, floating in enumerate(floats)]
        self._entry_type = np.dtype(fields)

    def load(self, entries: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Take restored entries; they count neither as dirty nor as changed."""
        keys = [decode_key(encoded) for _, encoded, _ in entries]
        if isinstance(self._index, IntKeyIndex) and not all(_is_int_key(key) for key in keys):
            self._index = self._generic()
        first = len(self._index)
        self._index.add(keys)
        self._grow()
        values = [decode_accumulator(accumulator) for _, _, accumulator in entries]
        slots = np.arange(first, first + len(keys))
        for totals, column in zip(self._totals, zip(*values, strict=True), strict=False):
            totals.set(slots, column)

    def update(self, payload: Any, emit_each: bool, look_up: LookUp | None = None) -> Any | None:
        if not payload.num_rows:
            return None
        columns = columns_of(payload, self._key, "aggregate")
        known = len(self._index)
        slots = self._index.slots(columns)
        if slots is None:
            self._index = self._generic()
            slots = self._index.slots(columns)
            assert slots is not None
        self._grow()
        if look_up is not None:
            self._fetch(np.arange(known, len(self._index)), look_up)
        added = [contributions(totals.aggregate, payload) for totals in self._totals]
        output = self._running_rows(payload, columns, slots, added) if emit_each else None
        for totals, each in zip(self._totals, added, strict=True):
            totals.add(slots, each)
        self._marks[slots] = _DIRTY | _CHANGED
        return output

    def _fetch(self, slots: Ints, look_up: LookUp) -> None:
        """Take the accumulators of the keys of new slots."""
        if not len(slots):
            return
        found = look_up(self._index.groups(slots, self._max_parallelism), self._index.encoded(slots))
        present = [value for value in found if value is not None]
        if not present:
            return
        where = slots[np.array([value is not None for value in found])]
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
        slots = self._take(_DIRTY)
        packed = np.empty(len(slots), dtype=self._entry_type)
        packed["header"] = np.void(self._header)
        for position, totals in enumerate(self._totals):
            packed[f"value{position}"] = totals.values[slots]
        values: list[bytes] = packed.view(f"V{self._entry_type.itemsize}").tolist()
        return self._index.groups(slots, self._max_parallelism), self._index.encoded(slots), values

    def take_changed(self) -> tuple[list[int], list[bytes]]:
        slots = self._take(_CHANGED)
        return self._index.groups(slots, self._max_parallelism), self._index.encoded(slots)

    def take_changed_rows(self) -> Any | None:
        """Return one row per key changed since the last call (or restore), or None."""
        return self._rows(self._take(_CHANGED))

    def all_rows(self) -> Any | None:
        return self._rows(np.arange(len(self._index)))

    def clear(self) -> None:
        """Forget all keys; a table for any kind of key goes on as such, with the types last seen."""
        self._index = self._index.emptied()
        self._totals = [_Totals(totals.aggregate, 1024) for totals in self._totals]
        self._marks = np.zeros(1024, dtype=np.uint8)

    def __len__(self) -> int:
        return len(self._index)

    def _generic(self) -> GenericKeyIndex:
        """Return the index for any kind of key, with the present slots."""
        index = GenericKeyIndex(len(self._key))
        index.add(self._index.keys())
        return index

    def _grow(self) -> None:
        capacity = len(self._marks)
        if len(self._index) <= capacity:
            return
        more = max(2 * capacity, len(self._index)) - capacity
        self._marks = np.concatenate([self._marks, np.zeros(more, dtype=np.uint8)])
        for totals in self._totals:
            totals.values = np.concatenate([totals.values, np.zeros(more, dtype=totals.values.dtype)])

    def _take(self, mark: np.uint8) -> Ints:
        slots = np.flatnonzero(self._marks & mark)
        self._marks[slots] &= ~mark
        return slots

    def _rows(self, slots: Ints) -> Any | None:
        if not len(slots):
            return None
        totals = [pa.array(totals.values[slots]) for totals in self._totals]
        return pa.RecordBatch.from_arrays([*self._index.columns(slots), *totals], [*self._key, *self._names])

    def _running_rows(
        self, payload: Any, key_columns: Sequence[Column], slots: Ints, added: Sequence[Numbers | int]
    ) -> Any:
        order = stable_order(slots)
        ordered = slots[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        outputs = []
        for totals, each in zip(self._totals, added, strict=True):
            values = np.empty(len(slots), dtype=totals.values.dtype)
            values[order] = totals.running(slots, order, starts, each)
            outputs.append(pa.array(values))
        carried = columns_of(payload, self._carry, "aggregate")
        return pa.RecordBatch.from_arrays(
            [*carried, *key_columns, *outputs], [*self._carry, *self._key, *self._names]
        )


def _is_int_key(key: Key) -> bool:
    value = key[0]
    return value is None or (type(value) is int and INT64_MIN <= value <= INT64_MAX)


def combine(batch: Any, key: Sequence[str], aggregates: Mapping[str, Aggregate]) -> Any | None:
    """Return the aggregates of one batch alone, one row per key, or None: a partial aggregation."""
    if not batch.num_rows:
        return None
    keys = BatchKeys(columns_of(batch, key, "combine"))
    present = keys.present()
    outputs = []
    for aggregate in aggregates.values():
        totals = _Totals(aggregate, keys.size)
        totals.add(keys.codes, contributions(aggregate, batch))
        outputs.append(pa.array(totals.values[present]))
    return pa.RecordBatch.from_arrays([*keys.columns(present), *outputs], [*key, *aggregates])
