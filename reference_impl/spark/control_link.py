"""The subtask's end of its control connection: messages both ways, heartbeats, breakpoints, the order to stop.

The connection is the subtask's leash: whatever ends it (the driver closes it or dies, the network breaks)
ends the subtask at once, wherever it stands. So does silence: the coordinator answers every heartbeat, and a subtask
that hears nothing from it for too long was replaced, or soon will be (REC-2). It does not stay as a zombie.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import CancelSubtask
from barrier_tck.reference_impl.runtime.ports import Clock, RuntimePoint
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.spark.control_wire import (
    ConnectionLost,
    WireError,
    decode,
    encode,
    receive_frame,
    send_frame,
)
from barrier_tck.reference_impl.spark.handshake import Claim, introduce
from barrier_tck.reference_impl.spark.link_messages import (
    ChannelsRefused,
    DeploySubtask,
    FirstRecords,
    Heartbeat,
    PointReached,
    Resume,
    SlotOffer,
)
from barrier_tck.reference_impl.spark.listener import bound_sends, shut
from barrier_tck.reference_impl.spark.mailbox import SubtaskCancelled

_JOIN_TIMEOUT_S = 2.0
_log = logging.getLogger(__name__)


class ControlLink:
    """One control connection, and the ``CoordinatorLink`` port."""

    def __init__(self, connection: socket.socket, heartbeat_interval_s: float, silence_s: float) -> None:
        """Take a connection whose handshake is done; heartbeats begin at once.

        If nothing comes from the coordinator for longer than ``silence_s``, the subtask ends.
        """
        self._connection = connection
        self._sending = threading.Lock()
        self._interval_s = heartbeat_interval_s
        self._silence_s = silence_s
        self._last_heard = time.monotonic()
        self._condition = threading.Condition()
        self._resumed = 0
        self._over: str | None = None
        self._on_cancel: Callable[[str], None] = _ignore
        self._refused: Callable[[], dict[str, int]] = dict
        self._threads: list[threading.Thread] = []
        self._parent = os.getppid()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A coordinator that reads nothing is as good as a silent one, and a blocked send must not hide its silence.
        bound_sends(connection, silence_s)
        self._spawn(self._beat, "heartbeat")

    @classmethod
    def connect(
        cls,
        address: tuple[str, int],
        secret: bytes,
        claim: Claim,
        heartbeat_interval_s: float,
        timeout_s: float,
        silence_s: float = 10.0,
    ) -> ControlLink:
        """Connect to the coordinator; raises ConnectionLost or HandshakeRefused."""
        try:
            connection = socket.create_connection(address, timeout_s)
        except OSError as error:
            raise ConnectionLost(f"no coordinator at {address[0]}:{address[1]}: {error}") from error
        try:
            introduce(connection, secret, claim, timeout_s)
        except BaseException:
            connection.close()
            raise
        return cls(connection, heartbeat_interval_s, silence_s)

    def send(self, message: Any) -> None:
        """Send a message; raises SubtaskCancelled if the coordinator is gone: nothing goes on without it."""
        data = encode(message)
        try:
            with self._sending:
                send_frame(self._connection, data)
        except ConnectionLost as error:
            raise SubtaskCancelled(f"the coordinator is gone: {error}") from error

    def await_deployment(self, offer: SlotOffer) -> DeploySubtask:
        """Offer the slot and wait for its work; raises SubtaskCancelled if there is none."""
        self.send(offer)
        try:
            message = self._receive()
            while isinstance(message, Heartbeat):
                message = self._receive()
        except (ConnectionLost, WireError) as error:
            raise SubtaskCancelled(f"no deployment: {error}") from error
        if isinstance(message, DeploySubtask):
            return message
        reason = message.reason if isinstance(message, CancelSubtask) else "the coordinator hung up"
        raise SubtaskCancelled(f"no deployment: {reason}")

    def start_reading(self, on_message: Callable[[Any], None], on_cancel: Callable[[str], None]) -> None:
        """Read messages on a thread: hand them on, and call ``on_cancel`` once when the subtask must end."""
        with self._condition:
            self._on_cancel = on_cancel
            over = self._over
        if over is not None:
            on_cancel(over)
        self._spawn(lambda: self._read(on_message), "control")

    def report_refused(self, take: Callable[[], dict[str, int]]) -> None:
        """Tell the coordinator with the heartbeats how many data channels were refused; ``take`` returns new ones."""
        self._refused = take

    def send_refused(self) -> None:
        """Tell now how many data channels were refused; raises SubtaskCancelled if the coordinator is gone."""
        refused = self._refused()
        if refused:
            self.send(ChannelsRefused(refused))

    def stop_at(self, point: RuntimePoint, sequence: int, checkpoint: CheckpointId | None) -> None:
        """Report that the subtask stands at a point, and wait for ``Resume``; raises SubtaskCancelled."""
        self.send(PointReached(sequence, point.value, checkpoint))
        with self._condition:
            while self._resumed < sequence and self._over is None:
                self._condition.wait()
            if self._over is not None:
                raise SubtaskCancelled(self._over)

    def ends_within(self, timeout_s: float) -> bool:
        """Wait for the coordinator to end the subtask; returns False if it does not in that time."""
        with self._condition:
            return self._condition.wait_for(lambda: self._over is not None, timeout_s)

    def close(self) -> None:
        """End the connection and both threads. Closing twice is harmless."""
        self._end("closed")
        shut(self._connection)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_TIMEOUT_S)

    def _spawn(self, target: Callable[[], None], name: str) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _end(self, reason: str, hang_up: bool = False) -> None:
        with self._condition:
            if self._over is not None:
                return
            self._over = reason
            if hang_up:  # before anyone learns of it: nothing may be sent any more
                shut(self._connection)
            self._condition.notify_all()
            on_cancel = self._on_cancel
        on_cancel(reason)

    def _read(self, on_message: Callable[[Any], None]) -> None:
        try:
            while (message := self._receive()) is not None:
                if isinstance(message, CancelSubtask):
                    self._end(message.reason)
                    return
                if isinstance(message, Resume):
                    with self._condition:
                        self._resumed = message.sequence
                        self._condition.notify_all()
                elif not isinstance(message, Heartbeat):
                    on_message(message)
            self._end("the coordinator hung up")
        except RuntimeFailure as error:
            self._end(str(error))

    def _receive(self) -> Any:
        """Return the next message, or None at the end of the connection."""
        data = receive_frame(self._connection)
        self._last_heard = time.monotonic()
        return None if data is None else decode(data)

    def _beat(self) -> None:
        while True:
            with self._condition:
                if self._over is None:
                    self._condition.wait(self._interval_s)
                if self._over is not None:
                    return
            if os.getppid() != self._parent:
                self._end("the Python daemon of the executor is gone", hang_up=True)
                return
            if time.monotonic() - self._last_heard > self._silence_s:
                silence = f"nothing was heard from the coordinator for more than {self._silence_s:g} s"
                self._end(silence, hang_up=True)
                return
            try:
                self.send(Heartbeat())
                self.send_refused()
            except SubtaskCancelled as error:
                self._end(str(error))
                return


def _ignore(reason: str) -> None:
    _log.debug("the link ended before its subtask began: %s", reason)


class SlotProbe:
    """The ``Probe`` port: stops at watched points, and reports the first records of the attempt."""

    def __init__(self, link: ControlLink, clock: Clock, watched: frozenset[RuntimePoint]) -> None:
        self._link = link
        self._clock = clock
        self._watched = watched
        self._sequence = 0
        self._processed = False

    def reach(self, point: RuntimePoint, checkpoint: CheckpointId | None = None, attempt: int = 0) -> None:
        """Stop at the point if it is watched."""
        if not self._processed and point is RuntimePoint.RECORDS_PROCESSED:
            self._processed = True
            self._link.send(FirstRecords(self._clock.now_ms()))
        if point in self._watched:
            self._sequence += 1
            self._link.stop_at(point, self._sequence, checkpoint)
