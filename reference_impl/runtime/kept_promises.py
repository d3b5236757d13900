"""What a subtask has promised to checkpoints of which it never heard again, and what becomes of it at its end.

A subtask that acknowledged a snapshot no longer owns its files: the checkpoint may complete. Usually it hears what
became of it, or its successor and the coordinator clean up behind it. A process that was replaced while it stood
still or was cut off comes back after they did (REC-2). It is then the last one who knows of what it wrote.

It may delete it safely once a newer attempt exists: the coordinator plans one only when no checkpoint of the older
attempt can complete any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId
from barrier_tck.reference_impl.protocol.messages import SubtaskSnapshot
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage


class Promises:
    """The acknowledged snapshots of one subtask whose checkpoints are still open, as far as it knows."""

    def __init__(self, storage: CheckpointStorage, attempt: AttemptNumber) -> None:
        """Start with none."""
        self._storage = storage
        self._attempt = attempt
        self._open: dict[CheckpointId, SubtaskSnapshot] = {}

    def acknowledged(self, checkpoint: CheckpointId, snapshot: SubtaskSnapshot) -> None:
        """Remember a snapshot whose acknowledgement is about to be sent."""
        self._open[checkpoint] = snapshot

    def completed(self, checkpoint: CheckpointId) -> None:
        """Forget a checkpoint that completed, and all before it: they completed, or were subsumed."""
        for older in [open_one for open_one in self._open if open_one <= checkpoint]:
            del self._open[older]

    def aborted(self, checkpoint: CheckpointId) -> None:
        """Forget a checkpoint that the coordinator gave up: it discards the files."""
        self._open.pop(checkpoint, None)

    def break_if_superseded(self, operators: Sequence[Any]) -> None:
        """Delete what was promised and is not needed, if a newer attempt has taken over; else do nothing.

        ``operators`` with prepared transactions are asked to abandon theirs (``abandon_prepared``). Raises
        StorageError if storage cannot be read or a file cannot be deleted.
        """
        abandoning = [operator for operator in operators if getattr(operator, "prepared", ())]
        if not self._open and not abandoning:
            return
        if self._storage.reserved()[1] <= self._attempt:
            return
        completed = self._storage.completed()
        for operator in abandoning:
            operator.abandon_prepared(self._is_restorable(completed))
        for checkpoint, snapshot in self._open.items():
            if checkpoint not in completed:
                self._storage.discard(snapshot.handles())
        self._open.clear()

    def _is_restorable(self, completed: Sequence[CheckpointId]) -> Callable[[CheckpointId], bool]:
        """Tell of a checkpoint whether a restore may still finish what was prepared for it.

        That is so as long as a checkpoint of this attempt, or of one before, covers it and is retained. Afterwards
        the newer attempt has long finished it.
        """
        own = [one for one in completed if self._storage.load(one).attempt <= self._attempt]
        return lambda checkpoint: any(one >= checkpoint for one in own)
