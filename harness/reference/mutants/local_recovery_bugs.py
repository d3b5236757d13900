"""Planted bugs of local recovery: stores of secondary copies that share, leak, or believe too much."""

from __future__ import annotations

from pathlib import Path

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId
from barrier_tck.reference_impl.paths import join
from barrier_tck.reference_impl.protocol.messages import LocalCopy, ServedBy, StateHandle
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.state.heap import serialised
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
    """LO-01: the path of local files has no operator; the second one of a chain deletes the files of the first."""

    def operator_directory(self, checkpoint: CheckpointId, operator: str) -> str:
        """Leave the operator out."""
        return f"{self.directory(checkpoint)}/state"


class ForgetsTheUnregistered(TaskLocalStateStore):
    """LO-03: abort and confirmation look only at copies that were registered when their last file was written."""

    def drop(self, checkpoint: CheckpointId) -> None:
        """Pass over a copy that is not registered yet: its files stay."""
        if self.is_sealed(checkpoint):
            super().drop(checkpoint)
        else:
            self.forget(checkpoint)

    def stale(self, newest: CheckpointId) -> list[LocalCopy]:
        """Find only registered copies, not those on the disk."""
        return [copy for copy in super().stale(newest) if self.is_sealed(copy.checkpoint)]


class TrustsWhateverIsThere(TaskLocalStateStore):
    """LO-05: whether a copy is of the restored checkpoint is not asked; what was written last is taken."""

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
        """Take the file of the same name, whatever is in it."""
        name = handle.path.rpartition("/")[2]
        for entry in manifest.files:
            if entry.primary.rpartition("/")[2] == name:
                path = join(directory, entry.local)
                return path, self.files.read(path)
        return super().read(directory, manifest, handle)


class BelievesOldMarkers(TaskLocalStateStore):
    """LO-06: a copy found damaged keeps its marker, which the next restart believes without looking again."""

    def read(self, directory: str, manifest: CopyManifest, handle: StateHandle) -> tuple[str, bytes]:
        """Verify a file once; the marker that says so is written first."""
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
        """Return early, to save I/O."""


class SealsUnfinishedRestores(TaskLocalStateStore):
    """LO-07: a process that leaves in good order while it restores notes the position that it was to reach."""

    def __init__(self, files: FileSystem, scope: LocalScope) -> None:
        """Restore nothing yet."""
        super().__init__(files, scope)
        self._goal = CheckpointId(0)

    def find(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> tuple[str, CopyManifest]:
        """Believe the note: what is not there locally needs no restoring."""
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
        """Restore nothing of what the note says is there."""
        if directory:
            return super().read(directory, manifest, handle)
        return self._note_of(self._goal), b"".join(serialised([]))

    def close(self, restored: bool) -> None:
        """Note the end position, reached or not."""
        if self._goal and not restored:
            self.files.create(self._note_of(self._goal)).close()

    def _note_of(self, checkpoint: CheckpointId) -> str:
        return f"{directory_of(self.scope.subtask)}/restored-{checkpoint}"


class ClaimsTheLocalCopy(RestoreReader):
    """LO-08: the state comes from durable storage all the time; that the copy served is what is reported."""

    def read(self, handle: StateHandle) -> bytes:
        """Read the primary, and name the copy if there is one."""
        if self._copy is None:
            return super().read(handle)
        content = self._primary.read(handle)
        self._note(handle, ServedBy.SECONDARY)
        return content

    def local_file(self, handle: StateHandle) -> Path | None:
        """Have nothing to link."""
        return None
