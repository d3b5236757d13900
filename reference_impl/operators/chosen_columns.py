"""Which columns of a row are kept in state and passed on, and under which names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal

from msgspec.msgpack import Ext

from barrier_tck.reference_impl.operators.functions import Row, missing_column
from barrier_tck.reference_impl.operators.scalars import (
    EXTENDED_TYPES,
    Scalar,
    canonical,
    from_extension,
    to_extension,
)
from barrier_tck.reference_impl.runtime_errors import JobUsageError

Columns = Sequence[str] | Mapping[str, str]
"""Columns, or a mapping from output column to column, which gives them other names."""

Kept = None | bool | int | float | str | Ext
"""A value as state holds it: decimals, dates and timestamps are extensions, which keep their types (``scalars``)."""

_KEPT = frozenset({type(None), bool, int, float, str}) | EXTENDED_TYPES


def as_mapping(columns: Columns) -> dict[str, str]:
    """Return output column to column; raises JobUsageError for a single string, whose letters would be columns."""
    if isinstance(columns, str):
        raise JobUsageError(f"write columns as a list, [{columns!r}], or as a mapping, not as {columns!r}")
    return dict(columns) if isinstance(columns, Mapping) else dict(zip(columns, columns, strict=True))


def chosen(row: Row, columns: Mapping[str, str], where: str) -> dict[str, Kept]:
    """Return output column to value of a row, as state holds it; ``where`` begins the messages.

    Raises JobUsageError if the row has no such column, or holds a value that state cannot keep.
    """
    try:
        values: dict[str, Scalar] = {output: row[column] for output, column in columns.items()}
    except KeyError as error:
        raise missing_column(error.args[0], row, where) from error
    for output, value in values.items():
        if isinstance(value, datetime) or (isinstance(value, Decimal) and value.is_finite()):
            # Equal values have one form. Arrow gives decimals the zeros of their column, and pandas's own timestamps.
            values[output] = canonical(value)
        elif type(value) not in _KEPT or isinstance(value, Decimal):
            raise not_kept(where, columns[output], value)
    return {
        output: to_extension(value) if isinstance(value, Decimal | date) else value
        for output, value in values.items()
    }


def shown(columns: Mapping[str, Kept]) -> dict[str, Scalar]:
    """Return the values that state holds, as a row has them."""
    return {output: value_of(kept) if type(kept) is Ext else kept for output, kept in columns.items()}


def value_of(kept: Kept) -> Scalar:
    """Return one value as a row has it."""
    if not isinstance(kept, Ext):
        return kept
    value: Scalar = from_extension(kept.code, memoryview(kept.data))
    return value


def not_kept(where: str, column: str, found: object) -> JobUsageError:
    """Return the error for a value that state cannot keep; ``where`` begins the message."""
    return JobUsageError(
        f"{where} keeps null, booleans, numbers, strings, finite decimals, dates and timestamps, "
        f"not {found!r} ({type(found).__name__}) in column {column!r}; convert it before"
    )
