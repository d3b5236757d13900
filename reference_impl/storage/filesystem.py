"""The file system port: what storage and sinks ask of a disk, small enough to be simulated exactly.

Durability contract. Bytes of a stream are durable once ``OutputStream.sync`` returned. The *name* of a created,
renamed or deleted file is durable once ``sync_directory`` of its directory returned. ``rename`` is atomic and
replaces its target: a reader sees the old file or the new one, never a mix. Anything not made durable may be
lost, wholly or in part, when the host that wrote it dies; a process that dies loses nothing it has written.
Paths are relative to the file system's root, with ``/`` between parts.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO, Protocol

from barrier_tck.reference_impl.paths import join
from barrier_tck.reference_impl.runtime_errors import StorageCause, StorageError


class OutputStream(Protocol):
    """A file being written. File-like enough for writers of other libraries (Arrow, Parquet)."""

    @property
    def closed(self) -> bool:
        """Whether the stream was closed."""

    def write(self, data: bytes) -> int:
        """Append bytes; raises StorageError if the disk refuses."""

    def flush(self) -> None:
        """Hand buffered bytes to the file system (not durable yet)."""

    def sync(self) -> None:
        """Make all bytes written so far durable."""

    def close(self) -> None:
        """Flush and close, without making anything durable. Closing twice is harmless."""


class FileSystem(Protocol):
    """Files under one root. Every method raises StorageError, with the path, on failure."""

    def create(self, path: str) -> OutputStream:
        """Create the file, or truncate it, with missing parent directories, and open it for writing."""

    def read(self, path: str) -> bytes:
        """Return the whole content."""

    def rename(self, source: str, target: str) -> None:
        """Move a file atomically, replacing the target; the target's missing parents are created."""

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""

    def list_files(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory, sorted; empty if it does not exist."""

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""

    def size(self, path: str) -> int:
        """Return the file's length in bytes."""

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is no error."""

    def delete_tree(self, directory: str) -> None:
        """Delete a directory and all below it; a missing one is no error."""


class _LocalStream:
    """An OutputStream on a real file."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            raise StorageError(f"cannot write to {self._path}: {error}") from error

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            raise StorageError(f"cannot write to {self._path}: {error}") from error

    def sync(self) -> None:
        self.flush()
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StorageError(f"cannot make {self._path} durable: {error}") from error

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise StorageError(f"cannot close {self._path}: {error}") from error


class LocalFileSystem:
    """Files under a directory that every process of the job can reach (a local or a shared mount)."""

    def __init__(self, root: str | Path) -> None:
        """Take the root directory; it is created on first use."""
        self._root = Path(root)

    @property
    def root(self) -> Path:
        return self._root

    def _resolve(self, path: str) -> Path:
        if path.startswith("/") or ".." in path.split("/"):
            raise StorageError(f"{path!r} leaves the root of the file system")
        return self._root / path

    def path_of(self, path: str) -> Path:
        """Return where a file is; raises StorageError if it would leave the root."""
        return self._resolve(path)

    def link(self, source: Path, target: str) -> None:
        """Let ``target`` be another name of the file ``source``, which must be on the same file system."""
        destination = self._resolve(target)
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            os.link(source, destination)
        except OSError as error:
            raise StorageError(f"cannot link {source} to {destination}: {error}") from error

    def create(self, path: str) -> OutputStream:
        target = self._resolve(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            return _LocalStream(target, target.open("wb", buffering=1 << 20))
        except OSError as error:
            raise StorageError(f"cannot create {target}: {error}") from error

    def read(self, path: str) -> bytes:
        try:
            return self._resolve(path).read_bytes()
        except OSError as error:
            cause = StorageCause.MISSING if isinstance(error, FileNotFoundError) else StorageCause.FAILED
            raise StorageError(f"cannot read {self._resolve(path)}: {error}", cause) from error

    def rename(self, source: str, target: str) -> None:
        destination = self._resolve(target)
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self._resolve(source), destination)
        except OSError as error:
            raise StorageError(f"cannot rename {source} to {target} in {self._root}: {error}") from error

    def sync_directory(self, path: str) -> None:
        try:
            descriptor = os.open(self._resolve(path), os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageError(f"cannot make the directory {self._resolve(path)} durable: {error}") from error

    def list_files(self, directory: str) -> list[str]:
        base = self._resolve(directory)

        def refuse(error: OSError) -> None:
            # A directory that cannot be read is not an empty one: it may hold checkpoints.
            if not isinstance(error, FileNotFoundError):
                raise StorageError(f"cannot list {base}: {error}") from error

        found: list[str] = []
        root = len(str(self._root))
        # Without paths as objects: this is asked at every checkpoint, for local copies by every subtask.
        for where, _, names in os.walk(base, onerror=refuse):
            within = where[root:].lstrip("/")
            found.extend(join(within, name) for name in names)
        return sorted(found)

    def exists(self, path: str) -> bool:
        return self._resolve(path).is_file()

    def size(self, path: str) -> int:
        try:
            return self._resolve(path).stat().st_size
        except OSError as error:
            raise StorageError(f"cannot read the size of {self._resolve(path)}: {error}") from error

    def delete(self, path: str) -> None:
        try:
            self._resolve(path).unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"cannot delete {self._resolve(path)}: {error}") from error

    def delete_tree(self, directory: str) -> None:
        base = self._resolve(directory)
        while base.exists():
            try:
                shutil.rmtree(base)
            except FileNotFoundError:
                continue  # another process deletes in it, too: a subtask that cancels its snapshot, for instance
            except OSError as error:
                raise StorageError(f"cannot delete {base}: {error}") from error
