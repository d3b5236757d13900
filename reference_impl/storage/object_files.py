"""Checkpoint storage in an object store (STA-2): published by conditional put, with no rename and no trust in listings.

What makes it sound:

- An object appears as a whole when its upload ends, and is durable then. A state file is uploaded in parts; until the
  last request no reader sees it.
- Metadata is put on the condition that its key is free. Of two coordinators that publish the same id, one is refused.
- Counters are put on the condition that no other process has put them since they were read. A coordinator that was
  replaced cannot lower them.
- Which checkpoints are complete is found by asking for the metadata of every id that was reserved and may be kept,
  since listings may be late. The counters hold these ids.
- An upload whose process died leaves parts that no reader sees, but that fill the store. It is listed as a file, and
  deleting the directory of its checkpoint aborts it.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Protocol

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId
from barrier_tck.reference_impl.runtime_errors import JobUsageError, StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import MediumCheckpointStorage
from barrier_tck.reference_impl.storage.counters import JobCounters
from barrier_tck.reference_impl.storage.whole_files import remove_after

PART_BYTES = 8 * 1024 * 1024
"""Size of the parts of an upload; S3 wants at least 5 MiB, and allows 10,000 of them."""
_ABSENT = ""
"""The version of an object that is not there."""


class Upload(Protocol):
    """An object that is being uploaded in parts. Every method raises StorageError."""

    def send(self, part: bytes) -> None:
        """Send the next part."""

    def complete(self) -> None:
        """Make the object appear, durably, with the parts that were sent."""

    def abort(self) -> None:
        """Give it up and let the store free the parts."""


class ObjectStore(Protocol):
    """What is asked of an object store. Every method raises StorageError, with the key, on failure.

    Reads and conditions are never late: ``get``, ``version`` and the conditions of ``put`` see the newest put and the
    newest deletion. Only ``keys`` and ``uploads`` may be late. A failed ``put`` may have put all the same.
    """

    def get(self, key: str) -> tuple[bytes, str]:
        """Return the content of an object and its version; raises StorageError, MISSING, if there is none."""

    def version(self, key: str) -> str:
        """Return the version of an object; empty if there is none."""

    def put(self, key: str, content: bytes, expected: str | None = None) -> str | None:
        """Put an object, durably, and return its new version.

        ``expected`` is the version that must be there, or empty if there must be none; None: whatever is there. If it
        is not, nothing is put and None is returned. A store that repeats a request whose answer was lost must know its
        own object when it finds it there: two writers of the same content are still two.
        """

    def upload(self, key: str) -> Upload:
        """Begin an upload in parts."""

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is no error."""

    def keys(self, prefix: str) -> list[str]:
        """Return the keys of all objects that begin with a prefix, sorted."""

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        """Return key and id of each unfinished upload whose key begins with a prefix, sorted."""

    def abort_upload(self, key: str, upload: str) -> None:
        """Abort an unfinished upload; a missing one is no error."""


class ObjectFiles:
    """Whole files in an object store. A path is a key."""

    def __init__(
        self, store: ObjectStore, part_bytes: int = PART_BYTES, whole_bytes: int | None = None
    ) -> None:
        """Take the store, the size of the parts in which state files are uploaded, and up to which size, at most that
        of a part, a file is put in one request; None: up to the size of a part.
        """
        if part_bytes < 1:
            raise JobUsageError(f"the parts of an upload have {part_bytes} bytes; give at least 1")
        self._store = store
        self._part_bytes = part_bytes
        self._whole_bytes = part_bytes if whole_bytes is None else min(whole_bytes, part_bytes)
        self._versions: dict[str, str] = {}
        """The version of each file that was looked for or put here, which ``put`` expects to be there still."""

    def read(self, path: str) -> bytes:
        content, self._versions[path] = self._store.get(path)
        return content

    def exists(self, path: str) -> bool:
        self._versions[path] = self._store.version(path)
        return self._versions[path] != _ABSENT

    def list_files(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory, sorted, and of those that are being uploaded."""
        prefix = _below(directory)
        uploaded = [key for key, _ in self._store.uploads(prefix)]
        return sorted(dict.fromkeys([*self._store.keys(prefix), *uploaded]))

    def delete(self, path: str) -> None:
        """Delete a file. What is still uploaded to it goes with its directory."""
        self._store.delete(path)
        self._versions.pop(path, None)

    def delete_tree(self, directory: str) -> None:
        """Delete all files below a directory, and abort their uploads, as far as the store lists them."""
        # Uploads first: one that ends meanwhile is a file then.
        self.abort_uploads(directory)
        for key in self._store.keys(_below(directory)):
            self.delete(key)

    def abort_uploads(self, directory: str) -> None:
        """Abort what is being uploaded below a directory, as far as the store lists it."""
        for key, upload in self._store.uploads(_below(directory)):
            self._store.abort_upload(key, upload)

    def write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Upload a new file: in one request if it is small, otherwise in parts."""
        parts = _Parts(self._store, path, self._part_bytes, self._whole_bytes)
        try:
            for chunk in chunks:
                parts.add(chunk)
            parts.end()
        except Exception as error:
            # Not BaseException, which ends a process: one that is killed does not clean up.
            parts.abort_after(error)
            remove_after(self, path, error)
            raise
        return parts.size, parts.crc

    def put(self, path: str, content: bytes) -> None:
        """Put a small file if no other process has put it since this process looked at it last."""
        expected = self._versions.get(path)
        if expected is None:
            expected = self._store.version(path)
        if not self._put(path, content, expected):
            raise StorageError(
                f"another process has written {path} since this process read it; is there a second coordinator?"
            )

    def put_new(self, path: str, content: bytes) -> bool:
        return self._put(path, content, _ABSENT)

    def sync_directory(self, path: str) -> None:
        """Do nothing: an object is durable, with its name, when its upload ends."""

    def _put(self, path: str, content: bytes, expected: str) -> bool:
        # After a failure it is not known what is there, so it must be looked at again.
        self._versions.pop(path, None)
        version = self._store.put(path, content, expected)
        if version is None:
            return False
        self._versions[path] = version
        return True


def _below(directory: str) -> str:
    """Return the prefix of what is below a directory; the empty one is the root."""
    return f"{directory}/" if directory else ""


class _Parts:
    """Collects chunks to parts and uploads them; what is small is put at once."""

    def __init__(self, store: ObjectStore, path: str, part_bytes: int, whole_bytes: int) -> None:
        self._store = store
        self._path = path
        self._part_bytes = part_bytes
        self._whole_bytes = whole_bytes
        self._upload: Upload | None = None
        self._waiting = bytearray()
        self.size = 0
        self.crc = 0

    def add(self, chunk: bytes) -> None:
        self._waiting += chunk
        self.size += len(chunk)
        self.crc = zlib.crc32(chunk, self.crc)
        while len(self._waiting) > self._part_bytes:
            self._begun().send(bytes(self._waiting[: self._part_bytes]))
            del self._waiting[: self._part_bytes]

    def end(self) -> None:
        if self._upload is None and len(self._waiting) <= self._whole_bytes:
            self._store.put(self._path, bytes(self._waiting))
        else:
            upload = self._begun()
            upload.send(bytes(self._waiting))
            upload.complete()

    def _begun(self) -> Upload:
        if self._upload is None:
            self._upload = self._store.upload(self._path)
        return self._upload

    def abort_after(self, error: Exception) -> None:
        try:
            if self._upload is not None:
                self._upload.abort()
        except StorageError as second:
            error.add_note(f"and parts of its upload are left behind: {second}")


class ObjectCheckpointStorage(MediumCheckpointStorage):
    """Checkpoint storage of one job in an object store (STA-2).

    Durable means: the store has answered that it has the object. What a failed request has done is not known; a
    publication that failed is deleted again, and a request that the store carries out after that leaves metadata of a
    checkpoint whose state files are gone, which ``storage.restore`` finds out.
    """

    def __init__(
        self,
        store: ObjectStore,
        job: str,
        root: str = "checkpoints",
        part_bytes: int = PART_BYTES,
        whole_bytes: int | None = None,
    ) -> None:
        self._object_files = ObjectFiles(store, part_bytes, whole_bytes)
        super().__init__(self._object_files, job, root)
        self._gone: dict[CheckpointId, None] = {}
        """Checkpoints of which nothing is kept and nothing will be."""
        self._announcing = 0
        """The id that was reserved last."""
        self._goes_on = False
        """Whether this instance has reserved anything, so that its own checkpoints may be on their way."""

    def completed(self) -> tuple[CheckpointId, ...]:
        """Return the ids of all published checkpoints: those announced that have metadata, whatever is listed."""
        announced = map(CheckpointId, self._load_counters().announced)
        asked = sorted(dict.fromkeys([*super().completed(), *announced]))
        found = tuple(each for each in asked if self._files.exists(self._metadata_path(each)))
        if not self._goes_on:
            # Ids are used once: what an earlier coordinator has not published by now will never be published.
            self._gone.update(dict.fromkeys(each for each in asked if each not in found))
        return found

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Delete everything of a checkpoint, and remember that it need not be asked for any more."""
        super().discard_checkpoint(checkpoint, kept)
        if kept:
            # The directory stays, and with it what a process that was killed has begun to upload to it.
            self._object_files.abort_uploads(self._shared_directory(checkpoint))
        self._gone[checkpoint] = None

    def reserve(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> None:
        """Make durable that ids and attempts up to these are used, and that this id may be kept from now on."""
        self._goes_on = True
        self._announcing = checkpoint
        super().reserve(checkpoint, attempt)

    def _count(self, wanted: JobCounters) -> None:
        """Make counters durable, with the ids that have to be asked for: not those of which nothing is kept."""
        announced = dict.fromkeys((*wanted.announced, self._announcing))
        kept = tuple(each for each in announced if each and CheckpointId(each) not in self._gone)
        super()._count(replace(wanted, announced=kept))
