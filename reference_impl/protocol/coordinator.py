"""The coordinator: the life of a job and of its checkpoints, events in, commands out.

Theory of operation. Two machines are coupled here. The *job* goes

    CREATED -> DEPLOYING -> RUNNING -> FINISHING -> FINISHED
                  ^  any of these, on a failure -> STOPPING -> BACKING_OFF -> DEPLOYING
                                                           or -> FAILED

and each *checkpoint* of an attempt goes  pending -> completing -> completed, or -> aborted from pending (and
from completing only if the metadata could not be written). The coupling, all of it:

* only RUNNING triggers; the end of all input asks for one last checkpoint, whose completion leads to FINISHING;
* STOPPING aborts every pending checkpoint and lets every completing one end: metadata on its way to the disk
  may become durable, and then it *is* the latest checkpoint (COO-1). The next attempt is planned only when the
  old one is gone and no write is under way;
* whatever carries another attempt's number than the current one is fenced off here (REC-2), and what it wrote is
  discarded.

Time arrives in events. Timers are named; a timer that no longer matters is ignored when it fires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.errors import ProtocolError
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.admission import Admit, CheckpointAdmission, WaitUntil
from barrier_tck.reference_impl.protocol.coordinator_events import (
    AcknowledgeReceived,
    AttemptFailed,
    AttemptStopped,
    CommitReceived,
    CoordinatorCommand,
    CoordinatorEvent,
    DeclineReceived,
    DeployAttempt,
    DiscardCheckpoint,
    DiscardSnapshot,
    FailJob,
    FinishJob,
    InputConsumedReceived,
    JobStarted,
    JobState,
    MetadataFailed,
    MetadataWritten,
    NotifyAborted,
    NotifyComplete,
    RunningReceived,
    SendTrigger,
    SetTimer,
    StopAttempt,
    TimerFired,
    WriteMetadata,
)
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, SubtaskSnapshot
from barrier_tck.reference_impl.protocol.pending import AcknowledgeResult, PendingCheckpoint
from barrier_tck.reference_impl.protocol.recovery import RecoveryPlan, RestartStrategy, plan_recovery

Commands = tuple[CoordinatorCommand, ...]

ABORTED_MAX = 64
"""Latest aborted checkpoints of an attempt that are discarded once more after it; older aborts were long heard of."""


class CoordinatorMachine:
    """Coordinates one job. ``handle`` is the only door."""

    def __init__(
        self, config: JobConfig, subtasks: Sequence[SubtaskId], terminal: Sequence[SubtaskId]
    ) -> None:
        """Take the job's subtasks, and those without outputs: they say when input is consumed and committed."""
        self.config = config
        self.state = JobState.CREATED
        self.attempt = AttemptNumber(0)
        self.pending: dict[CheckpointId, PendingCheckpoint] = {}
        self.completed: list[CompletedCheckpoint] = []
        """Retained checkpoints, oldest first."""
        self._subtasks = tuple(subtasks)
        self._terminal = tuple(terminal)
        self._admission = CheckpointAdmission(config.checkpoints) if config.checkpoints else None
        self._restart = RestartStrategy(config.restart)
        self._unreadable: dict[CheckpointId, str] = {}
        """Completed checkpoints that could be restored from no copy, and what was said of each."""
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
        """What this attempt aborted, the latest ones: a subtask that dies before it hears of it leaves its files."""
        self._abandoned: list[CheckpointId] = []
        """Checkpoints that failed attempts aborted. A process of such an attempt may write on until it learns of its
        end, so they are discarded once more when a later checkpoint completes."""
        self._story: list[tuple[CoordinatorEvent, Commands]] = []

    def handle(self, event: CoordinatorEvent) -> Commands:
        """Take one event and return what to do, in order; raises ProtocolError if the event is illegal."""
        handler = self._TABLE.get(type(event))
        if handler is None:
            raise ProtocolError(f"the coordinator knows no event {event!r}")
        commands: Commands = handler(self, event)
        if len(self._story) >= 400:
            del self._story[:200]
        self._story.append((event, commands))
        return commands

    def story(self) -> tuple[str, ...]:
        """Return the latest transitions, oldest first."""
        return tuple(f"{event} -> {commands}" for event, commands in self._story)

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

    def _on_started(self, event: JobStarted) -> Commands:
        if self.state is not JobState.CREATED:
            raise ProtocolError(f"the job was started already and is {self.state.value}")
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

    def _on_running(self, event: RunningReceived) -> Commands:
        if event.attempt != self.attempt or self.state is not JobState.DEPLOYING:
            return ()
        self._not_running.pop(event.subtask, None)
        if self._not_running:
            return ()
        self.state = JobState.RUNNING
        # The first trigger comes one interval after the start: the start counts as the last trigger.
        self._last_trigger_ms = event.at_ms
        return self._after_progress(event.at_ms)

    def _on_failed(self, event: AttemptFailed) -> Commands:
        live = (JobState.DEPLOYING, JobState.RUNNING, JobState.FINISHING)
        if event.attempt != self.attempt or self.state not in live:
            return ()
        if event.unreadable is not None:
            self._unreadable.setdefault(event.unreadable, event.reason)
        return self._stop(event.at_ms, event.reason, event.subtask)

    def _stop(self, now_ms: float, reason: str, failed: SubtaskId | None = None) -> Commands:
        self.state = JobState.STOPPING
        self._failure = reason
        aborted = self.abort_on_failure(now_ms, f"attempt {self.attempt} failed: {reason}", failed)
        return (*aborted, StopAttempt(self.attempt, reason))

    def abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Abort every pending checkpoint of a failed attempt: an acknowledgement that is missing never comes.

        ``failed`` is the subtask that failed, where one is known.
        """
        doomed = [pending for pending in self.pending.values() if not pending.completing]
        return tuple(command for pending in doomed for command in self._abort(pending, now_ms, reason))

    def _on_stopped(self, event: AttemptStopped) -> Commands:
        if event.attempt != self.attempt:
            return ()
        self._stopped = True
        if self.state is not JobState.STOPPING:
            return ()
        return self._restart_when_quiet(event.at_ms)

    def _restart_when_quiet(self, now_ms: float) -> Commands:
        if not self._stopped or any(pending.completing for pending in self.pending.values()):
            return ()
        problem = self._recovery().problem
        if problem is not None:
            self.state = JobState.FAILED
            return (FailJob(problem),)
        delay_ms = self._restart.next_delay_ms()
        if delay_ms is None:
            self.state = JobState.FAILED
            return (FailJob(f"{self._failure}; {self._restart.describe()}"),)
        self.state = JobState.BACKING_OFF
        return (SetTimer("restart", now_ms + delay_ms),)

    def _on_timer(self, event: TimerFired) -> Commands:
        name, _, number = event.name.partition("-")
        if name == "restart" and self.state is JobState.BACKING_OFF:
            return self._deploy()
        if name == "trigger" and self.state is JobState.RUNNING:
            return self._after_progress(event.at_ms)
        if name == "expire":
            pending = self.pending.get(CheckpointId(int(number)))
            if pending is not None and not pending.completing and self.state is JobState.RUNNING:
                return self._fail_checkpoint(pending, event.at_ms, "expired before completing")
        return ()

    def _on_consumed(self, event: InputConsumedReceived) -> Commands:
        # Also while DEPLOYING: a short input can end before the last subtask's report of running has come.
        if event.attempt == self.attempt:
            self._consuming.pop(event.subtask, None)
        return self._after_progress(event.at_ms)

    def _on_commit(self, event: CommitReceived) -> Commands:
        if event.attempt != self.attempt or self._final is None or event.checkpoint < self._final:
            return ()
        self._committing.pop(event.subtask, None)
        if self.state is JobState.FINISHING and not self._committing:
            return self._finish()
        return ()

    def _finish(self) -> Commands:
        self.state = JobState.FINISHED
        return (FinishJob(self.attempt),)

    # --- checkpoints ----------------------------------------------------------------------------------------

    def _after_progress(self, now_ms: float) -> Commands:
        """Trigger the next checkpoint, or set the timer for it, if the job's state asks for one."""
        if self.state is not JobState.RUNNING:
            return ()
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
                return (SetTimer("trigger", at_ms),)
        return ()

    def _trigger(self, now_ms: float, final: bool) -> Commands:
        assert self.config.checkpoints is not None
        self._last_checkpoint += 1
        checkpoint = CheckpointId(self._last_checkpoint)
        self._last_trigger_ms = now_ms
        self.pending[checkpoint] = PendingCheckpoint(checkpoint, self.attempt, now_ms, self._subtasks, final)
        return (
            SendTrigger(self.attempt, checkpoint, int(now_ms)),
            SetTimer(f"expire-{checkpoint}", now_ms + self.config.checkpoints.timeout_ms),
            *self._after_progress(now_ms),
        )

    def _on_acknowledge(self, event: AcknowledgeReceived) -> Commands:
        pending = self.pending.get(event.checkpoint)
        result = self._classify(event, pending)
        if result in (AcknowledgeResult.UNKNOWN, AcknowledgeResult.LATE):
            return self.discard_late(event.snapshot)
        if pending is None or result is AcknowledgeResult.DUPLICATE or not pending.fully_acknowledged:
            return ()
        return self.complete_when_acknowledged(pending, event.at_ms)

    def _classify(self, event: AcknowledgeReceived, pending: PendingCheckpoint | None) -> AcknowledgeResult:
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

    def _on_decline(self, event: DeclineReceived) -> Commands:
        pending = self.pending.get(event.checkpoint)
        if pending is None or event.attempt != pending.attempt or pending.completing:
            return ()
        return self._fail_checkpoint(pending, event.at_ms, f"{event.subtask} declined: {event.reason}")

    def _fail_checkpoint(self, pending: PendingCheckpoint, now_ms: float, reason: str) -> Commands:
        assert self.config.checkpoints is not None
        commands = self._abort(pending, now_ms, reason)
        self._failures_in_row += 1
        if self._failures_in_row > self.config.checkpoints.tolerated_failures:
            tolerated = self.config.checkpoints.tolerated_failures
            why = f"checkpoint {pending.checkpoint} failed ({reason}) and {tolerated} failures in a row are tolerated"
            return (*commands, *self._stop(now_ms, why))
        return (*commands, *self._after_progress(now_ms))

    def _abort(self, pending: PendingCheckpoint, now_ms: float, reason: str) -> Commands:
        del self.pending[pending.checkpoint]
        self._aborted = [*self._aborted, pending.checkpoint][-ABORTED_MAX:]
        self._last_end_ms = now_ms
        return (
            NotifyAborted(pending.attempt, pending.checkpoint, reason),
            DiscardCheckpoint(pending.checkpoint),
        )

    def _on_written(self, event: MetadataWritten) -> Commands:
        pending = self.pending.pop(event.completed.checkpoint, None)
        if pending is None:
            raise ProtocolError(
                f"metadata of {event.completed.checkpoint} was written, but it is not pending"
            )
        assert self.config.checkpoints is not None
        self._last_end_ms = event.at_ms
        self._failures_in_row = 0
        self.completed.append(event.completed)
        commands: list[CoordinatorCommand] = []
        if self.state in (JobState.RUNNING, JobState.FINISHING):
            commands.append(NotifyComplete(self.attempt, pending.checkpoint))
        commands.extend(self._subsume(pending.checkpoint, event.at_ms))
        if self.state is JobState.STOPPING:
            commands.extend(self._restart_when_quiet(event.at_ms))
        elif self.state is JobState.RUNNING:
            if pending.final:
                self._final = pending.checkpoint
                self.state = JobState.FINISHING
            else:
                commands.extend(self._after_progress(event.at_ms))
        return tuple(commands)

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
            commands.extend(self._abort(older, now_ms, f"subsumed by checkpoint {checkpoint}"))
        self.completed.sort(key=lambda completed: completed.checkpoint)
        while len(self.completed) > self.config.checkpoints.retained:
            commands.append(DiscardCheckpoint(self.completed.pop(0).checkpoint))
        return tuple(commands)

    def _on_metadata_failed(self, event: MetadataFailed) -> Commands:
        pending = self.pending.get(event.checkpoint)
        if pending is None:
            raise ProtocolError(f"metadata of {event.checkpoint} failed, but it is not pending")
        pending.completing = False
        if self.state is JobState.RUNNING:
            return self._fail_checkpoint(
                pending, event.at_ms, f"metadata could not be written: {event.reason}"
            )
        commands = self._abort(pending, event.at_ms, event.reason)
        return (
            *commands,
            *(self._restart_when_quiet(event.at_ms) if self.state is JobState.STOPPING else ()),
        )

    _TABLE: ClassVar[dict[type, Callable[[Any, Any], Commands]]] = {
        JobStarted: _on_started,
        RunningReceived: _on_running,
        AttemptFailed: _on_failed,
        AttemptStopped: _on_stopped,
        TimerFired: _on_timer,
        InputConsumedReceived: _on_consumed,
        CommitReceived: _on_commit,
        AcknowledgeReceived: _on_acknowledge,
        DeclineReceived: _on_decline,
        MetadataWritten: _on_written,
        MetadataFailed: _on_metadata_failed,
    }
