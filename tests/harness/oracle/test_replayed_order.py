"""Records in flight after a restore: what is out of order is found, at any width; grain: simulation."""

from __future__ import annotations

import msgspec
import pytest

from barrier_tck.harness.oracle.evidence.arrivals import Arrivals
from barrier_tck.harness.oracle.evidence.replayed_order import ReplayedOrder
from barrier_tck.harness.plan.job_graph import SINK, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import InFlight, Row, SnapshotView, StateView
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.lineage import source

KEY = ("key",)
JOB = JobPlan(
    vertices=(
        source("read"),
        VertexPlan("pass", "pass", 2),
        VertexPlan("last", "keep", 2),
        VertexPlan("out", SINK, 2),
    ),
    edges=(
        EdgePlan("read", "pass", Spread.HASH, KEY),
        EdgePlan("pass", "last", Spread.HASH, KEY),
        EdgePlan("last", "out", Spread.FORWARD),
    ),
)
NARROWER = msgspec.structs.replace(
    JOB, vertices=tuple(msgspec.structs.replace(vertex, parallelism=1) for vertex in JOB.vertices)
)
VIEW = barrier_view(TrialPlan(workload=WorkloadPlan("lineage"), job=JOB))
FIRST, SECOND = 0, 100_000
"""The first ids of two splits."""


def row(identifier: int, path: str = "pass[0]", key: str = "k") -> Row:
    return {"id": identifier, "key": key, "path": path}


def held(*rows: Row, sender: str = "pass[0]", receiver: str = "last[1]") -> SnapshotView:
    return SnapshotView(1, 1, {}, in_flight=(InFlight(sender, receiver, 0, rows),))


def later(*ids: int, path: str = "pass[0]") -> SnapshotView:
    state = StateView("last", "last[0]", "kept", {'["k"]': [[0, one, path] for one in ids]})
    return SnapshotView(2, 2, {}, state=(state,))


def problems(view: SnapshotView, restored: SnapshotView, *jobs: JobPlan) -> tuple[list[str], int]:
    widths = jobs or (JOB, NARROWER)
    order = ReplayedOrder(widths, Arrivals(widths[0]))
    return list(map(str, order.problems(view, VIEW, [(restored, JOB)]))), order.compared


@pytest.mark.parametrize("jobs", [(JOB,), (JOB, NARROWER)])
def test_records_that_come_back_as_they_lay_are_right(jobs: tuple[JobPlan, ...]) -> None:
    two_splits = held(row(FIRST + 1), row(SECOND + 1), row(FIRST + 2))
    right = later(FIRST, FIRST + 1, SECOND + 1, FIRST + 2, SECOND + 2)
    assert problems(right, two_splits, *jobs) == ([], 3)


@pytest.mark.parametrize("jobs", [(JOB,), (JOB, NARROWER)])
def test_two_records_that_changed_places_are_told_though_they_are_of_several_splits(
    jobs: tuple[JobPlan, ...],
) -> None:
    found, _ = problems(later(SECOND + 1, FIRST + 1), held(row(FIRST + 1), row(SECOND + 1)), *jobs)
    assert [problem for problem in found if "the other way round" in problem and "RSC-3" in problem]


def test_a_newer_record_between_those_that_were_in_flight_is_told() -> None:
    found, _ = problems(later(FIRST + 1, SECOND + 9, FIRST + 2), held(row(FIRST + 1), row(FIRST + 2)))
    assert [problem for problem in found if f"record {SECOND + 9}" in problem and "UNA-1" in problem]


def test_a_record_that_was_read_later_and_comes_first_after_a_rescale_is_told() -> None:
    nothing = held(receiver="last[0]")
    found, _ = problems(later(FIRST + 2, FIRST + 1), nothing)
    assert [problem for problem in found if f"behind record {FIRST + 2}" in problem]


def test_what_was_in_flight_further_up_stays_in_order_further_down() -> None:
    before = held(row(FIRST + 1, ""), row(SECOND + 1, ""), sender="read[0]", receiver="pass[1]")
    assert problems(later(FIRST + 1, SECOND + 1), before) == ([], 2)
    found, _ = problems(later(SECOND + 1, FIRST + 1), before)
    assert len(found) == 1


def test_records_of_other_keys_other_paths_and_other_receivers_have_no_order() -> None:
    other_key = held(row(FIRST + 1), row(FIRST + 2, key="l"))
    assert problems(later(SECOND + 1, FIRST + 1), other_key) == ([], 0)
    other_path = held(row(FIRST + 1, "pass[1]"), row(SECOND + 1, "pass[1]"), sender="pass[1]")
    assert problems(later(SECOND + 1, FIRST + 1), other_path) == ([], 0)


def test_nothing_is_said_of_what_lies_behind_an_edge_that_deals_out_batches_unless_no_width_changed() -> None:
    dealt = msgspec.structs.replace(JOB, edges=(EdgePlan("read", "pass", Spread.REBALANCE), *JOB.edges[1:]))
    wrong, before = later(SECOND + 1, FIRST + 1), held(row(FIRST + 1), row(SECOND + 1))
    assert problems(wrong, before, dealt, NARROWER) == ([], 0)
    assert problems(wrong, before, dealt)[1] == 2
