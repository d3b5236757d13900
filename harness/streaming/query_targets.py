"""What faults can hit while a query runs: its driver, the executors, the Python workers of tasks, and storage."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

import psutil

from barrier_tck.faults.targets import NoTargets, Peers
from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.host_targets import (
    ExecutorOnHost,
    ExecutorWithoutMemory,
    LinkOfHost,
    LostHost,
)
from barrier_tck.harness.cluster.process_identity import ExecutorProcess
from barrier_tck.harness.cluster.signalled_process import SignalledProcess
from barrier_tck.harness.streaming.checkpoint_outages import COMMITS, CheckpointOutages, RefusedWrites
from barrier_tck.harness.streaming.disturbed_writes import DisturbedWrites, WritesOfOneFault

TASKS = "tasks"
"""The one subtask of a query: whichever task stands at a point, or began last."""


class DriverOfQuery(SignalledProcess):
    """The driver's process with its JVM; implements ``barrier_tck.faults.targets.StorageUser``."""

    def __init__(self, pid: int, storage: CheckpointOutages) -> None:
        super().__init__(pid, f"driver process (pid {pid})", lambda: None, with_children=True)
        self._storage = storage

    def hide_storage(self, duration_ms: int) -> None:
        """Let the checkpoint directory be gone until this long after a successor starts."""
        self._storage.hide(duration_ms)


class QueryTargets(NoTargets):
    """Implements ``barrier_tck.faults.targets.Targets`` for one trial."""

    def __init__(
        self,
        cluster: Cluster,
        driver: Callable[[], int | None],
        application: Callable[[], str | None],
        storage: CheckpointOutages,
        writes: DisturbedWrites | None = None,
    ) -> None:
        """Take the cluster, what returns the pid of the driver (None while there is none) and the id of its
        application, the storage, and the writes to it if they can be disturbed."""
        self._cluster = cluster
        self._driver = driver
        self._application = application
        self._storage = storage
        self._writes = writes
        self._standing = threading.local()
        self._last: int | None = None

    @contextlib.contextmanager
    def standing_in(self, worker: int) -> Iterator[None]:
        """Let the task that stands at a point in a Python worker be the one that is hit, on this thread."""
        self._last = self._standing.worker = worker
        try:
            yield
        finally:
            self._standing.worker = None

    def coordinator(self) -> DriverOfQuery | None:
        """Return the driver's process; None while another one starts."""
        pid = self._driver()
        return DriverOfQuery(pid, self._storage) if pid is not None else None

    def primary_of(self, subtask: str) -> RefusedWrites:
        """Return the checkpoint directory, in which tasks keep their state."""
        return self._storage.writes()

    def metadata(self) -> RefusedWrites:
        """Return the driver's notes of what is committed."""
        return self._storage.writes(COMMITS)

    def writes(self) -> WritesOfOneFault | None:
        """Return all writes to the checkpoint directory, for the fault that asks."""
        return self._writes.of_one_fault() if self._writes is not None else None

    def executor_of(self, subtask: str) -> SignalledProcess | None:
        """Return the executor of the task that stands at a point, or began last; any executor if it is gone.

        Pausing it pauses its host, if that can be hit.
        """
        executor = self._executor()
        if executor is None:
            return None
        text = f"executor (pid {executor.pid}) on {executor.host}"
        host = self._cluster.host(executor.host)
        if host is not None:
            return ExecutorOnHost(executor.pid, text, lambda: None, host)
        return SignalledProcess(executor.pid, text, lambda: None, with_children=True)

    def host_of(self, subtask: str) -> LostHost | None:
        """Return the host of that executor, with its local files."""
        executor, process = self._executor(), self.executor_of(subtask)
        directory = self._cluster.local_directory(executor.host) if executor is not None else None
        if executor is None or process is None or directory is None:
            return None
        return LostHost(process, directory, self._cluster.host(executor.host))

    def memory_of(self, subtask: str) -> ExecutorWithoutMemory | None:
        """Return that executor, if its host has a memory limit."""
        executor, process = self._executor(), self.executor_of(subtask)
        host = self._cluster.host(executor.host) if executor is not None else None
        if executor is None or process is None or host is None:
            return None
        return ExecutorWithoutMemory(process, executor.pid, host)

    def links_of_executor(self, subtask: str, peers: Peers) -> tuple[LinkOfHost, ...] | None:
        """Return the network of that executor's host, with Spark's own connections; None unless it can be unplugged.

        Only whole hosts can be: from everyone, and in both directions.
        """
        executor = self._executor()
        host = self._cluster.host(executor.host) if executor is not None else None
        return (LinkOfHost(host, ()),) if host is not None and peers is Peers.EVERYONE else None

    def links_between_halves(self, subtasks: Sequence[str]) -> tuple[LinkOfHost, ...] | None:
        """Return the same: the first half is the executor of the one subtask that a query has."""
        return self.links_of_executor(TASKS, Peers.EVERYONE)

    def worker_of(self, subtask: str) -> SignalledProcess | None:
        """Return the Python worker of the task that stands at a point, or began last; None if it is gone."""
        worker = self._worker()
        if worker is None or not psutil.pid_exists(worker):
            return None
        return SignalledProcess(worker, f"Python worker of a task (pid {worker})", lambda: None)

    def _worker(self) -> int | None:
        standing: int | None = getattr(self._standing, "worker", None)
        return standing if standing is not None else self._last

    def _executor(self) -> ExecutorProcess | None:
        executors = self._cluster.executors(self._application())
        return self._executor_with(self._worker(), executors) or next(iter(executors), None)

    def _executor_with(
        self, worker: int | None, executors: tuple[ExecutorProcess, ...]
    ) -> ExecutorProcess | None:
        if worker is None:
            return None
        try:
            parents = {process.pid for process in psutil.Process(worker).parents()}
        except psutil.NoSuchProcess:
            return None
        return next((executor for executor in executors if executor.pid in parents), None)
