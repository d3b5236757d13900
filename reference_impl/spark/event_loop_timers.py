"""The timers of one subtask: set and due on the thread of its loop."""

from __future__ import annotations

import heapq

from barrier_tck.reference_impl.runtime.ports import Clock


class EventLoopTimers:
    """The ``Timers`` port of a subtask; its loop asks when the next one is due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_ms: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, name: str, at_ms: float) -> None:
        """Have a timer go off at a time; a timer of the same name is replaced."""
        self._at_ms[name] = at_ms
        heapq.heappush(self._heap, (at_ms, name))

    def due_in_s(self) -> float | None:
        """Return the seconds until the next timer is due, 0 or less if it is, or None if none is set."""
        while self._heap and self._at_ms.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return (self._heap[0][0] - self._clock.now_ms()) / 1000.0 if self._heap else None

    def pop(self) -> str:
        """Take out the next timer, which must exist, and return its name."""
        _, name = heapq.heappop(self._heap)
        del self._at_ms[name]
        return name
