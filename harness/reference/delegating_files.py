"""A file system around another one: the harness puts it in front of a disk to refuse, to watch or to forget writes."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from barrier_tck.reference_impl.storage.filesystem import FileSystem, OutputStream


@runtime_checkable
class WatchesFiles(Protocol):
    """Is asked about reads and writes of files, wherever they are, and notified of reads."""

    def check(self, path: str) -> None:
        """Raise StorageError if a file may not be written."""

    def check_read(self, path: str) -> None:
        """Raise StorageError if a file may not be read."""

    def note_read(self, path: str, content: bytes) -> None:
        """Take note of what was read."""


class DelegatingFileSystem:
    """Passes everything on to another file system; derived classes change some of it."""

    def __init__(self, inner: FileSystem) -> None:
        """Wrap a file system."""
        self.inner = inner

    def check(self, path: str) -> None:
        """Raise StorageError if a file may not be written."""

    def check_read(self, path: str) -> None:
        """Raise StorageError if a file may not be read."""

    def note_read(self, path: str, content: bytes) -> None:
        """Take note of what was read."""

    def create(self, path: str) -> OutputStream:
        """Create a file, unless it is refused."""
        self.check(path)
        return self.inner.create(path)

    def read(self, path: str) -> bytes:
        """Return the whole content, unless it is refused."""
        self.check_read(path)
        content = self.inner.read(path)
        self.note_read(path, content)
        return content

    def rename(self, source: str, target: str) -> None:
        self.inner.rename(source, target)

    def sync_directory(self, path: str) -> None:
        self.inner.sync_directory(path)

    def list_files(self, directory: str) -> list[str]:
        return self.inner.list_files(directory)

    def exists(self, path: str) -> bool:
        return self.inner.exists(path)

    def size(self, path: str) -> int:
        return self.inner.size(path)

    def delete(self, path: str) -> None:
        self.inner.delete(path)

    def delete_tree(self, directory: str) -> None:
        """Delete a directory and everything below it."""
        self.inner.delete_tree(directory)
