"""What faults can hit while a query runs: its driver, the executors, and the Python workers of tasks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import psutil

from barrier_tck.faults.targets import NoTargets
from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.process_identity import ExecutorProcess
from barrier_tck.harness.cluster.signalled_process import SignalledProcess

TASKS = "tasks"
"""The one subtask of a query: whichever task stands at a point, or began last."""


class QueryTargets(NoTargets):
    """Implements ``barrier_tck.faults.targets.Targets`` for one trial."""

    def __init__(self, cluster: Cluster, driver: Callable[[], int | None]) -> None:
        """Take the cluster, and what returns the pid of the driver; None while there is none."""
        self._cluster = cluster
        self._driver = driver
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

    def coordinator(self) -> SignalledProcess | None:
        """Return the driver's process; None while another one starts."""
        pid = self._driver()
        if pid is None:
            return None
        return SignalledProcess(pid, f"driver process (pid {pid})", lambda: None, with_children=True)

    def executor_of(self, subtask: str) -> SignalledProcess | None:
        """Return the executor of the task that stands at a point, or began last; any executor if it is gone."""
        executors = self._cluster.executors()
        executor = self._executor_with(self._worker(), executors) or next(iter(executors), None)
        if executor is None:
            return None
        text = f"executor (pid {executor.pid}) on {executor.host}"
        return SignalledProcess(executor.pid, text, lambda: None, with_children=True)

    def worker_of(self, subtask: str) -> SignalledProcess | None:
        """Return the Python worker of the task that stands at a point, or began last; None if it is gone."""
        worker = self._worker()
        if worker is None or not psutil.pid_exists(worker):
            return None
        return SignalledProcess(worker, f"Python worker of a task (pid {worker})", lambda: None)

    def _worker(self) -> int | None:
        standing: int | None = getattr(self._standing, "worker", None)
        return standing if standing is not None else self._last

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
