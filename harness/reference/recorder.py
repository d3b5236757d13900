"""Writes down what the reference runtime's coordinator reports: operations for the oracle, rows for reports.

The same recorder serves both worlds. It is called on the coordinator's thread only. A completed checkpoint is
opened at once, before retention may delete it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from barrier_tck.harness.record.history import Operation, Outcome, SnapshotView
from barrier_tck.harness.record.records import AttemptRecord, CheckpointRecord, SnapshotRecord
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    CompletedCheckpoint,
    StateRestored,
)
from barrier_tck.reference_impl.protocol.slots import Placement


@dataclass(slots=True)
class _Attempt:
    attempt: int
    started_at_ms: float
    restored: int | None
    running_at_ms: float | None = None
    ended_at_ms: float | None = None
    end: str = "stopped"
    reason: str = ""


@dataclass(slots=True)
class RunRecorder:
    """Implements ``CoordinatorObserver``; outlives crashes of the coordinator."""

    now_ms: Callable[[], float]
    """Milliseconds since the trial's start."""
    open_snapshot: Callable[[CompletedCheckpoint], SnapshotView]
    open_restored: Callable[[int], SnapshotView] | None = None
    """Opens a checkpoint by its number: one that completed unseen, because the coordinator died over it."""
    epoch_ms: float = 0.0
    """The trial's start on the runtime's clock, in whose times metrics come."""
    operations: list[Operation] = field(default_factory=list)
    views: list[SnapshotView] = field(default_factory=list)
    snapshots: list[SnapshotRecord] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _attempts: list[_Attempt] = field(default_factory=list)
    _triggered: dict[int, tuple[int, float]] = field(default_factory=dict)
    _checkpoints: list[CheckpointRecord] = field(default_factory=list)

    def note(
        self, operation: str, outcome: Outcome, value: dict[str, Any], process: str = "coordinator"
    ) -> None:
        """Append an operation."""
        self.operations.append(
            Operation(len(self.operations), self.now_ms(), process, operation, outcome, value)
        )

    # --- CoordinatorObserver --------------------------------------------------------------------------------

    def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
        """A deployment begins."""
        self._attempts.append(_Attempt(attempt, self.now_ms(), restored_checkpoint))
        self.note("attempt", Outcome.INVOKE, {"attempt": attempt, "restored_checkpoint": restored_checkpoint})
        seen = any(view.checkpoint == restored_checkpoint for view in self.views)
        if restored_checkpoint is not None and not seen and self.open_restored is not None:
            self.views.append(self.open_restored(restored_checkpoint))

    def attempt_running(self, attempt: int) -> None:
        """Every subtask runs."""
        self._attempt(attempt).running_at_ms = self.now_ms()
        self.note("attempt", Outcome.OK, {"attempt": attempt})

    def attempt_ended(self, attempt: int, outcome: str, reason: str) -> None:
        """An attempt ended."""
        entry = self._attempt(attempt)
        entry.ended_at_ms, entry.end, entry.reason = self.now_ms(), outcome, reason
        if outcome != "finished":
            self.note("attempt", Outcome.INFO, {"attempt": attempt, "reason": reason})

    def subtasks_assigned(self, attempt: int, placement: Placement) -> None:
        """Where subtasks go; told with local recovery on."""
        self.note(
            "placement",
            Outcome.OK,
            {
                "attempt": attempt,
                "hosts": {str(subtask): host for subtask, host in placement.hosts.items()},
                "slots": dict(placement.capacity),
                "homes": {str(subtask): list(hosts) for subtask, hosts in placement.homes.items()},
            },
        )

    def state_restored(self, message: StateRestored) -> None:
        """A subtask has its state, file by file (LOC-4)."""
        files = [
            {
                "operator": file.operator,
                "path": file.path,
                "key_groups": [file.key_groups.start, file.key_groups.end],
                "served_by": file.served_by.value,
                "reason": file.reason,
                "copy_of": file.copy_of,
            }
            for file in message.files
        ]
        value = {"attempt": message.attempt, "checkpoint": message.checkpoint, "files": files}
        self.note("restore", Outcome.OK, value, process=str(message.subtask))

    def checkpoint_triggered(self, checkpoint: int, attempt: int) -> None:
        """The sources are told to inject barriers."""
        self._triggered[checkpoint] = (attempt, self.now_ms())
        self.note("checkpoint", Outcome.INVOKE, {"checkpoint": checkpoint, "attempt": attempt})

    def acknowledged(self, message: AcknowledgeCheckpoint) -> None:
        """An acknowledgement arrived."""
        metrics, subtask = message.metrics, str(message.subtask)
        value: dict[str, Any] = {
            "checkpoint": message.checkpoint,
            "attempt": message.attempt,
            "subtask": subtask,
        }
        if metrics.local is not None:
            value["local"] = {**msgspec.structs.asdict(metrics.local), "held": list(metrics.local.held)}
        self.note("ack", Outcome.OK, value)
        self.snapshots.append(
            SnapshotRecord(
                checkpoint=message.checkpoint,
                attempt=message.attempt,
                subtask=subtask,
                alignment_started_ms=metrics.started_at_ms - self.epoch_ms,
                alignment_ms=metrics.alignment_ms,
                alignment_buffered_bytes=metrics.alignment_buffered_bytes,
                sync_ms=metrics.sync_ms,
                async_ms=metrics.async_ms,
                bytes_written=metrics.bytes_written,
            )
        )

    def checkpoint_completed(self, completed: CompletedCheckpoint) -> None:
        """The metadata is durable: open the checkpoint now."""
        checkpoint, attempt = int(completed.checkpoint), int(completed.attempt)
        self.note("checkpoint", Outcome.OK, {"checkpoint": checkpoint, "attempt": attempt})
        self._end_checkpoint(checkpoint, attempt, "completed", "")
        self.views.append(self.open_snapshot(completed))

    def checkpoint_aborted(self, checkpoint: int, attempt: int, reason: str) -> None:
        """A checkpoint was given up."""
        self.note(
            "checkpoint", Outcome.FAIL, {"checkpoint": checkpoint, "attempt": attempt, "reason": reason}
        )
        self._end_checkpoint(checkpoint, attempt, "aborted", reason)

    def committed(self, subtask: SubtaskId, attempt: int, checkpoint: int) -> None:
        """A terminal subtask committed."""
        value = {"subtask": str(subtask), "attempt": attempt, "checkpoint": checkpoint}
        self.note("commit", Outcome.OK, value)

    def discard_failed(self, what: str, reason: str) -> None:
        """Garbage could not be removed."""
        self.notes.append(f"{what} could not be discarded: {reason}")

    def job_ended(self, state: JobState, reason: str) -> None:
        """The job finished or failed."""
        outcome = Outcome.OK if state is JobState.FINISHED else Outcome.FAIL
        self.note("job", outcome, {"reason": reason})

    # --- results --------------------------------------------------------------------------------------------

    def attempts(self) -> tuple[AttemptRecord, ...]:
        """Return the deployments in order; one that nobody ended is ``stopped`` now."""
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
