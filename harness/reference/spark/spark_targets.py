"""What faults can hit on a real cluster: executors and Python workers by signals, hosts, and connections by proxies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from barrier_tck.faults.targets import LinkTarget, NoTargets, Peers
from barrier_tck.harness.cluster.host import Host
from barrier_tck.harness.cluster.host_targets import (
    ExecutorOnHost,
    ExecutorWithoutMemory,
    LastingLoss,
    LinkOfHost,
    LostHost,
)
from barrier_tck.harness.cluster.signalled_process import Lose, SignalledProcess
from barrier_tck.harness.reference.copy_targets import LocalCopies, MetadataWrites, PrimaryCopies
from barrier_tck.harness.reference.repeated_messages import RepeatableMessages
from barrier_tck.harness.reference.spark.disks import JobDisks
from barrier_tck.harness.reference.spark.executor_memories import ExecutorMemories
from barrier_tck.harness.reference.spark.proxied_network import ProxiedLink, ProxyNetwork
from barrier_tck.harness.reference.spark.remote_job import RemoteJob
from barrier_tck.harness.reference.spark.storage_services import TrialStore
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.spark.spark_observer import SubtaskProcess


class DriverOfJob(SignalledProcess):
    """The driver's process with its JVM; implements ``barrier_tck.faults.targets.StorageUser``."""

    def __init__(
        self, job: RemoteJob, pid: int, on_kill: Callable[[], None], lose: Lose | None = None
    ) -> None:
        """Take the job that resumes after the kill."""
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


class SparkTargets(NoTargets):
    """Hands out targets; implements ``barrier_tck.faults.targets.Targets``."""

    def __init__(
        self,
        processes: Callable[[], Mapping[SubtaskId, SubtaskProcess]],
        on_kill: Callable[[], None],
        job: RemoteJob,
        disks: JobDisks | ExecutorMemories,
        primaries: Callable[[str], PrimaryCopies] | None,
        metadata: Callable[[], MetadataWrites] | None,
        local_recovery: bool,
        local_directory: Callable[[str], Path | None],
        hosts: Callable[[str], Host | None],
        worker_at: Callable[[str], int | None],
        workers: int,
        network: ProxyNetwork | None = None,
        messages: Callable[[str], RepeatableMessages] | None = None,
        lose: Lose | None = None,
        store: TrialStore | None = None,
    ) -> None:
        """Look up subtasks in what ``processes()`` returns at that moment; ``disks`` is where
        local copies are: on the workers' own disks, or in the memory of executors.

        ``local_directory`` returns a host's directory for local files, None for a host that is no worker's, and
        ``hosts`` a host that can be hit as a whole, None where workers are just processes. ``worker_at`` returns the
        pid of the Spark worker of a host, and ``workers`` is their number. Without a ``network`` no connection is
        exposed.
        """
        self._processes = processes
        self._on_kill = on_kill
        self._job = job
        self._disks = disks
        self._primaries = primaries
        self._metadata = metadata
        self._local_recovery = local_recovery
        self._local_directory = local_directory
        self._hosts = hosts
        self._worker_at = worker_at
        self._workers = workers
        self._lost: list[LastingLoss] = []
        self._network = network
        self._messages = messages
        self._lose = lose
        self._store = store

    def local_copies_of(self, subtask: str) -> LocalCopies | None:
        """Return the copies of a subtask wherever they are kept; None without local recovery."""
        return self._disks.copies_of(subtask) if self._local_recovery else None

    def primary_of(self, subtask: str) -> PrimaryCopies | None:
        """Return a subtask's part of the latest completed checkpoint; None if that is not in files."""
        return self._primaries(subtask) if self._primaries is not None else None

    def metadata(self) -> MetadataWrites | None:
        """Return the writes that make checkpoints complete; None if they do not go to files."""
        return self._metadata() if self._metadata is not None else None

    def object_store(self) -> TrialStore | None:
        """Return the service that holds the checkpoints; None if they are in files, or elsewhere."""
        return self._store

    def messages_of(self, subtask: str) -> RepeatableMessages | None:
        """Return the messages about checkpoints between a subtask and the coordinator."""
        return self._messages(subtask) if self._messages is not None else None

    def executor_of(self, subtask: str) -> SignalledProcess | None:
        """Return the executor JVM that hosts a subtask now; pausing it pauses its host, if that can be hit."""
        where = self._processes().get(SubtaskId.parse(subtask))
        if where is None or not where.executor_pid:
            return None
        text = f"executor {where.executor_id} (pid {where.executor_pid}) on {where.host}"
        host = self._hosts(where.host)
        if host is not None:
            return ExecutorOnHost(where.executor_pid, text, self._on_kill, host, self._lose)
        return SignalledProcess(where.executor_pid, text, self._on_kill, with_children=True, lose=self._lose)

    def worker_of(self, subtask: str) -> SignalledProcess | None:
        """Return the Python worker that runs a subtask now."""
        where = self._processes().get(SubtaskId.parse(subtask))
        if where is None:
            return None
        text = f"Python worker of {subtask} (pid {where.worker_pid}) on {where.host}"
        return SignalledProcess(where.worker_pid, text, self._on_kill)

    def coordinator(self) -> DriverOfJob | None:
        """Return the driver's process, in which the coordinator lives; None while another one starts."""
        pid = self._job.pid
        return DriverOfJob(self._job, pid, self._on_kill, self._lose) if pid is not None else None

    def host_of(self, subtask: str) -> LostHost | None:
        """Return the host of a subtask's executor, with its local files."""
        executor, address = self.executor_of(subtask), self._host(subtask)
        directory = self._local_directory(address) if address is not None else None
        if executor is None or address is None or directory is None:
            return None
        return LostHost(executor, directory, self._hosts(address))

    def lasting_loss_of(self, subtask: str) -> LastingLoss | None:
        """Return the executor of a subtask, which nothing replaces until ``replace_lost``; None if it is the last."""
        executor, address = self.executor_of(subtask), self._host(subtask)
        worker = self._worker_at(address) if address is not None else None
        if executor is None or address is None or worker is None or len(self._lost) + 1 >= self._workers:
            return None
        spark_worker = SignalledProcess(worker, f"Spark worker (pid {worker})", lambda: None)
        self._lost.append(LastingLoss(executor, spark_worker, self._hosts(address)))
        return self._lost[-1]

    def memory_of(self, subtask: str) -> ExecutorWithoutMemory | None:
        """Return the executor of a subtask, if its host has a memory limit."""
        where, executor = self._processes().get(SubtaskId.parse(subtask)), self.executor_of(subtask)
        host = self._hosts(where.host) if where is not None else None
        if where is None or executor is None or host is None:
            return None
        return ExecutorWithoutMemory(executor, where.executor_pid, host)

    def replace_lost(self) -> None:
        """Let Spark start other executors in the place of those that were lost for good: the trial is over."""
        lost, self._lost = self._lost, []
        for one in lost:
            one.undo()

    def link(self, sender: str, receiver: str) -> ProxiedLink | None:
        """Return the connection between two subtasks, or a subtask's to the coordinator."""
        return (
            self._network.link(sender, receiver) if self._network is not None and self._processes() else None
        )

    def links_of_executor(self, subtask: str, peers: Peers) -> tuple[LinkTarget, ...] | None:
        """Return the connections between the host of a subtask and its peers."""
        return self.links_between_halves([subtask], peers)

    def links_between_halves(
        self, subtasks: Sequence[str], peers: Peers = Peers.EVERYONE
    ) -> tuple[LinkTarget, ...] | None:
        """Return the connections between the hosts of some subtasks and everybody else, or only these peers."""
        hosts = [host for subtask in subtasks if (host := self._host(subtask)) is not None]
        if self._network is None or len(hosts) < len(subtasks):
            return None
        links = self._network.links_of_hosts(hosts, peers)
        alone = self._hosts(hosts[0]) if len(set(hosts)) == 1 and peers is Peers.EVERYONE else None
        return links if alone is None else (LinkOfHost(alone, links),)

    def _host(self, subtask: str) -> str | None:
        where = self._processes().get(SubtaskId.parse(subtask))
        return where.host if where is not None else None
