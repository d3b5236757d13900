"""The states of a subtask."""

from __future__ import annotations

from enum import StrEnum


class SubtaskState(StrEnum):
    """Where the checkpoint machine of a subtask stands."""

    RUNNING = "running"
    """Records flow, or may: some input has not ended."""
    SNAPSHOTTING = "snapshotting"
    """The synchronous part of a snapshot is under way; nothing else is told to the machine before its outcome."""
    DRAINED = "drained"
    """Every input has ended; barriers still pass."""
    HELD = "held"
    """It has its part of the savepoint with which the job stops; nothing is read unless the savepoint is aborted."""
