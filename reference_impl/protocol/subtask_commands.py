"""What the checkpoint machine of a subtask asks of its shell, frozen."""

from __future__ import annotations

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier


class NoteAlignmentStarted(msgspec.Struct, frozen=True):
    """Take the time: the first barrier came and others are missing."""

    checkpoint: CheckpointId


class StartAlignmentTimer(msgspec.Struct, frozen=True):
    """A checkpoint begins here: say ``AlignmentTimedOut`` when the alignment timeout has passed (UNA-2)."""

    checkpoint: CheckpointId


class TakeSnapshot(msgspec.Struct, frozen=True):
    """The snapshot waits for no barrier: do the synchronous part now; answer SnapshotTaken or SnapshotFailed."""

    barrier: CheckpointBarrier


class ForwardBarrier(msgspec.Struct, frozen=True):
    """Append the barrier to every output channel.

    If ``barrier.ahead``, put it before what waits in an output buffer, which becomes channel state (UNA-1), except on
    channels that it must not overtake.
    """

    barrier: CheckpointBarrier


class RecordInput(msgspec.Struct, frozen=True):
    """What is unread ahead of the barrier on an input channel is channel state; if the barrier lies there, take it
    out.
    """

    checkpoint: CheckpointId
    channel: int


class OvertakeOutputs(msgspec.Struct, frozen=True):
    """Put a barrier that still waits in output buffers before what waits there, which becomes channel state (UNA-2).

    Answer OutputsPassed.
    """

    checkpoint: CheckpointId


class StoreChannelState(msgspec.Struct, frozen=True):
    """Every channel is closed: store what was recorded; answer ChannelStateStored or SnapshotFailed."""

    checkpoint: CheckpointId


class HoldInput(msgspec.Struct, frozen=True):
    """Read nothing from now on, neither a channel nor the source: the job stops with this barrier (COO-5)."""


class ReleaseInput(msgspec.Struct, frozen=True):
    """Go on as before ``HoldInput``: the savepoint failed."""


class StoreSnapshot(msgspec.Struct, frozen=True):
    """Start the asynchronous part; answer SnapshotStored or SnapshotFailed, unless it is cancelled."""

    checkpoint: CheckpointId


class CancelSnapshot(msgspec.Struct, frozen=True):
    """Cancel the asynchronous part, drop its result and what was recorded for it (SNP-2)."""

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


class ReportClosed(msgspec.Struct, frozen=True):
    """Tell the coordinator that no barrier reaches the subtask any more, so that it must be triggered (BAR-6)."""


class Leave(msgspec.Struct, frozen=True):
    """Nothing is left to do or to commit: close the output channels, tell the coordinator, and leave (BAR-6)."""


SubtaskCommand = (
    NoteAlignmentStarted
    | StartAlignmentTimer
    | TakeSnapshot
    | ForwardBarrier
    | RecordInput
    | OvertakeOutputs
    | HoldInput
    | ReleaseInput
    | StoreSnapshot
    | StoreChannelState
    | CancelSnapshot
    | SendAcknowledge
    | SendDecline
    | NotifyOperatorsComplete
    | NotifyOperatorsAborted
    | EndInput
    | ReportClosed
    | Leave
)

AlignmentCommand = NoteAlignmentStarted | StartAlignmentTimer | TakeSnapshot | RecordInput | SendDecline
"""Those that begin with the aligner, the tracker or the recorder."""
