"""The coordinator: the life of a job and of its attempts, events in, commands out.

``coordinator_checkpoints`` has the other half, the life of the checkpoints.

Theory of operation. Two machines are coupled here. The *job* goes

    CREATED -> DEPLOYING -> RUNNING -> FINISHING -> FINISHED, or STOPPED with a savepoint
                  ^  any of these, on a failure -> STOPPING -> BACKING_OFF -> DEPLOYING
                                                           or -> FAILED

and ``TABLE`` says what follows from each event in each state. Each *checkpoint* of an attempt goes  pending ->
completing -> completed, or -> aborted from pending (and from completing only if the metadata could not be written).
The coupling, all of it:

* a subtask may finish before the job does (BAR-6); it is expected to acknowledge and to commit nothing any more;
* only RUNNING triggers; the end of all input asks for one last checkpoint, and a user who stops the job for a last
  savepoint. Both are taken alone, and their completion leads to FINISHING. So metadata is on its way to the disk in
  RUNNING and STOPPING only;
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
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_checkpoints import (
    ABORTED_MAX,
    Commands,
    JobCheckpoints,
)
from barrier_tck.reference_impl.protocol.coordinator_commands import (
    DeployAttempt,
    FailJob,
    FinishJob,
    NotifyComplete,
    SetTimer,
    StopAttempt,
)
from barrier_tck.reference_impl.protocol.coordinator_events import (
    AttemptFailed,
    AttemptStopped,
    CheckpointExpired,
    CoordinatorEvent,
    JobResized,
    JobStarted,
    MetadataFailed,
    MetadataWritten,
    RestartDue,
    SavepointRequested,
    TriggerDue,
)
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    ChannelsClosed,
    DeclineCheckpoint,
    InputConsumed,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskRunning,
    TransactionsCommitted,
)
from barrier_tck.reference_impl.protocol.recovery import RecoveryPlan, plan_recovery
from barrier_tck.reference_impl.protocol.restarts import restart_strategy
from barrier_tck.reference_impl.protocol.shared_files import SharedFiles
from barrier_tck.reference_impl.protocol.table import IGNORED, Entry, leads

FENCED = (
    SubtaskRunning,
    SubtaskFailed,
    InputConsumed,
    ChannelsClosed,
    SubtaskFinished,
    TransactionsCommitted,
    DeclineCheckpoint,
    AttemptFailed,
    AttemptStopped,
)
"""Ignored if they are not of the current attempt. Acknowledgements name files, so ``_classify`` looks at them."""

_LATE_MESSAGES: dict[type, Entry] = dict.fromkeys(
    (
        SubtaskRunning,
        SubtaskFailed,
        AttemptFailed,
        InputConsumed,
        ChannelsClosed,
        SubtaskFinished,
        TransactionsCommitted,
        DeclineCheckpoint,
    ),
    IGNORED,
)
_LATE_TIMERS: dict[type, Entry] = {TriggerDue: IGNORED, CheckpointExpired: IGNORED}
_NOT_NOW: dict[type, Entry] = {SavepointRequested: JobCheckpoints.not_now}
_OVER: dict[type, Entry] = {
    AcknowledgeCheckpoint: JobCheckpoints.on_acknowledge,
    **_LATE_MESSAGES,
    **_LATE_TIMERS,
    **_NOT_NOW,
}

_STILL_TO_COME = {
    JobState.CREATED: "what durable storage holds is still to be read",
    JobState.RUNNING: "all input is consumed, and the last checkpoint is still to be triggered",
    JobState.STOPPING: "the failed attempt is still to end",
    JobState.BACKING_OFF: "the next attempt is still to begin",
}
"""State -> what a job waits for that waits for nothing else."""


class CoordinatorMachine(JobCheckpoints):
    """Coordinates one job. ``handle`` is the only entry point."""

    def __init__(
        self, config: JobConfig, subtasks: Sequence[SubtaskId], terminal: Sequence[SubtaskId]
    ) -> None:
        super().__init__(config, subtasks)
        self._terminal = tuple(terminal)
        self._restart = restart_strategy(config.restart)
        self._stopped = True
        self._failure = ""
        self._failed_ms = 0.0
        self._ran_since_ms: float | None = None  # when the last subtask of the attempt began to run
        self._not_running: dict[SubtaskId, None] = {}
        self._consuming: dict[SubtaskId, None] = {}
        self._committing: dict[SubtaskId, None] = {}

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Handle one event and return the commands, in order; raises ProtocolError if the event is illegal."""
        if self._is_of_another_attempt(event):
            return ()
        return self._take(event, now_ms)

    def _is_of_another_attempt(self, event: CoordinatorEvent) -> bool:
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
        if len(lines) == 1 and self.state in _STILL_TO_COME:
            lines.append(_STILL_TO_COME[self.state])
        if self._finished:
            lines.append("finished: " + ", ".join(map(str, self._finished)))
        return tuple(lines)

    # --- the job --------------------------------------------------------------------------------------------

    def _on_started(self, event: JobStarted, now_ms: float) -> Commands:
        self.completed = sorted(event.completed, key=lambda checkpoint: checkpoint.checkpoint)
        self._last_checkpoint = event.last_checkpoint
        self.attempt = AttemptNumber(event.last_attempt)
        self._superseded = event.superseded
        self._abandoned = [*self._of_dead_coordinator(event), *event.superseded]
        self.shared = SharedFiles(event.shared, self.completed)
        return (*(self._discard(checkpoint) for checkpoint in event.incomplete), *self._deploy())

    def _on_resized(self, event: JobResized, now_ms: float) -> Commands:
        self._subtasks, self._terminal = event.subtasks, event.terminal
        return ()

    def _of_dead_coordinator(self, event: JobStarted) -> list[CheckpointId]:
        """Return the checkpoints that an earlier coordinator left: those of which files are there, and those of which
        a process of its last attempt, which does not know yet that the attempt is over, may still write the first file.
        """
        newest = max((one.checkpoint for one in self.completed), default=0)
        first = max(newest + 1, event.last_checkpoint + 1 - ABORTED_MAX)
        begun = map(CheckpointId, range(first, event.last_checkpoint + 1))
        return list(dict.fromkeys((*event.incomplete, *begun)))

    def _deploy(self) -> Commands:
        restored = self._recovery().restore
        self.attempt = AttemptNumber(self.attempt + 1)
        self.state = JobState.DEPLOYING
        self._abandoned.extend(self._aborted)
        self._aborted = []
        self._stopped = False
        self._failure, self._ran_since_ms = "", None
        # A failure came between the completion of the last savepoint and its commits: they are all that is left to do.
        stops = restored is not None and restored.stops_the_job
        self._stopped_with = restored.savepoint if restored is not None and stops else None
        self._final = restored.checkpoint if restored is not None and stops else None
        self._last_trigger_ms = self._last_end_ms = None
        self._failures_in_row = 0
        self._not_running = dict.fromkeys(self._subtasks)
        self._consuming = dict.fromkeys(self._terminal)
        self._committing = dict.fromkeys(self._terminal)
        self._closed, self._finished, self._newest_acknowledged = {}, {}, {}
        return (DeployAttempt(self.attempt, restored, self._last_checkpoint),)

    def _recovery(self) -> RecoveryPlan:
        return plan_recovery(self.completed, self._unreadable, self.config.on_unreadable)

    def _on_running(self, event: SubtaskRunning, now_ms: float) -> Commands:
        self._not_running.pop(event.subtask, None)
        if self._not_running:
            return ()
        if self._stopped_with is not None:
            assert self._final is not None
            self.state = JobState.FINISHING
            notify = NotifyComplete(self.attempt, self._final)
            return (notify, *self._finish()) if self._all_is_committed() else (notify,)
        self.state = JobState.RUNNING
        # The first trigger comes one interval after the start: the start counts as the last trigger.
        self._last_trigger_ms = self._ran_since_ms = now_ms
        return self._after_progress(now_ms)

    def _on_subtask_failed(self, event: SubtaskFailed, now_ms: float) -> Commands:
        reason = f"{event.subtask}: {event.reason}"
        if event.unreadable is not None:
            self._unreadable.setdefault(event.unreadable, reason)
            return self._stop(now_ms, Cause.CHECKPOINT_UNREADABLE, reason, event.subtask)
        crashed = event if event.crash is not None else None
        return self._stop(now_ms, Cause.SUBTASK_FAILED, reason, event.subtask, crashed)

    def _on_failed(self, event: AttemptFailed, now_ms: float) -> Commands:
        return self._stop(now_ms, event.cause, event.reason, event.subtask)

    def _stop(
        self,
        now_ms: float,
        cause: Cause,
        reason: str,
        failed: SubtaskId | None = None,
        crashed: SubtaskFailed | None = None,
    ) -> Commands:
        self.state = JobState.STOPPING
        self._failure, self._failed_ms = reason, now_ms
        refused = self._forget_savepoints(f"attempt {self.attempt} failed: {reason}")
        aborted = self._abort_on_failure(now_ms, f"attempt {self.attempt} failed: {reason}", failed)
        return (*refused, *aborted, StopAttempt(self.attempt, cause, reason, crashed))

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
        ran_ms = self._failed_ms - self._ran_since_ms if self._ran_since_ms is not None else 0.0
        delay_ms = self._restart.next_delay_ms(self._failed_ms, ran_ms)
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
        return self._finish() if self._all_is_committed() else ()

    def _on_last_finished(self, event: SubtaskFinished, now_ms: float) -> Commands:
        self.on_early_finished(event, now_ms)
        return self._finish() if self._all_is_committed() else ()

    def _all_is_committed(self) -> bool:
        """A terminal subtask that has finished had committed all of its output (BAR-6)."""
        return all(subtask in self._finished for subtask in self._committing)

    def _finish(self) -> Commands:
        self.state = JobState.FINISHED if self._stopped_with is None else JobState.STOPPED
        return (FinishJob(self.attempt, self._stopped_with),)

    def _input_is_consumed(self) -> bool:
        return not self._consuming

    RULES: ClassVar = (
        _is_of_another_attempt,
        _restart_when_quiet,
        _all_is_committed,
        *JobCheckpoints.CHECKPOINT_RULES,
    )

    TABLE: ClassVar = {
        JobState.CREATED: {
            JobResized: _on_resized,
            JobStarted: leads(_on_started, JobState.DEPLOYING),
            **_NOT_NOW,
        },
        JobState.DEPLOYING: {
            SubtaskRunning: leads(
                _on_running, JobState.RUNNING, JobState.FINISHING, JobState.FINISHED, JobState.STOPPED
            ),
            SubtaskFailed: leads(_on_subtask_failed, JobState.STOPPING),
            AttemptFailed: leads(_on_failed, JobState.STOPPING),
            InputConsumed: _on_early_consumed,
            ChannelsClosed: JobCheckpoints.on_early_closed,
            SubtaskFinished: JobCheckpoints.on_early_finished,
            AcknowledgeCheckpoint: JobCheckpoints.on_acknowledge,
            **_LATE_TIMERS,
            **_NOT_NOW,
        },
        JobState.RUNNING: {
            SubtaskFailed: leads(_on_subtask_failed, JobState.STOPPING),
            AttemptFailed: leads(_on_failed, JobState.STOPPING),
            TriggerDue: JobCheckpoints.on_trigger_due,
            AcknowledgeCheckpoint: JobCheckpoints.on_acknowledge,
            DeclineCheckpoint: leads(JobCheckpoints.on_decline, JobState.STOPPING),
            CheckpointExpired: leads(JobCheckpoints.on_expired, JobState.STOPPING),
            MetadataWritten: leads(
                JobCheckpoints.on_written, JobState.FINISHING, JobState.FINISHED, JobState.STOPPED
            ),
            MetadataFailed: leads(JobCheckpoints.on_metadata_failed, JobState.STOPPING),
            InputConsumed: leads(_on_consumed, JobState.FINISHED),
            ChannelsClosed: JobCheckpoints.on_closed,
            SubtaskFinished: JobCheckpoints.on_finished,
            TransactionsCommitted: IGNORED,
            SavepointRequested: JobCheckpoints.on_savepoint,
        },
        JobState.FINISHING: {
            SubtaskFailed: leads(_on_subtask_failed, JobState.STOPPING),
            AttemptFailed: leads(_on_failed, JobState.STOPPING),
            TransactionsCommitted: leads(_on_commit, JobState.FINISHED, JobState.STOPPED),
            AcknowledgeCheckpoint: JobCheckpoints.on_acknowledge,
            DeclineCheckpoint: IGNORED,
            InputConsumed: IGNORED,
            ChannelsClosed: IGNORED,
            SubtaskFinished: leads(_on_last_finished, JobState.FINISHED, JobState.STOPPED),
            **_LATE_TIMERS,
            **_NOT_NOW,
        },
        JobState.STOPPING: {
            AttemptStopped: leads(_on_stopped, JobState.BACKING_OFF, JobState.FAILED),
            MetadataWritten: leads(
                JobCheckpoints.on_written_while_stopping, JobState.BACKING_OFF, JobState.FAILED
            ),
            MetadataFailed: leads(
                JobCheckpoints.on_metadata_failed_while_stopping, JobState.BACKING_OFF, JobState.FAILED
            ),
            AcknowledgeCheckpoint: JobCheckpoints.on_acknowledge,
            **_LATE_MESSAGES,
            **_LATE_TIMERS,
            **_NOT_NOW,
        },
        JobState.BACKING_OFF: {
            JobResized: _on_resized,
            RestartDue: leads(_on_restart_due, JobState.DEPLOYING),
            AcknowledgeCheckpoint: JobCheckpoints.on_acknowledge,
            **_LATE_MESSAGES,
            **_LATE_TIMERS,
            **_NOT_NOW,
        },
        JobState.FINISHED: _OVER,
        JobState.STOPPED: _OVER,
        JobState.FAILED: _OVER,
    }
