"""The driver's side of the control connections: who may register, who is alive, who said what.

One connection per slot, for the slot's whole life. Reader threads decode and hand on; every decision is made
on the coordinator's event loop. Only slots of the current attempt are let in, and what comes over a
connection of an older one is dropped (REC-2). The end of a connection, or five seconds of silence, is the end
of its subtask.
"""

from __future__ import annotations

import itertools
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from reference_impl.errors import OperatingError
from reference_impl.ids import SubtaskId
from reference_impl.protocol.heartbeats import FailureDetector
from reference_impl.spark.handshake import Claim, HandshakeRefused, accept_peer, describe_peer
from reference_impl.spark.link_messages import Heartbeat, SlotOffer, SubtaskLeft
from reference_impl.spark.transport import shut
from reference_impl.spark.wire import (
    ConnectionLost,
    WireError,
    decode,
    decode_as,
    encode,
    receive_frame,
    send_frame,
)

_log = logging.getLogger(__name__)
_MOST_UNPROVEN_PEERS = 64


class SlotConnection:
    """The driver's end of one control connection."""

    def __init__(self, connection: socket.socket, attempt: int, slot: int, send_timeout_ms: int) -> None:
        """Take a connection whose handshake is done."""
        self.attempt = attempt
        self.slot = slot
        self.offer: SlotOffer | None = None
        self.subtask: SubtaskId | None = None
        self.last_heard = time.monotonic()
        """Seconds of the monotonic clock."""
        self.left = False
        """Whether the subtask said that it leaves."""
        self.lost = False
        self.peer = describe_peer(connection)
        self._connection = connection
        self._sending = threading.Lock()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer that stopped reading must not hold up the coordinator.
        timeout = struct.pack("ll", send_timeout_ms // 1000, send_timeout_ms % 1000 * 1000)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    def send(self, message: Any) -> None:
        """Send a message; if the peer is gone the connection ends, which its reader reports."""
        try:
            with self._sending:
                send_frame(self._connection, encode(message))
        except ConnectionLost as error:
            _log.debug("slot %d of attempt %d at %s: %s", self.slot, self.attempt, self.peer, error)
            self.close()

    def receive(self) -> Any:
        """Return the next message, or None at the end of the connection."""
        data = receive_frame(self._connection)
        self.last_heard = time.monotonic()
        return None if data is None else decode(data)

    def receive_offer(self) -> SlotOffer | None:
        """Return the offer that a slot begins with, or None at the end of the connection."""
        data = receive_frame(self._connection)
        return None if data is None else decode_as(SlotOffer, data)

    def close(self) -> None:
        """End the connection at once, for reader and peer."""
        shut(self._connection)


class SlotEvents(Protocol):
    """What the service tells, always on the event loop."""

    def slot_offered(self, connection: SlotConnection) -> None:
        """A slot of the current attempt registered; its ``offer`` is set."""

    def message_received(self, connection: SlotConnection, message: Any) -> None:
        """A slot said something."""

    def slot_lost(self, connection: SlotConnection, reason: str) -> None:
        """A connection ended; ``connection.left`` tells whether that was announced."""


class CoordinatorService:
    """The TCP server on the driver."""

    def __init__(
        self,
        host: str,
        secret: bytes,
        post: Callable[[Callable[[], None]], None],
        events: SlotEvents,
        heartbeat_timeout_ms: int,
        detector: FailureDetector | None = None,
    ) -> None:
        """Listen on a free port of an address; raises ConnectionLost if it cannot be bound."""
        try:
            self._listener = socket.create_server((host, 0), backlog=256)
        except OSError as error:
            raise ConnectionLost(f"the coordinator cannot listen on {host}: {error}") from error
        self.host = host
        self.port: int = self._listener.getsockname()[1]
        self._secret = secret
        self._post = post
        self._events = events
        self._heartbeat_timeout_ms = heartbeat_timeout_ms
        self._detector = detector or FailureDetector(heartbeat_timeout_ms)
        self._attempt = 0
        self._lock = threading.Lock()
        self._slots: dict[int, SlotConnection] = {}
        self._raw: dict[int, socket.socket] = {}
        self._serials = itertools.count()
        self._unproven = threading.BoundedSemaphore(_MOST_UNPROVEN_PEERS)
        self._closed = False

    def start(self) -> None:
        """Begin to accept."""
        threading.Thread(target=self._accept, name="coordinator-accept", daemon=True).start()

    def admit_attempt(self, attempt: int) -> None:
        """Let slots of this attempt in, and of no other; connections of older ones end."""
        with self._lock:
            self._attempt = attempt
            old = list(self._slots.values())
            self._slots = {}
        for connection in old:
            connection.close()

    def close_attempt(self) -> None:
        """Let nobody in until the next attempt; every connection ends."""
        self.admit_attempt(0)

    def close(self) -> None:
        """End everything. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            raw = list(self._raw.values())
        self.close_attempt()
        shut(self._listener)
        for connection in raw:
            shut(connection)

    def silent(self) -> list[SlotConnection]:
        """Return the connections whose silence means that their subtask is lost, by slot."""
        now = time.monotonic()
        with self._lock:
            found = [
                connection
                for connection in self._slots.values()
                if self._detector.is_lost(1000.0 * (now - connection.last_heard))
            ]
        return sorted(found, key=lambda connection: connection.slot)

    def _accept(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError:
                return
            if not self._unproven.acquire(blocking=False):
                _log.warning("refused %s: too many peers that have proven nothing", address)
                connection.close()
                continue
            threading.Thread(
                target=self._serve, args=(connection,), name=f"slot-{address[1]}", daemon=True
            ).start()

    def _serve(self, raw: socket.socket) -> None:
        serial = next(self._serials)
        with self._lock:
            self._raw[serial] = raw
            if self._closed:
                shut(raw)
        try:
            connection = self._shake_hands(raw)
            if connection is not None:
                self._read(connection)
        finally:
            with self._lock:
                self._raw.pop(serial, None)
            shut(raw)

    def _shake_hands(self, raw: socket.socket) -> SlotConnection | None:
        admitted: list[SlotConnection] = []
        try:
            accept_peer(raw, self._secret, lambda claim: self._admit(claim, raw, admitted))
        except HandshakeRefused as error:
            _log.warning("refused a slot: %s", error)
            for connection in admitted:
                self._forget(connection)
            return None
        finally:
            self._unproven.release()
        return admitted[0]

    def _admit(self, claim: Claim, raw: socket.socket, admitted: list[SlotConnection]) -> str:
        if claim.role != "slot" or not claim.subject.isdigit():
            return f"this is the coordinator, not a place for {claim.role} {claim.subject}"
        slot = int(claim.subject)
        with self._lock:
            if self._attempt == 0 or claim.attempt != self._attempt:
                now = f"attempt {self._attempt}" if self._attempt else "no attempt"
                return f"attempt {claim.attempt} is over, {now} runs (REC-2)"
            if slot in self._slots:
                return f"slot {slot} is registered already"
            connection = SlotConnection(raw, claim.attempt, slot, self._heartbeat_timeout_ms)
            self._slots[slot] = connection
            admitted.append(connection)
        return ""

    def _read(self, connection: SlotConnection) -> None:
        reason = "its control connection ended"
        try:
            connection.offer = connection.receive_offer()
            if connection.offer is not None:
                self._tell(connection, lambda: self._events.slot_offered(connection))
                while (message := connection.receive()) is not None:
                    self._take(connection, message)
        except (WireError, ConnectionLost) as error:
            reason = str(error)
        except OperatingError as error:
            reason = f"its messages could not be read: {error}"
        self._forget(connection)
        self._post(lambda: self._lost(connection, reason))

    def _take(self, connection: SlotConnection, message: Any) -> None:
        if isinstance(message, Heartbeat):
            return
        if isinstance(message, SubtaskLeft):
            connection.left = True
            return
        self._tell(connection, lambda: self._events.message_received(connection, message))

    def _tell(self, connection: SlotConnection, call: Callable[[], None]) -> None:
        def if_current() -> None:
            # The attempt may have ended between the arrival of the message and its turn (REC-2).
            if connection.attempt == self._attempt:
                call()

        self._post(if_current)

    def _lost(self, connection: SlotConnection, reason: str) -> None:
        if not connection.lost:
            connection.lost = True
            self._events.slot_lost(connection, reason)

    def _forget(self, connection: SlotConnection) -> None:
        with self._lock:
            if self._slots.get(connection.slot) is connection:
                del self._slots[connection.slot]
