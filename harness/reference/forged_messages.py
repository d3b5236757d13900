"""Acknowledgements that no subtask gave, each with a state file of its own. Each world delivers them.

A forged acknowledgement must stay wrong, however late it arrives. So its checkpoint is far beyond any that a trial
triggers, its subtask is one more than the job has, or its attempt is older than the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barrier_tck.faults.targets import Forgery
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    OperatorSnapshot,
    SnapshotMetrics,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage

BEYOND = 1_000_000
"""How far the id of a checkpoint that was never triggered lies beyond the newest one."""
OPERATOR = "forged"
"""The operator whose state a forged acknowledgement names; no job has it."""


def is_forged(message: AcknowledgeCheckpoint) -> bool:
    """Return whether a ``Forger`` made an acknowledgement."""
    return any(part.operator == OPERATOR for part in message.snapshot.operators)


class Forger:
    """Makes acknowledgements that are wrong, writes their files, and hands them to the coordinator of one job."""

    def __init__(
        self,
        storage: Callable[[], CheckpointStorage],
        subtasks: Sequence[SubtaskId],
        deliver: Callable[[AcknowledgeCheckpoint], None],
    ) -> None:
        """Take what opens the job's storage, the job's subtasks, and what hands a message to the coordinator.

        ``deliver`` may be called on any thread, also while the coordinator carries out its commands: it must put the
        message behind what is under way.
        """
        self._storage = storage
        self._subtasks = tuple(subtasks)
        self._deliver = deliver

    def forge(self, forgery: Forgery, subtask: SubtaskId) -> None:
        """Write a state file, and hand over the acknowledgement that names it; raises StorageError if it cannot be
        written.
        """
        storage = self._storage()
        checkpoint, attempt = storage.reserved()
        if forgery is Forgery.UNTRIGGERED:
            checkpoint = CheckpointId(checkpoint + BEYOND)
        elif forgery is Forgery.UNKNOWN_SUBTASK:
            subtask = SubtaskId(subtask.vertex, self._width(subtask.vertex))
        else:
            attempt = AttemptNumber(max(0, attempt - 1))
        writer = storage.writer(checkpoint, attempt, subtask, OPERATOR)
        handle = writer.write("state", [b"no subtask's state"], KeyGroupRange(0, 1))
        part = SubtaskSnapshot(subtask, attempt, (OperatorSnapshot(OPERATOR, handles=(handle,)),))
        self._deliver(AcknowledgeCheckpoint(attempt, checkpoint, subtask, part, SnapshotMetrics()))

    def _width(self, vertex: str) -> int:
        return sum(subtask.vertex == vertex for subtask in self._subtasks)
