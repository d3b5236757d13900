"""What crosses a wire: elements of a channel, and the messages between subtasks and the coordinator.

All are frozen values. A subtask's messages carry its attempt, so that the coordinator can fence off what an
older attempt still sends (REC-2). Times are milliseconds of the coordinator's clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId

# --- elements of a data channel -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointBarrier:
    """Separates the records of checkpoint n from those of n + 1 on one channel (BAR-1)."""

    checkpoint: CheckpointId
    timestamp_ms: int
    """When the coordinator triggered the checkpoint."""


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """No record follows on this channel. Barriers still may: the last checkpoint commits the last output."""


ChannelControl = CheckpointBarrier | EndOfInput
"""Every element of a channel that is not a batch of records."""

# --- what a snapshot consists of ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SplitPosition:
    """How far a source has read one split: ``offset`` records were read, so reading resumes at ``offset``."""

    split: str
    offset: int


@dataclass(frozen=True, slots=True)
class StateHandle:
    """Points to one file of keyed state in checkpoint storage (STA-3)."""

    path: str
    """Relative to the root of the checkpoint storage."""
    size: int
    """Bytes."""
    checksum: str
    """``crc32:xxxxxxxx`` of the whole file."""
    key_groups: KeyGroupRange
    kind: str = "keyed"


@dataclass(frozen=True, slots=True)
class TransactionFile:
    """One file of a prepared transaction of a file sink: where it waits and where a commit moves it."""

    pending: str
    committed: str
    size: int
    records: int


@dataclass(frozen=True, slots=True)
class TransactionHandle:
    """A prepared (pre-committed) transaction of a two-phase-commit sink (SNK-1)."""

    transaction: str
    checkpoint: CheckpointId
    files: tuple[TransactionFile, ...]


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """What one operator of a subtask contributes to a checkpoint."""

    operator: str
    positions: tuple[SplitPosition, ...] = ()
    handles: tuple[StateHandle, ...] = ()
    transactions: tuple[TransactionHandle, ...] = ()
    input_ended: bool = False
    """Whether the operator had already seen the end of its input (and emitted what it emits then)."""


@dataclass(frozen=True, slots=True)
class SubtaskSnapshot:
    """One subtask's part of a checkpoint: the snapshots of its chained operators, head first."""

    subtask: SubtaskId
    attempt: AttemptNumber
    operators: tuple[OperatorSnapshot, ...]

    def handles(self) -> tuple[StateHandle, ...]:
        """Return every state file that this snapshot owns."""
        return tuple(handle for operator in self.operators for handle in operator.handles)


@dataclass(frozen=True, slots=True)
class LocalCopy:
    """Names the secondary copy of one subtask's part of a checkpoint, on the disk of the host that wrote it."""

    subtask: SubtaskId
    checkpoint: CheckpointId
    attempt: AttemptNumber
    """The attempt that wrote it."""


@dataclass(frozen=True, slots=True)
class LocalCopyReport:
    """What became of a secondary copy; nothing depends on it but what people and reports are told (LOC-2, LOC-3)."""

    kept: bool
    """Whether the copy of the acknowledged checkpoint is whole."""
    problem: str
    """Why it is not; empty if there was nothing to copy, or if it is."""
    confirmed: int
    """The newest checkpoint that the subtask knows to be complete; 0 for none."""
    held: tuple[int, ...]
    """Checkpoints of which the subtask has anything at all on its host, ascending."""
    host: str = ""
    """Where the copy is."""


class ServedBy(StrEnum):
    """Which copy of a state file a restore read."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """Where one state file of a restored checkpoint came from (LOC-4)."""

    operator: str
    path: str
    """The file in checkpoint storage, whichever copy was read."""
    key_groups: KeyGroupRange
    served_by: ServedBy
    reason: str = ""
    """Why the secondary did not serve it."""
    copy_of: int = 0
    """The checkpoint that the secondary which served it says to be of; 0: the primary served."""


@dataclass(frozen=True, slots=True)
class SnapshotMetrics:
    """How one subtask's part of a checkpoint went (ALN-3, SNP-7). Times in milliseconds, sizes in bytes."""

    alignment_ms: float = 0.0
    alignment_buffered_bytes: int = 0
    sync_ms: float = 0.0
    async_ms: float = 0.0
    bytes_written: int = 0
    started_at_ms: float = 0.0
    """When the first barrier arrived (for a source: the trigger)."""
    local: LocalCopyReport | None = None
    """The secondary copy; None without local recovery."""


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A checkpoint whose metadata is durable: what a recovery starts from (COO-1, STA-3)."""

    checkpoint: CheckpointId
    attempt: AttemptNumber
    triggered_at_ms: int
    completed_at_ms: int
    snapshots: tuple[SubtaskSnapshot, ...]
    """One per subtask of the job, in the job's order."""

    def snapshot_of(self, subtask: SubtaskId) -> SubtaskSnapshot | None:
        """Return the subtask's part, or None if the checkpoint has none (which COO-1 forbids)."""
        return next((part for part in self.snapshots if part.subtask == subtask), None)


# --- coordinator to subtask ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Sent to the sources: inject the barrier of this checkpoint now (BAR-1)."""

    checkpoint: CheckpointId
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class NotifyCheckpointComplete:
    """The checkpoint's metadata is durable: sinks commit (COO-1)."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class NotifyCheckpointAborted:
    """The checkpoint failed: release what was held for it (COO-2)."""

    checkpoint: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class FinishSubtask:
    """The job is over: leave, with everything committed."""


@dataclass(frozen=True, slots=True)
class CancelSubtask:
    """The attempt is over: stop at once and release everything (REC-1)."""

    reason: str


ToSubtask = (
    TriggerCheckpoint | NotifyCheckpointComplete | NotifyCheckpointAborted | FinishSubtask | CancelSubtask
)

# --- subtask to coordinator ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SubtaskRunning:
    """The subtask restored its state and processes records from now on."""

    attempt: AttemptNumber
    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class StateRestored:
    """The subtask has its state; says which copy served each file, and so each key group (LOC-4)."""

    attempt: AttemptNumber
    subtask: SubtaskId
    checkpoint: CheckpointId
    files: tuple[RestoredFile, ...]


@dataclass(frozen=True, slots=True)
class AcknowledgeCheckpoint:
    """The subtask's copy of its state is durable (SNP-3)."""

    attempt: AttemptNumber
    checkpoint: CheckpointId
    subtask: SubtaskId
    snapshot: SubtaskSnapshot
    metrics: SnapshotMetrics


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """The subtask could not take its snapshot (COO-2)."""

    attempt: AttemptNumber
    checkpoint: CheckpointId
    subtask: SubtaskId
    reason: str


@dataclass(frozen=True, slots=True)
class InputConsumed:
    """Every input of the subtask ended and all that follows from it was emitted; it waits for barriers only."""

    attempt: AttemptNumber
    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class TransactionsCommitted:
    """A sink committed everything prepared up to this checkpoint."""

    attempt: AttemptNumber
    subtask: SubtaskId
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class SubtaskFailed:
    """The subtask cannot go on."""

    attempt: AttemptNumber
    subtask: SubtaskId
    reason: str
    unreadable: CheckpointId | None = None
    """The checkpoint that it could not restore, by any copy, if that is why (LOC-5, REC-4)."""


FromSubtask = (
    SubtaskRunning
    | StateRestored
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | InputConsumed
    | TransactionsCommitted
    | SubtaskFailed
)
