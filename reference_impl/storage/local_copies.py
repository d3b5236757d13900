"""Secondary copies: a subtask's newest state files, kept on the disk of its own host (LOC-1 to LOC-6, LOC-10).

``TaskLocalStateStore`` belongs to one subtask of one attempt. While the asynchronous part of a snapshot writes a
state file to checkpoint storage, ``copying_writer`` lets the same bytes through to a local file, or links the file
if the backend has it on the same disk. When the whole part is written, ``seal`` writes a manifest. Without a
manifest nothing is a copy: whatever a killed process left half written is never read. Below the host's local
directory of the job::

    count-0/incoming/...                              files being written, renamed when whole
    count-0/chk-7-a2/aggregate/state                  a state file: checkpoint 7, written by attempt 2
    count-0/chk-7-a2/_manifest                        what the copy is a copy of, and of which files

A secondary is a cache. It is not synced: after a crash of the host sizes and checksums tell whole files from others.
They are those of the *primary's* handle; for a copy in another format (LOC-7), the manifest binds its own ones to the
handle's. If it cannot be written or read, nothing fails (LOC-2, LOC-4): the reason is kept and reported. The
coordinator does not know of it (LOC-3), and it has a lifetime of its own: once a checkpoint is known to be complete,
its copy stays and all older ones go.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.paths import join, safe_name
from barrier_tck.reference_impl.protocol.messages import LocalCopy, LocalCopyReport, StateHandle
from barrier_tck.reference_impl.runtime_errors import (
    CorruptStateError,
    JobUsageError,
    RuntimeFailure,
    StorageCause,
    StorageError,
)
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.filesystem import FileSystem, OutputStream

LOCAL = "barrier-tck-local"
"""Directory of all jobs' local copies, below a host's directory for local files."""
MANIFEST = "_manifest"
INCOMING = "incoming"
FORMAT, VERSION = "local-copy", 1
FILES_WANTED = 4
"""How many files a backend is asked to split a snapshot into, so that a damaged copy still serves a part (LOC-6)."""

_COPY = re.compile(r"([^/]+)-(\d+)/chk-(\d+)-a(\d+)/(.+)")
_INCOMING_FILE = re.compile(rf"[^/]+/{INCOMING}/a(\d+)-")


class CopiedFile(msgspec.Struct, frozen=True):
    """One file of a copy."""

    primary: str
    """Path in checkpoint storage."""
    local: str
    """Path below the copy's directory."""
    size: int
    """Bytes of the primary."""
    checksum: str
    """Of the primary: it says which primary this is a copy of."""
    own: tuple[int, str] | None = None
    """Size and checksum of the copy if it has another format than the primary (LOC-7); None: the same bytes."""

    @property
    def content(self) -> tuple[int, str]:
        """Return the size and the checksum that the copy must have."""
        return self.own or (self.size, self.checksum)


class CopyManifest(msgspec.Struct, frozen=True):
    """What a copy says about itself: read before anything of it is trusted."""

    job: str
    subtask: str
    attempt: int
    checkpoint: int
    key_groups: tuple[int, int]
    """First key group, and the first one behind the range."""
    files: tuple[CopiedFile, ...]


@dataclass(frozen=True, slots=True)
class LocalScope:
    """Whose copies a store keeps."""

    job: str
    subtask: SubtaskId
    attempt: AttemptNumber
    key_groups: KeyGroupRange
    host: str = ""


@runtime_checkable
class LinkingFileSystem(FileSystem, Protocol):
    """A file system on real files, which can take one in by a hard link."""

    def link(self, source: Path, target: str) -> None:
        """Let ``target`` be another name of the file ``source``; raises StorageError."""

    def path_of(self, path: str) -> Path:
        """Return where a file is."""


@dataclass(slots=True)
class _Copy:
    """A copy being written. Its files come from the background thread, its end from either."""

    checkpoint: CheckpointId
    files: list[CopiedFile] = field(default_factory=list)
    problem: str = ""
    sealed: bool = False


def local_root(base: str | Path, job: str, files_root: str) -> Path:
    """Return the directory of one job's local copies below a host's directory for local files.

    Jobs of the same name with other storage are other jobs: their checkpoints have the same numbers.
    """
    return Path(base) / LOCAL / f"{safe_name(job)}-{zlib.crc32(files_root.encode()):08x}"


def directory_of(subtask: SubtaskId) -> str:
    """Return the directory of all copies of a subtask."""
    return f"{safe_name(subtask.vertex)}-{subtask.index}"


def copy_directory(copy: LocalCopy) -> str:
    """Return the directory of one copy."""
    return f"{directory_of(copy.subtask)}/chk-{copy.checkpoint}-a{copy.attempt}"


def read_manifest(files: FileSystem, directory: str) -> CopyManifest:
    """Read a copy's manifest; raises StorageError if it is missing, CorruptStateError if it is damaged."""
    path = join(directory, MANIFEST)
    return metadata.decode_body(metadata.unframe(FORMAT, VERSION, files.read(path), path), CopyManifest, path)


def encode_manifest(manifest: CopyManifest) -> bytes:
    """Return the content of a manifest file."""
    return metadata.frame(FORMAT, VERSION, msgspec.json.encode(manifest))


def copies_on(files: FileSystem, subtasks: Iterable[SubtaskId]) -> tuple[LocalCopy, ...]:
    """Return the sealed copies of these subtasks on a host: what a slot reports, for placement (LOC-9).

    Their content was not looked at. A host whose directory cannot be read has none.
    """
    by_directory = {directory_of(subtask): subtask for subtask in subtasks}
    try:
        names = files.list_files("")
    except RuntimeFailure:
        return ()
    found = []
    for name in names:
        match = _COPY.fullmatch(name)
        if match is None or match[5] != MANIFEST:
            continue
        subtask = by_directory.get(f"{match[1]}-{match[2]}")
        if subtask is not None:
            found.append(LocalCopy(subtask, CheckpointId(int(match[3])), AttemptNumber(int(match[4]))))
    return tuple(found)


def require_one_file_system(files: FileSystem, working: WorkingDirectory) -> None:
    """Raise JobUsageError if a backend's local files could not be linked into the local copies (LOC-10)."""
    if not working.wanted or not isinstance(files, LinkingFileSystem):
        return
    place, root = files.path_of(""), Path(working.root)
    try:
        for directory in (place, root):
            directory.mkdir(parents=True, exist_ok=True)
        same = os.stat(place).st_dev == os.stat(root).st_dev
    except OSError as error:
        raise StorageError(f"no directory for local copies: {error}") from error
    if not same:
        raise JobUsageError(
            f"local copies in {place} would be on another file system than the state backend's directory {root}, "
            "so they would be copies instead of hard links (LOC-10); put both on one file system"
        )


class TaskLocalStateStore:
    """The secondary copies of one subtask, as one attempt of it keeps them."""

    def __init__(self, files: FileSystem, scope: LocalScope) -> None:
        self.files = files
        self.scope = scope
        self._lock = threading.RLock()
        self._copies: dict[CheckpointId, _Copy] = {}
        self._confirmed = CheckpointId(0)
        self._tidied = False
        """Whether copies of other subtasks, from older attempts, were deleted after a checkpoint of this one."""

    # --- writing, on the thread of the asynchronous part ----------------------------------------------------

    def begin(self, checkpoint: CheckpointId) -> None:
        """Expect files of a checkpoint; ``copying_writer`` writes them."""
        with self._lock:
            self._copies.setdefault(checkpoint, _Copy(checkpoint))

    def operator_directory(self, checkpoint: CheckpointId, operator: str) -> str:
        """Return where the files of one operator go: chained operators must not meet in one place (LO-01)."""
        return f"{self.directory(checkpoint)}/{safe_name(operator)}"

    def directory(self, checkpoint: CheckpointId) -> str:
        """Return the directory of the copy that this attempt makes of a checkpoint."""
        return copy_directory(LocalCopy(self.scope.subtask, checkpoint, self.scope.attempt))

    def prepare(self, checkpoint: CheckpointId, operator: str) -> None:
        """Make room for an operator's files: nothing that is there under this name already may be taken for them."""
        try:
            self.files.delete_tree(self.operator_directory(checkpoint, operator))
        except RuntimeFailure as error:
            self.give_up(checkpoint, str(error))

    def incoming(self, name: str) -> str:
        """Return where a file is written before it gets its own name."""
        return f"{directory_of(self.scope.subtask)}/{INCOMING}/a{self.scope.attempt}-{name}"

    def add(self, checkpoint: CheckpointId, file: CopiedFile) -> None:
        with self._lock:
            copy = self._copies.get(checkpoint)
            if copy is not None:
                copy.files.append(file)

    def give_up(self, checkpoint: CheckpointId, problem: str) -> None:
        """Note why there will be no copy of a checkpoint; the checkpoint itself goes on (LOC-2)."""
        with self._lock:
            copy = self._copies.get(checkpoint)
            if copy is not None and not copy.problem:
                copy.problem = problem

    def still_wanted(self, checkpoint: CheckpointId) -> bool:
        """Return whether the copy of a checkpoint was neither given up nor dropped."""
        copy = self._copies.get(checkpoint)
        return copy is not None and not copy.problem

    def seal(self, checkpoint: CheckpointId) -> None:
        """Make what was written a copy, now that all primaries of the part are durable; never raises for a disk."""
        with self._lock:
            copy = self._copies.get(checkpoint)
            if copy is not None and copy.files and not copy.problem:
                try:
                    self._write_manifest(copy)
                    copy.sealed = True
                except RuntimeFailure as error:
                    copy.problem = str(error)
        if copy is None or not copy.sealed:
            self.remove(checkpoint)

    def _write_manifest(self, copy: _Copy) -> None:
        scope = self.scope
        manifest = CopyManifest(
            scope.job,
            str(scope.subtask),
            scope.attempt,
            copy.checkpoint,
            (scope.key_groups.start, scope.key_groups.end),
            tuple(copy.files),
        )
        temporary = self.incoming(f"{copy.checkpoint}-{MANIFEST}")
        stream = self.files.create(temporary)
        try:
            stream.write(encode_manifest(manifest))
            stream.close()
            self.files.rename(temporary, join(self.directory(copy.checkpoint), MANIFEST))
        except RuntimeFailure:
            self.discard_unfinished(stream, temporary)
            raise

    def discard_unfinished(self, stream: OutputStream, path: str) -> None:
        """Close and delete a file that is not to be whole; raises StorageError if the disk refuses to delete it.

        A full disk often refuses to close it, too, as there is something left to write. It is deleted all the same: its
        room is what the disk lacks.
        """
        with contextlib.suppress(RuntimeFailure):
            stream.close()
        self.files.delete(path)

    def take_over(self, handle: StateHandle, target: str) -> None:
        """Put a file of an older copy of this subtask at ``target``; raises StorageError if no copy has it whole."""
        for copy in sorted(self._on_disk(), key=lambda one: -one.checkpoint):
            directory = copy_directory(copy)
            try:
                manifest = read_manifest(self.files, directory)
                path, content = self.read(directory, manifest, handle)
            except RuntimeFailure:
                continue  # an older copy may have it
            if isinstance(self.files, LinkingFileSystem):
                self.files.link(self.files.path_of(path), target)
                return
            stream = self.files.create(target)
            try:
                stream.write(content)
            finally:
                stream.close()
            return
        raise StorageError(f"no local copy has {handle.path}, which the snapshot uses again")

    # --- the life of copies ---------------------------------------------------------------------------------

    def confirm(self, checkpoint: CheckpointId) -> None:
        """A checkpoint is complete: its copy stays, and all older ones of this subtask go (LOC-3).

        So do those that older attempts left here of subtasks that run elsewhere now.
        """
        self._confirmed = max(self._confirmed, checkpoint)
        for older in self.stale(self._confirmed):
            self._delete(older)
        if not self._tidied:
            self._tidied = True
            self._delete_what_others_left()
        with self._lock:
            for number in [number for number in self._copies if number < self._confirmed]:
                del self._copies[number]

    def _delete_what_others_left(self) -> None:
        """Delete what older attempts copied of checkpoints that are not restored any more."""
        for directory, number, writing in self._directories():
            if writing < self.scope.attempt and number < self._confirmed:
                self._delete_directory(directory)

    def stale(self, newest: CheckpointId) -> list[LocalCopy]:
        """Return what is on the disk of older checkpoints: sealed or not, by whichever attempt."""
        return [copy for copy in self._on_disk() if copy.checkpoint < newest]

    def forget(self, checkpoint: CheckpointId) -> None:
        """Stop writing a copy."""
        with self._lock:
            self._copies.pop(checkpoint, None)

    def drop(self, checkpoint: CheckpointId) -> None:
        """A checkpoint failed or was cancelled: whatever exists of its copy goes, sealed or not."""
        self.forget(checkpoint)
        self.remove(checkpoint)

    def remove(self, checkpoint: CheckpointId) -> None:
        """Delete the files of this attempt's copy of a checkpoint."""
        self._delete(LocalCopy(self.scope.subtask, checkpoint, self.scope.attempt))

    def restore_ended(self, checkpoint: CheckpointId | None, attempt: AttemptNumber | None) -> None:
        """The subtask has its state: that of a checkpoint that an attempt wrote, or none."""
        self.keep_only(checkpoint, attempt)

    def keep_only(self, checkpoint: CheckpointId | None, attempt: AttemptNumber | None) -> None:
        """Clean up at the start of an attempt that restores a checkpoint (None: none), written by an attempt.

        Every other copy of this subtask goes: what is older is not needed, what is newer never completed. Copies of
        other subtasks, left by attempts that ran here, go if they are older than what is restored. What a later
        attempt wrote stays: this process may be one that was replaced and does not know it yet (REC-2).
        """
        own = directory_of(self.scope.subtask)
        for path in self._names(f"{own}/{INCOMING}"):
            writer = _INCOMING_FILE.match(path)
            if writer is None or int(writer[1]) <= self.scope.attempt:
                self._delete_file(path)
        for directory, number, writing in self._directories():
            if writing > self.scope.attempt:
                continue
            mine = directory.startswith(f"{own}/")
            wanted = checkpoint is not None and directory == f"{own}/chk-{checkpoint}-a{attempt}"
            if (mine and not wanted) or (checkpoint is not None and number < checkpoint):
                self._delete_directory(directory)

    def finish(self) -> None:
        """Delete every copy on this host: the job is over."""
        try:
            self.files.delete_tree("")
        except RuntimeFailure as error:
            self._note(str(error))

    def report(self, checkpoint: CheckpointId) -> LocalCopyReport:
        """Say how the copy of a checkpoint stands, and what else is held."""
        with self._lock:
            copy = self._copies.get(checkpoint)
            kept, problem = (copy.sealed, copy.problem) if copy is not None else (False, "")
        held = sorted({int(copy.checkpoint) for copy in self._on_disk()})
        return LocalCopyReport(kept, problem, int(self._confirmed), tuple(held), self.scope.host)

    def _on_disk(self) -> list[LocalCopy]:
        own = directory_of(self.scope.subtask)
        found: dict[LocalCopy, None] = {}
        for path in self._names(own):
            match = _COPY.fullmatch(path)
            if match is not None:
                checkpoint, attempt = CheckpointId(int(match[3])), AttemptNumber(int(match[4]))
                found[LocalCopy(self.scope.subtask, checkpoint, attempt)] = None
        return list(found)

    def _directories(self) -> list[tuple[str, int, int]]:
        """Return each copy's directory on this host, with its checkpoint and the attempt that wrote it."""
        found: dict[tuple[str, int, int], None] = {}
        for path in self._names(""):
            match = _COPY.fullmatch(path)
            if match is not None:
                directory = f"{match[1]}-{match[2]}/chk-{match[3]}-a{match[4]}"
                found[directory, int(match[3]), int(match[4])] = None
        return list(found)

    def _names(self, directory: str) -> list[str]:
        try:
            return self.files.list_files(directory)
        except RuntimeFailure as error:
            self._note(str(error))
            return []

    def _delete(self, copy: LocalCopy) -> None:
        self._delete_directory(copy_directory(copy))

    def _delete_directory(self, directory: str) -> None:
        try:
            # The manifest first: half a copy must not look whole.
            self.files.delete(join(directory, MANIFEST))
            self.files.delete_tree(directory)
        except RuntimeFailure as error:
            self._note(str(error))

    def _delete_file(self, path: str) -> None:
        try:
            self.files.delete(path)
        except RuntimeFailure as error:
            self._note(str(error))

    def _note(self, problem: str) -> None:
        """Keep an error of the disk that nothing can be done about; the next report tells of it."""
        with self._lock:
            for copy in self._copies.values():
                if not copy.problem and not copy.sealed:
                    copy.problem = problem

    # --- reading --------------------------------------------------------------------------------------------

    def find(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> tuple[str, CopyManifest]:
        """Return directory and manifest of the copy of a checkpoint's part that an attempt wrote.

        Raises StorageError or CorruptStateError, with the reason, if there is none that can be trusted (LOC-4).
        """
        directory = copy_directory(LocalCopy(self.scope.subtask, checkpoint, attempt))
        manifest = read_manifest(self.files, directory)
        scope = self.scope
        wanted = CopyManifest(
            scope.job,
            str(scope.subtask),
            attempt,
            checkpoint,
            (scope.key_groups.start, scope.key_groups.end),
            manifest.files,
        )
        for name in ("job", "subtask", "attempt", "checkpoint", "key_groups"):
            found, expected = getattr(manifest, name), getattr(wanted, name)
            if found != expected:
                raise CorruptStateError(
                    f"{directory} is a copy of {name} {found}, expected {expected}", StorageCause.FOREIGN
                )
        return directory, manifest

    def read(self, directory: str, manifest: CopyManifest, handle: StateHandle) -> tuple[str, bytes]:
        """Return path and content of the copy of a state file, verified against the primary's handle.

        Raises StorageError or CorruptStateError if it is missing or not what the handle says.
        """
        entry = next((entry for entry in manifest.files if entry.primary == handle.path), None)
        if entry is None:
            raise CorruptStateError(f"{directory} has no copy of {handle.path}", StorageCause.MISSING)
        path = join(directory, entry.local)
        if (entry.size, entry.checksum) != (handle.size, handle.checksum):
            raise CorruptStateError(
                f"{path} is a copy of a file with {entry.size} bytes and the checksum {entry.checksum}, "
                f"expected {handle.size} and {handle.checksum}",
                StorageCause.FOREIGN,
            )
        content = self.files.read(path)
        size, checksum = entry.content
        if len(content) != size:
            raise CorruptStateError(
                f"{path} has {len(content)} bytes, expected {size}", StorageCause.WRONG_SIZE
            )
        found = metadata.checksum_of(content)
        if found != checksum:
            raise CorruptStateError(
                f"{path} has the checksum {found}, expected {checksum}", StorageCause.WRONG_CHECKSUM
            )
        return path, content

    def invalidate(
        self, directory: str, manifest: CopyManifest | None = None, handle: StateHandle | None = None
    ) -> None:
        """Delete what was found damaged, a file or a whole copy: it must not be believed later (LO-06)."""
        entry = None
        if manifest is not None and handle is not None:
            entry = next((entry for entry in manifest.files if entry.primary == handle.path), None)
        if entry is None:
            self._delete_directory(directory)
        else:
            self._delete_file(join(directory, entry.local))
