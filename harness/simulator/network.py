"""Simulated channels and links: FIFO, with latencies drawn per message, and bounded (backpressure).

Ordering contract: what is sent on one channel or link arrives in the order of sending (BAR-2). Between channels
there is no order. A data channel counts what is on its way and what waits; a sender whose channel is full is
not scheduled until its receiver takes something. Control elements are not counted: they must not deadlock.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.simulator.scheduler import Scheduler

if TYPE_CHECKING:
    from harness.simulator.process import SimulatedSubtask


class Link:
    """A FIFO path for messages with random latency."""

    __slots__ = ("_deliver", "_last", "_latency_ms", "_random", "_scheduler")

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

    def send(self, message: Any) -> None:
        """Send a message."""
        scheduler = self._scheduler
        arrival = scheduler.now + self._random.random() * self._latency_ms
        if arrival < self._last:
            arrival = self._last
        self._last = arrival
        scheduler.at(arrival, self._deliver, message)


class DataChannel:
    """A bounded FIFO channel between two subtasks of one attempt."""

    __slots__ = (
        "_last",
        "_latency_ms",
        "_random",
        "_scheduler",
        "capacity",
        "name",
        "number",
        "occupied",
        "queue",
        "receiver",
        "sender",
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
        self.queue: deque[tuple[bool, Any]] = deque()
        """(is data, element), oldest first: what has arrived and was not read."""
        self.sender: SimulatedSubtask | None = None
        self.receiver: SimulatedSubtask | None = None
        self.number = 0
        """The channel's number in the receiver's input gate."""
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
        if is_data:
            self.occupied += 1
        scheduler = self._scheduler
        arrival = scheduler.now + self._random() * self._latency_ms
        if arrival < self._last:
            arrival = self._last
        self._last = arrival
        scheduler.at(arrival, self._arrive, (is_data, element))

    def _arrive(self, item: tuple[bool, Any]) -> None:
        receiver = self.receiver
        if receiver is not None and receiver.alive:
            self.queue.append(item)
            receiver.wake()

    def take(self) -> tuple[bool, Any]:
        """Read the oldest element."""
        item = self.queue.popleft()
        if item[0]:
            if self.occupied == self.capacity and self.sender is not None:
                self.sender.wake()
            self.occupied -= 1
        return item
