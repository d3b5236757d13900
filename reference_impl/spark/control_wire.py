"""The codec of everything that crosses a connection but record batches: MessagePack of frozen dataclasses.

A message is the pair (kind, body). The kind is the class name of a known message; the body is checked against
the class field by field. Nothing is executed by decoding, and nothing longer than the limit is decoded.

On a socket a message is a frame: its length in four bytes (big-endian), then as many bytes.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgspec

from barrier_tck.reference_impl.protocol import messages
from barrier_tck.reference_impl.runtime_errors import JobUsageError, RuntimeFailure
from barrier_tck.reference_impl.spark import link_messages

MAX_MESSAGE_BYTES = 16 << 20
"""No message is longer. The largest are acknowledgements that name many state files."""

_MESSAGES = (
    messages.CheckpointBarrier,
    messages.EndOfInput,
    messages.EndOfChannel,
    messages.TriggerCheckpoint,
    messages.NotifyCheckpointComplete,
    messages.NotifyCheckpointAborted,
    messages.CountLoop,
    messages.EndLoop,
    messages.AllowWatermark,
    messages.FinishSubtask,
    messages.CancelSubtask,
    messages.SubtaskRunning,
    messages.StateRestored,
    messages.AcknowledgeCheckpoint,
    messages.DeclineCheckpoint,
    messages.AbortNoted,
    messages.InputConsumed,
    messages.ChannelsClosed,
    messages.SubtaskFinished,
    messages.LoopInputEnded,
    messages.LoopCounted,
    messages.SourceWatermark,
    messages.TransactionsCommitted,
    messages.SubtaskFailed,
    link_messages.SlotOffer,
    link_messages.DeploySubtask,
    link_messages.Heartbeat,
    link_messages.PointReached,
    link_messages.Resume,
    link_messages.FirstRecords,
    link_messages.ChannelsRefused,
    link_messages.SubtaskLeft,
)
_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()
_outer: msgspec.msgpack.Decoder[tuple[str, msgspec.Raw]] = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_inner: dict[str, msgspec.msgpack.Decoder[Any]] = {
    kind.__name__: msgspec.msgpack.Decoder(kind) for kind in _MESSAGES
}


class WireError(RuntimeFailure):
    """A peer sent something that is not a message, or a message that is too long."""


class ConnectionLost(RuntimeFailure):
    """The peer is gone, or the connection broke in the middle of a message."""


def encode(message: Any) -> bytes:
    """Return the bytes of a message; raises WireError for a value that is not a message, or is too long."""
    kind = type(message).__name__
    if kind not in _inner:
        raise WireError(
            f"{message!r} is not a message of the wire; its class must be listed in spark/control_wire.py"
        )
    data = _encoder.encode((kind, message))
    if len(data) > MAX_MESSAGE_BYTES:
        raise WireError(f"a {kind} of {len(data)} bytes is longer than the {MAX_MESSAGE_BYTES} allowed")
    return data


def decode(data: bytes | bytearray | memoryview) -> Any:
    """Return the message; raises WireError if the kind is unknown or the body does not fit it."""
    try:
        kind, body = _outer.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"{len(data)} bytes that are not a (kind, body) pair: {error}") from error
    decoder = _inner.get(kind)
    if decoder is None:
        raise WireError(f"a message of the unknown kind {kind!r}")
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, JobUsageError) as error:
        raise WireError(f"a {kind} whose body does not fit: {error}") from error


def receive_exactly(connection: socket.socket, view: memoryview) -> bool:
    """Fill the view from the connection. False: the peer closed it before the first byte.

    Raises ConnectionLost if it ended or broke in the middle.
    """
    wanted = len(view)
    filled = 0
    while filled < wanted:
        try:
            count = connection.recv_into(view[filled:], wanted - filled, socket.MSG_WAITALL)
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionLost(f"the connection broke: {error}") from error
        if count == 0:
            if filled == 0:
                return False
            raise ConnectionLost(f"the connection ended after {filled} of {wanted} bytes")
        filled += count
    return True


def send_frame(connection: socket.socket, data: bytes) -> None:
    """Send one frame; raises ConnectionLost."""
    try:
        connection.sendall(_LENGTH.pack(len(data)) + data)
    except OSError as error:
        raise ConnectionLost(f"the connection broke: {error}") from error


def receive_frame(connection: socket.socket, limit: int = MAX_MESSAGE_BYTES) -> bytearray | None:
    """Return the next frame, or None at the end of the connection.

    Raises WireError for a frame above the limit, ConnectionLost if the connection breaks.
    """
    header = bytearray(_LENGTH.size)
    if not receive_exactly(connection, memoryview(header)):
        return None
    (length,) = _LENGTH.unpack(header)
    if length > limit:
        raise WireError(f"a frame of {length} bytes where {limit} are allowed")
    data = bytearray(length)
    if length and not receive_exactly(connection, memoryview(data)):
        raise ConnectionLost(f"the connection ended before a frame of {length} bytes")
    return data
