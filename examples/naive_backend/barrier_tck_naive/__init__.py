"""A naive state backend: a dict, pickled to a file. It is wrong on purpose, and certification shows where."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

from barrier_tck.harness import (
    BatchedStateStore,
    CheckpointId,
    DeferredSnapshot,
    KeyedStateStore,
    SnapshotFuture,
    StateCapability,
    StateHandle,
    StateReader,
    StateScope,
    StateWriter,
)


class NaiveStateBackend:
    """Opens stores."""

    name = "naive"
    capabilities: frozenset[StateCapability] = frozenset()

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Load every file."""
        store = NaiveStateStore(scope)
        for handle in restore:
            store.entries.update(pickle.loads(reader.read(handle)))
        return store


class NaiveStateStore(BatchedStateStore):
    """A dict."""

    def __init__(self, scope: StateScope) -> None:
        """Start empty."""
        self.scope = scope
        self.entries: dict[tuple[str, int, bytes], bytes] = {}

    def get(self, name: str, group: int, key: bytes) -> bytes | None:
        """Return the value, or None if there is none."""
        return self.entries.get((name, group, key))

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Set the value."""
        self.entries[name, group, key] = value

    def delete(self, name: str, group: int, key: bytes) -> None:
        """Remove the value."""
        self.entries.pop((name, group, key), None)

    def scan(self, name: str, group: int) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the entries of one state in one key group."""
        return iter([(k, v) for (n, g, k), v in self.entries.items() if (n, g) == (name, group)])

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        """Pickle in the background. The mistake: the dict keeps changing meanwhile."""
        return DeferredSnapshot(
            lambda: (writer.write("state", [pickle.dumps(self.entries)], self.scope.key_groups),)
        )

    def confirm(self, checkpoint: CheckpointId) -> None:
        """Do nothing."""

    def abort(self, checkpoint: CheckpointId) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
