"""The subtask's checkpoint machine: events in, commands out.

Theory of operation. A checkpoint passes through a subtask in these steps, each answered by the shell:

    trigger (source) or last barrier  ->  TakeSnapshot      the synchronous part; the shell answers
    SnapshotTaken                     ->  ForwardBarrier, StoreSnapshot; the aligner releases channels (SNP-1, SNP-3)
    SnapshotStored                    ->  SendAcknowledge
    NotifyCheckpointComplete          ->  NotifyOperatorsComplete: sinks commit (SNK-1)

``SnapshotFailed`` at either part leads to ``SendDecline`` (COO-2); ``NotifyCheckpointAborted`` cancels what runs and
releases what is held. A source ignores a trigger that is not newer than its last (an overtaken trigger must not
emit an old barrier). The end of all inputs leads to ``EndInput`` once; barriers still pass afterwards.

Whether records flow is never decided here: the aligner's ``blocked`` list is all that the shell asks (BAR-5). The
mode decides which aligner that is: one that holds channels back (``alignment``), or one that only counts barriers
(``tracking``, ALO-1). Several checkpoints may pass at once (BAR-4): synchronous parts follow one another, stores
overlap, and outcomes come in any order. So the machine's state is about the subtask, and which snapshots are being
stored is a list beside it.
"""

from __future__ import annotations

from typing import ClassVar

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import BarrierAligner
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.subtask_commands import (
    CancelSnapshot,
    EndInput,
    ForwardBarrier,
    NotifyOperatorsAborted,
    NotifyOperatorsComplete,
    SendAcknowledge,
    SendDecline,
    StoreSnapshot,
    SubtaskCommand,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import (
    BarrierArrived,
    InputEnded,
    SnapshotFailed,
    SnapshotStored,
    SnapshotTaken,
    SubtaskEvent,
)
from barrier_tck.reference_impl.protocol.subtask_states import SubtaskState
from barrier_tck.reference_impl.protocol.table import Entry, TableMachine, leads
from barrier_tck.reference_impl.protocol.tracking import BarrierTracker

SubtaskCommands = tuple[SubtaskCommand, ...]


class SubtaskMachine(TableMachine[SubtaskState, SubtaskCommand]):
    """The checkpoint machine of one subtask of one attempt. ``handle`` is the only door."""

    def __init__(self, name: str, channels: int, mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE) -> None:
        """Take the subtask's name (for the story), its number of input channels (0: a source), and the mode."""
        super().__init__(name, SubtaskState.RUNNING)
        self.aligner = self.new_aligner(channels, mode) if channels else None
        self.blocked: list[bool] = self.aligner.blocked if self.aligner else []
        self._last_triggered = 0
        self._taking: CheckpointId | None = None
        self._storing: list[CheckpointId] = []
        self._open_inputs = [True] * max(channels, 1)

    def new_aligner(self, channels: int, mode: CheckpointMode) -> BarrierAligner | BarrierTracker:
        """Return what the mode asks for: an aligner, or a tracker that holds nothing back (ALO-1)."""
        kind = BarrierTracker if mode is CheckpointMode.AT_LEAST_ONCE else BarrierAligner
        return kind(channels, self.name)

    def handle(self, event: SubtaskEvent) -> SubtaskCommands:
        """Take one event and return what to do, in order; raises ProtocolError if the event is illegal."""
        return self._take(event)

    def _on_trigger(self, event: TriggerCheckpoint) -> SubtaskCommands:
        self._check_role(event, self.aligner is None)
        if self.is_overtaken(event.checkpoint):
            return ()
        self._last_triggered = event.checkpoint
        return self._take_snapshot((TakeSnapshot(CheckpointBarrier(event.checkpoint, event.timestamp_ms)),))

    def _on_barrier(self, event: BarrierArrived) -> SubtaskCommands:
        self._check_role(event, self.aligner is not None)
        assert self.aligner is not None
        return self._take_snapshot(self.aligner.handle(event))

    def _check_role(self, event: SubtaskEvent, right: bool) -> None:
        """A source is triggered and reads no channel; any other subtask reads channels and is never triggered."""
        if not right:
            role = "a source reads no channel" if self.aligner is None else "only a source is triggered"
            raise self.illegal(event, role)

    def is_overtaken(self, checkpoint: CheckpointId) -> bool:
        """A source ignores a trigger that is not newer than its last: barriers leave in the order of ids (BAR-2)."""
        return checkpoint <= self._last_triggered

    def _take_snapshot(self, commands: SubtaskCommands) -> SubtaskCommands:
        """Stand still for the synchronous part, if that is what the commands end with."""
        last = commands[-1] if commands else None
        if isinstance(last, TakeSnapshot):
            self.state = SubtaskState.SNAPSHOTTING
            self._taking = last.barrier.checkpoint
        return commands

    def _on_taken(self, event: SnapshotTaken) -> SubtaskCommands:
        checkpoint = event.barrier.checkpoint
        self._check_taking(event, checkpoint)
        self._go_on(event)
        self._storing.append(checkpoint)
        return (ForwardBarrier(event.barrier), StoreSnapshot(checkpoint))

    def _on_not_taken(self, event: SnapshotFailed) -> SubtaskCommands:
        self._check_taking(event, event.checkpoint)
        self._go_on(event)
        return (SendDecline(event.checkpoint, event.reason),)

    def _check_taking(self, event: SubtaskEvent, checkpoint: CheckpointId) -> None:
        """The outcome of a synchronous part must belong to the snapshot that is being taken."""
        if checkpoint != self._taking:
            raise self.illegal(event, f"the snapshot being taken is {self._taking}")

    def _go_on(self, event: SnapshotTaken | SnapshotFailed) -> None:
        if self.aligner is not None:
            self.aligner.handle(event)
        self._taking = None
        self.state = SubtaskState.RUNNING if any(self._open_inputs) else SubtaskState.DRAINED

    def _on_stored(self, event: SnapshotStored) -> SubtaskCommands:
        self._end_store(event)
        return (SendAcknowledge(event.checkpoint),)

    def _on_not_stored(self, event: SnapshotFailed) -> SubtaskCommands:
        self._end_store(event)
        return (SendDecline(event.checkpoint, event.reason),)

    def _end_store(self, event: SnapshotStored | SnapshotFailed) -> None:
        """The outcome of an asynchronous part must belong to a snapshot that is still being stored."""
        if event.checkpoint not in self._storing:
            raise self.illegal(event, f"snapshots being stored: {self._storing}")
        self._storing.remove(event.checkpoint)

    def _on_complete(self, event: NotifyCheckpointComplete) -> SubtaskCommands:
        return (NotifyOperatorsComplete(event.checkpoint),)

    def _on_aborted(self, event: NotifyCheckpointAborted) -> SubtaskCommands:
        if self.aligner is not None:
            self.aligner.handle(event)
        else:
            self._last_triggered = max(self._last_triggered, event.checkpoint)
        told = NotifyOperatorsAborted(event.checkpoint)
        if event.checkpoint not in self._storing:
            return (told,)
        self._storing.remove(event.checkpoint)
        return (CancelSnapshot(event.checkpoint), told)

    def _on_input_ended(self, event: InputEnded) -> SubtaskCommands:
        self._check_open(event)
        self._open_inputs[event.channel] = False
        if any(self._open_inputs):
            return ()
        self.state = SubtaskState.DRAINED
        return (EndInput(),)

    def _check_open(self, event: InputEnded) -> None:
        """A channel ends only once."""
        if not self._open_inputs[event.channel]:
            raise self.illegal(event, "the channel had already ended")

    RULES: ClassVar = (_check_role, is_overtaken, _check_taking, _end_store, _check_open)

    _WHILE_BARRIERS_PASS: ClassVar[dict[type, Entry]] = {
        TriggerCheckpoint: leads(_on_trigger, SubtaskState.SNAPSHOTTING),
        BarrierArrived: leads(_on_barrier, SubtaskState.SNAPSHOTTING),
        SnapshotStored: _on_stored,
        SnapshotFailed: _on_not_stored,
        NotifyCheckpointComplete: _on_complete,
        NotifyCheckpointAborted: _on_aborted,
    }

    TABLE: ClassVar = {
        SubtaskState.RUNNING: {
            **_WHILE_BARRIERS_PASS,
            InputEnded: leads(_on_input_ended, SubtaskState.DRAINED),
        },
        SubtaskState.SNAPSHOTTING: {
            SnapshotTaken: leads(_on_taken, SubtaskState.RUNNING, SubtaskState.DRAINED),
            SnapshotFailed: leads(_on_not_taken, SubtaskState.RUNNING, SubtaskState.DRAINED),
        },
        SubtaskState.DRAINED: _WHILE_BARRIERS_PASS,
    }
