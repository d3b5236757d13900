"""What crosses a wire: elements of a channel, and the messages between subtasks and the coordinator.

All are frozen values. A subtask's messages carry its attempt, so that the coordinator can fence off what an
older attempt still sends (REC-2). Times are milliseconds of the coordinator's clock.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from barrier_tck.reference_impl.ids import (
    AttemptNumber,
    ChannelId,
    CheckpointId,
    KeyGroupRange,
    SubtaskId,
)
from barrier_tck.reference_impl.protocol.transactions import TransactionHandle
from barrier_tck.reference_impl.protocol.watermarks import EventTimeSnapshot
from barrier_tck.reference_impl.runtime_errors import StorageCause

# --- elements of a data channel -----------------------------------------------------------------------------


class Savepoint(msgspec.Struct, frozen=True):
    """A checkpoint that a user asked for and owns (COO-5)."""

    directory: str
    """Where it is kept, relative to the root of the job's file system; empty in its own metadata."""
    stop: bool = False
    """Whether the job is stopped with it: then nothing behind its barrier is processed."""


class CheckpointBarrier(msgspec.Struct, frozen=True):
    """Separates the records of checkpoint n from those of n + 1 on one channel (BAR-1)."""

    checkpoint: CheckpointId
    timestamp_ms: int
    """When the coordinator triggered the checkpoint."""
    ahead: bool = False
    """Whether it may overtake records: its checkpoint is not aligned, or not any more (UNA-1, UNA-2)."""
    savepoint: Savepoint | None = None
    """The savepoint that is taken; None: an ordinary checkpoint."""
    reuse_from: int = 0
    """Its snapshots may use shared files of completed checkpoints from this one on, which stay until it has ended
    (SNP-5); 0: snapshots are full, and share nothing."""

    @property
    def is_terminal(self) -> bool:
        """Whether nothing behind it may be processed, because the job stops with its savepoint."""
        return self.savepoint is not None and self.savepoint.stop


class EndOfInput(msgspec.Struct, frozen=True):
    """No record follows on this channel. Barriers still may: a later checkpoint commits the last output."""


class EndOfChannel(msgspec.Struct, frozen=True):
    """Nothing follows on this channel, not even a barrier: its sender has finished (BAR-6)."""


ChannelControl = CheckpointBarrier | EndOfInput | EndOfChannel
"""Every element of a channel that is not a batch of records."""

# --- what a snapshot consists of ----------------------------------------------------------------------------


class SplitPosition(msgspec.Struct, frozen=True):
    """How far a source has read one split: ``offset`` records were read, so reading resumes at ``offset``."""

    split: str
    offset: int
    watermark_ms: int | msgspec.UnsetType = msgspec.UNSET
    """How far event time has come in it (EVT-1); unset if the source makes no watermarks, or none came of it yet."""
    idle: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether it counted as idle; unset if not."""


class StateHandle(msgspec.Struct, frozen=True):
    """Points to one file of keyed state, or of channel state, in checkpoint storage (STA-3)."""

    path: str
    """Relative to the root of the checkpoint storage, or to the savepoint that it belongs to."""
    size: int
    """Bytes."""
    checksum: str
    """``crc32:xxxxxxxx`` of the whole file."""
    key_groups: KeyGroupRange
    """Empty for channel state."""
    kind: str = "keyed"
    """Or ``CHANNEL_STATE``."""
    savepoint: str = ""
    """The directory of the savepoint that it belongs to; empty for checkpoints, and in a savepoint's own metadata."""
    shared: int = 0
    """The checkpoint for which it was written, if later checkpoints may use it too (SNP-5); 0: it belongs to one
    checkpoint alone."""

    def is_written_for(self, checkpoint: int) -> bool:
        """Tell, of a file that a checkpoint uses, whether it was written for it, and not for an earlier one."""
        return self.shared in (0, checkpoint)

    @property
    def name(self) -> str:
        """Return what the file is called in reports: its path, behind the directory of its savepoint, if any."""
        return f"{self.savepoint}/{self.path}" if self.savepoint else self.path


class StateList(msgspec.Struct, frozen=True):
    """A list that an operator keeps without keys (STA-1). It is part of a checkpoint's metadata, and of no file."""

    name: str
    entries: tuple[bytes, ...]
    to_all: bool = False
    """Whether a restore gives each subtask the lists of all; else each entry goes to one subtask (RSC-3)."""
    own: tuple[int, int] | msgspec.UnsetType = msgspec.UNSET
    """From where to where a subtask's own entries are in a restored list for all; unset in every stored part."""


class OperatorSnapshot(msgspec.Struct, frozen=True):
    """What one operator of a subtask contributes to a checkpoint."""

    operator: str
    positions: tuple[SplitPosition, ...] = ()
    handles: tuple[StateHandle, ...] = ()
    transactions: tuple[TransactionHandle, ...] = ()
    input_ended: bool = False
    """Whether the operator had already seen the end of its input (and emitted what it emits then)."""
    lists: tuple[StateList, ...] | msgspec.UnsetType = msgspec.UNSET
    """What it keeps without keys; unset if it keeps no list."""


class ChannelContent(msgspec.Struct, frozen=True):
    """How much of one channel is in a snapshot."""

    channel: ChannelId
    buffers: int
    """Whole batches, and parts of batches."""
    size: int
    """Bytes."""
    first: int = 0
    """So many of the buffers, the oldest, come before everything on other channels: their senders were others once."""


class ChannelState(msgspec.Struct, frozen=True):
    """The records in flight of one subtask's part of a checkpoint (UNA-1, CHL-2). One file holds them all."""

    file: StateHandle
    inputs: tuple[ChannelContent, ...] = ()
    """Input channels: what had arrived or arrived ahead of the barrier, and is not in the operators' state."""
    outputs: tuple[ChannelContent, ...] = ()
    """Output channels: what the barrier overtook in their output buffers. It follows what the receiver holds."""


CHANNEL_STATE = "channel"
"""The kind of a ``StateHandle`` that points to channel state."""


class ReroutedChannel(msgspec.Struct, frozen=True):
    """Records in flight that a subtask of a rescaled job takes over from a channel of the job as it was (RSC-3)."""

    origin: ChannelId
    """The channel as it was."""
    files: tuple[StateHandle, ...]
    """The files that hold records of it: its receiver's, then its sender's; or only one of them."""
    target: ChannelId
    """The input channel that they are put into."""
    first: int
    """So many batches of it, the oldest, come before everything that others held."""
    by_key: bool
    """Whether the subtask takes only the records of its own key groups, and leaves the others to their owners."""
    as_it_was: bool = False
    """Whether neither end has another parallelism: then all of it comes again on the same channel, watermarks too."""


class SubtaskSnapshot(msgspec.Struct, frozen=True):
    """One subtask's part of a checkpoint: the snapshots of its chained operators, head first, and channel state."""

    subtask: SubtaskId
    attempt: AttemptNumber
    operators: tuple[OperatorSnapshot, ...]
    channels: ChannelState | None = None
    """None if no record was in flight here, as always in aligned mode."""
    finished: bool = False
    """Whether the subtask had finished before the checkpoint (BAR-6): then it holds no file, and its operators only say
    how far its source was read."""
    rerouted: tuple[ReroutedChannel, ...] | msgspec.UnsetType = msgspec.UNSET
    """What it takes over of the records in flight, instead of ``channels``; only in a part that was redistributed for
    another parallelism. Unset in every stored part."""
    redistributed: bool | msgspec.UnsetType = msgspec.UNSET
    """Whether its state was taken by subtasks with other key groups, so that increments cannot build on it (SNP-5).
    Unset in every stored part."""
    event_time: EventTimeSnapshot | msgspec.UnsetType = msgspec.UNSET
    """How far event time has come in it (EVT-1); unset in a job that knows none."""

    def handles(self) -> tuple[StateHandle, ...]:
        """Return every state file that this snapshot needs."""
        of_operators = tuple(handle for operator in self.operators for handle in operator.handles)
        return of_operators if self.channels is None else (*of_operators, self.channels.file)

    def written_for(self, checkpoint: int) -> tuple[StateHandle, ...]:
        """Return the files that were written for a checkpoint that this is a part of: not those that it reuses."""
        return tuple(handle for handle in self.handles() if handle.is_written_for(checkpoint))


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
    """Why the secondary did not serve it, as a phrase."""
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
    """All state files together."""
    channel_bytes: int = 0
    """Bytes of records in flight among them (UNA-3)."""
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
    """What a checkpoint says about the job that took it, so that its state can be redistributed (RSC-2)."""

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
    savepoint: Savepoint | None = None
    """The savepoint that it is; None: an ordinary checkpoint."""

    @property
    def stops_the_job(self) -> bool:
        """Whether the job was stopped with it, so that only its commits are left to do."""
        return self.savepoint is not None and self.savepoint.stop

    @property
    def finished(self) -> tuple[SubtaskId, ...]:
        """Return the subtasks that had finished before it (BAR-6)."""
        return tuple(part.subtask for part in self.snapshots if part.finished)

    def snapshot_of(self, subtask: SubtaskId) -> SubtaskSnapshot | None:
        """Return the subtask's part, or None if the checkpoint has none (which COO-1 forbids)."""
        return next((part for part in self.snapshots if part.subtask == subtask), None)


# --- coordinator to subtask ---------------------------------------------------------------------------------


class TriggerCheckpoint(msgspec.Struct, frozen=True):
    """Sent to the sources, and to subtasks before which everything has finished: inject the barrier now (BAR-1)."""

    checkpoint: CheckpointId
    timestamp_ms: int
    savepoint: Savepoint | None = None
    """The savepoint that is taken; None: an ordinary checkpoint."""
    reuse_from: int = 0
    """As in ``CheckpointBarrier``."""

    @property
    def barrier(self) -> CheckpointBarrier:
        return CheckpointBarrier(
            self.checkpoint, self.timestamp_ms, savepoint=self.savepoint, reuse_from=self.reuse_from
        )


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


class CountLoop(msgspec.Struct, frozen=True):
    """Sent to the members of a loop: tell how many elements you have sent round it and taken (CHL-5)."""

    loop: str
    wave: int


class EndLoop(msgspec.Struct, frozen=True):
    """Sent to the members of a loop: nothing is under way in it any more, so its feedback channels have ended."""

    loop: str


class AllowWatermark(msgspec.Struct, frozen=True):
    """Sent to a subtask of an aligned source: read no split whose watermark is beyond this, until you are told anew
    (EVT-6)."""

    largest_ms: int


ToSubtask = (
    TriggerCheckpoint
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | CountLoop
    | EndLoop
    | AllowWatermark
    | FinishSubtask
    | CancelSubtask
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
    recorded: tuple[CheckpointId, ...] = ()
    """The checkpoints for which it still keeps records in flight in memory, in ascending order (SNP-2)."""
    passed_over_for: CheckpointId | None = None
    """A newer checkpoint whose snapshot it has taken without ever taking this one's; None if there is none (BAR-2)."""
    under_way: tuple[CheckpointId, ...] = ()
    """The checkpoints for which its alignment or its snapshot is under way, in ascending order (SNP-2)."""


class InputConsumed(msgspec.Struct, frozen=True):
    """Every input of the subtask ended and all that follows from it was emitted; it waits for barriers only."""

    attempt: AttemptNumber
    subtask: SubtaskId


class ChannelsClosed(msgspec.Struct, frozen=True):
    """Everything before the subtask has finished and it has not: no barrier reaches it, so it must be triggered."""

    attempt: AttemptNumber
    subtask: SubtaskId


class SubtaskFinished(msgspec.Struct, frozen=True):
    """The subtask has done and committed all that it ever will, and leaves (BAR-6)."""

    attempt: AttemptNumber
    subtask: SubtaskId
    snapshot: SubtaskSnapshot
    """Its part of every later checkpoint of the attempt."""


class LoopInputEnded(msgspec.Struct, frozen=True):
    """A member of a loop will get nothing more from outside the loop."""

    attempt: AttemptNumber
    subtask: SubtaskId
    loop: str


class LoopCounted(msgspec.Struct, frozen=True):
    """Answers ``CountLoop``: counts since the attempt began, recovered elements of the loop's channels among them."""

    attempt: AttemptNumber
    subtask: SubtaskId
    loop: str
    wave: int
    sent: int
    """Elements that the subtask put into channels to members."""
    taken: int
    """Elements that it took from channels of members and dealt with."""


class SourceWatermark(msgspec.Struct, frozen=True):
    """How far event time has come in a subtask of an aligned source; said again and again (EVT-6)."""

    attempt: AttemptNumber
    subtask: SubtaskId
    at_ms: int
    """The smallest watermark of its splits that are active, paused ones among them; of no meaning if there is none."""
    idle: bool = False
    """Whether all of its splits that have not ended are idle."""
    ended: bool = False
    """Whether all of its splits have ended."""

    @property
    def active(self) -> bool:
        """Return whether others wait for it."""
        return not (self.idle or self.ended)


class TransactionsCommitted(msgspec.Struct, frozen=True):
    """A sink committed everything prepared up to this checkpoint."""

    attempt: AttemptNumber
    subtask: SubtaskId
    checkpoint: CheckpointId


class Frame(msgspec.Struct, frozen=True):
    """A place that an exception came through."""

    module: str
    file: str
    """The name of its file, without folders."""
    line: int


class Crash(msgspec.Struct, frozen=True):
    """An exception that stands for no failure of the world: a bug of the runtime, or of a user's code."""

    error: str
    """What was raised, as one line."""
    frames: tuple[Frame, ...]
    """What it came through, the innermost place first."""
    behind_loop: str = ""
    """The loop round which something was to go although it had ended, if that was raised (CHL-5)."""


class SubtaskFailed(msgspec.Struct, frozen=True):
    """The subtask cannot go on."""

    attempt: AttemptNumber
    subtask: SubtaskId
    reason: str
    unreadable: CheckpointId | None = None
    """The checkpoint that it could restore from no copy, if that is why (LOC-5, REC-4)."""
    crash: Crash | None = None
    """The exception of which it died, if the world is not to blame."""


FromSubtask = (
    SubtaskRunning
    | StateRestored
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | AbortNoted
    | InputConsumed
    | ChannelsClosed
    | SubtaskFinished
    | LoopInputEnded
    | LoopCounted
    | SourceWatermark
    | TransactionsCommitted
    | SubtaskFailed
)
