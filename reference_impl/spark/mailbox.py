"""Where everything that a subtask's loop waits for comes together: batches, control elements, and calls.

Reader threads put elements of input channels; every channel has a queue of its own, bounded by batches and
bytes, and a full one makes its reader stop reading, so that backpressure reaches the sender through TCP.
Other threads post calls (a message of the coordinator, the outcome of a background task) that must run on the
loop's thread. The loop takes one thing at a time and never reads a channel that is blocked (BAR-5).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from barrier_tck.reference_impl.runtime_errors import RuntimeFailure

Call = Callable[[], None]


class SubtaskCancelled(RuntimeFailure):
    """The attempt is over; whatever the subtask was doing ends here."""


class Mailbox:
    """The one place on which a subtask's loop waits."""

    def __init__(self, channels: int, max_batches: int, max_bytes: int) -> None:
        """Take the number of input channels and the bounds of each one's queue.

        An element enters a queue while there are fewer than ``max_batches`` elements and ``max_bytes`` bytes
        in it, so a single larger batch passes.
        """
        self._max_batches = max_batches
        self._max_bytes = max_bytes
        self._queues: list[deque[tuple[Any, int]]] = [deque() for _ in range(channels)]
        self._bytes = [0] * channels
        self._calls: deque[Call] = deque()
        self._lock = threading.Lock()
        self._readable = threading.Condition(self._lock)
        self._writable = [threading.Condition(self._lock) for _ in range(channels)]
        self._failure: RuntimeFailure | None = None
        self._next = 0

    def put(self, channel: int, element: Any, size: int) -> None:
        """Append an element to a queue; waits while it is full. Raises SubtaskCancelled if closed."""
        with self._lock:
            queue = self._queues[channel]
            while self._failure is None and (
                len(queue) >= self._max_batches or self._bytes[channel] >= self._max_bytes
            ):
                self._writable[channel].wait()
            if self._failure is not None:
                raise SubtaskCancelled(str(self._failure))
            queue.append((element, size))
            self._bytes[channel] += size
            self._readable.notify()

    def post(self, call: Call) -> None:
        """Have the loop's thread make a call, ahead of all elements; never made once the mailbox is closed."""
        with self._lock:
            self._calls.append(call)
            self._readable.notify()

    def fail(self, error: RuntimeFailure) -> None:
        """Close the mailbox: ``take`` raises this error, waiting readers give up. The first error counts."""
        with self._lock:
            if self._failure is None:
                self._failure = error
            self._readable.notify_all()
            for condition in self._writable:
                condition.notify_all()

    def take(self, blocked: Sequence[bool], timeout_s: float | None) -> Call | tuple[int, Any] | None:
        """Return the next call, or (channel, element) of an open channel, or None at the timeout.

        Calls come first; open channels take turns. Raises the error given to ``fail``.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._lock:
            while True:
                if self._failure is not None:
                    raise self._failure
                if self._calls:
                    return self._calls.popleft()
                found = self._pop(blocked)
                if found is not None:
                    return found
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._readable.wait(left)

    def _pop(self, blocked: Sequence[bool]) -> tuple[int, Any] | None:
        channels = len(self._queues)
        for step in range(channels):
            channel = (self._next + step) % channels
            if self._queues[channel] and not blocked[channel]:
                element, size = self._queues[channel].popleft()
                self._bytes[channel] -= size
                self._writable[channel].notify()
                self._next = channel + 1
                return channel, element
        return None

    def buffered_bytes(self, blocked: Sequence[bool]) -> int:
        """Return the bytes that wait in the queues of the blocked channels (ALN-3)."""
        with self._lock:
            return sum(size for size, held in zip(self._bytes, blocked, strict=True) if held)
