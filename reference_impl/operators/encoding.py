"""The one byte encoding of keys and accumulators, and the hash that spreads keys over key groups.

Both data planes write these bytes, so that state survives a change of plane and an outside reader (the
harness) can open a snapshot of either. Each has two forms, told apart by the first byte:

- a *key* is a tuple of scalars (``operators.scalars``). A single integer of 64 bits is ``C1`` and eight bytes,
  big-endian (fixed width, so that numpy encodes a whole column at once); every other key is a MessagePack array.
  MessagePack never uses ``C1``.
- an *accumulator* is a tuple, one value for each aggregate. Up to 16 floats and integers of 64 bits are a count, a bit
  mask of two bytes that tells which of them are floats, and eight bytes each, little-endian; any other tuple is a
  MessagePack array, whose first byte is above 16.

Equal keys have equal bytes: NaNs become one NaN, -0.0 becomes 0.0, as in Spark's grouping, a timestamp is its moment
whatever its zone, and trailing zeros of a decimal do not count. The types are part of a key: 1, 1.0, True and
Decimal(1) are four keys.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any
from zlib import crc32

import msgspec

from barrier_tck.reference_impl.ids import KeyGroup
from barrier_tck.reference_impl.operators.scalars import (
    EXTENDED_TYPES,
    Scalar,
    canonical,
    from_extension,
    stored_form,
    to_extension,
)
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError

Key = tuple[Scalar, ...]
"""The values of the key columns, in the order of ``key_by``."""

Accumulator = tuple[Any, ...]
"""The running values of a key's aggregates, in the order of the aggregates."""

INT_KEY_TAG = 0xC1
"""First byte of a key that is one 64-bit integer."""
INT_KEY_BYTES = 9
AGGREGATES_MAX = 16
"""The most aggregates of one operator: their accumulator has a fixed-width form."""

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_INT_KEY = struct.Struct(">Bq")
_HEADER = struct.Struct("<BH")
_SCALAR_TYPES = frozenset({type(None), bool, int, str})
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple, ext_hook=from_extension).decode

_MASK = 2**64 - 1
GOLDEN_GAMMA, MIX_FIRST, MIX_SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The constants of splitmix64, a well-mixed bijection of 64-bit integers."""


def _packable(value: Scalar, key: Key) -> Any:
    if type(value) in _SCALAR_TYPES:
        return value
    try:
        value = canonical(value)
    except JobUsageError as error:
        raise JobUsageError(f"{error}; it is in the key {key!r}") from error
    return to_extension(value) if type(value) in EXTENDED_TYPES else value  # type: ignore[arg-type]


def encode_key(key: Key) -> bytes:
    """Return the key's bytes; raises JobUsageError for a value that a key cannot hold."""
    if len(key) == 1:
        only = key[0]
        if type(only) is str:
            return _pack(key)
        if type(only) is int and INT64_MIN <= only <= INT64_MAX:
            return _INT_KEY.pack(INT_KEY_TAG, only)
    try:
        return _pack([_packable(value, key) for value in key])
    except OverflowError as error:
        raise JobUsageError(f"an integer of the key {key!r} does not fit 64 bits") from error


def decode_key(data: bytes) -> Key:
    """Return the key; raises CorruptStateError if the bytes are not an encoded key."""
    try:
        if data[0] == INT_KEY_TAG:
            return (_INT_KEY.unpack(data)[1],)
        return _unpack(data)
    except (IndexError, struct.error, ValueError, msgspec.DecodeError) as error:
        raise CorruptStateError(f"{data!r} is not an encoded key: {error}") from error


@lru_cache(maxsize=256)
def _layout(kinds: tuple[type, ...]) -> tuple[struct.Struct, int] | None:
    """Return the fixed-width layout of values of these types, and which are floats; None if there is none."""
    if len(kinds) > AGGREGATES_MAX or not all(kind is int or kind is float for kind in kinds):
        return None
    float_mask = sum(1 << position for position, kind in enumerate(kinds) if kind is float)
    return struct.Struct("<BH" + "".join("q" if kind is int else "d" for kind in kinds)), float_mask


def encode_accumulator(values: Accumulator) -> bytes:
    """Return the accumulator's bytes.

    Raises JobUsageError for an integer that does not fit 64 bits, and for what ``stored_form`` refuses.
    """
    kinds = tuple(map(type, values))
    layout = _layout(kinds)
    try:
        if layout is not None:
            fixed, float_mask = layout
            return fixed.pack(len(kinds), float_mask, *values)
        return _pack([stored_form(value) for value in values])
    except (struct.error, OverflowError) as error:
        raise JobUsageError(f"an aggregate left the range of 64-bit integers: {values!r}") from error


def accumulator_header(floats: tuple[bool, ...]) -> bytes:
    """Return the first bytes of a fixed-width accumulator; ``floats`` tells which values are floats."""
    return _HEADER.pack(
        len(floats), sum(1 << position for position, is_float in enumerate(floats) if is_float)
    )


def decode_accumulator(data: bytes) -> Accumulator:
    """Return the accumulator; raises CorruptStateError if the bytes are not an encoded accumulator."""
    try:
        if data[0] > AGGREGATES_MAX:
            return _unpack(data)
        count, mask = _HEADER.unpack_from(data)
        layout = _layout(tuple(float if mask >> position & 1 else int for position in range(count)))
        assert layout is not None
        return layout[0].unpack(data)[2:]
    except (IndexError, struct.error, ValueError, msgspec.DecodeError) as error:
        raise CorruptStateError(f"{data!r} is not an encoded accumulator: {error}") from error


def _mix(value: int) -> int:
    value = (value + GOLDEN_GAMMA) & _MASK
    value = ((value ^ (value >> 30)) * MIX_FIRST) & _MASK
    value = ((value ^ (value >> 27)) * MIX_SECOND) & _MASK
    return value ^ (value >> 31)


@lru_cache(maxsize=1 << 16)
def group_of_encoded(encoded: bytes, max_parallelism: int) -> KeyGroup:
    """Return the key group of an encoded key (RSC-1): the same in every process, attempt, and plane.

    A single integer is hashed itself, so that numpy can do a whole column; other keys through the CRC-32 of
    their bytes. The upper half of the hash is scaled to the number of groups, which needs no division.
    """
    is_integer = encoded[0] == INT_KEY_TAG
    mixed = _mix(_INT_KEY.unpack(encoded)[1] & _MASK if is_integer else crc32(encoded))
    return KeyGroup(((mixed >> 32) * max_parallelism) >> 32)


def key_group_of(key: Key, max_parallelism: int) -> KeyGroup:
    """Return the key group that a key belongs to (RSC-1); raises JobUsageError as ``encode_key`` does."""
    return group_of_encoded(encode_key(key), max_parallelism)
