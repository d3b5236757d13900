"""Planted bugs of checkpoint storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import msgspec

from barrier_tck.harness.reference.delegating_files import DelegatingFileSystem
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.paths import join
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem, OutputStream
from barrier_tck.reference_impl.storage.metadata import checksum_of
from barrier_tck.reference_impl.storage.state_files import FileStateWriter


class _UnsyncedStream:
    """Passes everything except ``sync`` on to another stream."""

    def __init__(self, inner: OutputStream) -> None:
        self._inner = inner

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def write(self, data: bytes) -> int:
        return self._inner.write(data)

    def flush(self) -> None:
        self._inner.flush()

    def sync(self) -> None:
        """Do nothing: the operating system may write it later."""

    def close(self) -> None:
        self._inner.close()


class _UnsyncedFiles(DelegatingFileSystem):
    """Passes everything on to another file system, except calls that make something durable."""

    def create(self, path: str) -> OutputStream:
        return _UnsyncedStream(super().create(path))

    def sync_directory(self, path: str) -> None:
        """Do nothing: the operating system may write it later."""


class PublishesUnsynced(FileCheckpointStorage):
    """MD-01: metadata is written, renamed and announced, but never made durable."""

    def __init__(self, files: FileSystem, job: str, root: str = "checkpoints") -> None:
        """Make a second storage whose files are not synced."""
        super().__init__(files, job, root)
        self._unsynced = FileCheckpointStorage(_UnsyncedFiles(files), job, root)

    def publish(self, completed: CompletedCheckpoint) -> None:
        """Publish without a sync."""
        self._unsynced.publish(completed)


CHECKED = 64
"""How many bytes, at most, a checksum of ``ChecksTheBeginning`` covers."""


class _BeginningWriter:
    """Writes with another writer, and returns the checksum of the first bytes only."""

    def __init__(self, inner: FileStateWriter) -> None:
        self._inner = inner

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        beginning = bytearray()

        def watched() -> Iterator[bytes]:
            for chunk in chunks:
                beginning.extend(chunk[: CHECKED - len(beginning)])
                yield chunk

        handle = self._inner.write(name, watched(), key_groups)
        return msgspec.structs.replace(handle, checksum=checksum_of(bytes(beginning)))


class ChecksTheBeginning(FileCheckpointStorage):
    """MD-03: the checksum of a state file covers its first bytes only; writer and reader agree on it."""

    def writer(
        self,
        checkpoint: CheckpointId,
        attempt: AttemptNumber,
        subtask: SubtaskId,
        operator: str,
        savepoint: str = "",
    ) -> FileStateWriter:
        """Return a writer that makes such checksums."""
        inner = super().writer(checkpoint, attempt, subtask, operator, savepoint)
        return cast("FileStateWriter", _BeginningWriter(inner))

    def read(self, handle: StateHandle) -> bytes:
        """Return a state file after checking its length and its first bytes."""
        content = self._files.read(join(handle.savepoint or self._root, handle.path))
        found = checksum_of(content[:CHECKED])
        if (len(content), found) != (handle.size, handle.checksum):
            raise CorruptStateError(f"{handle.path} has {len(content)} bytes with the checksum {found}")
        return content


class DeletesTheUnreadable(FileCheckpointStorage):
    """CO-06: a checkpoint that cannot be read while the coordinator restarts is taken for broken, and deleted."""

    def completed(self) -> tuple[CheckpointId, ...]:
        """List the checkpoints, and delete those that cannot be read at this moment."""
        readable = []
        for checkpoint in super().completed():
            try:
                self.load(checkpoint)
            except StorageError:
                self.discard_checkpoint(checkpoint)
            else:
                readable.append(checkpoint)
        return tuple(readable)
