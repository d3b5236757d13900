"""The coordinator: the life of a job and of its checkpoints, events in, commands out.

Theory of operation. Two machines are coupled here. The *job* goes

    CREATED -> DEPLOYING -> RUNNING -> FINISHING -> FINISHED
                  ^  any of these, on a failure -> STOPPING -> BACKING_OFF -> DEPLOYING
                                                           or -> FAILED

and ``TABLE`` says what follows from each event in each state. Each *checkpoint* of an attempt goes  pending ->
completing -> completed, or -> aborted from pending (and from completing only if the metadata could not be written).
The coupling, all of it:

* only RUNNING triggers; the end of all input asks for one last checkpoint, taken alone, whose completion leads to
  FINISHING. So metadata is on its way to the disk in RUNNING and STOPPING only;
* STOPPING aborts every pending checkpoint and lets every completing one end: metadata on its way to the disk
  may become durable, and then it *is* the latest checkpoint (COO-1). The next attempt is planned only when the
  old one is gone and no write is under way;
* a message that does not carry the number of the current attempt is fenced off here (REC-2), and what its sender
  wrote is discarded.

What is legal follows one principle. A message of a subtask may come late, so it is ignored in states to which it no
longer matters. The outcome of a command comes only after the command, so it is illegal where it was not asked for.
A timer that no longer matters is ignored when it fires. The time is passed in beside each event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.admission import Admit, CheckpointAdmission, WaitUntil
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_commands import (
    CoordinatorCommand,
    DeployAttempt,
    DiscardCheckpoint,
    DiscardSnapshot,
    FailJob,
    FinishJob,
    NotifyAborted,
    NotifyComplete,
    SendTrigger,
    SetTimer,
    StopAttempt,
    WriteMetadata,
)
from barrier_tck.reference_impl.protocol.coordinator_events import (
    AttemptFailed,
    AttemptStopped,
    CheckpointExpired,
    CoordinatorEvent,
    JobStarted,
    MetadataFailed,
    MetadataWritten,
    RestartDue,
    TriggerDue,
)
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    CompletedCheckpoint,
    DeclineCheckpoint,
    InputConsumed,
    SubtaskFailed,
    SubtaskRunning,
    SubtaskSnapshot,
    TransactionsCommitted,
)
from barrier_tck.reference_impl.protocol.pending import AcknowledgeResult, PendingCheckpoint
from barrier_tck.reference_impl.protocol.recovery import RecoveryPlan, RestartStrategy, plan_recovery
from barrier_tck.reference_impl.protocol.table import IGNORED, Entry, TableMachine, leads

Commands = tuple[CoordinatorCommand, ...]

ABORTED_MAX = 64
"""How many of an attempt's latest aborted checkpoints are discarded once more after it. Every subtask heard of older
ones long ago.
"""


FENCED = (
    SubtaskRunning,
    SubtaskFailed,
    InputConsumed,
    TransactionsCommitted,
    DeclineCheckpoint,
    AttemptFailed,
    AttemptStopped,
)
"""Ignored if they are not of the current attempt. Acknowledgements name files, so ``_classify`` looks at them."""

_LATE_MESSAGES: dict[type, Entry] = dict.fromkeys(
    (SubtaskRunning, SubtaskFailed, AttemptFailed, InputConsumed, TransactionsCommitted, DeclineCheckpoint),
    IGNORED,
)
_LATE_TIMERS: dict[type, Entry] = {TriggerDue: IGNORED, CheckpointExpired: IGNORED}


class CoordinatorMachine(TableMachine[JobState, CoordinatorCommand]):
    """Coordinates one job. ``handle`` is the only door."""

    def __init__(
        self, config: JobConfig, subtasks: Sequence[SubtaskId], terminal: Sequence[SubtaskId]
    ) -> None:
        """Take the job's subtasks, and those without outputs: they say when input is consumed and committed."""
        super().__init__("the coordinator", JobState.CREATED)
        self.config = config
        self.attempt = AttemptNumber(0)
        self.pending: dict[CheckpointId, PendingCheckpoint] = {}
        self.completed: list[CompletedCheckpoint] = []
        """Retained checkpoints, oldest first."""
        self._subtasks = tuple(subtasks)
        self._terminal = tuple(terminal)
        self._admission = CheckpointAdmission(config.checkpoints) if config.checkpoints else None
        self._restart = RestartStrategy(config.restart)
        self._unreadable: dict[CheckpointId, str] = {}
        """Completed checkpoints that could be restored from no copy, each with the reason."""
        self._last_checkpoint = 0
        self._last_trigger_ms: float | None = None
        self._last_end_ms: float | None = None
        self._failures_in_row = 0
        self._stopped = True
        self._failure = ""
        self._not_running: dict[SubtaskId, None] = {}
        self._consuming: dict[SubtaskId, None] = {}
        self._committing: dict[SubtaskId, None] = {}
        self._final: CheckpointId | None = None
        self._aborted: list[CheckpointId] = []
        """The latest checkpoints that this attempt aborted. A subtask that dies before it hears of an abort leaves
        its files.
        """
        self._abandoned: list[CheckpointId] = []
        """Checkpoints that failed attempts aborted. A process of such an attempt may write on until it learns of its
        end, so they are discarded once more when a later checkpoint completes."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Take one event and return what to do, in order; raises ProtocolError if the event is illegal."""
        if self.is_of_another_attempt(event):
            return ()
        return self._take(event, now_ms)

    def is_of_another_attempt(self, event: CoordinatorEvent) -> bool:
        """What another attempt sent is ignored in every state; its acknowledgements are classified (REC-2)."""
        return isinstance(event, FENCED) and event.attempt != self.attempt

    def waiting_for(self) -> tuple[str, ...]:
        """Say what the job waits for, for liveness findings (REC-6)."""
        lines = [f"job is {self.state.value}, attempt {self.attempt}"]
        if self._not_running:
            lines.append("not yet running: " + ", ".join(map(str, self._not_running)))
        for pending in self.pending.values():
            what = "metadata write" if pending.completing else ", ".join(map(str, pending.awaiting))
            lines.append(f"checkpoint {pending.checkpoint} waits for {what}")
        if self._consuming and self.state is JobState.RUNNING:
            lines.append("input not consumed by: " + ", ".join(map(str, self._consuming)))
        if self._committing and self.state is JobState.FINISHING:
            lines.append("commit missing from: " + ", ".join(map(str, self._committing)))
        return tuple(lines)

    # --- the job --------------------------------------------------------------------------------------------

    def _on_started(self, event: JobStarted, now_ms: float) -> Commands:
        self.completed = sorted(event.completed, key=lambda checkpoint: checkpoint.checkpoint)
        self._last_checkpoint = event.last_checkpoint
        self.attempt = AttemptNumber(event.last_attempt)
        self._abandoned = list(event.incomplete)
        return (*(DiscardCheckpoint(checkpoint) for checkpoint in event.incomplete), *self._deploy())

    def _deploy(self) -> Commands:
        self.attempt = AttemptNumber(self.attempt + 1)
        self.state = JobState.DEPLOYING
        self._abandoned.extend(self._aborted)
        self._aborted = []
        self._stopped = False
        self._failure = ""
        self._final = None
        self._last_trigger_ms = self._last_end_ms = None
        self._failures_in_row = 0
        self._not_running = dict.fromkeys(self._subtasks)
        self._consuming = dict.fromkeys(self._terminal)
        self._committing = dict.fromkeys(self._terminal)
        return (DeployAttempt(self.attempt, self._recovery().restore, self._last_checkpoint),)

    def _recovery(self) -> RecoveryPlan:
        return plan_recovery(self.completed, self._unreadable, self.config.on_unreadable)

    def _on_running(self, event: SubtaskRunning, now_ms: float) -> Commands:
        self._not_running.pop(event.subtask, None)
        if self._not_running:
            return ()
        self.state = JobState.RUNNING
        # The first trigger comes one interval after the start: the start counts as the last trigger.
        self._last_trigger_ms = now_ms
        return self._after_progress(now_ms)

    def _on_subtask_failed(self, event: SubtaskFailed, now_ms: float) -> Commands:
        reason = f"{event.subtask}: {event.reason}"
        if event.unreadable is not None:
            self._unreadable.setdefault(event.unreadable, reason)
            return self._stop(now_ms, Cause.CHECKPOINT_UNREADABLE, reason, event.subtask)
        return self._stop(now_ms, Cause.SUBTASK_FAILED, reason, event.subtask)

    def _on_failed(self, event: AttemptFailed, now_ms: float) -> Commands:
        return self._stop(now_ms, event.cause, event.reason, event.subtask)

    def _stop(self, now_ms: float, cause: Cause, reason: str, failed: SubtaskId | None = None) -> Commands:
        self.state = JobState.STOPPING
        self._failure = reason
        aborted = self.abort_on_failure(now_ms, f"attempt {self.attempt} failed: {reason}", failed)
        return (*aborted, StopAttempt(self.attempt, cause, reason))

    def abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Abort every pending checkpoint of a failed attempt: the missing acknowledgements will never come.

        ``failed`` is the subtask that failed, where one is known.
        """
        doomed = [pending for pending in self.pending.values() if not pending.completing]
        return tuple(
            command
            for pending in doomed
            for command in self._abort(pending, now_ms, Cause.ATTEMPT_FAILED, reason)
        )

    def _on_stopped(self, event: AttemptStopped, now_ms: float) -> Commands:
        self._stopped = True
        return self._restart_when_quiet(now_ms)

    def _restart_when_quiet(self, now_ms: float) -> Commands:
        """The next attempt is planned once the old one is gone and no metadata is on its way to the disk (COO-1)."""
        if not self._stopped or any(pending.completing for pending in self.pending.values()):
            return ()
        problem = self._recovery().problem
        if problem is not None:
            self.state = JobState.FAILED
            return (FailJob(Cause.CHECKPOINT_UNREADABLE, problem),)
        delay_ms = self._restart.next_delay_ms()
        if delay_ms is None:
            self.state = JobState.FAILED
            return (FailJob(Cause.RESTARTS_USED_UP, f"{self._failure}; {self._restart.describe()}"),)
        self.state = JobState.BACKING_OFF
        return (SetTimer(RestartDue(), now_ms + delay_ms),)

    def _on_restart_due(self, event: RestartDue, now_ms: float) -> Commands:
        return self._deploy()

    def _on_early_consumed(self, event: InputConsumed, now_ms: float) -> Commands:
        # A short input can end before the last subtask's report of running has come.
        self._consuming.pop(event.subtask, None)
        return ()

    def _on_consumed(self, event: InputConsumed, now_ms: float) -> Commands:
        self._consuming.pop(event.subtask, None)
        return self._after_progress(now_ms)

    def _on_commit(self, event: TransactionsCommitted, now_ms: float) -> Commands:
        assert self._final is not None
        if event.checkpoint < self._final:
            return ()
        self._committing.pop(event.subtask, None)
        return () if self._committing else self._finish()

    def _finish(self) -> Commands:
        self.state = JobState.FINISHED
        return (FinishJob(self.attempt),)

    # --- checkpoints ----------------------------------------------------------------------------------------

    def _after_progress(self, now_ms: float) -> Commands:
        """Any progress while RUNNING may make the next checkpoint due; after all input, the last one (BAR-4)."""
        final = not self._consuming
        if self._admission is None:
            return self._finish() if final else ()
        decision = self._admission.decide(
            now_ms, len(self.pending), self._last_trigger_ms, self._last_end_ms, final
        )
        match decision:
            case Admit():
                return self._trigger(now_ms, final)
            case WaitUntil(at_ms=at_ms):
                return (SetTimer(TriggerDue(), at_ms),)
        return ()

    def _trigger(self, now_ms: float, final: bool) -> Commands:
        assert self.config.checkpoints is not None
        self._last_checkpoint += 1
        checkpoint = CheckpointId(self._last_checkpoint)
        self._last_trigger_ms = now_ms
        self.pending[checkpoint] = PendingCheckpoint(checkpoint, self.attempt, now_ms, self._subtasks, final)
        return (
            SendTrigger(self.attempt, checkpoint, int(now_ms), final),
            SetTimer(CheckpointExpired(checkpoint), now_ms + self.config.checkpoints.timeout_ms),
            *self._after_progress(now_ms),
        )

    def _on_trigger_due(self, event: TriggerDue, now_ms: float) -> Commands:
        return self._after_progress(now_ms)

    def _on_acknowledge(self, event: AcknowledgeCheckpoint, now_ms: float) -> Commands:
        pending = self.pending.get(event.checkpoint)
        result = self._classify(event, pending)
        if result in (AcknowledgeResult.UNKNOWN, AcknowledgeResult.LATE):
            return self.discard_late(event.snapshot)
        if pending is None or result is AcknowledgeResult.DUPLICATE or not pending.fully_acknowledged:
            return ()
        return self.complete_when_acknowledged(pending, now_ms)

    def _classify(self, event: AcknowledgeCheckpoint, pending: PendingCheckpoint | None) -> AcknowledgeResult:
        """An acknowledgement is accepted, a duplicate, unknown, or late; what the last two wrote is removed (COO-3)."""
        if any(completed.checkpoint == event.checkpoint for completed in self.completed):
            # A repeated acknowledgement of a checkpoint that completed: its files are in use.
            return AcknowledgeResult.DUPLICATE
        if pending is None or pending.attempt != event.attempt:
            known = event.checkpoint <= self._last_checkpoint
            return AcknowledgeResult.LATE if known else AcknowledgeResult.UNKNOWN
        return pending.acknowledge(event.subtask, event.snapshot)

    def complete_when_acknowledged(self, pending: PendingCheckpoint, now_ms: float) -> Commands:
        """Start the one atomic step that completes a fully acknowledged checkpoint (COO-1)."""
        pending.completing = True
        return (WriteMetadata(pending.complete(now_ms)),)

    def discard_late(self, snapshot: SubtaskSnapshot) -> Commands:
        """Remove what a late or unknown acknowledgement wrote: nobody else owns it (COO-3)."""
        return (DiscardSnapshot(snapshot),) if snapshot.handles() else ()

    def _on_decline(self, event: DeclineCheckpoint, now_ms: float) -> Commands:
        pending = self.pending.get(event.checkpoint)
        if pending is None or pending.completing:
            return ()
        said = f"{event.subtask} declined: {event.reason}"
        return self._fail_checkpoint(pending, now_ms, Cause.DECLINED, said)

    def _on_expired(self, event: CheckpointExpired, now_ms: float) -> Commands:
        pending = self.pending.get(event.checkpoint)
        if pending is None or pending.completing:
            return ()
        return self._fail_checkpoint(pending, now_ms, Cause.EXPIRED, "expired before completing")

    def _fail_checkpoint(
        self, pending: PendingCheckpoint, now_ms: float, cause: Cause, reason: str
    ) -> Commands:
        assert self.config.checkpoints is not None
        commands = self._abort(pending, now_ms, cause, reason)
        self._failures_in_row += 1
        if self._failures_in_row > self.config.checkpoints.tolerated_failures:
            tolerated = self.config.checkpoints.tolerated_failures
            why = f"checkpoint {pending.checkpoint} failed ({reason}) and {tolerated} failures in a row are tolerated"
            return (*commands, *self._stop(now_ms, Cause.CHECKPOINTS_FAILED, why))
        return (*commands, *self._after_progress(now_ms))

    def _abort(self, pending: PendingCheckpoint, now_ms: float, cause: Cause, reason: str) -> Commands:
        del self.pending[pending.checkpoint]
        self._aborted = [*self._aborted, pending.checkpoint][-ABORTED_MAX:]
        self._last_end_ms = now_ms
        return (
            NotifyAborted(pending.attempt, pending.checkpoint, cause, reason),
            DiscardCheckpoint(pending.checkpoint),
        )

    def _on_written(self, event: MetadataWritten, now_ms: float) -> Commands:
        pending = self._whose_metadata(event, event.completed.checkpoint)
        told = NotifyComplete(self.attempt, pending.checkpoint)
        dropped = self._completed(event.completed, now_ms)
        if pending.final:
            self._final = pending.checkpoint
            self.state = JobState.FINISHING
            return (told, *dropped)
        return (told, *dropped, *self._after_progress(now_ms))

    def _on_written_while_stopping(self, event: MetadataWritten, now_ms: float) -> Commands:
        # Nobody is told in an attempt that is over: the next one commits what it restores.
        self._whose_metadata(event, event.completed.checkpoint)
        return (*self._completed(event.completed, now_ms), *self._restart_when_quiet(now_ms))

    def _on_metadata_failed(self, event: MetadataFailed, now_ms: float) -> Commands:
        pending = self._whose_metadata(event, event.checkpoint)
        pending.completing = False
        said = f"metadata could not be written: {event.reason}"
        return self._fail_checkpoint(pending, now_ms, Cause.STORAGE_FAILED, said)

    def _on_metadata_failed_while_stopping(self, event: MetadataFailed, now_ms: float) -> Commands:
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
        del self.pending[completed.checkpoint]
        self._last_end_ms = now_ms
        self._failures_in_row = 0
        self.completed.append(completed)
        return self._subsume(completed.checkpoint, now_ms)

    def _subsume(self, checkpoint: CheckpointId, now_ms: float) -> Commands:
        """Drop older pending checkpoints and the completed ones beyond retention (COO-4)."""
        assert self.config.checkpoints is not None
        commands: list[CoordinatorCommand] = [DiscardCheckpoint(abandoned) for abandoned in self._abandoned]
        self._abandoned.clear()
        # Now that a newer one is complete, those that nobody can read are of no use.
        for unreadable in [c for c in self.completed if c.checkpoint in self._unreadable]:
            self.completed.remove(unreadable)
            del self._unreadable[unreadable.checkpoint]
            commands.append(DiscardCheckpoint(unreadable.checkpoint))
        for older in [p for n, p in self.pending.items() if n < checkpoint and not p.completing]:
            said = f"subsumed by checkpoint {checkpoint}"
            commands.extend(self._abort(older, now_ms, Cause.SUBSUMED, said))
        self.completed.sort(key=lambda completed: completed.checkpoint)
        while len(self.completed) > self.config.checkpoints.retained:
            commands.append(DiscardCheckpoint(self.completed.pop(0).checkpoint))
        return tuple(commands)

    RULES: ClassVar = (
        is_of_another_attempt,
        _classify,
        _after_progress,
        _restart_when_quiet,
        _whose_metadata,
    )

    TABLE: ClassVar = {
        JobState.CREATED: {
            JobStarted: leads(_on_started, JobState.DEPLOYING),
        },
        JobState.DEPLOYING: {
            SubtaskRunning: leads(_on_running, JobState.RUNNING, JobState.FINISHED),
            SubtaskFailed: leads(_on_subtask_failed, JobState.STOPPING),
            AttemptFailed: leads(_on_failed, JobState.STOPPING),
            InputConsumed: _on_early_consumed,
            AcknowledgeCheckpoint: _on_acknowledge,
            **_LATE_TIMERS,
        },
        JobState.RUNNING: {
            SubtaskFailed: leads(_on_subtask_failed, JobState.STOPPING),
            AttemptFailed: leads(_on_failed, JobState.STOPPING),
            TriggerDue: _on_trigger_due,
            AcknowledgeCheckpoint: _on_acknowledge,
            DeclineCheckpoint: leads(_on_decline, JobState.STOPPING),
            CheckpointExpired: leads(_on_expired, JobState.STOPPING),
            MetadataWritten: leads(_on_written, JobState.FINISHING),
            MetadataFailed: leads(_on_metadata_failed, JobState.STOPPING),
            InputConsumed: leads(_on_consumed, JobState.FINISHED),
            TransactionsCommitted: IGNORED,
        },
        JobState.FINISHING: {
            SubtaskFailed: leads(_on_subtask_failed, JobState.STOPPING),
            AttemptFailed: leads(_on_failed, JobState.STOPPING),
            TransactionsCommitted: leads(_on_commit, JobState.FINISHED),
            AcknowledgeCheckpoint: _on_acknowledge,
            DeclineCheckpoint: IGNORED,
            **_LATE_TIMERS,
        },
        JobState.STOPPING: {
            AttemptStopped: leads(_on_stopped, JobState.BACKING_OFF, JobState.FAILED),
            MetadataWritten: leads(_on_written_while_stopping, JobState.BACKING_OFF, JobState.FAILED),
            MetadataFailed: leads(_on_metadata_failed_while_stopping, JobState.BACKING_OFF, JobState.FAILED),
            AcknowledgeCheckpoint: _on_acknowledge,
            **_LATE_MESSAGES,
            **_LATE_TIMERS,
        },
        JobState.BACKING_OFF: {
            RestartDue: leads(_on_restart_due, JobState.DEPLOYING),
            AcknowledgeCheckpoint: _on_acknowledge,
            **_LATE_MESSAGES,
            **_LATE_TIMERS,
        },
        JobState.FINISHED: {
            AcknowledgeCheckpoint: _on_acknowledge,
            **_LATE_MESSAGES,
            **_LATE_TIMERS,
        },
        JobState.FAILED: {
            AcknowledgeCheckpoint: _on_acknowledge,
            **_LATE_MESSAGES,
            **_LATE_TIMERS,
        },
    }
