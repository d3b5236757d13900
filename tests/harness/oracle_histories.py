"""Tiny helpers that write literal histories for the oracle's tests."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.trial_input import TrialInput
from barrier_tck.harness.plan.trial_plan import RestartPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import End, History, Operation, Outcome, SnapshotView, StorageView
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals
from barrier_tck.harness.workloads.workload_names import filled

SUBTASKS = ("source[0]", "source[1]", "totals[0]", "totals[1]", "sink[0]")
INVOKE, OK, FAIL, INFO = Outcome.INVOKE, Outcome.OK, Outcome.FAIL, Outcome.INFO

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
    """Writes operations, one a millisecond."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []

    def write(self, operation: str, outcome: Outcome, process: str = "coordinator", **value: Any) -> Book:
        index = len(self.operations)
        self.operations.append(Operation(index, float(index), process, operation, outcome, value))
        return self

    def attempt(self, number: int, restored: int | None = None) -> Book:
        self.write("attempt", INVOKE, attempt=number, restored_checkpoint=restored)
        return self.write("attempt", OK, attempt=number)

    def attempt_failed(self, number: int) -> Book:
        return self.write("attempt", INFO, attempt=number, reason="a subtask was lost")

    def triggered(self, checkpoint: int, attempt: int = 1) -> Book:
        return self.write("checkpoint", INVOKE, checkpoint=checkpoint, attempt=attempt)

    def acknowledged(self, checkpoint: int, attempt: int = 1, subtasks: tuple[str, ...] = SUBTASKS) -> Book:
        for subtask in subtasks:
            self.write("ack", OK, checkpoint=checkpoint, attempt=attempt, subtask=subtask)
        return self

    def completed(self, checkpoint: int, attempt: int = 1) -> Book:
        return self.write("checkpoint", OK, checkpoint=checkpoint, attempt=attempt)

    def aborted(self, checkpoint: int, attempt: int = 1) -> Book:
        return self.write("checkpoint", FAIL, checkpoint=checkpoint, attempt=attempt, reason="expired")

    def checkpoint(self, checkpoint: int, attempt: int = 1) -> Book:
        """A whole checkpoint, from trigger to commit."""
        self.triggered(checkpoint, attempt).acknowledged(checkpoint, attempt).completed(checkpoint, attempt)
        return self.write("commit", OK, checkpoint=checkpoint, subtask="sink[0]")

    def fault(self, position: int = 0) -> Book:
        self.write("fault", INVOKE, "nemesis", fault=position, label="a fault")
        return self.write("fault", OK, "nemesis", fault=position, label="a fault")

    def healing(self, position: int = 0) -> Book:
        return self.write("heal", OK, "nemesis", fault=position, label="a fault")


def a_context(
    plan: TrialPlan,
    book: Book | None = None,
    end: End = End.FINISHED,
    output: list[dict[str, Any]] | None = None,
    views: tuple[SnapshotView, ...] = (),
    storage: StorageView | None = None,
    pending: tuple[str, ...] = (),
    query: dict[str, Any] | None = None,
) -> TrialContext:
    history = History(
        operations=tuple(book.operations) if book is not None else (),
        end=end,
        end_reason="so it went",
        output=None if output is None else tuple(output),
        checkpoints=views,
        storage=storage,
        pending=pending,
        output_query=query,
    )
    return TrialContext(plan, history, subtasks=SUBTASKS)


def right_output(plan: TrialPlan) -> list[dict[str, Any]]:
    """The output of one sequential run over all splits, one after the other."""
    return KeyedTotals.spec.running([row for split in KeyedTotals().splits(plan) for row in split.input])


def right_view(plan: TrialPlan, checkpoint: int, at: dict[str, int], **changes: Any) -> SnapshotView:
    """The snapshot that a correct system takes at these positions."""
    rows = [
        row for split in KeyedTotals().splits(plan) for row in split.rows[split.start_offset : at[split.name]]
    ]
    state = {
        msgspec.json.encode(list(key)).decode(): list(values)
        for key, values in KeyedTotals.spec.fold(rows).items()
    }
    view = SnapshotView(checkpoint, 1, at, {"totals-1": state}, SUBTASKS)
    return msgspec.structs.replace(view, **changes)


def positions_at(plan: TrialPlan, share: float) -> dict[str, int]:
    """The same share of every split."""
    return {
        split.name: split.start_offset + int(share * len(split.input)) for split in KeyedTotals().splits(plan)
    }
