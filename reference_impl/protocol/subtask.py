"""The subtask's checkpoint machine: events in, commands out.

Theory of operation. A checkpoint passes through a subtask in these steps, each answered by the shell:

    trigger (source) or last barrier  ->  TakeSnapshot      the synchronous part; the shell answers
    SnapshotTaken                     ->  ForwardBarrier, StoreSnapshot; the aligner releases channels (SNP-1, SNP-3)
    SnapshotStored                    ->  SendAcknowledge
    NotifyCheckpointComplete          ->  NotifyOperatorsComplete: sinks commit (SNK-1)

``SnapshotFailed`` at either part leads to ``SendDecline`` (COO-2); ``NotifyCheckpointAborted`` cancels what runs and
releases what is held. A source ignores a trigger that is not newer than its last (an overtaken trigger must not
emit an old barrier). The end of all inputs leads to ``EndInput`` once; barriers still pass afterwards.

If records in flight belong to the checkpoint, two more steps follow the synchronous part, beside those above:

    barriers on the channels that are open  ->  nothing; what comes until then is recorded by the shell
    the last channel is closed              ->  StoreChannelState; the acknowledgement waits for ChannelStateStored too

In mode ALIGNED_TIMEOUT a barrier waits in line in output buffers, and they count as channels that are open until
``OutputsPassed``, or until the timeout lets it overtake what is before it there.

The barrier of a savepoint with which the job stops is *terminal*: behind it nothing is processed. When the subtask has
its part and has forwarded the barrier, every input is held (``HoldInput``), and a source reads no more. The end of the
job finds it like that. Only if the savepoint is aborted does the subtask go on (``ReleaseInput``): it hears so from the
coordinator, or earlier from a newer barrier, which no subtask sends that still stands still. A channel whose records
are recorded where they are read (RECORD: those that close a loop, and all under Chandy-Lamport) is read on up to its
own barrier meanwhile. What comes from it is part of the savepoint and is withheld by the shell; it is processed, before
anything else, only if the subtask goes on. An input that ends meanwhile counts then, too.

A subtask finishes when all that it did is committed and everything before it has finished (BAR-6, ``ending``). One that
may not finish yet although everything before it has gets no barrier any more: it says so (``ReportClosed``), and is
triggered like a source.

Whether records flow follows from the aligner's ``blocked`` list, all that the shell asks (BAR-5). The mode decides
which aligner that is: it holds channels back (``alignment``), counts barriers (``tracking``, ALO-1), or records
channels (``recording``). Several checkpoints may pass at once (BAR-4), and outcomes come in any order. So the machine's
state is about the subtask, and what the snapshots under way still wait for stands beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import ClassVar

from msgspec.structs import replace

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import BarrierAligner
from barrier_tck.reference_impl.protocol.alignment_states import ChannelPolicy
from barrier_tck.reference_impl.protocol.ending import Ending
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.recording import BarrierRecorder
from barrier_tck.reference_impl.protocol.subtask_commands import (
    CancelSnapshot,
    EndInput,
    ForwardBarrier,
    HoldInput,
    Leave,
    NotifyOperatorsAborted,
    NotifyOperatorsComplete,
    OvertakeOutputs,
    ReleaseInput,
    ReportClosed,
    SendAcknowledge,
    SendDecline,
    StartAlignmentTimer,
    StoreChannelState,
    StoreSnapshot,
    SubtaskCommand,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import (
    AlignmentTimedOut,
    BarrierAnnounced,
    BarrierArrived,
    ChannelClosed,
    ChannelStateStored,
    CloseAnnounced,
    InputEnded,
    OutputsPassed,
    SnapshotFailed,
    SnapshotStored,
    SnapshotTaken,
    SubtaskEvent,
)
from barrier_tck.reference_impl.protocol.subtask_states import SnapshotPart, SubtaskState
from barrier_tck.reference_impl.protocol.table import IGNORED, Entry, TableMachine, leads
from barrier_tck.reference_impl.protocol.tracking import BarrierTracker

SubtaskCommands = tuple[SubtaskCommand, ...]


class SubtaskMachine(TableMachine[SubtaskState, SubtaskCommand]):
    """The checkpoint machine of one subtask of one attempt. ``handle`` is the only entry point."""

    def __init__(
        self,
        name: str,
        channels: int,
        mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE,
        policies: Sequence[ChannelPolicy] = (),
        reads_input: bool = False,
        feedback: Collection[int] | None = None,
        finished_before: bool = False,
    ) -> None:
        """Take the subtask's name (for the story), its number of input channels (0: a source), and the mode.

        ``policies`` has one entry per channel; without it, the mode decides, the same for every channel. With
        ``reads_input`` it is a source to which records come back; its own input counts as one more channel then.
        ``feedback``: the channels of a member of a loop that close the loop; None if it is none. ``finished_before``:
        it had finished in the checkpoint that is restored (BAR-6).
        """
        super().__init__(name, SubtaskState.RUNNING)
        self.mode = mode
        usual = ChannelPolicy.OVERTAKE if mode.overtakes else ChannelPolicy.ALIGN
        self.policies = tuple(policies) or (usual,) * channels
        self.aligner = self._new_aligner(channels, mode) if channels else None
        self.recorder = self.aligner if isinstance(self.aligner, BarrierRecorder) else None
        self.blocked: list[bool] = self.aligner.blocked if self.aligner else []
        self.recording: list[int] = self.recorder.recording if self.recorder else []
        self.with_channels = mode.overtakes or self.recorder is not None
        """Whether snapshots may hold channel state."""
        self._last_triggered = 0
        self._taking: CheckpointId | None = None
        self._waiting: dict[CheckpointId, list[SnapshotPart]] = {}
        self._held_by: CheckpointId | None = None
        """The checkpoint whose terminal barrier holds every input."""
        self._end_due = False
        """Whether the last input ended while the subtask was held, so that its end is still to be dealt with."""
        self.ending = Ending(channels, reads_input, feedback, finished_before)

    def _new_aligner(
        self, channels: int, mode: CheckpointMode
    ) -> BarrierAligner | BarrierTracker | BarrierRecorder:
        """Return what mode and policies ask for: an aligner, a tracker that holds nothing back (ALO-1), a recorder."""
        if mode is CheckpointMode.AT_LEAST_ONCE:
            return BarrierTracker(channels, self.name)
        if not mode.overtakes and set(self.policies) == {ChannelPolicy.ALIGN}:
            return BarrierAligner(channels, self.name)
        return BarrierRecorder(self.policies, self.name, patient=mode is CheckpointMode.ALIGNED_TIMEOUT)

    def handle(self, event: SubtaskEvent) -> SubtaskCommands:
        """Handle one event and return the commands, in order; raises ProtocolError if the event is illegal."""
        commands = self._take(event)
        if self.state is SubtaskState.HELD:
            # A recorder that gives an older checkpoint up knows of no stop, and releases every channel.
            self.blocked[:] = [not self._is_read_on(channel) for channel in range(len(self.blocked))]
        return commands

    def _on_trigger(self, event: TriggerCheckpoint) -> SubtaskCommands:
        if self.ending.finished_before:
            return ()  # it passes the end on as soon as it can, and the checkpoint does without it
        if self.aligner is not None:
            return self._after_barrier(self.aligner.handle(event))
        if self._is_overtaken(event.checkpoint):
            return ()
        self._last_triggered = event.checkpoint
        taken = TakeSnapshot(event.barrier)
        patient = self.mode is CheckpointMode.ALIGNED_TIMEOUT
        timer = (StartAlignmentTimer(event.checkpoint),) if patient else ()
        return self._take_snapshot((*timer, taken))

    def _on_barrier(self, event: BarrierArrived) -> SubtaskCommands:
        return self._after_barrier(self._aligner_for(event).handle(event))

    def _on_announced(self, event: BarrierAnnounced) -> SubtaskCommands:
        commands = self._recorder_for(event).handle(event)
        outlived = self._held_by is not None and self._is_outlived(self._held_by)
        return (*(self._release() if outlived else ()), *self._after_barrier(commands))

    def _on_barrier_while_held(self, event: BarrierArrived) -> SubtaskCommands:
        self._check_read_on(event)
        assert self._held_by is not None
        outlived = event.barrier.checkpoint > self._held_by
        released = self._release() if outlived else ()
        return (*released, *self._on_barrier(event))

    def _is_read_on(self, channel: int) -> bool:
        """Behind its own terminal barrier a subtask reads a RECORD channel up to the barrier that comes on it."""
        if self.recorder is None or self.policies[channel] is not ChannelPolicy.RECORD:
            return False
        return self._held_by in self.recorder.recorded_on(channel)

    def _check_read_on(self, event: BarrierArrived | ChannelClosed) -> None:
        """While the subtask is held, nothing comes on a channel that is held, too."""
        if not self._is_read_on(event.channel):
            raise self.illegal(event, f"the terminal barrier {self._held_by} holds the channel")

    def _aligner_for(self, event: SubtaskEvent) -> BarrierAligner | BarrierTracker | BarrierRecorder:
        """A source reads no channel, and nothing that has finished sends a barrier."""
        if self.aligner is None:
            raise self.illegal(event, "a source reads no channel")
        if self.ending.finished_before:
            raise self.illegal(event, "everything before it had finished in the checkpoint that was restored")
        return self.aligner

    def _recorder_for(self, event: SubtaskEvent) -> BarrierRecorder:
        """Barriers are announced only to a subtask that records channels."""
        if self.recorder is None:
            raise self.illegal(event, f"in mode {self.mode} a barrier is not announced here")
        return self.recorder

    def _is_overtaken(self, checkpoint: CheckpointId) -> bool:
        """A source ignores a trigger that is not newer than its last: barriers leave in the order of ids (BAR-2)."""
        return checkpoint <= self._last_triggered

    def _after_barrier(self, commands: SubtaskCommands) -> SubtaskCommands:
        """Store what is whole now, and cancel what the aligner gave up after its snapshot was taken.

        Where any subtask may initiate, markers of two snapshots may cross each other. The older snapshot is given up
        without a word then: nothing is wrong, and the newer one will subsume it.
        """
        given_up = [
            CancelSnapshot(command.checkpoint)
            for command in commands
            if isinstance(command, SendDecline) and self._waiting.pop(command.checkpoint, None) is not None
        ]
        if self.recorder is not None and self.recorder.initiates:
            commands = tuple(command for command in commands if not isinstance(command, SendDecline))
        return self._take_snapshot((*given_up, *self._close_inputs(), *commands))

    def _close_inputs(self) -> SubtaskCommands:
        recorder = self.recorder
        if recorder is None:
            return ()
        whole = [
            n
            for n, parts in self._waiting.items()
            if SnapshotPart.INPUTS in parts and not recorder.is_recording(n)
        ]
        return tuple(command for n in whole for command in self._close(n, SnapshotPart.INPUTS))

    def _close(self, checkpoint: CheckpointId, part: SnapshotPart) -> SubtaskCommands:
        """One side of the channels is closed; if both are, the channel state is whole and is stored."""
        parts = self._waiting[checkpoint]
        parts.remove(part)
        if SnapshotPart.INPUTS in parts or SnapshotPart.OUTPUTS in parts:
            return ()
        return (StoreChannelState(checkpoint),)

    def _take_snapshot(self, commands: SubtaskCommands) -> SubtaskCommands:
        """Stand still for the synchronous part, if that is what the commands end with."""
        last = commands[-1] if commands else None
        if isinstance(last, TakeSnapshot):
            self.state = SubtaskState.SNAPSHOTTING
            self._taking = last.barrier.checkpoint
        return commands

    def _on_old_trigger(self, event: TriggerCheckpoint) -> SubtaskCommands:
        """Behind a terminal barrier no new trigger comes; an old one may come a second time."""
        if self._held_by is None or event.checkpoint > self._held_by:
            raise self.illegal(event, f"the terminal barrier {self._held_by} is not aborted")
        return ()

    def _on_taken(self, event: SnapshotTaken) -> SubtaskCommands:
        checkpoint = event.barrier.checkpoint
        stops = self._stops_at(event.barrier) and not self._is_outlived(checkpoint)
        commands = self._pass_on(event)
        if not stops:
            return commands
        self.state, self._held_by = SubtaskState.HELD, checkpoint
        return (*commands, HoldInput())

    def _stops_at(self, barrier: CheckpointBarrier) -> bool:
        """Behind a terminal barrier nothing is processed: every input is held until the savepoint is aborted."""
        return barrier.is_terminal

    def _is_outlived(self, checkpoint: CheckpointId) -> bool:
        """A newer barrier says that the savepoint of a terminal one was aborted: before that, no subtask sends it."""
        return self.aligner is not None and self.aligner.knows_newer(checkpoint)

    def _pass_on(self, event: SnapshotTaken) -> SubtaskCommands:
        checkpoint = event.barrier.checkpoint
        self._check_taking(event, checkpoint)
        self.ending.snapshot_taken(checkpoint)
        if not self.with_channels:
            due = self._go_on(event)
            self._waiting[checkpoint] = [SnapshotPart.OPERATORS]
            return self._take_snapshot((ForwardBarrier(event.barrier), StoreSnapshot(checkpoint), *due))
        ahead = self._goes_ahead(checkpoint)
        older = self._overtake_outputs(checkpoint - 1) if ahead else ()
        recorded = self._go_on(event)
        parts = [SnapshotPart.OPERATORS, SnapshotPart.CHANNELS]
        if self.recorder is not None:
            parts.append(SnapshotPart.INPUTS)
        if self.mode is CheckpointMode.ALIGNED_TIMEOUT and not ahead:
            parts.append(SnapshotPart.OUTPUTS)
        self._waiting[checkpoint] = parts
        forward = ForwardBarrier(replace(event.barrier, ahead=ahead))
        first = (*older, forward, StoreSnapshot(checkpoint))
        if len(parts) == 2:
            return (*first, StoreChannelState(checkpoint))
        taken = [command for command in recorded if isinstance(command, TakeSnapshot)]
        others = [command for command in recorded if not isinstance(command, TakeSnapshot)]
        return self._take_snapshot((*first, *others, *self._close_inputs(), *taken))

    def _goes_ahead(self, checkpoint: CheckpointId) -> bool:
        """The barrier overtakes in unaligned mode, and after a timeout that came before the snapshot (UNA-2)."""
        if self.recorder is None or not self.mode.overtakes:
            return self.mode is CheckpointMode.UNALIGNED
        return self.recorder.goes_ahead(checkpoint)

    def _overtake_outputs(self, newest: int) -> SubtaskCommands:
        """A barrier that goes ahead takes older ones along that wait in line, since barriers stay in order (BAR-2)."""
        waiting = [n for n, parts in self._waiting.items() if n <= newest and SnapshotPart.OUTPUTS in parts]
        return tuple(OvertakeOutputs(n) for n in sorted(waiting))

    def _on_not_taken(self, event: SnapshotFailed) -> SubtaskCommands:
        self._check_taking(event, event.checkpoint)
        return self._take_snapshot((SendDecline(event.checkpoint, event.reason), *self._go_on(event)))

    def _check_taking(self, event: SubtaskEvent, checkpoint: CheckpointId) -> None:
        """The outcome of a synchronous part must belong to the snapshot that is being taken."""
        if checkpoint != self._taking:
            raise self.illegal(event, f"the snapshot being taken is {self._taking}")

    def _go_on(self, event: SnapshotTaken | SnapshotFailed) -> SubtaskCommands:
        commands = self.aligner.handle(event) if self.aligner is not None else ()
        self._taking = None
        self.state = SubtaskState.DRAINED if self.ending.is_drained else SubtaskState.RUNNING
        return commands

    def _on_timed_out(self, event: AlignmentTimedOut) -> SubtaskCommands:
        overtaken = self._overtake_outputs(event.checkpoint)
        aligned = self.recorder.handle(event) if self.recorder is not None else ()
        return self._take_snapshot((*overtaken, *aligned))

    def _on_outputs_passed(self, event: OutputsPassed) -> SubtaskCommands:
        if SnapshotPart.OUTPUTS not in self._waiting.get(event.checkpoint, ()):
            return ()
        return self._close(event.checkpoint, SnapshotPart.OUTPUTS)

    def _on_stored(self, event: SnapshotStored | ChannelStateStored) -> SubtaskCommands:
        part = SnapshotPart.OPERATORS if isinstance(event, SnapshotStored) else SnapshotPart.CHANNELS
        return self._end_store(event, part)

    def _end_store(self, event: SnapshotStored | ChannelStateStored, part: SnapshotPart) -> SubtaskCommands:
        """The acknowledgement waits until the operators' state and all channel state are stored (SNP-3)."""
        self._check_storing(event, part)
        parts = self._waiting[event.checkpoint]
        parts.remove(part)
        if parts:
            return ()
        del self._waiting[event.checkpoint]
        return self._then_finish(SendAcknowledge(event.checkpoint))

    def _on_not_stored(self, event: SnapshotFailed) -> SubtaskCommands:
        self._check_storing(event)
        del self._waiting[event.checkpoint]
        if self.recorder is not None:
            self.recorder.handle(NotifyCheckpointAborted(event.checkpoint, event.reason))
        return self._then_finish(SendDecline(event.checkpoint, event.reason))

    def _check_storing(
        self, event: SnapshotStored | ChannelStateStored | SnapshotFailed, part: SnapshotPart | None = None
    ) -> None:
        """The outcome of an asynchronous part must belong to a snapshot that is still being stored."""
        parts = self._waiting.get(event.checkpoint, [])
        if not parts or part not in (None, *parts):
            raise self.illegal(event, f"snapshots being stored: {list(self._waiting)}")

    def _on_complete(self, event: NotifyCheckpointComplete) -> SubtaskCommands:
        if self._is_covered_by(event.checkpoint):
            self.ending.covered = True
        return self._then_finish(NotifyOperatorsComplete(event.checkpoint))

    def _is_covered_by(self, checkpoint: CheckpointId) -> bool:
        """A complete checkpoint covers the subtask if its snapshot here was taken after the end of all input."""
        return self.ending.is_covered_by(checkpoint)

    def _then_finish(self, *commands: SubtaskCommand) -> SubtaskCommands:
        """Finish behind some commands, if nothing is left to wait for."""
        if not self._may_finish():
            return commands
        self.state = SubtaskState.FINISHED
        return (*commands, Leave())

    def _may_finish(self) -> bool:
        """A subtask finishes once everything before it has, it is covered, and no snapshot of it is under way."""
        ending, drained = self.ending, self.state is SubtaskState.DRAINED
        due = ending.covered and not any(ending.open_channels) and not self._waiting
        return drained and due and ending.leaves_alone

    def _on_aborted(self, event: NotifyCheckpointAborted) -> SubtaskCommands:
        if self.aligner is not None:
            self.aligner.handle(event)
        else:
            self._last_triggered = max(self._last_triggered, event.checkpoint)
        cancelled = self._waiting.pop(event.checkpoint, None) is not None
        released = self._release() if event.checkpoint == self._held_by else ()
        notified = (NotifyOperatorsAborted(event.checkpoint), *released)
        return self._then_finish(*((CancelSnapshot(event.checkpoint), *notified) if cancelled else notified))

    def _release(self) -> SubtaskCommands:
        """Go on, because the savepoint failed. No newer barrier was read meanwhile, so no alignment holds a channel."""
        self._held_by = None
        self.blocked[:] = [False] * len(self.blocked)
        self.state = SubtaskState.DRAINED if self.ending.is_drained else SubtaskState.RUNNING
        due, self._end_due = self._end_due, False
        return (ReleaseInput(), EndInput()) if due else (ReleaseInput(),)

    def _on_input_ended(self, event: InputEnded) -> SubtaskCommands:
        self._check_open(event)
        self.ending.open_inputs[event.channel] = False
        if not self.ending.is_drained:
            return ()
        self.state = SubtaskState.DRAINED
        return self._then_finish(EndInput())

    def _on_input_ended_while_held(self, event: InputEnded) -> SubtaskCommands:
        self._check_open(event)
        self.ending.open_inputs[event.channel] = False
        self._end_due = self.ending.is_drained
        return ()

    def _on_close_announced(self, event: CloseAnnounced) -> SubtaskCommands:
        return self._after_close(self._recorder_for(event).handle(event))

    def _on_closed(self, event: ChannelClosed) -> SubtaskCommands:
        self._check_ended(event)
        self.ending.open_channels[event.channel] = False
        assert self.aligner is not None
        return self._after_close(self.aligner.handle(event))

    def _on_closed_while_held(self, event: ChannelClosed) -> SubtaskCommands:
        self._check_read_on(event)
        return self._on_closed(event)

    def _check_ended(self, event: ChannelClosed) -> None:
        """Only a channel whose input has ended is closed."""
        if self.ending.open_inputs[event.channel]:
            raise self.illegal(event, "records may still come on the channel")

    def _after_close(self, commands: SubtaskCommands) -> SubtaskCommands:
        """Say once that no barrier begins a checkpoint here any more, unless the subtask finishes by itself."""
        ended = self._then_finish(*self._after_barrier(commands))
        announced = self.recorder.is_announced_closed if self.recorder is not None else None
        if self.state is SubtaskState.FINISHED or not self.ending.take_closed_report(announced):
            return ended
        return (ReportClosed(), *ended)

    def _check_open(self, event: InputEnded) -> None:
        """A channel ends only once."""
        if not self.ending.open_inputs[event.channel]:
            raise self.illegal(event, "the channel had already ended")

    RULES: ClassVar = (
        _aligner_for,
        _recorder_for,
        _is_overtaken,
        _stops_at,
        _is_outlived,
        _is_read_on,
        _check_read_on,
        _goes_ahead,
        _overtake_outputs,
        _close,
        _check_taking,
        _check_storing,
        _end_store,
        _is_covered_by,
        _may_finish,
        _after_close,
        _check_ended,
        _check_open,
    )

    _GOING_ON: ClassVar = (SubtaskState.RUNNING, SubtaskState.DRAINED)

    _WHILE_BARRIERS_PASS: ClassVar[dict[type, Entry]] = {
        TriggerCheckpoint: leads(_on_trigger, SubtaskState.SNAPSHOTTING),
        CloseAnnounced: _on_close_announced,
        ChannelClosed: leads(_on_closed, SubtaskState.SNAPSHOTTING),
        BarrierAnnounced: leads(_on_announced, SubtaskState.SNAPSHOTTING),
        BarrierArrived: leads(_on_barrier, SubtaskState.SNAPSHOTTING),
        AlignmentTimedOut: leads(_on_timed_out, SubtaskState.SNAPSHOTTING),
        SnapshotStored: _on_stored,
        OutputsPassed: _on_outputs_passed,
        ChannelStateStored: _on_stored,
        SnapshotFailed: _on_not_stored,
        NotifyCheckpointComplete: _on_complete,
        NotifyCheckpointAborted: _on_aborted,
    }

    TABLE: ClassVar = {
        SubtaskState.RUNNING: {
            **_WHILE_BARRIERS_PASS,
            InputEnded: leads(_on_input_ended, SubtaskState.DRAINED, SubtaskState.FINISHED),
        },
        SubtaskState.SNAPSHOTTING: {
            SnapshotTaken: leads(_on_taken, *_GOING_ON, SubtaskState.HELD),
            SnapshotFailed: leads(_on_not_taken, *_GOING_ON),
            # Outcomes of the commands that came together with TakeSnapshot, ahead of it.
            SnapshotStored: _on_stored,
            OutputsPassed: _on_outputs_passed,
            ChannelStateStored: _on_stored,
        },
        SubtaskState.DRAINED: {
            **_WHILE_BARRIERS_PASS,
            ChannelClosed: leads(_on_closed, SubtaskState.SNAPSHOTTING, SubtaskState.FINISHED),
            SnapshotStored: leads(_on_stored, SubtaskState.FINISHED),
            ChannelStateStored: leads(_on_stored, SubtaskState.FINISHED),
            SnapshotFailed: leads(_on_not_stored, SubtaskState.FINISHED),
            NotifyCheckpointComplete: leads(_on_complete, SubtaskState.FINISHED),
            NotifyCheckpointAborted: leads(_on_aborted, SubtaskState.FINISHED),
        },
        # It is about to leave, and what was on its way to it does not matter any more.
        SubtaskState.FINISHED: dict.fromkeys(
            (
                TriggerCheckpoint,
                AlignmentTimedOut,
                OutputsPassed,
                NotifyCheckpointComplete,
                NotifyCheckpointAborted,
            ),
            IGNORED,
        ),
        SubtaskState.HELD: {
            TriggerCheckpoint: _on_old_trigger,
            BarrierAnnounced: leads(_on_announced, SubtaskState.SNAPSHOTTING, *_GOING_ON),
            BarrierArrived: leads(_on_barrier_while_held, SubtaskState.SNAPSHOTTING, *_GOING_ON),
            InputEnded: _on_input_ended_while_held,
            ChannelClosed: _on_closed_while_held,
            AlignmentTimedOut: _on_timed_out,
            SnapshotStored: _on_stored,
            OutputsPassed: _on_outputs_passed,
            ChannelStateStored: _on_stored,
            SnapshotFailed: _on_not_stored,
            NotifyCheckpointComplete: _on_complete,
            CloseAnnounced: _on_close_announced,
            NotifyCheckpointAborted: leads(_on_aborted, *_GOING_ON, SubtaskState.FINISHED),
        },
    }
