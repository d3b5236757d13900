"""What decides the order of steps in a simulated world: time, and numbers that are drawn."""

from __future__ import annotations

import random
from typing import Protocol

from barrier_tck.harness.reference.simulated.randomness import stream
from barrier_tck.harness.reference.simulated.scheduler import Scheduler


class Order(Protocol):
    """Supplies a world with its scheduler and its streams; each world needs one of its own."""

    @property
    def scheduler(self) -> Scheduler:
        """Return the scheduler of all steps."""

    def stream(self, name: str) -> random.Random:
        """Return the named stream of numbers from 0 to 1: for latencies and choices."""


class SeededOrder:
    """Everything is drawn from named streams of one seed."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler()
        self._seed = seed

    def stream(self, name: str) -> random.Random:
        return stream(self._seed, name)
