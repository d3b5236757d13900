"""What crosses a wire: elements of a channel, and the messages between subtasks and the coordinator.

All are frozen values. A subtask's messages carry its attempt, so that the coordinator can fence off what an
older attempt still sends (REC-2). Times are milliseconds of the coordinator's clock.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.runtime_errors import StorageCause

# --- elements of a data channel -----------------------------------------------------------------------------


class CheckpointBarrier(msgspec.Struct, frozen=True):
    """Separates the records of checkpoint n from those of n + 1 on one channel (BAR-1)."""

    checkpoint: CheckpointId
    timestamp_ms: int
    """When the coordinator triggered the checkpoint."""


class EndOfInput(msgspec.Struct, frozen=True):
    """No record follows on this channel. Barriers still may: the last checkpoint commits the last output."""


ChannelControl = CheckpointBarrier | EndOfInput
"""Every element of a channel that is not a batch of records."""

# --- what a snapshot consists of ----------------------------------------------------------------------------


class SplitPosition(msgspec.Struct, frozen=True):
    """How far a source has read one split: ``offset`` records were read, so reading resumes at ``offset``."""

    split: str
    offset: int


class StateHandle(msgspec.Struct, frozen=True):
    """Points to one file of keyed state in checkpoint storage (STA-3)."""

    path: str
    """Relative to the root of the checkpoint storage."""
    size: int
    """Bytes."""
    checksum: str
    """``crc32:xxxxxxxx`` of the whole file."""
    key_groups: KeyGroupRange
    kind: str = "keyed"


class TransactionFile(msgspec.Struct, frozen=True):
    """One file of a prepared transaction of a file sink: where it waits and where a commit moves it."""

    pending: str
    committed: str
    size: int
    records: int


class TransactionHandle(msgspec.Struct, frozen=True):
    """A prepared (pre-committed) transaction of a two-phase-commit sink (SNK-1)."""

    transaction: str
    checkpoint: CheckpointId
    files: tuple[TransactionFile, ...]


class OperatorSnapshot(msgspec.Struct, frozen=True):
    """What one operator of a subtask contributes to a checkpoint."""

    operator: str
    positions: tuple[SplitPosition, ...] = ()
    handles: tuple[StateHandle, ...] = ()
    transactions: tuple[TransactionHandle, ...] = ()
    input_ended: bool = False
    """Whether the operator had already seen the end of its input (and emitted what it emits then)."""


class SubtaskSnapshot(msgspec.Struct, frozen=True):
    """One subtask's part of a checkpoint: the snapshots of its chained operators, head first."""

    subtask: SubtaskId
    attempt: AttemptNumber
    operators: tuple[OperatorSnapshot, ...]

    def handles(self) -> tuple[StateHandle, ...]:
        """Return every state file that this snapshot owns."""
        return tuple(handle for operator in self.operators for handle in operator.handles)


class LocalCopy(msgspec.Struct, frozen=True):
    """Names the secondary copy of one subtask's part of a checkpoint, on the disk of the host that wrote it."""

    subtask: SubtaskId
    checkpoint: CheckpointId
    attempt: AttemptNumber
    """The attempt that wrote it."""


class LocalCopyReport(msgspec.Struct, frozen=True):
    """What became of a secondary copy, for people and reports; nothing else depends on it (LOC-2, LOC-3)."""

    kept: bool
    """Whether the copy of the acknowledged checkpoint is whole."""
    problem: str
    """Why it is not whole; empty if it is, or if there was nothing to copy."""
    confirmed: int
    """The newest checkpoint that the subtask knows to be complete; 0 for none."""
    held: tuple[int, ...]
    """Checkpoints of which the subtask's host still holds anything at all, ascending."""
    host: str = ""
    """Where the copy is."""


class ServedBy(StrEnum):
    """Which copy of a state file a restore read."""

    PRIMARY = "primary"
    SECONDARY = "secondary"


class RestoredFile(msgspec.Struct, frozen=True):
    """Where one state file of a restored checkpoint came from (LOC-4)."""

    operator: str
    path: str
    """The file in checkpoint storage, whichever copy was read."""
    key_groups: KeyGroupRange
    served_by: ServedBy
    reason: str = ""
    """Why the secondary did not serve it, in words."""
    cause: StorageCause | None = None
    """What is wrong with the secondary; None if it served, or if there was none to look for."""
    copy_of: int = 0
    """The checkpoint that the secondary claims to be of, if it served the file; 0 if the primary did."""


class SnapshotMetrics(msgspec.Struct, frozen=True):
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


class VertexShape(msgspec.Struct, frozen=True):
    """How one vertex was run."""

    name: str
    parallelism: int
    stateful: tuple[str, ...]
    """Uids of its operators that checkpoints hold something of: positions, keyed state, transactions."""


class JobShape(msgspec.Struct, frozen=True):
    """What a job must keep if its checkpoints are to fit, as long as state cannot be redistributed (RSC-2)."""

    max_parallelism: int
    vertices: tuple[VertexShape, ...]
    """In the job's order."""


class CompletedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint whose metadata is durable: what a recovery starts from (COO-1, STA-3)."""

    checkpoint: CheckpointId
    attempt: AttemptNumber
    triggered_at_ms: int
    completed_at_ms: int
    snapshots: tuple[SubtaskSnapshot, ...]
    """One per subtask of the job, in the job's order."""
    job: JobShape | None = None
    """The job that took it. None before it is written, and in metadata of version 1."""

    def snapshot_of(self, subtask: SubtaskId) -> SubtaskSnapshot | None:
        """Return the subtask's part, or None if the checkpoint has none (which COO-1 forbids)."""
        return next((part for part in self.snapshots if part.subtask == subtask), None)


# --- coordinator to subtask ---------------------------------------------------------------------------------


class TriggerCheckpoint(msgspec.Struct, frozen=True):
    """Sent to the sources: inject the barrier of this checkpoint now (BAR-1)."""

    checkpoint: CheckpointId
    timestamp_ms: int


class NotifyCheckpointComplete(msgspec.Struct, frozen=True):
    """The checkpoint's metadata is durable: sinks commit (COO-1)."""

    checkpoint: CheckpointId


class NotifyCheckpointAborted(msgspec.Struct, frozen=True):
    """The checkpoint failed: release what was held for it (COO-2)."""

    checkpoint: CheckpointId
    reason: str


class FinishSubtask(msgspec.Struct, frozen=True):
    """The job is over: leave, with everything committed."""


class CancelSubtask(msgspec.Struct, frozen=True):
    """The attempt is over: stop at once and release everything (REC-1)."""

    reason: str


ToSubtask = (
    TriggerCheckpoint | NotifyCheckpointComplete | NotifyCheckpointAborted | FinishSubtask | CancelSubtask
)

# --- subtask to coordinator ---------------------------------------------------------------------------------


class SubtaskRunning(msgspec.Struct, frozen=True):
    """The subtask restored its state and processes records from now on."""

    attempt: AttemptNumber
    subtask: SubtaskId


class StateRestored(msgspec.Struct, frozen=True):
    """The subtask has its state; says which copy served each file, and so each key group (LOC-4)."""

    attempt: AttemptNumber
    subtask: SubtaskId
    checkpoint: CheckpointId
    files: tuple[RestoredFile, ...]


class AcknowledgeCheckpoint(msgspec.Struct, frozen=True):
    """The subtask's copy of its state is durable (SNP-3)."""

    attempt: AttemptNumber
    checkpoint: CheckpointId
    subtask: SubtaskId
    snapshot: SubtaskSnapshot
    metrics: SnapshotMetrics


class DeclineCheckpoint(msgspec.Struct, frozen=True):
    """The subtask could not take its snapshot (COO-2)."""

    attempt: AttemptNumber
    checkpoint: CheckpointId
    subtask: SubtaskId
    reason: str


class AbortNoted(msgspec.Struct, frozen=True):
    """The subtask learned that a checkpoint failed, and released everything that it held for it (COO-2)."""

    attempt: AttemptNumber
    subtask: SubtaskId
    checkpoint: CheckpointId


class InputConsumed(msgspec.Struct, frozen=True):
    """Every input of the subtask ended and all that follows from it was emitted; it waits for barriers only."""

    attempt: AttemptNumber
    subtask: SubtaskId


class TransactionsCommitted(msgspec.Struct, frozen=True):
    """A sink committed everything prepared up to this checkpoint."""

    attempt: AttemptNumber
    subtask: SubtaskId
    checkpoint: CheckpointId


class SubtaskFailed(msgspec.Struct, frozen=True):
    """The subtask cannot go on."""

    attempt: AttemptNumber
    subtask: SubtaskId
    reason: str
    unreadable: CheckpointId | None = None
    """The checkpoint that it could restore from no copy, if that is why (LOC-5, REC-4)."""


FromSubtask = (
    SubtaskRunning
    | StateRestored
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | AbortNoted
    | InputConsumed
    | TransactionsCommitted
    | SubtaskFailed
)
