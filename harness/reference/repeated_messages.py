"""Messages about checkpoints that arrive twice: which ones, and how late the second copy comes. Each world delivers
them.

Only messages that name a checkpoint are repeated, because a protocol must tolerate this. The messages that a subtask
runs, has failed or has consumed its input come once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barrier_tck.faults.targets import Direction
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)

REPEATED = (
    AcknowledgeCheckpoint,
    DeclineCheckpoint,
    TriggerCheckpoint,
    NotifyCheckpointComplete,
    NotifyCheckpointAborted,
)


class RepeatedMessages:
    """The subtasks whose messages are repeated at present."""

    def __init__(self) -> None:
        """Start without repeated messages."""
        self.in_force: tuple[RepeatableMessages, ...] = ()

    def copies(self, subtask: str, direction: Direction, message: Any) -> Iterator[float]:
        """Yield for each copy of a message how many milliseconds later it comes; FORWARD means to the coordinator."""
        if isinstance(message, REPEATED):
            for target in self.in_force:
                if target.subtask == subtask and target.direction in (direction, Direction.BOTH):
                    yield target.late_ms


class RepeatableMessages:
    """The messages of one subtask; implements ``barrier_tck.faults.targets.MessagesTarget``."""

    def __init__(self, repeats: RepeatedMessages, subtask: str) -> None:
        """Take the subtask; nothing is repeated yet."""
        self._repeats = repeats
        self.subtask = subtask
        self.direction = Direction.BOTH
        self.late_ms = 0.0

    @property
    def description(self) -> str:
        """Return whose messages are repeated, for the fault log."""
        return f"messages of {self.subtask}"

    def repeat(self, direction: Direction, late_ms: float) -> None:
        """Make each message in one direction, or in both, come a second time."""
        self.direction, self.late_ms = direction, late_ms
        self._repeats.in_force = (*self._repeats.in_force, self)

    def is_repeating(self) -> bool:
        """Tell whether messages are repeated now."""
        return any(target is self for target in self._repeats.in_force)

    def stop(self) -> None:
        """Stop repeating messages; copies in transit still arrive."""
        self._repeats.in_force = tuple(target for target in self._repeats.in_force if target is not self)
