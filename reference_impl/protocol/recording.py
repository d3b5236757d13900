"""Barriers of one subtask whose snapshots hold channel state: unaligned checkpoints, and Chandy-Lamport (UNA, CHL).

Theory of operation. Channels are numbered; each has a policy, and one machine carries all of them:

    ========  =========================================  ======================================================
    policy    before the subtask's snapshot n            after it
    ========  =========================================  ======================================================
    ALIGN     the snapshot waits for barrier n           nothing: all that lay before the barrier was processed
    OVERTAKE  the snapshot does not wait; what is unread  what *arrives* ahead of barrier n is channel state too
              ahead of barrier n is channel state
    RECORD    the snapshot does not wait                 what is *read* ahead of barrier n is channel state
    ========  =========================================  ======================================================

A barrier is *announced* when it arrives at the receiver's end of an OVERTAKE channel, ahead of being read, and
*reached* when it is read at its place. The snapshot n is due once the first barrier n was announced or reached and
every ALIGN channel has reached it. A channel that reached it earlier is held back until then, whatever its policy, so
that nothing behind the barrier is processed before the snapshot. From the snapshot to the barrier, an OVERTAKE or
RECORD channel is *recorded*, once for each checkpoint of which the barrier is missing; several checkpoints may be
recording at once (CL-02), so ``TABLE`` describes each one on its own, as in ``tracking``. What is recorded passes to
the shell, never through here: ``recording[channel]`` tells it how many checkpoints want what comes.

A *patient* machine begins as if OVERTAKE were ALIGN, until the alignment has lasted too long here or the barrier says
that it has elsewhere (UNA-2); then so do all older checkpoints, because barriers leave in the order of ids.

A channel that has ended counts as if it had announced, or reached, every barrier that is to come (BAR-6). A subtask of
which all channels have ended, but those that are RECORD, gets no barrier that begins a checkpoint; it is triggered.

Order. Snapshots of a subtask are taken in the order of ids, because a sink that prepared a transaction for n can
prepare no earlier one for an older m. A channel that delivers n without m skipped m, and m is given up. With RECORD
channels alone any subtask may initiate, so the markers of m may come behind those of n: then m is given up here, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import AlignmentCommands
from barrier_tck.reference_impl.protocol.alignment_states import ChannelPolicy, RecordingState
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    NotifyCheckpointAborted,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.subtask_commands import (
    AlignmentCommand,
    NoteAlignmentStarted,
    RecordInput,
    SendDecline,
    StartAlignmentTimer,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import (
    AlignmentTimedOut,
    BarrierAnnounced,
    BarrierArrived,
    ChannelClosed,
    CloseAnnounced,
    RecordingEvent,
    SnapshotFailed,
    SnapshotTaken,
)
from barrier_tck.reference_impl.protocol.table import IGNORED, TableMachine, leads
from barrier_tck.reference_impl.runtime_errors import ProtocolError

REMEMBERED_MAX = 64
"""Most checkpoints that are open at once, and most closed ones that are remembered; far above what is in flight."""


class _Cut:
    """One checkpoint: which channels announced and reached its barrier, and which are being recorded for it."""

    __slots__ = ("ahead", "announced", "barrier", "open", "reached", "state")

    def __init__(
        self, barrier: CheckpointBarrier, ahead: bool, closing: Sequence[bool], closed: Sequence[bool]
    ) -> None:
        self.barrier = barrier
        self.ahead = ahead
        self.state = RecordingState.ALIGNING
        self.announced = list(closing)
        self.reached = list(closed)
        self.open = [False] * len(closed)

    def delivered(self, channel: int) -> bool:
        return self.announced[channel] or self.reached[channel]


class BarrierRecorder(TableMachine[RecordingState, AlignmentCommand]):
    """The recorder of a subtask whose channels have policies; takes the place of a ``BarrierAligner``.

    ``blocked[channel]`` is read by the shell before every read, ``recording[channel]`` at every arrival or read.
    """

    def __init__(
        self, policies: Sequence[ChannelPolicy], subtask: str = "a subtask", patient: bool = False
    ) -> None:
        """Start with nothing known; ``patient``: OVERTAKE channels are aligned until a timeout (UNA-2)."""
        super().__init__(f"the recorder of {subtask}", RecordingState.UNKNOWN)
        if not policies:
            raise ProtocolError("a subtask that records channels needs at least one input channel")
        self.policies = tuple(policies)
        self.patient = patient
        self.initiates = all(policy is ChannelPolicy.RECORD for policy in policies)
        """Whether the subtask may be triggered at any time."""
        self.blocked = [False] * len(policies)
        self.closing = [False] * len(policies)
        """The channels whose end has arrived, ahead of being read."""
        self.closed = [False] * len(policies)
        """The channels that have ended."""
        self.recording = [0] * len(policies)
        """How many checkpoints want what comes on each channel."""
        self._cuts: dict[CheckpointId, _Cut] = {}
        self._closed: list[int] = []
        self._last: int = 0

    def handle(self, event: RecordingEvent) -> AlignmentCommands:
        """Handle one event and return the commands, in order; raises ProtocolError if the event is illegal."""
        return self._take(event)

    def state_for(self, event: RecordingEvent) -> RecordingState:
        """The table describes the one checkpoint that an event is about; the end of a channel is about none."""
        if isinstance(event, CloseAnnounced | ChannelClosed):
            return RecordingState.UNKNOWN
        if isinstance(event, BarrierAnnounced | BarrierArrived | SnapshotTaken):
            checkpoint = event.barrier.checkpoint
        else:
            checkpoint = event.checkpoint
        cut = self._cuts.get(checkpoint)
        if cut is not None:
            return cut.state
        return RecordingState.OBSOLETE if self.is_obsolete(checkpoint) else RecordingState.UNKNOWN

    def is_obsolete(self, checkpoint: CheckpointId) -> bool:
        """Barriers of a checkpoint are ignored if it is closed or given up, or if a later one was due before it."""
        return checkpoint <= self._last or checkpoint in self._closed

    def is_recording(self, checkpoint: CheckpointId) -> bool:
        """Return whether a channel is still being recorded for a checkpoint."""
        return checkpoint in self._cuts

    def knows_newer(self, checkpoint: CheckpointId) -> bool:
        """Return whether a barrier of a newer checkpoint was announced or reached."""
        return any(number > checkpoint for number in self._cuts)

    def recorded_on(self, channel: int) -> tuple[CheckpointId, ...]:
        """Return the checkpoints for which a channel is being recorded."""
        return tuple(number for number, cut in self._cuts.items() if cut.open[channel])

    def goes_ahead(self, checkpoint: CheckpointId) -> bool:
        """Return whether the barriers of a checkpoint may overtake records from here on."""
        cut = self._cuts.get(checkpoint)
        return cut is not None and cut.ahead

    # --- barriers -------------------------------------------------------------------------------------------

    def _on_first(self, event: BarrierAnnounced | BarrierArrived) -> AlignmentCommands:
        skipped = self._skipped_by(event)
        begun = self._begin(event.barrier)
        return (*skipped, *begun, *self._on_next(event, first=True))

    def _on_trigger(self, event: TriggerCheckpoint) -> AlignmentCommands:
        self._check_initiates(event)
        barrier = event.barrier
        return (*self._begin(barrier), *self._take_due())

    def _on_next(self, event: BarrierAnnounced | BarrierArrived, first: bool = False) -> AlignmentCommands:
        cut = self._cuts[event.barrier.checkpoint]
        self._check_once(cut, event)
        skipped = () if first else self._skipped_by(event)
        self._deliver(cut, event)
        if event.barrier.ahead:
            self._hurry(event.barrier.checkpoint)
        due = self._take_due()
        aligning = first and cut.state is RecordingState.ALIGNING
        noted = (NoteAlignmentStarted(event.barrier.checkpoint),) if aligning else ()
        return (*skipped, *noted, *due)

    def _on_late(self, event: BarrierAnnounced | BarrierArrived) -> AlignmentCommands:
        cut = self._cuts[event.barrier.checkpoint]
        self._check_once(cut, event)
        skipped = self._skipped_by(event)
        self._deliver(cut, event)
        self._stop_recording(cut, event.channel)
        self._close_if_whole(cut)
        return skipped

    def _check_once(self, cut: _Cut, event: BarrierAnnounced | BarrierArrived) -> None:
        """A channel announces the barrier of a checkpoint once, and delivers it once: a second one is illegal."""
        seen = cut.announced if isinstance(event, BarrierAnnounced) else cut.reached
        if seen[event.channel]:
            twice = f"channel {event.channel} delivered barrier {event.barrier.checkpoint} twice"
            raise self.illegal(event, f"{twice}; so far: {seen}")

    def _check_initiates(self, event: TriggerCheckpoint) -> None:
        """A subtask may be triggered if its channels are all RECORD (CHL-1), or if the others have ended (BAR-6)."""
        if not self.may_begin():
            ended = f"those that have ended: {self.closed}"
            raise self.illegal(event, f"its channels are {', '.join(self.policies)}; {ended}")

    def may_begin(self) -> bool:
        """No barrier comes any more on a channel that has ended, or whose end has arrived where barriers overtake."""
        return all(
            policy is ChannelPolicy.RECORD or self.closed[channel] or self.is_announced_closed(channel)
            for channel, policy in enumerate(self.policies)
        )

    def is_announced_closed(self, channel: int) -> bool:
        """Return whether the end of a channel has arrived where barriers overtake."""
        return self.closing[channel] and self.policies[channel] is ChannelPolicy.OVERTAKE

    # --- ends of channels -----------------------------------------------------------------------------------

    def _on_close_announced(self, event: CloseAnnounced) -> AlignmentCommands:
        self.closing[event.channel] = True
        return self._count_closed(event.channel, reached=False)

    def _on_closed(self, event: ChannelClosed) -> AlignmentCommands:
        self.closing[event.channel] = self.closed[event.channel] = True
        return self._count_closed(event.channel, reached=True)

    def _count_closed(self, channel: int, reached: bool) -> AlignmentCommands:
        """The end of a channel stands for every barrier: it closes what is recorded, and may make a snapshot due."""
        for cut in list(self._cuts.values()):
            cut.announced[channel] = True
            cut.reached[channel] = cut.reached[channel] or reached
            if cut.state is RecordingState.RECORDING:
                self._stop_recording(cut, channel)
                self._close_if_whole(cut)
        return self._take_due()

    def _begin(self, barrier: CheckpointBarrier) -> AlignmentCommands:
        self._cuts[barrier.checkpoint] = _Cut(barrier, not self.patient, self.closing, self.closed)
        given_up = self._give_up_beyond_bound(barrier.checkpoint)
        timer = (StartAlignmentTimer(barrier.checkpoint),) if self.patient else ()
        return (*given_up, *timer)

    def _deliver(self, cut: _Cut, event: BarrierAnnounced | BarrierArrived) -> None:
        if isinstance(event, BarrierAnnounced):
            cut.announced[event.channel] = True
            return
        cut.reached[event.channel] = True
        if cut.state is RecordingState.ALIGNING:
            self.blocked[event.channel] = True

    def _skipped_by(self, event: BarrierAnnounced | BarrierArrived) -> AlignmentCommands:
        """If a channel delivers a barrier without an older one, the older checkpoint is given up (BAR-2)."""
        checkpoint, channel = event.barrier.checkpoint, event.channel
        older = [cut for number, cut in self._cuts.items() if number < checkpoint]
        missed = [cut for cut in older if not cut.delivered(channel)]
        for cut in missed:
            self._give_up(cut)
        why = f"channel {channel} skipped it and delivered barrier {checkpoint}"
        return tuple(SendDecline(cut.barrier.checkpoint, why) for cut in missed)

    # --- the snapshot ---------------------------------------------------------------------------------------

    def _take_due(self) -> AlignmentCommands:
        """The oldest checkpoint that waits for no channel is due; the next one only after its synchronous part."""
        if any(cut.state is RecordingState.TAKING for cut in self._cuts.values()):
            return ()
        for number in sorted(self._cuts):
            cut = self._cuts[number]
            if cut.state is RecordingState.ALIGNING:
                if not self._is_due(cut):
                    return ()
                cut.state = RecordingState.TAKING
                return (TakeSnapshot(cut.barrier),)
        return ()

    def _is_due(self, cut: _Cut) -> bool:
        """The snapshot is due if every channel that is aligned for it has reached the barrier."""
        return all(
            reached or self._policy_for(cut, channel) is not ChannelPolicy.ALIGN
            for channel, reached in enumerate(cut.reached)
        )

    def _policy_for(self, cut: _Cut, channel: int) -> ChannelPolicy:
        """OVERTAKE means ALIGN as long as a patient machine waits."""
        policy = self.policies[channel]
        return ChannelPolicy.ALIGN if policy is ChannelPolicy.OVERTAKE and not cut.ahead else policy

    def _on_taken(self, event: SnapshotTaken) -> AlignmentCommands:
        cut = self._cuts[event.barrier.checkpoint]
        cut.state = RecordingState.RECORDING
        self._advance(event.barrier.checkpoint)
        recorded = []
        for channel in range(len(self.policies)):
            policy = self._policy_for(cut, channel)
            if policy is ChannelPolicy.OVERTAKE:
                recorded.append(RecordInput(event.barrier.checkpoint, channel))
            if policy is not ChannelPolicy.ALIGN and not cut.delivered(channel):
                cut.open[channel] = True
                self.recording[channel] += 1
        self._close_if_whole(cut)
        self._release()
        return (*recorded, *self._take_due())

    def _on_failed(self, event: SnapshotFailed) -> AlignmentCommands:
        self._advance(event.checkpoint)
        self._give_up(self._cuts[event.checkpoint])
        return self._take_due()

    def _on_timed_out(self, event: AlignmentTimedOut) -> AlignmentCommands:
        self._hurry(event.checkpoint)
        return self._take_due()

    def _hurry(self, checkpoint: CheckpointId) -> None:
        for number, cut in self._cuts.items():
            if number <= checkpoint and cut.state is RecordingState.ALIGNING:
                cut.ahead = True

    # --- the end of a checkpoint ----------------------------------------------------------------------------

    def _on_aborted(self, event: NotifyCheckpointAborted) -> AlignmentCommands:
        cut = self._cuts.get(event.checkpoint)
        if cut is None:
            self._remember(event.checkpoint)
            return ()
        # Nothing else becomes due: a later checkpoint waits for the channels for which this one waits.
        self._give_up(cut)
        return ()

    def _stop_recording(self, cut: _Cut, channel: int) -> None:
        if cut.open[channel]:
            cut.open[channel] = False
            self.recording[channel] -= 1

    def _close_if_whole(self, cut: _Cut) -> None:
        if not any(cut.open):
            self._forget(cut)

    def _give_up(self, cut: _Cut) -> None:
        for channel in range(len(self.policies)):
            self._stop_recording(cut, channel)
        self._forget(cut)
        self._release()

    def _forget(self, cut: _Cut) -> None:
        del self._cuts[cut.barrier.checkpoint]
        self._remember(cut.barrier.checkpoint)

    def _remember(self, checkpoint: CheckpointId) -> None:
        if checkpoint > self._last:
            self._closed.append(checkpoint)
        if len(self._closed) > REMEMBERED_MAX:
            # What is older than the oldest that is still remembered was closed or overtaken long ago.
            self._last = max(self._last, min(self._closed))
            self._closed = [n for n in self._closed if n > self._last]

    def _advance(self, checkpoint: CheckpointId) -> None:
        """The snapshot of a checkpoint makes every older one obsolete of which nothing came."""
        self._last = max(self._last, checkpoint)
        self._closed = [n for n in self._closed if n > self._last]

    def _release(self) -> None:
        waiting = [cut for cut in self._cuts.values() if cut.state is not RecordingState.RECORDING]
        self.blocked[:] = [
            any(cut.reached[channel] for cut in waiting) and not self.closed[channel]
            for channel in range(len(self.policies))
        ]

    def _give_up_beyond_bound(self, newest: CheckpointId) -> AlignmentCommands:
        """If more than ``REMEMBERED_MAX`` checkpoints are open, the oldest one is given up: memory is bounded."""
        if len(self._cuts) <= REMEMBERED_MAX:
            return ()
        oldest = min(number for number in self._cuts if number != newest)
        self._give_up(self._cuts[oldest])
        return (SendDecline(oldest, f"more than {REMEMBERED_MAX} checkpoints were open"),)

    RULES: ClassVar = (
        state_for,
        is_obsolete,
        _is_due,
        _policy_for,
        _take_due,
        _skipped_by,
        _check_once,
        _check_initiates,
        may_begin,
        _count_closed,
        _advance,
        _give_up_beyond_bound,
    )

    _FIRST: ClassVar = (RecordingState.ALIGNING, RecordingState.TAKING)

    TABLE: ClassVar = {
        RecordingState.UNKNOWN: {
            TriggerCheckpoint: leads(_on_trigger, *_FIRST),
            CloseAnnounced: _on_close_announced,
            ChannelClosed: _on_closed,
            BarrierAnnounced: leads(_on_first, *_FIRST),
            BarrierArrived: leads(_on_first, *_FIRST),
            NotifyCheckpointAborted: leads(_on_aborted, RecordingState.OBSOLETE),
        },
        RecordingState.ALIGNING: {
            # A barrier came before it, or it came twice.
            TriggerCheckpoint: IGNORED,
            BarrierAnnounced: leads(_on_next, RecordingState.TAKING),
            BarrierArrived: leads(_on_next, RecordingState.TAKING),
            AlignmentTimedOut: leads(_on_timed_out, RecordingState.TAKING),
            NotifyCheckpointAborted: leads(_on_aborted, RecordingState.OBSOLETE),
        },
        RecordingState.TAKING: {
            SnapshotTaken: leads(_on_taken, RecordingState.RECORDING, RecordingState.OBSOLETE),
            SnapshotFailed: leads(_on_failed, RecordingState.OBSOLETE),
        },
        RecordingState.RECORDING: {
            # It initiated the snapshot itself, or a barrier came first.
            TriggerCheckpoint: IGNORED,
            BarrierAnnounced: leads(_on_late, RecordingState.OBSOLETE),
            BarrierArrived: leads(_on_late, RecordingState.OBSOLETE),
            AlignmentTimedOut: IGNORED,
            NotifyCheckpointAborted: leads(_on_aborted, RecordingState.OBSOLETE),
        },
        RecordingState.OBSOLETE: {
            TriggerCheckpoint: IGNORED,
            BarrierAnnounced: IGNORED,
            BarrierArrived: IGNORED,
            AlignmentTimedOut: IGNORED,
            NotifyCheckpointAborted: IGNORED,
        },
    }
