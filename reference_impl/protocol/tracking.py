"""Barrier tracking of one at-least-once subtask: nothing is held back, and a snapshot is due all the same (ALO-1).

Theory of operation. Channels are numbered; each is FIFO. The tracker only counts: for every checkpoint of which a
barrier has come, it knows which channels have delivered theirs. The snapshot is due when all have. Nothing waits
meanwhile, so the snapshot of n may hold records from behind barrier n, of channels that delivered theirs early; a
restore of n replays them, and they are counted twice (ALO-2). Records before barrier n are all in it, whatever the
order in which channels deliver: nothing is lost.

As no channel is held, barriers of later checkpoints arrive while earlier ones are still being counted, so there is no
single current checkpoint as in ``alignment``, but several at once, and ``TABLE`` describes each one on its own. When
n completes, every older one that is still counted is given up, since a channel skipped it or delivers it too late.

A channel that has ended counts as if it had delivered every barrier that is to come (BAR-6). So its end may make
several snapshots due at once; they are taken one after the other, oldest first.

A checkpoint is obsolete if its snapshot, or a later one's, was due here already, or if it was aborted. A channel
that delivers the same barrier twice breaks BAR-2 and raises. Memory is bounded: beyond ``TRACKED_MAX``
checkpoints the oldest is given up, and beyond the same number of remembered aborts, everything up to the oldest of
them counts as obsolete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import AlignmentCommands
from barrier_tck.reference_impl.protocol.alignment_states import TrackingState
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
from barrier_tck.reference_impl.protocol.table import IGNORED, TableMachine, leads
from barrier_tck.reference_impl.runtime_errors import ProtocolError

TRACKED_MAX = 64
"""Most checkpoints that are counted at once, and most aborts that are remembered; far above what is in flight."""


class _Counted:
    """Which channels delivered the barrier of one checkpoint."""

    __slots__ = ("barrier", "missing", "received")

    def __init__(self, barrier: CheckpointBarrier, closed: Sequence[bool]) -> None:
        self.barrier = barrier
        self.received = list(closed)
        self.missing = self.received.count(False)


class BarrierTracker(TableMachine[TrackingState, AlignmentCommand]):
    """The tracker of an at-least-once subtask; takes the place of a ``BarrierAligner``.

    ``blocked[channel]`` is False for every channel, always. The states are those of single checkpoints.
    """

    def __init__(self, channels: int, subtask: str = "a subtask") -> None:
        """Start with nothing to count for ``channels`` (1 or more) input channels."""
        super().__init__(f"the tracker of {subtask}", TrackingState.UNKNOWN)
        if channels < 1:
            raise ProtocolError("a subtask that tracks barriers needs at least one input channel")
        self.blocked = [False] * channels
        self.closed = [False] * channels
        """The channels that have ended."""
        self._counted: dict[CheckpointId, _Counted] = {}
        self._last: int = 0
        self._aborted: list[int] = []

    def handle(self, event: AlignmentEvent) -> AlignmentCommands:
        """Handle one event and return the commands, in order; raises ProtocolError if the event is illegal."""
        return self._take(event)

    def state_for(self, event: AlignmentEvent) -> TrackingState:
        """The table describes the one checkpoint that an event is about; the end of a channel is about none."""
        if isinstance(event, ChannelClosed):
            return TrackingState.UNKNOWN
        checkpoint = (
            event.barrier.checkpoint
            if isinstance(event, BarrierArrived | SnapshotTaken)
            else event.checkpoint
        )
        if checkpoint in self._counted:
            return TrackingState.COUNTED
        return TrackingState.OBSOLETE if self.is_obsolete(checkpoint) else TrackingState.UNKNOWN

    @property
    def tracked(self) -> tuple[CheckpointId, ...]:
        """Return the checkpoints that are being counted, oldest first."""
        return tuple(sorted(self._counted))

    def _on_first_barrier(self, event: BarrierArrived) -> AlignmentCommands:
        checkpoint = event.barrier.checkpoint
        self._counted[checkpoint] = _Counted(event.barrier, self.closed)
        counted = self._count(event)
        if checkpoint not in self._counted:
            return counted
        return (*counted, NoteAlignmentStarted(checkpoint), *self._give_up_beyond_bound())

    def _on_next_barrier(self, event: BarrierArrived) -> AlignmentCommands:
        self._check_first(event)
        return self._count(event)

    def _check_first(self, event: BarrierArrived) -> None:
        """A channel delivers the barrier of a checkpoint once: a second one is illegal (BAR-2)."""
        received = self._counted[event.barrier.checkpoint].received
        if received[event.channel]:
            twice = f"channel {event.channel} delivered barrier {event.barrier.checkpoint} twice"
            raise self.illegal(event, f"{twice}; received so far: {received}")

    def _count(self, event: BarrierArrived) -> AlignmentCommands:
        counted = self._counted[event.barrier.checkpoint]
        counted.received[event.channel] = True
        counted.missing -= 1
        return self._take_snapshot(event.barrier) if self._snapshot_due(counted.missing) else ()

    def _take_snapshot(self, barrier: CheckpointBarrier) -> AlignmentCommands:
        checkpoint = barrier.checkpoint
        given_up = tuple(
            SendDecline(older, f"checkpoint {checkpoint} overtook it")
            for older in self.tracked
            if older < checkpoint
        )
        self._last = checkpoint
        self._forget_obsolete()
        return (*given_up, TakeSnapshot(barrier))

    def _on_closed(self, event: ChannelClosed) -> AlignmentCommands:
        self.closed[event.channel] = True
        self._count_closed(event.channel)
        return self._take_due()

    def _count_closed(self, channel: int) -> None:
        """A channel that has ended counts as if it had delivered every barrier (BAR-6)."""
        for counted in self._counted.values():
            if not counted.received[channel]:
                counted.received[channel] = True
                counted.missing -= 1

    def _take_due(self) -> AlignmentCommands:
        """After the end of a channel the oldest snapshot that is due is taken, and the next one when that has ended."""
        due = [n for n in self.tracked if self._snapshot_due(self._counted[n].missing)]
        return self._take_snapshot(self._counted[due[0]].barrier) if due else ()

    def _on_snapshot_ended(self, event: SnapshotTaken | SnapshotFailed) -> AlignmentCommands:
        return self._take_due()

    def _on_trigger(self, event: TriggerCheckpoint) -> AlignmentCommands:
        self._check_all_closed(event)
        barrier = event.barrier
        return self._take_snapshot(barrier)

    def _check_all_closed(self, event: TriggerCheckpoint) -> None:
        """A subtask with channels is triggered only when all of them have ended: before, barriers reach it (BAR-6)."""
        if not all(self.closed):
            raise self.illegal(event, f"channels that have ended: {self.closed}")

    def _on_aborted(self, event: NotifyCheckpointAborted) -> AlignmentCommands:
        self._counted.pop(event.checkpoint, None)
        self._aborted.append(event.checkpoint)
        if len(self._aborted) > TRACKED_MAX:
            # What is older than the oldest abort still remembered was aborted or overtaken long ago.
            self._last = max(self._last, min(self._aborted))
            self._forget_obsolete()
        return ()

    def knows_newer(self, checkpoint: CheckpointId) -> bool:
        """Return whether barriers of a newer checkpoint are being counted."""
        return any(number > checkpoint for number in self._counted)

    def is_obsolete(self, checkpoint: CheckpointId) -> bool:
        """Barriers of a checkpoint are ignored if a snapshot of it or of a later one was due, or if it was aborted."""
        return checkpoint <= self._last or checkpoint in self._aborted

    def _snapshot_due(self, missing: int) -> bool:
        """Return whether the snapshot is due with this many channels missing."""
        return missing == 0

    def _give_up_beyond_bound(self) -> AlignmentCommands:
        """If more than ``TRACKED_MAX`` checkpoints are counted, the oldest one is given up: memory is bounded."""
        if len(self._counted) <= TRACKED_MAX:
            return ()
        oldest = min(self._counted)
        self._last = max(self._last, oldest)
        self._forget_obsolete()
        return (SendDecline(oldest, f"more than {TRACKED_MAX} checkpoints were being counted"),)

    def _forget_obsolete(self) -> None:
        self._counted = {n: counted for n, counted in self._counted.items() if n > self._last}
        self._aborted = [n for n in self._aborted if n > self._last]

    RULES: ClassVar = (
        state_for,
        is_obsolete,
        _check_first,
        _count_closed,
        _take_due,
        _check_all_closed,
        _give_up_beyond_bound,
    )

    TABLE: ClassVar = {
        TrackingState.UNKNOWN: {
            BarrierArrived: leads(_on_first_barrier, TrackingState.COUNTED, TrackingState.OBSOLETE),
            ChannelClosed: _on_closed,
            TriggerCheckpoint: leads(_on_trigger, TrackingState.OBSOLETE),
            NotifyCheckpointAborted: leads(_on_aborted, TrackingState.OBSOLETE),
        },
        TrackingState.COUNTED: {
            BarrierArrived: leads(_on_next_barrier, TrackingState.OBSOLETE),
            NotifyCheckpointAborted: leads(_on_aborted, TrackingState.OBSOLETE),
        },
        TrackingState.OBSOLETE: {
            BarrierArrived: IGNORED,
            NotifyCheckpointAborted: IGNORED,
            TriggerCheckpoint: IGNORED,
            # No channel is held, so none is released.
            SnapshotTaken: _on_snapshot_ended,
            SnapshotFailed: _on_snapshot_ended,
        },
    }
