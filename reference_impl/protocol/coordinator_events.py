"""Events and commands of the coordinator machine, frozen. Every event carries its time (``at_ms``)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from reference_impl.protocol.messages import CompletedCheckpoint, SnapshotMetrics, SubtaskSnapshot


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


@dataclass(frozen=True, slots=True)
class JobStarted:
    """The coordinator's process starts: with what durable storage holds (COO-6)."""

    at_ms: float
    completed: tuple[CompletedCheckpoint, ...]
    last_checkpoint: int
    """The highest checkpoint id ever used; 0 for none (COO-4)."""
    last_attempt: int
    """The highest attempt number ever used; 0 for none."""
    incomplete: tuple[CheckpointId, ...] = ()
    """Checkpoints that left files but never completed: an earlier coordinator's, gone with it."""


@dataclass(frozen=True, slots=True)
class RunningReceived:
    """A subtask restored its state and runs."""

    at_ms: float
    attempt: AttemptNumber
    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A subtask, its executor or its link failed, and with it the attempt (REC-1)."""

    at_ms: float
    attempt: AttemptNumber
    reason: str
    subtask: SubtaskId | None = None
    unreadable: CheckpointId | None = None
    """The checkpoint that the subtask could restore from no copy, if that is why (REC-4)."""


@dataclass(frozen=True, slots=True)
class AttemptStopped:
    """Outcome of ``StopAttempt``: no process of the attempt is needed or waited for any more."""

    at_ms: float
    attempt: AttemptNumber


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that ``SetTimer`` set has come."""

    at_ms: float
    name: str


@dataclass(frozen=True, slots=True)
class InputConsumedReceived:
    """A terminal subtask saw the end of all input."""

    at_ms: float
    attempt: AttemptNumber
    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class CommitReceived:
    """A terminal subtask committed everything prepared up to a checkpoint."""

    at_ms: float
    attempt: AttemptNumber
    subtask: SubtaskId
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class AcknowledgeReceived:
    """A subtask acknowledged a checkpoint."""

    at_ms: float
    attempt: AttemptNumber
    checkpoint: CheckpointId
    subtask: SubtaskId
    snapshot: SubtaskSnapshot
    metrics: SnapshotMetrics


@dataclass(frozen=True, slots=True)
class DeclineReceived:
    """A subtask declined a checkpoint."""

    at_ms: float
    attempt: AttemptNumber
    checkpoint: CheckpointId
    subtask: SubtaskId
    reason: str


@dataclass(frozen=True, slots=True)
class MetadataWritten:
    """Outcome of ``WriteMetadata``: the checkpoint is durable."""

    at_ms: float
    completed: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class MetadataFailed:
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


@dataclass(frozen=True, slots=True)
class DeployAttempt:
    """Deploy the whole dataflow, each subtask with its part of ``restore`` (REC-1)."""

    attempt: AttemptNumber
    restore: CompletedCheckpoint | None
    last_checkpoint: int
    """To be made durable with the attempt number, before the deployment (COO-4)."""


@dataclass(frozen=True, slots=True)
class StopAttempt:
    """End every process of the attempt; answer AttemptStopped."""

    attempt: AttemptNumber
    reason: str


@dataclass(frozen=True, slots=True)
class SendTrigger:
    """Make the id durable (COO-4), then tell the sources to inject the barrier (BAR-1)."""

    attempt: AttemptNumber
    checkpoint: CheckpointId
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class WriteMetadata:
    """Publish the metadata atomically; answer MetadataWritten or MetadataFailed."""

    completed: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """Tell every subtask that the checkpoint is complete."""

    attempt: AttemptNumber
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Tell every subtask that the checkpoint was aborted."""

    attempt: AttemptNumber
    checkpoint: CheckpointId
    reason: str


@dataclass(frozen=True, slots=True)
class DiscardSnapshot:
    """Delete the files of one subtask's part."""

    snapshot: SubtaskSnapshot


@dataclass(frozen=True, slots=True)
class DiscardCheckpoint:
    """Delete everything of a checkpoint: metadata first, so that it never looks complete when it is not."""

    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class SetTimer:
    """Answer TimerFired at this time; a timer of the same name is replaced."""

    name: str
    at_ms: float


@dataclass(frozen=True, slots=True)
class FinishJob:
    """All output is committed: let every subtask leave."""

    attempt: AttemptNumber


@dataclass(frozen=True, slots=True)
class FailJob:
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
