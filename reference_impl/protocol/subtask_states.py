"""The states of a subtask."""

from __future__ import annotations

from enum import Enum, StrEnum, auto


class SubtaskState(StrEnum):
    """Where the checkpoint machine of a subtask stands."""

    RUNNING = "running"
    """Records flow, or may: some input has not ended."""
    SNAPSHOTTING = "snapshotting"
    """The synchronous part of a snapshot is under way; no other event reaches the machine before its outcome."""
    DRAINED = "drained"
    """Every input has ended; barriers still pass."""
    FINISHED = "finished"
    """All that it did is committed, and it leaves; checkpoints complete without it."""
    HELD = "held"
    """It has its part of the savepoint with which the job stops; nothing is read unless the savepoint is aborted."""


class SnapshotPart(Enum):
    """What a snapshot that was taken still waits for."""

    OPERATORS = auto()
    """The operators' state is being stored."""
    INPUTS = auto()
    """Input channels are being recorded."""
    OUTPUTS = auto()
    """Its barrier waits in line in an output buffer."""
    CHANNELS = auto()
    """The channel state is not stored."""
