"""A subtask's dealings with copies of its state: where it reads, where it writes, what it reports (LOC-1 to LOC-6).

Without local recovery there is one copy of everything, in checkpoint storage, and nothing is reported.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.api import Operator, OperatorContext
from barrier_tck.reference_impl.protocol.messages import (
    ChannelState,
    CheckpointBarrier,
    LocalCopyReport,
    OperatorSnapshot,
    StateHandle,
    StateRestored,
    SubtaskFailed,
)
from barrier_tck.reference_impl.runtime.channel_snapshots import (
    OPERATOR,
    ChannelSnapshots,
    EncodedChannels,
)
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.crashes import crash_of
from barrier_tck.reference_impl.runtime.snapshot_in_progress import SnapshotInProgress
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime_errors import (
    CorruptStateError,
    RestoreError,
    RuntimeFailure,
    StorageError,
)
from barrier_tck.reference_impl.state.backend import StateReader, StateWriter
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.copying_writer import CopyingWriter, SharingCopyingWriter
from barrier_tck.reference_impl.storage.local_copies import (
    LocalScope,
    TaskLocalStateStore,
    require_one_file_system,
)
from barrier_tck.reference_impl.storage.noting_writer import NotingWriter
from barrier_tck.reference_impl.storage.restore import RestoreReader
from barrier_tck.reference_impl.storage.sharing_writer import SharingWriter

_BEGUN_MAX = 64
"""How many checkpoints are remembered as begun; many more than are ever in flight."""


class StateCopies:
    """The primary and, with local recovery on, the secondary copies of one subtask of one attempt."""

    def __init__(
        self,
        deployment: SubtaskDeployment,
        key_groups: KeyGroupRange,
        ports: SubtaskPorts,
        components: Components,
    ) -> None:
        """Look for the copy of what is restored; nothing of it is read yet."""
        self._deployment = deployment
        self._ports = ports
        self.local: TaskLocalStateStore | None = None
        """None without local recovery, or where the host has no place for copies."""
        if deployment.config.local_recovery and ports.local_files is not None:
            scope = LocalScope(deployment.job, deployment.subtask, deployment.attempt, key_groups, ports.host)
            self.local = TaskLocalStateStore(ports.local_files, scope)
        self._restoring: RestoreReader | None = None
        if deployment.restore is not None and deployment.restored_checkpoint is not None:
            self._restoring = RestoreReader(
                ports.storage, deployment.restore, deployment.restored_checkpoint, self.local
            )
        self._savepoints: dict[CheckpointId, str] = {}
        """Directory of each checkpoint of this attempt that is a savepoint."""
        self._reuse_from = 0
        """What the newest barrier says about shared files (``CheckpointBarrier.reuse_from``)."""
        self._written: list[StateHandle] = []
        """The files that the snapshot which was begun last has written, as they come."""
        self._begun: deque[CheckpointId] = deque(maxlen=_BEGUN_MAX)
        """The last checkpoints of this attempt whose snapshot was begun, as they came."""

    @property
    def reader(self) -> StateReader:
        """Return what reads state files, from the first copy that is good."""
        return self._restoring or self._ports.storage

    def writer(self, checkpoint: CheckpointId, operator: str) -> StateWriter:
        """Return what writes the state files of one operator for one checkpoint, to every copy.

        It is called in the synchronous part of the checkpoint's snapshot.
        """
        place, reuse_from = self._place(checkpoint, operator), self._reuse_from
        if not reuse_from:
            return self._private_writer(checkpoint, operator, self._written)
        private, shared = self._ports.storage.writer(*place), self._ports.storage.shared_writer(*place)
        noted = NotingWriter(private, self._written), NotingWriter(shared, self._written)
        primary = SharingWriter(*noted, reuse_from)
        return (
            primary if self.local is None else SharingCopyingWriter(self.local, checkpoint, operator, primary)
        )

    def _private_writer(
        self, checkpoint: CheckpointId, operator: str, written: list[StateHandle]
    ) -> StateWriter:
        place, savepoint = self._place(checkpoint, operator), self._savepoints.get(checkpoint, "")
        primary = NotingWriter(self._ports.storage.writer(*place, savepoint), written)
        if self.local is None:
            return primary
        compression = self._deployment.config.local_compression
        return CopyingWriter(self.local, checkpoint, operator, primary, compression)

    def _place(
        self, checkpoint: CheckpointId, operator: str
    ) -> tuple[CheckpointId, AttemptNumber, SubtaskId, str]:
        return checkpoint, self._deployment.attempt, self._deployment.subtask, operator

    def begin(self, barrier: CheckpointBarrier) -> list[StateHandle]:
        """Note where the files of the checkpoint that now begins belong: those of a savepoint are the user's.

        The writers of its snapshot are made before the next one begins. Return the list to which they add the files of
        its operators when these are written.
        """
        self._written = []
        self._begun.append(barrier.checkpoint)
        self._reuse_from = barrier.reuse_from
        if barrier.savepoint is not None:
            self._savepoints[barrier.checkpoint] = barrier.savepoint.directory
        return self._written

    def check(self, working: WorkingDirectory) -> None:
        """Raise JobUsageError if local copies would lie on another file system than the backend's files (LOC-10)."""
        if self.local is not None:
            require_one_file_system(self.local.files, working)

    def open(self, operator: Operator, context: OperatorContext, part: OperatorSnapshot | None) -> None:
        """Open an operator; raises RestoreError if a state file can be read from no copy (LOC-5)."""
        with self._reading(f"operator {operator.uid}"):
            operator.open(context, part)

    @contextlib.contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        try:
            yield
        except StorageError as error:
            unreadable = self._restoring.unreadable if self._restoring is not None else None
            if unreadable is None and not (self._restoring and isinstance(error, CorruptStateError)):
                raise  # a disk failed, and no file of the checkpoint is to blame
            where = f"checkpoint {self._deployment.restored_checkpoint}, {what}"
            raise RestoreError(f"{where}: {unreadable or error}") from error

    def restore_channels(self, channels: ChannelSnapshots) -> None:
        """Put records in flight back; raises RestoreError if their file can be read from no copy (LOC-5)."""
        restore = self._deployment.restore
        if restore is None or (restore.channels is None and not restore.rerouted):
            return
        with self._reading("records in flight"):
            channels.restore(restore, self.reader)

    def restored(self) -> None:
        """Tell which copy served each key group, and tidy up what earlier attempts left on the host (LOC-4)."""
        deployment, local = self._deployment, self.local
        restore, checkpoint = deployment.restore, deployment.restored_checkpoint
        files = self._restoring.files if self._restoring is not None else ()
        if deployment.config.local_recovery and files and checkpoint is not None:
            message = StateRestored(deployment.attempt, deployment.subtask, checkpoint, files)
            self._ports.coordinator.send(message)
        if local is not None:
            local.restore_ended(checkpoint, restore.attempt if restore is not None else None)

    def run(self, snapshot: SnapshotInProgress) -> tuple[OperatorSnapshot, ...]:
        """Do a snapshot's asynchronous part; once every primary is durable, the copied files are a copy (LOC-2)."""
        try:
            parts = snapshot.run()
        except Exception:
            self.drop(snapshot.checkpoint)
            raise
        self._part_ended(snapshot)
        return parts

    def channels_writer(self, checkpoint: CheckpointId) -> StateWriter:
        """Return what writes records in flight; made on the subtask's thread, which also cancels."""
        return self._private_writer(checkpoint, OPERATOR, [])  # it is one file

    def run_channels(
        self, snapshot: SnapshotInProgress, channels: EncodedChannels, writer: StateWriter
    ) -> ChannelState:
        """Store the channel state of a snapshot, as one more file of every copy (LOC-11)."""
        try:
            state = snapshot.run_channels(lambda: channels.write(writer))
        except Exception:
            self.drop(snapshot.checkpoint)
            raise
        self._part_ended(snapshot)
        return state

    def no_channels(self, snapshot: SnapshotInProgress) -> None:
        """No record was in flight."""
        self._part_ended(snapshot)

    def _part_ended(self, snapshot: SnapshotInProgress) -> None:
        if snapshot.part_ended() and self.local is not None:
            self.local.seal(snapshot.checkpoint)

    def cancel(self, snapshot: SnapshotInProgress) -> None:
        """Cancel a snapshot, and drop whatever exists of its copy."""
        snapshot.cancel()
        self.drop(snapshot.checkpoint)

    def report(self, checkpoint: CheckpointId) -> LocalCopyReport | None:
        """Return the report on the secondary copy; None without local recovery."""
        return None if self.local is None else self.local.report(checkpoint)

    def completed(self, checkpoint: CheckpointId) -> None:
        """A checkpoint is complete: older local copies go (LOC-3)."""
        if self.local is not None:
            self.local.confirm(checkpoint)

    def drop(self, checkpoint: CheckpointId) -> CheckpointId | None:
        """A checkpoint failed: its local copy goes.

        Return the newest checkpoint that was begun here if that is newer and this one never was; else None, also if
        it is too old to be remembered.
        """
        if self.local is not None:
            self.local.drop(checkpoint)
        if checkpoint in self._begun or (len(self._begun) == _BEGUN_MAX and checkpoint < min(self._begun)):
            return None
        newest = max(self._begun, default=checkpoint)
        return newest if newest > checkpoint else None

    def finish(self) -> None:
        """The job is over: all local copies go."""
        if self.local is not None:
            self.local.finish()


def failure_of(deployment: SubtaskDeployment, error: Exception) -> SubtaskFailed:
    """Return what a subtask that cannot go on tells the coordinator; names a checkpoint that it could not restore."""
    unreadable = deployment.restored_checkpoint if isinstance(error, RestoreError) else None
    reason = str(error) if isinstance(error, RuntimeFailure) else f"{type(error).__name__}: {error}"
    return SubtaskFailed(deployment.attempt, deployment.subtask, reason, unreadable, crash_of(error))
