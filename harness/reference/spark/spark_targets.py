"""What faults can hit on a real cluster: executors and Python workers by signals, hosts, and connections by proxies."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from barrier_tck.faults.targets import NoTargets, Peers, TargetGone
from barrier_tck.harness.reference.copy_targets import LocalCopies, MetadataWrites, PrimaryCopies
from barrier_tck.harness.reference.repeated_messages import RepeatableMessages
from barrier_tck.harness.reference.spark.disks import JobDisks
from barrier_tck.harness.reference.spark.proxied_network import ProxiedLink, ProxyNetwork
from barrier_tck.harness.reference.spark.remote_job import RemoteJob
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.spark.spark_observer import SubtaskProcess

_SIGNAL_TIMEOUT_S = 5.0
_POLL_S = 0.002

Lose = Callable[[Sequence[int]], object]
"""Takes back what dead processes, given by their pids, wrote and did not sync."""


class SignalledProcess:
    """A process on this machine as a fault target; implements ``barrier_tck.faults.targets.PausableTarget``."""

    def __init__(
        self,
        pid: int,
        description: str,
        on_kill: Callable[[], None],
        with_children: bool = False,
        lose: Lose | None = None,
    ) -> None:
        """Take hold of a process; ``on_kill`` is called right after the signal is sent, ``lose`` takes back the
        unsynced writes of dead processes.

        ``with_children`` also hits the processes that it started. After the death of an executor's JVM alone, its
        Python workers would live on for up to a quarter of a second; when a container or host dies, they die with it.
        """
        self._paused: list[psutil.Process] = []
        self._description = description
        self._on_kill = on_kill
        self._with_children = with_children
        self._lose = lose
        try:
            self._process: psutil.Process | None = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._process = None

    @property
    def description(self) -> str:
        """Return what is hit, for the fault log."""
        return self._description

    def kill(self, lose_unsynced: bool = False) -> None:
        """Send SIGKILL and wait for the death; then take back what was not synced, if that is to be lost.

        Raises TargetGone if the process was dead already.
        """
        if lose_unsynced and self._lose is None:
            raise ValueError(f"nobody keeps a journal of what {self._description} did not sync")
        if self._process is None or self.is_dead():
            raise TargetGone(self._description)
        doomed = self._family(self._process)
        for process in doomed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._on_kill()
        # They are not our children, so there is no exit status to wait for: look until they are gone.
        _look_until(lambda: all(_is_dead(process) for process in doomed))
        if lose_unsynced and self._lose is not None:
            self._lose([process.pid for process in doomed])

    def is_dead(self) -> bool:
        """Tell whether the process is gone, or a zombie that nobody has reaped yet."""
        return self._process is None or _is_dead(self._process)

    def pause(self) -> None:
        """Send SIGSTOP and wait until it is stopped; raises TargetGone if it is dead."""
        if self._process is None or self.is_dead():
            raise TargetGone(self._description)
        # The parent first: then it can start no further children, so the list of them is complete.
        self._stop(self._process)
        for child in self._family(self._process)[1:]:
            self._stop(child)
        _look_until(self.is_paused)

    def resume(self) -> None:
        """Send SIGCONT to every process that was stopped. Harmless if it is dead or was not paused."""
        paused, self._paused = self._paused, []
        for process in paused:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def is_paused(self) -> bool:
        """Tell whether the system shows all of it as stopped (state T); processes that died while stopped do not
        count."""
        alive = [process for process in self._paused if not _is_dead(process)]
        return bool(alive) and all(_status(process) == psutil.STATUS_STOPPED for process in alive)

    def _stop(self, process: psutil.Process) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.suspend()
            self._paused.append(process)

    def _family(self, process: psutil.Process) -> list[psutil.Process]:
        family = [process]
        if self._with_children:
            with contextlib.suppress(psutil.NoSuchProcess):
                family += process.children(recursive=True)
        return family


def _look_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SIGNAL_TIMEOUT_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)


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


class LostHost:
    """An executor together with the local disk of its host; implements ``barrier_tck.faults.targets.ProcessTarget``."""

    def __init__(self, executor: SignalledProcess, local_directory: Path) -> None:
        """Take the executor, and its Spark worker's directory for local files."""
        self._executor = executor
        self._directory = local_directory
        self._wiped: list[Path] = []

    @property
    def description(self) -> str:
        """Return what is hit, for the fault log."""
        return f"{self._executor.description}, with the local files in {self._directory.parent.name}"

    def kill(self, lose_unsynced: bool = False) -> None:
        """Kill the executor, then remove the files that it left on its disk; raises TargetGone if it was already
        dead."""
        self._executor.kill(lose_unsynced)
        # The directories themselves belong to the Spark worker, which lives on and gives them to the next executor.
        kept = set(self._directory.glob("spark-*")) | set(self._directory.glob("spark-*/executor-*"))
        places = [self._directory, *sorted(kept)]
        self._wiped = [entry for place in places for entry in sorted(place.iterdir()) if entry not in kept]
        for entry in self._wiped:
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)

    def is_dead(self) -> bool:
        """Tell whether the executor is gone, and none of its files is left."""
        return self._executor.is_dead() and not any(entry.exists() for entry in self._wiped)


def _is_dead(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class SparkTargets(NoTargets):
    """Hands out targets; implements ``barrier_tck.faults.targets.Targets``."""

    def __init__(
        self,
        processes: Callable[[], Mapping[SubtaskId, SubtaskProcess]],
        on_kill: Callable[[], None],
        job: RemoteJob,
        disks: JobDisks,
        primaries: Callable[[str], PrimaryCopies],
        metadata: Callable[[], MetadataWrites],
        local_recovery: bool,
        local_directory: Callable[[str], Path | None],
        network: ProxyNetwork | None = None,
        messages: Callable[[str], RepeatableMessages] | None = None,
        lose: Lose | None = None,
    ) -> None:
        """Look up subtasks in what ``processes()`` returns at that moment; ``disks`` are the workers' own disks.

        ``local_directory`` returns a host's directory for local files, None for a host that is no worker's. Without a
        ``network`` no connection is exposed.
        """
        self._processes = processes
        self._on_kill = on_kill
        self._job = job
        self._disks = disks
        self._primaries = primaries
        self._metadata = metadata
        self._local_recovery = local_recovery
        self._local_directory = local_directory
        self._network = network
        self._messages = messages
        self._lose = lose

    def local_copies_of(self, subtask: str) -> LocalCopies | None:
        """Return the copies of a subtask on the workers' disks; None without local recovery."""
        return self._disks.copies_of(subtask) if self._local_recovery else None

    def primary_of(self, subtask: str) -> PrimaryCopies:
        """Return a subtask's part of the latest completed checkpoint."""
        return self._primaries(subtask)

    def metadata(self) -> MetadataWrites:
        """Return the writes that make checkpoints complete."""
        return self._metadata()

    def messages_of(self, subtask: str) -> RepeatableMessages | None:
        """Return the messages about checkpoints between a subtask and the coordinator."""
        return self._messages(subtask) if self._messages is not None else None

    def executor_of(self, subtask: str) -> SignalledProcess | None:
        """Return the executor JVM that hosts a subtask now."""
        where = self._processes().get(SubtaskId.parse(subtask))
        if where is None or not where.executor_pid:
            return None
        text = f"executor {where.executor_id} (pid {where.executor_pid}) on {where.host}"
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
        """Return the executor that hosts a subtask now, with its host's local files."""
        executor, host = self.executor_of(subtask), self._host(subtask)
        directory = self._local_directory(host) if host is not None else None
        return LostHost(executor, directory) if executor is not None and directory is not None else None

    def link(self, sender: str, receiver: str) -> ProxiedLink | None:
        """Return the connection between two subtasks, or a subtask's to the coordinator."""
        return (
            self._network.link(sender, receiver) if self._network is not None and self._processes() else None
        )

    def links_of_executor(self, subtask: str, peers: Peers) -> tuple[ProxiedLink, ...] | None:
        """Return the connections between the host of a subtask and its peers."""
        return self.links_between_halves([subtask], peers)

    def links_between_halves(
        self, subtasks: Sequence[str], peers: Peers = Peers.EVERYONE
    ) -> tuple[ProxiedLink, ...] | None:
        """Return the connections between the hosts of some subtasks and everybody else, or only these peers."""
        hosts = [host for subtask in subtasks if (host := self._host(subtask)) is not None]
        if self._network is None or len(hosts) < len(subtasks):
            return None
        return self._network.links_of_hosts(hosts, peers)

    def _host(self, subtask: str) -> str | None:
        where = self._processes().get(SubtaskId.parse(subtask))
        return where.host if where is not None else None
