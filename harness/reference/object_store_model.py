"""A model of an object store on the world's disk, so that campaigns try checkpoint storage without renames (STA-2).

It behaves as badly as an object store may. An object that is put on a condition is never listed, as if listings stayed
late for ever; so no result of a job may depend on listings. Files above a few bytes are uploaded in parts, and a
process that dies leaves its parts behind. What strikes the disk strikes the store: writes that fail or are slow, reads
that fail, lost hosts. The store itself is durable: an object that it has acknowledged survives any host.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.harness.reference.mortal_process import MortalProcess
from barrier_tck.harness.reference.storage_service import (
    Fate,
    Server,
    StorageService,
    service_of,
)
from barrier_tck.reference_impl.paths import parent
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.directory_sync import DirectorySync
from barrier_tck.reference_impl.storage.filesystem import FileSystem
from barrier_tck.reference_impl.storage.object_files import ObjectCheckpointStorage, Upload
from barrier_tck.reference_impl.storage.whole_files import DurableFiles

ResultT = TypeVar("ResultT")

_PART = ";"
"""Separates a key from the number of a part of its upload; names of files never have it (``paths.safe_name``)."""
_UNLISTED = "_metadata"
PART_BYTES = 64
"""Small, so that the small states of trials are uploaded in parts, too."""


class ObjectsOnDisk:
    """The objects of one file system; a key is a path, so checkers and faults find them."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._durable = DurableFiles(files)
        self._syncs = DirectorySync(files)

    def get(self, key: str) -> tuple[bytes, str]:
        content = self._files.read(key)
        return content, metadata.checksum_of(content)

    def version(self, key: str) -> str:
        return self.get(key)[1] if self._files.exists(key) else ""

    def put(self, key: str, content: bytes, expected: str | None = None) -> str | None:
        if expected is not None and self.version(key) != expected:
            return None
        self._durable.put(key, content)
        self._syncs.sync_directory(parent(key))
        return metadata.checksum_of(content)

    def upload(self, key: str) -> Upload:
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
        self._files.delete(key)

    def keys(self, prefix: str) -> list[str]:
        """Return the keys that a late listing shows."""
        found = self._files.list_files(prefix.rstrip("/"))
        return [path for path in found if _PART not in path and not path.endswith(f"/{_UNLISTED}")]

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
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

    def __init__(self, store: ObjectsOnDisk | _ReachedStore, key: str) -> None:
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


class _Unanswered(StorageError):
    """The store does not answer: the request may have been carried out, or not."""


class ObjectStoreService(StorageService):
    """The server of the store, and what is wrong with it; what it has stored is on the disk for every client."""

    def __init__(self, files: FileSystem, choices: random.Random) -> None:
        super().__init__("object store", files, choices)
        self._server = Server(self.name)
        self._puts = 0
        self._written_by: dict[str, int] = {}
        """Key -> the number of the put, or of the upload, that its object comes from."""

    def repeated(
        self,
        what: str,
        request: Callable[[], ResultT],
        before: Sequence[UploadMoment] = (),
        afterwards: Sequence[UploadMoment] = (),
    ) -> ResultT:
        """Carry out a request that changes something; without an answer ask once more, as clients of stores do."""
        try:
            return self.carry_out(what, request, before, afterwards, repeatable=True)
        except _Unanswered:
            return self.carry_out(what, request, before, afterwards)

    def next_put(self) -> int:
        """Return a number that no other put has: what comes from it is known by it."""
        self._puts += 1
        return self._puts

    def note_put(self, key: str, put: int) -> None:
        self._written_by[key] = put

    def comes_from(self, key: str, put: int) -> bool:
        """Return whether the object at a key was written by this put."""
        return self._written_by.get(key) == put

    def carry_out(
        self,
        what: str,
        request: Callable[[], ResultT],
        before: Sequence[UploadMoment] = (),
        afterwards: Sequence[UploadMoment] = (),
        repeatable: bool = False,
    ) -> ResultT:
        """Carry out a request, and answer it; raises StorageError if the server is dead.

        The server may die before it, with half of what was sent, which it does not keep; or afterwards.
        """
        fate = self.fate(repeatable)
        if fate is Fate.REFUSED:
            raise StorageError(f"cannot {what}: 503, SlowDown")
        if fate is Fate.LOST or not self._server.alive:
            raise _Unanswered(f"cannot {what}: the object store does not answer")
        self._strike(what, before)
        result = request()
        self._strike(what, afterwards)
        if fate is Fate.UNANSWERED:
            raise _Unanswered(
                f"does not know whether it could {what}: the object store does not answer any more"
            )
        return result

    def _strike(self, what: str, moments: Sequence[UploadMoment]) -> None:
        for moment in moments:
            strike = self.due(moment)
            if strike is not None:
                self._server.die(strike)
                raise _Unanswered(f"cannot {what}: the object store has died")


class _ReachedStore:
    """The store as a process reaches it; the process may die when it has sent the first part of an upload."""

    def __init__(self, files: FileSystem) -> None:
        self._store = ObjectsOnDisk(files)
        service = service_of(files)
        self._service = (
            service
            if isinstance(service, ObjectStoreService)
            else ObjectStoreService(files, random.Random(0))
        )
        self.process = MortalProcess()

    def get(self, key: str) -> tuple[bytes, str]:
        return self._service.carry_out(f"get {key}", lambda: self._store.get(key))

    def version(self, key: str) -> str:
        return self._service.carry_out(f"look for {key}", lambda: self._store.version(key))

    def put(self, key: str, content: bytes, expected: str | None = None) -> str | None:
        self.process.require_alive()
        service, number = self._service, self._service.next_put()

        def put() -> str | None:
            if service.comes_from(
                key, number
            ):  # asked again: the condition is refused because of its own object
                return self._store.version(key)
            version = self._store.put(key, content, expected)
            if version is not None:
                service.note_put(key, number)
            return version

        return service.repeated(
            f"put {key}", put, (UploadMoment.PART, UploadMoment.COMPLETION), (UploadMoment.ANSWER,)
        )

    def upload(self, key: str) -> Upload:
        return _UploadToDisk(self, key)

    def put_part(self, key: str, number: int, part: bytes) -> None:
        self.process.require_not_dead()
        self._service.repeated(
            f"put a part of {key}", lambda: self._store.put_part(key, number, part), (UploadMoment.PART,)
        )
        self.process.require_alive()

    def join_parts(self, key: str) -> None:
        self.process.require_alive()
        service, number = self._service, self._service.next_put()

        def complete() -> None:
            if not service.comes_from(key, number):  # asked again: the upload is gone because it is complete
                self._store.join_parts(key)
                service.note_put(key, number)

        service.repeated(f"complete {key}", complete, (UploadMoment.COMPLETION,), (UploadMoment.ANSWER,))

    def delete(self, key: str) -> None:
        self.process.require_alive()
        self._service.repeated(f"delete {key}", lambda: self._store.delete(key))

    def keys(self, prefix: str) -> list[str]:
        return self._service.carry_out(f"list {prefix}", lambda: self._store.keys(prefix))

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        return self._service.carry_out(f"list {prefix}", lambda: self._store.uploads(prefix))

    def abort_upload(self, key: str, upload: str) -> None:
        self.process.require_alive()
        self._service.repeated(f"abort {key}", lambda: self._store.abort_upload(key, upload))


class ModelObjectStorage(ObjectCheckpointStorage):
    """Checkpoint storage in that model; takes what the storage on a file system takes."""

    def __init__(self, files: FileSystem, job: str, root: str = "checkpoints") -> None:
        self._reached = _ReachedStore(files)
        super().__init__(self._reached, job, root, PART_BYTES)

    def die_in(self, task: Callable[[], Any]) -> None:
        """Run a task until the process has sent a part of an upload, and let nothing more come from the process."""
        self._reached.process.die_in(task)
