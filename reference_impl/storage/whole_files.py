"""Files that become visible as a whole: the port through which checkpoint storage uses a medium.

A file system, an object store and a dictionary in memory differ in how a file becomes visible and durable. Each of them
implements this port, so ``CheckpointStorage`` is written only once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Protocol

from barrier_tck.reference_impl.paths import parent
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.filesystem import FileSystem, OutputStream

_TEMPORARY = ".tmp"


class ReadableFiles(Protocol):
    """The part of a medium that reads, lists and deletes. Every method raises StorageError, with the path, on failure.

    Paths are relative to the medium's root, with ``/`` between parts.
    """

    def read(self, path: str) -> bytes:
        """Return the whole content."""

    def list_files(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory, sorted, including files that are still being written.

        If the listings of an object store lag behind, new files may be missing, and deleted ones listed. ``exists`` and
        ``read`` must not lag behind.
        """

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is no error."""

    def delete_tree(self, directory: str) -> None:
        """Delete a directory and all below it; a missing one is no error."""


class WholeFiles(ReadableFiles, Protocol):
    """A medium on which checkpoints can be stored."""

    def write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Write a new file and make its bytes durable; return its size in bytes and its CRC-32.

        The caller ensures that no other process writes the same path. If the write fails or ``chunks`` raises, the
        method tries to delete the file; a note on the error says so if it could not. The name is durable once
        ``sync_directory`` has returned.
        """

    def put(self, path: str, content: bytes) -> None:
        """Put a small file in place: a reader finds the old content or the new one, also after a crash.

        If it fails, the file may have the old content or the new one. The name is durable once ``sync_directory`` has
        returned.
        """

    def put_new(self, path: str, content: bytes) -> bool:
        """Put a small file as ``put`` does, and return True; if the file exists, change nothing and return False."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable, unless they are durable already."""


class DurableFiles:
    """Whole files on a file system: a small file is written under a temporary name, synced and renamed."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def list_files(self, directory: str) -> list[str]:
        return self._files.list_files(directory)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def delete(self, path: str) -> None:
        self._files.delete(path)

    def delete_tree(self, directory: str) -> None:
        self._files.delete_tree(directory)

    def write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Write a new file, sync it and close it."""
        try:
            return self._write(path, chunks)
        except Exception as error:
            # Not BaseException, which ends a process: one that is killed does not clean up.
            remove_after(self, path, error)
            raise

    def put(self, path: str, content: bytes) -> None:
        """Write the file under a temporary name, sync it, and rename it."""
        temporary = path + _TEMPORARY
        try:
            self._write(temporary, [content])
            self._files.rename(temporary, path)
        except Exception as error:
            remove_after(self, temporary, error)
            raise

    def put_new(self, path: str, content: bytes) -> bool:
        """Put a file where there is none. Only one process may do so for a path: check and ``put`` are not atomic."""
        if self._files.exists(path):
            return False
        self.put(path, content)
        return True

    def sync_directory(self, path: str) -> None:
        self._files.sync_directory(path)

    def _write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        stream = self._files.create(path)
        try:
            size = crc = 0
            for chunk in chunks:
                _write_whole(stream, chunk, path)
                size += len(chunk)
                crc = zlib.crc32(chunk, crc)
            stream.sync()
        except Exception as error:
            _close_after(stream, error)
            raise
        stream.close()
        return size, crc


def _write_whole(stream: OutputStream, chunk: bytes, path: str) -> None:
    """Append a chunk. The stream reports a short write only by its count; here it is an error (BE-06)."""
    written = stream.write(chunk)
    if written != len(chunk):
        raise StorageError(f"only {written} of {len(chunk)} bytes were written to {path}")


def _close_after(stream: OutputStream, error: Exception) -> None:
    try:
        stream.close()
    except StorageError as second:
        error.add_note(f"and closing the file failed: {second}")


def take_back(files: WholeFiles, path: str, error: Exception) -> None:
    """Delete the file that a failed publication may have left, so that the checkpoint does not look complete."""
    remove_after(files, path, error)
    try:
        files.sync_directory(parent(path))
    except StorageError as second:
        error.add_note(f"and {path} may exist again after a crash: {second}")


def remove_after(files: ReadableFiles, path: str, error: Exception) -> None:
    """Delete what a failed write left. If that fails too, the first error gets a note about the second."""
    try:
        files.delete(path)
    except StorageError as second:
        error.add_note(f"and the file is left behind: {second}")
