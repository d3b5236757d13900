"""The coordinator's shell: turns messages and timers into events, and carries out the machine's commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator import CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_commands import (
    CoordinatorCommand,
    DeployAttempt,
    DiscardCheckpoint,
    DiscardShared,
    DiscardSnapshot,
    FailJob,
    FinishJob,
    NotifyAborted,
    NotifyComplete,
    RefuseSavepoint,
    SendLateTrigger,
    SendTrigger,
    SetTimer,
    StopAttempt,
    WriteMetadata,
)
from barrier_tck.reference_impl.protocol.coordinator_events import (
    AttemptFailed,
    AttemptStopped,
    CoordinatorEvent,
    JobResized,
    JobStarted,
    MetadataFailed,
    MetadataWritten,
    RestartDue,
    SavepointRequested,
    TimerEvent,
)
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.loop_commands import CloseLoop, RestLoop, StartWave
from barrier_tck.reference_impl.protocol.loop_events import WaveDue
from barrier_tck.reference_impl.protocol.messages import (
    AbortNoted,
    AcknowledgeCheckpoint,
    AllowWatermark,
    CompletedCheckpoint,
    CountLoop,
    EndLoop,
    FinishSubtask,
    LoopCounted,
    LoopInputEnded,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    Savepoint,
    SourceWatermark,
    StateRestored,
    SubtaskFinished,
    SubtaskRunning,
    ToSubtask,
    TransactionsCommitted,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.rescale import redistributed
from barrier_tck.reference_impl.runtime.compatibility import require_fitting, require_possible
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.coordinator_ports import CoordinatorPorts
from barrier_tck.reference_impl.runtime.elasticity import Elasticity
from barrier_tck.reference_impl.runtime.loop_coordination import LoopCommands, LoopCoordination
from barrier_tck.reference_impl.runtime.ports import (
    RuntimePoint,
)
from barrier_tck.reference_impl.runtime.rescaling import new_job
from barrier_tck.reference_impl.runtime.source_coordination import SourceCoordination
from barrier_tck.reference_impl.runtime_errors import JobUsageError, RuntimeFailure
from barrier_tck.reference_impl.storage.checkpoint_storage import MediumCheckpointStorage

_SLOTS = "slots"
"""The timer at which a start that waits for slots looks for them again."""


class CoordinatorDriver:
    """Runs the coordinator of one job, from ``start`` until ``ended``."""

    def __init__(
        self, graph: JobGraph, config: JobConfig, ports: CoordinatorPorts, components: Components
    ) -> None:
        """Build the machine; nothing happens before ``start``.

        Raises JobUsageError if no checkpoint of the job could ever complete.
        """
        require_possible(graph, config)
        self.ports = components.instruments.coordinator_ports(ports)
        self._graph = graph
        self._elasticity = Elasticity(graph, config.elastic) if config.elastic is not None else None
        self._slots_short: int | None = None
        """How many slots there were, if the present job is narrower for it."""
        self._start_from = config.start_from
        self._claim = config.claim_savepoint
        self.machine = CoordinatorMachine(config, graph.subtasks, graph.terminal_subtasks)
        self._loops = LoopCoordination(graph)
        self._sources = SourceCoordination()
        self._timers: dict[str, TimerEvent | WaveDue | JobStarted] = {}
        self._undone: list[DiscardSnapshot | DiscardCheckpoint | DiscardShared] = []
        """Deletions that failed, and those that wait for them."""
        self._refused: tuple[AttemptNumber, CheckpointId] | None = None
        """The last attempt that failed because a checkpoint's id could not be made durable, and that checkpoint."""
        self.reason = ""
        """Why the job failed, once it has."""
        self.stopped_with: Savepoint | None = None
        """The savepoint with which the job was stopped, once it has been."""

    @property
    def state(self) -> JobState:
        """Return where the job stands."""
        return self.machine.state

    @property
    def ended(self) -> bool:
        """Whether the job finished, was stopped, or failed."""
        return self.machine.state in (JobState.FINISHED, JobState.STOPPED, JobState.FAILED)

    def waiting_for(self) -> tuple[str, ...]:
        """Say what the job waits for, for liveness findings (REC-6)."""
        slots = (f"slots for {len(self._graph.subtasks)} subtasks",) if _SLOTS in self._timers else ()
        of_parts = *self._loops.waiting_for(), *self._sources.waiting_for()
        return (*self.machine.waiting_for(), *of_parts, *slots)

    # --- entry points ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load what durable storage holds and deploy the first attempt (COO-6).

        Raises StorageError if storage cannot be read at all, and IncompatibleState if the job does not fit a
        checkpoint in it (RSC-2); nothing is written or deleted then.
        """
        storage = self.ports.storage
        self.ports.probe.reach(RuntimePoint.COORDINATOR_STARTING)
        stored = storage.completed()
        superseded: tuple[CheckpointId, ...] = ()
        completed: tuple[CompletedCheckpoint, ...] = ()
        if self._start_from is not None:
            above = storage.has_outgrown(self._start_from)
            if above is None:
                origin = storage.load_savepoint(self._start_from)
                require_fitting(self._graph, (origin,))
                above = storage.start_from(origin, self._claim)
                # Whether the job that took it was stopped with it does not matter to the one that it starts.
                completed = (replace(origin, savepoint=Savepoint(self._start_from)),)
            superseded = tuple(checkpoint for checkpoint in stored if checkpoint <= above)
        # Savepoints that were taken over and that nothing starts from now: an earlier start's, or half deleted ones.
        present, claimed = [one.checkpoint for one in completed], storage.claimed()
        older = superseded + tuple(one for one in claimed if one not in (*present, *superseded))
        completed += tuple(storage.load(checkpoint) for checkpoint in stored if checkpoint not in older)
        # Another job's savepoint may have the id of an own checkpoint. Both go together, so none before its time.
        superseded = tuple(one for one in older if one not in claimed or one not in present)
        incomplete = tuple(one for one in storage.incomplete() if one not in claimed)
        elasticity = self._elasticity
        require_fitting(
            elasticity.job_at_start(completed) if elasticity is not None else self._graph, completed
        )
        last_checkpoint, last_attempt = storage.reserved()
        found = incomplete, superseded, storage.shared_files()
        self.ports.probe.reach(RuntimePoint.COORDINATOR_STARTING, attempt=last_attempt)
        self._start_attempt(JobStarted(completed, last_checkpoint, last_attempt, *found), completed)

    def request_savepoint(self, savepoint: Savepoint) -> None:
        """Take a request for a savepoint, and perhaps for a stop with it (COO-5); the observer learns what follows."""
        self.ports.observer.savepoint_requested(savepoint)
        try:
            free = self.ports.storage.is_free(savepoint.directory)
            problem = (
                "" if free else f"there is something in {savepoint.directory}, or it is among the checkpoints"
            )
        except (JobUsageError, RuntimeFailure) as error:
            problem = str(error)
        if problem:
            self.ports.observer.savepoint_refused(savepoint, problem)
        else:
            self.feed(SavepointRequested(savepoint))

    def on_message(self, message: Any) -> None:
        observer = self.ports.observer
        match message:
            case StateRestored():
                # Only observers learn of this, as of aborts; nothing depends on it.
                observer.state_restored(message)
                return
            case AbortNoted():
                observer.abort_learned(message)
                return
            case LoopInputEnded() | LoopCounted():
                self._carry_out_loop_commands(self._loops.on_message(message))
                return
            case SourceWatermark():
                self._announce_bounds(message)
                return
            case AcknowledgeCheckpoint():
                observer.acknowledged(message)
            case TransactionsCommitted(attempt=attempt, subtask=subtask, checkpoint=checkpoint):
                observer.committed(subtask, attempt, checkpoint)
            case SubtaskFinished(attempt=attempt, subtask=subtask):
                observer.subtask_finished(subtask, attempt)
            case SubtaskRunning():
                self._on_subtask_running(message)
                return
        self.feed(message)

    def _on_subtask_running(self, message: SubtaskRunning) -> None:
        deploying = self.machine.state is JobState.DEPLOYING
        self.feed(message)
        if deploying and self.machine.state is not JobState.DEPLOYING:
            self.ports.observer.attempt_running(message.attempt)
            self.ports.probe.reach(RuntimePoint.ATTEMPT_RUNNING, attempt=message.attempt)
        self._carry_out_loop_commands(self._loops.on_running(message))

    def on_timer(self, name: str) -> None:
        event = self._timers.pop(name)
        match event:
            case WaveDue():
                self._carry_out_loop_commands(self._loops.on_message(event))
            case JobStarted():
                self._start_attempt(event, event.completed)
            case RestartDue():
                self._start_attempt(event, self.machine.completed)
            case _:
                self.feed(event)

    def _start_attempt(
        self, event: JobStarted | RestartDue, completed: Sequence[CompletedCheckpoint]
    ) -> None:
        """Feed the event that leads to the next attempt, once it is clear how parallel the job can be (RSC-2)."""
        if self._elasticity is not None:
            now_ms, slots = self.ports.clock.now_ms(), self.ports.deployer.slots()
            graph = self._elasticity.job_for(slots, now_ms, completed)
            if graph is None:  # slots are missing, and may still come
                self._timers[_SLOTS] = event
                self.ports.timers.set(_SLOTS, now_ms + self._elasticity.retry_after_ms)
                self.ports.probe.reach(RuntimePoint.WAITING_FOR_SLOTS, attempt=self.machine.attempt)
                return
            narrower = graph.shape != self._elasticity.wanted.shape
            self._slots_short = (len(graph.subtasks) if slots is None else slots) if narrower else None
            if graph.shape != self._graph.shape:
                self._graph = graph
                self.feed(JobResized(graph.subtasks, graph.terminal_subtasks))
        self.feed(event)

    def on_attempt_failed(self, attempt: int, reason: str, subtask: SubtaskId | None = None) -> None:
        """A process of an attempt is lost; an attempt that is over already is ignored."""
        self.feed(AttemptFailed(AttemptNumber(attempt), reason, subtask))

    def _cannot_reserve(self, attempt: AttemptNumber, what: str, error: RuntimeFailure) -> None:
        why = f"the {what} could not be made durable: {error}"
        self.feed(AttemptFailed(attempt, why, cause=Cause.STORAGE_FAILED))

    def on_attempt_stopped(self, attempt: int) -> None:
        """A stopped attempt is gone."""
        self.feed(AttemptStopped(AttemptNumber(attempt)))

    # --- commands -------------------------------------------------------------------------------------------

    def feed(self, event: CoordinatorEvent) -> None:
        """Give the machine an event and carry out its commands, in order."""
        for command in self.machine.handle(event, self.ports.clock.now_ms()):
            self._HANDLERS[type(command)](self, command)

    def _deploy(self, command: DeployAttempt) -> None:
        restored = command.restore.checkpoint if command.restore is not None else None
        try:
            self.ports.storage.reserve(CheckpointId(command.last_checkpoint), command.attempt)
        except RuntimeFailure as error:
            self._cannot_reserve(command.attempt, "attempt number", error)
            return
        self._loops.attempt_started(command.attempt)
        self._sources.attempt_started(command.attempt, self._graph)
        if self._slots_short is not None:
            widths = {vertex.name: vertex.parallelism for vertex in self._graph.vertices}
            self.ports.observer.attempt_narrowed(command.attempt, self._slots_short, widths)
        self.ports.observer.attempt_started(command.attempt, restored)
        self.ports.probe.reach(RuntimePoint.ATTEMPT_STARTED, attempt=command.attempt)
        restore = command.restore
        if restore is not None:
            restore = redistributed(restore, new_job(self._graph))
        self.ports.deployer.deploy(command.attempt, self._graph, restore)

    def _stop(self, command: StopAttempt) -> None:
        self._loops.attempt_ended()
        self._sources.attempt_ended()
        if command.crashed is not None:
            self.ports.observer.subtask_crashed(command.crashed)
        self.ports.observer.attempt_ended(command.attempt, command.cause, command.reason)
        self.ports.probe.reach(RuntimePoint.ATTEMPT_FAILED, attempt=command.attempt)
        self.ports.deployer.stop(command.attempt, command.reason)

    def _trigger(self, command: SendTrigger) -> None:
        if self._refused is not None and self._refused[0] == command.attempt:
            return  # decided before its attempt failed, which has aborted it
        began_ms = self.ports.clock.now_ms()
        try:
            self.ports.storage.reserve(command.checkpoint, command.attempt)
            if command.savepoint is not None:
                self.ports.storage.begin_savepoint(command.checkpoint, command.savepoint.directory)
        except RuntimeFailure as error:
            if command.savepoint is not None:
                self.ports.observer.savepoint_refused(command.savepoint, f"it could not be begun: {error}")
            self._refused = command.attempt, command.checkpoint
            self._cannot_reserve(command.attempt, "checkpoint id", error)
            return
        self.ports.observer.checkpoint_triggered(
            command.checkpoint,
            command.attempt,
            command.final,
            command.savepoint,
            self.ports.clock.now_ms() - began_ms,
        )
        self.ports.probe.reach(RuntimePoint.CHECKPOINT_TRIGGERED, command.checkpoint, attempt=command.attempt)
        initiators = tuple(dict.fromkeys((*self._initiators(command.checkpoint), *command.closed)))
        self._send(initiators, _trigger_of(command))

    def _trigger_late(self, command: SendLateTrigger) -> None:
        self._send((command.subtask,), _trigger_of(command))

    def _initiators(self, checkpoint: CheckpointId) -> tuple[SubtaskId, ...]:
        """Return the subtasks that a checkpoint is triggered at: the sources, or those that the configuration names
        (CHL-1)."""
        config = self.machine.config.checkpoints
        chosen = config.initiators_of(checkpoint) if config is not None else ()
        if not chosen:
            return self._graph.source_subtasks
        unreached = [source for source in self._graph.source_subtasks if not self._graph.inputs_of(source)]
        return tuple(dict.fromkeys((*unreached, *chosen)))

    def _write_metadata(self, command: WriteMetadata) -> None:
        completed = replace(command.completed, job=self._graph.shape)
        if self._refused == (completed.attempt, completed.checkpoint):
            # It was whole at once, because all subtasks have finished; but it never began (COO-1).
            self.feed(MetadataFailed(completed.checkpoint, "its id could not be made durable"))
            return
        self.ports.probe.reach(RuntimePoint.ALL_ACKNOWLEDGED, completed.checkpoint, attempt=completed.attempt)
        self.ports.background.submit(
            lambda: self._publish(completed),
            lambda _, error: self._metadata_ended(completed, error),
        )

    def _publish(self, completed: CompletedCheckpoint) -> None:
        """In the background: make a checkpoint complete, and stand at a point after each step of it."""
        storage, checkpoint, attempt = self.ports.storage, completed.checkpoint, completed.attempt
        if not isinstance(storage, MediumCheckpointStorage):
            storage.publish(completed)
            return
        point = RuntimePoint.PUBLICATION_STEP
        with storage.in_steps(lambda: self.ports.probe.reach(point, checkpoint, attempt=attempt)):
            storage.publish(completed)

    def _metadata_ended(self, completed: CompletedCheckpoint, error: BaseException | None) -> None:
        if isinstance(error, RuntimeFailure):
            self.feed(MetadataFailed(completed.checkpoint, str(error)))
        elif error is not None:
            raise error
        else:
            self.ports.observer.checkpoint_completed(completed)
            self.ports.probe.reach(
                RuntimePoint.CHECKPOINT_COMPLETED, completed.checkpoint, attempt=completed.attempt
            )
            self._discard_again()
            self.feed(MetadataWritten(completed))

    def _notify_complete(self, command: NotifyComplete) -> None:
        self._send(self._graph.subtasks, NotifyCheckpointComplete(command.checkpoint))

    def _notify_aborted(self, command: NotifyAborted) -> None:
        self.ports.observer.checkpoint_aborted(
            command.checkpoint, command.attempt, command.cause, command.reason
        )
        self.ports.probe.reach(RuntimePoint.CHECKPOINT_ABORTED, command.checkpoint, attempt=command.attempt)
        self._send(self._graph.subtasks, NotifyCheckpointAborted(command.checkpoint, command.reason))

    def _discard(self, command: DiscardSnapshot | DiscardCheckpoint | DiscardShared) -> None:
        """Delete what is not needed any more; if storage fails, again when the next checkpoint completes, or in the
        end.

        What is to be deleted behind something that is left waits: a checkpoint that is left still looks complete, and
        refers to shared files.
        """
        if self._undone and not isinstance(command, DiscardSnapshot):
            self._undone.append(command)
            return
        storage = self.ports.storage
        try:
            match command:
                case DiscardSnapshot(snapshot=snapshot, files=files):
                    what = f"snapshot of {snapshot.subtask}"
                    storage.discard(files)
                case DiscardCheckpoint(checkpoint=checkpoint, kept=kept):
                    what = f"checkpoint {checkpoint}"
                    storage.discard_checkpoint(checkpoint, kept)
                case DiscardShared(paths=paths):
                    what = "shared files"
                    storage.discard_shared(paths)
        except RuntimeFailure as error:
            self._undone.append(command)
            self.ports.observer.discard_failed(what, str(error))

    def _discard_again(self) -> None:
        """Delete in its order what is left, as long as anything of it can be deleted."""
        before = len(self._undone) + 1
        while 0 < len(self._undone) < before:
            before = len(self._undone)
            undone, self._undone = self._undone, []
            for command in undone:
                self._discard(command)

    def _set_timer(self, command: SetTimer) -> None:
        self._timers[command.timer.name] = command.timer
        self.ports.timers.set(command.timer.name, command.at_ms)

    def _carry_out_loop_commands(self, commands: LoopCommands) -> None:
        """Do what the machines of loops ask for."""
        for loop, command in commands:
            match command:
                case StartWave(wave=wave):
                    self._send(loop.members, CountLoop(loop.name, wave))
                case RestLoop(pause_ms=pause_ms):
                    timer = WaveDue(self.machine.attempt, loop.name)
                    self._timers[timer.name] = timer
                    self.ports.timers.set(timer.name, self.ports.clock.now_ms() + pause_ms)
                case CloseLoop():
                    self._send(loop.members, EndLoop(loop.name))

    def _announce_bounds(self, report: SourceWatermark) -> None:
        """Tell aligned sources how far they may read, if that follows from a report (EVT-6)."""
        for group, command in self._sources.on_report(report):
            if command.reports:
                self.ports.observer.sources_aligned(group, command.largest_ms, command.reports)
            self._send(command.subtasks, AllowWatermark(command.largest_ms))

    def _finish(self, command: FinishJob) -> None:
        self._discard_again()
        self._send(self._graph.subtasks, FinishSubtask())
        self.stopped_with = command.stopped_with
        stopped = command.stopped_with is not None
        cause = Cause.STOPPED if stopped else Cause.FINISHED
        self.ports.observer.attempt_ended(command.attempt, cause, "")
        self.ports.observer.job_ended(JobState.STOPPED if stopped else JobState.FINISHED, cause, "")

    def _refuse_savepoint(self, command: RefuseSavepoint) -> None:
        self.ports.observer.savepoint_refused(command.savepoint, command.reason)

    def _fail(self, command: FailJob) -> None:
        self.reason = command.reason
        self.ports.observer.job_ended(JobState.FAILED, command.cause, command.reason)

    def _send(self, subtasks: tuple[SubtaskId, ...], message: ToSubtask) -> None:
        for subtask in subtasks:
            self.ports.subtasks.send(subtask, message)

    _HANDLERS: ClassVar[dict[type[CoordinatorCommand], Callable[[Any, Any], None]]] = {
        DeployAttempt: _deploy,
        StopAttempt: _stop,
        SendTrigger: _trigger,
        SendLateTrigger: _trigger_late,
        RefuseSavepoint: _refuse_savepoint,
        WriteMetadata: _write_metadata,
        NotifyComplete: _notify_complete,
        NotifyAborted: _notify_aborted,
        DiscardSnapshot: _discard,
        DiscardCheckpoint: _discard,
        DiscardShared: _discard,
        SetTimer: _set_timer,
        FinishJob: _finish,
        FailJob: _fail,
    }


def _trigger_of(command: SendTrigger | SendLateTrigger) -> TriggerCheckpoint:
    return TriggerCheckpoint(command.checkpoint, command.timestamp_ms, command.savepoint, command.reuse_from)
