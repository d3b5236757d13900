"""The store of completed checkpoints: which are retained, and what the coordinator finds when it starts
again."""

from __future__ import annotations

from dataclasses import dataclass

from reference_impl.errors import StorageError, UsageError
from reference_impl.ids import CheckpointId
from reference_impl.protocol.messages import CompletedCheckpoint
from reference_impl.storage.checkpoint_storage import CheckpointStorage


@dataclass(frozen=True, slots=True)
class UnreadableCheckpoint:
    """A published checkpoint that could not be read just now. It is kept: the cause may pass (REC-4)."""

    checkpoint: CheckpointId
    problem: str


class CompletedCheckpointStore:
    """Remembers the newest completed checkpoints, oldest first (COO-4). It deletes nothing itself.

    The order of work is: ``storage.publish``, then ``add``, then discard what ``add`` returned. A crash
    between any two leaves more than is needed, never less.
    """

    def __init__(self, storage: CheckpointStorage, retained: int) -> None:
        """Take the storage and how many checkpoints to retain, at least 1."""
        if retained < 1:
            raise UsageError(f"{retained} retained checkpoints; use 1 or more")
        self._storage = storage
        self._limit = retained
        self._checkpoints: list[CompletedCheckpoint] = []

    def recover(self) -> tuple[UnreadableCheckpoint, ...]:
        """Load what storage holds, in place of what was known, and return what could not be read.

        Raises StorageError if storage cannot even be listed: that is not the same as holding nothing. There
        may be more checkpoints than are retained, if a crash came before a discard; the next ``add`` returns
        them.
        """
        readable, unreadable = [], []
        for checkpoint in self._storage.completed():
            try:
                readable.append(self._storage.load(checkpoint))
            except StorageError as error:
                unreadable.append(UnreadableCheckpoint(checkpoint, str(error)))
        self._checkpoints = readable
        return tuple(unreadable)

    def add(self, completed: CompletedCheckpoint) -> tuple[CompletedCheckpoint, ...]:
        """Take a published checkpoint and return those it subsumes, oldest first, for the caller to discard.

        Raises UsageError if it is not newer than the newest known one.
        """
        latest = self.latest()
        if latest is not None and completed.checkpoint <= latest.checkpoint:
            raise UsageError(
                f"checkpoint {completed.checkpoint} came after {latest.checkpoint}, which subsumes it (COO-4)"
            )
        self._checkpoints.append(completed)
        subsumed = tuple(self._checkpoints[: -self._limit])
        del self._checkpoints[: -self._limit]
        return subsumed

    def latest(self) -> CompletedCheckpoint | None:
        """Return the newest, or None if there is none."""
        return self._checkpoints[-1] if self._checkpoints else None

    def retained(self) -> tuple[CompletedCheckpoint, ...]:
        """Return all that are retained, newest last."""
        return tuple(self._checkpoints)
