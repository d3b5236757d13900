"""The checker of timers: what waits has its timer, no timer is idle, and nothing waits too long."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.timers import LATE_MS, WAITED, TimersKept
from barrier_tck.harness.oracle.evidence.record_routes import RecordPaths
from barrier_tck.harness.plan.job_graph import SINK, EdgePlan, JobPlan, OperatorPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import End, SnapshotView, StateView
from barrier_tck.harness.record.operations import AbortLearned, AttemptRunning, CheckpointTriggered
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.generated_jobs import GENERATED
from barrier_tck.harness.workloads.lineage import hashed, source
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.oracle.oracle_histories import Book, a_context

END_MS, PROGRESS_MS = 60, 100
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


def judged(*views: SnapshotView, plan: TrialPlan = PLAN, at_ms: int = 0, repeats: bool = True) -> Finding:
    """Judge checkpoints that are triggered one after the other, from some time on."""
    book = Book().attempt(1).nothing(at_ms)
    for one in views:
        book.checkpoint(one.checkpoint, one.attempt or 0)
    context: TrialContext = a_context(plan, book, End.FINISHED, views=views)
    if repeats:
        context = replace(context, capabilities=context.capabilities | {Capability.DETERMINISTIC_REPLAY.name})
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


@pytest.mark.parametrize(("repeats", "allowed_ms"), [(True, LATE_MS), (False, PROGRESS_MS)])
def test_nothing_waits_long_after_the_end_of_its_window(repeats: bool, allowed_ms: int) -> None:
    soon = judged(view(1), at_ms=END_MS + allowed_ms - 20, repeats=repeats)
    late = judged(view(1), at_ms=END_MS + allowed_ms + 20, repeats=repeats)
    assert (soon.verdict, late.verdict) == (Verdict.VALID, Verdict.INVALID)
    assert "ms before checkpoint 1 was triggered" in late.examples[0]


def test_where_a_channel_or_a_vertex_is_slow_timers_may_be_as_late_as_progress() -> None:
    limits = LimitsPlan(progress_ms=3 * LATE_MS)
    for plan in (
        msgspec.structs.replace(PLAN, limits=limits, network=NetworkPlan(slow_channel=0)),
        msgspec.structs.replace(PLAN, limits=limits, deployment=DeploymentPlan(slow_vertex="last")),
    ):
        assert judged(view(1), plan=plan, at_ms=END_MS + 2 * LATE_MS).verdict is Verdict.VALID
        assert judged(view(1), plan=plan, at_ms=END_MS + 4 * LATE_MS).verdict is Verdict.INVALID


def _looped(network: NetworkPlan) -> TrialPlan:
    """Return a plan in whose job what leaves the window goes round."""
    vertices = (
        source("read"),
        VertexPlan("windows", "window", 2, {"every": 1, "size_ms": END_MS}),
        VertexPlan("head", "keep", 2),
        VertexPlan("again", "again", 1, {"turns": 3}, then=(OperatorPlan("again.fork", "fork"),)),
        VertexPlan("out", SINK, 1),
    )
    edges = (
        hashed("read", "windows"),
        hashed("windows", "head"),
        EdgePlan("head", "again", Spread.REBALANCE),
        msgspec.structs.replace(hashed("again", "head"), feedback=True),
        EdgePlan("head", "out", Spread.REBALANCE),
    )
    return filled(
        TrialPlan(
            job=JobPlan(GENERATED, vertices=vertices, edges=edges),
            workload=WorkloadPlan("rounds", batches=12),
            network=network,
        )
    )


def test_what_goes_round_a_loop_may_hold_timers_up_as_long_as_it_keeps_channels_busy() -> None:
    late_ms = END_MS + LATE_MS + 600
    narrow, wide = _looped(NetworkPlan(20, channel_capacity=1)), _looped(NetworkPlan(1, channel_capacity=32))
    assert judged(view(1), plan=narrow, at_ms=late_ms).verdict is Verdict.VALID
    assert judged(view(1), plan=wide, at_ms=late_ms).verdict is Verdict.INVALID


def test_the_clock_of_the_system_may_show_another_time_at_the_beginning() -> None:
    context = a_context(PLAN, Book().attempt(1).checkpoint(1), End.FINISHED, views=(view(1),))
    later = replace(
        context, history=msgspec.structs.replace(context.history, epoch_ms=END_MS + PROGRESS_MS + 50.0)
    )
    assert TimersKept(PLAN).check(context).verdict is Verdict.VALID
    assert TimersKept(PLAN).check(later).verdict is Verdict.INVALID


def test_it_may_wait_longer_if_a_fault_lasts() -> None:
    fault = ScheduledFault(PauseWorker("windows[0]", duration_ms=100), At(5))
    plan = msgspec.structs.replace(PLAN, faults=(fault,))
    assert judged(view(1), plan=plan, at_ms=END_MS + LATE_MS + 50).verdict is Verdict.VALID
    assert judged(view(1), plan=plan, at_ms=END_MS + LATE_MS + 150).verdict is Verdict.INVALID


STOPPED = msgspec.structs.replace(
    PLAN,
    savepoints=(SavepointPlan(after_checkpoints=1, stop=True),),
    checkpoints=CheckpointPlan(timeout_ms=10_000),
)


def stopped_for(ms: int, at_ms: int, *, learned: bool = True, repeats: bool = True) -> Finding:
    """Judge a checkpoint that is triggered at a time, behind a stop that begins at the window's end and fails."""
    book = Book().attempt(1).nothing(END_MS - 2).tell(CheckpointTriggered(9, 1, savepoint="here", stops=True))
    book.nothing(ms - 1)
    book.tell(AbortLearned(9, 1, "windows[0]") if learned else AttemptRunning(1))
    book.nothing(at_ms - END_MS - ms).checkpoint(1)
    context = a_context(STOPPED, book, End.FINISHED, views=(view(1),))
    if repeats:
        context = replace(context, capabilities=context.capabilities | {Capability.DETERMINISTIC_REPLAY.name})
    return TimersKept(STOPPED).check(context)


@pytest.mark.parametrize("learned", [True, False], ids=["learned", "started again"])
def test_a_stop_holds_timers_up_until_it_fails_and_no_longer(learned: bool) -> None:
    soon = stopped_for(100, END_MS + LATE_MS + 80, learned=learned)
    late = stopped_for(100, END_MS + LATE_MS + 120, learned=learned)
    assert (soon.verdict, late.verdict) == (Verdict.VALID, Verdict.INVALID)
    assert "100 ms of which a stop took that failed" in late.examples[0]
    assert "621 ms before checkpoint 1" in late.examples[0]


def test_without_a_stop_in_the_history_none_is_an_excuse_unless_the_machine_is_real() -> None:
    never = judged(view(1), plan=STOPPED, at_ms=END_MS + LATE_MS + 20)
    assert never.verdict is Verdict.INVALID
    real = END_MS + PROGRESS_MS + 10_000
    assert judged(view(1), plan=STOPPED, at_ms=real - 50, repeats=False).verdict is Verdict.VALID
    assert judged(view(1), plan=STOPPED, at_ms=real + 50, repeats=False).verdict is Verdict.INVALID


# --- the order of records behind a window ---------------------------------------------------------------------


def taken(vertex: str, path: str, *records: tuple[int, str]) -> list[str]:
    """Return what is out of order among records (id, key) that came to the first subtask of a vertex."""
    arrivals = [(0, identifier, path, key) for identifier, key in records]
    found = RecordPaths(PLAN.job).overtaken(f"{vertex}[0]", arrivals, {}, (vertex, 0))
    return list(map(str, found))


def test_keys_may_pass_each_other_in_a_window_and_nowhere_else() -> None:
    ahead = "read.mark[0]>first[0]"
    through = f"{ahead}>windows[0]>last[0]"
    assert taken("windows", ahead, (2, "a"), (1, "b")), "there is no window on the way"
    assert not taken("out", through, (2, "a"), (1, "b")), "each key left when its own timer went off"
    assert taken("out", through, (2, "a"), (1, "a")), "a key's own records stay in order"
    assert not taken("out", through, (1, "a"), (2, "a"), (1, "b"))
