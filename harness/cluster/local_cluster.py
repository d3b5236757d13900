"""A real Spark standalone cluster on this machine, made to be broken.

One master on 127.0.0.1 and N workers on 127.0.0.2, .3, ... run as processes of their own, each worker with
its own directory, cores and memory; every application gets one executor a worker. The harness may kill any
of them. All of them are descendants of one guard process (`barrier_tck.harness.cluster.guard`), which ends the whole
tree when the cluster stops, and also when the harness dies without stopping it.

    with LocalCluster(LocalClusterConfig(workers=2)) as cluster:
        with spark_session(cluster, "example") as spark:
            ...
            os.kill(cluster.executors()[0].pid, signal.SIGKILL)

This module breaks nothing itself; the injectors in `faults` do that.

Measured with PySpark 4.3.0 and Java 17 on two cores shared with other work; one of several one-core executors was
killed (SIGKILL) in the middle of a barrier stage:

* the driver's action failed after 0.05 to 0.23 s (14 kills, median 0.07);
* a replacement process ran after 0.07 to 0.15 s and was registered with the driver after 2.1 to 2.3 s
  (6 kills);
* the Python daemon and workers of the killed executor were gone after 0.03 to 0.25 s (6 kills): the daemon
  sees the end of its input and ends its group, none lingered;
* the stage's Python workers on the *surviving* executors, asleep in user code, held their slots for 2.1 s
  (2 kills): Spark checks every two seconds whether a task was cancelled. A task whose slot is needed sooner
  has to end by itself;
* with no slot to spare, the next barrier stage, which passed one `barrier()`, gave its result 4.1 to 7.4 s after
  the failure (8 kills, median 4.5).
"""

from __future__ import annotations

from collections.abc import Mapping

import psutil

from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.cluster_config import LocalClusterConfig
from barrier_tck.harness.cluster.process_identity import ExecutorProcess, is_python_worker
from barrier_tck.harness.cluster.settings import MASTER_HOST, bind_problem
from barrier_tck.harness.support.errors import AddressUnavailable, PortInUse

__all__ = ["ExecutorProcess", "LocalCluster", "LocalClusterConfig"]


class LocalCluster(Cluster):
    """A Spark standalone cluster of real processes on loopback addresses; a context manager."""

    config: LocalClusterConfig

    def __init__(self, config: LocalClusterConfig | None = None) -> None:
        super().__init__(config or LocalClusterConfig())

    @property
    def driver_host(self) -> str:
        """The loopback address of master and drivers."""
        return MASTER_HOST

    def worker_host(self, worker: int) -> str:
        """The loopback address of worker `worker`, counted from 0."""
        return self.config.worker_host(worker)

    def stray_python_processes(self) -> tuple[int, ...]:
        """The pids of Python daemons and workers that still run although their executor has died."""
        link = self._link
        if link is None:
            return ()
        daemons = {process.pid for process in self._processes.values()}
        adopted = [child for child in psutil.Process(link.process.pid).children() if child.pid not in daemons]
        return tuple(child.pid for child in adopted if is_python_worker(child))

    def _check_machine(self) -> None:
        for worker in range(self.config.workers):
            host = self.config.worker_host(worker)
            problem = bind_problem(host, 0)
            if problem is not None:
                raise AddressUnavailable(
                    f"Worker {worker} needs the loopback address {host}, which cannot be bound: {problem}. "
                    "Linux has all of 127.0.0.0/8; elsewhere add it as an alias of the loopback interface."
                )
        port = self.config.master_port
        if port is not None:
            problem = bind_problem(MASTER_HOST, port)
            if problem is not None:
                raise PortInUse(
                    f"Port {port} on {MASTER_HOST} cannot be used for the Spark master: {problem}. "
                    "Stop the process that has it, choose another master_port, or leave it out."
                )

    def _make_hosts(self) -> None:
        """Nothing: loopback addresses are there."""

    def _remove_hosts(self) -> list[str]:
        return []

    def _run_worker(self, worker: int, command: list[str], environment: Mapping[str, str]) -> None:
        self._spawn(f"worker-{worker}", command, environment)

    def _pid_of_worker(self, worker: int) -> int | None:
        process = self._processes.get(f"worker-{worker}")
        return process.pid if process is not None else None
