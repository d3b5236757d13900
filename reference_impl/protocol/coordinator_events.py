"""Events and commands of the coordinator machine, frozen. Every event carries its time (``at_ms``)."""

from __future__ import annotations

from enum import Enum

import msgspec

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, SnapshotMetrics, SubtaskSnapshot


class JobState(Enum):
    """Where a job stands."""

    CREATED = "created"
    DEPLOYING = "deploying"
    RUNNING = "running"
    FINISHING = "finishing"
    STOPPING = "stopping"
    BACKING_OFF = "backing off"
    FINISHED = "finished"
    FAILED = "failed"


# --- events -------------------------------------------------------------------------------------------------


class JobStarted(msgspec.Struct, frozen=True):
    """The coordinator's process starts: with what durable storage holds (COO-6)."""

    at_ms: float
    completed: tuple[CompletedCheckpoint, ...]
    last_checkpoint: int
    """The highest checkpoint id ever used; 0 for none (COO-4)."""
    last_attempt: int
    """The highest attempt number ever used; 0 for none."""
    incomplete: tuple[CheckpointId, ...] = ()
    """Checkpoints that left files but never completed: an earlier coordinator's, gone with it."""


class RunningReceived(msgspec.Struct, frozen=True):
    """A subtask restored its state and runs."""

    at_ms: float
    attempt: AttemptNumber
    subtask: SubtaskId


class AttemptFailed(msgspec.Struct, frozen=True):
    """A subtask, its executor or its link failed, and with it the attempt (REC-1)."""

    at_ms: float
    attempt: AttemptNumber
    reason: str
    subtask: SubtaskId | None = None
    unreadable: CheckpointId | None = None
    """The checkpoint that the subtask could restore from no copy, if that is why (REC-4)."""


class AttemptStopped(msgspec.Struct, frozen=True):
    """Outcome of ``StopAttempt``: no process of the attempt is needed or waited for any more."""

    at_ms: float
    attempt: AttemptNumber


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that ``SetTimer`` set has come."""

    at_ms: float
    name: str


class InputConsumedReceived(msgspec.Struct, frozen=True):
    """A terminal subtask saw the end of all input."""

    at_ms: float
    attempt: AttemptNumber
    subtask: SubtaskId


class CommitReceived(msgspec.Struct, frozen=True):
    """A terminal subtask committed everything prepared up to a checkpoint."""

    at_ms: float
    attempt: AttemptNumber
    subtask: SubtaskId
    checkpoint: CheckpointId


class AcknowledgeReceived(msgspec.Struct, frozen=True):
    """A subtask acknowledged a checkpoint."""

    at_ms: float
    attempt: AttemptNumber
    checkpoint: CheckpointId
    subtask: SubtaskId
    snapshot: SubtaskSnapshot
    metrics: SnapshotMetrics


class DeclineReceived(msgspec.Struct, frozen=True):
    """A subtask declined a checkpoint."""

    at_ms: float
    attempt: AttemptNumber
    checkpoint: CheckpointId
    subtask: SubtaskId
    reason: str


class MetadataWritten(msgspec.Struct, frozen=True):
    """Outcome of ``WriteMetadata``: the checkpoint is durable."""

    at_ms: float
    completed: CompletedCheckpoint


class MetadataFailed(msgspec.Struct, frozen=True):
    """Outcome of ``WriteMetadata``: it could not be made durable."""

    at_ms: float
    checkpoint: CheckpointId
    reason: str


CoordinatorEvent = (
    JobStarted
    | RunningReceived
    | AttemptFailed
    | AttemptStopped
    | TimerFired
    | InputConsumedReceived
    | CommitReceived
    | AcknowledgeReceived
    | DeclineReceived
    | MetadataWritten
    | MetadataFailed
)

# --- commands -----------------------------------------------------------------------------------------------


class DeployAttempt(msgspec.Struct, frozen=True):
    """Deploy the whole dataflow, each subtask with its part of ``restore`` (REC-1)."""

    attempt: AttemptNumber
    restore: CompletedCheckpoint | None
    last_checkpoint: int
    """To be made durable with the attempt number, before the deployment (COO-4)."""


class StopAttempt(msgspec.Struct, frozen=True):
    """End every process of the attempt; answer AttemptStopped."""

    attempt: AttemptNumber
    reason: str


class SendTrigger(msgspec.Struct, frozen=True):
    """Make the id durable (COO-4), then tell the sources to inject the barrier (BAR-1)."""

    attempt: AttemptNumber
    checkpoint: CheckpointId
    timestamp_ms: int


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
    reason: str


class DiscardSnapshot(msgspec.Struct, frozen=True):
    """Delete the files of one subtask's part."""

    snapshot: SubtaskSnapshot


class DiscardCheckpoint(msgspec.Struct, frozen=True):
    """Delete everything of a checkpoint: metadata first, so that it never looks complete when it is not."""

    checkpoint: CheckpointId


class SetTimer(msgspec.Struct, frozen=True):
    """Answer TimerFired at this time; a timer of the same name is replaced."""

    name: str
    at_ms: float


class FinishJob(msgspec.Struct, frozen=True):
    """All output is committed: let every subtask leave."""

    attempt: AttemptNumber


class FailJob(msgspec.Struct, frozen=True):
    """Give the job up."""

    reason: str


CoordinatorCommand = (
    DeployAttempt
    | StopAttempt
    | SendTrigger
    | WriteMetadata
    | NotifyComplete
    | NotifyAborted
    | DiscardSnapshot
    | DiscardCheckpoint
    | SetTimer
    | FinishJob
    | FailJob
)
