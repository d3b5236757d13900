"""A model of an object store on the world's disk, so that campaigns try checkpoint storage without renames (STA-2).

It behaves as badly as an object store may. What is put on a condition is never listed, as if listings were late for
ever; so nothing that a job finds may depend on them. Files above a few bytes are uploaded in parts, and a process that
dies leaves those. What strikes the disk strikes the store: writes that fail or are slow, reads that fail, lost hosts.
The store itself is durable: an object that it has acknowledged survives any host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from barrier_tck.reference_impl.paths import parent
from barrier_tck.reference_impl.runtime_errors import SnapshotCancelled, StorageError
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.directory_sync import DirectorySync
from barrier_tck.reference_impl.storage.filesystem import FileSystem
from barrier_tck.reference_impl.storage.object_files import ObjectCheckpointStorage, Upload
from barrier_tck.reference_impl.storage.whole_files import DurableFiles

_PART = ";"
"""Separates a key from the number of a part of its upload; names of files never have it (``paths.safe_name``)."""
_UNLISTED = "_metadata"
PART_BYTES = 64
"""Small, so that the small states of trials are uploaded in parts, too."""


class ObjectsOnDisk:
    """The objects of one file system; a key is a path, so whoever judges or damages files finds them."""

    def __init__(self, files: FileSystem) -> None:
        """Take the file system."""
        self._files = files
        self._durable = DurableFiles(files)
        self._syncs = DirectorySync(files)

    def get(self, key: str) -> tuple[bytes, str]:
        """Return the content of an object and its version."""
        content = self._files.read(key)
        return content, metadata.checksum_of(content)

    def version(self, key: str) -> str:
        """Return the version of an object; empty if there is none."""
        return self.get(key)[1] if self._files.exists(key) else ""

    def put(self, key: str, content: bytes, expected: str | None = None) -> str | None:
        """Put an object, if what is expected is there."""
        if expected is not None and self.version(key) != expected:
            return None
        self._durable.put(key, content)
        self._syncs.sync(parent(key))
        return metadata.checksum_of(content)

    def upload(self, key: str) -> Upload:
        """Begin an upload in parts."""
        return _UploadToDisk(self, key)

    def put_part(self, key: str, number: int, part: bytes) -> None:
        """Keep a part of an upload, where no reader looks."""
        self._durable.write(f"{key}{_PART}{number:06}", [part])

    def join_parts(self, key: str) -> None:
        """Make an object of its parts, in the order of their numbers."""
        parts = self._parts(key)
        self.put(key, b"".join(self._files.read(part) for part in parts))
        for part in parts:
            self._files.delete(part)

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is no error."""
        self._files.delete(key)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that a late listing shows."""
        found = self._files.list_files(prefix.rstrip("/"))
        return [path for path in found if _PART not in path and not path.endswith(f"/{_UNLISTED}")]

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        """Return the keys of unfinished uploads."""
        found = self._files.list_files(prefix.rstrip("/"))
        keys = dict.fromkeys(path.partition(_PART)[0] for path in found if _PART in path)
        return [(key, "") for key in keys]

    def abort_upload(self, key: str, upload: str) -> None:
        """Delete the parts of an unfinished upload; a key has one at most, because its name has its attempt."""
        for part in self._parts(key):
            self._files.delete(part)

    def _parts(self, key: str) -> list[str]:
        return [path for path in self._files.list_files(parent(key)) if path.startswith(f"{key}{_PART}")]


class _UploadToDisk:
    """An upload in parts."""

    def __init__(self, store: ObjectsOnDisk, key: str) -> None:
        self._store = store
        self._key = key
        self._sent = 0

    def send(self, part: bytes) -> None:
        self._sent += 1
        self._store.put_part(self._key, self._sent, part)

    def complete(self) -> None:
        self._store.join_parts(self._key)

    def abort(self) -> None:
        self._store.abort_upload(self._key, "")


class _Died(BaseException):
    """The process is dead: whoever is told of an error by it is dead, too."""


class _DyingStore(ObjectsOnDisk):
    """The store, as a process sees it that dies when it has sent the first part of an upload."""

    dying = False

    def put(self, key: str, content: bytes, expected: str | None = None) -> str | None:
        """Put an object, if anybody is there to ask for it."""
        self._live()
        return super().put(key, content, expected)

    def put_part(self, key: str, number: int, part: bytes) -> None:
        """Keep a part of an upload; a dying process dies after its first one."""
        super().put_part(key, number, part)
        self._live()

    def join_parts(self, key: str) -> None:
        """Make an object of its parts, if anybody is there to ask for it."""
        self._live()
        super().join_parts(key)

    def delete(self, key: str) -> None:
        """Delete an object, if anybody is there to ask for it."""
        self._live()
        super().delete(key)

    def abort_upload(self, key: str, upload: str) -> None:
        """Delete the parts of an upload, if anybody is there to ask for it."""
        self._live()
        super().abort_upload(key, upload)

    def _live(self) -> None:
        if self.dying:
            raise _Died


class ModelObjectStorage(ObjectCheckpointStorage):
    """Checkpoint storage in that model; takes what the storage on a file system takes."""

    def __init__(self, files: FileSystem, job: str, root: str = "checkpoints") -> None:
        """Take the file system of the world, the job's name and the directory of checkpoint storage."""
        self._dying_store = _DyingStore(files)
        super().__init__(self._dying_store, job, root, PART_BYTES)

    def die_in(self, task: Callable[[], Any]) -> None:
        """Run a task until the process has sent a part of an upload, and let nothing more come from the process."""
        self._dying_store.dying = True
        with contextlib.suppress(_Died, SnapshotCancelled, StorageError):
            task()
