"""Planted bugs of local recovery: stores of secondary copies that share, leak, or trust too much."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.paths import join
from barrier_tck.reference_impl.protocol.messages import LocalCopy, ServedBy, StateHandle
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure, StorageCause, StorageError
from barrier_tck.reference_impl.state.backend import (
    SnapshotFuture,
    StateScope,
    StateWriter,
    TwoFormatStateWriter,
)
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore
from barrier_tck.reference_impl.state.heap_files import Table, read_snapshot, serialised
from barrier_tck.reference_impl.storage import metadata
from barrier_tck.reference_impl.storage.filesystem import FileSystem
from barrier_tck.reference_impl.storage.local_copies import (
    CopyManifest,
    LocalScope,
    TaskLocalStateStore,
    copies_on,
    copy_directory,
    directory_of,
    read_manifest,
)
from barrier_tck.reference_impl.storage.restore import RestoreReader


class SharesOneDirectory(TaskLocalStateStore):
    """LO-01: the path of local files does not name the operator, so a chain's second operator deletes the first's
    files."""

    def operator_directory(self, checkpoint: CheckpointId, operator: str) -> str:
        """Leave the operator out."""
        return f"{self.directory(checkpoint)}/state"


class ForgetsTheUnregistered(TaskLocalStateStore):
    """LO-03: abort and confirmation see only copies that are registered, which happens with their last file."""

    def drop(self, checkpoint: CheckpointId) -> None:
        """Skip a copy that is not registered yet, so that its files stay."""
        if self.is_sealed(checkpoint):
            super().drop(checkpoint)
        else:
            self.forget(checkpoint)

    def stale(self, newest: CheckpointId) -> list[LocalCopy]:
        """Return only registered copies, not all those on the disk."""
        return [copy for copy in super().stale(newest) if self.is_sealed(copy.checkpoint)]


class PrunesWhatOthersShare(TaskLocalStateStore):
    """LO-04: an abort deletes every local file that the checkpoint lists, also in the copies of other checkpoints."""

    def drop(self, checkpoint: CheckpointId) -> None:
        """Ask nobody else who needs the files."""
        aborted = self._copies.get(checkpoint)
        listed = {file.primary for file in aborted.files} if aborted is not None else set()
        for copy in self._on_disk():
            directory = copy_directory(copy)
            try:
                manifest = read_manifest(self.files, directory)
            except RuntimeFailure:
                continue  # it is not sealed yet
            for file in manifest.files:
                if file.primary in listed:
                    self._delete_file(join(directory, file.local))
        super().drop(checkpoint)


class TrustsWhateverIsThere(TaskLocalStateStore):
    """LO-05: the copy that was written last is taken, whether or not it belongs to the restored checkpoint."""

    def find(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> tuple[str, CopyManifest]:
        """Take the newest copy of the subtask."""
        newest = max(
            copies_on(self.files, [self.scope.subtask]),
            key=lambda copy: (copy.attempt, copy.checkpoint),
            default=None,
        )
        if newest is None:
            return super().find(checkpoint, attempt)
        directory = copy_directory(newest)
        return directory, read_manifest(self.files, directory)

    def read(self, directory: str, manifest: CopyManifest, handle: StateHandle) -> tuple[str, bytes]:
        """Read the file of the same name, whatever its content is."""
        name = handle.path.rpartition("/")[2]
        for entry in manifest.files:
            if entry.primary.rpartition("/")[2] == name:
                path = join(directory, entry.local)
                return path, self.files.read(path)
        return super().read(directory, manifest, handle)


class BelievesOldMarkers(TaskLocalStateStore):
    """LO-06: a damaged copy keeps its marker, and the next restart trusts the marker without looking again."""

    def read(self, directory: str, manifest: CopyManifest, handle: StateHandle) -> tuple[str, bytes]:
        """Verify a file only once; the marker that says so is written before."""
        entry = next((entry for entry in manifest.files if entry.primary == handle.path), None)
        if entry is None:
            return super().read(directory, manifest, handle)
        path = join(directory, entry.local)
        marker = f"{path}.checked"
        if self.files.exists(marker):
            return path, self.files.read(path)
        self.files.create(marker).close()
        return super().read(directory, manifest, handle)

    def invalidate(
        self, directory: str, manifest: CopyManifest | None = None, handle: StateHandle | None = None
    ) -> None:
        """Do nothing, to save I/O."""


class SealsUnfinishedRestores(TaskLocalStateStore):
    """LO-07: a process that ends in good order during a restore notes the restore as finished."""

    def __init__(self, files: FileSystem, scope: LocalScope) -> None:
        """Start with no restore under way."""
        super().__init__(files, scope)
        self._goal = CheckpointId(0)

    def find(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> tuple[str, CopyManifest]:
        """Trust the note: if it is there, nothing that is missing needs to be restored."""
        self._goal = checkpoint
        try:
            return super().find(checkpoint, attempt)
        except RuntimeFailure:
            if not self.files.exists(self._note_of(checkpoint)):
                raise
            scope = self.scope
            groups = (scope.key_groups.start, scope.key_groups.end)
            return "", CopyManifest(scope.job, str(scope.subtask), attempt, checkpoint, groups, ())

    def read(self, directory: str, manifest: CopyManifest, handle: StateHandle) -> tuple[str, bytes]:
        """Restore nothing that the note says is there."""
        if directory:
            return super().read(directory, manifest, handle)
        return self._note_of(self._goal), b"".join(serialised([]))

    def close(self, restored: bool) -> None:
        """Note the checkpoint as restored although it was not."""
        if self._goal and not restored:
            self.files.create(self._note_of(self._goal)).close()

    def _note_of(self, checkpoint: CheckpointId) -> str:
        return f"{directory_of(self.scope.subtask)}/restored-{checkpoint}"


class TrustsItsOwnManifest(TaskLocalStateStore):
    """LO-09: a file of the copy is compared with what the copy says of it, not with what the checkpoint says."""

    def read(self, directory: str, manifest: CopyManifest, handle: StateHandle) -> tuple[str, bytes]:
        """Accept every file that the copy's own manifest vouches for."""
        for entry in manifest.files:
            path = join(directory, entry.local)
            if entry.primary == handle.path:
                content = self.files.read(path)
                if metadata.checksum_of(content) == entry.checksum:
                    return path, content
        return super().read(directory, manifest, handle)


class TakesTheUnreadableForEmpty(TaskLocalStateStore):
    """LO-10: a copy whose directory cannot be read counts as one without entries."""

    def find(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> tuple[str, CopyManifest]:
        """Swallow the error of the disk."""
        try:
            return super().find(checkpoint, attempt)
        except StorageError as error:
            if error.cause is not StorageCause.FAILED:
                raise
            scope = self.scope
            groups = (scope.key_groups.start, scope.key_groups.end)
            return "", CopyManifest(scope.job, str(scope.subtask), attempt, checkpoint, groups, ())

    def read(self, directory: str, manifest: CopyManifest, handle: StateHandle) -> tuple[str, bytes]:
        """Return a file without entries for what could not be read."""
        if directory:
            return super().read(directory, manifest, handle)
        return "nowhere", b"".join(serialised([]))


class IgnoresTheRange(TaskLocalStateStore):
    """LO-11: a copy is taken whichever key groups it says that it holds."""

    def find(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> tuple[str, CopyManifest]:
        """Ask with the range that the copy names."""
        found = read_manifest(self.files, copy_directory(LocalCopy(self.scope.subtask, checkpoint, attempt)))
        own = self.scope
        self.scope = replace(own, key_groups=KeyGroupRange(*found.key_groups))
        try:
            return super().find(checkpoint, attempt)
        finally:
            self.scope = own


class ConsumesTheCopy(TaskLocalStateStore):
    """LO-12: a restore moves the copy's files away, and the next restore of the same checkpoint finds none."""

    def read(self, directory: str, manifest: CopyManifest, handle: StateHandle) -> tuple[str, bytes]:
        """Take the file, and leave nothing."""
        path, content = super().read(directory, manifest, handle)
        self.files.delete(path)
        return path, content


class FailsWithTheFullDisk(TaskLocalStateStore):
    """LO-13: the first copy that cannot be written fails its checkpoint; from then on the disk is known to be full."""

    def __init__(self, files: FileSystem, scope: LocalScope) -> None:
        """Start with a disk that has room."""
        super().__init__(files, scope)
        self._known = False

    def give_up(self, checkpoint: CheckpointId, problem: str) -> None:
        """Raise once, instead of going on without a copy."""
        super().give_up(checkpoint, problem)
        if not self._known:
            self._known = True
            raise StorageError(problem)


class MakesRoomForNewerCopies(TaskLocalStateStore):
    """LO-15: where there is no room for a copy, the older ones go, although the newest checkpoint is theirs."""

    def give_up(self, checkpoint: CheckpointId, problem: str) -> None:
        """Make room for the next one."""
        super().give_up(checkpoint, problem)
        for copy in self._on_disk():
            if copy.checkpoint < checkpoint:
                self._delete(copy)


class LeavesOutOfTheSecondFormat(HeapStateBackend):
    """LO-14: what is written for the local copy, if that has a format of its own, lacks the last key group."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store with the bug."""
        return _LeavesOutStore(scope)


class _LeavesOutStore(HeapStateStore):
    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        if isinstance(writer, TwoFormatStateWriter):
            writer = _LeavesOutWriter(writer)
        return super().snapshot(checkpoint, writer)


class _LeavesOutWriter:
    def __init__(self, inner: TwoFormatStateWriter) -> None:
        self._inner = inner

    @property
    def second_compression(self) -> Compression | None:
        return self._inner.second_compression

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        return self._inner.write(name, chunks, key_groups)

    def write_twice(
        self, name: str, chunks: Iterable[bytes], second: Iterable[bytes], key_groups: KeyGroupRange
    ) -> StateHandle:
        whole = StateHandle(name, 0, "", key_groups)
        found = list(read_snapshot(whole, b"".join(second), key_groups))
        last = max((group for _, group, _ in found), default=0)
        kept: dict[str, dict[int, Table]] = {}
        for state, group, table in found:
            if group != last:
                kept.setdefault(state, {})[group] = table
        compression = self._inner.second_compression or Compression.NONE
        return self._inner.write_twice(name, chunks, serialised(list(kept.items()), compression), key_groups)


class ClaimsTheLocalCopy(RestoreReader):
    """LO-08: the state always comes from durable storage, but the local copy is reported to have served it."""

    def read(self, handle: StateHandle) -> bytes:
        """Read the primary, and report the copy if there is one."""
        if self._copy is None:
            return super().read(handle)
        content = self._primary.read(handle)
        self._note(handle, ServedBy.SECONDARY)
        return content

    def local_file(self, handle: StateHandle) -> Path | None:
        """Return None, so that nothing is linked."""
        return None
