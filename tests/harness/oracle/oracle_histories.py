"""Small helpers that write literal histories for the oracle's tests."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.trial_plan import RestartPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import (
    End,
    History,
    OutputComparison,
    Recorded,
    SnapshotView,
    StateView,
    StorageView,
)
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.workload_names import filled

SUBTASKS = ("source[0]", "source[1]", "totals[0]", "totals[1]", "sink[0]")

BARRIER_SYSTEM = frozenset(
    {Capability.CHECKPOINTS.name, Capability.BARRIERS.name, Capability.SNAPSHOT_INSPECTION.name}
)

KILL = ScheduledFault(KillExecutor("totals[0]"), At(10))
CRASH = ScheduledFault(CrashCoordinator(), At(10))


def a_plan(**changes: Any) -> TrialPlan:
    """Two sources of four batches of two records, keys k0 to k2."""
    workload = WorkloadPlan(batches=4, batch_records=2, keys=3)
    return filled(msgspec.structs.replace(TrialPlan(seed=5, workload=workload), **changes))


def restarts(strategy: Literal["none", "fixed_delay"] = "fixed_delay", attempts_max: int = 20) -> RestartPlan:
    return RestartPlan(strategy=strategy, attempts_max=attempts_max)


def input_of(plan: TrialPlan) -> TrialInput:
    return TrialInput(KeyedTotals(), plan)


class Book:
    """Writes operations, one per millisecond."""

    def __init__(self) -> None:
        self.operations: list[Recorded[Operation]] = []

    def tell(self, operation: Operation, process: str = "coordinator") -> Book:
        index = len(self.operations)
        self.operations.append(Recorded(index, float(index), process, operation))
        return self

    def nothing(self, milliseconds: int) -> Book:
        """Let time pass."""
        for _ in range(milliseconds):
            self.tell(ops.Acknowledged(0, 0, "nobody[0]"))
        return self

    def attempt(self, number: int, restored: int | None = None) -> Book:
        return self.started(number, restored).tell(ops.AttemptRunning(number))

    def started(self, number: int, restored: int | None = None) -> Book:
        return self.tell(ops.AttemptStarted(number, restored))

    def attempt_failed(self, number: int) -> Book:
        return self.tell(ops.AttemptEnded(number, Reason.PROCESS_LOST, "a subtask was lost"))

    def triggered(self, checkpoint: int, attempt: int = 1, reserving_ms: float = 0.0) -> Book:
        return self.tell(ops.CheckpointTriggered(checkpoint, attempt, reserving_ms=reserving_ms))

    def acknowledged(self, checkpoint: int, attempt: int = 1, subtasks: tuple[str, ...] = SUBTASKS) -> Book:
        for subtask in subtasks:
            self.tell(ops.Acknowledged(checkpoint, attempt, subtask))
        return self

    def completed(self, checkpoint: int, attempt: int = 1) -> Book:
        return self.tell(ops.CheckpointCompleted(checkpoint, attempt))

    def aborted(self, checkpoint: int, attempt: int = 1) -> Book:
        return self.tell(ops.CheckpointAborted(checkpoint, attempt, Reason.EXPIRED))

    def committed(self, checkpoint: int | None, subtask: str = "sink[0]") -> Book:
        return self.tell(ops.Committed(subtask, checkpoint))

    def checkpoint(self, checkpoint: int, attempt: int = 1) -> Book:
        """Write a whole checkpoint, from trigger to commit."""
        self.triggered(checkpoint, attempt).acknowledged(checkpoint, attempt).completed(checkpoint, attempt)
        return self.committed(checkpoint)

    def fault(self, position: int = 0) -> Book:
        self.tell(ops.FaultStarted(position), "nemesis")
        return self.tell(ops.FaultFired(position), "nemesis")

    def healing(self, position: int = 0) -> Book:
        return self.tell(ops.FaultHealed(position), "nemesis")


def a_context(
    plan: TrialPlan,
    book: Book | None = None,
    end: End = End.FINISHED,
    output: list[dict[str, Any]] | None = None,
    views: tuple[SnapshotView, ...] = (),
    storage: StorageView | None = None,
    pending: tuple[str, ...] = (),
    query: OutputComparison | None = None,
    reason: Reason = Reason.UNSPECIFIED,
) -> TrialContext:
    history = History(
        operations=tuple(book.operations) if book is not None else (),
        end=end,
        reason=reason,
        detail="so it went",
        output=None if output is None else tuple(output),
        checkpoints=views,
        storage=storage,
        pending=pending,
        output_query=query,
    )
    return TrialContext(plan, history, subtasks=SUBTASKS, capabilities=BARRIER_SYSTEM)


def right_output(plan: TrialPlan) -> list[dict[str, Any]]:
    """Return the output of one sequential run over all splits, one after the other."""
    return KeyedTotals.spec.running([row for split in KeyedTotals().splits(plan) for row in split.input])


def right_view(plan: TrialPlan, checkpoint: int, at: dict[str, int], **changes: Any) -> SnapshotView:
    """Return the snapshot that a correct system takes at these positions."""
    rows = [
        row for split in KeyedTotals().splits(plan) for row in split.rows[split.start_offset : at[split.name]]
    ]
    state = {
        msgspec.json.encode(list(key)).decode(): list(values)
        for key, values in KeyedTotals.spec.fold(rows).items()
    }
    held = (StateView("totals-1", "totals[0]", "totals", state),)
    view = SnapshotView(checkpoint, 1, at, held, SUBTASKS)
    return msgspec.structs.replace(view, **changes)


def positions_at(plan: TrialPlan, share: float) -> dict[str, int]:
    """Return positions at the same share of every split."""
    return {
        split.name: split.start_offset + int(share * len(split.input)) for split in KeyedTotals().splits(plan)
    }
