"""The model of state with a time to live against the runtime's, over waits, snapshots and restores."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.plan.job_graph import (
    SINK,
    EdgePlan,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
)
from barrier_tck.harness.plan.trial_plan import DeploymentPlan
from barrier_tck.harness.reference.operator_kind import Site
from barrier_tck.harness.reference.operators import reference_kinds
from barrier_tck.harness.workloads.event_time import EventTime
from barrier_tck.harness.workloads.kinds.expiring import COUNTED, FORMS, REFRESHED_BY, ReplayedExpiring
from barrier_tck.harness.workloads.replayed import KeyState, ReadsClock
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.encoding import decode_key
from tests.reference_impl.opened_operators import GROUPS, PLANES, Storage, listed, opened

KIND = reference_kinds()["expiring"]
parameters = st.fixed_dictionaries(
    {"ttl_ms": st.integers(1, 12)},
    optional={
        "form": st.sampled_from(FORMS),
        "refreshed_by": st.sampled_from(REFRESHED_BY),
        "clear_every": st.integers(2, 4),
        "look_every": st.integers(2, 4),
    },
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.sampled_from("xy"), st.integers(0, 9)),
        st.tuples(st.just("row"), st.sampled_from("xy"), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.integers(0, 9), st.none()),
        st.tuples(st.just("restore"), st.integers(-4, 9), st.none()),
    ),
    max_size=24,
)


def job_with(wanted: dict[str, Any], by: Spread = Spread.HASH) -> JobPlan:
    return JobPlan(
        vertices=(
            VertexPlan("a", "source", 1, {"bound_ms": 1}),
            VertexPlan("op", "expiring", 1, wanted),
            VertexPlan("out", SINK, 1),
        ),
        edges=(
            EdgePlan("a", "op", by, ("key",) if by is Spread.HASH else ()),
            EdgePlan("op", "out", Spread.FORWARD),
        ),
    )


class Compared:
    """A model beside the operator of the runtime, with one clock."""

    def __init__(self, wanted: dict[str, Any], plane: DataPlane) -> None:
        operator = OperatorPlan("op", "expiring", wanted)
        assert EventTime().problem_of(job_with(wanted)) is None
        self.spec = KIND.make(Site(job_with(wanted), DeploymentPlan(), operator, (("key",),), EventTime()))
        self.plane, self.storage, self.now_ms, self.snapshots = plane, Storage(), 1_000, 0
        self.operator = self.opened(None)
        self.model = ReplayedExpiring(operator)
        self.kept: dict[str, KeyState] = {}

    def opened(self, part: Any) -> Any:
        return opened(self.spec, self.plane, self.storage, part, now_ms=lambda: self.now_ms + 0.5)

    def take(self, key: str, identifier: int) -> str:
        """Give a record to both, which must emit the same; return how it came."""
        row = {"key": key, "ts": 0, "id": identifier, "mark": 7, "n": 1, "how": ""}
        got = listed(self.operator.process_input(self.plane.from_rows([row]), 0))
        self.model.now_ms = self.now_ms
        assert got == [one for _, one in self.model.take(self.kept.setdefault(key, {}), 0, row, 0)]
        return str(got[0]["how"])

    def restore(self, later_ms: int) -> None:
        """Go on in another operator, whose clock may be behind."""
        self.snapshots += 1
        part = self.operator.snapshot(CheckpointId(self.snapshots)).run()
        self.model.now_ms = self.now_ms
        for kept in self.kept.values():
            self.model.remove_what_is_over(kept)
        self.now_ms += later_ms
        self.operator = self.opened(part)
        self.compare()

    def compare(self) -> None:
        store, (state,) = self.operator._opened()[1], KIND.states
        shown = {
            decode_key(key)[0]: state.read(data)
            for group in range(GROUPS)
            for key, data in store.scan(COUNTED, group)
        }
        entries = {key: self.model.entries(kept) for key, kept in self.kept.items()}
        assert shown == {key: one[COUNTED] for key, one in entries.items() if one}


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
@given(wanted=parameters, run=steps)
def test_a_model_emits_and_holds_what_the_runtime_does(
    plane: DataPlane, wanted: dict[str, Any], run: list[tuple[str, Any, Any]]
) -> None:
    compared = Compared(wanted, plane)
    for what, first, second in run:
        if what == "row":
            compared.take(first, second)
        elif what == "wait":
            compared.now_ms += first
        else:
            compared.restore(first)
    compared.restore(0)


@pytest.mark.parametrize("form", FORMS)
def test_a_record_says_what_was_there_until_it_was_not_used_for_so_long(form: str) -> None:
    compared = Compared({"ttl_ms": 10, "form": form, "clear_every": 7}, PLANES[0])
    assert compared.take("x", 3) == "op:0 since -"
    compared.now_ms += 9
    assert compared.take("x", 4) == "op:1 since 3"
    compared.restore(9)
    assert compared.take("x", 5) == "op:2 since 3"
    compared.restore(10)
    assert compared.take("x", 6) == "op:0 since -"
    assert compared.take("x", 7) == "op:1 since 6"
    assert compared.take("x", 8) == "op:0 since -", "record 7 has cleared it"


def test_a_look_is_a_use_only_of_state_that_reading_refreshes() -> None:
    for refreshed_by, found in (("writing", "op:0 since -"), ("reading", "op:1 since 1")):
        wanted = {"ttl_ms": 10, "refreshed_by": refreshed_by, "look_every": 2}
        compared = Compared(wanted, PLANES[0])
        for identifier in (1, 2):
            compared.take("x", identifier)
            compared.now_ms += 9
        assert compared.take("x", 4) == found


def test_the_model_says_that_it_reads_the_clock() -> None:
    assert isinstance(ReplayedExpiring(OperatorPlan("op", "expiring", {"ttl_ms": 1})), ReadsClock)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ({}, "ttl_ms"),
        ({"ttl_ms": 0}, "ttl_ms"),
        ({"ttl_ms": 5, "clear_every": 1}, "clear_every"),
        ({"ttl_ms": 5, "look_every": 0}, "look_every"),
        ({"ttl_ms": 5, "form": "set"}, "value, list, map for form"),
        ({"ttl_ms": 5, "refreshed_by": "time"}, "writing, reading for refreshed_by"),
        ({"ttl_ms": 5, "size_ms": 5}, "no parameter 'size_ms'"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(wanted: dict[str, Any], says: str) -> None:
    problem = EventTime().problem_of(job_with(wanted))
    assert problem is not None and says in problem


def test_it_needs_hash_edges() -> None:
    assert "must be hash edges" in str(EventTime().problem_of(job_with({"ttl_ms": 5}, Spread.REBALANCE)))
