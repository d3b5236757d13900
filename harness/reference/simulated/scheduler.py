"""Virtual time and the order of steps.

Contract: a step runs at its time; of two steps with the same time, the one that was scheduled first runs first. Only
steps move time, and no wall clock is read.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Scheduler:
    """An event queue in virtual milliseconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stopped = False
        """Set by a step to end ``run`` after it."""
        self.timed_out = False
        """Whether ``run`` ended at its bound, with something left to do."""
        self._until_ms = 0.0
        self._sequence = 0
        self._queue: list[tuple[float, int, Callable[..., None], Any]] = []

    @property
    def steps(self) -> int:
        """Return how many steps have run."""
        return self._sequence - len(self._queue)

    def now_ms(self) -> float:
        """Return the virtual time."""
        return self.now

    def at(self, time_ms: float, action: Callable[..., None], argument: Any = None) -> None:
        """Run ``action(argument)`` at a time; a time in the past means now, after what is due now."""
        if time_ms < self.now:
            time_ms = self.now
        self._sequence = sequence = self._sequence + 1
        heappush(self._queue, (time_ms, sequence, action, argument))

    def run(self, until_ms: float) -> bool:
        """Run steps until one sets ``stopped``; return False if time or work ran out before."""
        self._until_ms = until_ms
        queue = self._queue
        while queue and not self.stopped:
            if queue[0][0] > until_ms:
                self.now, self.timed_out = until_ms, True
                break
            self.now, _, action, argument = heappop(queue)
            action(argument)
        return self.stopped

    def run_while(self, waiting: Callable[[], bool]) -> bool:
        """Run further steps in the middle of a step, as long as ``waiting()``; return False if the run ends before.

        So a step can stand still while the world goes on. Several such steps continue in the reverse order in which
        they stopped.
        """
        queue = self._queue
        while waiting():
            if self.stopped or not queue or queue[0][0] > self._until_ms:
                return False
            self.now, _, action, argument = heappop(queue)
            action(argument)
        return True

    def clear(self) -> None:
        """Forget all scheduled steps."""
        self._sequence -= len(self._queue)
        self._queue.clear()
