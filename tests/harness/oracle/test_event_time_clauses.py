"""Which clause is named first for what went wrong in event time."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from barrier_tck.harness.oracle.checkers.event_time import EventTime
from barrier_tck.harness.oracle.evidence.event_time import Divergence, EventTimeReplay, Wrong
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, WorkloadPlan
from barrier_tck.harness.workloads.event_time import EventTime as Workload
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
