"""The first record of each key within a horizon: what is a duplicate does not depend on what was forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.deduplicate import FIRST, deduplicate
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from tests.reference_impl.event_time_runs import Run, Step, bag, steps_with
from tests.reference_impl.opened_operators import PLANES

planes = pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])


def run_of(plane: DataPlane, horizon_ms: int) -> Run:
    return Run(deduplicate("op", ("k",), "ts", horizon_ms), plane, (FIRST,))


def row(ts: int, number: int = 0, k: str | None = "x") -> Row:
    return {"k": k, "ts": ts, "id": number}


@planes
def test_the_first_to_arrive_goes_on_and_others_of_its_key_are_dropped_up_to_the_horizon(
    plane: DataPlane,
) -> None:
    run = run_of(plane, 10)
    assert run.take(row(5, 1), row(5, 2), row(15, 3), row(-5, 4), row(5, 5, "y"), row(5, 6, None)) == [
        row(5, 1),
        row(5, 5, "y"),
        row(5, 6, None),
    ]
    assert run.take(row(16, 7), row(5, 8, None), row(26, 9)) == [row(16, 7)]


@planes
def test_a_key_is_forgotten_when_the_watermark_has_come_to_its_horizon(plane: DataPlane) -> None:
    run = run_of(plane, 10)
    run.take(row(5, 1))
    run.advance(14)
    assert run.kept(FIRST) == [[5]]
    assert run.take(row(15, 2)) == []
    run.advance(15)
    assert run.kept(FIRST) == run.kept(EVENT_TIMERS) == []
    assert run.take(row(16, 3), row(15, 4)) == [row(16, 3)]
    assert run.late == [row(15, 4)]
    run.end()


def test_a_record_that_is_earlier_by_more_than_the_horizon_is_no_duplicate_either() -> None:
    run = run_of(PLANES[0], 10)
    assert run.take(row(25, 1), row(14, 2), row(3, 3), row(4, 4)) == [row(25, 1), row(14, 2), row(3, 3)]
    run.end()


def test_a_first_record_is_remembered_over_a_restore() -> None:
    run = run_of(PLANES[0], 10)
    run.take(row(5, 1))
    run.restore()
    assert run.take(row(6, 2)) == []
    run.end()


def test_a_horizon_wider_than_time_ends_with_it() -> None:
    run = run_of(PLANES[0], END_OF_TIME)
    run.take(row(5, 1))
    assert run.take(row(10**15, 2)) == []
    run.end()


rows_given: st.SearchStrategy[Step] = st.tuples(
    st.just("row"),
    st.just(0),
    st.builds(row, st.integers(-12, 40), st.integers(0, 2), st.none() | st.sampled_from(["x", "y"])),
)


@given(steps_with(rows_given, 24), st.integers(0, 20))
def test_it_passes_on_what_it_would_if_it_never_forgot_anything(steps: Sequence[Step], horizon: int) -> None:
    for plane in PLANES:
        run = run_of(plane, horizon)

        def check(run: Run = run) -> None:
            first: list[Row] = []
            for one in run.arrived:
                known = [each["ts"] for each in first if each["k"] == one.row["k"]]
                if not one.is_late and not any(abs(one.row["ts"] - each) <= horizon for each in known):
                    first.append(one.row)
            assert run.rows == first
            assert bag(run.late) == bag([one.row for one in run.arrived if one.is_late])
            needed = [one["ts"] for one in first if one["ts"] + horizon > run.watermark(one["k"])]
            assert sorted(one for times in run.kept(FIRST) for one in times) == sorted(needed)

        run.follow(steps, check)


def test_it_is_a_step_behind_key_by() -> None:
    source = StreamJob("job", 8).source(CollectionSource((), 1))
    graph = source.key_by("k").deduplicate("ts", 5).sink(FileSink("out")).build()
    assert graph.vertex("deduplicate").operators[0].inputs == 1 and graph.has_event_time


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(JobUsageError, match="'op': horizon_ms must be 0 or more, not -1; 0 drops"):
        deduplicate("op", ("k",), "ts", -1)
    no_time: Any = {"k": "x", "ts": None}
    with pytest.raises(JobUsageError, match="'op' needs an event time in column 'ts'"):
        run_of(PLANES[0], 5).take(no_time)
