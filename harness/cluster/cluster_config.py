"""The configurations of clusters, checked when they are created."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from barrier_tck.harness.support.errors import UsageError

_SMALLEST_EXECUTOR_MB = 450
_MOST_WORKERS = 100


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """What every cluster has to be told. Sizes are in mebibytes, times in seconds.

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

    def __post_init__(self) -> None:
        """Refuse values from which no cluster can be made."""
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
