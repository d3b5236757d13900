"""The driver's side of the control connections: which slots may register, which are alive, and what they sent.

One connection per slot, for the slot's whole life. Reader threads decode and hand on; every decision is made
on the coordinator's event loop. Only slots of the current attempt are let in, and what comes over a
connection of an older one is dropped (REC-2). The end of a connection, or silence for longer than the
heartbeat timeout, is the end of its subtask. Heartbeats are answered, so that silence is noticed at the other end, too.
"""

from __future__ import annotations

import itertools
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.heartbeats import FailureDetector
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.spark.control_wire import (
    ConnectionLost,
    WireError,
    decode,
    encode,
    receive_frame,
    send_frame,
)
from barrier_tck.reference_impl.spark.handshake import (
    Claim,
    HandshakeRefused,
    Refusal,
    accept_peer,
    describe_peer,
)
from barrier_tck.reference_impl.spark.link_messages import (
    ChannelsRefused,
    Heartbeat,
    SlotOffer,
    SubtaskLeft,
)
from barrier_tck.reference_impl.spark.listener import Listener, bound_sends, shut

_log = logging.getLogger(__name__)


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
        """Whether the subtask announced that it leaves."""
        self.lost = False
        self.peer = describe_peer(connection)
        self._connection = connection
        self._sending = threading.Lock()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A peer that stopped reading must not hold up the coordinator.
        bound_sends(connection, send_timeout_ms / 1000.0)

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
        message = self.receive()
        while isinstance(message, Heartbeat):  # the slot may be held up, but its heartbeats come all the same
            self.send(message)
            message = self.receive()
        if message is None or isinstance(message, SlotOffer):
            return message
        raise WireError(f"a {type(message).__name__} where only a SlotOffer may come")

    def close(self) -> None:
        """End the connection at once, for reader and peer."""
        shut(self._connection)


class SlotEvents(Protocol):
    """What the service tells, always on the event loop."""

    def slot_offered(self, connection: SlotConnection) -> None:
        """A slot of the current attempt registered; its ``offer`` is set."""

    def message_received(self, connection: SlotConnection, message: Any) -> None:
        """A message of a slot arrived."""

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
        self._listener = Listener(host, backlog=256)
        self.host, self.port = host, self._listener.port
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
        self._refused: Counter[Refusal] = Counter()
        self._refused_by_slots: Counter[str] = Counter()
        self._asked = time.monotonic()
        """When ``silent`` was asked last, in seconds of the monotonic clock."""
        self._closed = False

    def start(self) -> None:
        threading.Thread(
            target=self._listener.accept_each, args=(self._serve,), name="coordinator-accept", daemon=True
        ).start()

    def admit_attempt(self, attempt: int) -> None:
        """Let slots of this attempt in, and of no other; connections of older ones end."""
        with self._lock:
            self._attempt = attempt
            old = list(self._slots.values())
            self._slots = {}
        for connection in old:
            connection.close()

    def close_attempt(self) -> None:
        """Admit no slot until the next attempt; every connection ends."""
        self.admit_attempt(0)

    def close(self) -> None:
        """End everything. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            raw = list(self._raw.values())
        self.close_attempt()
        self._listener.close()
        for connection in raw:
            shut(connection)

    def refused(self) -> dict[str, int]:
        """Return how many peers were refused so far, by ``Refusal``; only kinds that occurred are listed.

        Those that slots refused as senders of data channels are listed as ``data_channel_<kind>``.
        """
        with self._lock:
            here = {kind.value: self._refused[kind] for kind in Refusal if self._refused[kind]}
            there = {
                f"data_channel_{kind.value}": self._refused_by_slots[kind]
                for kind in Refusal
                if self._refused_by_slots[kind]
            }
        return here | there

    def timed_out(self) -> list[SlotConnection]:
        """Return the connections whose silence means that their subtask is lost, by slot. Call it regularly.

        A slot that has not offered itself yet is not among them: it may still be on its way.
        """
        now = time.monotonic()
        asked, self._asked = self._asked, now
        if 1000.0 * (now - asked) > self._heartbeat_timeout_ms / 2:
            # This process itself stood still (starved, suspended): what was sent to it meanwhile is still unread.
            return []
        with self._lock:
            found = [
                connection
                for connection in self._slots.values()
                if connection.offer is not None
                and self._detector.is_lost(1000.0 * (now - connection.last_heard))
            ]
        return sorted(found, key=lambda connection: connection.slot)

    def _serve(self, raw: socket.socket) -> None:
        name = f"slot of {describe_peer(raw)}"
        threading.Thread(target=self._serve_on_thread, args=(raw,), name=name, daemon=True).start()

    def _serve_on_thread(self, raw: socket.socket) -> None:
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
            kept = self._listener.proven(raw)
            with self._lock:
                self._refused[error.kind if kept else Refusal.CROWDED_OUT] += 1
            # They are counted and reported once at the end, so that a peer that connects often does not flood the log.
            _log.debug("refused a slot: %s", error)
            for connection in admitted:
                self._forget(connection)
            return None
        finally:
            self._listener.proven(raw)
        return admitted[0]

    def _admit(self, claim: Claim, raw: socket.socket, admitted: list[SlotConnection]) -> str:
        if claim.role != "slot" or not claim.subject.isdigit():
            return f"this is the coordinator, not a place for {claim.role} {claim.subject}"
        slot = int(claim.subject)
        with self._lock:
            if self._attempt == 0 or claim.attempt != self._attempt:
                now = f"attempt {self._attempt}" if self._attempt else "no attempt"
                return f"attempt {claim.attempt} is over, {now} runs (REC-2)"
            earlier = self._slots.get(slot)
            if earlier is not None and earlier.offer is not None:
                return f"slot {slot} is registered already"
            connection = SlotConnection(raw, claim.attempt, slot, self._heartbeat_timeout_ms)
            self._slots[slot] = connection
            admitted.append(connection)
        if earlier is not None:  # its slot did not learn that it was let in, and tries again
            earlier.close()
        return ""

    def _read(self, connection: SlotConnection) -> None:
        reason, gone = "its control connection ended", True
        try:
            connection.offer = connection.receive_offer()
            if connection.offer is not None:
                self._tell(connection, lambda: self._events.slot_offered(connection))
                while (message := connection.receive()) is not None:
                    self._take(connection, message)
        except ConnectionLost as error:
            reason = str(error)
        except RuntimeFailure as error:
            reason, gone = f"its messages could not be read: {error}", False
        self._forget(connection)
        if gone and connection.offer is None:
            # It may try again. If it died, its stage ends, and Spark reports that.
            _log.info("slot %d at %s left without an offer: %s", connection.slot, connection.peer, reason)
            return
        self._post(lambda: self._lost(connection, reason))

    def _take(self, connection: SlotConnection, message: Any) -> None:
        if isinstance(message, Heartbeat):
            # A subtask that hears nothing for too long ends itself, as it may have been replaced.
            connection.send(message)
            return
        if isinstance(message, ChannelsRefused):
            with self._lock:
                self._refused_by_slots.update(message.counts)
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
