"""The elements of a channel that stand among its records: batches, and watermarks; and their form as bytes.

Channel state and fragments hold elements as bytes. A batch has the form of its data plane. A watermark has one of its
own, which no batch of either plane can have: both begin with another byte.
"""

from __future__ import annotations

import msgspec

from barrier_tck.reference_impl.operators.api import DataPlane, Payload
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.runtime_errors import CorruptStateError

Element = Payload | Watermark
"""A batch, or a watermark."""

_MARK = b"watermark:"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Watermark).decode


def is_watermark(data: bytes) -> bool:
    """Return whether the bytes of an element are those of a watermark."""
    return data.startswith(_MARK)


def encode_watermark(watermark: Watermark) -> bytes:
    """Return a watermark as bytes."""
    return _MARK + _encode(watermark)


def encode_element(plane: DataPlane, element: Element) -> bytes:
    """Return an element as bytes; raises JobUsageError for a value that has no such form."""
    return encode_watermark(element) if isinstance(element, Watermark) else plane.encode(element)


def decode_element(plane: DataPlane, data: bytes) -> Element:
    """Return the element of some bytes; raises CorruptStateError if they are none."""
    if not is_watermark(data):
        return plane.decode(data)
    try:
        return _decode(data[len(_MARK) :])
    except msgspec.MsgspecError as error:
        raise CorruptStateError(f"a watermark in flight cannot be decoded: {error}") from error
