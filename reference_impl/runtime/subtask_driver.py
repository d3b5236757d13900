"""The subtask's shell: feeds the checkpoint machine, runs the operators, carries out commands through ports.

Written once for both worlds. A world calls the methods of one driver from one thread at a time: ``on_data`` and
``on_control`` for what it read from a channel whose ``blocked`` entry is False, ``on_message`` for what the
coordinator sent, ``poll_source`` when a source may emit, and the outcome of a background task through the
callback that it was submitted with. Batches do not pass through the machine; only control elements do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar, cast

from barrier_tck.reference_impl.config import CheckpointMode, OnUnreadable
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, MultiInputOperator, OperatorContext, Payload
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.messages import (
    AbortNoted,
    AcknowledgeCheckpoint,
    CancelSubtask,
    ChannelControl,
    CheckpointBarrier,
    DeclineCheckpoint,
    EndOfInput,
    FinishSubtask,
    InputConsumed,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    OperatorSnapshot,
    SubtaskRunning,
    SubtaskSnapshot,
    ToSubtask,
    TransactionsCommitted,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.subtask_commands import (
    CancelSnapshot,
    EndInput,
    ForwardBarrier,
    NoteAlignmentStarted,
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
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.kept_promises import Promises
from barrier_tck.reference_impl.runtime.ports import RECORDS_PROCESSED, RuntimePoint
from barrier_tck.reference_impl.runtime.routing import Router
from barrier_tck.reference_impl.runtime.snapshotting import SnapshotInProgress
from barrier_tck.reference_impl.runtime.state_copies import StateCopies
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.local_copies import (
    FILES_WANTED,
)


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
        self.is_terminal = not graph.output_edges_of(vertex.name)
        self.finished = False
        """Whether the job is over and the process may leave."""
        self.exhausted = not self.is_source
        """Whether a source has no more records."""
        checkpoints = deployment.config.checkpoints
        self.machine = components.subtask_machine(
            str(deployment.subtask),
            0 if self.is_source else len(graph.inputs_of(deployment.subtask)),
            CheckpointMode.EXACTLY_ONCE if checkpoints is None else checkpoints.mode,
        )
        self.blocked = self.machine.blocked
        """Per input channel: whether the aligner holds it back. The same list for the driver's whole life."""
        self.operators = [components.build_operator(spec, plane) for spec in vertex.operators]
        self._multi_input = (
            cast("MultiInputOperator", self.operators[0]) if vertex.has_several_inputs else None
        )
        """The head of the chain, if it tells several inputs apart."""
        self._input_numbers = graph.input_numbers_of(deployment.subtask) if self._multi_input else ()
        state_backend = components.state_backend()
        self._working = WorkingDirectory(state_backend, ports.working_root)
        key_groups = graph.key_groups_of(deployment.subtask)
        self.copies = StateCopies(deployment, key_groups, ports, components)
        self._context = OperatorContext(
            job=deployment.job,
            subtask=deployment.subtask,
            parallelism=vertex.parallelism,
            attempt=deployment.attempt,
            key_groups=key_groups,
            max_parallelism=graph.max_parallelism,
            state_backend=state_backend,
            reader=self.copies.reader,
            writers=self.copies,
            output_files=ports.files,
            write_through=deployment.config.write_through,
            working_directory=self._working.of_operator,
            defer_restored_commits=deployment.config.on_unreadable is OnUnreadable.OLDER,
            files_wanted=FILES_WANTED if deployment.config.local_recovery else 1,
        )
        self.reader = None
        if vertex.source is not None:
            index, width = deployment.subtask.index, vertex.parallelism
            self.reader = components.wrap_reader(vertex.source.open(index, width, ports.files, plane))
        self._source_uid = vertex.source_uid
        self._plane = plane
        self._router = Router(graph, deployment.subtask, plane, ports.output)
        self._snapshots: dict[CheckpointId, SnapshotInProgress] = {}
        self._alignment_started_ms: dict[CheckpointId, float] = {}
        self._promises = Promises(ports.storage, deployment.attempt)

    # --- the doors ------------------------------------------------------------------------------------------

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
        self.copies.restored()
        source_part = parts.get(self._source_uid)
        if self.reader is not None and source_part is not None:
            self.reader.restore(source_part.positions)
        if restore is not None:
            probe.reach(RuntimePoint.RESTORED, self.deployment.restored_checkpoint)
        self.ports.coordinator.send(SubtaskRunning(self.deployment.attempt, self.deployment.subtask))

    def on_data(self, channel: int, payload: Payload) -> None:
        """Process a batch that was read from an input channel that is not held back."""
        if self._multi_input is None:
            self.run_chain(0, payload)
        else:
            self.run_chain(1, self._multi_input.process_input(payload, self._input_numbers[channel]))
        self.ports.probe.reach(RECORDS_PROCESSED)

    def on_control(self, channel: int, element: ChannelControl) -> None:
        """Take a control element that was read from an input channel that is not held back."""
        match element:
            case CheckpointBarrier():
                self.ports.probe.reach(RuntimePoint.BARRIER_RECEIVED, element.checkpoint)
                self.feed(BarrierArrived(channel, element))
            case EndOfInput():
                self.feed(InputEnded(channel))

    def on_message(self, message: ToSubtask) -> None:
        """Take a message of the coordinator."""
        match message:
            case TriggerCheckpoint(checkpoint=checkpoint):
                self.ports.probe.reach(RuntimePoint.BARRIER_RECEIVED, checkpoint)
                self.feed(message)
            case NotifyCheckpointComplete() | NotifyCheckpointAborted():
                self.feed(message)
            case FinishSubtask():
                self.finished = True
                self.copies.finish()
            case CancelSubtask():
                self.finished = True

    def poll_source(self) -> float | None:
        """Emit one batch of a source.

        Returns the milliseconds to wait before the next poll (0: none), or None once the source is exhausted.
        """
        assert self.reader is not None, "only a source is polled"
        payload = self.reader.poll()
        if payload is None:
            self.exhausted = True
            self.feed(InputEnded(0))
            return None
        self.run_chain(0, payload)
        self.ports.probe.reach(RECORDS_PROCESSED)
        limit = self.reader.rate_limit
        return 0.0 if limit is None else 1000.0 * self._plane.length(payload) / limit

    def close(self) -> None:
        """Release everything, committing nothing; snapshots under way are cancelled. Closing twice is harmless.

        If a newer attempt has taken over, nobody else can remove what this process wrote too late (REC-2).
        """
        for snapshot in self._snapshots.values():
            snapshot.cancel()
            if not snapshot.parts:
                # What is stored may still become part of a completed checkpoint: its copy stays.
                self.copies.drop(snapshot.checkpoint)
        self._snapshots.clear()
        # If the disk refuses, the files stay: the process ends in any case.
        with contextlib.suppress(RuntimeFailure):
            self._promises.break_if_superseded(self.operators)
        try:
            self.copies.close()
            for operator in self.operators:
                operator.close()
            if self.reader is not None:
                self.reader.close()
        finally:
            self._working.close()

    # --- records --------------------------------------------------------------------------------------------

    def run_chain(self, start: int, payload: Payload | None) -> None:
        """Pass a batch through the operators from position ``start`` on, and emit what comes out."""
        for operator in self.operators[start:] if start else self.operators:
            if payload is None:
                return
            payload = operator.process(payload)
        if payload is not None:
            self._router.emit(payload)

    # --- commands -------------------------------------------------------------------------------------------

    def feed(self, event: SubtaskEvent) -> None:
        """Give the machine an event and carry out its commands, in order."""
        for command in self.machine.handle(event):
            handler = self._HANDLERS[type(command)]
            handler(self, command)

    def _note_alignment(self, command: NoteAlignmentStarted) -> None:
        self._alignment_started_ms[command.checkpoint] = self.ports.clock.now_ms()
        self.ports.probe.reach(RuntimePoint.ALIGNMENT_STARTED, command.checkpoint)

    def take_snapshot(self, command: TakeSnapshot) -> None:
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
        )
        try:
            for position, operator in enumerate(self.operators):
                emitted = operator.before_barrier(barrier.checkpoint)
                if emitted is not None:
                    self.run_chain(position + 1, emitted)
            if self.reader is not None:
                snapshot.add_finished(OperatorSnapshot(self._source_uid, positions=self.reader.positions()))
            for operator in self.operators:
                snapshot.add(operator.snapshot(barrier.checkpoint))
        except RuntimeFailure as error:
            self.copies.cancel(snapshot)
            self.feed(SnapshotFailed(barrier.checkpoint, str(error)))
            return
        snapshot.sync_ended(self.ports.clock.now_ms())
        self._snapshots[barrier.checkpoint] = snapshot
        self.ports.probe.reach(RuntimePoint.SNAPSHOT_TAKEN, barrier.checkpoint)
        self.feed(SnapshotTaken(barrier))

    def forward_barrier(self, command: ForwardBarrier) -> None:
        """Append the barrier to every output channel."""
        self._router.send_control(command.barrier)
        self.ports.probe.reach(RuntimePoint.BARRIER_FORWARDED, command.barrier.checkpoint)

    def store_snapshot(self, command: StoreSnapshot) -> None:
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
        if checkpoint not in self._snapshots:
            return  # cancelled meanwhile
        if isinstance(error, RuntimeFailure):
            self.copies.cancel(self._snapshots.pop(checkpoint))
            self.feed(SnapshotFailed(checkpoint, str(error)))
        elif error is not None:
            raise error
        else:
            snapshot = self._snapshots[checkpoint]
            snapshot.async_ended(self.ports.clock.now_ms(), parts or ())
            self.ports.probe.reach(RuntimePoint.SNAPSHOT_STORED, checkpoint)
            self.feed(SnapshotStored(checkpoint))

    def _cancel_snapshot(self, command: CancelSnapshot) -> None:
        snapshot = self._snapshots.pop(command.checkpoint, None)
        if snapshot is not None:
            self.copies.cancel(snapshot)

    def _acknowledge(self, command: SendAcknowledge) -> None:
        snapshot = self._snapshots.pop(command.checkpoint)
        deployment = self.deployment
        part = SubtaskSnapshot(deployment.subtask, deployment.attempt, snapshot.parts)
        metrics = snapshot.metrics(self.copies.report(command.checkpoint))
        self._promises.acknowledged(command.checkpoint, part)
        self.ports.coordinator.send(
            AcknowledgeCheckpoint(deployment.attempt, command.checkpoint, deployment.subtask, part, metrics)
        )
        self.ports.probe.reach(RuntimePoint.ACKNOWLEDGED, command.checkpoint)

    def _decline(self, command: SendDecline) -> None:
        self._alignment_started_ms.pop(command.checkpoint, None)
        deployment = self.deployment
        self.ports.coordinator.send(
            DeclineCheckpoint(deployment.attempt, command.checkpoint, deployment.subtask, command.reason)
        )

    def _notify_complete(self, command: NotifyOperatorsComplete) -> None:
        self.ports.probe.reach(RuntimePoint.COMPLETION_NOTIFIED, command.checkpoint)
        self._promises.completed(command.checkpoint)
        for operator in self.operators:
            operator.checkpoint_completed(command.checkpoint)
        self.copies.completed(command.checkpoint)
        if self.is_terminal:
            deployment = self.deployment
            self.ports.probe.reach(RuntimePoint.TRANSACTIONS_COMMITTED, command.checkpoint)
            self.ports.coordinator.send(
                TransactionsCommitted(deployment.attempt, deployment.subtask, command.checkpoint)
            )

    def _notify_aborted(self, command: NotifyOperatorsAborted) -> None:
        self._alignment_started_ms.pop(command.checkpoint, None)
        for operator in self.operators:
            operator.checkpoint_aborted(command.checkpoint)
        self.copies.drop(command.checkpoint)
        deployment = self.deployment
        self.ports.coordinator.send(AbortNoted(deployment.attempt, deployment.subtask, command.checkpoint))

    def _end_input(self, command: EndInput) -> None:
        for position, operator in enumerate(self.operators):
            emitted = operator.end_of_input()
            if emitted is not None:
                self.run_chain(position + 1, emitted)
        self._router.send_control(EndOfInput())
        if not self.is_terminal:
            return
        if self.deployment.config.checkpoints is None:
            for operator in self.operators:
                commit = getattr(operator, "commit_without_checkpoints", None)
                if commit is not None:
                    commit()
        self.ports.coordinator.send(InputConsumed(self.deployment.attempt, self.deployment.subtask))

    _HANDLERS: ClassVar[dict[type[SubtaskCommand], Callable[[Any, Any], None]]] = {
        NoteAlignmentStarted: _note_alignment,
        TakeSnapshot: lambda self, command: self.take_snapshot(command),
        ForwardBarrier: lambda self, command: self.forward_barrier(command),
        StoreSnapshot: lambda self, command: self.store_snapshot(command),
        CancelSnapshot: _cancel_snapshot,
        SendAcknowledge: _acknowledge,
        SendDecline: _decline,
        NotifyOperatorsComplete: _notify_complete,
        NotifyOperatorsAborted: _notify_aborted,
        EndInput: _end_input,
    }
