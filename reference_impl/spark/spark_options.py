"""What can be tuned about a job on Spark; the defaults are meant to be right."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.reference_impl.runtime_errors import JobUsageError


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Times in milliseconds, sizes in bytes."""

    heartbeat_interval_ms: int = 500
    heartbeat_timeout_ms: int = 5_000
    """A subtask that is silent for longer has failed, and is replaced."""
    isolation_timeout_ms: int = 10_000
    """A subtask that hears nothing from the coordinator for longer ends itself: it was replaced, or soon will be.
    This is longer than ``heartbeat_timeout_ms``, so that the coordinator, which knows more, decides if both can.
    """
    deployment_timeout_ms: int = 120_000
    """An attempt in which not every subtask runs by then has failed."""
    connect_timeout_ms: int = 10_000
    """Bound on reaching a peer, all tries and handshakes included."""
    channel_batches: int = 8
    """Batches that wait at a receiver, per channel, and as many at the sender; then the sender takes no more input."""
    channel_bytes: int = 32 << 20
    """The same in bytes. A batch above ``fragment_bytes`` passes in pieces."""
    warm_executors: bool = True
    """Make executors that join ready for Python tasks while the job runs: recoveries are quick then."""

    @property
    def fragment_bytes(self) -> int:
        """Return the largest piece of a batch that takes one place in a channel."""
        return max(1, self.channel_bytes // self.channel_batches)

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value <= 0 and not isinstance(value, bool):
                raise JobUsageError(f"{name} must be positive, not {value}")
        if self.heartbeat_timeout_ms < 2 * self.heartbeat_interval_ms:
            raise JobUsageError(
                f"heartbeat_timeout_ms={self.heartbeat_timeout_ms} must be at least twice "
                f"heartbeat_interval_ms={self.heartbeat_interval_ms}, or a healthy subtask fails"
            )
        if self.isolation_timeout_ms < self.heartbeat_timeout_ms:
            raise JobUsageError(
                f"isolation_timeout_ms={self.isolation_timeout_ms} must be at least "
                f"heartbeat_timeout_ms={self.heartbeat_timeout_ms}, or a subtask ends before it is given up"
            )


def session_settings(warm_daemon: bool = True) -> dict[str, str]:
    """Return the Spark settings with which a lost attempt is replaced quickly; none changes results.

    Merge them into the session's own. ``warm_daemon`` False: for executors that cannot import this package.
    """
    settings = {
        # An attempt is ours to repeat, from a checkpoint: Spark must not run a task or a stage of it again.
        "spark.task.maxFailures": "1",
        "spark.stage.maxConsecutiveAttempts": "1",
        "spark.excludeOnFailure.enabled": "false",
        # A barrier stage that finds too few executors is looked at again after this; Spark's default is 15 s.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "600",
        # A barrier stage starts when slots on several executors are free at once, which Spark looks for this
        # often.
        "spark.scheduler.revive.interval": "50ms",
        "spark.locality.wait": "0s",
        "spark.python.worker.reuse": "true",
        # A stopped subtask has this long to leave by itself before Spark kills its Python worker (by itself Spark
        # gives it 2 s); its slot is free after that.
        "spark.python.task.killTimeout": "1s",
    }
    if warm_daemon:
        settings["spark.python.daemon.module"] = "barrier_tck.reference_impl.spark.daemon"
    return settings
