"""Planted bugs of alignment, barrier emission and coordination."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.protocol.alignment import BarrierAligner
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_checkpoints import Commands
from barrier_tck.reference_impl.protocol.coordinator_commands import (
    DeployAttempt,
    DiscardCheckpoint,
    DiscardSnapshot,
    NotifyComplete,
)
from barrier_tck.reference_impl.protocol.coordinator_events import (
    CoordinatorEvent,
    JobStarted,
    MetadataWritten,
)
from barrier_tck.reference_impl.protocol.heartbeats import FailureDetector
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    ChannelControl,
    CompletedCheckpoint,
    SubtaskSnapshot,
    ToSubtask,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.pending import PendingCheckpoint
from barrier_tck.reference_impl.protocol.recording import BarrierRecorder
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import ForwardBarrier
from barrier_tck.reference_impl.protocol.tracking import BarrierTracker
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver


class EmitsWhileDrawingCheckpoint(SubtaskDriver):
    """AL-01: the source reads its offset, emits one more batch, and then emits the barrier."""

    def forward_barrier(self, command: ForwardBarrier) -> None:
        """Emit a batch between the snapshot and the barrier."""
        if self.reader is not None and not self.exhausted:
            self.run_chain(0, self.reader.poll())
        super().forward_barrier(command)


class ReadsBehindTheBarrier(SubtaskDriver):
    """UC-03, aligned: a channel that delivered its barrier is read for one more batch before it is held."""

    def __init__(self, *arguments: Any) -> None:
        """Start with no channel held too late."""
        super().__init__(*arguments)
        self._late: list[int] = []

    def on_control(self, channel: int, element: ChannelControl) -> None:
        """Release the channel although it was just blocked."""
        super().on_control(channel, element)
        if self.blocked[channel]:
            self.blocked[channel] = False
            self._late.append(channel)

    def on_data(self, channel: int, payload: Payload) -> None:
        """Block the channel after the batch that it should not have delivered."""
        super().on_data(channel, payload)
        if channel in self._late:
            self._late.remove(channel)
            aligner = self.machine.aligner
            self.blocked[channel] = isinstance(aligner, BarrierAligner) and aligner.current is not None


class PutsBatchesAside(SubtaskDriver):
    """OR-01: every other batch waits until the next batch, or a control element, has overtaken it."""

    def __init__(self, *arguments: Any) -> None:
        """Start with no batch put aside."""
        super().__init__(*arguments)
        self._aside: list[tuple[int, Payload]] = []

    def on_data(self, channel: int, payload: Payload) -> None:
        """Put the batch aside, or process it and then the waiting one."""
        if self._aside or self.deployment.subtask.vertex != "totals":
            super().on_data(channel, payload)
            self._process_what_waits()
        else:
            self._aside.append((channel, payload))

    def on_control(self, channel: int, element: ChannelControl) -> None:
        """Let no batch wait beyond a barrier, so that snapshots are right."""
        self._process_what_waits()
        super().on_control(channel, element)

    def _process_what_waits(self) -> None:
        waiting, self._aside = self._aside, []
        for channel, payload in waiting:
            super().on_data(channel, payload)


class KeepsTheSubsumed(CoordinatorMachine):
    """SU-01: when a newer checkpoint completes, only completed ones are dropped, but no pending ones."""

    def _subsume(self, checkpoint: CheckpointId, now_ms: float) -> Commands:
        pending, self.pending = self.pending, {}
        try:
            return super()._subsume(checkpoint, now_ms)
        finally:
            self.pending = pending


class TellsBeforeItIsDurable(CoordinatorMachine):
    """MD-02: the notification goes out together with the metadata, not after it."""

    def complete_when_acknowledged(self, pending: PendingCheckpoint, now_ms: float) -> Commands:
        """Notify at once."""
        told = NotifyComplete(self.attempt, pending.checkpoint)
        return (told, *super().complete_when_acknowledged(pending, now_ms))


class KeepsLateState(CoordinatorMachine):
    """CO-01: a late acknowledgement is ignored together with the files that it names."""

    def discard_late(self, checkpoint: CheckpointId, snapshot: SubtaskSnapshot) -> Commands:
        """Forget the files."""
        return ()


class WaitsForTheDead(CoordinatorMachine):
    """CO-03: a failed task's missing acknowledgement does not abort the pending checkpoint."""

    def abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Keep every pending checkpoint pending."""
        return ()


class CountsTheDeadAsDone(CoordinatorMachine):
    """CO-08: a failed task is removed from those awaited, as if it had acknowledged."""

    def abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Complete checkpoints that now wait for nobody; abort the rest as the product does."""
        commands: Commands = ()
        for pending in list(self.pending.values()):
            if failed in pending.awaiting and not pending.completing:
                del pending.awaiting[failed]
                if pending.fully_acknowledged:
                    commands += self.complete_when_acknowledged(pending, now_ms)
        return commands + super().abort_on_failure(now_ms, reason, failed)


class RunsTriggersInThreadsOfTheirOwn(SubtaskDriver):
    """AL-02: the first source carries out every second trigger some batches late, so others overtake it."""

    BATCHES_LATE = 2

    def __init__(self, *arguments: Any) -> None:
        """Start with no late trigger."""
        super().__init__(*arguments)
        self._late: list[TriggerCheckpoint] = []
        self._polls_left = 0

    def on_message(self, message: ToSubtask) -> None:
        """Put the trigger of a checkpoint with an odd id aside."""
        first = self.is_source and self.deployment.subtask.index == 0
        if first and isinstance(message, TriggerCheckpoint) and message.checkpoint % 2 and not self.exhausted:
            self._late.append(message)
            self._polls_left = self.BATCHES_LATE
            return
        super().on_message(message)

    def poll_source(self) -> float | None:
        """Carry out the late triggers once enough batches were read, or when the input has ended."""
        wait_ms = super().poll_source()
        self._polls_left -= 1
        if self._late and (wait_ms is None or self._polls_left <= 0):
            late, self._late = self._late, []
            for message in late:
                super().on_message(message)
        return wait_ms


class ExecutesOvertakenTriggers(SubtaskMachine):
    """AL-02: a trigger is carried out although a newer one came before it."""

    def is_overtaken(self, checkpoint: CheckpointId) -> bool:
        """Say no, whatever the order."""
        return False


class RestoresTheUncommitted(CoordinatorMachine):
    """CO-10: recovery starts from the newest checkpoint in flight, complete or not."""

    def __init__(self, *arguments: Any) -> None:
        """Start with nothing in flight."""
        super().__init__(*arguments)
        self._uncommitted: CompletedCheckpoint | None = None

    def abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Remember the newest of several checkpoints in flight, and keep its files."""
        doomed = [pending for pending in self.pending.values() if not pending.completing and pending.parts]
        self._uncommitted = doomed[-1].complete(now_ms) if len(self.pending) > 1 and doomed else None
        kept = self._uncommitted.checkpoint if self._uncommitted is not None else None
        commands = super().abort_on_failure(now_ms, reason, failed)
        self._aborted = [aborted for aborted in self._aborted if aborted != kept]
        return tuple(command for command in commands if command != _discards(kept))

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Deploy from the remembered checkpoint."""
        commands = super().handle(event, now_ms)
        uncommitted = self._uncommitted
        if uncommitted is None:
            return commands
        return tuple(
            replace(command, restore=uncommitted) if isinstance(command, DeployAttempt) else command
            for command in commands
        )


class AcceptsLateAcknowledgements(CoordinatorMachine):
    """FE-01: late acknowledgements are not fenced: the last one completes a failed attempt's checkpoint."""

    def __init__(self, *arguments: Any) -> None:
        """Start with no aborted checkpoint."""
        super().__init__(*arguments)
        self._given_up: dict[CheckpointId, PendingCheckpoint] = {}

    def abort_on_failure(self, now_ms: float, reason: str, failed: SubtaskId | None) -> Commands:
        """Abort as the product does, and remember what was aborted."""
        self._given_up.update(self.pending)
        return super().abort_on_failure(now_ms, reason, failed)

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Complete an aborted checkpoint if only the sender of this acknowledgement was missing."""
        if isinstance(event, AcknowledgeCheckpoint) and event.checkpoint in self._given_up:
            pending = self._given_up[event.checkpoint]
            pending.acknowledge(event.subtask, event.snapshot)
            if pending.fully_acknowledged and not pending.completing:
                self.pending[event.checkpoint] = pending
                return self.complete_when_acknowledged(pending, now_ms)
        return super().handle(event, now_ms)


class WaitsForTheSilent(FailureDetector):
    """HB-01: heartbeats are counted, but their absence has no consequence."""

    def is_lost(self, silent_ms: float) -> bool:
        """Say no, however long the silence."""
        return False


class DeletesOneTooMany(CoordinatorMachine):
    """RT-01: retention counts the newest checkpoint twice, and deletes files of a checkpoint that is still retained."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Also delete the files of the oldest retained checkpoint, but not its metadata."""
        commands = super().handle(event, now_ms)
        if not isinstance(event, MetadataWritten) or len(self.completed) < 2:
            return commands
        return (*commands, *(DiscardSnapshot(part, part.handles()) for part in self.completed[0].snapshots))


class GivesIdsOutAgain(CoordinatorMachine):
    """ID-01: after a restart, ids continue from the newest completed checkpoint, whatever was triggered after it."""

    def handle(self, event: CoordinatorEvent, now_ms: float) -> Commands:
        """Forget the reserved ids."""
        if isinstance(event, JobStarted):
            newest = max((completed.checkpoint for completed in event.completed), default=0)
            event = replace(event, last_checkpoint=int(newest))
        return super().handle(event, now_ms)


def _discards(checkpoint: CheckpointId | None) -> DiscardCheckpoint | None:
    return DiscardCheckpoint(checkpoint) if checkpoint is not None else None


class _FirstBarrierTracker(BarrierTracker):
    """Says that the snapshot is due as soon as any channel has delivered the barrier."""

    def snapshot_due(self, missing: int) -> bool:
        return True


class SnapshotsAtTheFirstBarrier(SubtaskMachine):
    """AO-01: at-least-once mode does not wait for the barriers of the other channels."""

    def new_aligner(
        self, channels: int, mode: CheckpointMode
    ) -> BarrierAligner | BarrierTracker | BarrierRecorder:
        """Return a tracker that does not wait in at-least-once mode."""
        if mode is CheckpointMode.AT_LEAST_ONCE:
            return _FirstBarrierTracker(channels, self.name)
        return super().new_aligner(channels, mode)


class AlignsInEveryMode(SubtaskMachine):
    """AO-05: at-least-once mode holds channels back until all barriers have come, as exactly-once mode does."""

    def new_aligner(
        self, channels: int, mode: CheckpointMode
    ) -> BarrierAligner | BarrierTracker | BarrierRecorder:
        """Return an aligner where a tracker should be."""
        aligned = CheckpointMode.EXACTLY_ONCE if mode is CheckpointMode.AT_LEAST_ONCE else mode
        return super().new_aligner(channels, aligned)
