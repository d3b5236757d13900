"""What all processes of a simulated world share, and the background tasks that they start."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.harness.reference.simulated.trace import Trace


@dataclass(frozen=True, slots=True)
class Environment:
    """Time, the trace, and how long things take (virtual ms)."""

    scheduler: Scheduler
    trace: Trace
    latency_ms: float
    """A message takes up to this many virtual milliseconds."""
    async_ms_max: float
    """The asynchronous part of a snapshot takes up to this many virtual milliseconds."""
    network_random: random.Random
    storage_random: random.Random
    take_late_ms: Callable[[], float] = lambda: 0.0
    """Returns by how much longer than usual storage took since it was asked last (virtual ms)."""

    def after_latency(
        self, action: Callable[..., None], argument: Any = None, not_before_ms: float = 0.0
    ) -> None:
        """Run ``action(argument)`` when a message that is sent now, or at ``not_before_ms``, would arrive."""
        delay = self.network_random.random() * self.latency_ms
        self.scheduler.at(max(self.scheduler.now, not_before_ms) + delay, action, argument)


class ProcessKilled(BaseException):
    """Unwinds the step of a process that was killed in the middle of it."""


class TaskOwner(Protocol):
    """A process that starts background tasks."""

    name: str
    alive: bool
    frozen: bool
    """Whether it is paused; then everything that comes has to wait."""

    def defer(self, action: Callable[..., None], argument: Any) -> None:
        """Do something once this process is resumed."""

    def guarded(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Run an action of the process; the process handles what it raises."""


_Job = tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]
"""A task, and the callback for its outcome."""


@runtime_checkable
class DiesInUploads(Protocol):
    """Checkpoint storage of a process that may die in the middle of what it stores."""

    def die_in(self, task: Callable[[], Any]) -> None:
        """Run a task until the process has sent a part of an upload, and let nothing more come from the process."""


class Background:
    """Runs the asynchronous parts of one process in virtual time; their outcomes arrive in a later step."""

    def __init__(self, environment: Environment, owner: TaskOwner, duration_ms_max: float) -> None:
        self._environment = environment
        self._owner = owner
        self._duration_ms_max = duration_ms_max
        self._waiting: list[_Job] = []
        """Tasks that have been submitted and not run, the first one first."""

    def submit(self, task: Callable[[], Any], on_done: Callable[[Any, BaseException | None], None]) -> None:
        """Run a task later, and report its outcome later still."""
        world = self._environment
        delay = world.storage_random.random() * self._duration_ms_max
        job = (task, on_done)
        self._waiting.append(job)
        world.scheduler.at(world.scheduler.now + delay, self._run, job)

    def die_with(self, storage: object) -> None:
        """Let the tasks die in the middle, together with their owner: their uploads stay unfinished (STA-2)."""
        waiting, self._waiting = self._waiting, []
        if waiting and isinstance(storage, DiesInUploads):
            for task, _ in waiting:
                storage.die_in(task)

    def _run(self, job: _Job) -> None:
        if not self._owner.alive:
            return
        if self._owner.frozen:
            self._owner.defer(self._run, job)
            return
        self._waiting.remove(job)
        task, on_done = job
        world = self._environment
        world.trace.add((world.scheduler.now, self._owner.name, "background", None))
        result, error = None, None
        world.take_late_ms()
        try:
            result = task()
        except ProcessKilled:
            return
        except Exception as problem:  # noqa: BLE001 - the owner's driver decides what an error means
            error = problem
        delay = world.storage_random.random() * world.latency_ms + world.take_late_ms()
        world.scheduler.at(world.scheduler.now + delay, self._report, (on_done, result, error))

    def _report(self, outcome: tuple[Callable[..., None], Any, BaseException | None]) -> None:
        if self._owner.frozen:
            self._owner.defer(self._report, outcome)
        elif self._owner.alive:
            on_done, result, error = outcome
            self._owner.guarded(on_done, result, error)
