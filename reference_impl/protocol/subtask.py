"""The subtask's checkpoint machine: events in, commands out.

Theory of operation. A checkpoint passes through a subtask in these steps, each answered by the shell:

    trigger (source) or last barrier  ->  TakeSnapshot      the synchronous part; the shell answers
    SnapshotTaken                     ->  ForwardBarrier, ReleaseChannels, StoreSnapshot (SNP-1, SNP-3)
    SnapshotStored                    ->  SendAcknowledge
    CompletionReceived                ->  Complete          sinks commit (SNK-1)

``SnapshotFailed`` at either part leads to ``SendDecline`` (COO-2); ``AbortReceived`` cancels what runs and
releases what is held. A source ignores a trigger that is not newer than its last (an overtaken trigger must not
emit an old barrier). The end of all inputs leads to ``EndInput`` once; barriers still pass afterwards.

Whether records flow is never decided here: the aligner's ``blocked`` list is all that the shell asks (BAR-5). The
mode decides which aligner that is: one that holds channels back (``alignment``), or one that only counts barriers
(``tracking``, ALO-1). Several checkpoints may pass at once (BAR-4): synchronous parts follow one another, stores
overlap, and outcomes come in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import (
    AlignmentAbandoned,
    AlignmentCompleted,
    AlignmentOutcome,
    AlignmentStarted,
    BarrierAligner,
)
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier
from barrier_tck.reference_impl.protocol.tracking import BarrierTracker
from barrier_tck.reference_impl.runtime_errors import ProtocolError

# --- events -------------------------------------------------------------------------------------------------


class TriggerReceived(msgspec.Struct, frozen=True):
    """A source is told to inject a barrier."""

    barrier: CheckpointBarrier


class BarrierArrived(msgspec.Struct, frozen=True):
    """A barrier was read from an input channel."""

    channel: int
    barrier: CheckpointBarrier


class SnapshotTaken(msgspec.Struct, frozen=True):
    """Outcome of ``TakeSnapshot``: the synchronous part ended."""

    barrier: CheckpointBarrier


class SnapshotStored(msgspec.Struct, frozen=True):
    """Outcome of ``StoreSnapshot``: the copy is durable."""

    checkpoint: CheckpointId


class SnapshotFailed(msgspec.Struct, frozen=True):
    """Outcome of ``TakeSnapshot`` or ``StoreSnapshot``: it failed."""

    checkpoint: CheckpointId
    reason: str


class CompletionReceived(msgspec.Struct, frozen=True):
    """The coordinator says that the checkpoint is complete."""

    checkpoint: CheckpointId


class AbortReceived(msgspec.Struct, frozen=True):
    """The coordinator says that the checkpoint was aborted."""

    checkpoint: CheckpointId


class InputEnded(msgspec.Struct, frozen=True):
    """One input channel (for a source: the source itself, channel 0) delivered its last record."""

    channel: int


SubtaskEvent = (
    TriggerReceived
    | BarrierArrived
    | SnapshotTaken
    | SnapshotStored
    | SnapshotFailed
    | CompletionReceived
    | AbortReceived
    | InputEnded
)

# --- commands -----------------------------------------------------------------------------------------------


class NoteAlignmentStarted(msgspec.Struct, frozen=True):
    """Take the time: alignment began."""

    checkpoint: CheckpointId


class TakeSnapshot(msgspec.Struct, frozen=True):
    """Do the synchronous part now; answer SnapshotTaken or SnapshotFailed."""

    barrier: CheckpointBarrier


class ForwardBarrier(msgspec.Struct, frozen=True):
    """Append the barrier to every output channel."""

    barrier: CheckpointBarrier


class StoreSnapshot(msgspec.Struct, frozen=True):
    """Start the asynchronous part; answer SnapshotStored or SnapshotFailed, unless it is cancelled."""

    checkpoint: CheckpointId


class CancelSnapshot(msgspec.Struct, frozen=True):
    """Cancel the asynchronous part and drop its result (SNP-2)."""

    checkpoint: CheckpointId


class SendAcknowledge(msgspec.Struct, frozen=True):
    """Acknowledge the checkpoint to the coordinator, with handles and metrics."""

    checkpoint: CheckpointId


class SendDecline(msgspec.Struct, frozen=True):
    """Decline the checkpoint."""

    checkpoint: CheckpointId
    reason: str


class Complete(msgspec.Struct, frozen=True):
    """Tell the operators that the checkpoint completed; sinks commit."""

    checkpoint: CheckpointId


class Abort(msgspec.Struct, frozen=True):
    """Tell the operators that the checkpoint failed."""

    checkpoint: CheckpointId


class EndInput(msgspec.Struct, frozen=True):
    """Let the operators emit their last output, pass the end of input on, and report it."""


SubtaskCommand = (
    NoteAlignmentStarted
    | TakeSnapshot
    | ForwardBarrier
    | StoreSnapshot
    | CancelSnapshot
    | SendAcknowledge
    | SendDecline
    | Complete
    | Abort
    | EndInput
)


class SubtaskMachine:
    """The checkpoint machine of one subtask of one attempt. ``handle`` is the only door."""

    def __init__(self, name: str, channels: int, mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE) -> None:
        """Take the subtask's name (for the story), its number of input channels (0: a source), and the mode."""
        self._name = name
        self.aligner = self.new_aligner(channels, mode) if channels else None
        self.blocked: list[bool] = self.aligner.blocked if self.aligner else []
        self._last_triggered = 0
        self._syncing: CheckpointId | None = None
        self._storing: list[CheckpointId] = []
        self._open_inputs = [True] * max(channels, 1)
        self._story: list[tuple[SubtaskEvent, tuple[SubtaskCommand, ...]]] = []

    def new_aligner(self, channels: int, mode: CheckpointMode) -> BarrierAligner | BarrierTracker:
        """Return what the mode asks for: an aligner, or a tracker that holds nothing back (ALO-1)."""
        return BarrierTracker(channels) if mode is CheckpointMode.AT_LEAST_ONCE else BarrierAligner(channels)

    def handle(self, event: SubtaskEvent) -> tuple[SubtaskCommand, ...]:
        """Take one event and return what to do, in order; raises ProtocolError if the event is illegal."""
        handler = self._TABLE.get(type(event))
        if handler is None:
            raise self._illegal(event, "no such event")
        commands: tuple[SubtaskCommand, ...] = handler(self, event)
        if len(self._story) >= 200:
            del self._story[:100]
        self._story.append((event, commands))
        return commands

    def story(self) -> tuple[str, ...]:
        """Return the latest transitions, oldest first."""
        return tuple(f"{event} -> {commands}" for event, commands in self._story)

    def _illegal(self, event: object, why: str) -> ProtocolError:
        story = "\n  ".join(self.story()[-12:])
        return ProtocolError(f"{self._name}: {event} is illegal here ({why}). The story so far:\n  {story}")

    def _on_trigger(self, event: TriggerReceived) -> tuple[SubtaskCommand, ...]:
        if self.aligner is not None:
            raise self._illegal(event, "only a source is triggered")
        if self.is_overtaken(event.barrier.checkpoint):
            return ()
        self._last_triggered = event.barrier.checkpoint
        return self._take(event.barrier)

    def is_overtaken(self, checkpoint: CheckpointId) -> bool:
        """Tell whether a source's trigger comes too late: barriers leave in the order of their ids (BAR-2)."""
        return checkpoint <= self._last_triggered

    def _on_barrier(self, event: BarrierArrived) -> tuple[SubtaskCommand, ...]:
        if self.aligner is None:
            raise self._illegal(event, "a source has no input channels")
        commands: list[SubtaskCommand] = []
        for outcome in self.aligner.barrier_arrived(event.channel, event.barrier):
            commands.extend(self._after_alignment(outcome))
        return tuple(commands)

    def _after_alignment(self, outcome: AlignmentOutcome) -> tuple[SubtaskCommand, ...]:
        match outcome:
            case AlignmentStarted(barrier=barrier):
                return (NoteAlignmentStarted(barrier.checkpoint),)
            case AlignmentCompleted(barrier=barrier):
                return self._take(barrier)
            case AlignmentAbandoned(checkpoint=checkpoint, reason=reason):
                return (SendDecline(checkpoint, reason),)

    def _take(self, barrier: CheckpointBarrier) -> tuple[SubtaskCommand, ...]:
        if self._syncing is not None:
            raise self._illegal(barrier, f"the synchronous part of {self._syncing} has not ended")
        self._syncing = barrier.checkpoint
        return (TakeSnapshot(barrier),)

    def _on_taken(self, event: SnapshotTaken) -> tuple[SubtaskCommand, ...]:
        checkpoint = event.barrier.checkpoint
        if self._syncing != checkpoint:
            raise self._illegal(event, f"the snapshot being taken is {self._syncing}")
        self._syncing = None
        self._storing.append(checkpoint)
        if self.aligner is not None:
            self.aligner.release()
        return (ForwardBarrier(event.barrier), StoreSnapshot(checkpoint))

    def _on_stored(self, event: SnapshotStored) -> tuple[SubtaskCommand, ...]:
        if event.checkpoint not in self._storing:
            raise self._illegal(event, f"snapshots being stored: {self._storing}")
        self._storing.remove(event.checkpoint)
        return (SendAcknowledge(event.checkpoint),)

    def _on_failed(self, event: SnapshotFailed) -> tuple[SubtaskCommand, ...]:
        if self._syncing == event.checkpoint:
            self._syncing = None
            if self.aligner is not None:
                self.aligner.release()
        elif event.checkpoint in self._storing:
            self._storing.remove(event.checkpoint)
        else:
            raise self._illegal(event, f"taking {self._syncing}, storing {self._storing}")
        return (SendDecline(event.checkpoint, event.reason),)

    def _on_complete(self, event: CompletionReceived) -> tuple[SubtaskCommand, ...]:
        return (Complete(event.checkpoint),)

    def _on_abort(self, event: AbortReceived) -> tuple[SubtaskCommand, ...]:
        if self.aligner is not None:
            self.aligner.checkpoint_aborted(event.checkpoint)
        else:
            self._last_triggered = max(self._last_triggered, event.checkpoint)
        commands: tuple[SubtaskCommand, ...] = ()
        if event.checkpoint in self._storing:
            self._storing.remove(event.checkpoint)
            commands = (CancelSnapshot(event.checkpoint),)
        return (*commands, Abort(event.checkpoint))

    def _on_input_ended(self, event: InputEnded) -> tuple[SubtaskCommand, ...]:
        if not self._open_inputs[event.channel]:
            raise self._illegal(event, "the channel had already ended")
        self._open_inputs[event.channel] = False
        return () if any(self._open_inputs) else (EndInput(),)

    _TABLE: ClassVar[dict[type, Callable[[Any, Any], tuple[SubtaskCommand, ...]]]] = {
        TriggerReceived: _on_trigger,
        BarrierArrived: _on_barrier,
        SnapshotTaken: _on_taken,
        SnapshotStored: _on_stored,
        SnapshotFailed: _on_failed,
        CompletionReceived: _on_complete,
        AbortReceived: _on_abort,
        InputEnded: _on_input_ended,
    }
