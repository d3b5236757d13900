"""What the coordinator machine asks of its shell, frozen."""

from __future__ import annotations

import msgspec

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_events import TimerEvent
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    Savepoint,
    StateHandle,
    SubtaskFailed,
    SubtaskSnapshot,
)


class DeployAttempt(msgspec.Struct, frozen=True):
    """Deploy the whole dataflow, each subtask with its part of ``restore`` (REC-1)."""

    attempt: AttemptNumber
    restore: CompletedCheckpoint | None
    last_checkpoint: int
    """To be made durable with the attempt number, before the deployment (COO-4)."""


class StopAttempt(msgspec.Struct, frozen=True):
    """End every process of the attempt; answer AttemptStopped."""

    attempt: AttemptNumber
    cause: Cause
    reason: str
    crashed: SubtaskFailed | None = None
    """The report of the subtask that died of an exception of its own, if that is why."""


class SendTrigger(msgspec.Struct, frozen=True):
    """Make the id durable (COO-4), then tell the sources to inject the barrier (BAR-1)."""

    attempt: AttemptNumber
    checkpoint: CheckpointId
    timestamp_ms: int
    final: bool = False
    """Whether all input has been consumed; then it is the checkpoint that commits the last output."""
    savepoint: Savepoint | None = None
    """The savepoint that is taken; None: an ordinary checkpoint."""
    closed: tuple[SubtaskId, ...] = ()
    """The subtasks that no barrier reaches, because everything before them has finished: they are notified, too
    (BAR-6)."""
    reuse_from: int = 0
    """The oldest completed checkpoint whose shared files may be used again (SNP-5); 0: none may, and none is shared."""


class SendLateTrigger(msgspec.Struct, frozen=True):
    """Tell one more subtask of a checkpoint that was triggered already: no barrier reaches it any more (BAR-6)."""

    subtask: SubtaskId
    checkpoint: CheckpointId
    timestamp_ms: int
    savepoint: Savepoint | None = None
    reuse_from: int = 0
    """As in ``SendTrigger``."""


class RefuseSavepoint(msgspec.Struct, frozen=True):
    """Report to the requester of a savepoint that none will be taken."""

    savepoint: Savepoint
    reason: str


class WriteMetadata(msgspec.Struct, frozen=True):
    """Publish the metadata atomically; answer MetadataWritten or MetadataFailed."""

    completed: CompletedCheckpoint


class NotifyComplete(msgspec.Struct, frozen=True):
    """Tell every subtask that the checkpoint is complete."""

    attempt: AttemptNumber
    checkpoint: CheckpointId


class NotifyAborted(msgspec.Struct, frozen=True):
    """Tell every subtask that the checkpoint was aborted."""

    attempt: AttemptNumber
    checkpoint: CheckpointId
    cause: Cause
    reason: str


class DiscardSnapshot(msgspec.Struct, frozen=True):
    """Delete files that were written for one subtask's part of a checkpoint."""

    snapshot: SubtaskSnapshot
    files: tuple[StateHandle, ...]
    """Those of its files that no checkpoint uses."""


class DiscardCheckpoint(msgspec.Struct, frozen=True):
    """Delete everything of a checkpoint: metadata first, so that it never looks complete when it is not."""

    checkpoint: CheckpointId
    kept: tuple[str, ...] = ()
    """Paths of shared files that were written for it and that other checkpoints use (SNP-5)."""


class DiscardShared(msgspec.Struct, frozen=True):
    """Delete shared files that no checkpoint uses any more (SNP-5)."""

    paths: tuple[str, ...]


class SetTimer(msgspec.Struct, frozen=True):
    """Answer with this event at this time; a timer of the same name is replaced."""

    timer: TimerEvent
    at_ms: float


class FinishJob(msgspec.Struct, frozen=True):
    """All output is committed: let every subtask leave."""

    attempt: AttemptNumber
    stopped_with: Savepoint | None = None
    """The savepoint with which the job was stopped; None if all input was consumed."""


class FailJob(msgspec.Struct, frozen=True):
    """Give the job up."""

    cause: Cause
    reason: str


CoordinatorCommand = (
    DeployAttempt
    | StopAttempt
    | SendTrigger
    | SendLateTrigger
    | RefuseSavepoint
    | WriteMetadata
    | NotifyComplete
    | NotifyAborted
    | DiscardSnapshot
    | DiscardCheckpoint
    | DiscardShared
    | SetTimer
    | FinishJob
    | FailJob
)
