"""The targets of faults in the simulated world; they implement the protocols of ``barrier_tck.faults.targets``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from barrier_tck.faults.targets import COORDINATOR, Direction, Impairment, NoTargets, Peers, TargetGone
from barrier_tck.harness.plan.storage_targets import OF_THE_TRIAL
from barrier_tck.harness.reference.copy_targets import LocalCopies, MetadataWrites, PrimaryCopies
from barrier_tck.harness.reference.failing_snapshots import FailingSnapshots, Failures
from barrier_tck.harness.reference.forged_messages import Forger
from barrier_tck.harness.reference.repeated_messages import RepeatableMessages
from barrier_tck.harness.reference.simulated.executors import Lost
from barrier_tck.harness.reference.simulated.refused_deletions import Deletions
from barrier_tck.harness.reference.simulated.subtask_processes import SimulatedExecutor, SimulatedSubtask
from barrier_tck.harness.reference.simulated.world import SimulatedWorld
from barrier_tck.harness.reference.storage_service import ServiceTarget
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.local_copies import directory_of

_FLIPPED = {
    Direction.FORWARD: Direction.BACKWARD,
    Direction.BACKWARD: Direction.FORWARD,
    Direction.BOTH: Direction.BOTH,
}


class _ExecutorTarget:
    """A simulated executor as a fault target, with what is lost when it is killed."""

    def __init__(self, world: SimulatedWorld, executor: SimulatedExecutor, lost: Lost = Lost.PROCESS) -> None:
        self._world = world
        self._executor = executor
        self._lost = lost
        self._pauses = False

    @property
    def description(self) -> str:
        return f"{'' if self._lost is Lost.PROCESS else 'host of '}executor {self._executor.number}"

    def kill(self, lose_unsynced: bool = False) -> None:
        self._require_alive()
        self._world.kill_executor(self._executor, lose_unsynced, self._lost)

    def is_dead(self) -> bool:
        return not self._executor.alive

    def pause(self) -> None:
        self._require_alive()
        self._world.pause_executor(self._executor)
        self._pauses = True

    def resume(self) -> None:
        if self._pauses:
            self._pauses = False
            self._world.resume_executor(self._executor)

    def is_paused(self) -> bool:
        return self._executor.pauses > 0

    def _require_alive(self) -> None:
        if not self._executor.alive:
            raise TargetGone(self.description)


class _HostTarget(_ExecutorTarget):
    """The host of a simulated executor; implements ``barrier_tck.faults.targets.ReturningHost``."""

    def __init__(self, world: SimulatedWorld, executor: SimulatedExecutor) -> None:
        super().__init__(world, executor, Lost.HOST)

    def come_back(self) -> None:
        self._lost = Lost.HOST_THAT_RETURNS

    def is_back(self) -> bool:
        lost = self._executor.host
        host = self._world.executors.hosts.named(lost.name)
        return host is not None and host is not lost and not host.local.list_files("")


class _WorkerTarget:
    """The process of one simulated subtask as a fault target."""

    def __init__(self, world: SimulatedWorld, process: SimulatedSubtask) -> None:
        self._world = world
        self._process = process
        self._pauses = False

    @property
    def description(self) -> str:
        return f"worker of {self._process.name}"

    def kill(self, lose_unsynced: bool = False) -> None:
        self._require_alive()
        self._world.kill_process(self._process)

    def is_dead(self) -> bool:
        return not self._process.alive

    def pause(self) -> None:
        self._require_alive()
        self._process.pause()
        self._pauses = True

    def resume(self) -> None:
        if self._pauses:
            self._pauses = False
            self._process.resume()

    def is_paused(self) -> bool:
        return self._process.paused

    def _require_alive(self) -> None:
        if not self._process.alive:
            raise TargetGone(self.description)


class _CoordinatorTarget:
    """The simulated coordinator as a fault target."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._coordinator = world.coordinator
        self._unreadable_ms = 0
        self._from_savepoint = False

    @property
    def description(self) -> str:
        return self._coordinator.name

    def kill(self, lose_unsynced: bool = False) -> None:
        if not self._coordinator.alive:
            raise TargetGone(self.description)
        self._world.crash_coordinator(lose_unsynced, self._unreadable_ms, self._from_savepoint)

    def hide_storage(self, duration_ms: int) -> None:
        self._unreadable_ms = duration_ms

    def start_from_savepoint(self) -> None:
        self._from_savepoint = True

    def is_dead(self) -> bool:
        return not self._coordinator.alive


class _LinkTarget:
    """All present and future connections of a sender and a receiver, seen from either of them."""

    def __init__(
        self, world: SimulatedWorld, sender: str, receiver: str, from_receiver: bool = False
    ) -> None:
        self._world = world
        self._pair = (sender, receiver)
        self._from_receiver = from_receiver
        self._impairment: Impairment | None = None

    @property
    def description(self) -> str:
        sender, receiver = self._pair
        return f"{receiver} ← {sender}" if self._from_receiver else f"{sender} → {receiver}"

    def impair(self, impairment: Impairment) -> None:
        direction = _FLIPPED[impairment.direction] if self._from_receiver else impairment.direction
        self._impairment = replace(impairment, direction=direction)
        self._world.disturbances.add(self._pair, self._impairment)

    def is_impaired(self) -> bool:
        return self._impairment is not None and self._world.disturbances.holds(self._pair, self._impairment)

    def heal(self) -> None:
        impairment, self._impairment = self._impairment, None
        if impairment is not None:
            self._world.disturbances.remove(self._pair, impairment)


class SimulatedTargets(NoTargets):
    """The targets of one world; implements ``barrier_tck.faults.targets.Targets``."""

    def __init__(self, world: SimulatedWorld, failures: Failures | None = None) -> None:
        """Take the world, and the failures of snapshots: None if the plan lets no snapshot fail."""
        self._world = world
        self._failures = failures

    def executor_of(self, subtask: str) -> _ExecutorTarget | None:
        """Return the executor that hosts a subtask; while nothing is deployed, the one that hosted it last."""
        executor = self._world.hosting(subtask)
        return _ExecutorTarget(self._world, executor) if executor is not None else None

    def worker_of(self, subtask: str) -> _WorkerTarget | None:
        process = self._world.live(subtask)
        return _WorkerTarget(self._world, process) if process is not None else None

    def host_of(self, subtask: str) -> _HostTarget | None:
        executor = self._world.hosting(subtask)
        return _HostTarget(self._world, executor) if executor is not None else None

    def lasting_loss_of(self, subtask: str) -> _ExecutorTarget | None:
        """Return a subtask's executor, to be lost without a replacement; None if it is the last one that lasts."""
        executor = self._world.hosting(subtask)
        if executor is None or self._world.executors.lasting == 1:
            return None
        return _ExecutorTarget(self._world, executor, Lost.FOR_GOOD)

    def local_copies_of(self, subtask: str) -> LocalCopies | None:
        """Return the copies of a subtask on the hosts' disks; None without local recovery."""
        world, parsed = self._world, SubtaskId.parse(subtask)
        if not world.config.local_recovery:
            return None
        hosts, directory = world.executors.hosts.hosts, directory_of(parsed)

        def refuse() -> None:
            for host in hosts:
                host.local.full_for[directory] = None

        def refuse_some(files: int) -> Callable[[], bool]:
            for host in hosts:
                host.local.refused_next[directory] = files
            return lambda: any(host.local.refused_next[directory] < files for host in hosts)

        def obstruct(name: str, place: str) -> Callable[[], bool]:
            disk = next(host.local for host in hosts if host.name == name)
            disk.unreadable[place] = None
            return lambda: place in disk.unreadable

        return LocalCopies(
            parsed,
            {host.name: host.local.inner for host in hosts},
            refuse,
            lambda: all(directory in host.local.full_for for host in hosts),
            obstruct,
            refuse_some,
        )

    def primary_of(self, subtask: str) -> PrimaryCopies | None:
        """Return a subtask's part of the latest completed checkpoint; None if it is not on the simulated disk."""
        world = self._world
        if world.plan.checkpoints.storage not in OF_THE_TRIAL:
            return None
        files, failures = world.disk.host(), world.storage_faults.failures
        root = world.config.storage_root
        return PrimaryCopies(
            SubtaskId.parse(subtask),
            FileCheckpointStorage(files, world.graph.name, root),
            files,
            root,
            lambda checkpoints: failures.refuse(subtask, checkpoints) if failures is not None else None,
            lambda: failures is not None and failures.refuses(subtask),
        )

    def metadata(self) -> MetadataWrites | None:
        """Return the writes that make checkpoints complete; None if the plan lets none of them fail."""
        failures = self._world.storage_faults.failures
        return (
            MetadataWrites(failures.refuse_metadata, failures.refuses_metadata)
            if failures is not None
            else None
        )

    def messages_of(self, subtask: str) -> RepeatableMessages:
        """Return the messages about checkpoints between a subtask and the coordinator."""
        world = self._world
        job, root = world.graph.name, world.config.storage_root
        on_disk = world.plan.checkpoints.storage in OF_THE_TRIAL
        storage = FileCheckpointStorage if on_disk else world.components.checkpoint_storage
        forger = Forger(
            lambda: storage(world.disk.host(), job, root),
            world.graph.subtasks,
            world.receive_forged,
        )
        return RepeatableMessages(world.repeats, subtask, forger)

    def object_store(self) -> ServiceTarget | None:
        """Return the service that holds the checkpoints; None if they are in files, or outside the trial."""
        return self._world.storage_faults.target()

    def deletions(self) -> Deletions | None:
        """Return the coordinator's deletions; None if the plan lets none of them fail, or a storage service holds the
        files."""
        faults = self._world.storage_faults
        return faults.deletions if faults.service is None else None

    def snapshots_of(self, subtask: str) -> FailingSnapshots | None:
        return FailingSnapshots(self._failures, subtask) if self._failures is not None else None

    def coordinator(self) -> _CoordinatorTarget | None:
        """Return the coordinator, if it is alive."""
        return _CoordinatorTarget(self._world) if self._world.coordinator.alive else None

    def link(self, sender: str, receiver: str) -> _LinkTarget | None:
        """Return the connections of two subtasks, or of a subtask and the coordinator; None without a channel."""
        exists = receiver == COORDINATOR or (sender, receiver) in self._channels()
        return _LinkTarget(self._world, sender, receiver) if exists else None

    def links_of_executor(self, subtask: str, peers: Peers) -> Sequence[_LinkTarget] | None:
        """Return the connections between a subtask's executor and its peers; None if the subtask is not running."""
        process = self._world.live(subtask)
        if process is None:
            return None
        inside = self._hosted_by([process.executor])
        links = [] if peers is Peers.COORDINATOR else self._data_links(inside)
        return links if peers is Peers.EXECUTORS else links + self._control_links(inside)

    def links_between_halves(self, subtasks: Sequence[str]) -> Sequence[_LinkTarget] | None:
        """Return the connections between the executors of these subtasks and all other processes."""
        processes = [self._world.live(subtask) for subtask in subtasks]
        executors = [process.executor for process in processes if process is not None]
        if len(executors) < len(processes):
            return None
        inside = self._hosted_by(executors)
        return self._data_links(inside) + self._control_links(inside)

    def _channels(self) -> list[tuple[str, str]]:
        """Return each sender and receiver once, because a disturbance affects all channels between two subtasks."""
        channels = self._world.graph.channels
        return list(dict.fromkeys((str(channel.sender), str(channel.receiver)) for channel in channels))

    def _hosted_by(self, executors: Sequence[SimulatedExecutor]) -> list[str]:
        """Return the subtasks that run on any of the executors, upstream first."""
        found = []
        for subtask in map(str, self._world.graph.subtasks):
            process = self._world.processes.get(SubtaskId.parse(subtask))
            if process is not None and any(process.executor is executor for executor in executors):
                found.append(subtask)
        return found

    def _data_links(self, inside: Sequence[str]) -> list[_LinkTarget]:
        return [
            _LinkTarget(self._world, sender, receiver, from_receiver=receiver in inside)
            for sender, receiver in self._channels()
            if (sender in inside) != (receiver in inside)
        ]

    def _control_links(self, inside: Sequence[str]) -> list[_LinkTarget]:
        return [_LinkTarget(self._world, subtask, COORDINATOR) for subtask in inside]
