"""Checkpoint storage: where snapshots and the metadata of completed checkpoints live (STA-2, STA-3).

``CheckpointStorage`` is the seam. ``MediumCheckpointStorage`` implements it on any medium where files appear whole
(``storage.whole_files``), and ``FileCheckpointStorage`` is that on the file system port::

    <root>/<job>/counters                            ids and attempts that were given out so far
    <root>/<job>/chk-7/count-0-a2-aggregate-state    a state file of subtask count[0], attempt 2
    <root>/<job>/chk-7/_metadata                     published last: the checkpoint is complete
    <root>/<job>/chk-8/_savepoint                    checkpoint 8 is a savepoint, and this is where it is kept
    <root>/<job>/shared/chk-7/count-0-a2-aggregate-increment    a file that later checkpoints may use too (SNP-5)

Every file name carries its attempt, so a process of an older attempt that still writes can overwrite nothing
of a newer one (REC-2).
"""

from __future__ import annotations

import contextlib
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Protocol

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.paths import join, parent, safe_name
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, StateHandle
from barrier_tck.reference_impl.runtime_errors import (
    CorruptStateError,
    JobUsageError,
    StorageCause,
    StorageError,
)
from barrier_tck.reference_impl.state.backend import StateWriter
from barrier_tck.reference_impl.storage import counters, metadata
from barrier_tck.reference_impl.storage.counters import ClaimedSavepoint, JobCounters
from barrier_tck.reference_impl.storage.directory_sync import DirectorySync
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem
from barrier_tck.reference_impl.storage.savepoints import SavepointDirectory, decode_place, encode_place
from barrier_tck.reference_impl.storage.state_files import FileStateWriter
from barrier_tck.reference_impl.storage.whole_files import DurableFiles, WholeFiles, take_back

_METADATA = "_metadata"
_PLACE = "_savepoint"
_SHARED = "shared"


class CheckpointStorage(Protocol):
    """Keeps snapshots and completed checkpoints of one job.

    What is durable, and when:

    - *State files.* The bytes of a file, and its name in the directory of its checkpoint, are durable when
      ``StateWriter.write`` returns the handle. A subtask acknowledges only after that (SNP-3). If ``write`` raises,
      it has tried to delete the file; a note on the error says so if the file stayed.
    - *Metadata.* A checkpoint is complete when ``publish`` returns. By then its metadata is durable, and so is the
      directory that holds the metadata and the state files. The order is: bytes of the state files, bytes of the
      metadata, the metadata's final name, the directory's name. If ``publish`` raises, it has tried to take the
      metadata back, and the caller discards the checkpoint.
    - *Counters.* Ids and attempts are durable when ``reserve`` returns. No later ``reserved`` is below them. If
      ``reserve`` raises, they may be reserved or not.
    - *Deletions.* They are carried out in order, the metadata of a checkpoint first, but none is made durable. A
      deleted file may be back after a crash.
    - *Shared files.* They are durable like other state files. A checkpoint that uses one of an earlier checkpoint
      names it in its metadata, and the caller knows until when it is needed. Storage never deletes one by itself.

    What a reader sees, also after a crash:

    - The metadata of a checkpoint is there as a whole, or not at all (COO-1). A crash during ``publish`` may leave
      either. Both are sound: the state files were durable before.
    - State files without metadata belong to a checkpoint that never completed (``incomplete``).
    - Metadata may be there although state files of it are gone, if the checkpoint was being deleted.
      ``storage.restore`` finds that out and does not start from it.

    Each id is reserved before anything is written for it. Every method raises StorageError if the storage fails.
    Nothing is ever deleted because it could not be read. ``barrier-tck certify-storage`` checks all of this, as the
    clauses STO-1 to STO-7.
    """

    outlives_its_process: bool
    """Whether durable means more than that the process lives; False: the storage is the driver's memory."""

    def writer(
        self,
        checkpoint: CheckpointId,
        attempt: AttemptNumber,
        subtask: SubtaskId,
        operator: str,
        savepoint: str = "",
    ) -> StateWriter:
        """Return the writer of one operator's files for one checkpoint, or for the savepoint in a directory."""

    def shared_writer(
        self, checkpoint: CheckpointId, attempt: AttemptNumber, subtask: SubtaskId, operator: str
    ) -> StateWriter:
        """Return what writes those files of a checkpoint that later ones may use too; handles say so (SNP-5)."""

    def read(self, handle: StateHandle) -> bytes:
        """Return a state file; raises CorruptStateError if it is not what its handle says."""

    def publish(self, completed: CompletedCheckpoint) -> None:
        """Make a checkpoint complete, atomically (COO-1)."""

    def load(self, checkpoint: CheckpointId) -> CompletedCheckpoint:
        """Read a complete checkpoint's metadata; raises CorruptStateError if it is damaged."""

    def completed(self) -> tuple[CheckpointId, ...]:
        """Return the ids of all published checkpoints, ascending; what they hold was not read yet."""

    def incomplete(self) -> tuple[CheckpointId, ...]:
        """Return the ids of checkpoints that have files but were never published, ascending."""

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Delete everything of a checkpoint, metadata first. A missing one is no error.

        Of the shared files that were written for it, those with the paths ``kept`` stay. Of a complete savepoint only
        the job's own note of it goes.
        """

    def shared_files(self) -> tuple[str, ...]:
        """Return the paths of all shared files, as handles name them, sorted (SNP-5)."""

    def discard_shared(self, paths: Iterable[str]) -> None:
        """Delete shared files. A missing one is no error; one that stays does not keep the others."""

    def discard(self, handles: Iterable[StateHandle]) -> None:
        """Delete state files. A missing one is no error; one that stays does not keep the others.

        Files of a complete savepoint are the user's; they are not deleted.
        """

    def begin_savepoint(self, checkpoint: CheckpointId, directory: str) -> None:
        """Make durable that a checkpoint is a savepoint and where it will be kept, before anything is written there."""

    def is_free(self, directory: str) -> bool:
        """Return whether a savepoint can be put into a directory; raises JobUsageError if none ever can."""

    def load_savepoint(self, directory: str) -> CompletedCheckpoint:
        """Read a complete savepoint; raises StorageError if there is none, CorruptStateError if it is damaged."""

    def start_from(self, savepoint: CompletedCheckpoint, claim: bool = False) -> CheckpointId:
        """Make durable that the job starts from a savepoint; return the newest checkpoint that counts as older.

        If the job has already been started from it, nothing changes. Ids and attempts go on above the savepoint's.
        ``claim``: the job takes the savepoint over, and ``discard_checkpoint`` with its id deletes its directory.
        """

    def claimed(self) -> tuple[CheckpointId, ...]:
        """Return the ids of the savepoints that the job took over and that were not deleted yet, in their order."""

    def has_outgrown(self, directory: str) -> CheckpointId | None:
        """Return above which id the job's own checkpoints are, if it has deleted the savepoint that it started from.

        None if it did not start from this one, or if the savepoint is there, or if nothing newer is complete.
        """

    def reserve(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> None:
        """Make durable that ids and attempts up to these are used (COO-4). Never lowers what was reserved."""

    def reserved(self) -> tuple[CheckpointId, AttemptNumber]:
        """Return the highest id and attempt ever reserved; 0 and 0 for a new job."""

    def files(self) -> list[str]:
        """Return the paths of all files of the job, sorted: what a leak check counts."""


class MediumCheckpointStorage:
    """Checkpoint storage of one job on a medium that all its processes reach.

    Used by the coordinator and, each with an instance of its own, by the subtasks. ``reserve`` belongs to the
    coordinator alone.
    """

    outlives_its_process = True

    def __init__(self, files: WholeFiles, job: str, root: str = "checkpoints") -> None:
        if not job or not root:
            raise JobUsageError(
                f"checkpoint storage needs a job name and a root directory, not {job!r} in {root!r}"
            )
        self._files = files
        self._root = root
        self._job = safe_name(job)
        self._directory = join(root, self._job)
        self._syncs = DirectorySync(files)
        self._state_syncs = DirectorySync(files)
        self._reserved: JobCounters | None = None
        self._on_step = _go_on
        self._savepoints: dict[CheckpointId, SavepointDirectory] = {}
        """Where the checkpoints that are savepoints are kept; a process that writes late may make files there again."""

    @property
    def root(self) -> str:
        """Return the directory of checkpoint storage on the medium."""
        return self._root

    @property
    def medium(self) -> WholeFiles:
        return self._files

    def reach_through(self, wrap: Callable[[WholeFiles], WholeFiles]) -> None:
        """Reach the medium through what ``wrap`` puts around it from now on, for who watches what passes."""
        self._files = wrap(self._files)
        self._state_syncs = DirectorySync(self._files)

    def writer(
        self,
        checkpoint: CheckpointId,
        attempt: AttemptNumber,
        subtask: SubtaskId,
        operator: str,
        savepoint: str = "",
    ) -> FileStateWriter:
        prefix = f"{safe_name(subtask.vertex)}-{subtask.index}-a{attempt}-{safe_name(operator)}-"
        if savepoint:
            return FileStateWriter(self._files, self._state_syncs, savepoint, prefix, savepoint)
        return FileStateWriter(
            self._files, self._state_syncs, self._root, f"{self._job}/chk-{checkpoint}/{prefix}"
        )

    def shared_writer(
        self, checkpoint: CheckpointId, attempt: AttemptNumber, subtask: SubtaskId, operator: str
    ) -> FileStateWriter:
        """Return what writes those files of a checkpoint that later ones may use too (SNP-5)."""
        prefix = f"{safe_name(subtask.vertex)}-{subtask.index}-a{attempt}-{safe_name(operator)}-"
        directory = f"{self._job}/{_SHARED}/chk-{checkpoint}"
        return FileStateWriter(
            self._files, self._state_syncs, self._root, f"{directory}/{prefix}", shared=checkpoint
        )

    def read(self, handle: StateHandle) -> bytes:
        """Return a state file, verified against size and checksum (STA-3)."""
        path = self._path_of(handle)
        content = self._files.read(path)
        if len(content) != handle.size:
            raise CorruptStateError(
                f"{path} has {len(content)} bytes, expected {handle.size}", StorageCause.WRONG_SIZE
            )
        found = metadata.checksum_text(zlib.crc32(content))
        if found != handle.checksum:
            raise CorruptStateError(
                f"{path} has the checksum {found}, expected {handle.checksum}", StorageCause.WRONG_CHECKSUM
            )
        return content

    def publish(self, completed: CompletedCheckpoint) -> None:
        """Make a checkpoint complete: put its metadata where none is, then make the names durable (COO-1)."""
        path = self._metadata_path(completed.checkpoint)
        if self._files.exists(path):
            raise _used_already(path)
        savepoint = completed.savepoint
        place = SavepointDirectory(self._files, savepoint.directory) if savepoint is not None else None
        ours: list[str] = []
        try:
            if place is not None:
                self._put_new(place.metadata_path, place.content(completed), ours)
                self._syncs.sync_directory(parent(place.directory))
            self._put_new(path, metadata.encode(completed), ours)
            # The directory chk-<n> is new too: its own name must survive as well.
            self._syncs.sync_directory(self._directory)
        except Exception as error:
            for each in reversed(ours):
                take_back(self._files, each, error)
            if place is not None and place.metadata_path in ours:
                place.failed = True
                self._savepoints[completed.checkpoint] = place
            raise

    @contextlib.contextmanager
    def in_steps(self, on_step: Callable[[], None]) -> Iterator[None]:
        """Call a function after each step but the last one of what is published meanwhile; it may die there."""
        self._on_step = on_step
        try:
            yield
        finally:
            self._on_step = _go_on

    def _put_new(self, path: str, content: bytes, ours: list[str]) -> None:
        """Put metadata where none is, and note that it has to be taken back if publishing fails from here on."""
        ours.append(path)
        if not self._files.put_new(path, content):
            ours.remove(path)
            raise _used_already(path)
        self._on_step()
        self._sync_names(parent(path))
        self._on_step()

    def load(self, checkpoint: CheckpointId) -> CompletedCheckpoint:
        path = self._metadata_path(checkpoint)
        completed = metadata.decode(self._files.read(path), path)
        if completed.checkpoint != checkpoint:
            raise CorruptStateError(
                f"{path} is the metadata of checkpoint {completed.checkpoint}", StorageCause.FOREIGN
            )
        return completed

    def completed(self) -> tuple[CheckpointId, ...]:
        published_name = re.compile(re.escape(self._directory) + r"/chk-([1-9][0-9]*)/" + _METADATA)
        matches = (published_name.fullmatch(path) for path in self.files())
        return tuple(sorted(CheckpointId(int(match[1])) for match in matches if match))

    def claimed(self) -> tuple[CheckpointId, ...]:
        return tuple(CheckpointId(one.checkpoint) for one in self._counters().claimed)

    def incomplete(self) -> tuple[CheckpointId, ...]:
        prefix = f"{self._directory}/chk-"
        numbers = [
            path.removeprefix(prefix).partition("/")[0] for path in self.files() if path.startswith(prefix)
        ]
        published = self.completed()
        found = dict.fromkeys(CheckpointId(int(number)) for number in numbers if number.isdigit())
        return tuple(sorted(checkpoint for checkpoint in found if checkpoint not in published))

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Delete everything of a checkpoint. Metadata goes first, so that no half of one looks complete."""
        savepoint = self._savepoint_of(checkpoint)
        self._files.delete(self._metadata_path(checkpoint))
        if savepoint is not None:
            savepoint.remove_incomplete()
            if savepoint.is_complete:
                # Whoever put its metadata may have died before the name was durable. The note of it goes now.
                self._syncs.sync_directory(savepoint.directory)
        self._files.delete_tree(self._checkpoint_directory(checkpoint))
        self._remove_claimed(checkpoint)
        shared = self._shared_directory(checkpoint)
        if not kept:
            self._files.delete_tree(shared)
            return
        for path in self._files.list_files(shared):
            if path.removeprefix(f"{self._root}/") not in kept:
                self._files.delete(path)

    def shared_files(self) -> tuple[str, ...]:
        found = self._files.list_files(f"{self._directory}/{_SHARED}")
        return tuple(path.removeprefix(f"{self._root}/") for path in found)

    def discard_shared(self, paths: Iterable[str]) -> None:
        """Delete shared files; raises StorageError at the end, naming every file that could not be deleted."""
        problems = []
        for path in paths:
            if not path.startswith(f"{self._job}/{_SHARED}/"):
                raise JobUsageError(f"{path} is not a shared file of job {self._job}; it is not deleted")
            try:
                self._files.delete(join(self._root, path))
            except StorageError as error:
                problems.append(str(error))
        if problems:
            raise StorageError("shared files are left behind: " + "; ".join(problems))

    def discard(self, handles: Iterable[StateHandle]) -> None:
        """Delete state files, but none of a complete savepoint, which is the user's.

        One request tells of each savepoint whether it is complete. Raises StorageError at the end, naming every file
        that could not be deleted.
        """
        problems = []
        are_complete: dict[str, bool] = {}
        for handle in handles:
            if not handle.savepoint and not handle.path.startswith(f"{self._job}/"):
                raise JobUsageError(f"{handle.path} is not a file of job {self._job}; it is not deleted")
            try:
                if handle.savepoint and handle.savepoint not in are_complete:
                    savepoint = SavepointDirectory(self._files, handle.savepoint)
                    are_complete[handle.savepoint] = savepoint.is_complete
                if are_complete.get(handle.savepoint or "", False):
                    continue
                self._files.delete(self._path_of(handle))
            except StorageError as error:
                problems.append(str(error))
        if problems:
            raise StorageError("state files are left behind: " + "; ".join(problems))

    def reserve(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> None:
        """Make durable that ids and attempts up to these are used; without a sync if they were already."""
        last_checkpoint, last_attempt = self.reserved()
        used, tried = max(checkpoint, last_checkpoint), max(attempt, last_attempt)
        self._count(replace(self._counters(), checkpoint=used, attempt=tried))

    def _count(self, wanted: JobCounters) -> None:
        if wanted == self._reserved:
            return
        self._reserved = None  # if this fails, they were put or not, and must be read again
        self._replace(self._counters_path, counters.encode(wanted))
        self._reserved = wanted

    def reserved(self) -> tuple[CheckpointId, AttemptNumber]:
        """Return the highest id and attempt ever reserved; damaged counters are an error, not a new job."""
        known = self._counters()
        return CheckpointId(known.checkpoint), AttemptNumber(known.attempt)

    def _counters(self) -> JobCounters:
        if self._reserved is None:
            self._reserved = self._load_counters()
        return self._reserved

    # --- savepoints -----------------------------------------------------------------------------------------

    def begin_savepoint(self, checkpoint: CheckpointId, directory: str) -> None:
        """Make durable where the savepoint will be kept: a coordinator that dies meanwhile must find its files."""
        self._savepoints[checkpoint] = SavepointDirectory(self._files, directory)
        self._replace(self._place_path(checkpoint), encode_place(directory))
        self._syncs.sync_directory(self._directory)

    def is_free(self, directory: str) -> bool:
        place = SavepointDirectory(self._files, directory)
        return place.is_free and not directory.startswith(f"{self._root}/")

    def load_savepoint(self, directory: str) -> CompletedCheckpoint:
        return SavepointDirectory(self._files, directory).load()

    def start_from(self, savepoint: CompletedCheckpoint, claim: bool = False) -> CheckpointId:
        """Make durable that the job starts from a savepoint, unless it did so before."""
        known, directory = self._counters(), savepoint.savepoint.directory if savepoint.savepoint else ""
        if known.started_from != directory:
            newest = max(known.checkpoint, savepoint.checkpoint)
            files = tuple(handle.path for part in savepoint.snapshots for handle in part.handles())
            own = (ClaimedSavepoint(savepoint.checkpoint, directory, files),) if claim else ()
            self._count(
                replace(
                    known,
                    checkpoint=newest,
                    attempt=max(known.attempt, savepoint.attempt),
                    started_from=directory,
                    started_above=newest,
                    claimed=(*known.claimed, *own),
                )
            )
        return CheckpointId(self._counters().started_above)

    def has_outgrown(self, directory: str) -> CheckpointId | None:
        """Return above which id the job's own checkpoints are, if it has deleted the savepoint that it started from.

        None if it did not start from this one, or if the savepoint is there, or if nothing newer is complete.
        """
        known = self._counters()
        if known.started_from != directory or SavepointDirectory(self._files, directory).is_complete:
            return None
        above = CheckpointId(known.started_above)
        return above if any(own > above for own in self.completed()) else None

    def _remove_claimed(self, checkpoint: CheckpointId) -> None:
        """Delete what the job took over with this id, of one job or of several, and then each note that it is there."""
        for mine in [one for one in self._counters().claimed if one.checkpoint == checkpoint]:
            SavepointDirectory(self._files, mine.directory).remove(mine.files)
            known = self._counters()
            self._count(replace(known, claimed=tuple(one for one in known.claimed if one != mine)))

    def _savepoint_of(self, checkpoint: CheckpointId) -> SavepointDirectory | None:
        """Return where a checkpoint that is a savepoint is kept; None for any other."""
        path = self._place_path(checkpoint)
        if checkpoint not in self._savepoints and self._files.exists(path):
            directory = decode_place(self._files.read(path), path)
            self._savepoints[checkpoint] = SavepointDirectory(self._files, directory)
        return self._savepoints.get(checkpoint)

    def _path_of(self, handle: StateHandle) -> str:
        return join(handle.savepoint or self._root, handle.path)

    def _place_path(self, checkpoint: CheckpointId) -> str:
        return f"{self._checkpoint_directory(checkpoint)}/{_PLACE}"

    def files(self) -> list[str]:
        return self._files.list_files(self._directory)

    @property
    def _counters_path(self) -> str:
        return f"{self._directory}/counters"

    def _checkpoint_directory(self, checkpoint: CheckpointId) -> str:
        return f"{self._directory}/chk-{checkpoint}"

    def _shared_directory(self, checkpoint: CheckpointId) -> str:
        return f"{self._directory}/{_SHARED}/chk-{checkpoint}"

    def _metadata_path(self, checkpoint: CheckpointId) -> str:
        return f"{self._checkpoint_directory(checkpoint)}/{_METADATA}"

    def _load_counters(self) -> JobCounters:
        path = self._counters_path
        if not self._files.exists(path):
            return JobCounters(0, 0)
        return counters.decode(self._files.read(path), path)

    def _replace(self, path: str, content: bytes) -> None:
        """Write a small file so that a reader finds the old content or the new one, also after a crash."""
        self._files.put(path, content)
        self._sync_names(parent(path))

    def _sync_names(self, directory: str) -> None:
        if directory == self._directory:
            self._syncs.sync_directory(directory)
        else:
            self._files.sync_directory(directory)


class FileCheckpointStorage(MediumCheckpointStorage):
    """Checkpoint storage of one job on a file system that all its processes reach (STA-2).

    Durable means synced: what a method has made durable survives a crash of the host, if its disk does.
    """

    def __init__(self, files: FileSystem, job: str, root: str = "checkpoints") -> None:
        super().__init__(DurableFiles(files), job, root)
        self._goes_on = False
        """Whether this instance has reserved anything, and so belongs to a coordinator that is at work."""

    def reserve(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> None:
        """Make durable that ids and attempts up to these are used, and first what an earlier coordinator published.

        If that one died between two steps, its last checkpoint can be seen, and yet be lost with its host (COO-1).
        Nothing may be built on such a checkpoint.
        """
        if not self._goes_on:
            for each in self.completed():
                self._syncs.sync_directory(self._checkpoint_directory(each))
            self._goes_on = True
        super().reserve(checkpoint, attempt)


def file_storage(location: str, job: str) -> FileCheckpointStorage:
    """Return the checkpoint storage of a job in a directory of this machine, or of a shared mount."""
    return FileCheckpointStorage(LocalFileSystem(location), job)


def _go_on() -> None:
    """Do nothing between two steps of a publication."""


def _used_already(path: str) -> JobUsageError:
    return JobUsageError(f"{path} is published already; ids and savepoint directories are used once (COO-4)")
