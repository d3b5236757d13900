"""What faults can hit on a real cluster: executors and Python workers by signals, hosts, and connections by proxies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from barrier_tck.faults.targets import LinkTarget, NoTargets, Peers
from barrier_tck.harness.cluster.host import Host
from barrier_tck.harness.cluster.host_targets import ExecutorOnHost, LinkOfHost, LostHost
from barrier_tck.harness.cluster.signalled_process import Lose, SignalledProcess
from barrier_tck.harness.reference.copy_targets import LocalCopies, MetadataWrites, PrimaryCopies
from barrier_tck.harness.reference.repeated_messages import RepeatableMessages
from barrier_tck.harness.reference.spark.disks import JobDisks
from barrier_tck.harness.reference.spark.object_store import TrialStore
from barrier_tck.harness.reference.spark.proxied_network import ProxiedLink, ProxyNetwork
from barrier_tck.harness.reference.spark.remote_job import RemoteJob
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
        disks: JobDisks,
        primaries: Callable[[str], PrimaryCopies] | None,
        metadata: Callable[[], MetadataWrites] | None,
        local_recovery: bool,
        local_directory: Callable[[str], Path | None],
        hosts: Callable[[str], Host | None],
        network: ProxyNetwork | None = None,
        messages: Callable[[str], RepeatableMessages] | None = None,
        lose: Lose | None = None,
        store: TrialStore | None = None,
    ) -> None:
        """Look up subtasks in what ``processes()`` returns at that moment; ``disks`` are the workers' own disks.

        ``local_directory`` returns a host's directory for local files, None for a host that is no worker's, and
        ``hosts`` a host that can be hit as a whole, None where workers are just processes. Without a ``network`` no
        connection is exposed.
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
        self._network = network
        self._messages = messages
        self._lose = lose
        self._store = store

    def local_copies_of(self, subtask: str) -> LocalCopies | None:
        """Return the copies of a subtask on the workers' disks; None without local recovery."""
        return self._disks.copies_of(subtask) if self._local_recovery else None

    def primary_of(self, subtask: str) -> PrimaryCopies | None:
        """Return a subtask's part of the latest completed checkpoint; None if that is not in files."""
        return self._primaries(subtask) if self._primaries is not None else None

    def metadata(self) -> MetadataWrites | None:
        """Return the writes that make checkpoints complete; None if they do not go to files."""
        return self._metadata() if self._metadata is not None else None

    def object_store(self) -> TrialStore | None:
        """Return the store that holds the checkpoints; None if they are in files."""
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
