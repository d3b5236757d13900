"""What tests of state backends share: checkpoint storage in memory, stores that use it, and a clean disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.state.backend import KeyedStateStore, SnapshotFuture, StateBackend, StateScope
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.state_files import FileStateWriter
from tests.reference_impl.storage_fakes import MemoryFileSystem

ALL = KeyGroupRange(0, 8)
Model = dict[tuple[str, int, bytes], bytes]
Handles = tuple[StateHandle, ...]


class StateWorld:
    """One backend, a checkpoint storage in memory, and a directory for what stores keep on disk."""

    def __init__(self, backend: str = "heap") -> None:
        self.backend: StateBackend = require_state_backend(backend)()
        self.files = MemoryFileSystem()
        self.storage = FileCheckpointStorage(self.files, "job")
        self.root = tempfile.TemporaryDirectory(prefix="state-world-")
        self._opened: list[tuple[KeyedStateStore, WorkingDirectory]] = []
        self._written = 0

    def store(self, groups: KeyGroupRange = ALL, handles: Iterable[StateHandle] = ()) -> KeyedStateStore:
        """Open a store as the runtime does; ``close`` closes it again."""
        working = WorkingDirectory(self.backend, self.root.name)
        scope = StateScope("job", "count", "aggregate", 0, 1, groups, working.of_operator("aggregate"))
        try:
            store = self.backend.open(scope, list(handles), self.storage)
        except BaseException:
            working.close()
            raise
        self._opened.append((store, working))
        return store

    def held(
        self,
        handles: Iterable[StateHandle],
        groups: KeyGroupRange = ALL,
        names: Iterable[str] = ("a", "b"),
    ) -> Model:
        """Restore the handles into a new store and return its content."""
        store = self.store(groups, handles)
        try:
            return content(store, groups, names)
        finally:
            store.close()
            self._opened.pop()[1].close()

    def writer(self, storage: FileCheckpointStorage | None = None) -> FileStateWriter:
        self._written += 1
        subtask = SubtaskId("count", self._written)
        return (storage or self.storage).writer(CheckpointId(1), AttemptNumber(1), subtask, "aggregate")

    def snapshot(self, store: KeyedStateStore) -> SnapshotFuture[Handles]:
        return store.snapshot(CheckpointId(1), self.writer())

    def local_checkpoints(self) -> list[str]:
        """Return the local copies of snapshots that are on disk."""
        return sorted(str(path) for path in Path(self.root.name).glob("*/*/checkpoints/*"))

    def close(self) -> None:
        """Close every store and require that the disk is as it was before."""
        for store, working in self._opened:
            store.close()
            store.close()
            working.close()
        self._opened.clear()
        left = sorted(str(path) for path in Path(self.root.name).rglob("*"))
        self.root.cleanup()
        assert left == []


def content(store: KeyedStateStore, groups: KeyGroupRange = ALL, names: Iterable[str] = ("a", "b")) -> Model:
    return {
        (name, group, key): value
        for name in names
        for group in groups
        for key, value in store.scan(name, group)
    }


class FullDisk:
    """A writer that takes a chunk and then fails."""

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        next(iter(chunks), None)
        raise StorageError("disk full")


class CancelAfterFirstChunk:
    """Passes chunks on to a writer, and cancels the snapshot once the first chunk was taken."""

    def __init__(self, writer: FileStateWriter) -> None:
        self._writer = writer
        self.future: SnapshotFuture[Handles] | None = None
        self.taken = 0

    def _pass_on(self, chunks: Iterable[bytes]) -> Iterable[bytes]:
        for chunk in chunks:
            self.taken += 1
            yield chunk
            assert self.future is not None
            self.future.cancel()

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        return self._writer.write(name, self._pass_on(chunks), key_groups)
