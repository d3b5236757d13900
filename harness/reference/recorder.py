"""Records what the reference runtime's coordinator reports: operations for the oracle, rows for reports.

The same recorder serves both worlds. It is called on the coordinator's thread only. A completed checkpoint is
opened at once, before retention may delete it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import Recorded, SnapshotView
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import AttemptRecord, CheckpointRecord, SnapshotRecord
from barrier_tck.harness.reference.forged_messages import is_forged
from barrier_tck.harness.reference.planned_savepoints import PlannedSavepoint
from barrier_tck.harness.reference.snapshot_views import CheckpointOpener
from barrier_tck.harness.reference.translated_reasons import reason_of
from barrier_tck.harness.support.raised_by import Place, is_of_harness, raising_place
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    AbortNoted,
    AcknowledgeCheckpoint,
    CompletedCheckpoint,
    LocalCopyReport,
    RestoredFile,
    Savepoint,
    ServedBy,
    SourceWatermark,
    StateRestored,
    SubtaskFailed,
)
from barrier_tck.reference_impl.protocol.slots import Placement
from barrier_tck.reference_impl.runtime.job_observer import JobObserver


@dataclass(slots=True)
class _Attempt:
    attempt: int
    started_at_ms: float
    restored: int | None
    running_at_ms: float | None = None
    ended_at_ms: float | None = None
    end: str = "stopped"
    reason: str = ""


class _Job:
    """The job of an attempt, and what it says about acknowledgements."""

    def __init__(self, graph: JobGraph) -> None:
        self.graph = graph
        self.subtasks = frozenset(str(subtask) for subtask in graph.subtasks)
        self.waits = frozenset(entry.vertex for entry in graph.subtasks if len(graph.inputs_of(entry)) > 1)
        """The vertices whose subtasks read several channels, and so may wait for barriers."""


class RunRecorder(JobObserver, ABC):
    """Records what is reported to it; outlives crashes of the coordinator.

    Each world says how to read its time.
    """

    def __init__(self, opener: CheckpointOpener, savepoints: Sequence[PlannedSavepoint] = ()) -> None:
        self._opener = opener
        self._planned_job = _Job(opener.graph)
        """The job, as parallel as it is meant to be."""
        self._narrowed: int | None = None
        """The latest attempt that was narrower than that."""
        self._jobs: dict[int, _Job] = {}
        """Attempt -> its job. What an attempt did may be heard of, and read, when a job of other widths runs."""
        self.epoch_ms = 0.0
        """The trial's start on the runtime's clock, which metrics use."""
        self.operations: list[Recorded[Operation]] = []
        self.views: list[SnapshotView] = []
        self.snapshots: list[SnapshotRecord] = []
        self.end_reason = Reason.UNSPECIFIED
        """Why the job ended."""
        self._attempts: list[_Attempt] = []
        self._stops: list[ops.JobStopped] = []
        """What is to be reported when the job has been stopped with a savepoint."""
        self._claimed = [savepoint.savepoint.directory for savepoint in savepoints if savepoint.claim]
        self._completions = 0
        self.local_files: dict[str, None] = {}
        """Files that lay where hosts keep local copies, whenever this was looked at."""
        self._wanted = list(savepoints)
        self.clock_ahead_ms: dict[tuple[str, int], int] = {}
        """Subtask and attempt -> how far its clock is ahead, as far as this is known."""
        self._triggered: dict[int, tuple[int, float]] = {}
        self._measured: set[tuple[int, int, str]] = set()
        """Parts of checkpoints whose measurements are recorded."""
        self._checkpoints: list[CheckpointRecord] = []

    def rescaled(self, graph: JobGraph) -> None:
        """The job goes on from a savepoint, and with another parallelism."""
        self._planned_job = _Job(graph)

    @property
    def planned_graph(self) -> JobGraph:
        """Return the job with its planned parallelism."""
        return self._planned_job.graph

    def _job_of(self, attempt: int) -> _Job:
        """Return the job of an attempt; the planned one if the attempt was not reported."""
        return self._jobs.get(attempt, self._planned_job)

    def _graph_of(self, attempt: int) -> JobGraph:
        return self._job_of(attempt).graph

    @abstractmethod
    def now_ms(self) -> float:
        """Return the milliseconds since the trial's start."""

    @abstractmethod
    def reads_of(self, subtask: str, attempt: int) -> ops.ReadsObserved | None:
        """Return what was read from the file systems during a restore; None if it was not watched."""

    def note(self, operation: Operation, process: str = "coordinator") -> None:
        """Append an operation."""
        self.operations.append(Recorded(len(self.operations), self.now_ms(), process, operation))

    # --- JobObserver ----------------------------------------------------------------------------------------

    def attempt_narrowed(self, attempt: int, slots: int, widths: Mapping[str, int]) -> None:
        """A deployment is about to begin that has fewer subtasks than the job is meant to have."""
        self._narrowed = attempt
        self._jobs[attempt] = _Job(self.planned_graph.at_widths(widths))
        self.note(ops.Narrowed(attempt, slots, dict(widths)))

    def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
        if self._narrowed != attempt:
            self._jobs[attempt] = self._planned_job
        self._attempts.append(_Attempt(attempt, self.now_ms(), restored_checkpoint))
        self.note(ops.AttemptStarted(attempt, restored_checkpoint))
        seen = any(view.checkpoint == restored_checkpoint for view in self.views)
        if restored_checkpoint is not None and not seen:
            self.views.append(self._opener.open_restored(restored_checkpoint, self._graph_of))

    def attempt_running(self, attempt: int) -> None:
        self._attempt(attempt).running_at_ms = self.now_ms()
        self.note(ops.AttemptRunning(attempt))
        self._request_savepoints(completed=0)

    def attempt_ended(self, attempt: int, cause: Cause, reason: str) -> None:
        began = [entry for entry in self._attempts if entry.attempt == attempt]
        for entry in began[-1:]:  # none if its number could not be made durable
            entry.ended_at_ms, entry.reason = self.now_ms(), reason
            entry.end = "finished" if cause is Cause.FINISHED else "failed"
        self.note(ops.AttemptEnded(attempt, reason_of(cause), reason))

    def subtask_crashed(self, message: SubtaskFailed) -> None:
        """A subtask died of an exception of its own; it says what the exception came through."""
        crash = message.crash
        if crash is not None:
            place = raising_place(Place(frame.module, frame.file, frame.line) for frame in crash.frames)
            shown = str(place) if place is not None else ""
            of_harness = is_of_harness(place)
            self.note(
                ops.Crashed(
                    str(message.subtask), message.attempt, crash.error, shown, of_harness, crash.behind_loop
                ),
                process=str(message.subtask),
            )

    def subtasks_assigned(self, attempt: int, placement: Placement) -> None:
        """Subtasks were assigned to hosts; reported only with local recovery."""
        self.note(
            ops.Placed(
                attempt,
                hosts={str(subtask): host for subtask, host in placement.hosts.items()},
                slots=dict(placement.capacity),
                homes={str(subtask): tuple(hosts) for subtask, hosts in placement.homes.items()},
            )
        )

    def state_restored(self, message: StateRestored) -> None:
        """A subtask has its state; the message says which copy served each file (LOC-4)."""
        subtask = str(message.subtask)
        reads = self.reads_of(subtask, message.attempt)
        if reads is not None:
            self.note(reads, process="file systems")
        files = tuple(_served(file) for file in message.files)
        self.note(ops.Restored(subtask, message.attempt, message.checkpoint, files), process=subtask)

    def checkpoint_triggered(
        self, checkpoint: int, attempt: int, final: bool, savepoint: Savepoint | None, reserving_ms: float
    ) -> None:
        """The coordinator sends the sources their triggers."""
        self._triggered[checkpoint] = (attempt, self.now_ms())
        if savepoint is not None and savepoint.stop:
            self._stops.append(ops.JobStopped(checkpoint, savepoint.directory in self._claimed))
        place, stops = (savepoint.directory, savepoint.stop) if savepoint is not None else (None, False)
        self.note(ops.CheckpointTriggered(checkpoint, attempt, final, place, stops, reserving_ms))

    def savepoint_requested(self, savepoint: Savepoint) -> None:
        self.note(ops.SavepointRequested(savepoint.directory, savepoint.stop))

    def savepoint_refused(self, savepoint: Savepoint, reason: str) -> None:
        self.note(ops.SavepointRefused(savepoint.directory, savepoint.stop, reason))

    def acknowledged(self, message: AcknowledgeCheckpoint) -> None:
        metrics, subtask, job = message.metrics, str(message.subtask), self._job_of(message.attempt)
        local = _local_copy(metrics.local) if metrics.local is not None else None
        prepared = _prepared_for(message)
        held = metrics.alignment_buffered_bytes if message.subtask.vertex in job.waits else None
        self.note(
            ops.Acknowledged(
                message.checkpoint, message.attempt, subtask, local, prepared, held, is_forged(message)
            )
        )
        part = (int(message.checkpoint), int(message.attempt), subtask)
        triggered = self._triggered.get(part[0])
        known = triggered is not None and triggered[0] == part[1] and subtask in job.subtasks
        if not known or part in self._measured:
            return  # it is a repetition, or forged
        self._measured.add(part)
        self.snapshots.append(
            SnapshotRecord(
                checkpoint=message.checkpoint,
                attempt=message.attempt,
                subtask=subtask,
                alignment_started_ms=metrics.started_at_ms
                - self.epoch_ms
                - self.clock_ahead_ms.get((subtask, int(message.attempt)), 0),
                alignment_ms=metrics.alignment_ms,
                alignment_buffered_bytes=metrics.alignment_buffered_bytes,
                sync_ms=metrics.sync_ms,
                async_ms=metrics.async_ms,
                bytes_written=metrics.bytes_written,
                channel_bytes=metrics.channel_bytes,
            )
        )

    def checkpoint_completed(self, completed: CompletedCheckpoint) -> None:
        """The metadata is durable: open the checkpoint now."""
        checkpoint, attempt = int(completed.checkpoint), int(completed.attempt)
        self.note(ops.CheckpointCompleted(checkpoint, attempt))
        self.look_at_hosts()
        copies = self.copies_on_hosts()
        if copies is not None:
            self.note(ops.CopiesSeen(copies), process="hosts")
        self._end_checkpoint(checkpoint, attempt, "completed", "")
        opened = self._opener.open(completed, self._graph_of(attempt))
        retained, lacking = self._opener.retained((*self.views, opened))
        self.views.append(msgspec.structs.replace(opened, lacking=lacking, retained=retained))
        self._request_savepoints(completed=1)

    def checkpoint_aborted(self, checkpoint: int, attempt: int, cause: Cause, reason: str) -> None:
        self.note(ops.CheckpointAborted(checkpoint, attempt, reason_of(cause), reason))
        self._end_checkpoint(checkpoint, attempt, "aborted", reason)

    def abort_learned(self, message: AbortNoted) -> None:
        """A subtask was notified of an abort."""
        subtask = str(message.subtask)
        learned = ops.AbortLearned(
            message.checkpoint,
            message.attempt,
            subtask,
            message.recorded,
            message.passed_over_for,
            message.under_way,
        )
        self.note(learned, process=subtask)

    def sources_aligned(self, group: str, largest_ms: int, reports: Sequence[SourceWatermark]) -> None:
        active = {str(one.subtask): one.at_ms for one in reports if one.active}
        idle = tuple(str(one.subtask) for one in reports if one.idle)
        ended = tuple(str(one.subtask) for one in reports if one.ended)
        attempt = max(one.attempt for one in reports)
        self.note(ops.SourcesAligned(attempt, group, largest_ms, active, idle, ended))

    def committed(self, subtask: SubtaskId, attempt: int, checkpoint: int) -> None:
        self.note(ops.Committed(str(subtask), checkpoint, attempt))

    def subtask_finished(self, subtask: SubtaskId, attempt: int) -> None:
        """A subtask has finished before the job."""
        self.note(ops.Finished(str(subtask), attempt), process=str(subtask))

    def job_ended(self, state: JobState, cause: Cause, reason: str) -> None:
        self.end_reason = reason_of(cause)
        match state:
            case JobState.FINISHED:
                self.note(ops.JobFinished())
            case JobState.STOPPED:
                self.note(self._stops[-1] if self._stops else ops.JobStopped())
            case _:
                self.note(ops.JobFailed(self.end_reason, reason))

    def cut_off(self, reason: Reason, detail: str) -> None:
        """The trial ended the job."""
        self.end_reason = reason
        self.note(ops.JobCut(reason, detail))

    def _request_savepoints(self, completed: int) -> None:
        """Ask for the planned savepoints whose time has come, each once."""
        self._completions += completed
        due = [wanted for wanted in self._wanted if wanted.after_checkpoints <= self._completions]
        self._wanted = [wanted for wanted in self._wanted if wanted not in due]
        for wanted in due:
            self.request_savepoint(wanted.savepoint, wanted.delay_ms)

    def copies_on_hosts(self) -> tuple[ops.CopySeen, ...] | None:
        """Return which local copies lie on hosts; None if local recovery is off, or if they are not on disks."""
        return None

    def look_at_hosts(self) -> None:
        """Note what lies where hosts keep local copies, if this world can look there in the midst of a job."""

    def request_savepoint(self, savepoint: Savepoint, delay_ms: float) -> None:
        """Ask the coordinator for a savepoint, so many milliseconds from now, in the way of the world."""
        raise NotImplementedError(f"this world cannot ask for {savepoint} in {delay_ms} ms")

    # --- results --------------------------------------------------------------------------------------------

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return the deployments in order; one that has no recorded end counts as ``stopped`` now."""
        return tuple(
            AttemptRecord(
                attempt=entry.attempt,
                started_at_ms=entry.started_at_ms,
                running_at_ms=entry.running_at_ms,
                ended_at_ms=entry.ended_at_ms if entry.ended_at_ms is not None else self._end_of(position),
                end=entry.end,
                reason=entry.reason,
                restored_checkpoint=entry.restored,
            )
            for position, entry in enumerate(self._attempts)
        )

    def checkpoints(self) -> tuple[CheckpointRecord, ...]:
        """Return the checkpoints that ended, in order of their end."""
        return tuple(self._checkpoints)

    def _end_of(self, position: int) -> float:
        following = self._attempts[position + 1 : position + 2]
        return following[0].started_at_ms if following else self.now_ms()

    def _attempt(self, attempt: int) -> _Attempt:
        return next(entry for entry in reversed(self._attempts) if entry.attempt == attempt)

    def _end_checkpoint(self, checkpoint: int, attempt: int, status: str, reason: str) -> None:
        triggered = self._triggered.get(checkpoint, (attempt, self.now_ms()))[1]
        self._checkpoints.append(
            CheckpointRecord(checkpoint, attempt, status, triggered, self.now_ms(), reason)
        )


def _served(file: RestoredFile) -> ops.ServedFile:
    """Return what a subtask reported about one state file that it restored."""
    secondary = file.served_by is ServedBy.SECONDARY
    reason = reason_of(file.cause) if file.cause is not None else Reason.NO_COPY
    return ops.ServedFile(
        operator=file.operator,
        path=file.path,
        key_groups=(file.key_groups.start, file.key_groups.end),
        served_by=ops.ServedFrom(file.served_by.value),
        copy_of=file.copy_of if secondary else None,
        reason=None if secondary else reason,
        detail=file.reason,
    )


def _prepared_for(message: AcknowledgeCheckpoint) -> int:
    """Return how many records a sink prepared for the checkpoint that it acknowledges."""
    return sum(
        file.records
        for part in message.snapshot.operators
        for transaction in part.transactions
        if transaction.checkpoint == message.checkpoint
        for file in transaction.files
    )


def _local_copy(report: LocalCopyReport) -> ops.LocalCopyReported:
    """Return what a subtask reported about its local copies; the runtime says 0 where there is no checkpoint."""
    return ops.LocalCopyReported(
        kept=report.kept,
        confirmed=report.confirmed or None,
        held=report.held,
        host=report.host,
        reason=Reason.STORAGE_FAILED if report.problem else None,
        detail=report.problem,
    )
