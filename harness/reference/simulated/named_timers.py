"""The timers of one simulated process."""

from __future__ import annotations

from collections.abc import Callable

from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.reference_impl.runtime.subtask_timers import OF_OPERATORS

LATE_MS_MAX = 12.0
"""A timer of an operator goes off up to this much after its time (virtual ms): a real thread has other work, too."""


class NamedTimers:
    """A ``Timers`` port: a timer replaces the one of the same name that has not gone off."""

    def __init__(
        self, scheduler: Scheduler, due: Callable[[str], None], late: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._scheduler = scheduler
        self._due = due
        self._late = late
        self._numbers: dict[str, int] = {}
        self._count = 0

    def set(self, name: str, at_ms: float) -> None:
        """Have a timer go off at a time."""
        self._count += 1
        self._numbers[name] = self._count
        if name == OF_OPERATORS:
            at_ms = max(at_ms, self._scheduler.now) + self._late() * LATE_MS_MAX
        self._scheduler.at(at_ms, self._fire, (name, self._count))

    def _fire(self, timer: tuple[str, int]) -> None:
        name, number = timer
        if self._numbers.get(name) == number:
            del self._numbers[name]
            self._due(name)
