"""What the runner of a job keeps: the attempt that runs now, and how the job ended."""

from __future__ import annotations

from dataclasses import dataclass, field

from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.spark.coordinator_service import SlotConnection
from barrier_tck.reference_impl.spark.stage import BarrierStage


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job ended."""

    state: JobState
    """FINISHED, STOPPED or FAILED."""
    reason: str
    savepoint: str | None = None
    """Directory of the savepoint with which the job was stopped."""


@dataclass
class RunningAttempt:
    """The attempt that runs now, or is being stopped."""

    number: int
    graph: JobGraph
    """The job, as parallel as it is in this attempt."""
    restore: CompletedCheckpoint | None
    stage: BarrierStage
    offered: dict[int, SlotConnection] = field(default_factory=dict)
    placed: dict[SubtaskId, SlotConnection] = field(default_factory=dict)
    stopping: bool = False
    stage_ended: bool = False

    def not_deployed(self, until: str) -> str:
        """Say how many slots came until then, as the reason of its failure."""
        wanted = len(self.graph.subtasks)
        return f"not every subtask ran {until}; {len(self.offered)} of {wanted} slots registered"
