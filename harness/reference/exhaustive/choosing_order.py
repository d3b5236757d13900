"""The order of steps in a world that is searched: nothing is drawn, and a search says what comes next."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.harness.reference.simulated.subtask_processes import SimulatedSubtask
from barrier_tck.harness.support.errors import InternalError

_STEP = SimulatedSubtask._step

Entry = tuple[float, int, Callable[..., None], Any]
"""(time, number, action, argument), as in the scheduler's queue."""


class ChoosingScheduler(Scheduler):
    """A queue of what may happen; whoever searches takes entries from it.

    Time is logical: messages take none, and it advances only if nothing else is left to do, or when a timer goes off
    that the scope lets go off at any time. The next step of a subtask is no entry: subtasks are asked directly.
    """

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        """Everything that is scheduled, in the order in which it was."""
        self._numbers = 0
        self._taken = 0

    @property
    def steps(self) -> int:
        return self._taken

    def at(self, time_ms: float, action: Callable[..., None], argument: Any = None) -> None:
        if getattr(action, "__func__", None) is _STEP:
            return
        self._numbers += 1
        self.entries.append((max(time_ms, self.now), self._numbers, action, argument))

    def tick(self) -> None:
        """Note that a step is taken."""
        self._taken += 1

    def fire(self, entry: Entry) -> None:
        """Do what was scheduled; a timer that goes off early takes its time with it."""
        self.entries.remove(entry)
        self.now = max(self.now, entry[0])
        entry[2](entry[3])

    def advance(self, until_ms: float) -> None:
        """Let time pass until the next entry is due; a run that reaches its bound is over."""
        due = min((entry[0] for entry in self.entries), default=math.inf)
        if due > until_ms:
            self.now, self.timed_out, self.stopped = until_ms, True, True
        else:
            self.now = due

    def clear(self) -> None:
        self.entries.clear()

    def run_while(self, waiting: Callable[[], bool]) -> bool:
        raise InternalError("a process is paused in the middle of a step in a world that is searched")


class Chosen(random.Random):
    """The numbers that would be drawn: none, except which of its steps a subtask takes next."""

    def __init__(self) -> None:
        self.number = 0.0

    def random(self) -> float:
        return self.number

    def __reduce__(self) -> Any:
        """Copy the number and not the generator."""
        return _chosen, (self.number,)


def _chosen(number: float) -> Chosen:
    chosen = Chosen()
    chosen.number = number
    return chosen


class ChoosingOrder:
    """An order without a seed."""

    def __init__(self) -> None:
        self.scheduler = ChoosingScheduler()
        self.choice = Chosen()
        self._nothing = Chosen()

    def stream(self, name: str) -> random.Random:
        return self.choice if name == "choices" else self._nothing

    def sending(self, process: str) -> random.Random:
        return self.stream("network")
