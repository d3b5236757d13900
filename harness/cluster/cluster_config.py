"""The configurations of clusters, checked when they are created."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from barrier_tck.harness.support.errors import UsageError

_SMALLEST_EXECUTOR_MB = 450
_MOST_WORKERS = 100
_BESIDE_MB = 2048
_LEAST_BESIDE_MB = 512
"""A worker's JVM has 256 MiB of heap, and a Python worker with Arrow takes 100."""


class ClusterKind(StrEnum):
    """A kind of cluster."""

    LOCAL = "local"
    """Workers are processes on loopback addresses of this machine."""
    DOCKER = "docker"
    """Each worker has a container of its own, which is a host: it can be killed, paused, unplugged and restarted."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What every cluster needs to know. Sizes are in mebibytes, times in seconds.

    Raises:
        UsageError: a value makes no sense; the message names it and says what would.
    """

    workers: int = 3
    cores_per_worker: int = 2
    memory_per_worker_mb: int = 1024
    #: Heap of each executor; None gives it all of its worker's memory.
    executor_memory_mb: int | None = None
    driver_memory_mb: int = 512
    #: Where logs and local files are kept; None means a temporary directory, which is removed at the end.
    directory: Path | None = None
    startup_timeout_s: float = 180.0
    #: None lets the system choose a free one.
    master_port: int | None = None
    #: Log level of all JVMs, as log4j names it.
    log_level: str = "warn"
    #: Driver and executors start sooner but run more slowly throughout: for many short jobs, never for a benchmark.
    quick_start: bool = False
    #: How many applications have their executors at the same time; every other one waits until one of them ends.
    applications: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= _MOST_WORKERS:
            raise UsageError(f"workers={self.workers}: a cluster has 1 to {_MOST_WORKERS} workers.")
        if self.cores_per_worker < 1:
            raise UsageError(f"cores_per_worker={self.cores_per_worker}: a worker needs at least one.")
        if self.executor_mb < _SMALLEST_EXECUTOR_MB:
            raise UsageError(
                f"An executor of {self.executor_mb} MiB is too small: Spark refuses to start one below "
                f"{_SMALLEST_EXECUTOR_MB}. Raise memory_per_worker_mb or executor_memory_mb."
            )
        if self.executor_mb > self.memory_per_worker_mb:
            raise UsageError(
                f"executor_memory_mb={self.executor_mb} does not fit into "
                f"memory_per_worker_mb={self.memory_per_worker_mb}: no worker could ever start an executor."
            )
        if self.driver_memory_mb < _SMALLEST_EXECUTOR_MB:
            raise UsageError(
                f"driver_memory_mb={self.driver_memory_mb}: Spark needs at least {_SMALLEST_EXECUTOR_MB}."
            )
        if self.applications < 1:
            raise UsageError(f"applications={self.applications}: a cluster without any runs nothing.")
        if self.startup_timeout_s <= 0:
            raise UsageError(f"startup_timeout_s={self.startup_timeout_s}: give a time above zero.")
        if self.master_port is not None and not 1024 <= self.master_port <= 65535:
            raise UsageError(
                f"master_port={self.master_port}: give a port from 1024 to 65535, or None for a free one."
            )

    @property
    def executor_mb(self) -> int:
        """Heap of each executor in mebibytes."""
        return self.memory_per_worker_mb if self.executor_memory_mb is None else self.executor_memory_mb


@dataclass(frozen=True, slots=True)
class LocalClusterConfig(ClusterConfig):
    """The configuration of a cluster on loopback addresses; raises UsageError as every configuration does."""

    def worker_host(self, worker: int) -> str:
        """The loopback address of worker `worker`, counted from 0."""
        return f"127.0.0.{worker + 2}"


@dataclass(frozen=True, slots=True)
class DockerClusterConfig(ClusterConfig):
    """The configuration of a cluster whose hosts are containers; raises UsageError as every configuration does."""

    #: Image on which the hosts' image is built; empty: none, hosts use this machine's system directories.
    base_image: str = ""
    #: Memory limit of each host, for all of its processes; None leaves room beside its executor for Python.
    host_memory_mb: int | None = None

    @property
    def host_mb(self) -> int:
        """Memory limit of each host in mebibytes."""
        if self.host_memory_mb is not None:
            return self.host_memory_mb
        return self.applications * self.memory_per_worker_mb + _BESIDE_MB

    def __post_init__(self) -> None:
        ClusterConfig.__post_init__(self)
        if self.host_mb < self.executor_mb + _LEAST_BESIDE_MB:
            raise UsageError(
                f"host_memory_mb={self.host_memory_mb}: a host needs {_LEAST_BESIDE_MB} MiB beside its executor's "
                f"{self.executor_mb}, for Spark's worker and for Python."
            )


def config_for_trials(
    kind: ClusterKind,
    workers: int,
    cores_per_worker: int,
    executor_memory_mb: int,
    master_port: int | None = None,
    base_image: str = "",
    host_memory_mb: int | None = None,
) -> ClusterConfig:
    """Return the configuration of a cluster for many short jobs; the fields are those of the configurations.

    Raises:
        UsageError: a value makes no sense, or is one of another kind of cluster.
    """
    memory_mb = max(1024, executor_memory_mb)
    if kind is ClusterKind.LOCAL:
        for name, value in (("base_image", base_image), ("host_memory_mb", host_memory_mb)):
            if value:
                raise UsageError(
                    f"{name}={value!r}: only hosts that are containers have it; choose the cluster docker."
                )
        return LocalClusterConfig(
            workers,
            cores_per_worker,
            memory_mb,
            executor_memory_mb,
            master_port=master_port,
            quick_start=True,
        )
    return DockerClusterConfig(
        workers,
        cores_per_worker,
        memory_mb,
        executor_memory_mb,
        master_port=master_port,
        quick_start=True,
        base_image=base_image,
        host_memory_mb=host_memory_mb,
    )
