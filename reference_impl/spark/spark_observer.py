"""The observer of a job on Spark: what is reported besides what it is in every world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.runtime.job_observer import JobObserver
from barrier_tck.reference_impl.runtime.ports import RuntimePoint


@dataclass(frozen=True, slots=True)
class SubtaskProcess:
    """Where a subtask of the current attempt runs."""

    subtask: SubtaskId
    attempt: int
    host: str
    worker_pid: int
    """The Python worker."""
    executor_pid: int
    """The executor's JVM; 0 if it could not be found."""
    executor_id: str
    slot: int = 0
    """The number of the Spark task within the attempt's stage."""


class SparkJobObserver(JobObserver):
    """Is also notified of what only this world knows. A subtask at a watched point stands still during the call."""

    def subtasks_placed(self, attempt: int, processes: Mapping[SubtaskId, SubtaskProcess]) -> None:
        """Every subtask has its slot; nothing was sent to them yet."""

    def subtasks_gone(self, attempt: int) -> None:
        """An attempt is being stopped: its subtasks count as gone."""

    def first_records(self, subtask: SubtaskId, attempt: int, at_ms: float) -> None:
        """A subtask finished the first batch of an attempt, at a time of the coordinator's clock."""

    def point_reached(
        self, point: RuntimePoint, subtask: SubtaskId | None, attempt: int, checkpoint: int | None
    ) -> None:
        """A subtask stands still at a watched point, or the coordinator (``subtask`` None) at any point."""
