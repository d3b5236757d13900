"""The frames of a data channel: a header (kind, length, number of credits, whether fragments follow) and a body.

The sender sends the schema, batches, fragments of batches, control elements and the end of the channel. The receiver
sends only credits: how many more batches or fragments it has room for. Every length is limited, and bytes that are not
a frame end the channel with an error.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from barrier_tck.reference_impl.spark.control_wire import ConnectionLost, WireError, receive_exactly

MAX_BATCH_BYTES = 1 << 30
MAX_SCHEMA_BYTES = 16 << 20
MAX_CREDITS = 1 << 20
"""No receiver has room for more batches than this."""
_MAX_CONTROL_BYTES = 4096
_BUFFERS_PER_CALL = 512
"""Well below the system's limit on buffers of one ``sendmsg`` (1,024 on Linux)."""

_HEADER = struct.Struct("<BB2xIQ")
SCHEMA, BATCH, CONTROL, END, FRAGMENT, CREDIT = 1, 2, 3, 4, 5, 6
LIMITS = {
    SCHEMA: MAX_SCHEMA_BYTES,
    BATCH: MAX_BATCH_BYTES,
    CONTROL: _MAX_CONTROL_BYTES,
    END: 0,
    FRAGMENT: MAX_BATCH_BYTES,
}
"""Kind of frame from the sender -> the longest body that a receiver accepts, in bytes."""


@dataclass(frozen=True, slots=True)
class Header:
    """The header of one frame."""

    kind: int
    length: int
    count: int
    """The number of credits; 0 in a frame of another kind."""
    more: bool
    """Whether the rest of a fragment's batch follows."""


def send_parts(
    connection: socket.socket, kind: int, parts: Sequence[Any], count: int = 0, more: bool = False
) -> None:
    """Send one frame whose body is given in parts; blocks while the connection is full. Raises ConnectionLost."""
    length = sum(len(part) for part in parts)
    views = [
        memoryview(_HEADER.pack(kind, more, count, length)),
        *(memoryview(part).cast("B") for part in parts if len(part)),
    ]
    try:
        for start in range(0, len(views), _BUFFERS_PER_CALL):
            _send_all(connection, views[start : start + _BUFFERS_PER_CALL])
    except OSError as error:
        raise ConnectionLost(f"cannot send: {error}") from error


def _send_all(connection: socket.socket, views: list[memoryview]) -> None:
    left = sum(len(view) for view in views)
    while left:
        sent = connection.sendmsg(views)
        left -= sent
        if left:
            views = _after(views, sent)


def _after(views: list[memoryview], sent: int) -> list[memoryview]:
    """Return what is left of the buffers after ``sent`` bytes."""
    for position, view in enumerate(views):
        if sent < len(view):
            return [view[sent:], *views[position + 1 :]]
        sent -= len(view)
    return []


def read_header(connection: socket.socket) -> Header | None:
    """Return the next frame's header, or None at the end of the connection; raises ConnectionLost."""
    data = bytearray(_HEADER.size)
    if not receive_exactly(connection, memoryview(data)):
        return None
    kind, more, count, length = _HEADER.unpack(data)
    return Header(kind, length, count, bool(more))


def grant_credits(connection: socket.socket, count: int) -> None:
    """Allow the sender to send ``count`` more batches or fragments; raises ConnectionLost."""
    send_parts(connection, CREDIT, (), count)


def receive_credits(connection: socket.socket) -> int | None:
    """Return the next grant, or None if the receiver has closed the connection; raises ConnectionLost, or WireError."""
    header = read_header(connection)
    if header is None:
        return None
    if header.kind != CREDIT or header.length or not 0 < header.count <= MAX_CREDITS:
        raise WireError(f"a frame of kind {header.kind}, {header.length} bytes and {header.count} credits")
    return header.count
