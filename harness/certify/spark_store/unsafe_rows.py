"""Spark's ``UnsafeRow`` as bytes: rows of long and string columns, without a generated projection.

A row has a word of null bits for each 64 columns, then a word for each column, then the bytes of strings, padded to
words. The word of a string is its offset in the upper half and its length in the lower. Rows built here need no Java
code that is generated for a schema; Py4J confuses such classes, because it remembers methods by the name of a class.
"""

from __future__ import annotations

import struct

Column = int | str
_WORD = 8


def row_bytes(*columns: Column) -> bytes:
    """Return the row with these columns; none is null."""
    heads, tail = [], b""
    begin = _WORD * (_null_words(len(columns)) + len(columns))
    for column in columns:
        if isinstance(column, int):
            heads.append(struct.pack("<q", column))
            continue
        text = column.encode()
        heads.append(struct.pack("<II", len(text), begin + len(tail)))
        tail += text + bytes(-len(text) % _WORD)
    return bytes(_WORD * _null_words(len(columns))) + b"".join(heads) + tail


def row_columns(row: bytes, types: str) -> tuple[Column | None, ...]:
    """Return the columns of a row; ``types`` has one letter for each: ``l`` for a long, ``s`` for a string.

    Raises ValueError if the bytes are no such row.
    """
    begin = _WORD * _null_words(len(types))
    if len(row) < begin + _WORD * len(types):
        raise ValueError(f"{len(row)} bytes are too few for {len(types)} columns")
    return tuple(_column(row, begin + _WORD * number, number, kind) for number, kind in enumerate(types))


def _column(row: bytes, place: int, number: int, kind: str) -> Column | None:
    if row[number // 8] >> number % 8 & 1:
        return None
    if kind == "l":
        value: int = struct.unpack_from("<q", row, place)[0]
        return value
    length, offset = struct.unpack_from("<II", row, place)
    if offset + length > len(row):
        raise ValueError(f"column {number} ends at byte {offset + length} of {len(row)}")
    return row[offset : offset + length].decode()


def _null_words(columns: int) -> int:
    return (columns + 63) // 64
