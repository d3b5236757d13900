"""The checker of timers: what waits has its timer, no timer is idle, and nothing waits too long."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.timers_kept import WAITED, TimersKept
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    LimitsPlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import End, SnapshotView, StateView
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.oracle_histories import Book, a_context

SIZE_MS, PROGRESS_MS = 60, 100
PLAN = filled(
    TrialPlan(
        job=JobPlan("windows"),
        workload=WorkloadPlan("lineage", batches=4),
        limits=LimitsPlan(progress_ms=PROGRESS_MS),
    )
)
RECORD = [0, 7, "read.mark[0]>first[0]"]


def view(
    checkpoint: int,
    waiting: dict[str, list[Any]] | None = None,
    timers: dict[str, list[int]] | None = None,
    attempt: int = 1,
    subtask: str = "windows[0]",
) -> SnapshotView:
    states = (
        StateView("windows", subtask, "seen", {}),
        StateView("windows", "windows[0]", "window", {"k": [[*RECORD, 60]]} if waiting is None else waiting),
        StateView("windows", subtask, "~timers", {"k": [60]} if timers is None else timers),
    )
    return SnapshotView(checkpoint, attempt, {"read-0": 1}, states, ("windows[0]",))


def judged(*views: SnapshotView, plan: TrialPlan = PLAN, apart_ms: int = 0) -> Finding:
    """Judge checkpoints that are all triggered and completed at once, each some time after the one before."""
    book = Book().attempt(1)
    for one in views:
        book.checkpoint(one.checkpoint, one.attempt or 0).nothing(apart_ms)
    context: TrialContext = a_context(plan, book, End.FINISHED, views=views)
    return TimersKept(plan).check(context)


def test_what_waits_with_its_timer_is_right() -> None:
    finding = judged(view(1), view(2))
    assert (finding.verdict, finding.clauses, finding.counts[WAITED]) == (Verdict.VALID, ("STA-1",), 2)


def test_without_anything_that_waits_nothing_is_said() -> None:
    finding = judged(view(1, {}, {}))
    assert (finding.verdict, finding.clauses) == (Verdict.VALID, ())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (view(1, timers={}), "has no timer for that"),
        (view(1, timers={"k": [61]}), "nothing waits for it"),
        (view(1, timers={"k": [60, 61]}), "nothing waits for it"),
        (view(1, timers={"k": [60, 60]}), "two timers"),
        (view(1, timers={"other": [60]}), "has no timer for that"),
        (view(1, subtask="windows[1]"), "has no timer for that"),
        (view(1, waiting={}), "nothing waits for it"),
        (view(1, waiting={"k": [[*RECORD, 60], [0, 8, "", 120]]}), "until 120 ms"),
    ],
)
def test_timers_and_what_waits_for_them_belong_together(wrong: SnapshotView, told: str) -> None:
    finding = judged(wrong)
    assert finding.verdict is Verdict.INVALID
    assert any(told in example for example in finding.examples)


LATE_MS = SIZE_MS + PROGRESS_MS


@pytest.mark.parametrize(("apart_ms", "late"), [(LATE_MS - 20, False), (LATE_MS + 20, True)])
def test_nothing_waits_longer_than_its_window_and_what_progress_may_take(apart_ms: int, late: bool) -> None:
    finding = judged(view(1), view(2), apart_ms=apart_ms)
    assert finding.verdict is (Verdict.INVALID if late else Verdict.VALID)
    assert finding.counts["violations"] == late


def test_it_may_wait_longer_if_a_fault_lasts_or_a_stop_may_fail_and_in_another_attempt() -> None:
    fault = ScheduledFault(PauseWorker("windows[0]", duration_ms=100), At(5))
    stop = SavepointPlan(after_checkpoints=1, stop=True)
    paused = msgspec.structs.replace(PLAN, faults=(fault,))
    stopped = msgspec.structs.replace(PLAN, savepoints=(stop,), checkpoints=CheckpointPlan(timeout_ms=100))
    for plan in (paused, stopped):
        assert judged(view(1), view(2), plan=plan, apart_ms=LATE_MS + 20).verdict is Verdict.VALID
        assert judged(view(1), view(2), plan=plan, apart_ms=LATE_MS + 120).verdict is Verdict.INVALID
    assert judged(view(1), view(2, attempt=2), apart_ms=LATE_MS + 20).verdict is Verdict.VALID


def test_records_wait_each_for_itself() -> None:
    """The second one came while the first one waited; that one has left."""
    second = {"k": [[0, 8, RECORD[2], 120]]}
    assert judged(view(1), view(2, second, {"k": [120]}), apart_ms=LATE_MS + 20).verdict is Verdict.VALID
