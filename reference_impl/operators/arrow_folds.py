"""Folds the values of an Arrow column into the accumulators of keys: vectorised by key, then one step for each key.

What is done for each value in Python is said where it is so: a user's own aggregate without ``add_batch``, and partial
results, which are one value for each key already.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barrier_tck.reference_impl.operators.arrow_keys import BatchKeys, Ints, as_int64, bounds_of
from barrier_tck.reference_impl.operators.arrow_slots import ordered_by_slot
from barrier_tck.reference_impl.operators.arrow_values import DECIMAL_SCALE, Column, plain
from barrier_tck.reference_impl.operators.encoding import INT64_MAX
from barrier_tck.reference_impl.operators.folds import (
    Average,
    DecimalSum,
    DistinctSketch,
    Max,
    Min,
    OwnAggregate,
    Partial,
    not_a_decimal,
    not_a_number,
)
from barrier_tck.reference_impl.operators.functions import Folded
from barrier_tck.reference_impl.operators.scalars import DECIMAL_DIGITS


def values_for(aggregate: Folded, column: Column) -> Column:
    """Return a column as ``fold`` takes it; raises JobUsageError as ``plain``. A user's own aggregate is given any."""
    if isinstance(aggregate, Partial):
        aggregate = aggregate.aggregate
    return column if isinstance(aggregate, OwnAggregate) else plain(column, aggregate.column)


def fold(aggregate: Folded, accumulators: list[Any], slots: Ints, column: Column) -> None:
    """Fold a column (``values_for``) into the accumulators, each value into that of its row's slot.

    Raises JobUsageError for a column that the aggregate cannot take.
    """
    if isinstance(aggregate, Partial):
        aggregate = aggregate.aggregate
    if pa.types.is_null(column.type) and not isinstance(aggregate, OwnAggregate):
        return
    if isinstance(aggregate, Min | Max):
        _add(aggregate, accumulators, _extremes(aggregate, slots, column))
    elif isinstance(aggregate, DecimalSum):
        if not (pa.types.is_decimal(column.type) or pa.types.is_integer(column.type)):
            raise not_a_decimal(aggregate.column, column.type)
        _add(aggregate, accumulators, _decimal_sums(slots, column))
    elif isinstance(aggregate, Average):
        _fold_average(aggregate, accumulators, slots, column)
    elif isinstance(aggregate, DistinctSketch):
        _add(aggregate, accumulators, _distinct(slots, column))
    elif isinstance(aggregate, OwnAggregate) and hasattr(aggregate.function, "add_batch"):
        _fold_batches(aggregate.function.add_batch, accumulators, slots, column)
    else:
        _add(aggregate, accumulators, _each(slots, column))


def result_type(aggregate: Folded, kind: Any) -> Any | None:
    """Return the type of an aggregate's results over a column of a type, or None if it follows from the results."""
    if isinstance(aggregate, Partial):
        return pa.binary()
    if isinstance(aggregate, DistinctSketch):
        return pa.int64()
    if isinstance(aggregate, Min | Max):
        return kind
    if isinstance(aggregate, DecimalSum):
        return pa.decimal128(DECIMAL_DIGITS, kind.scale if pa.types.is_decimal(kind) else 0)
    if isinstance(aggregate, Average):
        is_decimal = pa.types.is_decimal(kind)
        return pa.decimal128(DECIMAL_DIGITS, DECIMAL_SCALE) if is_decimal else pa.float64()
    return None


def _add(aggregate: Folded, accumulators: list[Any], values: Iterable[tuple[int, Any]]) -> None:
    for slot, value in values:
        accumulators[slot] = aggregate.add(accumulators[slot], value)


def _each(slots: Ints, column: Column) -> Iterable[tuple[int, Any]]:
    return zip(slots.tolist(), column.to_pylist(), strict=True)


def _by_slot(slots: Ints, column: Column, *functions: str) -> Any:
    """Return a table with a row per slot: the slot, then what each function of Arrow makes of the slot's values."""
    table = pa.Table.from_arrays([pa.array(slots), column], ["slot", "value"])
    wanted = [("value", function) for function in functions]
    grouped = table.group_by("slot", use_threads=False).aggregate(wanted)
    return grouped.select(["slot", *(f"value_{function}" for function in functions)])


def _pairs(table: Any) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _extremes(aggregate: Min | Max, slots: Ints, column: Column) -> Iterable[tuple[int, Any]]:
    """Yield the least or greatest value of each slot; some for a slot may be null."""
    kind = column.type
    function = "min" if isinstance(aggregate, Min) else "max"
    if pa.types.is_floating(kind):
        floats = column.cast(pa.float64())
        yield from _pairs(_by_slot(slots, floats, function))
        if isinstance(aggregate, Max):
            # Arrow passes over NaN, which is the greatest.
            nan = pc.is_nan(floats).fill_null(False).to_numpy(zero_copy_only=False)
            yield from ((slot, float("nan")) for slot in np.unique(slots[nan]).tolist())
    elif (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_decimal128(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_date(kind)
    ):
        yield from _pairs(_by_slot(slots, column, function))
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        # Older Arrows do not group texts. Their order by bytes is that of Python, by code points.
        table = pa.Table.from_arrays([pa.array(slots), column], ["slot", "value"])
        direction = "ascending" if isinstance(aggregate, Min) else "descending"
        order = pc.sort_indices(table, sort_keys=[("slot", "ascending"), ("value", direction)]).to_numpy()
        ordered = slots[order]
        firsts = order[np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))]
        yield from _each(slots[firsts], column.take(pa.array(firsts)))
    else:
        yield from _each(slots, column)


def _decimal_sums(slots: Ints, column: Column) -> Iterable[tuple[int, Any]]:
    """Yield the sum of each slot; null for a slot without values."""
    kind = column.type
    if not (pa.types.is_decimal128(kind) or pa.types.is_integer(kind)):
        return _each(slots, column)
    # No number of rows makes 38 digits more than 76.
    scale = kind.scale if pa.types.is_decimal(kind) else 0
    return _pairs(_by_slot(slots, column.cast(pa.decimal256(76, scale)), "sum"))


def _fold_average(average: Average, accumulators: list[Any], slots: Ints, column: Column) -> None:
    kind = column.type
    integers = as_int64(column)
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise not_a_number(average.column, kind)
    if pa.types.is_decimal128(kind):
        wide = column.cast(pa.decimal256(76, kind.scale))
        for slot, total, count in _pairs(_by_slot(slots, wide, "sum", "count")):
            accumulators[slot] = average.merge(accumulators[slot], (total, count))
        return
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    distinct, inverse, counts = np.unique(slots[valid], return_inverse=True, return_counts=True)
    before = [accumulators[slot] for slot in distinct.tolist()]
    kinds = {type(total) for total, _ in before}
    if integers is not None and kinds <= {int}:
        values = integers.drop_null().to_numpy()
        totals = np.zeros(len(distinct), dtype=_type_of_sums(values))
        np.add.at(totals, inverse, values.astype(totals.dtype, copy=False))
        after = [(one + other, 0) for (one, _), other in zip(before, totals.tolist(), strict=True)]
    elif pa.types.is_floating(kind) and kinds <= {int, float}:
        # Added one by one, in the order of the rows, as on the row plane.
        totals = np.array([total for total, _ in before], dtype=np.float64)
        np.add.at(totals, inverse, column.cast(pa.float64()).drop_null().to_numpy())
        after = [(total, 0) for total in totals.tolist()]
    else:
        _add(average, accumulators, _each(slots, column))
        return
    numbers = zip(distinct.tolist(), before, after, counts.tolist(), strict=True)
    for slot, (_, count), (total, _), more in numbers:
        accumulators[slot] = (total, count + more)


def _type_of_sums(values: Ints) -> Any:
    """Return the type in which any of these integers can be added up without an overflow."""
    low, high = bounds_of(values) if len(values) else (0, 0)
    return np.int64 if max(-low, high) * len(values) <= INT64_MAX else object


def _distinct(slots: Ints, column: Column) -> Iterable[tuple[int, Any]]:
    keys = BatchKeys([pa.array(slots), column])
    return keys.keys(keys.present())  # type: ignore[return-value]


def _fold_batches(add_batch: Any, accumulators: list[Any], slots: Ints, column: Column) -> None:
    order, starts = ordered_by_slot(slots)
    ordered = column.take(pa.array(order))
    ends = np.append(starts[1:], len(order))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        slot = int(slots[order[start]])
        accumulators[slot] = add_batch(accumulators[slot], ordered.slice(start, end - start))
