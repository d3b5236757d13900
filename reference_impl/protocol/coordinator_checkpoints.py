"""The checkpoints of a job: the half of the coordinator that triggers, completes, aborts and subsumes them.

``coordinator`` has the other half, the life of the job and its attempts, and the table that joins them.

Savepoints (COO-5) pass through the same steps as checkpoints, with these differences. A user asks for one, so it waits
for no interval, no pause and no slot. It is subsumed by nothing, and its failure does not count among those that are
tolerated. Its files belong to the user. What the job keeps is its metadata, because sinks commit for it too: the
savepoint is what a recovery starts from until a newer checkpoint is complete.

Where the configuration names the initiators of snapshots (CHL-1), markers of two snapshots may cross each other, and
the older one is given up. A newer checkpoint subsumes an older one, but nothing replaces a savepoint. So there a
savepoint waits until nothing is pending, and nothing else is triggered until it has ended.

A subtask that has finished has no part of its own in later checkpoints: they are complete without it, and only say that
it had finished and how far its source was read (BAR-6). It may finish while a checkpoint is under way that it has not
acknowledged. Then the checkpoint waits for it no longer; those behind it, which may wait for a barrier that nobody
sends any more, report that their channels have ended, and are triggered.

A job is stopped with a savepoint that is taken alone: from the request on nothing else is triggered, and it waits until
nothing is pending. No subtask processes anything behind its barrier. When its transactions are committed, the job has
stopped. If it fails, the job goes on.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.admission import Admit, CheckpointAdmission, WaitUntil
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_commands import (
    CoordinatorCommand,
    DiscardCheckpoint,
    DiscardShared,
    DiscardSnapshot,
    NotifyAborted,
    NotifyComplete,
    RefuseSavepoint,
    SendLateTrigger,
    SendTrigger,
    SetTimer,
    WriteMetadata,
)
from barrier_tck.reference_impl.protocol.coordinator_events import (
    CheckpointExpired,
    CoordinatorEvent,
    MetadataFailed,
    MetadataWritten,
    SavepointRequested,
    TriggerDue,
)
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    ChannelsClosed,
    CompletedCheckpoint,
    DeclineCheckpoint,
    Savepoint,
    StateHandle,
    SubtaskFinished,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.protocol.pending import AcknowledgeResult, PendingCheckpoint
from barrier_tck.reference_impl.protocol.shared_files import SharedFiles
from barrier_tck.reference_impl.protocol.table import TableMachine

Commands = tuple[CoordinatorCommand, ...]

ABORTED_MAX = 64
"""How many of an attempt's latest aborted checkpoints are discarded once more after it. Every subtask heard of older
ones long ago.
"""


class JobCheckpoints(TableMachine[JobState, CoordinatorCommand]):
    """Coordinates the checkpoints of one job."""

    def __init__(self, config: JobConfig, subtasks: Sequence[SubtaskId]) -> None:
        super().__init__("the coordinator", JobState.CREATED)
        self.config = config
        self.attempt = AttemptNumber(0)
        self.pending: dict[CheckpointId, PendingCheckpoint] = {}
        self.completed: list[CompletedCheckpoint] = []
        """Those that a recovery may start from, oldest first."""
        self.shared = SharedFiles()
        self._subtasks = tuple(subtasks)
        self._admission = CheckpointAdmission(config.checkpoints) if config.checkpoints else None
        self._closed: dict[SubtaskId, None] = {}
        """The subtasks of this attempt that no barrier reaches any more, and that have not finished."""
        self._finished: dict[SubtaskId, SubtaskSnapshot] = {}
        """The subtasks of this attempt that have finished, each with its part of all later checkpoints."""
        self._newest_acknowledged: dict[SubtaskId, CheckpointId] = {}
        """Subtask -> the newest checkpoint that it has acknowledged in this attempt."""
        self._unreadable: dict[CheckpointId, str] = {}
        """Completed checkpoints that could be restored from no copy, each with the reason."""
        self._last_checkpoint = 0
        self._last_trigger_ms: float | None = None
        self._last_end_ms: float | None = None
        self._failures_in_row = 0
        self._final: CheckpointId | None = None
        """The checkpoint after which the job is over, once it is complete."""
        self._stop_wanted: Savepoint | None = None
        """The savepoint with which the job is to be stopped, as long as it is not complete."""
        self._waiting: list[Savepoint] = []
        """The savepoints that are to be taken alone, one after the other, and are not triggered yet."""
        self._stopped_with: Savepoint | None = None
        """The complete savepoint with which the job is being stopped."""
        self._aborted: list[CheckpointId] = []
        """The latest checkpoints that this attempt aborted. A subtask that dies before it hears of an abort leaves
        its files.
        """
        self._abandoned: list[CheckpointId] = []
        """Checkpoints that failed attempts aborted. A process of such an attempt may write on until it learns of its
        end, so they are discarded once more when a later checkpoint completes."""
        self._superseded: tuple[CheckpointId, ...] = ()
        """Complete ones from before the savepoint that the job was started from, until a newer one is complete."""

    # --- what the other half decides ------------------------------------------------------------------------

    @abstractmethod
    def _input_is_consumed(self) -> bool:
        """Return whether every terminal subtask has consumed its input."""

    @abstractmethod
    def _stop(self, now_ms: float, cause: Cause, reason: str, failed: SubtaskId | None = None) -> Commands:
        """End the attempt, because it failed."""

    @abstractmethod
    def _finish(self) -> Commands:
        """End the job: all that it has to commit is committed."""

    @abstractmethod
    def _all_is_committed(self) -> bool:
        """Return whether every terminal subtask has committed the last checkpoint, or had finished before it."""

    @abstractmethod
    def _restart_when_quiet(self, now_ms: float) -> Commands:
        """Plan the next attempt, if nothing of the old one is left."""

    # --- triggers -------------------------------------------------------------------------------------------

    def _after_progress(self, now_ms: float) -> Commands:
        """Any progress while RUNNING may make the next checkpoint due; after all input, the last one (BAR-4)."""
        final = self._input_is_consumed()
        if self._admission is None:
            return self._finish() if final else ()
        if self._stop_wanted is not None:
            return () if self.pending else self._trigger(now_ms, savepoint=self._stop_wanted)
        if self._waiting and not self.pending:
            return self._trigger(now_ms, savepoint=self._waiting.pop(0))
        if self._waiting or self._is_alone():
            return ()
        in_flight = [pending for pending in self.pending.values() if final or pending.savepoint is None]
        decision = self._admission.decide(
            now_ms, len(in_flight), self._last_trigger_ms, self._last_end_ms, final
        )
        match decision:
            case Admit():
                self._last_trigger_ms = now_ms
                return (*self._trigger(now_ms, final), *self._after_progress(now_ms))
            case WaitUntil(at_ms=at_ms):
                return (SetTimer(TriggerDue(), at_ms),)
        return ()

    def _markers_may_cross(self) -> bool:
        """Return whether different subtasks may initiate two snapshots."""
        return self.config.checkpoints is not None and bool(self.config.checkpoints.initiators)

    def _is_alone(self) -> bool:
        """Return whether a savepoint is under way beside which nothing may be triggered."""
        return self._markers_may_cross() and any(
            pending.savepoint is not None for pending in self.pending.values()
        )

    def _trigger(self, now_ms: float, final: bool = False, savepoint: Savepoint | None = None) -> Commands:
        assert self.config.checkpoints is not None
        self._last_checkpoint += 1
        checkpoint = CheckpointId(self._last_checkpoint)
        base = self._reuse_from(checkpoint, savepoint)
        self.pending[checkpoint] = pending = PendingCheckpoint(
            checkpoint,
            self.attempt,
            now_ms,
            self._subtasks,
            final,
            savepoint,
            tuple(self._finished.values()),
            base,
        )
        return (
            SendTrigger(self.attempt, checkpoint, int(now_ms), final, savepoint, tuple(self._closed), base),
            SetTimer(CheckpointExpired(checkpoint), now_ms + self.config.checkpoints.timeout_ms),
            *self._complete_if_whole(pending, now_ms),
        )

    def _reuse_from(self, checkpoint: CheckpointId, savepoint: Savepoint | None) -> int:
        """Return the oldest checkpoint whose files a new one may use; savepoints are full and use none (SNP-5)."""
        assert self.config.checkpoints is not None
        if savepoint is not None or not self.config.checkpoints.incremental:
            return 0
        return min((one.checkpoint for one in self.completed if one.savepoint is None), default=checkpoint)

    # --- subtasks that finish -------------------------------------------------------------------------------

    def on_early_closed(self, event: ChannelsClosed, now_ms: float) -> Commands:
        """No barrier will reach a subtask of an attempt that does not run yet."""
        self._closed[event.subtask] = None
        return ()

    def on_closed(self, event: ChannelsClosed, now_ms: float) -> Commands:
        """No barrier reaches a subtask any more: it is triggered, for checkpoints that are under way, too (BAR-6)."""
        self._closed[event.subtask] = None
        return tuple(
            SendLateTrigger(
                event.subtask,
                pending.checkpoint,
                int(pending.triggered_at_ms),
                pending.savepoint,
                pending.reuse_from,
            )
            for pending in self.pending.values()
            if event.subtask in pending.awaiting
        )

    def on_early_finished(self, event: SubtaskFinished, now_ms: float) -> Commands:
        """A subtask that had finished in the checkpoint that was restored has passed the end on."""
        self._closed.pop(event.subtask, None)
        self._finished[event.subtask] = event.snapshot
        return ()

    def on_finished(self, event: SubtaskFinished, now_ms: float) -> Commands:
        """A subtask has finished: checkpoints are complete without it, and those that wait for it wait no longer."""
        self.on_early_finished(event, now_ms)
        commands: list[CoordinatorCommand] = []
        for pending in self.pending.values():
            if not self._was_passed_over(pending, event.subtask):
                pending.finish(event.snapshot)
                commands += self._complete_if_whole(pending, now_ms)
        return tuple(commands)

    def _was_passed_over(self, pending: PendingCheckpoint, subtask: SubtaskId) -> bool:
        """Snapshots are taken in the order of ids, so who acknowledged a newer checkpoint has none of an older one.

        Then its end lies behind the cut of the older one, which the snapshots of others may already belong to. So that
        checkpoint does not become complete; the newer one subsumes it.
        """
        newest = self._newest_acknowledged.get(subtask)
        return newest is not None and pending.checkpoint < newest and subtask in pending.awaiting

    def _complete_if_whole(self, pending: PendingCheckpoint, now_ms: float) -> Commands:
        if pending.completing or not pending.fully_acknowledged:
            return ()
        return self._complete_when_acknowledged(pending, now_ms)

    def on_trigger_due(self, event: TriggerDue, now_ms: float) -> Commands:
        """The next checkpoint may be due."""
        return self._after_progress(now_ms)

    def on_savepoint(self, event: SavepointRequested, now_ms: float) -> Commands:
        """A user asks for a savepoint (COO-5)."""
        wanted = event.savepoint
        if self._admission is None:
            return self._refused(wanted, "the job takes no checkpoints, so nothing says when one has failed")
        if self._stop_wanted is not None or any(pending.final for pending in self.pending.values()):
            return self._refused(wanted, "the job is about to end")
        if not wanted.stop and not self._markers_may_cross():
            return self._trigger(now_ms, savepoint=wanted)
        if wanted.stop:
            self._stop_wanted = wanted
        else:
            self._waiting.append(wanted)
        return self._after_progress(now_ms)

    def not_now(self, event: SavepointRequested, now_ms: float) -> Commands:
        """A user asks for a savepoint when none can be taken."""
        return self._refused(event.savepoint, f"the job is {self.state.value}; ask again when it is running")

    def _refused(self, savepoint: Savepoint, reason: str) -> Commands:
        return (RefuseSavepoint(savepoint, reason),)

    def _forget_savepoints(self, reason: str) -> Commands:
        """Refuse the savepoints that were asked for and not triggered: the attempt, or the job, has ended."""
        stop, self._stop_wanted = self._stop_wanted, None
        triggered = any(pending.savepoint == stop for pending in self.pending.values())
        wanted = [*self._waiting, *([] if stop is None or triggered else [stop])]
        self._waiting = []
        return tuple(command for savepoint in wanted for command in self._refused(savepoint, reason))

    # --- acknowledgements -----------------------------------------------------------------------------------

    def on_acknowledge(self, event: AcknowledgeCheckpoint, now_ms: float) -> Commands:
        """Take an acknowledgement, which may be late, unknown, or one of two."""
        pending = self.pending.get(event.checkpoint)
        result = self._classify(event, pending)
        if result is not AcknowledgeResult.UNKNOWN and event.attempt == self.attempt:
            newest = max(event.checkpoint, self._newest_acknowledged.get(event.subtask, event.checkpoint))
            self._newest_acknowledged[event.subtask] = newest
        if result in (AcknowledgeResult.UNKNOWN, AcknowledgeResult.LATE):
            return self._discard_late(event.checkpoint, event.snapshot)
        if pending is None or result is AcknowledgeResult.DUPLICATE:
            return ()
        missing = self._missing(event.checkpoint, event.snapshot)
        if missing:
            detail = f"{event.subtask} uses {missing[0].path} again, which no checkpoint has"
            return self._fail_checkpoint(pending, now_ms, Cause.DECLINED, detail)
        self.shared.use(event.checkpoint, event.snapshot)
        if not pending.fully_acknowledged:
            return ()
        return self._complete_when_acknowledged(pending, now_ms)

    def _missing(self, checkpoint: CheckpointId, part: SubtaskSnapshot) -> tuple[StateHandle, ...]:
        """A part that reuses files that no checkpoint has may lack them at any time: its checkpoint fails (SNP-5)."""
        return self.shared.unknown(checkpoint, part)

    def _classify(self, event: AcknowledgeCheckpoint, pending: PendingCheckpoint | None) -> AcknowledgeResult:
        """An acknowledgement is accepted, a duplicate, unknown, or late; what the last two wrote is removed (COO-3).

        A job that starts from a savepoint keeps the complete checkpoints from before it for a while. It does not know
        their parts, so any acknowledgement of them counts as a duplicate; their files go together later.
        """
        if event.checkpoint in self._superseded:
            return AcknowledgeResult.DUPLICATE
        for completed in self.completed:
            if completed.checkpoint == event.checkpoint:
                # A repeated acknowledgement names files in use; any other names files that no checkpoint uses.
                repeated = completed.snapshot_of(event.subtask) == event.snapshot
                return AcknowledgeResult.DUPLICATE if repeated else AcknowledgeResult.UNKNOWN
        if pending is None or pending.attempt != event.attempt:
            known = event.checkpoint <= self._last_checkpoint
            return AcknowledgeResult.LATE if known else AcknowledgeResult.UNKNOWN
        return pending.acknowledge(event.subtask, event.snapshot)

    def _complete_when_acknowledged(self, pending: PendingCheckpoint, now_ms: float) -> Commands:
        """Start the one atomic step that completes a fully acknowledged checkpoint (COO-1)."""
        pending.completing = True
        return (WriteMetadata(pending.complete(now_ms)),)

    def _discard_late(self, checkpoint: CheckpointId, snapshot: SubtaskSnapshot) -> Commands:
        """Remove what a late or unknown acknowledgement wrote and no checkpoint uses: it has no other owner (COO-3)."""
        files = self.shared.unused(checkpoint, snapshot)
        return (DiscardSnapshot(snapshot, files),) if files else ()

    def _discard(self, checkpoint: CheckpointId) -> DiscardCheckpoint:
        """Delete a checkpoint, except for shared files that were written for it and that others use (SNP-5)."""
        return DiscardCheckpoint(checkpoint, self.shared.release(checkpoint))

    # --- failures -------------------------------------------------------------------------------------------

    def on_decline(self, event: DeclineCheckpoint, now_ms: float) -> Commands:
        """A subtask could not take its part (COO-2)."""
        pending = self.pending.get(event.checkpoint)
        if pending is None or pending.completing:
            return ()
        detail = f"{event.subtask} declined: {event.reason}"
        return self._fail_checkpoint(pending, now_ms, Cause.DECLINED, detail)

    def on_expired(self, event: CheckpointExpired, now_ms: float) -> Commands:
        """The time of a checkpoint is over (COO-2)."""
        pending = self.pending.get(event.checkpoint)
        if pending is None or pending.completing:
            return ()
        return self._fail_checkpoint(pending, now_ms, Cause.EXPIRED, "expired before completing")

    def _fail_checkpoint(
        self, pending: PendingCheckpoint, now_ms: float, cause: Cause, reason: str
    ) -> Commands:
        assert self.config.checkpoints is not None
        commands = self._abort(pending, now_ms, cause, reason)
        if pending.savepoint is not None:
            self._stop_wanted = None if pending.savepoint.stop else self._stop_wanted
            return (*commands, *self._after_progress(now_ms))
        self._failures_in_row += 1
        if self._failures_in_row > self.config.checkpoints.tolerated_failures:
            tolerated = self.config.checkpoints.tolerated_failures
            why = f"checkpoint {pending.checkpoint} failed ({reason}) and {tolerated} failures in a row are tolerated"
            return (*commands, *self._stop(now_ms, Cause.CHECKPOINTS_FAILED, why))
        return (*commands, *self._after_progress(now_ms))

    def _abort(self, pending: PendingCheckpoint, now_ms: float, cause: Cause, reason: str) -> Commands:
        del self.pending[pending.checkpoint]
        self._aborted = [*self._aborted, pending.checkpoint][-ABORTED_MAX:]
        self._note_end(pending, now_ms)
        return (
            NotifyAborted(pending.attempt, pending.checkpoint, cause, reason),
            self._discard(pending.checkpoint),
        )

    def _abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Abort every pending checkpoint of a failed attempt: the missing acknowledgements will never come.

        ``failed`` is the subtask that failed, where one is known.
        """
        doomed = [pending for pending in self.pending.values() if not pending.completing]
        return tuple(
            command
            for pending in doomed
            for command in self._abort(pending, now_ms, Cause.ATTEMPT_FAILED, reason)
        )

    # --- completion -----------------------------------------------------------------------------------------

    def on_written(self, event: MetadataWritten, now_ms: float) -> Commands:
        """A checkpoint became durable: it is complete (COO-1)."""
        pending = self._whose_metadata(event, event.completed.checkpoint)
        notify = NotifyComplete(self.attempt, pending.checkpoint)
        dropped = self._completed(event.completed, now_ms)
        if not pending.ends_the_job:
            return (notify, *dropped, *self._after_progress(now_ms))
        self._final, self._stopped_with = pending.checkpoint, pending.savepoint
        self.state = JobState.FINISHING
        if pending.savepoint is not None:
            self._stop_wanted = None
        refused = self._forget_savepoints("the job has ended")
        return (notify, *dropped, *refused, *(self._finish() if self._all_is_committed() else ()))

    def on_written_while_stopping(self, event: MetadataWritten, now_ms: float) -> Commands:
        """A checkpoint became durable after its attempt had failed."""
        # No subtask is notified in an attempt that is over: the next one commits what it restores.
        self._whose_metadata(event, event.completed.checkpoint)
        return (*self._completed(event.completed, now_ms), *self._restart_when_quiet(now_ms))

    def on_metadata_failed(self, event: MetadataFailed, now_ms: float) -> Commands:
        """A checkpoint could not be made durable (COO-2)."""
        pending = self._whose_metadata(event, event.checkpoint)
        pending.completing = False
        detail = f"metadata could not be written: {event.reason}"
        return self._fail_checkpoint(pending, now_ms, Cause.STORAGE_FAILED, detail)

    def on_metadata_failed_while_stopping(self, event: MetadataFailed, now_ms: float) -> Commands:
        """A checkpoint could not be made durable, and its attempt had failed, too."""
        pending = self._whose_metadata(event, event.checkpoint)
        aborted = self._abort(pending, now_ms, Cause.STORAGE_FAILED, event.reason)
        return (*aborted, *self._restart_when_quiet(now_ms))

    def _whose_metadata(self, event: CoordinatorEvent, checkpoint: CheckpointId) -> PendingCheckpoint:
        """The outcome of a metadata write must belong to a checkpoint that is being completed."""
        pending = self.pending.get(checkpoint)
        if pending is None or not pending.completing:
            raise self.illegal(event, f"the metadata of checkpoint {checkpoint} is not being written")
        return pending

    def _completed(self, completed: CompletedCheckpoint, now_ms: float) -> Commands:
        """Keep a checkpoint that became durable, and drop what it makes superfluous."""
        pending = self.pending.pop(completed.checkpoint)
        self._note_end(pending, now_ms)
        if pending.savepoint is None:
            self._failures_in_row = 0
        self.completed.append(completed)
        return self._subsume(completed.checkpoint, now_ms)

    def _note_end(self, pending: PendingCheckpoint, now_ms: float) -> None:
        """The pause before the next checkpoint is counted from the end of the last one; savepoints are beside that."""
        if pending.savepoint is None:
            self._last_end_ms = now_ms

    def _subsume(self, checkpoint: CheckpointId, now_ms: float) -> Commands:
        """Drop older pending checkpoints and the completed ones beyond retention (COO-4)."""
        commands: list[CoordinatorCommand] = [self._discard(abandoned) for abandoned in self._abandoned]
        self._abandoned.clear()
        self._superseded = ()
        # Now that a newer one is complete, those that no job can read are of no use.
        for unreadable in [c for c in self.completed if c.checkpoint in self._unreadable]:
            self.completed.remove(unreadable)
            del self._unreadable[unreadable.checkpoint]
            commands.append(self._discard(unreadable.checkpoint))
        for older in [p for n, p in self.pending.items() if n < checkpoint and self._is_subsumed(p)]:
            detail = f"subsumed by checkpoint {checkpoint}"
            commands.extend(self._abort(older, now_ms, Cause.SUBSUMED, detail))
        self.completed.sort(key=lambda completed: completed.checkpoint)
        for superfluous in self._beyond_retention():
            self.completed.remove(superfluous)
            commands.append(self._discard(superfluous.checkpoint))
        unused = self.shared.take_unused()
        return (*commands, DiscardShared(unused)) if unused else tuple(commands)

    def _is_subsumed(self, pending: PendingCheckpoint) -> bool:
        """A newer complete checkpoint ends a pending one, unless its metadata is on its way, or it is a savepoint."""
        return pending.savepoint is None and not pending.completing

    def _beyond_retention(self) -> list[CompletedCheckpoint]:
        """Return the checkpoints beyond the number to keep, and the savepoints that are older than a checkpoint.

        Of a savepoint only the job's own note of it goes; the savepoint is the user's.
        """
        assert self.config.checkpoints is not None
        ordinary = [completed for completed in self.completed if completed.savepoint is None]
        newest = max((completed.checkpoint for completed in ordinary), default=0)
        overtaken = [c for c in self.completed if c.savepoint is not None and c.checkpoint < newest]
        beyond = ordinary[: -self.config.checkpoints.retained]
        return [*(one for one in beyond if not self._is_built_on(one.checkpoint)), *overtaken]

    def _is_built_on(self, checkpoint: CheckpointId) -> bool:
        """Return whether a pending checkpoint may use files of a completed one, so that it has to stay (SNP-5, IN-09).

        Who takes part in the pending one may have decided so long ago, and tells only when it acknowledges.
        """
        return any(0 < pending.reuse_from <= checkpoint for pending in self.pending.values())

    CHECKPOINT_RULES: ClassVar = (
        _classify,
        _after_progress,
        on_closed,
        on_finished,
        _was_passed_over,
        _is_subsumed,
        _beyond_retention,
        _reuse_from,
        _missing,
        _is_built_on,
        _whose_metadata,
    )
