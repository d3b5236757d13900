"""The coordinator's shell: turns messages and timers into events, and carries out the machine's commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    DiscardSnapshot,
    FailJob,
    FinishJob,
    NotifyAborted,
    NotifyComplete,
    SendTrigger,
    SetTimer,
    StopAttempt,
    WriteMetadata,
)
from barrier_tck.reference_impl.protocol.coordinator_events import (
    AttemptFailed,
    AttemptStopped,
    CoordinatorEvent,
    JobStarted,
    MetadataFailed,
    MetadataWritten,
    TimerEvent,
)
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    AbortNoted,
    AcknowledgeCheckpoint,
    CompletedCheckpoint,
    FinishSubtask,
    NotifyCheckpointAborted,
    NotifyCheckpointComplete,
    StateRestored,
    SubtaskRunning,
    ToSubtask,
    TransactionsCommitted,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.runtime.compatibility import require_fitting
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.job_observer import JobObserver
from barrier_tck.reference_impl.runtime.ports import (
    BackgroundExecutor,
    Clock,
    Deployer,
    Probe,
    RuntimePoint,
    SubtaskDirectory,
    Timers,
)
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage


@dataclass(frozen=True)
class CoordinatorPorts:
    """The world of the coordinator."""

    clock: Clock
    probe: Probe
    timers: Timers
    subtasks: SubtaskDirectory
    deployer: Deployer
    background: BackgroundExecutor
    storage: CheckpointStorage
    observer: JobObserver


class CoordinatorDriver:
    """Runs the coordinator of one job, from ``start`` until ``ended``."""

    def __init__(
        self, graph: JobGraph, config: JobConfig, ports: CoordinatorPorts, components: Components
    ) -> None:
        """Build the machine; nothing happens before ``start``."""
        self.ports = ports
        self._graph = graph
        self._sources = graph.source_subtasks
        self._subtasks = graph.subtasks
        sending = [edge.source for edge in graph.edges]
        terminal = [subtask for subtask in graph.subtasks if subtask.vertex not in sending]
        self.machine: CoordinatorMachine = components.coordinator_machine(config, graph.subtasks, terminal)
        self._timers: dict[str, TimerEvent] = {}
        self.reason = ""
        """Why the job failed, once it has."""

    @property
    def state(self) -> JobState:
        """Return where the job stands."""
        return self.machine.state

    @property
    def ended(self) -> bool:
        """Tell whether the job finished or failed."""
        return self.machine.state in (JobState.FINISHED, JobState.FAILED)

    # --- the doors ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Load what durable storage holds and deploy the first attempt (COO-6).

        Raises StorageError if storage cannot be read at all, and IncompatibleState if the job does not fit a
        checkpoint in it (RSC-2); nothing is written or deleted then.
        """
        storage = self.ports.storage
        completed = tuple(storage.load(checkpoint) for checkpoint in storage.completed())
        require_fitting(self._graph, completed)
        last_checkpoint, last_attempt = storage.reserved()
        incomplete = storage.incomplete()
        self.feed(JobStarted(completed, last_checkpoint, last_attempt, incomplete))

    def on_message(self, message: Any) -> None:
        """Take a message of a subtask."""
        observer = self.ports.observer
        match message:
            case StateRestored():
                # Only observers learn of this, as of aborts; nothing depends on it.
                observer.state_restored(message)
                return
            case AbortNoted():
                observer.abort_learned(message)
                return
            case AcknowledgeCheckpoint():
                observer.acknowledged(message)
            case TransactionsCommitted(attempt=attempt, subtask=subtask, checkpoint=checkpoint):
                observer.committed(subtask, attempt, checkpoint)
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

    def on_timer(self, name: str) -> None:
        """Take a timer that came due."""
        self.feed(self._timers.pop(name))

    def on_attempt_failed(self, attempt: int, reason: str, subtask: SubtaskId | None = None) -> None:
        """Learn that a process of an attempt is lost; an attempt that is over already is ignored."""
        self.feed(AttemptFailed(AttemptNumber(attempt), reason, subtask))

    def _cannot_reserve(self, attempt: AttemptNumber, what: str, error: RuntimeFailure) -> None:
        why = f"the {what} could not be made durable: {error}"
        self.feed(AttemptFailed(attempt, why, cause=Cause.STORAGE_FAILED))

    def on_attempt_stopped(self, attempt: int) -> None:
        """Learn that a stopped attempt is gone."""
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
        self.ports.observer.attempt_started(command.attempt, restored)
        self.ports.probe.reach(RuntimePoint.ATTEMPT_STARTED, attempt=command.attempt)
        self.ports.deployer.deploy(command.attempt, command.restore)

    def _stop(self, command: StopAttempt) -> None:
        self.ports.observer.attempt_ended(command.attempt, command.cause, command.reason)
        self.ports.probe.reach(RuntimePoint.ATTEMPT_FAILED, attempt=command.attempt)
        self.ports.deployer.stop(command.attempt, command.reason)

    def _trigger(self, command: SendTrigger) -> None:
        try:
            self.ports.storage.reserve(command.checkpoint, command.attempt)
        except RuntimeFailure as error:
            self._cannot_reserve(command.attempt, "checkpoint id", error)
            return
        self.ports.observer.checkpoint_triggered(command.checkpoint, command.attempt, command.final)
        self.ports.probe.reach(RuntimePoint.CHECKPOINT_TRIGGERED, command.checkpoint, attempt=command.attempt)
        self._send(self._sources, TriggerCheckpoint(command.checkpoint, command.timestamp_ms))

    def _write_metadata(self, command: WriteMetadata) -> None:
        completed = replace(command.completed, job=self._graph.shape)
        self.ports.probe.reach(RuntimePoint.ALL_ACKNOWLEDGED, completed.checkpoint, attempt=completed.attempt)
        self.ports.background.submit(
            lambda: self.ports.storage.publish(completed),
            lambda _, error: self._metadata_ended(completed, error),
        )

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
            self.feed(MetadataWritten(completed))

    def _notify_complete(self, command: NotifyComplete) -> None:
        self._send(self._subtasks, NotifyCheckpointComplete(command.checkpoint))

    def _notify_aborted(self, command: NotifyAborted) -> None:
        self.ports.observer.checkpoint_aborted(
            command.checkpoint, command.attempt, command.cause, command.reason
        )
        self.ports.probe.reach(RuntimePoint.CHECKPOINT_ABORTED, command.checkpoint, attempt=command.attempt)
        self._send(self._subtasks, NotifyCheckpointAborted(command.checkpoint, command.reason))

    def _discard_snapshot(self, command: DiscardSnapshot) -> None:
        try:
            self.ports.storage.discard(command.snapshot.handles())
        except RuntimeFailure as error:
            self.ports.observer.discard_failed(f"snapshot of {command.snapshot.subtask}", str(error))

    def _discard_checkpoint(self, command: DiscardCheckpoint) -> None:
        try:
            self.ports.storage.discard_checkpoint(command.checkpoint)
        except RuntimeFailure as error:
            self.ports.observer.discard_failed(f"checkpoint {command.checkpoint}", str(error))

    def _set_timer(self, command: SetTimer) -> None:
        self._timers[command.timer.name] = command.timer
        self.ports.timers.set(command.timer.name, command.at_ms)

    def _finish(self, command: FinishJob) -> None:
        self._send(self._subtasks, FinishSubtask())
        self.ports.observer.attempt_ended(command.attempt, Cause.FINISHED, "")
        self.ports.observer.job_ended(JobState.FINISHED, Cause.FINISHED, "")

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
        WriteMetadata: _write_metadata,
        NotifyComplete: _notify_complete,
        NotifyAborted: _notify_aborted,
        DiscardSnapshot: _discard_snapshot,
        DiscardCheckpoint: _discard_checkpoint,
        SetTimer: _set_timer,
        FinishJob: _finish,
        FailJob: _fail,
    }
