"""Data channels: Arrow record batches and control elements in one ordered TCP stream each (BAR-2).

A frame is a header (kind, length) and a body. The schema is sent once, ahead of the first batch; a batch's
body is the Arrow IPC message, whose buffers go from the operator's memory to the socket without a copy and,
on the other side, from the socket into one buffer that the received batch points into. Nothing is compressed,
nothing copied.

The receiver listens, one port per slot; the sender connects to the address that the driver gave it, which may
be a proxy's. A channel that ends without an END frame has failed.
"""

from __future__ import annotations

import itertools
import logging
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId
from barrier_tck.reference_impl.protocol.messages import ChannelControl, CheckpointBarrier, EndOfInput
from barrier_tck.reference_impl.runtime_errors import JobUsageError, RuntimeFailure
from barrier_tck.reference_impl.spark.control_wire import (
    ConnectionLost,
    WireError,
    decode,
    encode,
    receive_exactly,
)
from barrier_tck.reference_impl.spark.handshake import (
    Claim,
    HandshakeRefused,
    accept_peer,
    describe_peer,
    introduce,
)
from barrier_tck.reference_impl.spark.listening import Listener, shut
from barrier_tck.reference_impl.spark.mailbox import Mailbox, SubtaskCancelled

MAX_BATCH_BYTES = 1 << 30
MAX_SCHEMA_BYTES = 16 << 20
_MAX_CONTROL_BYTES = 4096
_JOIN_TIMEOUT_S = 5.0
_BUFFERS_PER_CALL = 512
"""Well below the system's limit on buffers of one ``sendmsg`` (1,024 on Linux)."""

_HEADER = struct.Struct("<B7xQ")
_SCHEMA, _BATCH, _CONTROL, _END = 1, 2, 3, 4
_LIMITS = {_SCHEMA: MAX_SCHEMA_BYTES, _BATCH: MAX_BATCH_BYTES, _CONTROL: _MAX_CONTROL_BYTES, _END: 0}

_log = logging.getLogger(__name__)


class _Collector:
    """The file that Arrow's writer writes to: keeps what it is given, by reference."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[Any] = []

    def write(self, part: Any) -> int:
        self.parts.append(part)
        return len(part)

    def flush(self) -> None:
        """Do nothing: the parts are sent together."""

    def close(self) -> None:
        self.closed = True


def _holds_dictionary(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return True
    return any(_holds_dictionary(data_type.field(i).type) for i in range(data_type.num_fields))


class BatchSerializer:
    """Turns the batches of one schema into buffers that can be sent as they are.

    Dictionary columns are decoded: their dictionaries would be messages of their own.
    """

    def __init__(self, first: pa.RecordBatch) -> None:
        """Take the schema of a batch; raises JobUsageError for a dictionary type inside another type."""
        self.source_schema: pa.Schema = first.schema
        self._dictionaries = [i for i, field in enumerate(first.schema) if pa.types.is_dictionary(field.type)]
        for i, field in enumerate(first.schema):
            if i not in self._dictionaries and _holds_dictionary(field.type):
                raise JobUsageError(
                    f"column {field.name!r} of type {field.type} cannot be sent; decode its dictionary"
                )
        empty = self._plain(first.slice(0, 0))
        self.schema: pa.Schema = empty.schema
        self._collector = _Collector()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._collector, mode="w"), self.schema)
        # The stream writer puts the schema before its first batch; frames carry the schema on their own.
        self._writer.write_batch(empty)
        self._collector.parts.clear()

    def _plain(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        for i in self._dictionaries:
            field = batch.schema.field(i)
            batch = batch.set_column(
                i, field.with_type(field.type.value_type), batch.column(i).dictionary_decode()
            )
        return batch

    def buffers(self, batch: pa.RecordBatch) -> list[Any]:
        """Return the batch's IPC message in parts; the parts refer to the batch's memory."""
        self._writer.write_batch(self._plain(batch) if self._dictionaries else batch)
        parts = self._collector.parts
        self._collector.parts = []
        return parts


class ChannelSender:
    """The sending end of one channel. Used by the subtask's thread; ``shut`` may come from any."""

    def __init__(self, connection: socket.socket, channel: ChannelId) -> None:
        """Take a connection whose handshake is done."""
        self._connection = connection
        self._channel = channel
        self._serializer: BatchSerializer | None = None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send_batch(self, batch: pa.RecordBatch) -> None:
        """Send a batch; blocks while the channel is full. Raises ConnectionLost."""
        if not isinstance(batch, pa.RecordBatch):
            raise JobUsageError(f"a channel takes Arrow record batches, not {type(batch).__name__}")
        serializer = self._serializer
        if serializer is None or (
            serializer.source_schema is not batch.schema and serializer.source_schema != batch.schema
        ):
            serializer = self._serializer = BatchSerializer(batch)
            self._send(_SCHEMA, [serializer.schema.serialize()])
        self._send(_BATCH, serializer.buffers(batch))

    def send_control(self, element: ChannelControl) -> None:
        """Send a control element behind everything sent before. Raises ConnectionLost."""
        self._send(_CONTROL, [encode(element)])

    def finish(self) -> None:
        """Say that the sender leaves in good order."""
        self._send(_END, [])

    def shut(self) -> None:
        """End the connection at once; a blocked send raises ConnectionLost."""
        shut(self._connection)

    def _send(self, kind: int, parts: Sequence[Any]) -> None:
        length = sum(len(part) for part in parts)
        if length > _LIMITS[kind]:
            raise JobUsageError(
                f"{self._channel}: a frame of {length} bytes, above {_LIMITS[kind]}; use smaller batches"
            )
        views = [
            memoryview(_HEADER.pack(kind, length)),
            *(memoryview(part).cast("B") for part in parts if len(part)),
        ]
        try:
            for start in range(0, len(views), _BUFFERS_PER_CALL):
                self._send_all(views[start : start + _BUFFERS_PER_CALL])
        except OSError as error:
            raise ConnectionLost(f"{self._channel}: cannot send: {error}") from error

    def _send_all(self, views: list[memoryview]) -> None:
        left = sum(len(view) for view in views)
        while left:
            sent = self._connection.sendmsg(views)
            left -= sent
            if left:
                views = _after(views, sent)


def _after(views: list[memoryview], sent: int) -> list[memoryview]:
    """Return what is left of the buffers once so many bytes were sent."""
    for position, view in enumerate(views):
        if sent < len(view):
            return [view[sent:], *views[position + 1 :]]
        sent -= len(view)
    return []


class OpenConnections:
    """Connections that a cancelled subtask must end, from the moment they exist."""

    def __init__(self) -> None:
        """Start with none."""
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._closed = threading.Event()

    def add(self, connection: socket.socket) -> None:
        """Take a connection in; ends it if everything was ended already."""
        with self._lock:
            self._connections.append(connection)
        if self._closed.is_set():
            shut(connection)

    def shut(self) -> None:
        """End every connection, and each that is still to come."""
        with self._lock:
            self._closed.set()
            connections = list(self._connections)
        for connection in connections:
            shut(connection)

    def shut_within(self, timeout_s: float) -> bool:
        """Wait until everything is ended; returns False if that does not happen in time."""
        return self._closed.wait(timeout_s)


def connect_channel(
    channel: ChannelId,
    host: str,
    port: int,
    attempt: AttemptNumber,
    secret: bytes,
    timeout_s: float,
    opened: OpenConnections | None = None,
) -> ChannelSender:
    """Connect to a channel's address and do the handshake; raises ConnectionLost or HandshakeRefused.

    ``opened`` learns of the connection before the handshake, so that another thread can end it.
    """
    try:
        connection = socket.create_connection((host, port), timeout_s)
    except OSError as error:
        raise ConnectionLost(f"{channel}: nobody answers at {host}:{port}: {error}") from error
    if opened is not None:
        opened.add(connection)
    try:
        introduce(connection, secret, Claim("channel", attempt, str(channel)), timeout_s)
    except BaseException:
        connection.close()
        raise
    return ChannelSender(connection, channel)


class TcpOutput:
    """The output channels of one subtask: the ``ChannelOutput`` port."""

    def __init__(self, senders: Sequence[ChannelSender]) -> None:
        """Take the senders in the order of the deployment."""
        self._senders = senders

    def send_data(self, channel: int, payload: pa.RecordBatch) -> None:
        """Append a batch to a channel; blocks while it is full."""
        self._senders[channel].send_batch(payload)

    def send_control(self, channel: int, element: ChannelControl) -> None:
        """Append a control element to a channel."""
        self._senders[channel].send_control(element)

    def finish(self) -> None:
        """Leave every channel in good order; a receiver that left first does not matter."""
        for sender in self._senders:
            try:
                sender.finish()
            except ConnectionLost as error:
                _log.debug("a receiver left before its sender: %s", error)


class ChannelReader:
    """Reads one channel into the mailbox, on a thread of its own."""

    def __init__(self, connection: socket.socket, channel: ChannelId, number: int, mailbox: Mailbox) -> None:
        """Take a connection whose handshake is done, and the channel's number in the mailbox."""
        self._connection = connection
        self._channel = channel
        self._number = number
        self._mailbox = mailbox
        self._schema: pa.Schema | None = None

    def run(self) -> None:
        """Read until the sender's END; anything else that ends the stream fails the mailbox."""
        try:
            while self._read_frame():
                pass
        except SubtaskCancelled:
            _log.debug("%s: no longer read", self._channel)
        except (RuntimeFailure, pa.ArrowException, OSError) as error:
            self._mailbox.fail(ConnectionLost(f"{self._channel}: {error}"))

    def _read_frame(self) -> bool:
        header = bytearray(_HEADER.size)
        if not receive_exactly(self._connection, memoryview(header)):
            raise ConnectionLost("the sender is gone")
        kind, length = _HEADER.unpack(header)
        if kind not in _LIMITS or length > _LIMITS[kind]:
            raise WireError(f"a frame of kind {kind} and {length} bytes")
        if kind == _END:
            return False
        body = pa.allocate_buffer(length)
        if length and not receive_exactly(self._connection, memoryview(body)):
            raise ConnectionLost("the sender is gone")
        self._deliver(kind, length, body)
        return True

    def _deliver(self, kind: int, length: int, body: pa.Buffer) -> None:
        if kind == _SCHEMA:
            self._schema = pa.ipc.read_schema(pa.BufferReader(body))
        elif kind == _BATCH:
            if self._schema is None:
                raise WireError("a batch before its schema")
            message = pa.ipc.read_message(pa.BufferReader(body))
            self._mailbox.put(self._number, pa.ipc.read_record_batch(message, self._schema), length)
        else:
            element = decode(memoryview(body))
            if not isinstance(element, CheckpointBarrier | EndOfInput):
                raise WireError(f"a {type(element).__name__} in a data channel")
            self._mailbox.put(self._number, element, length)


class ChannelServer:
    """The listening side of one slot: takes in the senders of its input channels, proven, each once."""

    def __init__(self, host: str) -> None:
        """Listen on a free port of an address; raises ConnectionLost if it cannot be bound."""
        self._listener = Listener(host, backlog=128)
        self.port = self._listener.port
        self._lock = threading.Lock()
        self._closed = False
        self._connections: dict[int, socket.socket] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._serials = itertools.count()
        self._expected: dict[str, tuple[int, ChannelId]] = {}
        self._connected: list[str] = []
        self._attempt = 0
        self._secret = b""
        self._mailbox: Mailbox | None = None

    def start(
        self, channels: Iterable[ChannelId], attempt: AttemptNumber, secret: bytes, mailbox: Mailbox
    ) -> None:
        """Begin to let senders in. Those that called earlier wait in the listener's backlog."""
        self._expected = {str(channel): (number, channel) for number, channel in enumerate(channels)}
        self._attempt, self._secret, self._mailbox = attempt, secret, mailbox
        self._spawn(self._listener.accept_each, lambda connection: self._spawn(self._serve, connection))

    def close(self) -> None:
        """End everything: the listener, every connection, every thread. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            connections = list(self._connections.values())
            threads = list(self._threads.values())
        self._listener.close()
        for connection in connections:
            shut(connection)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_TIMEOUT_S)

    def _spawn(self, target: Any, *arguments: Any) -> None:
        serial = next(self._serials)

        def run() -> None:
            try:
                target(*arguments)
            finally:
                with self._lock:
                    self._threads.pop(serial, None)

        thread = threading.Thread(target=run, name=f"channels-{self.port}-{serial}", daemon=True)
        with self._lock:
            if self._closed:
                return
            self._threads[serial] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        serial = next(self._serials)
        with self._lock:
            self._connections[serial] = connection
            if self._closed:
                shut(connection)
        try:
            try:
                claim = accept_peer(connection, self._secret, self._admit)
            except HandshakeRefused as error:
                _log.warning("refused a data channel: %s", error)
                return
            finally:
                self._listener.proven(connection)
            number, channel = self._expected[claim.subject]
            _log.debug("%s comes from %s", channel, describe_peer(connection))
            if self._mailbox is not None:
                ChannelReader(connection, channel, number, self._mailbox).run()
        finally:
            with self._lock:
                self._connections.pop(serial, None)
            shut(connection)

    def _admit(self, claim: Claim) -> str:
        if claim.role != "channel":
            return f"this is a port for data channels, not for a {claim.role}"
        if claim.attempt != self._attempt:
            return f"attempt {claim.attempt} is not attempt {self._attempt}, which runs here (REC-2)"
        if claim.subject not in self._expected:
            return f"{claim.subject} does not end here"
        with self._lock:
            if claim.subject in self._connected:
                return f"{claim.subject} is connected already"
            self._connected.append(claim.subject)
        return ""
