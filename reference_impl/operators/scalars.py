"""What a column may hold, and the one form that each value has in keys, accumulators and stored rows.

A *timestamp* is a ``datetime`` with a time zone: a moment, whatever the zone, to the microsecond. A *date* is a
``date``. A *decimal* is a finite ``Decimal`` of at most 38 digits before and after the point, as Arrow's decimal128
has it; trailing zeros do not count, so ``Decimal("1.0")`` and ``Decimal("1.00")`` are one value.

In MessagePack each of them is an extension: eight bytes with the microseconds of the epoch, four bytes with the days
of the epoch, or the decimal as text. Integers are big-endian and signed.
"""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException, DivisionByZero, Inexact, InvalidOperation, Overflow
from typing import Any

import msgspec
from msgspec.msgpack import Ext

from barrier_tck.reference_impl.runtime_errors import JobUsageError

Scalar = None | bool | int | float | str | datetime | date | Decimal
"""What a column may hold; a key, too."""

DECIMAL_DIGITS = 38
"""Most digits of a decimal, and most of them after the point."""

EXACT = Context(
    prec=200, Emax=999_999, Emin=-999_999, traps=[Inexact, InvalidOperation, Overflow, DivisionByZero]
)
"""Arithmetic of decimals that raises rather than rounds; wide enough for sums of any number of values."""

EXTENDED_TYPES = frozenset({datetime, date, Decimal})
"""Types that MessagePack has no form of its own for, or none that keeps the type."""

_TIMESTAMP, _DATE, _DECIMAL, _TUPLE = 1, 2, 3, 4
_PLAIN_TYPES = frozenset({type(None), bool, int, str})
_STORED_TYPES = _PLAIN_TYPES | {float, bytes}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS, _DAYS = struct.Struct(">q"), struct.Struct(">i")
_pack = msgspec.msgpack.Encoder().encode


def canonical(value: Any) -> Any:
    """Return the value that stands for all that are equal to it: one NaN, no -0.0, UTC, no trailing zeros.

    Raises JobUsageError for what a column cannot hold.
    """
    kind = type(value)
    if kind in _PLAIN_TYPES:
        return value
    if kind is float:
        return math.nan if math.isnan(value) else value + 0.0  # -0.0 + 0.0 is 0.0
    if kind is datetime:
        return require_zone(value).astimezone(UTC)
    if kind is date:
        return value
    if kind is Decimal:
        return canonical_decimal(value)
    if isinstance(value, datetime) and not getattr(value, "nanosecond", 0):
        # Arrow gives pandas's own kind for a column of nanoseconds.
        moment = require_zone(value).astimezone(UTC)
        return datetime.combine(moment.date(), moment.time(), UTC)
    raise JobUsageError(
        "a column holds null, booleans, numbers, strings, decimals, dates and timestamps, "
        f"not {value!r} ({kind.__name__})"
    )


def require_zone(value: datetime) -> datetime:
    """Return a timestamp that has a time zone; raises JobUsageError for one that has none."""
    if value.utcoffset() is None:
        raise JobUsageError(
            f"the timestamp {value!r} has no time zone, so it is no moment; give it one, for instance tzinfo=UTC"
        )
    return value


def canonical_decimal(value: Decimal) -> Decimal:
    """Return an equal decimal without trailing zeros after the point, and with all digits before it.

    Raises JobUsageError for one that is not finite or has too many digits.
    """
    if not value.is_finite():
        raise JobUsageError(f"a decimal must be finite, not {value}")
    sign, digits, exponent = value.as_tuple()
    assert not isinstance(exponent, str), "of a finite decimal it is a number"
    if not any(digits):
        return Decimal(0)
    text = "".join(map(str, digits)).lstrip("0")
    kept = text.rstrip("0")
    exponent += len(text) - len(kept)
    if max(len(kept) + max(exponent, 0), -exponent) > DECIMAL_DIGITS:
        raise JobUsageError(
            f"the decimal {value} has more than {DECIMAL_DIGITS} digits; round it with Decimal.quantize, "
            "or use floats"
        )
    zeros = "0" * max(exponent, 0)
    return Decimal((sign, tuple(map(int, kept + zeros)), min(exponent, 0)))


def to_extension(value: datetime | date | Decimal) -> Ext:
    """Return the MessagePack form of a value, whose equal values have the same form if it is canonical."""
    if isinstance(value, datetime):
        return Ext(_TIMESTAMP, _MICROSECONDS.pack((require_zone(value) - _EPOCH) // _MICROSECOND))
    if isinstance(value, date):
        return Ext(_DATE, _DAYS.pack(value.toordinal() - _EPOCH_DAY))
    return Ext(_DECIMAL, str(value).encode("ascii"))


def from_extension(code: int, data: memoryview) -> Any:
    """Return what an extension stands for; raises ValueError if it is none of ours."""
    try:
        if code == _TIMESTAMP:
            return _EPOCH + _MICROSECONDS.unpack(data)[0] * _MICROSECOND
        if code == _DATE:
            return date.fromordinal(_DAYS.unpack(data)[0] + _EPOCH_DAY)
        if code == _DECIMAL:
            return Decimal(bytes(data).decode("ascii"))
        if code == _TUPLE:
            return _unpack_tuple(data)
    except (struct.error, OverflowError, DecimalException, msgspec.DecodeError) as error:
        raise ValueError(f"extension {code} holds {bytes(data)!r}: {error}") from error
    raise ValueError(f"there is no extension {code}")


_unpack_tuple = msgspec.msgpack.Decoder(tuple, ext_hook=from_extension).decode


def stored_form(value: Any) -> Any:
    """Return what MessagePack makes of an accumulator's value, from which it comes back with its types.

    Raises JobUsageError for a value that would not come back as it is.
    """
    kind = type(value)
    if kind in _STORED_TYPES:
        return value
    if kind in EXTENDED_TYPES:
        return to_extension(canonical(value))
    if kind is list:
        return [stored_form(item) for item in value]
    if kind is tuple:
        return Ext(_TUPLE, _pack([stored_form(item) for item in value]))
    if kind is dict and all(type(key) in (str, int) for key in value):
        return {key: stored_form(item) for key, item in value.items()}
    raise JobUsageError(
        "an accumulator is made of null, booleans, numbers, strings, bytes, decimals, dates and timestamps, and of "
        f"lists, tuples and dicts (by strings or integers) of them, not of {value!r} ({kind.__name__})"
    )
