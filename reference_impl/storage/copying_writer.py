"""Writes state files twice: to checkpoint storage, and beside it to the host's own disk (LOC-1, LOC-2).

The local file is written chunk by chunk as the primary is, and gets its name once the primary is durable. A local
disk that refuses ends the copy and nothing else.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.paths import safe_name
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.state.backend import StateWriter
from barrier_tck.reference_impl.storage.filesystem import OutputStream
from barrier_tck.reference_impl.storage.local_copies import (
    CopiedFile,
    LinkingFileSystem,
    TaskLocalStateStore,
)
from barrier_tck.reference_impl.storage.metadata import checksum_text
from barrier_tck.reference_impl.storage.sharing_writer import SharingWriter

Write = Callable[[str, Iterable[bytes], KeyGroupRange], StateHandle]
"""A method of a ``StateWriter`` that writes the primary."""


class CopyingWriter:
    """Writes one operator's files to checkpoint storage, and beside it to the local copy."""

    def __init__(
        self,
        store: TaskLocalStateStore,
        checkpoint: CheckpointId,
        operator: str,
        primary: StateWriter,
        compression: Compression | None = None,
    ) -> None:
        self._compression = compression
        self._store = store
        self._checkpoint = checkpoint
        self._operator = operator
        self._primary = primary
        store.begin(checkpoint)
        self._prepared = False

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        """Write both copies; raises only what the primary raises (LOC-2)."""
        return self._copied(self._primary.write, name, chunks, key_groups)

    def _copied(
        self, write: Write, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange
    ) -> StateHandle:
        local = _LocalFile(self._store, self._checkpoint, self._incoming(name))
        try:
            handle = write(name, local.passing(chunks), key_groups)
        except BaseException:
            local.discard()
            raise
        local.finish(handle, self._final(name), self._relative(name))
        return handle

    @property
    def second_compression(self) -> Compression | None:
        """Return how the copy is compressed; None: it has the bytes of the primary."""
        return self._compression

    def write_twice(
        self, name: str, chunks: Iterable[bytes], second: Iterable[bytes], key_groups: KeyGroupRange
    ) -> StateHandle:
        """Write both copies, each in its own format; raises only what the primary raises (LOC-2, LOC-7)."""
        local = _LocalFile(self._store, self._checkpoint, self._incoming(name))
        try:
            own = local.fill(second)
            handle = self._primary.write(name, chunks, key_groups)
        except BaseException:
            local.discard()
            raise
        local.finish(handle, self._final(name), self._relative(name), own)
        return handle

    def write_file(
        self, name: str, file: Path, chunks: Iterable[bytes], key_groups: KeyGroupRange
    ) -> StateHandle:
        """Upload a local file and keep it by a hard link, if the local directory can; else by a copy (LOC-10)."""
        return self._linked(self._primary.write, name, file, chunks, key_groups)

    def _linked(
        self, write: Write, name: str, file: Path, chunks: Iterable[bytes], key_groups: KeyGroupRange
    ) -> StateHandle:
        files = self._store.files
        if not isinstance(files, LinkingFileSystem):
            return self._copied(write, name, chunks, key_groups)
        handle = write(name, chunks, key_groups)
        if self._store.still_wanted(self._checkpoint):
            try:
                self._prepare()
                files.link(file, self._final(name))
            except RuntimeFailure as error:
                self._store.give_up(self._checkpoint, str(error))
            else:
                self._store.add(self._checkpoint, _entry(handle, self._relative(name)))
        return handle

    def _prepare(self) -> None:
        if not self._prepared:
            self._prepared = True
            self._store.prepare(self._checkpoint, self._operator)

    def _incoming(self, name: str) -> str:
        self._prepare()
        return self._store.incoming(f"{self._checkpoint}-{safe_name(self._operator)}-{safe_name(name)}")

    def _final(self, name: str) -> str:
        return f"{self._store.operator_directory(self._checkpoint, self._operator)}/{safe_name(name)}"

    def _relative(self, name: str) -> str:
        return self._final(name).removeprefix(self._store.directory(self._checkpoint)).lstrip("/")


class SharingCopyingWriter(CopyingWriter):
    """Writes an incremental snapshot twice. A local copy is whole without any other, so it repeats what is reused."""

    def __init__(
        self, store: TaskLocalStateStore, checkpoint: CheckpointId, operator: str, primary: SharingWriter
    ) -> None:
        super().__init__(store, checkpoint, operator, primary)
        self._sharing = primary

    def write_shared(
        self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange, file: Path | None = None
    ) -> StateHandle:
        """Write both copies of a file that later checkpoints may use too; link the local one if there is a file."""
        if file is not None:
            return self._linked(self._sharing.write_shared, name, file, chunks, key_groups)
        return self._copied(self._sharing.write_shared, name, chunks, key_groups)

    def may_reuse(self, checkpoint: CheckpointId) -> bool:
        """Return whether files of a checkpoint may be reused."""
        return self._sharing.may_reuse(checkpoint)

    def reuse(self, handle: StateHandle) -> StateHandle:
        """Use a file again, and take it over from an older local copy; if none has it, there is no new one (LOC-2)."""
        handle = self._sharing.reuse(handle)
        if self._store.still_wanted(self._checkpoint):
            name = handle.path  # files of several checkpoints may have the same last name
            try:
                self._prepare()
                self._store.take_over(handle, self._final(name))
            except RuntimeFailure as error:
                self._store.give_up(self._checkpoint, str(error))
            else:
                self._store.add(self._checkpoint, _entry(handle, self._relative(name)))
        return handle


def _entry(handle: StateHandle, local: str, own: tuple[int, str] | None = None) -> CopiedFile:
    return CopiedFile(handle.path, local, handle.size, handle.checksum, own)


class _LocalFile:
    """One local file being written; a disk that refuses ends the copy, and nothing else."""

    def __init__(self, store: TaskLocalStateStore, checkpoint: CheckpointId, path: str) -> None:
        self._store = store
        self._checkpoint = checkpoint
        self._path = path
        self._stream: OutputStream | None = None
        if store.still_wanted(checkpoint):
            try:
                self._stream = store.files.create(path)
            except RuntimeFailure as error:
                store.give_up(checkpoint, str(error))

    def passing(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the chunks, each after it was written here."""
        for chunk in chunks:
            stream = self._stream
            if stream is not None:
                try:
                    # A short write would be found by its checksum, like all that is wrong with a secondary.
                    stream.write(chunk)
                except RuntimeFailure as error:
                    self._fail(error)
            yield chunk

    def fill(self, chunks: Iterable[bytes]) -> tuple[int, str]:
        """Write all chunks, as long as the disk takes them; return the size and the checksum of the file."""
        size = crc = 0
        for chunk in self.passing(chunks):
            if self._stream is None:
                break
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
        return size, checksum_text(crc)

    def finish(
        self, handle: StateHandle, final: str, relative: str, own: tuple[int, str] | None = None
    ) -> None:
        """Give the file its name, now that the primary is durable; ``own`` says what is in it if that differs."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        try:
            stream.close()
            self._store.files.rename(self._path, final)
        except RuntimeFailure as error:
            self._stream = stream
            self._fail(error)  # what was written would take room
        else:
            self._store.add(self._checkpoint, _entry(handle, relative, own))

    def discard(self) -> None:
        """Remove what was written."""
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                self._store.discard_unfinished(stream, self._path)
            except RuntimeFailure as error:
                self._store.give_up(self._checkpoint, str(error))

    def _fail(self, error: RuntimeFailure) -> None:
        self._store.give_up(self._checkpoint, str(error))
        self.discard()
