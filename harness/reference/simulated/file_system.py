"""A simulated file system with crash semantics: what was not synced can be lost.

The durability contract is exactly that of ``barrier_tck.reference_impl.storage.filesystem``: bytes are durable after
``sync`` of the stream; a created or renamed name is durable after ``sync_directory`` of its directory; a rename
is atomic. When a host is lost, everything that it did and that is not durable is undone, newest first: unsynced bytes
are cut off, and unsynced names vanish or refer to their previous file. A deletion is durable at once. A process that
dies without its host loses nothing that it has written.

All hosts see one tree (a shared mount). Each host writes through its own handle, which keeps its undo journal.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from barrier_tck.reference_impl.runtime_errors import StorageCause, StorageError


class _File:
    """An inode: its content, and how much of it is durable."""

    __slots__ = ("content", "durable")

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = 0


class SimulatedDisk:
    """The tree that all hosts share."""

    def __init__(self) -> None:
        self.files: dict[str, _File] = {}
        self.names: list[str] = []

    def host(self) -> SimulatedFileSystem:
        """Return the file system as one host sees it, with its own journal."""
        return SimulatedFileSystem(self)

    def link(self, path: str, file: _File) -> None:
        """Make a name refer to a file."""
        if path not in self.files:
            insort(self.names, path)
        self.files[path] = file

    def unlink(self, path: str) -> _File | None:
        """Remove a name; return the file to which it referred."""
        file = self.files.pop(path, None)
        if file is not None:
            del self.names[bisect_left(self.names, path)]
        return file

    def below(self, directory: str) -> list[str]:
        """Return all names below a directory, sorted."""
        prefix = directory.rstrip("/") + "/" if directory else ""
        first = bisect_left(self.names, prefix)
        last = bisect_left(self.names, prefix + "\U0010ffff")
        return self.names[first:last]


class _SimulatedStream:
    """An OutputStream into a simulated file."""

    def __init__(self, file: _File, path: str) -> None:
        self._file = file
        self._path = path
        self.closed = False

    def write(self, data: bytes) -> int:
        if self.closed:
            raise StorageError(f"cannot write to {self._path}: the stream is closed")
        self._file.content += data
        return len(data)

    def flush(self) -> None:
        return None

    def sync(self) -> None:
        self._file.durable = len(self._file.content)

    def close(self) -> None:
        self.closed = True


class SimulatedFileSystem:
    """One host's view of the disk; implements ``barrier_tck.reference_impl.storage.filesystem.FileSystem``."""

    def __init__(self, disk: SimulatedDisk) -> None:
        """Share a disk, with an empty journal."""
        self._disk = disk
        self._unsynced_names: list[tuple[str, str, _File | None, str | None]] = []
        """(directory, path, the file to which it referred before, the name from which it was renamed), oldest first."""
        self._written: list[_File] = []
        self._hidden = False

    def hide(self, hidden: bool) -> None:
        """Make this host's reads fail from now on, or succeed again; names can always be listed."""
        self._hidden = hidden

    def check(self, path: str) -> None:
        """Do nothing: every file may be written."""

    def check_read(self, path: str) -> None:
        """Raise StorageError while reads fail."""
        if self._hidden:
            raise StorageError(f"cannot read {path}: the storage does not answer")

    def note_read(self, path: str, content: bytes) -> None:
        """Do nothing: reads are not observed here."""

    def create(self, path: str) -> _SimulatedStream:
        file = _File()
        self._unsynced_names.append((_directory(path), path, self._disk.files.get(path), None))
        self._disk.link(path, file)
        self._written.append(file)
        return _SimulatedStream(file, path)

    def read(self, path: str) -> bytes:
        self.check_read(path)
        file = self._disk.files.get(path)
        if file is None:
            raise StorageError(f"cannot read {path}: there is no such file", StorageCause.MISSING)
        return bytes(file.content)

    def rename(self, source: str, target: str) -> None:
        before = self._disk.files.get(target)
        file = self._disk.unlink(source)
        if file is None:
            raise StorageError(f"cannot rename {source} to {target}: there is no such file")
        self._unsynced_names.append((_directory(target), target, before, source))
        self._disk.link(target, file)

    def sync_directory(self, path: str) -> None:
        directory = path.rstrip("/")
        self._unsynced_names = [entry for entry in self._unsynced_names if entry[0] != directory]

    def list_files(self, directory: str) -> list[str]:
        return self._disk.below(directory)

    def exists(self, path: str) -> bool:
        return path in self._disk.files

    def size(self, path: str) -> int:
        file = self._disk.files.get(path)
        if file is None:
            raise StorageError(f"cannot read the size of {path}: there is no such file")
        return len(file.content)

    def delete(self, path: str) -> None:
        self._disk.unlink(path)

    def delete_tree(self, directory: str) -> None:
        """Delete a directory and everything below it; a missing one is no error."""
        for path in self._disk.below(directory):
            self._disk.unlink(path)

    def lose_unsynced(self) -> int:
        """Undo everything that is not durable, because the host died; return how many names and files were affected."""
        affected = 0
        for _, path, before, source in reversed(self._unsynced_names):
            current = self._disk.files.get(path)
            if current is None:
                continue  # it was deleted since, and a deletion is durable
            self._disk.unlink(path)
            if before is not None:
                self._disk.link(path, before)
            if source is not None and source not in self._disk.files:
                self._disk.link(source, current)
            affected += 1
        for file in self._written:
            if file.durable < len(file.content):
                del file.content[file.durable :]
                affected += 1
        self._unsynced_names.clear()
        self._written.clear()
        return affected


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
