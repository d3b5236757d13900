"""The events of the coordinator machine, frozen: messages of subtasks, outcomes of its own commands, and timers.

The time comes beside each event, through the machine's entry point.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    ChannelsClosed,
    CompletedCheckpoint,
    DeclineCheckpoint,
    InputConsumed,
    Savepoint,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskRunning,
    TransactionsCommitted,
)


class JobStarted(msgspec.Struct, frozen=True):
    """The coordinator's process starts: with what durable storage holds (COO-6)."""

    completed: tuple[CompletedCheckpoint, ...]
    last_checkpoint: int
    """The highest checkpoint id ever used; 0 for none (COO-4)."""
    last_attempt: int
    """The highest attempt number ever used; 0 for none."""
    incomplete: tuple[CheckpointId, ...] = ()
    """Checkpoints of an earlier coordinator that left files but never completed."""
    superseded: tuple[CheckpointId, ...] = ()
    """Complete ones from before the savepoint that the job was started from: kept until a newer one is complete."""
    shared: tuple[str, ...] = ()
    """Paths of all shared files in storage, whether any checkpoint uses them or not (SNP-5)."""


class JobResized(msgspec.Struct, frozen=True):
    """The next attempt has other subtasks: slots were lost for good, or are there again (RSC-2)."""

    subtasks: tuple[SubtaskId, ...]
    terminal: tuple[SubtaskId, ...]
    """Those without outputs."""


class SavepointRequested(msgspec.Struct, frozen=True):
    """A user asks for a savepoint, and perhaps for the end of the job with it (COO-5)."""

    savepoint: Savepoint


class AttemptFailed(msgspec.Struct, frozen=True):
    """A subtask's process, its executor or its link is gone, or the attempt could not be deployed (REC-1)."""

    attempt: AttemptNumber
    reason: str
    subtask: SubtaskId | None = None
    """The subtask that failed, where one is known."""
    cause: Cause = Cause.PROCESS_LOST


class AttemptStopped(msgspec.Struct, frozen=True):
    """Outcome of ``StopAttempt``: no process of the attempt is needed or waited for any more."""

    attempt: AttemptNumber


class MetadataWritten(msgspec.Struct, frozen=True):
    """Outcome of ``WriteMetadata``: the checkpoint is durable."""

    completed: CompletedCheckpoint


class MetadataFailed(msgspec.Struct, frozen=True):
    """Outcome of ``WriteMetadata``: it could not be made durable."""

    checkpoint: CheckpointId
    reason: str


class RestartDue(msgspec.Struct, frozen=True):
    """Outcome of ``SetTimer``: the delay before the next attempt is over."""

    name: ClassVar[str] = "restart"


class TriggerDue(msgspec.Struct, frozen=True):
    """Outcome of ``SetTimer``: the next checkpoint may be due."""

    name: ClassVar[str] = "trigger"


class CheckpointExpired(msgspec.Struct, frozen=True):
    """Outcome of ``SetTimer``: the time of a checkpoint is over."""

    checkpoint: CheckpointId

    @property
    def name(self) -> str:
        return f"expire-{self.checkpoint}"


TimerEvent = RestartDue | TriggerDue | CheckpointExpired

CoordinatorEvent = (
    JobStarted
    | JobResized
    | SavepointRequested
    | SubtaskRunning
    | AcknowledgeCheckpoint
    | DeclineCheckpoint
    | InputConsumed
    | ChannelsClosed
    | SubtaskFinished
    | TransactionsCommitted
    | SubtaskFailed
    | AttemptFailed
    | AttemptStopped
    | MetadataWritten
    | MetadataFailed
    | TimerEvent
)
