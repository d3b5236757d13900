"""Which columns of a row are kept in state and passed on, and under which names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barrier_tck.reference_impl.operators.functions import Row, missing_column
from barrier_tck.reference_impl.runtime_errors import JobUsageError

Columns = Sequence[str] | Mapping[str, str]
"""Columns, or a mapping from output column to column, which gives them other names."""

Kept = None | bool | int | float | str
"""What a row gives to the output, as state holds it."""

_KEPT = frozenset({type(None), bool, int, float, str})


def as_mapping(columns: Columns) -> dict[str, str]:
    """Return output column to column; raises JobUsageError for a single string, whose letters would be columns."""
    if isinstance(columns, str):
        raise JobUsageError(f"write columns as a list, [{columns!r}], or as a mapping, not as {columns!r}")
    return dict(columns) if isinstance(columns, Mapping) else dict(zip(columns, columns, strict=True))


def chosen(row: Row, columns: Mapping[str, str], where: str) -> dict[str, Kept]:
    """Return output column to value of a row; ``where`` begins the messages.

    Raises JobUsageError if the row has no such column, or holds a value that state cannot keep.
    """
    try:
        values: dict[str, Kept] = {output: row[column] for output, column in columns.items()}
    except KeyError as error:
        raise missing_column(error.args[0], row, where) from error
    for output, value in values.items():
        if type(value) not in _KEPT:
            raise not_kept(where, columns[output], value)
    return values


def not_kept(where: str, column: str, found: object) -> JobUsageError:
    """Return the error for a value that state cannot keep; ``where`` begins the message."""
    return JobUsageError(
        f"{where} keeps null, booleans, numbers and strings, not {found!r} "
        f"({type(found).__name__}) in column {column!r}; convert it before"
    )
