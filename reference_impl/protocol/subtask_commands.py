"""What the checkpoint machine of a subtask asks of its shell, frozen."""

from __future__ import annotations

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier


class NoteAlignmentStarted(msgspec.Struct, frozen=True):
    """Take the time: the first barrier came and others are missing."""

    checkpoint: CheckpointId


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Every barrier came: do the synchronous part now; answer SnapshotTaken or SnapshotFailed."""

    barrier: CheckpointBarrier


class ForwardBarrier(msgspec.Struct, frozen=True):
    """Append the barrier to every output channel."""

    barrier: CheckpointBarrier


class StoreSnapshot(msgspec.Struct, frozen=True):
    """Start the asynchronous part; answer SnapshotStored or SnapshotFailed, unless it is cancelled."""

    checkpoint: CheckpointId


class CancelSnapshot(msgspec.Struct, frozen=True):
    """Cancel the asynchronous part and drop its result (SNP-2)."""

    checkpoint: CheckpointId


class SendAcknowledge(msgspec.Struct, frozen=True):
    """Acknowledge the checkpoint to the coordinator, with handles and metrics."""

    checkpoint: CheckpointId


class SendDecline(msgspec.Struct, frozen=True):
    """Tell the coordinator that the checkpoint cannot complete here."""

    checkpoint: CheckpointId
    reason: str


class NotifyOperatorsComplete(msgspec.Struct, frozen=True):
    """Tell the operators that the checkpoint completed; sinks commit."""

    checkpoint: CheckpointId


class NotifyOperatorsAborted(msgspec.Struct, frozen=True):
    """Tell the operators that the checkpoint failed."""

    checkpoint: CheckpointId


class EndInput(msgspec.Struct, frozen=True):
    """Let the operators emit their last output, pass the end of input on, and report it."""


SubtaskCommand = (
    NoteAlignmentStarted
    | TakeSnapshot
    | ForwardBarrier
    | StoreSnapshot
    | CancelSnapshot
    | SendAcknowledge
    | SendDecline
    | NotifyOperatorsComplete
    | NotifyOperatorsAborted
    | EndInput
)

AlignmentCommand = NoteAlignmentStarted | TakeSnapshot | SendDecline
"""Those that begin with the aligner."""
