"""Simulated channels and links: FIFO, with latencies drawn per message, and bounded (backpressure).

Ordering contract: messages on one channel or link arrive in the order of sending (BAR-2). Between channels there is
no order. A data channel counts the batches in transit and those that wait; a sender whose channel is full is not
scheduled until its receiver takes something. Control elements are not counted, because they must not cause a
deadlock. For the same reason a channel of a feedback edge has no bound: round a loop, every subtask could wait for
the next. Its receiver takes nothing from outside while too much waits in it (``subtask_processes``).

A disturbance (``disturbances``) changes when a message arrives, swallows it, or ends the connection; the order stays.
Swallowed elements do not fill the channel, because a proxy that lets nothing through still reads. A broken channel is
noticed by its receiver, and by its sender when it sends.

What a receiver takes makes room at once, unless the way back is disturbed. Then the credit, by which the sender learns
of the room, comes late or never, as on Spark. The sender waits for it like for room.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from barrier_tck.faults.targets import Impairment, Loss, PassingMessage
from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.reference_impl.protocol.messages import EndOfChannel
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure

MESSAGE_BYTES = 64
"""Estimated size of a row of a batch, of a control element, and of a message to or from the coordinator."""


UNBOUNDED = sys.maxsize
"""The capacity of a channel that is never full."""


class ChannelBroken(RuntimeFailure):
    """A data channel ended before its sender announced the end."""


@dataclass(slots=True)
class _InForce:
    """An impairment of one connection, and how many bytes it has let through there."""

    impairment: Impairment
    passed: int = 0


class Disturbance:
    """All impairments of one direction of one connection at one time, in the order in which they began."""

    __slots__ = ("_draw", "close", "in_force")

    def __init__(
        self,
        draw: Callable[[], float],
        impairments: Iterable[Impairment],
        close: Callable[[], None] = lambda: None,
        before: Disturbance | None = None,
    ) -> None:
        """Take a function that draws numbers from 0 to 1, from a stream that nothing else uses.

        ``close`` ends the connection once everything that was sent on it has arrived. ``before`` is the disturbance
        until now: an impairment that is still in force continues to count.
        """
        self._draw = draw
        known = [] if before is None else before.in_force
        self.in_force: list[_InForce] = [
            next((kept for kept in known if kept.impairment is impairment), None) or _InForce(impairment)
            for impairment in impairments
        ]
        self.close = close

    def fate(self, sent_ms: float, arrives_ms: float, line_free_ms: float, size: int) -> float | Loss:
        """Return when a message arrives, or why it does not; without a disturbance it would arrive at ``arrives_ms``.

        ``size`` is in bytes, times are in milliseconds; the line is busy until ``line_free_ms``.
        """
        for entry in self.in_force:
            message = PassingMessage(sent_ms, arrives_ms, line_free_ms, size, entry.passed)
            outcome = entry.impairment.fate(message, self._draw)
            if isinstance(outcome, Loss):
                return outcome
            arrives_ms = outcome
        for impairment in self.in_force:
            impairment.passed += size
        return arrives_ms


class Link:
    """A FIFO path for messages with random latency."""

    __slots__ = (
        "_deliver",
        "_last",
        "_latency_ms",
        "_random",
        "_scheduler",
        "broken",
        "disturbance",
        "swallowed",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        stream: random.Random,
        latency_ms: float,
        deliver: Callable[[Any], None],
    ) -> None:
        """Deliver by calling ``deliver(message)``; each message takes 0 to ``latency_ms``."""
        self._scheduler = scheduler
        self._random = stream
        self._latency_ms = latency_ms
        self._deliver = deliver
        self._last = 0.0
        self.disturbance: Disturbance | None = None
        self.swallowed = False
        """Whether anything is missing from the stream."""
        self.broken = False
        """Whether the connection has ended: nothing is delivered any more."""

    def send(self, message: Any, deliver: Callable[[Any], None] | None = None) -> None:
        """Send a message; ``deliver`` takes it instead of the link's own receiver."""
        scheduler = self._scheduler
        arrival = scheduler.now + self._random.random() * self._latency_ms
        if self.broken:
            return
        disturbance = self.disturbance
        if disturbance is not None:
            outcome = disturbance.fate(scheduler.now, arrival, self._last, MESSAGE_BYTES)
            if isinstance(outcome, Loss):
                if outcome is Loss.CLOSED:
                    disturbance.close()
                else:
                    self.swallowed = True
                return
            arrival = outcome
        if arrival < self._last:
            arrival = self._last
        self._last = arrival
        scheduler.at(arrival, deliver or self._deliver, message)

    @property
    def last_arrival_ms(self) -> float:
        """Return when what was sent last arrives."""
        return self._last


class ChannelEnd(Protocol):
    """A process at one end of a data channel."""

    text: str
    """The subtask, as the fault vocabulary names it."""
    full_outputs: int
    """How many of its output channels are full."""

    def wake(self) -> None:
        """Make sure that a step comes if there is something to do."""

    def expect(self, time_ms: float) -> None:
        """Make sure that a step comes soon after a time at which there may be something to do."""

    def channel_ended(self, channel: DataChannel) -> None:
        """Notice that an input channel, or an output channel on which this process waits to send, has ended."""


class DataChannel:
    """A bounded FIFO channel between two subtasks of one attempt."""

    __slots__ = (
        "_last",
        "_last_credit",
        "_latency_ms",
        "_random",
        "_scheduler",
        "broken",
        "capacity",
        "disturbance",
        "name",
        "occupied",
        "queue",
        "receiver",
        "returning",
        "sender",
        "swallowed",
    )

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        stream: random.Random,
        latency_ms: float,
        capacity: int,
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.occupied = 0
        """How many places are taken, as far as the sender knows."""
        self.queue: deque[tuple[float, bool, Any]] = deque()
        """(when it arrives, is data, element), oldest first: everything that was sent but not read, arrived or not."""
        self.sender: ChannelEnd | None = None
        self.receiver: ChannelEnd | None = None
        self.disturbance: Disturbance | None = None
        """Of what flows to the receiver."""
        self.returning: Disturbance | None = None
        """Of the credits that flow back."""
        self.swallowed = False
        """Whether anything is missing from the stream, in either direction."""
        self.broken = False
        """Whether the connection has ended before its sender announced the end."""
        self._scheduler = scheduler
        self._random = stream.random
        self._latency_ms = latency_ms
        self._last = 0.0
        self._last_credit = 0.0

    @property
    def full(self) -> bool:
        """Whether the sender must wait."""
        return self.occupied >= self.capacity

    def send(self, is_data: bool, element: Any) -> None:
        """Append an element. It repeats ``Link.send`` to avoid a call, because most messages go through here."""
        scheduler = self._scheduler
        arrival = scheduler.now + self._random() * self._latency_ms
        if self.disturbance is not None or self.broken:
            disturbed = self._disturbed(arrival, is_data, element)
            if disturbed is None:
                return
            arrival = disturbed
        if is_data:
            self.occupied += 1
            if self.occupied == self.capacity and self.sender is not None:
                self.sender.full_outputs += 1
        if arrival < self._last:
            arrival = self._last
        self._last = arrival
        # An arrival is not a separate event: the receiver checks the time when it looks into its channels.
        self.queue.append((arrival, is_data, element))
        if self.receiver is not None:
            self.receiver.expect(arrival)

    def _disturbed(self, arrival: float, is_data: bool, element: Any) -> float | None:
        """Return when an element arrives, None if never; raises ChannelBroken if the connection has ended."""
        if self.broken:
            raise ChannelBroken(f"{self.name}: cannot send: the connection is broken")
        assert self.disturbance is not None
        size = self.size_of(is_data, element)
        outcome = self.disturbance.fate(self._scheduler.now, arrival, self._last, size)
        if not isinstance(outcome, Loss):
            return outcome
        if outcome is Loss.CLOSED:
            self.disturbance.close()
        else:
            self.swallowed = True
        return None

    def size_of(self, is_data: bool, element: Any) -> int:
        """Return the estimated size of an element in bytes."""
        return MESSAGE_BYTES * (len(element) if is_data else 1)

    @property
    def last_arrival_ms(self) -> float:
        """Return when what was sent last arrives."""
        return self._last

    def take(self) -> tuple[bool, Any]:
        """Read the oldest element, which has arrived."""
        _, is_data, element = self.queue.popleft()
        if is_data:
            if self.returning is None:
                self.return_credit()
            else:
                self.send_credit()
        return is_data, element

    def disturb(self, disturbance: Disturbance | None, returning: Disturbance | None) -> None:
        """Set what disturbs the elements and what disturbs the credits from now on; None: nothing."""
        self.disturbance, self.returning = disturbance, returning

    def return_credit(self, _: Any = None) -> None:
        """Let the sender know of one more free place."""
        self.occupied -= 1
        if self.occupied == self.capacity - 1 and self.sender is not None:
            self.sender.full_outputs -= 1
            self.sender.wake()

    def send_credit(self) -> None:
        """Give the sender a credit for one more free place, on a way back that is disturbed."""
        assert self.returning is not None
        if self.broken or self._end_is_sent():
            return
        now = self._scheduler.now
        outcome = self.returning.fate(now, now, self._last_credit, MESSAGE_BYTES)
        if isinstance(outcome, Loss):
            if outcome is Loss.CLOSED:
                self.returning.close()
            else:
                self.swallowed = True
            return
        self._last_credit = max(outcome, self._last_credit)
        self._scheduler.at(self._last_credit, self.return_credit)

    def _end_is_sent(self) -> bool:
        """Return whether the sender has reported its end: then it waits for no room."""
        return bool(self.queue) and isinstance(self.queue[-1][2], EndOfChannel)
