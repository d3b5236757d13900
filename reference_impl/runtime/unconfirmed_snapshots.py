"""Acknowledged snapshots of one subtask whose receipt is not confirmed: it may have to remove their files at its end.

Until a subtask acknowledges a snapshot, its files belong to the subtask, which removes them when the snapshot is
cancelled or fails. From the moment the coordinator *receives* the acknowledgement, they belong to the coordinator:
they are part of a checkpoint, or the coordinator deletes them. In between it is not known. A process that was
paused or cut off may acknowledge when the coordinator has crashed, or has given the process up and deleted
everything that the checkpoint had. The acknowledgement is lost then, and only the writer knows of the files (COO-3,
REC-2).

So a subtask remembers what it acknowledged until it has proof that the coordinator received it. The only such proof is
the completion of a checkpoint: it needs this subtask's acknowledgement, and with that every acknowledgement
sent before it has arrived, as the connection keeps the order. That a checkpoint was aborted proves nothing: the
notification may have been on its way before the file was written.

What is still remembered at the end of the process is deleted if a newer attempt exists and the checkpoint is not
complete. This is safe: the coordinator plans a newer attempt only when no checkpoint of the older one can complete any
more. If no newer attempt exists yet, there is nothing to do: the coordinator discards every aborted checkpoint once
more in the next attempt, and a coordinator that starts again discards every incomplete one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId
from barrier_tck.reference_impl.protocol.messages import SubtaskSnapshot
from barrier_tck.reference_impl.protocol.transactions import TransactionHandle
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage

UNCONFIRMED_MAX = 64
"""Latest acknowledged snapshots that are remembered. Far above what is in flight, and above what a subtask can
acknowledge in vain before the silence of the coordinator ends it."""


class UnconfirmedSnapshots:
    """The acknowledged snapshots of one subtask that the coordinator is not known to have received."""

    def __init__(self, storage: CheckpointStorage, attempt: AttemptNumber) -> None:
        self._storage = storage
        self._attempt = attempt
        self._open: dict[CheckpointId, SubtaskSnapshot] = {}

    def acknowledged(self, checkpoint: CheckpointId, snapshot: SubtaskSnapshot) -> None:
        """Remember a snapshot whose acknowledgement is about to be sent."""
        self._open[checkpoint] = snapshot
        if len(self._open) > UNCONFIRMED_MAX:
            del self._open[next(iter(self._open))]

    def completed(self, checkpoint: CheckpointId) -> None:
        """Forget a checkpoint that completed, and all that were acknowledged before it, whatever their ids."""
        if checkpoint in self._open:
            sent = list(self._open)
            for received in sent[: sent.index(checkpoint) + 1]:
                del self._open[received]

    def discard_if_superseded(self, operators: Sequence[Any]) -> None:
        """Delete the files of unconfirmed snapshots that are not needed, if a newer attempt has taken over; else do
        nothing.

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
            operator.abandon_prepared(self._is_needed(completed))
        unneeded = [
            handle
            for checkpoint, snapshot in self._open.items()
            if checkpoint not in completed
            for handle in snapshot.written_for(checkpoint)
        ]
        used = self._shared_in_use(completed) if any(handle.shared for handle in unneeded) else {}
        self._storage.discard(handle for handle in unneeded if handle.path not in used)
        self._open.clear()

    def _shared_in_use(self, completed: Sequence[CheckpointId]) -> dict[str, None]:
        """Return the paths of shared files that complete checkpoints use.

        A checkpoint may have completed without this process learning of it, and be gone while later ones use its
        files. One that is under way can use only files of such checkpoints (SNP-5).
        """
        retained = [self._storage.load(one) for one in completed]
        handles = (handle for one in retained for part in one.snapshots for handle in part.handles())
        return {handle.path: None for handle in handles if handle.shared}

    def _is_needed(self, completed: Sequence[CheckpointId]) -> Callable[[TransactionHandle], bool]:
        """Return what tells whether a restore may still finish a prepared transaction.

        That is so as long as a checkpoint of this attempt, or of one before, covers it and is retained. Afterwards the
        newer attempt has finished it, or has put off its commit: then its own checkpoints list it.
        """
        retained = [self._storage.load(one) for one in completed]
        own = [one.checkpoint for one in retained if one.attempt <= self._attempt]
        listed = {
            transaction
            for one in retained
            for snapshot in one.snapshots
            for operator in snapshot.operators
            for transaction in operator.transactions
        }
        return lambda prepared: prepared in listed or any(one >= prepared.checkpoint for one in own)
