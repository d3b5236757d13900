"""Values in Arrow's types: how Python values become a column, and the one type of timestamps and dates in keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from barrier_tck.reference_impl.operators.scalars import DECIMAL_DIGITS
from barrier_tck.reference_impl.runtime_errors import JobUsageError

Column = Any
"""A ``pyarrow.Array``; Arrow ships no types."""

DECIMAL_SCALE = 18
"""Digits after the point of a column of decimals whose type nothing else decides."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_DECIMAL = pa.decimal128(DECIMAL_DIGITS, DECIMAL_SCALE)


def array_of(values: list[Any], kind: Any | None = None) -> Column:
    """Return an Arrow array of the wanted type, or of the values' own type if they do not fit the wanted one.

    Decimals of no wanted type get one type, whatever their scales, if they fit it: batches of a column must agree.
    """
    if kind is not None:
        try:
            return pa.array(values, type=kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
    found = pa.array(values)
    if pa.types.is_decimal(found.type):
        try:
            return pa.array(values, type=_DECIMAL)
        except pa.ArrowInvalid:
            return found
    return found


def cast_table(table: Any, schema: Any) -> Any:
    """Return the columns of a schema, with its types; raises JobUsageError for values that do not fit them."""
    table = table.select(schema.names)
    for place, field in enumerate(schema):
        if pa.types.is_decimal128(table.schema.field(place).type) and pa.types.is_decimal128(field.type):
            # A decimal of more digits than fit 128 bits at the new scale would become another one without an error.
            wide = table.column(place).cast(pa.decimal256(76, field.type.scale))
            table = table.set_column(place, field.name, wide)
    try:
        return table.cast(schema)
    except pa.ArrowInvalid as error:
        raise JobUsageError(
            f"a later batch does not fit the columns of the first ones ({error}); convert the column in a map before"
        ) from error


def plain(column: Column, name: str) -> Column:
    """Return a column with timestamps as microseconds in UTC, and dates as days; others as they are.

    Raises JobUsageError for timestamps without a time zone, or that microseconds cannot hold.
    """
    kind = column.type
    if pa.types.is_timestamp(kind) and kind != _TIMESTAMP:
        if kind.tz is None:
            raise JobUsageError(
                f"the timestamps of column {name!r} have no time zone, so they are no moments; "
                "cast the column to timestamp[us, UTC]"
            )
        try:
            return column.cast(_TIMESTAMP)
        except pa.ArrowInvalid as error:
            raise JobUsageError(
                f"the timestamps of column {name!r} do not fit microseconds ({error}); "
                "round them to timestamp[us, UTC]"
            ) from error
    return column.cast(pa.date32()) if pa.types.is_date64(kind) else column
