"""Planted bugs of savepoints, of stops, and of sinks that savepoints overtake."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane, Operator
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.sinks import FileSink, TransactionalFileSink
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_checkpoints import Commands
from barrier_tck.reference_impl.protocol.coordinator_commands import NotifyComplete
from barrier_tck.reference_impl.protocol.coordinator_events import JobStarted, MetadataWritten
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    CompletedCheckpoint,
    NotifyCheckpointAborted,
    TransactionsCommitted,
)
from barrier_tck.reference_impl.protocol.pending import PendingCheckpoint
from barrier_tck.reference_impl.protocol.subtask import SubtaskCommands, SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import HoldInput
from barrier_tck.reference_impl.protocol.subtask_events import BarrierAnnounced, SubtaskEvent
from barrier_tck.reference_impl.protocol.subtask_states import SubtaskState
from barrier_tck.reference_impl.protocol.transactions import TransactionHandle
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.state_files import FileStateWriter


class GoesOnBehindTheLastBarrier(SubtaskMachine):
    """AL-04: in at-least-once mode nobody stops at a terminal barrier, as nobody waits at any other."""

    def stops_at(self, barrier: CheckpointBarrier) -> bool:
        """Stop in the other mode only."""
        return super().stops_at(barrier) and self.mode is not CheckpointMode.AT_LEAST_ONCE


class StopsSourcesOnly(SubtaskMachine):
    """AL-14: only a source stops at a terminal barrier; any other subtask reads on after it has forwarded it."""

    def stops_at(self, barrier: CheckpointBarrier) -> bool:
        """Stop a source."""
        return super().stops_at(barrier) and self.aligner is None


class EmitsOneMoreBatch(SubtaskDriver):
    """AL-14: and a source stops only when it has emitted the batch that it was about to read."""

    def hold_input(self, held: bool) -> None:
        """Emit another batch, then stop."""
        if held and self.reader is not None and not self.exhausted:
            self.run_chain(0, self.reader.poll())
        super().hold_input(held)


class RecoversFromCheckpointsOnly(CoordinatorMachine):
    """CO-05: sinks commit for a savepoint, and a recovery goes back to the checkpoint before it."""

    def _completed(self, completed: CompletedCheckpoint, now_ms: float) -> Commands:
        commands = super()._completed(completed, now_ms)
        self.completed = [kept for kept in self.completed if kept.savepoint is None]
        return commands


class TakesAnyForTheLast(CoordinatorMachine):
    """CO-09: the checkpoint that was in flight when the stop was asked for is taken for the last savepoint."""

    def on_written(self, event: MetadataWritten, now_ms: float) -> Commands:
        """End the job with whatever completed."""
        wanted = self._stop_wanted
        commands = super().on_written(event, now_ms)
        if wanted is None or event.completed.savepoint is not None:
            return commands
        self.pending.clear()
        self._final, self._stopped_with, self._stop_wanted = event.completed.checkpoint, wanted, None
        self.state = JobState.FINISHING
        return tuple(command for command in commands if isinstance(command, NotifyComplete))


class SubsumesSavepoints(CoordinatorMachine):
    """SV-01: a newer checkpoint ends a pending savepoint like any older checkpoint."""

    def is_subsumed(self, pending: PendingCheckpoint) -> bool:
        """Make no difference."""
        return not pending.completing


class DeletesSavepoints(FileCheckpointStorage):
    """SV-02: retention deletes a savepoint with all its files when a newer checkpoint completes."""

    def discard_checkpoint(self, checkpoint: CheckpointId, kept: Collection[str] = ()) -> None:
        """Delete its directory, too."""
        savepoint = self._savepoint_of(checkpoint)
        super().discard_checkpoint(checkpoint, kept)
        if savepoint is not None:
            self._files.delete_tree(savepoint.directory)


class SharesFiles(FileCheckpointStorage):
    """SV-03: the state files of a savepoint lie among those of the checkpoints, and only its metadata is apart."""

    def writer(
        self,
        checkpoint: CheckpointId,
        attempt: AttemptNumber,
        subtask: SubtaskId,
        operator: str,
        savepoint: str = "",
    ) -> FileStateWriter:
        """Return a writer that knows no savepoints."""
        return super().writer(checkpoint, attempt, subtask, operator)


class ReadsOnWhenItShouldCommit(SubtaskDriver):
    """SV-04: an attempt that has only the commits of a stopped job to finish reads its input on meanwhile."""

    def __init__(self, deployment: SubtaskDeployment, *others: Any) -> None:
        """Take the job for one that runs."""
        super().__init__(replace(deployment, stopped=False), *others)


class MakesNoRoom(SubtaskDriver):
    """SV-05: a subtask that stops at a terminal barrier takes in no more than it has room for."""

    def hold_input(self, held: bool) -> None:
        """Hold a source; leave the input buffers as they are."""
        before, self._exhausted_before = self._exhausted_before, self.exhausted
        self.exhausted = held or before


class CommitsExactlyThisOne(TransactionalFileSink):
    """SI-01: a notification commits the transaction of its own checkpoint; an earlier one is forgotten."""

    def checkpoint_completed(self, checkpoint: CheckpointId) -> bool:
        """Commit exactly that, and forget what came before."""
        self.commit([prepared for prepared in self._prepared if prepared.checkpoint == checkpoint])
        self._prepared = [prepared for prepared in self._prepared if prepared.checkpoint > checkpoint]
        return True


class LeavesWhatItDoesNotKnow(TransactionalFileSink):
    """SI-03: a restored sink removes no transaction of an older attempt that its own state does not list."""

    def discard_leftovers(self, kept: Sequence[TransactionHandle]) -> None:
        """Leave everything."""


def commits_exactly_this_one(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """SI-01."""
    return CommitsExactlyThisOne(spec, plane) if isinstance(spec, FileSink) else spec.build(plane)


def leaves_what_it_does_not_know(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """SI-03."""
    return LeavesWhatItDoesNotKnow(spec, plane) if isinstance(spec, FileSink) else spec.build(plane)


class ReleasesAtAnyAbort(SubtaskMachine):
    """SV-06: a subtask that has stopped goes on when it learns that any checkpoint was aborted."""

    def handle(self, event: SubtaskEvent) -> SubtaskCommands:
        """Take the aborted checkpoint for the last savepoint."""
        if isinstance(event, NotifyCheckpointAborted) and self._held_by is not None:
            self._held_by = event.checkpoint
        return super().handle(event)


class WaitsForTheNotice(SubtaskMachine):
    """SV-07: a subtask that has stopped goes on at the coordinator's word only; a newer barrier is an error there."""

    def is_outlived(self, checkpoint: CheckpointId) -> bool:
        """Believe no barrier."""
        return False

    def _on_announced(self, event: BarrierAnnounced) -> SubtaskCommands:
        held = self.state is SubtaskState.HELD
        commands = super()._on_announced(event)
        if held and self.state is not SubtaskState.HELD:
            raise self.illegal(event, "the subtask has stopped")
        return commands


class ForgetsThatItStopped(SubtaskMachine):
    """SV-08: a subtask that has stopped reads on when it gives an older checkpoint up."""

    def handle(self, event: SubtaskEvent) -> SubtaskCommands:
        """Leave it to the recorder which channels are held back."""
        commands = self._take(event)
        if any(isinstance(command, HoldInput) for command in commands):
            self.blocked[:] = [True] * len(self.blocked)
        return commands


class ForgetsTheStop(CoordinatorMachine):
    """SV-09: when a savepoint fails, a stop that was asked for meanwhile is forgotten with it."""

    def _abort(self, pending: PendingCheckpoint, now_ms: float, cause: Cause, reason: str) -> Commands:
        if pending.savepoint is not None:
            self._stop_wanted = None
        return super()._abort(pending, now_ms, cause, reason)


class AnyCommitIsTheLast(CoordinatorMachine):
    """CO-12: the job is over when every sink has committed something, be it for an earlier checkpoint."""

    def _on_commit(self, event: TransactionsCommitted, now_ms: float) -> Commands:
        assert self._final is not None
        newest = CheckpointId(max(event.checkpoint, self._final))
        return super()._on_commit(msgspec.structs.replace(event, checkpoint=newest), now_ms)


class RemovesWhatIsSuperseded(CoordinatorMachine):
    """SV-12: what is repeated about a complete checkpoint from before the savepoint counts as late."""

    def _on_started(self, event: JobStarted, now_ms: float) -> Commands:
        commands = super()._on_started(event, now_ms)
        self._superseded = ()
        return commands


class LastBesideASavepoint(CoordinatorMachine):
    """CO-13: when all input is consumed, the last checkpoint is taken though a savepoint is still in flight."""

    def _after_progress(self, now_ms: float) -> Commands:
        """Count no savepoint."""
        beside = {number: one for number, one in self.pending.items() if one.savepoint is not None}
        self.pending = {number: one for number, one in self.pending.items() if number not in beside}
        commands = super()._after_progress(now_ms)
        self.pending = {**beside, **self.pending}
        return commands


class KeepsWhatHeldIt(SubtaskMachine):
    """SV-10: a subtask that was released remembers what had held it; each newer barrier releases its channels again."""

    def _release(self) -> SubtaskCommands:
        """Remember."""
        held_by = self._held_by
        commands = super()._release()
        self._held_by = held_by
        return commands


class ReadsAnEndedSourceAgain(SubtaskDriver):
    """SV-11: a source that had read everything when it was stopped is read again when the savepoint fails."""

    def hold_input(self, held: bool) -> None:
        """Forget that it had come to its end."""
        super().hold_input(held)
        if not held and self.is_source:
            self.exhausted = self.deployment.stopped
