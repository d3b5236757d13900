"""What faults can hit on a real cluster: executors and Python workers by signals, hosts, and connections by proxies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barrier_tck.faults.targets import LinkTarget, NoTargets, Peers
from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.host_targets import (
    ExecutorOnHost,
    ExecutorWithoutMemory,
    LastingLoss,
    LinkOfHost,
    LostHost,
)
from barrier_tck.harness.cluster.signalled_process import Lose, SignalledProcess
from barrier_tck.harness.reference.copy_targets import LocalCopies, MetadataWrites, PrimaryCopies
from barrier_tck.harness.reference.failing_snapshots import FailingSnapshots, Failures
from barrier_tck.harness.reference.repeated_messages import RepeatableMessages
from barrier_tck.harness.reference.spark.disks import JobDisks
from barrier_tck.harness.reference.spark.executor_memories import ExecutorMemories
from barrier_tck.harness.reference.spark.proxied_network import ProxiedLink, ProxyNetwork
from barrier_tck.harness.reference.spark.remote_job import RemoteJob
from barrier_tck.harness.reference.spark.spark_watcher import SparkWatcher
from barrier_tck.harness.reference.spark.storage_services import TrialStore
from barrier_tck.reference_impl.ids import SubtaskId


class DriverOfJob(SignalledProcess):
    """The driver's process with its JVM; implements ``barrier_tck.faults.targets.StorageUser``."""

    def __init__(
        self, job: RemoteJob, pid: int, on_kill: Callable[[], None], lose: Lose | None = None
    ) -> None:
        super().__init__(pid, f"driver process (pid {pid})", on_kill, with_children=True, lose=lose)
        self._job = job
        self._pid = pid

    def kill(self, lose_unsynced: bool = False) -> None:
        """Kill it; the job resumes in another process. Raises TargetGone if it was dead already."""
        with self._job.killing(self._pid):
            super().kill(lose_unsynced)

    def hide_storage(self, duration_ms: int) -> None:
        """Let its successor's reads fail for this long after it starts."""
        self._job.hide_storage(duration_ms)


@dataclass(frozen=True)
class Exposed:
    """What a trial exposes besides its processes and hosts."""

    copies: JobDisks | ExecutorMemories | None
    """Where local copies are: on the workers' own disks, or in the memory of executors; None: no local recovery."""
    primaries: Callable[[str], PrimaryCopies | None]
    """Subtask -> its part of the latest completed checkpoint, if that is in files."""
    metadata: Callable[[], MetadataWrites | None]
    network: ProxyNetwork | None
    """None: no connection can be disturbed."""
    messages: Callable[[str], RepeatableMessages]
    lose: Lose | None
    """Loses the unsynced writes of killed processes."""
    store: TrialStore | None
    """The service that holds the checkpoints; None if they are in files, or elsewhere."""
    failures: Failures | None
    """Which snapshots fail; None if the plan lets none of them fail."""


class SparkTargets(NoTargets):
    """Hands out targets; implements ``barrier_tck.faults.targets.Targets``."""

    def __init__(
        self, watcher: SparkWatcher, job: RemoteJob, cluster: Cluster, workers: int, exposed: Exposed
    ) -> None:
        """Look up subtasks in what ``watcher`` knows at that moment; ``workers`` is the number of Spark workers."""
        self._watcher = watcher
        self._job = job
        self._cluster = cluster
        self._workers = workers
        self._exposed = exposed
        self._network, self._lose = exposed.network, exposed.lose
        self._lost: list[LastingLoss] = []

    def local_copies_of(self, subtask: str) -> LocalCopies | None:
        """Return the copies of a subtask wherever they are kept; None without local recovery."""
        return self._exposed.copies.copies_of(subtask) if self._exposed.copies is not None else None

    def primary_of(self, subtask: str) -> PrimaryCopies | None:
        """Return a subtask's part of the latest completed checkpoint; None if that is not in files."""
        return self._exposed.primaries(subtask)

    def metadata(self) -> MetadataWrites | None:
        """Return the writes that make checkpoints complete; None if they do not go to files."""
        return self._exposed.metadata()

    def object_store(self) -> TrialStore | None:
        """Return the service that holds the checkpoints; None if they are in files, or elsewhere."""
        return self._exposed.store

    def snapshots_of(self, subtask: str) -> FailingSnapshots | None:
        failures = self._exposed.failures
        return FailingSnapshots(failures, subtask) if failures is not None else None

    def messages_of(self, subtask: str) -> RepeatableMessages | None:
        """Return the messages about checkpoints between a subtask and the coordinator."""
        return self._exposed.messages(subtask)

    def executor_of(self, subtask: str) -> SignalledProcess | None:
        """Return the executor JVM that hosts a subtask now; pausing it pauses its host, if that can be hit."""
        where = self._watcher.processes.get(SubtaskId.parse(subtask))
        if where is None or not where.executor_pid:
            return None
        text = f"executor {where.executor_id} (pid {where.executor_pid}) on {where.host}"
        host = self._cluster.host(where.host)
        if host is not None:
            return ExecutorOnHost(where.executor_pid, text, self._watcher.note_kill, host, self._lose)
        return SignalledProcess(
            where.executor_pid, text, self._watcher.note_kill, with_children=True, lose=self._lose
        )

    def worker_of(self, subtask: str) -> SignalledProcess | None:
        """Return the Python worker that runs a subtask now."""
        where = self._watcher.processes.get(SubtaskId.parse(subtask))
        if where is None:
            return None
        text = f"Python worker of {subtask} (pid {where.worker_pid}) on {where.host}"
        return SignalledProcess(where.worker_pid, text, self._watcher.note_kill)

    def coordinator(self) -> DriverOfJob | None:
        """Return the driver's process, in which the coordinator lives; None while another one starts."""
        pid = self._job.pid
        return DriverOfJob(self._job, pid, self._watcher.note_kill, self._lose) if pid is not None else None

    def host_of(self, subtask: str) -> LostHost | None:
        """Return the host of a subtask's executor, with its local files."""
        executor, address = self.executor_of(subtask), self._host(subtask)
        directory = self._cluster.local_directory(address) if address is not None else None
        if executor is None or address is None or directory is None:
            return None
        return LostHost(executor, directory, self._cluster.host(address))

    def lasting_loss_of(self, subtask: str) -> LastingLoss | None:
        """Return the executor of a subtask, which nothing replaces until ``replace_lost``; None if it is the last."""
        executor, address = self.executor_of(subtask), self._host(subtask)
        worker = self._cluster.worker_at(address) if address is not None else None
        if executor is None or address is None or worker is None or len(self._lost) + 1 >= self._workers:
            return None
        spark_worker = SignalledProcess(worker, f"Spark worker (pid {worker})", lambda: None)
        self._lost.append(LastingLoss(executor, spark_worker, self._cluster.host(address)))
        return self._lost[-1]

    def memory_of(self, subtask: str) -> ExecutorWithoutMemory | None:
        """Return the executor of a subtask, if its host has a memory limit."""
        where, executor = self._watcher.processes.get(SubtaskId.parse(subtask)), self.executor_of(subtask)
        host = self._cluster.host(where.host) if where is not None else None
        if where is None or executor is None or host is None:
            return None
        return ExecutorWithoutMemory(executor, where.executor_pid, host)

    def replace_lost(self) -> None:
        """Let Spark start other executors in the place of those that were lost for good: the trial is over."""
        lost, self._lost = self._lost, []
        for loss in lost:
            loss.undo()

    def link(self, sender: str, receiver: str) -> ProxiedLink | None:
        """Return the connection between two subtasks, or a subtask's to the coordinator."""
        return (
            self._network.link(sender, receiver)
            if self._network is not None and self._watcher.processes
            else None
        )

    def links_of_executor(self, subtask: str, peers: Peers) -> tuple[LinkTarget, ...] | None:
        """Return the connections between the host of a subtask and its peers."""
        return self.links_between_halves([subtask], peers)

    def links_between_halves(
        self, subtasks: Sequence[str], peers: Peers = Peers.EVERYONE
    ) -> tuple[LinkTarget, ...] | None:
        """Return the connections between the hosts of some subtasks and all others, or only these peers."""
        hosts = [host for subtask in subtasks if (host := self._host(subtask)) is not None]
        if not hosts or len(hosts) < len(subtasks):
            return None
        links = self._network.links_of_hosts(hosts, peers) if self._network is not None else None
        alone = self._cluster.host(hosts[0]) if len(set(hosts)) == 1 and peers is Peers.EVERYONE else None
        return links if alone is None else (LinkOfHost(alone, links or ()),)

    def _host(self, subtask: str) -> str | None:
        where = self._watcher.processes.get(SubtaskId.parse(subtask))
        return where.host if where is not None else None
