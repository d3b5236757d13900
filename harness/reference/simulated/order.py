"""What decides the order of steps in a simulated world: time, and numbers that are drawn."""

from __future__ import annotations

import random
from typing import Protocol

from barrier_tck.harness.reference.simulated.priorities import Priorities
from barrier_tck.harness.reference.simulated.randomness import stream
from barrier_tck.harness.reference.simulated.scheduler import Scheduler


class Order(Protocol):
    """Supplies a world with its scheduler and its streams; each world needs one of its own."""

    @property
    def scheduler(self) -> Scheduler:
        """Return the scheduler of all steps."""

    def stream(self, name: str) -> random.Random:
        """Return the named stream of numbers from 0 to 1: for latencies and choices."""

    def sending(self, process: str) -> random.Random:
        """Return the numbers from which the latencies of what a process sends are drawn."""


class SeededOrder:
    """Everything is drawn from named streams of one seed."""

    def __init__(self, seed: int, change_points: int | None = None) -> None:
        """``change_points``: how often priorities of processes change; None: they have none."""
        self.scheduler = Scheduler()
        self._seed = seed
        self._streams: dict[str, random.Random] = {}
        self._priorities = (
            None if change_points is None else Priorities(stream(seed, "priorities"), change_points)
        )

    def stream(self, name: str) -> random.Random:
        return self._streams.setdefault(name, stream(self._seed, name))

    def sending(self, process: str) -> random.Random:
        return self.stream("network") if self._priorities is None else self._priorities.of(process)
