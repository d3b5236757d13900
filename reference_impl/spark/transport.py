"""Data channels: Arrow record batches and control elements in one ordered TCP stream each (BAR-2).

A frame is a header (kind, length) and a body. The schema is sent once, ahead of the first batch; a batch's
body is the Arrow IPC message, whose buffers go from the operator's memory to the socket without a copy and,
on the other side, from the socket into one buffer that the received batch points into. Nothing is compressed,
nothing copied.

Data passes only as far as the receiver has granted credits, which come back on the same connection. So what is on the
wire always arrives, and a barrier is never stuck behind a receiver that does not read.

The receiver listens, one port per slot; the sender connects to the address that the driver gave it, which may
be a proxy's. A channel that ends without an END frame has failed.
"""

from __future__ import annotations

import itertools
import logging
import socket
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId
from barrier_tck.reference_impl.protocol.messages import ChannelControl
from barrier_tck.reference_impl.runtime_errors import JobUsageError, RuntimeFailure
from barrier_tck.reference_impl.spark.batch_serializer import BatchSerializer
from barrier_tck.reference_impl.spark.control_wire import (
    ConnectionLost,
    WireError,
    decode,
    encode,
    receive_exactly,
)
from barrier_tck.reference_impl.spark.frames import (
    BATCH,
    CONTROL,
    END,
    FRAGMENT,
    LIMITS,
    SCHEMA,
    Header,
    grant_credits,
    read_header,
    receive_credits,
    send_parts,
)
from barrier_tck.reference_impl.spark.handshake import (
    Claim,
    HandshakeRefused,
    Refusal,
    accept_peer,
    describe_peer,
    introduce,
)
from barrier_tck.reference_impl.spark.listener import Listener, shut
from barrier_tck.reference_impl.spark.mailbox import Mailbox, SubtaskCancelled
from barrier_tck.reference_impl.storage.channel_state import Fragment

_JOIN_TIMEOUT_S = 5.0

_log = logging.getLogger(__name__)


class ChannelSender:
    """The sending end of one channel. Used by the subtask's thread; ``shut`` may come from any."""

    def __init__(self, connection: socket.socket, channel: ChannelId) -> None:
        """Take a connection whose handshake is done."""
        self._connection = connection
        self.channel = channel
        self._serializer: BatchSerializer | None = None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send_batch(self, batch: pa.RecordBatch) -> None:
        """Send a batch; blocks while the connection is full. Raises ConnectionLost."""
        if not isinstance(batch, pa.RecordBatch):
            raise JobUsageError(f"a channel takes Arrow record batches, not {type(batch).__name__}")
        serializer = self._serializer
        if serializer is None or not serializer.takes(batch):
            serializer = self._serializer = BatchSerializer(batch)
            self._send(SCHEMA, [serializer.schema.serialize()])
        self._send(BATCH, serializer.buffers(batch))

    def send_fragment(self, fragment: Fragment) -> None:
        """Send a piece of a batch; blocks while the connection is full. Raises ConnectionLost."""
        self._send(FRAGMENT, [fragment.data], fragment.more)

    def send_control(self, element: ChannelControl) -> None:
        """Send a control element behind everything sent before. Raises ConnectionLost."""
        self._send(CONTROL, [encode(element)])

    def finish(self) -> None:
        """Say that the sender leaves in good order."""
        self._send(END, [])

    def receive_credits(self) -> int | None:
        """Return how much more the receiver has room for, or None if it left; raises ConnectionLost, or WireError."""
        return receive_credits(self._connection)

    def shut(self) -> None:
        """End the connection at once; a blocked send raises ConnectionLost."""
        shut(self._connection)

    def _send(self, kind: int, parts: Sequence[Any], more: bool = False) -> None:
        length = sum(len(part) for part in parts)
        if length > LIMITS[kind]:
            raise JobUsageError(
                f"{self.channel}: a frame of {length} bytes, above {LIMITS[kind]}; use smaller batches"
            )
        try:
            send_parts(self._connection, kind, parts, more=more)
        except ConnectionLost as error:
            raise ConnectionLost(f"{self.channel}: {error}") from error


class OpenConnections:
    """Connections that a cancelled subtask must end, from the moment they exist."""

    def __init__(self) -> None:
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
        raise ConnectionLost(f"{channel}: no answer at {host}:{port}: {error}") from error
    if opened is not None:
        opened.add(connection)
    try:
        introduce(connection, secret, Claim("channel", attempt, str(channel)), timeout_s)
    except BaseException:
        connection.close()
        raise
    return ChannelSender(connection, channel)


class ChannelReader:
    """Reads one channel into the mailbox, on a thread of its own."""

    def __init__(self, connection: socket.socket, channel: ChannelId, number: int, mailbox: Mailbox) -> None:
        """Take a connection whose handshake is done, and the channel's number in the mailbox."""
        self._connection = connection
        self.channel = channel
        self._number = number
        self._mailbox = mailbox
        self._schema: pa.Schema | None = None

    def run(self) -> None:
        """Read until the sender's END; anything else that ends the stream fails the mailbox."""
        try:
            self._mailbox.opened(self._number, self._grant)
            while self._read_frame():
                pass
        except SubtaskCancelled:
            _log.debug("%s: no longer read", self.channel)
        except (RuntimeFailure, pa.ArrowException, OSError) as error:
            self._mailbox.fail(ConnectionLost(f"{self.channel}: {error}"))

    def _grant(self, count: int) -> None:
        """Let the sender send so many more batches or fragments."""
        try:
            grant_credits(self._connection, count)
        except ConnectionLost as error:
            # The thread that reads the connection learns of it as well, and knows if the sender left in good order.
            _log.debug("%s: %s", self.channel, error)

    def _read_frame(self) -> bool:
        header = read_header(self._connection)
        if header is None:
            raise ConnectionLost("the sender is gone")
        if header.kind not in LIMITS or header.length > LIMITS[header.kind]:
            raise WireError(f"a frame of kind {header.kind} and {header.length} bytes")
        if header.kind == END:
            return False
        body = pa.allocate_buffer(header.length)
        if header.length and not receive_exactly(self._connection, memoryview(body)):
            raise ConnectionLost("the sender is gone")
        self._deliver(header, body)
        return True

    def _deliver(self, header: Header, body: pa.Buffer) -> None:
        if header.kind == SCHEMA:
            self._schema = pa.ipc.read_schema(pa.BufferReader(body))
            return
        element: Any
        if header.kind == BATCH:
            if self._schema is None:
                raise WireError("a batch before its schema")
            message = pa.ipc.read_message(pa.BufferReader(body))
            element = pa.ipc.read_record_batch(message, self._schema)
        elif header.kind == FRAGMENT:
            element = Fragment(body.to_pybytes(), header.more)
        else:
            element = decode(memoryview(body))
            if not isinstance(element, ChannelControl):
                raise WireError(f"a {type(element).__name__} in a data channel")
        self._mailbox.put(self._number, element, header.length)


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
        self._refused: Counter[str] = Counter()
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

    def take_refused(self) -> dict[str, int]:
        """Return how many peers were refused since the last call, by ``Refusal``."""
        with self._lock:
            refused, self._refused = self._refused, Counter()
        return dict(refused)

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
                kept = self._listener.proven(connection)
                with self._lock:
                    self._refused[error.kind if kept else Refusal.CROWDED_OUT] += 1
                # They are counted and reported to the driver, so that a peer that connects often does not flood the
                # log.
                _log.debug("refused a data channel: %s", error)
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
