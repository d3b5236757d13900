"""Messages about checkpoints that arrive twice: which ones, and how late the second comes. Each world delivers them.

Only what a protocol must bear is repeated: what names a checkpoint. That a subtask runs, has failed or has consumed its
input is said once.
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
    """Whose messages are repeated at present."""

    def __init__(self) -> None:
        """Start with nobody's."""
        self.in_force: tuple[RepeatableMessages, ...] = ()

    def copies(self, subtask: str, direction: Direction, message: Any) -> Iterator[float]:
        """Yield for each copy of a message how many milliseconds later it comes; FORWARD: to the coordinator."""
        if isinstance(message, REPEATED):
            for target in self.in_force:
                if target.subtask == subtask and target.direction in (direction, Direction.BOTH):
                    yield target.late_ms


class RepeatableMessages:
    """The messages of one subtask; implements ``barrier_tck.faults.targets.MessagesTarget``."""

    def __init__(self, repeats: RepeatedMessages, subtask: str) -> None:
        """Repeat nothing yet."""
        self._repeats = repeats
        self.subtask = subtask
        self.direction = Direction.BOTH
        self.late_ms = 0.0

    @property
    def description(self) -> str:
        """Return whose messages are repeated, for the fault log."""
        return f"messages of {self.subtask}"

    def repeat(self, direction: Direction, late_ms: float) -> None:
        """Let each message of one or both ways come a second time."""
        self.direction, self.late_ms = direction, late_ms
        self._repeats.in_force = (*self._repeats.in_force, self)

    def is_repeating(self) -> bool:
        """Tell whether it is in force."""
        return any(target is self for target in self._repeats.in_force)

    def stop(self) -> None:
        """Repeat nothing more; what is under way still comes."""
        self._repeats.in_force = tuple(target for target in self._repeats.in_force if target is not self)
