"""What can be hit in the simulated world, as the structural targets of ``faults.targets``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.targets import NoTargets, TargetGone
from harness.simulator.process import SimulatedExecutor, SimulatedSubtask
from harness.suts.state_copies import LocalCopies, PrimaryCopies
from reference_impl.ids import SubtaskId
from reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from reference_impl.storage.local_recovery import directory_of

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


class _HostTarget(_ExecutorTarget):
    """The host of a simulated executor: it goes with its disk."""

    @property
    def description(self) -> str:
        return f"{self._executor.host.name} with executor {self._executor.number}"

    def kill(self, lose_unsynced: bool = False) -> None:
        if not self._executor.alive:
            raise TargetGone(self.description)
        self._world.kill_executor(self._executor, lose_unsynced, lose_host=True)


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

    def host_of(self, subtask: str) -> _HostTarget | None:
        """Return the host of a subtask now."""
        process = self._world.live(subtask)
        return _HostTarget(self._world, process.executor) if process is not None else None

    def local_copies_of(self, subtask: str) -> LocalCopies | None:
        """Return the copies of a subtask on the hosts' disks, with local recovery on."""
        world, parsed = self._world, SubtaskId.parse(subtask)
        if not world.config.local_recovery:
            return None
        hosts, directory = world.hosts.hosts, directory_of(parsed)

        def refuse() -> None:
            for host in hosts:
                host.local.full_for[directory] = None

        return LocalCopies(
            parsed,
            {host.name: host.local.inner for host in hosts},
            refuse,
            lambda: all(directory in host.local.full_for for host in hosts),
        )

    def primary_of(self, subtask: str) -> PrimaryCopies | None:
        """Return a subtask's part of the latest completed checkpoint."""
        world = self._world
        files, failures = world.disk.host(), world.primary_failures
        root = world.config.storage_root
        return PrimaryCopies(
            SubtaskId.parse(subtask),
            FileCheckpointStorage(files, world.graph.name, root),
            files,
            root,
            lambda checkpoints: failures.refuse(subtask, checkpoints) if failures is not None else None,
            lambda: failures is not None and failures.refuses(subtask),
        )

    def coordinator(self) -> _CoordinatorTarget | None:
        """Return the coordinator, if it lives."""
        return _CoordinatorTarget(self._world) if self._world.coordinator.alive else None
