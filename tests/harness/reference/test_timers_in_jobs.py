"""Timers of whole jobs in the simulator: they go off in time, whatever made the record that set them.

That they survive failures and move with their keys is tried by the conformance suite and by drawn plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, SavepointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.named_timers import LATE_MS_MAX
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.operators.functions import Count, Emission, Row
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import Stream, StreamJob
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers, TimedProcessOperator
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.runtime.subtask_timers import SubtaskTimers
from barrier_tck.reference_impl.state.keyed import KeyedStates
from tests.harness.reference.test_reference_graphs import GROUPS, committed, out, run, source

FEW, MANY = 8, 300
"""Records that come to the timers, all at the beginning, and those that the source emits."""
IN_TIME_MS = LATE_MS_MAX + 3
"""How late a timer may go off: as late as the world makes it, and one step."""


class Echo:
    """Sets a timer for each record, and says how late it has gone off, and whether because the input had ended."""

    def __init__(self, delay_ms: int, first_ms: int) -> None:
        self.delay_ms, self.first_ms = delay_ms, first_ms

    def open(self, states: KeyedStates, timers: KeyedTimers) -> None:
        self.timers = timers

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        self.timers.set(group, key, self.timers.now_ms + (self.first_ms if row["k"] == 0 else self.delay_ms))
        return ()

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        return [{"k": group, "late": self.timers.now_ms - at_ms, "ended": self.timers.ended}]


def echo(delay_ms: int, first_ms: int | None = None) -> Callable[[], Echo]:
    """Return what makes the function; ``first_ms`` is the delay of records whose ``k`` is 0, if it differs."""
    return lambda: Echo(delay_ms, delay_ms if first_ms is None else first_ms)


def few() -> Stream:
    """Records that are all read at the beginning, of an input that goes on for long."""
    rows = [{"id": number, "k": number} for number in range(MANY)]
    return StreamJob("timers", GROUPS).source(source(rows, 1), 1, "read").filter(_is_early)


def _is_early(row: Row) -> bool:
    return bool(row["id"] < FEW)


def alone() -> Stream:
    return few().key_by("k").process(echo(30), 1, "timed", timers=True)


def set_ahead_of_a_barrier() -> Stream:
    """What is aggregated leaves at a barrier, and no record follows."""
    counted = few().key_by("k").aggregate({"n": Count()}, emit=Emission.CHANGES, parallelism=1)
    return counted.key_by("k").process(echo(30), name="timed", chain=True, timers=True)


def over_several_inputs() -> Stream:
    stream = few()
    both = stream.key_by("k").connect(stream.map(dict).key_by("k"))
    return both.process(echo(30), 1, "timed", timers=True)


def the_first_one_is_later() -> Stream:
    return alone().key_by("k").process(echo(10), name="behind", chain=True, timers=True)


def the_second_one_is_later() -> Stream:
    first = few().key_by("k").process(echo(10), 1, "timed", timers=True)
    return first.key_by("k").process(echo(40), name="behind", chain=True, timers=True)


def one_timer_is_far_ahead() -> Stream:
    """While it is, those of the other operator must go off."""
    first = few().key_by("k").process(echo(10, first_ms=400), 1, "timed", timers=True)
    return first.key_by("k").process(echo(10), name="behind", chain=True, timers=True)


STREAMS = [
    *(alone, set_ahead_of_a_barrier, over_several_inputs),
    *(the_first_one_is_later, the_second_one_is_later, one_timer_is_far_ahead),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stream", STREAMS)
def test_timers_go_off_in_time_whatever_has_set_them(stream: Callable[[], Stream], seed: int) -> None:
    graph: JobGraph = stream().sink(out(), 1).build()
    rows = committed(run(graph, None, seed)[0], "output")
    assert len(rows) >= FEW // 2
    assert not any(row["ended"] for row in rows), "they went off before the input had ended"
    assert max(row["late"] for row in rows) <= IN_TIME_MS


@pytest.mark.parametrize("seed", range(3))
def test_a_timer_that_is_due_while_its_process_is_paused_goes_off_afterwards(seed: int) -> None:
    pause = ScheduledFault(PauseWorker("timed[0]", duration_ms=80), At(25))
    rows = committed(run(alone().sink(out(), 1).build(), pause, seed)[0], "output")
    assert len(rows) == FEW and not any(row["ended"] for row in rows)
    assert any(row["late"] > IN_TIME_MS for row in rows), "some were due during the pause"


def test_behind_the_barrier_of_a_stop_no_timer_goes_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control takes the hold away: then some do, so the plan can show it."""
    plan = TrialPlan(
        job=JobPlan("windows"),
        workload=WorkloadPlan("lineage", batches=40, batch_records=2, keys=20, records_per_second=300),
        checkpoints=CheckpointPlan(interval_ms=15, async_ms_max=120),
        savepoints=(SavepointPlan(after_checkpoints=1, stop=True),),
    )
    held: dict[int, bool] = {}
    behind: list[int] = []
    kept: list[SubtaskDriver] = []  # so that no two operators have the same identity
    hold, fire = SubtaskDriver._hold_input, TimedProcessOperator.fire_timer

    def _hold_input(self: SubtaskDriver, now: bool) -> None:
        kept.append(self)
        held.update((id(operator), now) for operator in self.operators)
        hold(self, now)

    def fire_timer(self: TimedProcessOperator, until_ms: float) -> Sequence[Payload] | None:
        payloads = fire(self, until_ms)
        behind.extend(len(payload) for payload in payloads or () if held.get(id(self)))
        return payloads

    monkeypatch.setattr(SubtaskDriver, "_hold_input", _hold_input)
    monkeypatch.setattr(TimedProcessOperator, "fire_timer", fire_timer)
    for seed in range(4):
        record = run_trial(msgspec.structs.replace(plan, seed=seed), ReferenceSimulated(), tmp_path)
        assert record.verdict is Verdict.VALID
    assert any(held.values()) and not behind
    monkeypatch.setattr(SubtaskTimers, "hold", lambda self, now: None)
    for seed in range(4):
        run_trial(msgspec.structs.replace(plan, seed=seed), ReferenceSimulated(), tmp_path)
    assert behind, "without the hold, some go off"
