"""Configuration of a job, declared once. Defaults mean *off*; a bad value cannot be constructed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from barrier_tck.reference_impl.runtime_errors import JobUsageError


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise JobUsageError(message)


class CheckpointMode(StrEnum):
    """What a checkpoint promises after a recovery."""

    EXACTLY_ONCE = "exactly_once"
    """Aligned barriers (ALN-1)."""
    AT_LEAST_ONCE = "at_least_once"
    """Barriers hold nothing back (ALO-1): no waiting, and records may be counted twice after a recovery."""


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """When checkpoints are taken, and how many are kept. A job without one takes none (COO-7)."""

    interval_ms: int
    """Time between triggers."""
    mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE
    timeout_ms: int = 600_000
    """A checkpoint that is not complete after this is aborted (COO-2)."""
    min_pause_ms: int = 0
    """Least time between the end of one checkpoint and the trigger of the next (BAR-4)."""
    max_concurrent: int = 1
    """Most checkpoints in flight at once (BAR-4)."""
    retained: int = 1
    """Completed checkpoints that are kept (COO-4)."""
    tolerated_failures: int = 0
    """Consecutive failed checkpoints that do not fail the job (COO-2)."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        _require(self.interval_ms > 0, f"the checkpoint interval must be positive, not {self.interval_ms} ms")
        _require(self.timeout_ms > 0, f"the checkpoint timeout must be positive, not {self.timeout_ms} ms")
        _require(
            self.min_pause_ms >= 0, f"the pause between checkpoints is {self.min_pause_ms} ms; use 0 or more"
        )
        _require(self.max_concurrent >= 1, f"{self.max_concurrent} concurrent checkpoints; use 1 or more")
        _require(self.retained >= 1, f"{self.retained} retained checkpoints; use 1 or more")
        _require(self.tolerated_failures >= 0, f"{self.tolerated_failures} tolerated failures; use 0 or more")


@dataclass(frozen=True, slots=True)
class RestartConfig:
    """What follows a failure (REC-3): nothing (``attempts_max`` 0), or a restart after a fixed delay."""

    attempts_max: int = 0
    """Restarts before the job is given up; 0 is the no-restart strategy."""
    delay_ms: int = 0
    """Time between the end of an attempt and the next deployment."""

    def __post_init__(self) -> None:
        """Refuse negative values."""
        _require(self.attempts_max >= 0, f"{self.attempts_max} restarts; use 0 for none")
        _require(self.delay_ms >= 0, f"a restart delay of {self.delay_ms} ms; use 0 or more")


class OnUnreadable(StrEnum):
    """What follows when the latest completed checkpoint can be read from no copy (REC-4)."""

    FAIL = "fail"
    """The job fails and says what was tried; nothing is deleted."""
    OLDER = "older"
    """An older retained checkpoint is restored. What sinks had committed since then is emitted again. To keep that
    small, they finish the commits of a restored checkpoint only when the next one completes.
    """


@dataclass(frozen=True, slots=True)
class JobConfig:
    """Everything about a run of a job that is not its graph."""

    checkpoints: CheckpointConfig | None = None
    """None: no checkpoints; output is committed when the input ends, and a failure starts from the beginning."""
    restart: RestartConfig = RestartConfig()
    write_through: bool = False
    """Keyed operators write every change to the state backend at once, not only at barriers."""
    storage_root: str = "checkpoints"
    """Directory of checkpoint storage below the file system's root."""
    local_recovery: bool = False
    """Subtasks keep a second copy of their newest state files on their own host, and restore from it (LOC-1)."""
    on_unreadable: OnUnreadable = OnUnreadable.FAIL
