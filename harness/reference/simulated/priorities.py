"""Random priorities of processes, which change a few times: PCT (Burckhardt and others, 2010) in virtual time.

If each message draws its own latency, an order for which one process must be late again and again hardly ever comes.
Here a process is late all the time, until at one of a few change points another one becomes the latest. What is late
is delayed by no more than any message may be.
"""

from __future__ import annotations

import random

_FIRST_POINT_LOG2 = (2, 13)
"""A change point comes after so many draws, as a power of two: early or late ones are equally likely."""
_OWN_SHARE = 0.05
"""The part of a delay that is drawn for each message; the rest is that of its sender."""


class Priorities:
    """The priorities in one world."""

    def __init__(self, numbers: random.Random, change_points: int) -> None:
        self._numbers = numbers
        points = [round(2 ** numbers.uniform(*_FIRST_POINT_LOG2)) for _ in range(change_points)]
        self._points = dict.fromkeys(points)
        self._drawn = 0
        self._late: dict[str, float] = {}
        """Process -> how late what it sends is, from 0 to 1."""

    def of(self, process: str) -> random.Random:
        """Return the delays, from 0 to 1, of what a process sends; one that starts again keeps its priority."""
        self._late.setdefault(process, self._numbers.random())
        return _Late(self, process)

    def delay(self, process: str) -> float:
        """Return the next delay."""
        self._drawn += 1
        if self._drawn in self._points:
            self._late[process] = 1.0
        return (1 - _OWN_SHARE) * self._late[process] + _OWN_SHARE * self._numbers.random()


class _Late(random.Random):
    """The numbers of one process."""

    def __init__(self, priorities: Priorities, process: str) -> None:
        super().__init__(0)
        self._priorities, self._process = priorities, process

    def random(self) -> float:
        return self._priorities.delay(self._process)
