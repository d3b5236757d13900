"""What the checkpoint machine of a subtask is told, frozen: barriers, messages, and outcomes of its own commands."""

from __future__ import annotations

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)


class BarrierArrived(msgspec.Struct, frozen=True):
    """A barrier was read from an input channel."""

    channel: int
    barrier: CheckpointBarrier


class SnapshotTaken(msgspec.Struct, frozen=True):
    """Outcome of ``TakeSnapshot``: the synchronous part ended."""

    barrier: CheckpointBarrier


class SnapshotStored(msgspec.Struct, frozen=True):
    """Outcome of ``StoreSnapshot``: the copy is durable."""

    checkpoint: CheckpointId


class SnapshotFailed(msgspec.Struct, frozen=True):
    """Outcome of ``TakeSnapshot`` or ``StoreSnapshot``: it failed."""

    checkpoint: CheckpointId
    reason: str


class InputEnded(msgspec.Struct, frozen=True):
    """One input channel (for a source: the source itself, channel 0) delivered its last record."""

    channel: int


SubtaskEvent = (
    TriggerCheckpoint
    | BarrierArrived
    | SnapshotTaken
    | SnapshotStored
    | SnapshotFailed
    | NotifyCheckpointComplete
    | NotifyCheckpointAborted
    | InputEnded
)

AlignmentEvent = BarrierArrived | SnapshotTaken | SnapshotFailed | NotifyCheckpointAborted
"""Those that the subtask hands on to its aligner; ``SnapshotFailed`` only for a synchronous part."""
