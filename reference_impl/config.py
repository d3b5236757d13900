"""Configuration of a job, declared once. Defaults mean *off*; a bad value cannot be constructed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import msgspec

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.runtime_errors import JobUsageError


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise JobUsageError(message)


class CheckpointMode(StrEnum):
    """What a checkpoint guarantees after a recovery."""

    EXACTLY_ONCE = "exactly_once"
    """Aligned barriers (ALN-1)."""
    AT_LEAST_ONCE = "at_least_once"
    """Barriers hold nothing back (ALO-1): no waiting, and records may be counted twice after a recovery."""
    UNALIGNED = "unaligned"
    """Exactly once, without waiting: barriers overtake records, which become part of the checkpoint (UNA-1)."""
    ALIGNED_TIMEOUT = "aligned_timeout"
    """Aligned at first; a checkpoint whose alignment lasts too long goes on as an unaligned one (UNA-2)."""
    CHANDY_LAMPORT = "chandy_lamport"
    """Exactly once: a subtask takes its snapshot at the first barrier, the marker, and records its channels (CHL-1)."""

    @property
    def overtakes(self) -> bool:
        """Whether barriers may overtake records."""
        return self in (CheckpointMode.UNALIGNED, CheckpointMode.ALIGNED_TIMEOUT)


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
    incremental: bool = False
    """Whether state backends that can do so write only what has changed since an earlier checkpoint (SNP-5)."""
    alignment_timeout_ms: int = 0
    """Mode ALIGNED_TIMEOUT: how long a subtask waits for barriers, from the first one on, and how long a barrier waits
    in an output buffer, before it overtakes what is before it (UNA-2).
    """

    initiators: tuple[tuple[SubtaskId, ...], ...] = ()
    """Mode CHANDY_LAMPORT: who initiates each snapshot, in turn; the sources that read no channel always do too.
    Without an entry, all sources initiate each.
    """

    def initiators_of(self, checkpoint: int) -> tuple[SubtaskId, ...]:
        """Return who initiates a checkpoint, as far as this is configured."""
        return self.initiators[(checkpoint - 1) % len(self.initiators)] if self.initiators else ()

    def __post_init__(self) -> None:
        _require(
            self.mode is CheckpointMode.CHANDY_LAMPORT or not self.initiators,
            f"in mode {self.mode} the sources initiate each checkpoint; leave initiators out",
        )
        _require(self.interval_ms > 0, f"the checkpoint interval must be positive, not {self.interval_ms} ms")
        _require(self.timeout_ms > 0, f"the checkpoint timeout must be positive, not {self.timeout_ms} ms")
        _require(
            self.min_pause_ms >= 0, f"the pause between checkpoints is {self.min_pause_ms} ms; use 0 or more"
        )
        _require(self.max_concurrent >= 1, f"{self.max_concurrent} concurrent checkpoints; use 1 or more")
        _require(self.retained >= 1, f"{self.retained} retained checkpoints; use 1 or more")
        _require(
            self.alignment_timeout_ms >= 0,
            f"an alignment timeout of {self.alignment_timeout_ms} ms; use 0 or more",
        )
        _require(self.tolerated_failures >= 0, f"{self.tolerated_failures} tolerated failures; use 0 or more")


class RestartConfig(msgspec.Struct, frozen=True, tag="fixed_delay"):
    """What follows a failure (REC-3): nothing (``attempts_max`` 0), or a restart after a fixed delay."""

    attempts_max: int = 0
    """Restarts before the job is given up; 0 is the no-restart strategy."""
    delay_ms: int = 0
    """Time between the end of an attempt and the next deployment."""

    def __post_init__(self) -> None:
        _require(self.attempts_max >= 0, f"{self.attempts_max} restarts; use 0 for none")
        _require(self.delay_ms >= 0, f"a restart delay of {self.delay_ms} ms; use 0 or more")


class FailureRateRestart(msgspec.Struct, frozen=True, tag="failure_rate"):
    """Restarts after a delay, unless the job fails too often (REC-3)."""

    failures_max: int
    """Failures within ``interval_ms`` after which the job is still restarted; one more gives it up."""
    interval_ms: int
    """The time in which failures are counted, looking back from the latest."""
    delay_ms: int = 0
    """Time between the end of an attempt and the next deployment."""

    def __post_init__(self) -> None:
        _require(self.failures_max >= 0, f"{self.failures_max} failures; use 0 or more")
        _require(self.interval_ms > 0, f"failures are counted in {self.interval_ms} ms; use 1 or more")
        _require(self.delay_ms >= 0, f"a restart delay of {self.delay_ms} ms; use 0 or more")


class ExponentialDelayRestart(msgspec.Struct, frozen=True, tag="exponential_delay"):
    """Restarts after a delay that grows with each failure in a row (REC-3).

    A failure ends the row if every subtask had run for ``reset_after_ms`` when it came; it begins the next one.
    """

    initial_ms: int
    """The delay after the first failure of a row."""
    max_ms: int
    """The longest delay."""
    factor: float = 2.0
    """Each delay is this many times as long as the one before."""
    reset_after_ms: int = 60_000
    attempts_max: int = 1_000_000
    """Restarts in a row before the job is given up."""

    def __post_init__(self) -> None:
        _require(self.initial_ms >= 0, f"a first restart delay of {self.initial_ms} ms; use 0 or more")
        _require(
            self.max_ms >= self.initial_ms,
            f"the longest restart delay is {self.max_ms} ms, below the first one, {self.initial_ms} ms",
        )
        _require(self.factor >= 1, f"the delay grows by a factor of {self.factor}; use 1 or more")
        _require(
            self.reset_after_ms >= 0, f"the delay is reset after {self.reset_after_ms} ms; use 0 or more"
        )
        _require(self.attempts_max >= 0, f"{self.attempts_max} restarts in a row; use 0 for none")


AnyRestart = RestartConfig | FailureRateRestart | ExponentialDelayRestart
"""A restart strategy. A coordinator that starts anew has seen no failure yet."""

NO_RESTART = RestartConfig()
"""The strategy none."""


class Compression(StrEnum):
    """How the state in snapshots is compressed, each key group by itself (SNP-6)."""

    NONE = "none"
    ZSTD = "zstd"
    """Zstandard."""


class CopyMedium(StrEnum):
    """Where subtasks keep the second copy of their state, with local recovery (LOC-1)."""

    DISK = "disk"
    """On the host's disk. It is lost with the host."""
    MEMORY = "memory"
    """In memory that the subtasks of an executor share. It is lost with the executor (LOC-7)."""


DEFAULT_LOCAL_MEMORY_BYTES = 64 * 1024 * 1024
"""How much memory the copies of a job take on each executor unless configured otherwise."""


class OnUnreadable(StrEnum):
    """What follows when the latest completed checkpoint can be read from no copy (REC-4)."""

    FAIL = "fail"
    """The job fails and says what was tried; nothing is deleted."""
    OLDER = "older"
    """An older retained checkpoint is restored. What sinks had committed since then is emitted again. To keep that
    small, they finish the commits of a restored checkpoint only when the next one completes.
    """


@dataclass(frozen=True, slots=True)
class ElasticConfig:
    """Going on narrower when slots are lost for good: an attempt that finds too few of them has fewer subtasks."""

    wait_ms: int
    """How long an attempt waits for slots that are missing, before it takes those that are there."""
    fixed: tuple[str, ...] = ()
    """Vertices that keep their parallelism, besides those of loops and those that forward edges join to them."""

    def __post_init__(self) -> None:
        _require(self.wait_ms >= 0, f"a wait for slots of {self.wait_ms} ms; use 0 or more")


@dataclass(frozen=True, slots=True)
class JobConfig:
    """Everything about a run of a job that is not its graph."""

    checkpoints: CheckpointConfig | None = None
    """None: no checkpoints; output is committed when the input ends, and a failure starts from the beginning."""
    restart: AnyRestart = NO_RESTART
    write_through: bool = False
    """Keyed operators write every change to the state backend at once, not only at barriers."""
    cached_keys: int | None = None
    """Most keys whose accumulators a keyed aggregate of a subtask has in memory, in front of its state backend; None:
    all. With a backend on disk, a limit lets state be larger than memory.
    """
    storage_root: str = "checkpoints"
    """Directory of checkpoint storage below the file system's root."""
    local_recovery: bool = False
    """Subtasks keep a second copy of their newest state files on their own host, and restore from it (LOC-1)."""
    compression: Compression = Compression.NONE
    """How backends that can do so compress snapshots of keyed state; RocksDB's files stay as they are (SNP-6)."""
    local_compression: Compression | None = None
    """With local recovery: how backends that can write two formats at once compress the copies on hosts. None: copies
    have the bytes of the primary (LOC-7)."""
    local_copies: CopyMedium = CopyMedium.DISK
    """With local recovery: where these copies are."""
    local_memory_bytes: int = DEFAULT_LOCAL_MEMORY_BYTES
    """Most bytes that the job's copies in memory take on one executor. A checkpoint that does not fit has no
    copy there, and completes all the same (LOC-2). An older copy stays until a newer checkpoint is complete, so there
    should be room for two.
    """
    on_unreadable: OnUnreadable = OnUnreadable.FAIL
    elastic: ElasticConfig | None = None
    """None: an attempt waits for all slots that the job wants, and fails if they do not come."""
    start_from: str | None = None
    """Directory of the savepoint that the job starts from, relative to the root of its files (COO-5); None: what is
    stored of the job itself. Give the same directory again when the job is resumed after a crash: it then goes on from
    its own newer checkpoints. To start a second time from one savepoint, give the job another name.
    """
    claim_savepoint: bool = False
    """Whether the job takes over the savepoint that it starts from. Then it deletes the savepoint's directory once a
    newer checkpoint is complete. If not, nothing in it is ever deleted. Either way no checkpoint refers to files of the
    savepoint: the first one is full (COO-5, SNP-5).
    """

    def __post_init__(self) -> None:
        _require(
            self.cached_keys is None or self.cached_keys >= 1,
            f"{self.cached_keys} keys in memory; use 1 or more, or None for all",
        )
        _require(
            self.local_memory_bytes >= 1,
            f"{self.local_memory_bytes} bytes of memory for local copies; use 1 or more, or keep them on disk",
        )
        _require(
            self.start_from is not None or not self.claim_savepoint,
            "claim_savepoint is set, but start_from names no savepoint",
        )
        _require(
            self.elastic is None or self.alignment[0] is not CheckpointMode.CHANDY_LAMPORT,
            "an elastic job cannot have checkpoints of the mode chandy_lamport, whose initiators are subtasks by name",
        )

    @property
    def alignment(self) -> tuple[CheckpointMode, int]:
        """Return the mode of checkpoints and the alignment timeout (ms); without checkpoints neither matters."""
        if self.checkpoints is None:
            return CheckpointMode.EXACTLY_ONCE, 0
        return self.checkpoints.mode, self.checkpoints.alignment_timeout_ms
