"""Planted bugs in the control of checkpoints and restarts: how they are admitted, counted and aborted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from barrier_tck.reference_impl.config import ExponentialDelayRestart, FailureRateRestart, JobConfig
from barrier_tck.reference_impl.ids import CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.admission import Admission, CheckpointAdmission
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator import FENCED, CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_checkpoints import Commands
from barrier_tck.reference_impl.protocol.coordinator_events import (
    CheckpointExpired,
    CoordinatorEvent,
    MetadataFailed,
    MetadataWritten,
)
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    CompletedCheckpoint,
    DeclineCheckpoint,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.pending import AcknowledgeResult, PendingCheckpoint
from barrier_tck.reference_impl.protocol.recovery import RecoveryPlan, plan_recovery
from barrier_tck.reference_impl.protocol.restarts import ExponentialDelay, FailureRate
from barrier_tck.reference_impl.protocol.subtask import SubtaskCommands, SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import CancelSnapshot, ForwardBarrier
from barrier_tck.reference_impl.protocol.subtask_events import SubtaskEvent
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver


class CountsAcknowledgements(CoordinatorMachine):
    """SR-01: acknowledgements are counted, not attributed: a second one of the same subtask counts as another's."""

    def _classify(self, event: AcknowledgeCheckpoint, pending: PendingCheckpoint | None) -> AcknowledgeResult:
        result = super()._classify(event, pending)
        if result is not AcknowledgeResult.DUPLICATE or pending is None or not pending.awaiting:
            return result
        pending.awaiting.popitem()
        return AcknowledgeResult.ACCEPTED


class KeepsWhatIsUnknown(CoordinatorMachine):
    """FA-01: an acknowledgement that nobody can have given is ignored together with the file that it names."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Ignore what names an id that was never given out."""
        unknown = isinstance(event, AcknowledgeCheckpoint) and event.checkpoint > self._last_checkpoint
        return () if unknown else super().handle(event, now_ms)


class CountsStrangers(CoordinatorMachine):
    """FA-02: an acknowledgement of a subtask that does not exist counts as that of the first one of its vertex."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Take a stranger for somebody else."""
        if isinstance(event, AcknowledgeCheckpoint) and event.subtask not in self._subtasks:
            first = SubtaskId(event.subtask.vertex, 0)
            part = msgspec.structs.replace(event.snapshot, subtask=first)
            event = msgspec.structs.replace(event, subtask=first, snapshot=part)
        return super().handle(event, now_ms)


class ComparesIdsAsText(CoordinatorMachine):
    """ID-02: the latest checkpoint is the last one by its name, so 9 comes after 10."""

    def _recovery(self) -> RecoveryPlan:
        last = max(self.completed, key=lambda completed: str(completed.checkpoint), default=None)
        return plan_recovery([last] if last else [], self._unreadable, self.config.on_unreadable)


class ComparesAttemptsAsText(CoordinatorMachine):
    """ID-03: attempts are compared by their names, so what attempt 9 sends late still counts in attempt 10."""

    def is_of_another_attempt(self, event: CoordinatorEvent) -> bool:
        """Fence off what is before the current attempt in the dictionary."""
        return isinstance(event, FENCED) and str(event.attempt) < str(self.attempt)


class EndsTheRowWithASavepoint(CoordinatorMachine):
    """TF-04: a savepoint that completes ends a row of failed checkpoints."""

    def _completed(self, completed: CompletedCheckpoint, now_ms: float) -> Commands:
        commands = super()._completed(completed, now_ms)
        self._failures_in_row = 0
        return commands


class CountsTheSubsumed(CoordinatorMachine):
    """TF-05: a checkpoint that a newer one subsumed counts as failed, after the newer one has ended the row."""

    def _abort(self, pending: PendingCheckpoint, now_ms: float, cause: Cause, reason: str) -> Commands:
        self._failures_in_row += cause is Cause.SUBSUMED
        return super()._abort(pending, now_ms, cause, reason)


class DeletesWhatCameTwice(CoordinatorMachine):
    """DU-01: what is not accepted is treated as late, so a second acknowledgement deletes the files of the first."""

    def _classify(self, event: AcknowledgeCheckpoint, pending: PendingCheckpoint | None) -> AcknowledgeResult:
        result = super()._classify(event, pending)
        return AcknowledgeResult.LATE if result is AcknowledgeResult.DUPLICATE else result


class NeverExpires(CoordinatorMachine):
    """SR-02: timeouts of checkpoints are never enforced."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Ignore that a checkpoint's timeout is over."""
        return () if isinstance(event, CheckpointExpired) else super().handle(event, now_ms)


class _OneMore(CheckpointAdmission):
    """Does not count the newest checkpoint in flight, except for the last one, which must be alone."""

    def decide(
        self,
        now_ms: float,
        in_flight: int,
        last_trigger_ms: float | None,
        last_end_ms: float | None,
        final: bool,
    ) -> Admission:
        counted = in_flight if final else max(0, in_flight - 1)
        return super().decide(now_ms, counted, last_trigger_ms, last_end_ms, final)


class _NoPause(CheckpointAdmission):
    """Ignores the time at which the last checkpoint ended."""

    def decide(
        self,
        now_ms: float,
        in_flight: int,
        last_trigger_ms: float | None,
        last_end_ms: float | None,
        final: bool,
    ) -> Admission:
        return super().decide(now_ms, in_flight, last_trigger_ms, None, final)


class _NoInterval(CheckpointAdmission):
    """Ignores the time of the last trigger."""

    def decide(
        self,
        now_ms: float,
        in_flight: int,
        last_trigger_ms: float | None,
        last_end_ms: float | None,
        final: bool,
    ) -> Admission:
        return super().decide(now_ms, in_flight, None, last_end_ms, final)


class AdmitsOneMore(CoordinatorMachine):
    """SR-03: one checkpoint too many is in flight."""

    def __init__(self, config: JobConfig, *arguments: Any) -> None:
        """Admit checkpoints in another way."""
        super().__init__(config, *arguments)
        self._admission = _OneMore(config.checkpoints) if config.checkpoints else None


class StopsAfterAnAbort(CoordinatorMachine):
    """CO-02: a trigger that waits for a slot is carried out when a checkpoint completes; if it is aborted, nobody asks
    again.
    """

    def __init__(self, *arguments: Any) -> None:
        """Start with no trigger that waits."""
        super().__init__(*arguments)
        self._forgotten = False

    def _abort(self, pending: PendingCheckpoint, now_ms: float, cause: Cause, reason: str) -> Commands:
        assert self.config.checkpoints is not None
        waits = len(self.pending) >= self.config.checkpoints.max_concurrent
        self._forgotten = self._forgotten or (waits and cause is not Cause.SUBSUMED)
        return super()._abort(pending, now_ms, cause, reason)

    def _completed(self, completed: CompletedCheckpoint, now_ms: float) -> Commands:
        self._forgotten = False
        return super()._completed(completed, now_ms)

    def _deploy(self) -> Commands:
        self._forgotten = False
        return super()._deploy()

    def _after_progress(self, now_ms: float) -> Commands:
        stops = self._forgotten and not self._input_is_consumed() and self._stop_wanted is None
        return () if stops else super()._after_progress(now_ms)


class KeepsNoPause(CoordinatorMachine):
    """SR-05: the minimum pause between checkpoints is ignored."""

    def __init__(self, config: JobConfig, *arguments: Any) -> None:
        """Admit checkpoints in another way."""
        super().__init__(config, *arguments)
        self._admission = _NoPause(config.checkpoints) if config.checkpoints else None


class KeepsNoInterval(CoordinatorMachine):
    """AD-01: checkpoints follow each other without the interval between them."""

    def __init__(self, config: JobConfig, *arguments: Any) -> None:
        """Admit checkpoints in another way."""
        super().__init__(config, *arguments)
        self._admission = _NoInterval(config.checkpoints) if config.checkpoints else None


class TakesOneAtATime(CoordinatorMachine):
    """AD-02: a checkpoint waits until none is in flight, however many may be."""

    def __init__(self, config: JobConfig, *arguments: Any) -> None:
        """Use another number than the configured one."""
        checkpoints = config.checkpoints
        if checkpoints is not None:
            checkpoints = replace(checkpoints, max_concurrent=1)
        super().__init__(replace(config, checkpoints=checkpoints), *arguments)


class BooksExpiryAsALoss(CoordinatorMachine):
    """CA-01: a checkpoint that expires is booked as lost with its attempt; the attempt goes on."""

    def on_expired(self, event: CheckpointExpired, now_ms: float) -> Commands:
        """Abort it for another reason, which nobody counts."""
        pending = self.pending.get(event.checkpoint)
        if pending is None or pending.completing:
            return ()
        aborted = self._abort(pending, now_ms, Cause.ATTEMPT_FAILED, "its time is over")
        return (*aborted, *self._after_progress(now_ms))


class TakesFailedMetadataForWritten(CoordinatorMachine):
    """MD-04: a checkpoint whose metadata could not be written is taken for complete."""

    def on_metadata_failed(self, event: MetadataFailed, now_ms: float) -> Commands:
        """Go on as if it had been written."""
        pending = self._whose_metadata(event, event.checkpoint)
        if pending.ends_the_job:
            return super().on_metadata_failed(event, now_ms)
        return self.on_written(MetadataWritten(pending.complete(now_ms)), now_ms)


class GivesUpForAStranger(CoordinatorMachine):
    """CA-02: an acknowledgement of nobody ends its checkpoint, as if a newer one were complete."""

    def on_acknowledge(self, event: AcknowledgeCheckpoint, now_ms: float) -> Commands:
        """Take the stranger's word for the end of the checkpoint."""
        commands = super().on_acknowledge(event, now_ms)
        pending = self.pending.get(event.checkpoint)
        if pending is None or pending.completing or event.subtask in self._subtasks:
            return commands
        ended = self._abort(pending, now_ms, Cause.SUBSUMED, "somebody else has acknowledged it")
        return (*commands, *ended, *self._after_progress(now_ms))


class ToleratesOneMore(CoordinatorMachine):
    """TF-01: one failure in a row more than configured is tolerated."""

    def __init__(self, config: JobConfig, *arguments: Any) -> None:
        """Use another number than the configured one."""
        checkpoints = config.checkpoints
        if checkpoints is not None:
            checkpoints = replace(checkpoints, tolerated_failures=checkpoints.tolerated_failures + 1)
        super().__init__(replace(config, checkpoints=checkpoints), *arguments)


class CountsDeclinesTwice(CoordinatorMachine):
    """TF-02: a decline counts as a failure although its checkpoint has failed already."""

    def on_decline(self, event: DeclineCheckpoint, now_ms: float) -> Commands:
        """Count it, whatever became of the checkpoint."""
        if event.checkpoint in self.pending or self.config.checkpoints is None:
            return super().on_decline(event, now_ms)
        self._failures_in_row += 1
        if self._failures_in_row > self.config.checkpoints.tolerated_failures:
            return self._stop(now_ms, Cause.CHECKPOINTS_FAILED, f"{event.subtask} declined again")
        return ()


class ForgivesStorage(CoordinatorMachine):
    """TF-03: a checkpoint whose metadata could not be written does not count as failed."""

    def on_metadata_failed(self, event: MetadataFailed, now_ms: float) -> Commands:
        """Abort the checkpoint, and count nothing."""
        pending = self._whose_metadata(event, event.checkpoint)
        if pending.savepoint is not None or pending.ends_the_job:
            return super().on_metadata_failed(event, now_ms)
        aborted = self._abort(pending, now_ms, Cause.STORAGE_FAILED, event.reason)
        return (*aborted, *self._after_progress(now_ms))


class _NeverForgets(FailureRate):
    """Counts every failure, however long ago it was."""

    def next_delay_ms(self, failed_ms: float, ran_ms: float) -> float | None:
        return super().next_delay_ms(0.0, ran_ms)


class CountsOldFailures(CoordinatorMachine):
    """RK-01: the failure rate counts failures that lie longer ago than its interval."""

    def __init__(self, config: JobConfig, *arguments: Any) -> None:
        """Count failures in another way."""
        super().__init__(config, *arguments)
        if isinstance(config.restart, FailureRateRestart):
            self._restart = _NeverForgets(config.restart)


class NeverWaitsLonger(CoordinatorMachine):
    """RK-02: the delay after a failure does not grow."""

    def __init__(self, config: JobConfig, *arguments: Any) -> None:
        """Use another factor than the configured one."""
        if isinstance(config.restart, ExponentialDelayRestart):
            slowest = msgspec.structs.replace(config.restart, factor=1.0)
            config = replace(config, restart=slowest)
        super().__init__(config, *arguments)


class _OneRow(ExponentialDelay):
    """Takes all failures for one row."""

    def next_delay_ms(self, failed_ms: float, ran_ms: float) -> float | None:
        return super().next_delay_ms(failed_ms, 0.0)


class NeverResetsTheDelay(CoordinatorMachine):
    """RK-03: the delay grows on although the job ran well for a long time."""

    def __init__(self, config: JobConfig, *arguments: Any) -> None:
        """Count rows in another way."""
        super().__init__(config, *arguments)
        if isinstance(config.restart, ExponentialDelayRestart):
            self._restart = _OneRow(config.restart)


class _CountsEveryRestart(ExponentialDelay):
    """Begins with the first delay again after a long run, but not with the first restart."""

    def next_delay_ms(self, failed_ms: float, ran_ms: float) -> float | None:
        used = self._in_row
        if used >= self._config.attempts_max:
            return None
        delay_ms = super().next_delay_ms(failed_ms, ran_ms)
        self._in_row = used + 1
        return delay_ms


class NeverResetsTheRow(CoordinatorMachine):
    """RK-04: a long run gives the first delay back, but none of the restarts that were used up before it."""

    def __init__(self, config: JobConfig, *arguments: Any) -> None:
        """Count rows in another way."""
        super().__init__(config, *arguments)
        if isinstance(config.restart, ExponentialDelayRestart):
            self._restart = _CountsEveryRestart(config.restart)


class StoresOnAfterAnAbort(SubtaskMachine):
    """AB-01: the asynchronous part of an aborted snapshot is not cancelled, and is acknowledged at its end."""

    def handle(self, event: SubtaskEvent) -> SubtaskCommands:
        """Note the abort, but continue to store."""
        waiting = dict(self._waiting)
        commands = super().handle(event)
        if not isinstance(event, NotifyCheckpointAborted) or event.checkpoint not in waiting:
            return commands
        self._waiting[event.checkpoint] = waiting[event.checkpoint]
        return tuple(command for command in commands if not isinstance(command, CancelSnapshot))


class IgnoresAborts(SubtaskMachine):
    """AB-02: a subtask does not care about aborts, and goes on with what nobody wants any more."""

    def handle(self, event: SubtaskEvent) -> SubtaskCommands:
        """Take every event but that one."""
        return () if isinstance(event, NotifyCheckpointAborted) else super().handle(event)


class LosesABarrierAtTheEnd(SubtaskDriver):
    """SR-04: the first barrier of a source that has ended is lost on its first channel."""

    def __init__(self, deployment: SubtaskDeployment, graph: JobGraph, *arguments: Any) -> None:
        """Start with no barrier lost."""
        super().__init__(deployment, graph, *arguments)
        self._channels = len(graph.outputs_of(deployment.subtask))
        self._lost = False

    def forward_barrier(self, command: ForwardBarrier) -> None:
        """Leave out one channel, once."""
        if not self.is_source or not self.exhausted or self._lost:
            super().forward_barrier(command)
            return
        self._lost = True
        for channel in range(1, self._channels):
            self.ports.output.send_control(channel, command.barrier)
        self.ports.probe.reach(RuntimePoint.BARRIER_FORWARDED, command.barrier.checkpoint)


class ObeysOneTriggerAtATime(SubtaskMachine):
    """SR-06: the first subtask of a source ignores a trigger until it knows what became of the checkpoint before."""

    _under_way: CheckpointId | None = None

    def handle(self, event: SubtaskEvent) -> SubtaskCommands:
        """Before the end of the input, wait for a word about the last checkpoint whose trigger was obeyed."""
        if isinstance(event, TriggerCheckpoint) and self.name.endswith("[0]"):
            if self._under_way is not None and not self.ending.is_drained:
                return ()
            self._under_way = event.checkpoint
        elif isinstance(event, (NotifyCheckpointComplete, NotifyCheckpointAborted)):
            self._under_way = None if event.checkpoint == self._under_way else self._under_way
        return super().handle(event)
