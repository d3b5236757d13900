"""Files that appear whole: what checkpoint storage asks of a medium.

A file system, an object store and a dictionary in memory differ in how a file becomes visible and durable. Below this
port each does it in its own way; above it, ``CheckpointStorage`` is written once.
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
        """Return the paths of all files below a directory, sorted; also of those that are still being written.

        An object store that lists late may leave out what is new, and show what is gone. ``exists`` and ``read`` must
        not be late.
        """

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is no error."""

    def delete_tree(self, directory: str) -> None:
        """Delete a directory and all below it; a missing one is no error."""


class WholeFiles(ReadableFiles, Protocol):
    """A medium that checkpoint storage can be kept on."""

    def write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Write a new file and make its bytes durable; return its size in bytes and its CRC-32.

        No other process writes the same path. If it fails, or ``chunks`` raises, it has tried to delete the file; a
        note on the error says so if something stayed. The name is durable once ``sync_directory`` returned.
        """

    def put(self, path: str, content: bytes) -> None:
        """Put a small file in place: a reader finds the old content or the new one, also after a crash.

        If it fails, either may be there. The name is durable once ``sync_directory`` returned.
        """

    def put_new(self, path: str, content: bytes) -> bool:
        """Put a small file where there is none, like ``put``; return False, and change nothing, if there is one."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable, if that was not so already."""


class DurableFiles:
    """Whole files on a file system: written beside, synced and renamed."""

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
            # Not BaseException: a process that is being killed does not tidy up either.
            remove_after(self, path, error)
            raise

    def put(self, path: str, content: bytes) -> None:
        """Write beside, sync, and rename."""
        temporary = path + _TEMPORARY
        try:
            self._write(temporary, [content])
            self._files.rename(temporary, path)
        except Exception as error:
            remove_after(self, temporary, error)
            raise

    def put_new(self, path: str, content: bytes) -> bool:
        """Put a file where there is none. Only one process may do so for a path: a file system has no condition."""
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
    """Append a chunk; a short write is a failure, not a success with a number (BE-06)."""
    written = stream.write(chunk)
    if written != len(chunk):
        raise StorageError(f"{path} took {written} of {len(chunk)} bytes")


def _close_after(stream: OutputStream, error: Exception) -> None:
    try:
        stream.close()
    except StorageError as second:
        error.add_note(f"and closing the file failed: {second}")


def take_back(files: WholeFiles, path: str, error: Exception) -> None:
    """Delete what a publication that failed may have put all the same: it must not look complete."""
    remove_after(files, path, error)
    try:
        files.sync_directory(parent(path))
    except StorageError as second:
        error.add_note(f"and {path} may be found after a crash: {second}")


def remove_after(files: ReadableFiles, path: str, error: Exception) -> None:
    """Delete what a failed write left. The first error is the one to tell; a second one goes with it."""
    try:
        files.delete(path)
    except StorageError as second:
        error.add_note(f"and the file is left behind: {second}")
