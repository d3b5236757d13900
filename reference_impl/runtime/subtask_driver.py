"""The subtask's shell: feeds the checkpoint machine, runs the operators, carries out commands through ports.

Written once for both worlds. A world calls the methods of one driver from one thread at a time: ``on_data`` and
``on_control`` for what it read from a channel whose ``blocked`` entry is False, ``on_message`` for what the
coordinator sent, ``poll_source`` when a source may emit, and the outcome of a background task through the
callback that it was submitted with. If barriers overtake, it also calls ``on_announced`` and ``on_arrived`` for what
arrives (``ports.InputBuffers``), ``on_sent`` for barriers that leave an output buffer, and ``on_timer``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar, cast

import msgspec

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, MultiInputOperator, NothingYet, Payload
from barrier_tck.reference_impl.operators.elements import Element
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.alignment_states import ChannelPolicy
from barrier_tck.reference_impl.protocol.messages import (
    AbortNoted,
    AcknowledgeCheckpoint,
    AllowWatermark,
    CancelSubtask,
    ChannelControl,
    ChannelState,
    CheckpointBarrier,
    CountLoop,
    DeclineCheckpoint,
    EndLoop,
    EndOfChannel,
    EndOfInput,
    FinishSubtask,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    OperatorSnapshot,
    SubtaskRunning,
    SubtaskSnapshot,
    ToSubtask,
    TransactionsCommitted,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import (
    CancelSnapshot,
    EndInput,
    ForwardBarrier,
    HoldInput,
    Leave,
    NoteAlignmentStarted,
    NotifyOperatorsAborted,
    NotifyOperatorsComplete,
    OvertakeOutputs,
    RecordInput,
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
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.runtime.aligned_source import REPORTS, AlignedSource
from barrier_tck.reference_impl.runtime.channel_snapshots import ChannelSnapshots, policies_of
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.loop_member import LoopMember
from barrier_tck.reference_impl.runtime.operator_contexts import context_of, reader_of
from barrier_tck.reference_impl.runtime.ports import RECORDS_PROCESSED, Buffer, RuntimePoint
from barrier_tck.reference_impl.runtime.routing import Router
from barrier_tck.reference_impl.runtime.snapshot_in_progress import SnapshotInProgress
from barrier_tck.reference_impl.runtime.state_copies import StateCopies
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_end import SubtaskEnd
from barrier_tck.reference_impl.runtime.subtask_event_time import SourceEventTime, SubtaskEventTime
from barrier_tck.reference_impl.runtime.subtask_timers import SubtaskTimers
from barrier_tck.reference_impl.runtime.unconfirmed_snapshots import UnconfirmedSnapshots
from barrier_tck.reference_impl.runtime.withheld_input import WithheldInput
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory


class SubtaskDriver:
    """Runs one subtask of one attempt."""

    def __init__(
        self,
        deployment: SubtaskDeployment,
        graph: JobGraph,
        plane: DataPlane,
        ports: SubtaskPorts,
        components: Components,
    ) -> None:
        """Build the chain; nothing is opened or restored yet."""
        self.deployment = deployment
        self.ports = ports
        vertex = graph.vertex(deployment.subtask.vertex)
        self.is_source = vertex.source is not None
        self.is_terminal = graph.is_terminal(vertex.name)
        self.finished = False
        """Whether the job is over and the process may leave."""
        self._closing_steps = 2
        self.exhausted = not self.is_source or deployment.stopped
        """Whether nothing is to be read from a source: it has no more records, or the job stops."""
        self._exhausted_before = self.exhausted
        self._withheld = WithheldInput()
        mode, self._alignment_timeout_ms = deployment.config.alignment
        policies = policies_of(graph, deployment.subtask, mode)
        self._loop = LoopMember.of(graph, deployment, ports)
        role = (self.is_source, self._loop.feedback if self._loop else None, deployment.finished_before)
        self.machine = SubtaskMachine(str(deployment.subtask), len(policies), mode, policies, *role)
        self.blocked = self.machine.blocked
        """Per input channel: whether the aligner holds it back. The same list for the driver's whole life."""
        self.recording = self.machine.recording
        """Per input channel: how many checkpoints record it; empty if none ever does. The same list always."""
        self._patient = mode is CheckpointMode.ALIGNED_TIMEOUT
        self._announced = [policy is ChannelPolicy.OVERTAKE for policy in policies]
        self._recorded_in_line = any(policy is ChannelPolicy.RECORD for policy in policies)
        buffers = ports.output, ports.input_buffers, ports.output_buffers
        channels = graph, deployment.subtask, plane, *buffers
        self.channels = ChannelSnapshots(*channels)
        self.operators = [components.instruments.operator(spec, plane) for spec in vertex.operators]
        self._multi_input = (
            cast("MultiInputOperator", self.operators[0]) if vertex.has_several_inputs else None
        )
        """The head of the chain, if it tells several inputs apart."""
        self._input_numbers = graph.input_numbers_of(deployment.subtask) if self._multi_input else ()
        state_backend = components.state_backend()
        self._working = WorkingDirectory(state_backend, ports.working_root)
        key_groups = graph.key_groups_of(deployment.subtask)
        self.copies = StateCopies(deployment, key_groups, ports, components)
        self._router = Router(graph, deployment.subtask, plane, self._loop or ports.output)
        self._context = context_of(
            deployment, graph, ports, state_backend, self._working, self.copies, self._router
        )
        self.reader = reader_of(deployment, graph, ports, plane, components)
        self._source_uid = vertex.source_uid
        self._plane = plane
        parts = graph, deployment.subtask, self.operators, self._router
        self.splits_time = (
            SourceEventTime(*parts, plane, self.reader, ports.clock) if self.reader is not None else None
        )
        """Event time, in a source."""
        self.event_time = self.splits_time or SubtaskEventTime(*parts)
        self._aligned = AlignedSource.of(graph, deployment, ports, self.splits_time, self.reader)
        self.end = SubtaskEnd(
            deployment, self.operators, self._router, ports.coordinator, self.is_terminal, self.event_time
        )
        self._snapshots: dict[CheckpointId, SnapshotInProgress] = {}
        self._timers = SubtaskTimers(self.operators, ports.timers, ports.clock, ports.has_room)
        self._alignment_started_ms: dict[CheckpointId, float] = {}
        self._unconfirmed = UnconfirmedSnapshots(ports.storage, deployment.attempt)

    # --- entry points ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the operators, restore their state, and report that the subtask runs.

        Raises RestoreError if a state file can be read from no copy (LOC-5), any other RuntimeFailure if something
        else fails, and JobUsageError if local copies would lie on another file system than the backend's (LOC-10).
        """
        restore = self.deployment.restore
        probe = self.ports.probe
        self.copies.check(self._working)
        if restore is not None:
            probe.reach(RuntimePoint.RESTORE_STARTED, self.deployment.restored_checkpoint)
        parts = {part.operator: part for part in restore.operators} if restore is not None else {}
        for operator in self.operators:
            self.copies.open(operator, self._context, parts.get(operator.uid))
        self.copies.restore_channels(self.channels)
        if self._loop is not None:
            self._loop.recover(self.channels.recovered)
        self.copies.restored()
        source_part = parts.get(self._source_uid)
        event_time = restore.event_time if restore is not None else msgspec.UNSET
        if self.reader is not None and source_part is not None:
            self.reader.restore(source_part.positions)
        if self.splits_time is not None and source_part is not None and event_time is not msgspec.UNSET:
            self.splits_time.restore_splits(event_time, source_part.positions)
        elif event_time is not msgspec.UNSET:
            self.event_time.restore(event_time)
        if restore is not None:
            probe.reach(RuntimePoint.RESTORED, self.deployment.restored_checkpoint)
        self._timers.arm()
        self.ports.coordinator.send(SubtaskRunning(self.deployment.attempt, self.deployment.subtask))
        if self._aligned is not None:
            self._aligned.report()

    def on_data(self, channel: int, payload: Element) -> None:
        """Process a batch or a watermark that was read from an input channel that is not held back."""
        if self._recorded_in_line and self.recording[channel]:
            self.on_arrived(channel, payload, in_line=True)
        if self._withheld.begun:
            self._withheld.add(channel, payload)
            return
        self.process(channel, payload)
        self.ports.probe.reach(RECORDS_PROCESSED)

    def process(self, channel: int, payload: Element) -> None:
        """Give a batch to the operators, or let event time advance; ``on_data`` decides when."""
        if isinstance(payload, Watermark):
            self.event_time.take(channel, payload, self.run_chain)
            return
        if self._loop is not None:
            self._loop.take(channel)
        if self._multi_input is None:
            self.run_chain(0, payload)
        else:
            self.run_chain(1, self._multi_input.process_input(payload, self._input_numbers[channel]))
        if self.event_time.has_timers:
            self.event_time.fire_due(self.run_chain)

    def on_control(self, channel: int, element: ChannelControl) -> None:
        """Take a control element that was read from an input channel that is not held back."""
        match element:
            case CheckpointBarrier():
                if not self._announced[channel]:
                    self.ports.probe.reach(RuntimePoint.BARRIER_RECEIVED, element.checkpoint)
                self.feed(BarrierArrived(channel, element))
            case EndOfInput():
                self._end_input(channel)
            case EndOfChannel():
                self.feed(ChannelClosed(channel))

    def _end_input(self, channel: int) -> None:
        if self._loop is not None and channel in self._loop.feedback:
            return  # it ended with the loop, before its sender's own input did
        if not self._withheld.begun and channel < len(self.blocked):
            self.event_time.input_ended(channel, self.run_chain)
        self.feed(InputEnded(channel))
        if self._withheld.begun:
            self._withheld.add(channel, None)
        elif self._loop is not None:
            self._loop.input_ended(channel)

    def on_announced(self, channel: int, barrier: CheckpointBarrier) -> None:
        """A barrier arrived on an input channel, ahead of being read; only if barriers overtake."""
        if self._announced[channel]:
            self.ports.probe.reach(RuntimePoint.BARRIER_RECEIVED, barrier.checkpoint)
            self.feed(BarrierAnnounced(channel, barrier))

    def on_close_announced(self, channel: int) -> None:
        """The end of an input channel arrived, ahead of being read."""
        if self._announced[channel]:
            self.feed(CloseAnnounced(channel))

    def on_arrived(self, channel: int, buffer: Buffer, in_line: bool = False) -> None:
        """Record data of a channel whose ``recording`` is not 0: when it arrives, or when it is read (``in_line``)."""
        if self._announced[channel] is in_line:
            return
        assert self.machine.recorder is not None
        self.channels.arrived(channel, buffer, self.machine.recorder.recorded_on(channel))

    def on_sent(self, channel: int, checkpoint: CheckpointId) -> None:
        """A barrier that was sent in line has left an output buffer."""
        if self.channels.has_passed(checkpoint):
            self.feed(OutputsPassed(checkpoint))

    def on_timer(self, name: str) -> None:
        if name == REPORTS and self._aligned is not None:
            self._aligned.report()
        elif (checkpoint := self._timers.due(name, self.run_chain)) is not None:
            self.feed(AlignmentTimedOut(checkpoint))
        elif self.event_time.has_timers:
            self.event_time.fire_due(self.run_chain)

    def on_message(self, message: ToSubtask) -> None:
        match message:
            case TriggerCheckpoint(checkpoint=checkpoint):
                self.ports.probe.reach(RuntimePoint.BARRIER_RECEIVED, checkpoint)
                self.feed(message)
            case NotifyCheckpointComplete() | NotifyCheckpointAborted():
                self.feed(message)
            case CountLoop() | EndLoop() if self._loop is not None:
                self._loop.on_message(message, self.feed)
            case AllowWatermark() if self._aligned is not None:
                self._aligned.allow(message)
            case FinishSubtask():
                self.finished = True
                self.copies.finish()
            case CancelSubtask():
                self.finished = True

    def poll_source(self) -> float | None:
        """Emit one batch of a source.

        Returns the milliseconds to wait before the next poll (0: none), or None once the source is exhausted.
        """
        assert self.reader is not None and self.splits_time is not None, "only a source is polled"
        if self._aligned is not None:
            self._aligned.pause_ahead()
        payload = None if self.deployment.finished_before else self.reader.poll()
        if payload is None:
            self.exhausted = True
            self._end_input(len(self.blocked))
            if self._aligned is not None:
                self._aligned.report()
            return None
        if isinstance(payload, NothingYet):
            self.splits_time.nothing_yet(self.run_chain)
            return payload.wait_ms
        self.splits_time.before_batch(self.run_chain)
        self.run_chain(0, payload)
        self.splits_time.after_batch(payload, self.run_chain)
        if self.event_time.has_timers:
            self.event_time.fire_due(self.run_chain)
        self.ports.probe.reach(RECORDS_PROCESSED)
        limit = self.reader.rate_limit
        return 0.0 if limit is None else 1000.0 * self._plane.length(payload) / limit

    def close(self) -> None:
        """Release everything, committing nothing; snapshots under way are cancelled. Closing twice is harmless.

        If a newer attempt has taken over, no other process can remove what this process wrote too late (REC-2).
        """
        self._stand_while_closing()
        for snapshot in self._snapshots.values():
            with contextlib.suppress(RuntimeFailure):  # if the disk refuses, the files stay: the process ends
                snapshot.cancel()
            if not snapshot.is_stored:
                # What is stored may still become part of a completed checkpoint: its copy stays.
                self.copies.drop(snapshot.checkpoint)
        self._snapshots.clear()
        with contextlib.suppress(RuntimeFailure):
            self._unconfirmed.discard_if_superseded(self.operators)
        self._stand_while_closing()
        try:
            for operator in self.operators:
                operator.close()
            if self.reader is not None:
                self.reader.close()
        finally:
            self._working.close()

    def _stand_while_closing(self) -> None:
        if self._closing_steps:
            self._closing_steps -= 1
            self.ports.probe.reach(RuntimePoint.CLOSING)

    # --- records --------------------------------------------------------------------------------------------

    def run_chain(self, start: int, payload: Payload | None) -> None:
        """Pass a batch through the operators from position ``start`` on, and emit what comes out."""
        for operator in self.operators[start:] if start else self.operators:
            if payload is None:
                break
            payload = operator.process(payload)
        if payload is not None:
            self._router.emit(payload)
        if self._timers.used:
            self._timers.arm()  # whatever made the batch: a record, a barrier or a timer

    # --- commands -------------------------------------------------------------------------------------------

    def feed(self, event: SubtaskEvent) -> None:
        """Give the machine an event and carry out its commands, in order."""
        for command in self.machine.handle(event):
            handler = self._HANDLERS[type(command)]
            handler(self, command)

    def _note_alignment(self, command: NoteAlignmentStarted) -> None:
        self._alignment_started_ms[command.checkpoint] = self.ports.clock.now_ms()
        self.ports.probe.reach(RuntimePoint.ALIGNMENT_STARTED, command.checkpoint)

    def _take_snapshot(self, command: TakeSnapshot) -> None:
        """Do the synchronous part: emit what belongs before the barrier, then snapshot every operator."""
        barrier = command.barrier
        now_ms = self.ports.clock.now_ms()
        started_ms = self._alignment_started_ms.pop(barrier.checkpoint, now_ms)
        if not self.is_source:
            self.ports.probe.reach(RuntimePoint.ALIGNMENT_COMPLETED, barrier.checkpoint)
        snapshot = SnapshotInProgress(
            barrier.checkpoint,
            started_ms,
            now_ms - started_ms,
            self.ports.buffered_bytes(),
            self.ports.storage.discard,
            self.copies.begin(barrier),
            self.machine.with_channels,
        )
        self.channels.begin(barrier.checkpoint)
        try:
            for position, operator in enumerate(self.operators):
                for payload in operator.before_barrier(barrier.checkpoint):
                    self.run_chain(position + 1, payload)
            if self.splits_time is not None:
                positions = self.splits_time.positions()
                snapshot.add_finished(OperatorSnapshot(self._source_uid, positions=positions))
            for operator in self.operators:
                snapshot.add(operator.snapshot(barrier.checkpoint))
        except RuntimeFailure as error:
            self._cancel(snapshot)
            self.feed(SnapshotFailed(barrier.checkpoint, str(error)))
            return
        snapshot.event_time = self.event_time.snapshot()
        snapshot.sync_ended(self.ports.clock.now_ms())
        self._snapshots[barrier.checkpoint] = snapshot
        self.ports.probe.reach(RuntimePoint.SNAPSHOT_TAKEN, barrier.checkpoint)
        self.feed(SnapshotTaken(barrier))

    def _forward_barrier(self, command: ForwardBarrier) -> None:
        """Send the barrier on every output channel: behind everything sent before, or ahead of it (UNA-1)."""
        barrier = command.barrier
        if barrier.ahead:
            self.channels.send_ahead(barrier)
        else:
            self._router.send_control(barrier)
        self.ports.probe.reach(RuntimePoint.BARRIER_FORWARDED, barrier.checkpoint)
        if self._patient and not barrier.ahead:
            self.channels.sent_in_line(barrier)
            self.on_sent(0, barrier.checkpoint)

    def _overtake_outputs(self, command: OvertakeOutputs) -> None:
        self.channels.move_ahead(command.checkpoint)
        self.feed(OutputsPassed(command.checkpoint))

    def _record_input(self, command: RecordInput) -> None:
        """Record what is unread ahead of the barrier."""
        self.channels.overtake_input(command.checkpoint, command.channel)

    def _start_timer(self, command: StartAlignmentTimer) -> None:
        self._timers.start_alignment(command.checkpoint, self._alignment_timeout_ms)

    def _hold_input(self, held: bool) -> None:
        """Read nothing from a source and let no timer go off, or go on with what came meanwhile; the machine holds the
        channels."""
        self._timers.hold(held)
        before, self._exhausted_before = self._exhausted_before, self.exhausted
        self.exhausted = held or before
        if self.ports.input_buffers is not None:
            self.ports.input_buffers.hold(held)
        if held:
            self._withheld.begin()
            return
        for channel, payload in self._withheld.take():
            if payload is not None:
                self.process(channel, payload)
            else:
                self.event_time.input_ended(channel, self.run_chain)
                if self._loop is not None:
                    self._loop.input_ended(channel)

    def _store_snapshot(self, command: StoreSnapshot) -> None:
        """Start the asynchronous part, or finish at once if there is none (SNP-1)."""
        snapshot = self._snapshots[command.checkpoint]
        if snapshot.done:
            self._stored(command.checkpoint, self.copies.run(snapshot), None)
            return
        self.ports.background.submit(
            lambda: self.copies.run(snapshot),
            lambda result, error: self._stored(command.checkpoint, result, error),
        )

    def _stored(
        self,
        checkpoint: CheckpointId,
        parts: tuple[OperatorSnapshot, ...] | None,
        error: BaseException | None,
    ) -> None:
        snapshot = self._going_on(checkpoint, error)
        if snapshot is not None:
            snapshot.async_ended(self.ports.clock.now_ms(), parts or ())
            self.ports.probe.reach(RuntimePoint.SNAPSHOT_STORED, checkpoint)
            self.feed(SnapshotStored(checkpoint))

    def _store_channels(self, command: StoreChannelState) -> None:
        """Start to store the channel state; if no record was in flight, there is nothing to store."""
        checkpoint = command.checkpoint
        snapshot = self._snapshots[checkpoint]
        if self.channels.is_empty(checkpoint):
            self.copies.no_channels(snapshot)
            self._channels_stored(checkpoint, None, None)
            return
        encoded, writer = self.channels.encoded(checkpoint), self.copies.channels_writer(checkpoint)
        self.ports.background.submit(
            lambda: self.copies.run_channels(snapshot, encoded, writer),
            lambda result, error: self._channels_stored(checkpoint, result, error),
        )

    def _channels_stored(
        self, checkpoint: CheckpointId, state: ChannelState | None, error: BaseException | None
    ) -> None:
        snapshot = self._going_on(checkpoint, error)
        if snapshot is not None:
            snapshot.channels_ended(self.ports.clock.now_ms(), state)
            self.feed(ChannelStateStored(checkpoint))

    def _going_on(self, checkpoint: CheckpointId, error: BaseException | None) -> SnapshotInProgress | None:
        """Return the snapshot of which a part was stored; None if it was cancelled meanwhile, or has failed now."""
        snapshot = self._snapshots.get(checkpoint)
        if snapshot is None or error is None:
            return snapshot
        if not isinstance(error, RuntimeFailure):
            raise error
        self._cancel(self._snapshots.pop(checkpoint))
        self.feed(SnapshotFailed(checkpoint, str(error)))
        return None

    def _cancel_snapshot(self, command: CancelSnapshot) -> None:
        if (snapshot := self._snapshots.pop(command.checkpoint, None)) is not None:
            self._cancel(snapshot)

    def _cancel(self, snapshot: SnapshotInProgress) -> None:
        """Give up a snapshot, with all that was recorded for it (SNP-2)."""
        self.copies.cancel(snapshot)
        self.channels.drop(snapshot.checkpoint)

    def _acknowledge(self, command: SendAcknowledge) -> None:
        snapshot = self._snapshots.pop(command.checkpoint)
        self.channels.drop(command.checkpoint)
        deployment = self.deployment
        part = SubtaskSnapshot(
            deployment.subtask,
            deployment.attempt,
            snapshot.parts,
            snapshot.channels,
            event_time=snapshot.event_time,
        )
        metrics = snapshot.metrics(self.copies.report(command.checkpoint))
        self._unconfirmed.acknowledged(command.checkpoint, part)
        self.ports.coordinator.send(
            AcknowledgeCheckpoint(deployment.attempt, command.checkpoint, deployment.subtask, part, metrics)
        )
        self.ports.probe.reach(RuntimePoint.ACKNOWLEDGED, command.checkpoint)

    def _decline(self, command: SendDecline) -> None:
        self._alignment_started_ms.pop(command.checkpoint, None)
        attempt, subtask = self.deployment.attempt, self.deployment.subtask
        self.ports.coordinator.send(DeclineCheckpoint(attempt, command.checkpoint, subtask, command.reason))

    def _notify_complete(self, command: NotifyOperatorsComplete) -> None:
        self.ports.probe.reach(RuntimePoint.COMPLETION_NOTIFIED, command.checkpoint)
        self._unconfirmed.completed(command.checkpoint)
        for operator in self.operators:
            operator.checkpoint_completed(command.checkpoint)
        self.copies.completed(command.checkpoint)
        if self.is_terminal:
            attempt, subtask = self.deployment.attempt, self.deployment.subtask
            self.ports.probe.reach(RuntimePoint.COMMIT_STEP, command.checkpoint)
            self.ports.probe.reach(RuntimePoint.TRANSACTIONS_COMMITTED, command.checkpoint)
            self.ports.coordinator.send(TransactionsCommitted(attempt, subtask, command.checkpoint))

    def _notify_aborted(self, command: NotifyOperatorsAborted) -> None:
        self._alignment_started_ms.pop(command.checkpoint, None)
        for operator in self.operators:
            operator.checkpoint_aborted(command.checkpoint)
        passed_over_for = self.copies.drop(command.checkpoint)
        where, recorded = (self.deployment.attempt, self.deployment.subtask), self.channels.kept
        under_way = tuple(sorted({**self._snapshots, **self._alignment_started_ms}))
        self.ports.coordinator.send(
            AbortNoted(*where, command.checkpoint, recorded, passed_over_for, under_way)
        )

    _HANDLERS: ClassVar[dict[type[SubtaskCommand], Callable[[Any, Any], None]]] = {
        NoteAlignmentStarted: _note_alignment,
        StartAlignmentTimer: _start_timer,
        TakeSnapshot: _take_snapshot,
        ForwardBarrier: _forward_barrier,
        RecordInput: _record_input,
        OvertakeOutputs: _overtake_outputs,
        HoldInput: lambda self, _: self._hold_input(True),
        ReleaseInput: lambda self, _: self._hold_input(False),
        StoreSnapshot: _store_snapshot,
        StoreChannelState: _store_channels,
        CancelSnapshot: _cancel_snapshot,
        SendAcknowledge: _acknowledge,
        SendDecline: _decline,
        NotifyOperatorsComplete: _notify_complete,
        NotifyOperatorsAborted: _notify_aborted,
        EndInput: lambda self, _: self.end.end_input(self.run_chain),
        ReportClosed: lambda self, _: self.end.report_closed(),
        Leave: lambda self, _: self.end.finish(self._source_uid, self.reader),
    }
