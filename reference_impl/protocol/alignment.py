"""Barrier alignment of one subtask: which channels are held back, and when a snapshot is due.

Theory of operation. Channels are numbered; each is FIFO. An alignment begins with the first barrier of a
checkpoint and ends with the last. A channel that delivered its barrier is held back, so that nothing behind the
barrier is processed before the snapshot (ALN-1); what arrives on it waits in the channel, in order. The end of
an alignment does *not* release the channels: the subtask releases them when the synchronous part of the
snapshot has ended, for only then may records behind the barrier touch the state (ALN-2).

The table (an absent pair is illegal; in both phases):

====================  ====================================  ==================================================
phase                 BarrierArrived(n)                     CheckpointAborted(n)
====================  ====================================  ==================================================
IDLE                  obsolete n: ignored                   remember n, so that its barriers are ignored
                      else: hold the channel; begin n, and
                      complete it if the channel was the
                      only one missing
ALIGNING m            n = m: hold; complete if the last     n = m: release all, IDLE
                      n > m: m was skipped upstream: give   else: remember n
                      m up, release all, begin n
                      n < m: obsolete, ignored
====================  ====================================  ==================================================

A barrier is obsolete if its checkpoint, or a later one, was already aligned here, or if it was aborted. A
channel that delivers the same barrier twice breaks BAR-2 and raises.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier
from barrier_tck.reference_impl.runtime_errors import ProtocolError


class AlignmentPhase(Enum):
    """Where an aligner stands."""

    IDLE = "idle"
    ALIGNING = "aligning"


class AlignmentStarted(msgspec.Struct, frozen=True):
    """The first barrier came and others are missing."""

    barrier: CheckpointBarrier


class AlignmentCompleted(msgspec.Struct, frozen=True):
    """Every channel delivered the barrier: the snapshot is due. All channels are held back."""

    barrier: CheckpointBarrier


class AlignmentAbandoned(msgspec.Struct, frozen=True):
    """An alignment was given up; the checkpoint cannot complete here."""

    checkpoint: CheckpointId
    reason: str


AlignmentOutcome = AlignmentStarted | AlignmentCompleted | AlignmentAbandoned


class BarrierAligner:
    """The aligner of an exactly-once subtask. ``blocked[channel]`` is read by the shell before every read."""

    def __init__(self, channels: int) -> None:
        """Start idle with all of ``channels`` (1 or more) input channels released."""
        if channels < 1:
            raise ProtocolError("a subtask that aligns barriers needs at least one input channel")
        self.blocked = [False] * channels
        self._received = [False] * channels
        self._missing = channels
        self._current: CheckpointBarrier | None = None
        self._last: int = 0
        self._aborted: list[int] = []

    @property
    def phase(self) -> AlignmentPhase:
        """Return the current phase."""
        return AlignmentPhase.IDLE if self._current is None else AlignmentPhase.ALIGNING

    @property
    def current(self) -> CheckpointId | None:
        """Return the checkpoint that is being aligned, if any."""
        return self._current.checkpoint if self._current else None

    def barrier_arrived(self, channel: int, barrier: CheckpointBarrier) -> tuple[AlignmentOutcome, ...]:
        """Take a barrier that was read from a channel."""
        checkpoint = barrier.checkpoint
        outcomes: tuple[AlignmentOutcome, ...] = ()
        if self._current is not None and checkpoint > self._current.checkpoint:
            outcomes = (
                AlignmentAbandoned(
                    self._current.checkpoint,
                    f"channel {channel} skipped it and delivered barrier {checkpoint}",
                ),
            )
            self._give_up()
        if self.is_obsolete(checkpoint):
            return outcomes
        if self._current is None:
            self._current = barrier
        if self._received[channel]:
            raise ProtocolError(
                f"channel {channel} delivered barrier {checkpoint} twice; received so far: {self._received}"
            )
        self._received[channel] = True
        self.blocked[channel] = True
        self._missing -= 1
        if self._missing == 0:
            self._last = checkpoint
            self._aborted = [n for n in self._aborted if n > checkpoint]
            self._forget_received()
            return (*outcomes, AlignmentCompleted(barrier))
        if self._missing == len(self._received) - 1:
            return (*outcomes, AlignmentStarted(barrier))
        return outcomes

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> None:
        """Learn that a checkpoint was aborted: stop waiting for it, ignore what still comes of it."""
        if self._current is not None and checkpoint == self._current.checkpoint:
            self._give_up()
        elif checkpoint > self._last and checkpoint not in self._aborted:
            self._aborted.append(checkpoint)

    def is_obsolete(self, checkpoint: CheckpointId) -> bool:
        """Tell whether barriers of this checkpoint are to be ignored."""
        if self._current is not None and checkpoint < self._current.checkpoint:
            return True
        return checkpoint <= self._last or checkpoint in self._aborted

    def release(self) -> None:
        """Release every held channel: the synchronous part of the snapshot has ended or failed.

        Channels of an alignment that began since stay held.
        """
        self.blocked[:] = self._received

    def _give_up(self) -> None:
        assert self._current is not None
        self._last = self._current.checkpoint
        self._forget_received()
        self.blocked[:] = self._received

    def _forget_received(self) -> None:
        self._current = None
        self._received = [False] * len(self._received)
        self._missing = len(self._received)
