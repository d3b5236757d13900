"""Secondary copies in memory (LOC-7): a small file system in the memory of one process, up to a limit.

The files are lost exactly when their owner dies. ``OwnMemory`` belongs to the process that makes it. ``SharedMemory``
belongs to a process and to all that it forks; they share one anonymous file (``memfd``), which has no name in any file
system. The kernel frees it when the last of them ends, so nothing has to be removed after a kill.

The anonymous file begins with two places for a catalogue, and has one region for each file. A change of the catalogue
is written, with a number and a checksum, to the place that does not hold the newest one. So a process that dies while
it writes leaves the previous catalogue intact. Regions are never used twice: a process that reads a file while another
one deletes it finds zeros, which match no checksum. A file lock serialises changes, and is released when its process
dies. If its holder is suspended, other processes give up after a second: as after a failure of a disk, there is no copy
(LOC-2).

A process may be killed between any two steps, and even then all memory in use must be in the catalogue. When a file
grows, the anonymous file is extended first, which uses no memory yet; then the catalogue gets the new size; then the
bytes are written. When a file is deleted, its memory is freed before the catalogue forgets it. Bytes that are missing
in between read as zeros.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Protocol

import msgspec

from barrier_tck.reference_impl.paths import join
from barrier_tck.reference_impl.runtime_errors import StorageCause, StorageError
from barrier_tck.reference_impl.storage.filesystem import OutputStream

NAME = "barrier-tck-copies"
"""The name of the anonymous file among the open files of a process."""
_REGION = 1 << 34
"""Bytes between the beginnings of two regions; only bytes that are written use memory."""
_CATALOGUE_MAX = 1 << 24
_HEADER = struct.Struct("<QII")
"""Number of the change, length and checksum of the catalogue."""
_LOCKED_MAX_S = 1.0
_LOCKED_RETRY_S = 0.002
_BUFFER_BYTES = 1 << 20


class Catalogue(msgspec.Struct):
    """The files in memory."""

    files: dict[str, tuple[int, int]] = {}
    """Path -> its region, and its size in bytes."""
    next_region: int = 1


class CopyMemory(Protocol):
    """Memory that is divided into regions, with the catalogue of its files."""

    def changing(self) -> contextlib.AbstractContextManager[Catalogue]:
        """Lock the catalogue, give it to be changed, and store its changes at the end."""

    def extend(self, region: int, size: int) -> None:
        """Extend a region to ``size`` bytes, so that they can be read and freed; unwritten ones are zeros."""

    def write(self, region: int, offset: int, data: bytes) -> None:
        """Write bytes into the extended part of a region."""

    def read(self, region: int, size: int) -> bytes:
        """Return the first ``size`` bytes of a region."""

    def free(self, region: int, size: int) -> None:
        """Give the memory of a region back to the operating system."""


class OwnMemory:
    """Memory of one process, whose threads share it."""

    def __init__(self) -> None:
        self._catalogue = Catalogue()
        self._regions: dict[int, bytearray] = {}
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def changing(self) -> Iterator[Catalogue]:
        """Give the catalogue to one thread at a time."""
        with self._lock:
            yield self._catalogue

    def extend(self, region: int, size: int) -> None:
        """Extend the region with zeros."""
        held = self._regions.setdefault(region, bytearray())
        held.extend(bytes(max(0, size - len(held))))

    def write(self, region: int, offset: int, data: bytes) -> None:
        self._regions.setdefault(region, bytearray())[offset : offset + len(data)] = data

    def read(self, region: int, size: int) -> bytes:
        return bytes(self._regions.get(region, b"")[:size])

    def free(self, region: int, size: int) -> None:
        self._regions.pop(region, None)


class SharedMemory:
    """Memory of a process and of all that it forks."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._lock = threading.Lock()

    @classmethod
    def create(cls) -> SharedMemory:
        """Make memory that belongs to this process and to those that it forks from now on.

        Raises StorageError where the operating system has no anonymous files.
        """
        if not hasattr(os, "memfd_create"):
            raise StorageError("copies in memory need an operating system with memfd_create, such as Linux")
        try:
            return cls(os.memfd_create(NAME, os.MFD_CLOEXEC))
        except OSError as error:
            raise StorageError(f"no memory for local copies: {error}") from error

    @contextlib.contextmanager
    def changing(self) -> Iterator[Catalogue]:
        """Give the catalogue to one thread of one process; raises StorageError if another one holds it for too long."""
        with self._lock:
            self._take_lock()
            try:
                number, place, catalogue = self._newest()
                before = msgspec.msgpack.encode(catalogue)
                yield catalogue
                after = msgspec.msgpack.encode(catalogue)
                if after != before:
                    self._keep(number + 1, 1 - place, after)
            finally:
                fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def _take_lock(self) -> None:
        until = time.monotonic() + _LOCKED_MAX_S
        while True:
            try:
                fcntl.lockf(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if time.monotonic() > until:
                    raise StorageError(
                        f"the memory for local copies was not free for {_LOCKED_MAX_S:g} s: {error}"
                    ) from error
                time.sleep(_LOCKED_RETRY_S)
            else:
                return

    def _newest(self) -> tuple[int, int, Catalogue]:
        """Return the number of the last change, the place where it was kept, and what it left."""
        found = [(*self._kept_at(place), place) for place in (0, 1)]
        number, content, place = max(found, key=lambda entry: entry[0])
        return number, place, msgspec.msgpack.decode(content, type=Catalogue) if content else Catalogue()

    def _kept_at(self, place: int) -> tuple[int, bytes]:
        start = place * _CATALOGUE_MAX
        header = os.pread(self.descriptor, _HEADER.size, start)
        if len(header) < _HEADER.size:
            return 0, b""
        number, length, checksum = _HEADER.unpack(header)
        content = os.pread(self.descriptor, length, start + _HEADER.size)
        return (number, content) if zlib.crc32(content) == checksum else (0, b"")

    def _keep(self, number: int, place: int, content: bytes) -> None:
        if len(content) + _HEADER.size > _CATALOGUE_MAX:
            raise StorageError("too many local copies are in memory: their catalogue is full")
        data = _HEADER.pack(number, len(content), zlib.crc32(content)) + content
        self._write_at(place * _CATALOGUE_MAX, data)

    def extend(self, region: int, size: int) -> None:
        """Extend the anonymous file, which never becomes shorter; only while this process holds the catalogue."""
        if size > _REGION:
            raise StorageError(f"a local copy in memory has at most {_REGION} bytes")
        end = region * _REGION + size
        try:
            if os.fstat(self.descriptor).st_size < end:
                os.ftruncate(self.descriptor, end)
        except OSError as error:
            raise StorageError(f"no room in the memory for local copies: {error}") from error

    def write(self, region: int, offset: int, data: bytes) -> None:
        self._write_at(region * _REGION + offset, data)

    def _write_at(self, position: int, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                written = os.pwrite(self.descriptor, left, position)
                left, position = left[written:], position + written
        except OSError as error:
            raise StorageError(f"cannot write to the memory for local copies: {error}") from error

    def read(self, region: int, size: int) -> bytes:
        found = bytearray()
        try:
            while len(found) < size:
                piece = os.pread(self.descriptor, size - len(found), region * _REGION + len(found))
                if not piece:
                    break
                found += piece
        except OSError as error:
            raise StorageError(f"cannot read the memory for local copies: {error}") from error
        return bytes(found)

    def free(self, region: int, size: int) -> None:
        if size == 0:
            return
        try:
            with mmap.mmap(self.descriptor, size, offset=region * _REGION) as mapped:
                mapped.madvise(mmap.MADV_REMOVE)
        except (OSError, ValueError) as error:
            raise StorageError(f"cannot free memory of local copies: {error}") from error


class MemoryFileSystem:
    """Files in memory below a root; together they have at most ``limit_bytes``. Implements ``FileSystem``.

    Directories exist only as parts of paths. Nothing is synced, because files live only as long as the memory's
    owner.
    """

    def __init__(self, memory: CopyMemory, root: str, limit_bytes: int) -> None:
        """Take the memory, the root of all paths, and the limit."""
        self._memory = memory
        self._root = root
        self._limit = limit_bytes

    def create(self, path: str) -> OutputStream:
        full = self._full(path)
        with self._memory.changing() as catalogue:
            self._require_free(catalogue, full)
            self._remove(catalogue, full)
            region, catalogue.next_region = catalogue.next_region, catalogue.next_region + 1
            catalogue.files[full] = (region, 0)
        return _MemoryStream(self, region)

    def append(self, region: int, data: bytes) -> None:
        """Add bytes to a file that is being written; raises StorageError, and adds nothing, beyond the limit."""
        with self._memory.changing() as catalogue:
            own = next((entry for entry in catalogue.files.items() if entry[1][0] == region), None)
            if own is None:
                raise StorageError("a local copy in memory was deleted while it was written")
            path, (_, size) = own
            used = sum(
                length for name, (_, length) in catalogue.files.items() if self._is_below(name, self._root)
            )
            if used + len(data) > self._limit:
                used_now = f"{used} of {self._limit} bytes are used"
                raise StorageError(
                    f"no room in memory for the local copy {self._short(path)}: {used_now}, and it needs "
                    f"{len(data)} more"
                )
            self._memory.extend(region, size + len(data))
            catalogue.files[path] = (region, size + len(data))
        self._memory.write(region, size, data)

    def read(self, path: str) -> bytes:
        region, size = self._found(path)
        return self._memory.read(region, size)

    def rename(self, source: str, target: str) -> None:
        old, new = self._full(source), self._full(target)
        with self._memory.changing() as catalogue:
            if old not in catalogue.files:
                raise StorageError(f"{source} is not in memory", StorageCause.MISSING)
            self._require_free(catalogue, new)
            moved = catalogue.files.pop(old)
            self._remove(catalogue, new)
            catalogue.files[new] = moved

    def sync_directory(self, path: str) -> None:
        """Do nothing: no file outlives its owner."""

    def list_files(self, directory: str) -> list[str]:
        below = self._full(directory)
        with self._memory.changing() as catalogue:
            found = [path for path in catalogue.files if self._is_below(path, below)]
        return sorted(map(self._short, found))

    def exists(self, path: str) -> bool:
        with self._memory.changing() as catalogue:
            return self._full(path) in catalogue.files

    def size(self, path: str) -> int:
        return self._found(path)[1]

    def delete(self, path: str) -> None:
        with self._memory.changing() as catalogue:
            self._remove(catalogue, self._full(path))

    def delete_tree(self, directory: str) -> None:
        below = self._full(directory)
        with self._memory.changing() as catalogue:
            for path in [path for path in catalogue.files if path == below or self._is_below(path, below)]:
                self._remove(catalogue, path)

    def _full(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise StorageError(f"{path!r} leaves the root of the file system")
        return join(self._root, path) if path else self._root

    def _short(self, path: str) -> str:
        return path.removeprefix(f"{self._root}/")

    def _found(self, path: str) -> tuple[int, int]:
        with self._memory.changing() as catalogue:
            found = catalogue.files.get(self._full(path))
        if found is None:
            raise StorageError(f"{path} is not in memory", StorageCause.MISSING)
        return found

    @staticmethod
    def _is_below(path: str, directory: str) -> bool:
        return path.startswith(f"{directory}/")

    def _require_free(self, catalogue: Catalogue, path: str) -> None:
        """Raise StorageError if one of a path's directories is the name of a file."""
        parts = path.split("/")
        for length in range(1, len(parts)):
            if "/".join(parts[:length]) in catalogue.files:
                raise StorageError(f"cannot create {path}: {parts[length - 1]} is not a directory")

    def _remove(self, catalogue: Catalogue, path: str) -> None:
        found = catalogue.files.get(path)
        if found is not None:
            # First the memory: a process that dies in between leaves a file of zeros, and not memory without an owner.
            self._memory.free(*found)
            del catalogue.files[path]


class _MemoryStream:
    """A file in memory that is being written."""

    def __init__(self, files: MemoryFileSystem, region: int) -> None:
        self._files = files
        self._region = region
        self._waiting = bytearray()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def write(self, data: bytes) -> int:
        self._waiting += data
        if len(self._waiting) >= _BUFFER_BYTES:
            self.flush()
        return len(data)

    def flush(self) -> None:
        data, self._waiting = bytes(self._waiting), bytearray()
        if data:
            self._files.append(self._region, data)

    def sync(self) -> None:
        self.flush()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.flush()
