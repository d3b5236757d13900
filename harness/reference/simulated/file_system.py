"""A simulated file system with crash semantics: what was not synced can be lost.

The durability contract is exactly that of ``barrier_tck.reference_impl.storage.filesystem``: bytes are durable after
``sync`` of the stream; a created or renamed name is durable after ``sync_directory`` of its directory, by any host;
a rename is atomic. When a host is lost, everything that it did and that is not durable is undone, newest first:
unsynced bytes are cut off, and unsynced names vanish or refer to their previous file. A directory, which the first file
in it makes, has a name, too: until the directory above is synced it vanishes with all that is in it, unless another
host has put something there. A deletion is durable at once. A process that dies without its host loses nothing that it
has written; but what it left unsynced can still be lost, as long as the host lives that wrote it.

All hosts see one tree (a shared mount). Each has a journal of what it wrote, which its processes share.
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


class _Journal:
    """What the processes of one host have written; a host outlives its processes."""

    __slots__ = ("written",)

    def __init__(self) -> None:
        self.written: list[_File] = []


class _UnsyncedName:
    """A name that is not durable yet."""

    __slots__ = ("before", "directory", "journal", "path", "source")

    def __init__(self, journal: _Journal, path: str, before: _File | None, source: str | None) -> None:
        self.journal = journal
        self.directory = _directory(path)
        self.path = path
        self.before = before
        """The file to which it referred before."""
        self.source = source
        """The name from which the file was renamed."""


class SimulatedDisk:
    """The tree that all hosts share."""

    def __init__(self) -> None:
        self.files: dict[str, _File] = {}
        self.names: list[str] = []
        self._unsynced: list[_UnsyncedName] = []
        """In the order in which they were given, by whatever host."""
        self._durable: dict[str, None] = {}
        """The directories whose names are durable."""
        self._used_by: dict[str, list[_Journal]] = {}
        """Each other directory -> the hosts that have put something there."""

    def host(self) -> SimulatedFileSystem:
        """Return the file system as one more host sees it."""
        return SimulatedFileSystem(self, _Journal())

    def named(self, journal: _Journal, path: str, before: _File | None, source: str | None = None) -> None:
        """Note that a host has given a name, and with it names of directories that were not there."""
        directory = _directory(path)
        while directory:
            if directory not in self._durable:
                users = self._used_by.setdefault(directory, [])
                if journal not in users:
                    users.append(journal)
            directory = _directory(directory)
        self._unsynced.append(_UnsyncedName(journal, path, before, source))

    def names_synced(self, directory: str) -> None:
        """Note that all names in a directory are durable, whichever hosts gave them."""
        self._unsynced = [name for name in self._unsynced if name.directory != directory]
        synced = [path for path in self._used_by if _directory(path) == directory]
        for path in synced:
            del self._used_by[path]
            self._durable[path] = None

    def lose(self, journal: _Journal) -> int:
        """Undo what a host has done and what is not durable; return how many names and files were affected."""
        affected = 0
        lost = [(index, name) for index, name in enumerate(self._unsynced) if name.journal is journal]
        for index, name in reversed(lost):
            current = self.files.get(name.path)
            if current is None:
                continue  # it was deleted since, and a deletion is durable
            later = self._unsynced[index + 1 :]
            if any(other.path == name.path and other.journal is not journal for other in later):
                continue  # another host has put another file there since
            self.unlink(name.path)
            if name.before is not None:
                self.link(name.path, name.before)
            if name.source is not None and name.source not in self.files:
                self.link(name.source, current)
            affected += 1
        self._unsynced = [name for name in self._unsynced if name.journal is not journal]
        for file in journal.written:
            if file.durable < len(file.content):
                del file.content[file.durable :]
                affected += 1
        journal.written.clear()
        return affected + self._lose_directories(journal)

    def _lose_directories(self, journal: _Journal) -> int:
        """Remove the directories that only this host has used, and whose names are not durable."""
        affected = 0
        for path, users in [*self._used_by.items()]:
            if users == [journal]:
                affected += len(self.below(path))
                self.remove_tree(path)
        return affected

    def remove_tree(self, directory: str) -> None:
        """Remove a directory with all that is in it."""
        for path in self.below(directory):
            self.unlink(path)
        inside = directory.rstrip("/") + "/"
        for known in (self._durable, self._used_by):
            for path in [path for path in known if f"{path}/".startswith(inside)]:
                del known[path]

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
    """One process's view of the disk; implements ``barrier_tck.reference_impl.storage.filesystem.FileSystem``."""

    def __init__(self, disk: SimulatedDisk, journal: _Journal) -> None:
        self._disk = disk
        self._journal = journal
        self._hidden = False

    def of_next_process(self) -> SimulatedFileSystem:
        """Return the file system as a later process of the same host sees it."""
        return SimulatedFileSystem(self._disk, self._journal)

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
        self._disk.named(self._journal, path, self._disk.files.get(path))
        self._disk.link(path, file)
        self._journal.written.append(file)
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
        self._disk.named(self._journal, target, before, source)
        self._disk.link(target, file)

    def sync_directory(self, path: str) -> None:
        self._disk.names_synced(path.rstrip("/"))

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
        self._disk.remove_tree(directory)

    def lose_unsynced(self) -> int:
        """Undo everything that is not durable, because the host died; return how many names and files were affected."""
        return self._disk.lose(self._journal)


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
