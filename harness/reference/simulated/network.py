"""Simulated channels and links: FIFO, with latencies drawn per message, and bounded (backpressure).

Ordering contract: what is sent on one channel or link arrives in the order of sending (BAR-2). Between channels
there is no order. A data channel counts what is on its way and what waits; a sender whose channel is full is
not scheduled until its receiver takes something. Control elements are not counted: they must not deadlock.

A disturbance (``disturbances``) changes when a message arrives, or swallows it; the order stays.
What is swallowed does not fill the channel: a proxy that lets nothing through still reads. A broken channel is
noticed by its receiver, and by its sender when it sends.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure

MESSAGE_BYTES = 64
"""Estimated size of a row of a batch, of a control element, and of a message to or from the coordinator."""


class ChannelBroken(RuntimeFailure):
    """A data channel ended before its sender had said so."""


@dataclass(frozen=True, slots=True)
class Disturbance:
    """All that is wrong with one direction of a connection at a time."""

    draw: Callable[[], float]
    """Draws from 0 to 1, from a stream that nothing else draws from."""
    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    bytes_per_ms: float | None = None
    hole: bool = False
    """Whether nothing passes."""

    def arrival(self, sent: float, arrival: float, free: float, size: int) -> float:
        """Return when a message arrives that undisturbed would at ``arrival``; ``free``: the line is busy until then.

        ``size`` in bytes, times in milliseconds.
        """
        late = self.latency_ms + (2.0 * self.draw() - 1.0) * self.jitter_ms if self.latency_ms else 0.0
        if self.bytes_per_ms is not None:
            arrival = max(arrival, max(sent, free) + size / self.bytes_per_ms)
        return arrival + late


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
            if disturbance.hole:
                self.swallowed = True
                return
            arrival = disturbance.arrival(scheduler.now, arrival, self._last, MESSAGE_BYTES)
        if arrival < self._last:
            arrival = self._last
        self._last = arrival
        scheduler.at(arrival, deliver or self._deliver, message)


class ChannelEnd(Protocol):
    """A process at one end of a data channel."""

    text: str
    """The subtask, as the fault vocabulary names it."""
    full_outputs: int
    """How many of the channels that it sends on are full."""

    def wake(self) -> None:
        """Make sure that a step comes if there is anything to do."""

    def expect(self, time_ms: float) -> None:
        """Make sure that a step comes soon after a time at which there may be something to do."""

    def channel_ended(self, channel: DataChannel) -> None:
        """Notice that an input channel, or one that this process waits to send on, has ended."""


class DataChannel:
    """A bounded FIFO channel between two subtasks of one attempt."""

    __slots__ = (
        "_last",
        "_latency_ms",
        "_random",
        "_scheduler",
        "broken",
        "capacity",
        "disturbance",
        "name",
        "number",
        "occupied",
        "queue",
        "receiver",
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
        """Start empty and unconnected."""
        self.name = name
        self.capacity = capacity
        self.occupied = 0
        self.queue: deque[tuple[float, bool, Any]] = deque()
        """(when it arrives, is data, element), oldest first: what was sent and not read, arrived or not."""
        self.sender: ChannelEnd | None = None
        self.receiver: ChannelEnd | None = None
        self.number = 0
        """The channel's number in the receiver's input gate."""
        self.disturbance: Disturbance | None = None
        self.swallowed = False
        """Whether anything is missing from the stream."""
        self.broken = False
        """Whether the connection has ended before its sender said so."""
        self._scheduler = scheduler
        self._random = stream.random
        self._latency_ms = latency_ms
        self._last = 0.0

    @property
    def full(self) -> bool:
        """Tell whether the sender must wait."""
        return self.occupied >= self.capacity

    def send(self, is_data: bool, element: Any) -> None:
        """Append an element. As ``Link.send`` does, without its call: most messages go this way."""
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
        # An arrival is no event of its own: the receiver looks at the time when it looks into its channels.
        self.queue.append((arrival, is_data, element))
        if self.receiver is not None:
            self.receiver.expect(arrival)

    def _disturbed(self, arrival: float, is_data: bool, element: Any) -> float | None:
        """Return when an element arrives, None if never; raises ChannelBroken if the connection has ended."""
        if self.broken:
            raise ChannelBroken(f"{self.name}: cannot send: the connection is broken")
        assert self.disturbance is not None
        if self.disturbance.hole:
            self.swallowed = True
            return None
        size = MESSAGE_BYTES * (len(element) if is_data else 1)
        return self.disturbance.arrival(self._scheduler.now, arrival, self._last, size)

    def take(self) -> tuple[bool, Any]:
        """Read the oldest element, which has arrived."""
        _, is_data, element = self.queue.popleft()
        if is_data:
            self.occupied -= 1
            if self.occupied == self.capacity - 1 and self.sender is not None:
                self.sender.full_outputs -= 1
                self.sender.wake()
        return is_data, element
