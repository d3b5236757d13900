"""The events of the checkpoint machine of a subtask, frozen: barriers, messages, and outcomes of its own commands."""

from __future__ import annotations

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)


class BarrierAnnounced(msgspec.Struct, frozen=True):
    """A barrier arrived at the receiver's end of a channel that it may overtake, ahead of being read (UNA-1)."""

    channel: int
    barrier: CheckpointBarrier


class BarrierArrived(msgspec.Struct, frozen=True):
    """A barrier was reached: read from an input channel at its place, behind everything sent before it."""

    channel: int
    barrier: CheckpointBarrier


class AlignmentTimedOut(msgspec.Struct, frozen=True):
    """The alignment timeout has passed since the first barrier of a checkpoint came (UNA-2)."""

    checkpoint: CheckpointId


class OutputsPassed(msgspec.Struct, frozen=True):
    """The barrier of an aligned checkpoint has left every output buffer, so none of it is channel state any more."""

    checkpoint: CheckpointId


class ChannelStateStored(msgspec.Struct, frozen=True):
    """Outcome of ``StoreChannelState``: the channel state is durable, or there is none."""

    checkpoint: CheckpointId


class SnapshotTaken(msgspec.Struct, frozen=True):
    """Outcome of ``TakeSnapshot``: the synchronous part ended."""

    barrier: CheckpointBarrier


class SnapshotStored(msgspec.Struct, frozen=True):
    """Outcome of ``StoreSnapshot``: the copy of the operators' state is durable."""

    checkpoint: CheckpointId


class SnapshotFailed(msgspec.Struct, frozen=True):
    """Outcome of ``TakeSnapshot``, ``StoreSnapshot`` or ``StoreChannelState``: it failed."""

    checkpoint: CheckpointId
    reason: str


class InputEnded(msgspec.Struct, frozen=True):
    """One input channel (for a source: the source itself, channel 0) delivered its last record."""

    channel: int


class CloseAnnounced(msgspec.Struct, frozen=True):
    """The end of a channel that barriers may overtake arrived, ahead of being read: all its data has arrived."""

    channel: int


class ChannelClosed(msgspec.Struct, frozen=True):
    """The end of an input channel was reached: its sender has finished, and no barrier comes any more (BAR-6)."""

    channel: int


SubtaskEvent = (
    TriggerCheckpoint
    | BarrierAnnounced
    | BarrierArrived
    | AlignmentTimedOut
    | SnapshotTaken
    | SnapshotStored
    | OutputsPassed
    | ChannelStateStored
    | SnapshotFailed
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | InputEnded
    | CloseAnnounced
    | ChannelClosed
)

AlignmentEvent = (
    BarrierArrived
    | ChannelClosed
    | TriggerCheckpoint
    | SnapshotTaken
    | SnapshotFailed
    | NotifyCheckpointAborted
)
"""Those that the subtask hands on to its aligner; ``SnapshotFailed`` only for a synchronous part."""

RecordingEvent = AlignmentEvent | BarrierAnnounced | CloseAnnounced | AlignmentTimedOut
"""Those that the subtask hands on to a recorder."""
