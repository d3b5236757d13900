"""Barrier alignment of one subtask: which channels are held back, and when a snapshot is due.

Theory of operation. Channels are numbered; each is FIFO. An alignment begins with the first barrier of a
checkpoint and ends with the last. A channel that delivered its barrier is held back, so that nothing behind the
barrier is processed before the snapshot (ALN-1); what arrives on it waits in the channel, in order. The end of
an alignment does *not* release the channels: they are released when the synchronous part of the snapshot has ended,
since only then may records behind the barrier touch the state (ALN-2). While every channel is held, no barrier can
come.

A channel that has ended counts as if it had delivered every barrier that is to come (BAR-6). When the last one that was
missing ends, the snapshot is due. When all have ended, no barrier comes any more, and checkpoints begin with a trigger.

A barrier is obsolete if its checkpoint, or a later one, was already aligned here, or if it was aborted. While m is
aligned, the barrier of an n > m means that m was skipped upstream: m is given up and n begins.
"""

from __future__ import annotations

from typing import ClassVar

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment_states import AlignmentState
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    NotifyCheckpointAborted,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.subtask_commands import (
    AlignmentCommand,
    NoteAlignmentStarted,
    SendDecline,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import (
    AlignmentEvent,
    BarrierArrived,
    ChannelClosed,
    SnapshotFailed,
    SnapshotTaken,
)
from barrier_tck.reference_impl.protocol.table import TableMachine, leads
from barrier_tck.reference_impl.runtime_errors import ProtocolError

AlignmentCommands = tuple[AlignmentCommand, ...]


class BarrierAligner(TableMachine[AlignmentState, AlignmentCommand]):
    """The aligner of an exactly-once subtask. ``blocked[channel]`` is read by the shell before every read."""

    def __init__(self, channels: int, subtask: str = "a subtask") -> None:
        """Start idle with all of ``channels`` (1 or more) input channels released."""
        super().__init__(f"the aligner of {subtask}", AlignmentState.IDLE)
        if channels < 1:
            raise ProtocolError("a subtask that aligns barriers needs at least one input channel")
        self.blocked = [False] * channels
        self.current: CheckpointId | None = None
        """The checkpoint that is being aligned, if any."""
        self.closed = [False] * channels
        """The channels that have ended."""
        self._barrier: CheckpointBarrier | None = None
        self._received = [False] * channels
        self._missing = channels
        self._last: int = 0
        self._aborted: list[int] = []

    def handle(self, event: AlignmentEvent) -> AlignmentCommands:
        """Handle one event and return the commands, in order; raises ProtocolError if the event is illegal."""
        return self._take(event)

    def _on_first_barrier(self, event: BarrierArrived) -> AlignmentCommands:
        if self.is_obsolete(event.barrier.checkpoint):
            return ()
        self.state = AlignmentState.ALIGNING
        self._barrier, self.current = event.barrier, event.barrier.checkpoint
        held = self._hold(event)
        return held if held else (NoteAlignmentStarted(event.barrier.checkpoint),)

    def _on_next_barrier(self, event: BarrierArrived) -> AlignmentCommands:
        checkpoint, current = event.barrier.checkpoint, self.current
        assert current is not None
        if checkpoint < current:
            return ()
        if checkpoint == current:
            self._check_first(event)
            return self._hold(event)
        self._give_up()
        skipped = f"channel {event.channel} skipped it and delivered barrier {checkpoint}"
        return (SendDecline(current, skipped), *self._on_first_barrier(event))

    def _check_first(self, event: BarrierArrived) -> None:
        """A channel delivers the barrier of a checkpoint once: a second one is illegal (BAR-2)."""
        if self._received[event.channel]:
            twice = f"channel {event.channel} delivered barrier {event.barrier.checkpoint} twice"
            raise self.illegal(event, f"{twice}; received so far: {self._received}")

    def _hold(self, event: BarrierArrived) -> AlignmentCommands:
        self.blocked[event.channel] = True
        return self._deliver(event.channel)

    def _deliver(self, channel: int) -> AlignmentCommands:
        """A channel delivered the barrier that is aligned, or ended before it."""
        self._received[channel] = True
        self._missing -= 1
        if self._missing:
            return ()
        assert self._barrier is not None
        return self._due(self._barrier)

    def _due(self, barrier: CheckpointBarrier) -> AlignmentCommands:
        self.state = AlignmentState.HOLDING
        self._last = barrier.checkpoint
        self._aborted = [n for n in self._aborted if n > barrier.checkpoint]
        self._forget_received()
        return (TakeSnapshot(barrier),)

    def _on_closed(self, event: ChannelClosed) -> AlignmentCommands:
        self.closed[event.channel] = True
        return self._count_closed(event.channel)

    def _count_closed(self, channel: int) -> AlignmentCommands:
        """A channel that has ended counts as aligned (BAR-6)."""
        if self.state is AlignmentState.ALIGNING and not self._received[channel]:
            return self._deliver(channel)
        if self.state is AlignmentState.IDLE:
            self._forget_received()
        return ()

    def _on_trigger(self, event: TriggerCheckpoint) -> AlignmentCommands:
        self._check_all_closed(event)
        if self.is_obsolete(event.checkpoint):
            return ()
        return self._due(event.barrier)

    def _check_all_closed(self, event: TriggerCheckpoint) -> None:
        """A subtask with channels is triggered only when all of them have ended: before, barriers reach it (BAR-6)."""
        if not all(self.closed):
            raise self.illegal(event, f"channels that have ended: {self.closed}")

    def _on_snapshot_ended(self, event: SnapshotTaken | SnapshotFailed) -> AlignmentCommands:
        self._release()
        return ()

    def _on_aborted(self, event: NotifyCheckpointAborted) -> AlignmentCommands:
        if event.checkpoint == self.current:
            self._give_up()
        elif event.checkpoint > self._last and event.checkpoint not in self._aborted:
            self._aborted.append(event.checkpoint)
        return ()

    def knows_newer(self, checkpoint: CheckpointId) -> bool:
        """Return whether a barrier newer than that of a checkpoint was read; none is before the snapshot is taken."""
        return self.current is not None and self.current > checkpoint

    def is_obsolete(self, checkpoint: CheckpointId) -> bool:
        """Barriers of a checkpoint are ignored if it or a later one was aligned here already, or if it was aborted."""
        return checkpoint <= self._last or checkpoint in self._aborted

    def _give_up(self) -> None:
        assert self.current is not None
        self._last = self.current
        self._forget_received()
        self._release()

    def _release(self) -> None:
        self.state = AlignmentState.IDLE
        self.blocked[:] = [False] * len(self._received)

    def _forget_received(self) -> None:
        self.current = self._barrier = None
        self._received = list(self.closed)
        self._missing = self._received.count(False)

    RULES: ClassVar = (is_obsolete, _check_first, _count_closed, _check_all_closed)

    TABLE: ClassVar = {
        AlignmentState.IDLE: {
            BarrierArrived: leads(_on_first_barrier, AlignmentState.ALIGNING, AlignmentState.HOLDING),
            ChannelClosed: _on_closed,
            TriggerCheckpoint: leads(_on_trigger, AlignmentState.HOLDING),
            NotifyCheckpointAborted: _on_aborted,
        },
        AlignmentState.ALIGNING: {
            BarrierArrived: leads(_on_next_barrier, AlignmentState.HOLDING, AlignmentState.IDLE),
            ChannelClosed: leads(_on_closed, AlignmentState.HOLDING),
            NotifyCheckpointAborted: leads(_on_aborted, AlignmentState.IDLE),
        },
        AlignmentState.HOLDING: {
            SnapshotTaken: leads(_on_snapshot_ended, AlignmentState.IDLE),
            SnapshotFailed: leads(_on_snapshot_ended, AlignmentState.IDLE),
        },
    }
