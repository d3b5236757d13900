"""Planted bugs of incremental snapshots: shared files that are deleted too early, never, or taken for another one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.paths import join, safe_name
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_checkpoints import Commands
from barrier_tck.reference_impl.protocol.coordinator_commands import DiscardShared, DiscardSnapshot
from barrier_tck.reference_impl.protocol.coordinator_events import (
    CoordinatorEvent,
    JobStarted,
    MetadataWritten,
)
from barrier_tck.reference_impl.protocol.messages import StateHandle, SubtaskRunning, SubtaskSnapshot
from barrier_tck.reference_impl.protocol.pending import PendingCheckpoint
from barrier_tck.reference_impl.protocol.shared_files import SharedFiles
from barrier_tck.reference_impl.state.backend import SharingStateWriter, StateScope, StateWriter
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore, IncrementalHeapStore
from barrier_tck.reference_impl.state.heap_files import CapturedState, Change
from barrier_tck.reference_impl.state.heap_increments import IncrementTask, StoredSnapshot
from barrier_tck.reference_impl.state.heap_writing import WriteTask
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.metadata import checksum_of
from barrier_tck.reference_impl.storage.state_files import FileStateWriter
from barrier_tck.reference_impl.storage.whole_files import WholeFiles


class ForgetsToRegister(CoordinatorMachine):
    """IN-01: a new coordinator tidies up before it has registered the files of the checkpoints that it found."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Delete what nobody uses, as far as a registry knows that has seen no checkpoint."""
        commands = super().handle(event, now_ms)
        unused = SharedFiles(event.shared).take_unused() if isinstance(event, JobStarted) else ()
        return (DiscardShared(unused), *commands) if unused else commands


class CountsTheNewestOnly(CoordinatorMachine):
    """IN-13: a new coordinator counts the files of the newest checkpoint that it found, not of the older ones."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Make the registry of the newest one alone."""
        commands = super().handle(event, now_ms)
        if isinstance(event, JobStarted):
            self.shared = SharedFiles(event.shared, self.completed[-1:])
        return commands


class LeavesIncrementsUnpacked(HeapStateBackend):
    """IN-14: increments are written as they are, whatever compression is configured; full snapshots have it."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store whose increments are not compressed."""
        return _UnpackedIncrements(scope) if scope.incremental else super().new_store(scope)


class _UnpackedIncrements(IncrementalHeapStore):
    def write_task(
        self, checkpoint: CheckpointId, captured: list[CapturedState], writer: StateWriter
    ) -> WriteTask:
        if not isinstance(writer, SharingStateWriter):
            return super().write_task(checkpoint, captured, writer)
        version = self._version
        self._log.begin(version)
        planned = self._log.planned(version, checkpoint, writer)
        return _UnpackedIncrement(
            captured, self._slices, self._compression, lambda: self._release(version), planned
        )


class _UnpackedIncrement(IncrementTask):
    def _write_increment(self, base: StoredSnapshot, changes: list[Change]) -> tuple[StateHandle, ...]:
        self.compression = Compression.NONE
        return super()._write_increment(base, changes)


class _LateCounts(SharedFiles):
    """Counts users; when a checkpoint goes, its files are counted down later, by a deletion that takes its time."""

    def __init__(self, before: _LateCounts | None = None) -> None:
        super().__init__()
        self.late: list[str] = [] if before is None else before.late

    def release(self, checkpoint: CheckpointId) -> tuple[str, ...]:
        late = [path for path, users in self._users.items() if checkpoint in users and len(users) > 1]
        kept = super().release(checkpoint)
        for path in late:
            self._users[path][CheckpointId(-checkpoint)] = None
        self.late += late
        return kept

    def count_down(self) -> None:
        """Carry out the deletions that are late."""
        for path in self.late:
            users = self._users.get(path)
            if users:
                del users[min(users)]
        self.late.clear()

    def take_unused(self) -> tuple[str, ...]:
        for users in self._users.values():
            if all(checkpoint < 0 for checkpoint in users):
                users.clear()
        return super().take_unused()


class CountsDownAfterTheRestart(CoordinatorMachine):
    """IN-02: counts are made anew for a restart, and deletions from before it count down once more."""

    def _deploy(self) -> Commands:
        self.shared = fresh = _LateCounts(self.shared if isinstance(self.shared, _LateCounts) else None)
        for completed in self.completed:
            for part in completed.snapshots:
                fresh.use(completed.checkpoint, part)
        return super()._deploy()

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Carry out late deletions before the next checkpoint completes, and when a new attempt begins to run."""
        unused: tuple[str, ...] = ()
        if isinstance(self.shared, _LateCounts) and isinstance(event, MetadataWritten | SubtaskRunning):
            self.shared.count_down()
            unused = self.shared.take_unused() if isinstance(event, SubtaskRunning) else ()
        commands = super().handle(event, now_ms)
        return (DiscardShared(unused), *commands) if unused else commands


class DiscardsAllOfTheAborted(CoordinatorMachine):
    """IN-03: the end of an aborted checkpoint deletes every file that its parts name, also those that they reuse."""

    def _abort(self, pending: PendingCheckpoint, now_ms: float, cause: Cause, reason: str) -> Commands:
        commands = super()._abort(pending, now_ms, cause, reason)
        parts = [part for part in pending.parts.values() if part.handles()]
        return (*commands, *(DiscardSnapshot(part, part.handles()) for part in parts))


class CollectsWhatIsChosen(CoordinatorMachine):
    """IN-09: what a pending checkpoint may have chosen to reuse is deleted with the checkpoint that had it."""

    def is_built_on(self, checkpoint: CheckpointId) -> bool:
        """Look at completed checkpoints only."""
        return False

    def missing(self, checkpoint: CheckpointId, part: SubtaskSnapshot) -> tuple[StateHandle, ...]:
        """Trust every part."""
        return ()


class OwnsWhatItStartedFrom(FileCheckpointStorage):
    """IN-05: once a newer checkpoint is complete, the files of the savepoint that the job was started from go."""

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Ask nobody whose files they are."""
        super().discard_checkpoint(checkpoint, kept)
        directory = self._counters().started_from
        origin = self.load_savepoint(directory) if directory else None
        if origin is not None and origin.checkpoint == checkpoint:
            for handle in [handle for part in origin.snapshots for handle in part.handles()]:
                self._files.delete(self._path_of(handle))


class LeavesWhatItClaimed(FileCheckpointStorage):
    """IN-10: a savepoint that the job took over stays for ever, as if it were the user's."""

    def _remove_claimed(self, checkpoint: CheckpointId) -> None:
        """Delete nothing."""


class DeletesWhatItMayNeed(FileCheckpointStorage):
    """IN-11: a savepoint that the job took over goes when the next checkpoint begins, and not when it is complete."""

    def reserve(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> None:
        """Delete what is older than the checkpoint."""
        super().reserve(checkpoint, attempt)
        for claimed in self.claimed():
            if claimed < checkpoint and checkpoint > self._counters().started_above:
                self._remove_claimed(claimed)


class UsesFilesOfTheUser(FileCheckpointStorage):
    """IN-12: a state file that the savepoint has already, byte for byte, is not written again but referred to."""

    def writer(
        self,
        checkpoint: CheckpointId,
        attempt: AttemptNumber,
        subtask: SubtaskId,
        operator: str,
        savepoint: str = "",
    ) -> FileStateWriter:
        """Return a writer that knows the savepoint."""
        started_from = self._load_counters().started_from
        prefix = f"{self._job}/chk-{checkpoint}/"
        prefix += f"{safe_name(subtask.vertex)}-{subtask.index}-a{attempt}-{safe_name(operator)}-"
        if savepoint or not started_from:
            return super().writer(checkpoint, attempt, subtask, operator, savepoint)
        return _ReferringWriter(self._files, self._root, prefix, started_from)


class _ReferringWriter(FileStateWriter):
    """Writes what is not in a savepoint yet."""

    def __init__(self, files: WholeFiles, root: str, prefix: str, origin: str) -> None:
        super().__init__(files, root, prefix)
        self._origin = origin

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        content = b"".join(chunks)
        for path in self._files.list_files(self._origin):
            if self._files.read(path) == content:
                own = path.removeprefix(f"{self._origin}/")
                return StateHandle(
                    own, len(content), checksum_of(content), key_groups, savepoint=self._origin
                )
        return super().write(name, iter((content,)), key_groups)


class LeavesWhatWasUploaded(FileCheckpointStorage):
    """IN-07: the shared files of a checkpoint that failed stay: only a complete one has a list of its files."""

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Delete shared files of complete checkpoints only."""
        if checkpoint not in self.completed():
            kept = (*kept, *self.shared_files())
        super().discard_checkpoint(checkpoint, kept)


class _NamingWriter(FileStateWriter):
    """Writes each name once; whoever writes it again gets the file that is there."""

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        path = self._prefix + safe_name(name)
        if not self._files.exists(join(self._root, path)):
            return super().write(name, chunks, key_groups)
        content = self._files.read(join(self._root, path))
        return StateHandle(path, len(content), checksum_of(content), key_groups, shared=self._shared)


class KnowsFilesByName(FileCheckpointStorage):
    """IN-06: a shared file is known by its subtask and its name in the backend, and the first one wins."""

    def shared_writer(
        self, checkpoint: CheckpointId, attempt: AttemptNumber, subtask: SubtaskId, operator: str
    ) -> FileStateWriter:
        """Return a writer to whose files the attempt makes no difference."""
        place = f"{self._job}/shared/{safe_name(subtask.vertex)}-{subtask.index}-{safe_name(operator)}-"
        return _NamingWriter(self._files, self._root, place, shared=checkpoint)
