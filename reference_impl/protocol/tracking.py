"""Barrier tracking of one at-least-once subtask: nothing is held back, and a snapshot is due all the same (ALO-1).

Theory of operation. Channels are numbered; each is FIFO. The tracker only counts: for every checkpoint of which
a barrier has come it knows which channels delivered it, and the snapshot is due when each of them has. Nothing
waits meanwhile, so the snapshot of n may hold records from behind barrier n, of channels that delivered theirs
early; a restore of n replays them, and they are counted twice (ALO-2). Records before barrier n are all in it,
whatever the order in which channels deliver: nothing is lost.

As no channel is held, barriers of later checkpoints arrive while earlier ones are still being counted, so there
is no single current checkpoint as in ``alignment``, but a row of them. For each checkpoint n on its own:

====================  ====================================  ==================================================
n is                  BarrierArrived(n)                     CheckpointAborted(n)
====================  ====================================  ==================================================
unknown               begin to count; complete if the       remember n, so that its barriers are ignored
                      channel was the only one missing
counted               mark the channel; if it was the last  forget what was counted, remember n
                      one: complete n, and give up every
                      older one, since a channel skipped
                      it or delivers it too late
obsolete              ignored                               ignored if a snapshot of n or of a later one was
                                                            due; else remembered already
====================  ====================================  ==================================================

A checkpoint is obsolete if its snapshot, or a later one's, was due here already, or if it was aborted. A channel
that delivers the same barrier twice breaks BAR-2 and raises. Memory is bounded: beyond ``TRACKED_MAX``
checkpoints the oldest is given up, and beyond as many remembered aborts everything up to the oldest of them
counts as obsolete.
"""

from __future__ import annotations

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import (
    AlignmentAbandoned,
    AlignmentCompleted,
    AlignmentOutcome,
    AlignmentPhase,
    AlignmentStarted,
)
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier
from barrier_tck.reference_impl.runtime_errors import ProtocolError

TRACKED_MAX = 64
"""Most checkpoints that are counted at once, and most aborts that are remembered; far above what is in flight."""


class _Counted:
    """Which channels delivered the barrier of one checkpoint."""

    __slots__ = ("missing", "received")

    def __init__(self, channels: int) -> None:
        self.received = [False] * channels
        self.missing = channels


class BarrierTracker:
    """The tracker of an at-least-once subtask, with the interface of ``BarrierAligner``.

    ``blocked[channel]`` is False for every channel, always.
    """

    def __init__(self, channels: int) -> None:
        """Start with nothing to count for ``channels`` (1 or more) input channels."""
        if channels < 1:
            raise ProtocolError("a subtask that tracks barriers needs at least one input channel")
        self.blocked = [False] * channels
        self._counted: dict[CheckpointId, _Counted] = {}
        self._last: int = 0
        self._aborted: list[int] = []

    @property
    def phase(self) -> AlignmentPhase:
        """Return ALIGNING while any checkpoint is being counted."""
        return AlignmentPhase.ALIGNING if self._counted else AlignmentPhase.IDLE

    @property
    def current(self) -> CheckpointId | None:
        """Return the oldest checkpoint that is being counted, if any."""
        return min(self._counted, default=None)

    @property
    def tracked(self) -> tuple[CheckpointId, ...]:
        """Return the checkpoints that are being counted, oldest first."""
        return tuple(sorted(self._counted))

    def barrier_arrived(self, channel: int, barrier: CheckpointBarrier) -> tuple[AlignmentOutcome, ...]:
        """Take a barrier that was read from a channel."""
        checkpoint = barrier.checkpoint
        if self.is_obsolete(checkpoint):
            return ()
        counted = self._counted.get(checkpoint)
        if counted is None:
            counted = self._counted[checkpoint] = _Counted(len(self.blocked))
        if counted.received[channel]:
            raise ProtocolError(
                f"channel {channel} delivered barrier {checkpoint} twice; received so far: {counted.received}"
            )
        counted.received[channel] = True
        counted.missing -= 1
        if self.snapshot_due(counted.missing):
            return self._complete(barrier)
        first = counted.missing == len(self.blocked) - 1
        outcomes: tuple[AlignmentOutcome, ...] = (AlignmentStarted(barrier),) if first else ()
        return outcomes + self._give_up_beyond_bound()

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> None:
        """Learn that a checkpoint was aborted: stop counting it, ignore what still comes of it."""
        self._counted.pop(checkpoint, None)
        if checkpoint <= self._last or checkpoint in self._aborted:
            return
        self._aborted.append(checkpoint)
        if len(self._aborted) > TRACKED_MAX:
            # What is older than the oldest abort still remembered was aborted or overtaken long ago.
            self._last = max(self._last, min(self._aborted))
            self._forget_obsolete()

    def is_obsolete(self, checkpoint: CheckpointId) -> bool:
        """Tell whether barriers of this checkpoint are to be ignored."""
        return checkpoint <= self._last or checkpoint in self._aborted

    def release(self) -> None:
        """Do nothing: no channel is ever held back."""

    def snapshot_due(self, missing: int) -> bool:
        """Tell whether the snapshot is due with so many channels missing."""
        return missing == 0

    def _complete(self, barrier: CheckpointBarrier) -> tuple[AlignmentOutcome, ...]:
        given_up = tuple(
            AlignmentAbandoned(older, f"checkpoint {barrier.checkpoint} overtook it")
            for older in self.tracked
            if older < barrier.checkpoint
        )
        self._last = barrier.checkpoint
        self._forget_obsolete()
        return (*given_up, AlignmentCompleted(barrier))

    def _give_up_beyond_bound(self) -> tuple[AlignmentOutcome, ...]:
        if len(self._counted) <= TRACKED_MAX:
            return ()
        oldest = min(self._counted)
        self._last = max(self._last, oldest)
        self._forget_obsolete()
        return (AlignmentAbandoned(oldest, f"more than {TRACKED_MAX} checkpoints were being counted"),)

    def _forget_obsolete(self) -> None:
        self._counted = {n: counted for n, counted in self._counted.items() if n > self._last}
        self._aborted = [n for n in self._aborted if n > self._last]
