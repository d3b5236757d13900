"""Which clause is named first for what went wrong in event time."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from barrier_tck.harness.oracle.checkers.event_time import EventTime
from barrier_tck.harness.oracle.evidence.event_time import Divergence, EventTimeReplay, Wrong
from barrier_tck.harness.oracle.evidence.replayed_subtask import InputTime, ReplayedSubtask, Valve
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import JobPlan, VertexPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, WorkloadPlan
from barrier_tck.harness.workloads.event_time import EventTime as Workload
from barrier_tck.harness.workloads.kinds.expiring import COUNTED
from barrier_tck.harness.workloads.workload_names import job_of
from tests.harness.oracle.oracle_histories import Book, a_context, a_plan

PLAN = a_plan(workload=WorkloadPlan("event-time"), checkpoints=CheckpointPlan(mode="unaligned"))
STATE = Divergence(Wrong.STATE, "the state is wrong", "join[0]", "event_interval_join", 2, 11)
EMITTED = Divergence(Wrong.EMITTED, "a pair is wrong", "join[1]", "event_interval_join", 4, overtaken=True)


def named_first(monkeypatch: pytest.MonkeyPatch, *divergences: Divergence) -> str:
    monkeypatch.setattr(EventTimeReplay, "run", lambda self: self.divergences.extend(divergences))
    context = a_context(PLAN, Book())
    context = replace(context, history=msgspec.structs.replace(context.history, elements=()))
    return EventTime(TrialInput(Workload(), PLAN)).check(context).clauses[0]


def test_what_goes_wrong_behind_records_in_flight_breaks_what_unaligned_checkpoints_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert named_first(monkeypatch, EMITTED) == "EVT-3"


def test_a_vertex_that_was_wrong_before_breaks_the_clause_of_its_operator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert named_first(monkeypatch, EMITTED, STATE) == "EVT-4"


def test_what_is_wrong_only_later_or_elsewhere_explains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for other in (replace(STATE, attempt=5), replace(STATE, place="other[0]")):
        assert named_first(monkeypatch, EMITTED, other) == "EVT-3"


@pytest.mark.parametrize("wrong", [Wrong.EMITTED, Wrong.STATE])
def test_state_with_a_time_to_live_breaks_the_clause_of_timers(
    monkeypatch: pytest.MonkeyPatch, wrong: Wrong
) -> None:
    assert named_first(monkeypatch, Divergence(wrong, "it is gone", "count[0]", "expiring", 2)) == "EVT-5"


def test_a_job_with_such_state_is_judged_by_that_clause() -> None:
    plan = msgspec.structs.replace(PLAN, job=job_of("event-time", JobPlan("expiring")))
    assert "EVT-5" in EventTime(TrialInput(Workload(), plan)).clauses
    assert "EVT-5" not in EventTime(TrialInput(Workload(), PLAN)).clauses


def test_what_is_over_by_the_last_clock_is_not_in_a_snapshot_even_if_nobody_asked_for_the_time_then() -> None:
    vertex = VertexPlan("count", "expiring", 1, {"ttl_ms": 10})
    model = ReplayedSubtask(vertex, 4, Valve({"in": InputTime()}))
    row = {"key": "x", "ts": 0, "id": 3, "mark": 0, "n": 1, "how": ""}
    for at_ms in (100, 109):
        model.clock_shows(at_ms)
        model.take(0, [row])
    held = {("count", COUNTED): {"x": [109, [2, 3]]}}
    model.stand({"count": 118})
    assert model.entries() == held and not model.open_keys
    model.stand({"other": 500})
    assert model.entries() == held
    model.clock_shows(119)
    model.stand({})
    assert not model.entries()
