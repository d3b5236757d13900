"""What can be hit in the simulated world, as the structural targets of ``faults.targets``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.targets import NoTargets, TargetGone
from harness.simulator.process import SimulatedExecutor, SimulatedSubtask

if TYPE_CHECKING:
    from harness.simulator.world import SimulatedWorld


class _ExecutorTarget:
    """A simulated executor as a fault target."""

    def __init__(self, world: SimulatedWorld, executor: SimulatedExecutor) -> None:
        self._world = world
        self._executor = executor

    @property
    def description(self) -> str:
        return f"executor {self._executor.number}"

    def kill(self, lose_unsynced: bool = False) -> None:
        if not self._executor.alive:
            raise TargetGone(self.description)
        self._world.kill_executor(self._executor, lose_unsynced)

    def is_dead(self) -> bool:
        return not self._executor.alive


class _WorkerTarget:
    """The process of one simulated subtask as a fault target."""

    def __init__(self, world: SimulatedWorld, process: SimulatedSubtask) -> None:
        self._world = world
        self._process = process

    @property
    def description(self) -> str:
        return f"worker of {self._process.name}"

    def kill(self, lose_unsynced: bool = False) -> None:
        if not self._process.alive:
            raise TargetGone(self.description)
        self._world.kill_process(self._process)

    def is_dead(self) -> bool:
        return not self._process.alive


class _CoordinatorTarget:
    """The simulated coordinator as a fault target."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._coordinator = world.coordinator

    @property
    def description(self) -> str:
        return self._coordinator.name

    def kill(self, lose_unsynced: bool = False) -> None:
        if not self._coordinator.alive:
            raise TargetGone(self.description)
        self._world.crash_coordinator(lose_unsynced)

    def is_dead(self) -> bool:
        return not self._coordinator.alive


class SimulatedTargets(NoTargets):
    """Hands out targets; implements ``faults.targets.Targets``."""

    def __init__(self, world: SimulatedWorld) -> None:
        """Expose a world."""
        self._world = world

    def executor_of(self, subtask: str) -> _ExecutorTarget | None:
        """Return the executor that hosts a subtask now."""
        process = self._world.live(subtask)
        return _ExecutorTarget(self._world, process.executor) if process is not None else None

    def worker_of(self, subtask: str) -> _WorkerTarget | None:
        """Return the process of a subtask."""
        process = self._world.live(subtask)
        return _WorkerTarget(self._world, process) if process is not None else None

    def coordinator(self) -> _CoordinatorTarget | None:
        """Return the coordinator, if it lives."""
        return _CoordinatorTarget(self._world) if self._world.coordinator.alive else None
