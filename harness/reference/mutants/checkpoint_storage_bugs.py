"""Planted bugs of checkpoint storages, as a third party might bring them: factories for ``certify-storage``."""

from __future__ import annotations

import time
import zlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Timer

from barrier_tck.harness.reference.object_store_model import ObjectsOnDisk
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.paths import join
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import JobUsageError, StorageCause, StorageError
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.checkpoint_storage import (
    FileCheckpointStorage,
    MediumCheckpointStorage,
)
from barrier_tck.reference_impl.storage.counters import JobCounters
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from barrier_tck.reference_impl.storage.memory_files import MemoryCheckpointStorage, MemoryFiles
from barrier_tck.reference_impl.storage.object_files import ObjectCheckpointStorage
from barrier_tck.reference_impl.storage.savepoints import SavepointDirectory
from barrier_tck.reference_impl.storage.state_files import FileStateWriter
from barrier_tck.reference_impl.storage.whole_files import DurableFiles

_LATE_S = 0.2


class _FilesOf(FileCheckpointStorage):
    """Takes what factories take."""

    def __init__(self, location: str, job: str) -> None:
        super().__init__(LocalFileSystem(location), job)


class _LateFiles(DurableFiles):
    """Writes files some time after it has said so."""

    def write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        content = b"".join(chunks)
        timer = Timer(_LATE_S, super().write, (path, [content]))
        timer.daemon = True
        timer.start()
        return len(content), zlib.crc32(content)

    def sync_directory(self, path: str) -> None:
        """Do nothing: it may not be there yet."""


class PublishesBeforeBytesAreThere(MediumCheckpointStorage):
    """CS-01: handles are given out, and checkpoints published, while the files are still written in the background."""

    def __init__(self, location: str, job: str) -> None:
        super().__init__(_LateFiles(LocalFileSystem(location)), job)


class OverwritesAnId(_FilesOf):
    """CS-02: publishing an id again replaces the checkpoint that has it."""

    def publish(self, completed: CompletedCheckpoint) -> None:
        """Make room first."""
        self._files.delete(self._metadata_path(completed.checkpoint))
        super().publish(completed)


class ListsTheUnpublished(_FilesOf):
    """CS-03: whatever has a directory is listed as complete."""

    def completed(self) -> tuple[CheckpointId, ...]:
        """List all directories."""
        names = [path.split("/chk-")[1].split("/")[0] for path in self.files() if "/chk-" in path]
        return tuple(sorted(CheckpointId(int(name)) for name in dict.fromkeys(names)))


class DeletesMetadataLast(_FilesOf):
    """CS-04: the files of a discarded checkpoint go in the order of their names, which ends with the metadata."""

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Delete the state files, then the rest."""
        mark = f"/chk-{checkpoint}/"
        for path in self.files():
            if mark in path and "/_" not in path:
                self._files.delete(path)
        super().discard_checkpoint(checkpoint, kept)


class _ForgivingWriter:
    """Gives out a handle for what it has when writing fails."""

    def __init__(self, inner: FileStateWriter) -> None:
        self._inner = inner

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        def some() -> Iterator[bytes]:
            try:
                yield from chunks
            except Exception:  # noqa: BLE001 - the bug that is planted here
                return

        return self._inner.write(name, some(), key_groups)


class SwallowsAFailedWrite(_FilesOf):
    """CS-05: a write that fails gives a handle for as much as was written."""

    def writer(  # type: ignore[override]  # it wraps the product's writer
        self,
        checkpoint: CheckpointId,
        attempt: AttemptNumber,
        subtask: SubtaskId,
        operator: str,
        savepoint: str = "",
    ) -> _ForgivingWriter:
        """Return a writer that fails never."""
        return _ForgivingWriter(super().writer(checkpoint, attempt, subtask, operator, savepoint))


class LosesTheCounters(_FilesOf):
    """CS-06: ids and attempts are reserved in memory only."""

    def _count(self, wanted: JobCounters) -> None:
        self._reserved = wanted


class _TearingFiles(DurableFiles):
    """Writes metadata where it is to be found, part by part."""

    def __init__(self, location: str) -> None:
        super().__init__(LocalFileSystem(location))
        self._location = Path(location)

    def put(self, path: str, content: bytes) -> None:
        target = self._location / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb", buffering=0) as file:
            for start in range(0, len(content), 4096):
                file.write(content[start : start + 4096])
                time.sleep(0)


class PublishesInParts(MediumCheckpointStorage):
    """CS-07: metadata is written in place, so that a reader finds a part of it."""

    def __init__(self, location: str, job: str) -> None:
        super().__init__(_TearingFiles(location), job)


class _LitteringFiles(DurableFiles):
    """Keeps what a failed write has left."""

    def delete(self, path: str) -> None:
        if path.endswith("_metadata"):
            super().delete(path)


class LeavesTornFiles(MediumCheckpointStorage):
    """CS-08: what a failed write has written stays."""

    def __init__(self, location: str, job: str) -> None:
        super().__init__(_LitteringFiles(LocalFileSystem(location)), job)


class DeletesTheUsersSavepoint(_FilesOf):
    """CS-09: a savepoint is deleted with the checkpoint that it was."""

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Delete its directory, too."""
        savepoint = self._savepoint_of(checkpoint)
        super().discard_checkpoint(checkpoint, kept)
        if savepoint is not None:
            self._files.delete_tree(savepoint.directory)


class DiscardsByPrefix(_FilesOf):
    """CS-10: discarding checkpoint 1 deletes everything that begins with its name, as checkpoint 11 does."""

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Delete by prefix."""
        super().discard_checkpoint(checkpoint, kept)
        for path in self.files():
            if f"/chk-{checkpoint}" in path:
                self._files.delete(path)


class ReadsUnchecked(_FilesOf):
    """CS-11: whatever is in a file is what was written."""

    def read(self, handle: StateHandle) -> bytes:
        """Return the content."""
        return self._files.read(join(handle.savepoint or self._root, handle.path))


class JoinsNamesUnescaped(_FilesOf):
    """CS-12: the parts of a file name are put together as they are, so two operators can meet in one file."""

    def writer(
        self,
        checkpoint: CheckpointId,
        attempt: AttemptNumber,
        subtask: SubtaskId,
        operator: str,
        savepoint: str = "",
    ) -> FileStateWriter:
        """Return a writer whose prefix has no escapes."""
        prefix = f"{self._job}/chk-{checkpoint}/{subtask.vertex}-{subtask.index}-a{attempt}-{operator}-"
        unescaped = prefix.replace("/", "-").replace("-chk-", "/chk-")
        return _UnescapedWriter(self._files, self._state_syncs, self._root, unescaped)


class _UnescapedWriter(FileStateWriter):
    """Puts a file's name behind the prefix as it is."""

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        path = self._prefix + name.replace("/", "-")
        if path in self._written:
            raise JobUsageError(f"{path} is written already")
        size, crc = self._files.write(join(self._root, path), chunks)
        self._written.append(path)
        return StateHandle(path, size, metadata.checksum_text(crc), key_groups)


class ForgetsWhatItStartedFrom(_FilesOf):
    """CS-13: a job that was started from a savepoint reserves from 1 again."""

    def start_from(self, savepoint: CompletedCheckpoint, claim: bool = False) -> CheckpointId:
        """Return the savepoint's id, and keep nothing."""
        return savepoint.checkpoint


class ReadsNothingForAMissingFile(_FilesOf):
    """CS-14: a state file that is gone is taken for an empty one."""

    def read(self, handle: StateHandle) -> bytes:
        """Return nothing for a file that is gone."""
        try:
            return super().read(handle)
        except StorageError as error:
            if error.cause is not StorageCause.MISSING:
                raise
            return b""


class DiscardsSharedFiles(_FilesOf):
    """CS-15: shared files go with the checkpoint that they were written for, whoever else needs them."""

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Keep none."""
        super().discard_checkpoint(checkpoint)


class DeletesClaimedMetadataLast(_FilesOf):
    """CS-16: the files of a savepoint that the job has claimed go in the order of their names, the metadata last."""

    def _remove_claimed(self, checkpoint: CheckpointId) -> None:
        for mine in self._counters().claimed:
            for path in mine.files if mine.checkpoint == checkpoint else ():
                self._files.delete(join(mine.directory, path))
        super()._remove_claimed(checkpoint)


class ForgetsAnEarlierClaim(_FilesOf):
    """CS-17: the claim of a savepoint takes the place of the claim that the job had before."""

    def _count(self, wanted: JobCounters) -> None:
        super()._count(replace(wanted, claimed=wanted.claimed[-1:]))


class _DoublyCountedFiles(MemoryFiles):
    """Counts what is overwritten as if it were still there."""

    def put(self, path: str, content: bytes) -> None:
        before = len(self.read(path)) if self.exists(path) else 0
        super().put(path, content)
        self._used += before


class CountsWhatIsOverwritten(MemoryCheckpointStorage):
    """CS-18: the driver's memory counts what was overwritten as used, so it is full one day."""

    def __init__(self, location: str, job: str) -> None:
        super().__init__(_DOUBLY_COUNTED.setdefault(location, _DoublyCountedFiles()), job)


_DOUBLY_COUNTED: dict[str, _DoublyCountedFiles] = {}
"""Location -> what is kept there."""


class LeavesAClaimOfTwo(_FilesOf):
    """CS-19: if two savepoints with the same id are deleted, the claim of the first one stays."""

    def _remove_claimed(self, checkpoint: CheckpointId) -> None:
        known = self._counters()
        for mine in [one for one in known.claimed if one.checkpoint == checkpoint]:
            SavepointDirectory(self._files, mine.directory).remove(mine.files)
            self._count(replace(known, claimed=tuple(one for one in known.claimed if one != mine)))


class LeavesUploadsOfTheKept(ObjectCheckpointStorage):
    """CS-20: if a shared file of a discarded checkpoint is needed, what else was being uploaded beside it stays."""

    def __init__(self, location: str, job: str) -> None:
        super().__init__(ObjectsOnDisk(LocalFileSystem(location)), job)

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Delete objects only."""
        if kept:
            MediumCheckpointStorage.discard_checkpoint(self, checkpoint, kept)
        else:
            super().discard_checkpoint(checkpoint)


class TrustsItsCounters(_FilesOf):
    """CS-21: when counters could not be written, those from before count for who goes on; storage may have the new."""

    def _count(self, wanted: JobCounters) -> None:
        known = self._reserved
        try:
            super()._count(wanted)
        except StorageError:
            self._reserved = known
            raise


class EmptiesTheDirectory(_FilesOf):
    """CS-22: with a claimed savepoint everything goes that lies in its directory, whoever put it there."""

    def _remove_claimed(self, checkpoint: CheckpointId) -> None:
        mine = [one.directory for one in self._counters().claimed if one.checkpoint == checkpoint]
        super()._remove_claimed(checkpoint)
        for directory in mine:
            self._files.delete_tree(directory)
