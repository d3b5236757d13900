"""Which table files of a RocksDB store are in checkpoint storage already, and may be referred to (SNP-5)."""

from __future__ import annotations

from threading import Lock

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import SharingStateWriter, StateWriter

Tables = dict[str, StateHandle]
"""Name of a table file in the database -> the file in checkpoint storage."""


class SharedTables:
    """The shared table files of one store, snapshot by snapshot. ``stored`` may be called by any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stored: dict[int, tuple[CheckpointId, Tables]] = {}
        """Snapshots, by their number in the store, of which it is not known yet whether their checkpoint completes."""
        self._base: tuple[int, CheckpointId, Tables] | None = None

    def build_on(self, checkpoint: CheckpointId, tables: Tables) -> None:
        """Refer to the files of a restored checkpoint."""
        self._base = (0, checkpoint, tables)

    def reusable(self, writer: StateWriter) -> Tables:
        """Return the files that a snapshot may refer to: those of the newest confirmed one, if they stay."""
        base = self._base
        if base is None or not isinstance(writer, SharingStateWriter) or not writer.may_reuse(base[1]):
            return {}
        return base[2]

    def stored(self, number: int, checkpoint: CheckpointId, tables: Tables) -> None:
        """The files of a snapshot are uploaded."""
        if tables:
            with self._lock:
                self._stored[number] = (checkpoint, tables)

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Refer to the files of a checkpoint, unless a newer snapshot was confirmed before."""
        with self._lock:
            found = [number for number, (of, _) in self._stored.items() if of == checkpoint]
            if found:
                newest = max(found)
                self._base = (newest, *self._stored[newest])
                self._stored = {number: one for number, one in self._stored.items() if number > newest}

    def abort(self, checkpoint: CheckpointId) -> None:
        """Forget what was uploaded for a checkpoint."""
        with self._lock:
            self._stored = {number: one for number, one in self._stored.items() if one[0] != checkpoint}
