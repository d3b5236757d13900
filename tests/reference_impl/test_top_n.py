"""Rankings by window: which rows, in which order, whatever the order in which they came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cmp_to_key, partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.operators.top_n import TOP, Order, Top, top_n
from barrier_tck.reference_impl.operators.windows import Session, Sliding, Tumbling
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from tests.reference_impl.event_time_runs import Run, Step, bag, steps_with
from tests.reference_impl.opened_operators import PLANES

SCORES = {"score": Order.DESCENDING, "name": Order.ASCENDING}

planes = pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])


def run_of(
    plane: DataPlane, assigner: Any, n: int = 2, by: Any = SCORES, columns: Any = ("name", "score")
) -> Run:
    return Run(top_n("op", ("k",), Top(n, by), assigner, "ts", columns), plane, (TOP,))


def row(ts: int, score: Any, name: Any = "a", number: int = 0, k: str = "x") -> Row:
    return {"k": k, "ts": ts, "score": score, "name": name, "id": number}


def shown(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    return [(one["window_start"], one["rank"], one["name"], one["score"]) for one in rows]


@planes
def test_a_window_emits_its_first_rows_by_rank_when_it_ends(plane: DataPlane) -> None:
    run = run_of(plane, Tumbling(10))
    assert run.take(row(1, 5, "e"), row(2, 7, "b"), row(9, 7, "a"), row(10, 9, "z")) == []
    assert run.advance(8) == []
    assert run.advance(9) == [
        {"k": "x", "window_start": 0, "window_end": 10, "window_time": 9, "rank": 1, "name": "a", "score": 7},
        {"k": "x", "window_start": 0, "window_end": 10, "window_time": 9, "rank": 2, "name": "b", "score": 7},
    ]
    assert shown(run.end()) == [(10, 1, "z", 9)]


@planes
def test_each_key_has_a_ranking_of_its_own_and_only_its_first_rows_are_kept(plane: DataPlane) -> None:
    run = run_of(plane, Tumbling(10), n=1)
    run.take(*(row(1, score, k=key) for score in range(20) for key in ("x", "y")))
    assert [len(window[1]) for windows in run.kept(TOP) for window in windows.values()] == [1, 1]
    assert sorted((one["k"], one["rank"], one["score"]) for one in run.end()) == [("x", 1, 19), ("y", 1, 19)]


@planes
@pytest.mark.parametrize(
    ("order", "expected"),
    [(Order.DESCENDING, [9.0, 1.5, -1.0, None]), (Order.ASCENDING, [-1.0, 1.5, 9.0, None])],
)
def test_nulls_come_last_in_either_direction(plane: DataPlane, order: Order, expected: list[Any]) -> None:
    run = run_of(plane, Tumbling(10), 4, {"score": order})
    run.take(*(row(1, score) for score in (1.5, None, 9.0, -1.0)))
    assert [one["score"] for one in run.end()] == expected


def test_values_of_different_types_have_an_order_and_nan_is_the_largest_number() -> None:
    run = run_of(PLANES[0], Tumbling(10), 9, {"score": Order.ASCENDING})
    run.take(*(row(1, score) for score in ("a", math.nan, 2, True, math.inf, 1.5)))
    assert repr([one["score"] for one in run.end()]) == "[True, 1.5, 2, inf, nan, 'a']"


@planes
def test_sessions_that_meet_have_one_ranking(plane: DataPlane) -> None:
    run = run_of(plane, Session(10))
    run.take(row(0, 5, "a"), row(20, 6, "b"), row(21, 4, "c"))
    run.take(row(9, 1, "d"), row(18, 1, "e"))
    assert run.kept(EVENT_TIMERS) == [[30]]
    assert shown(run.advance(30)) == [(0, 1, "b", 6), (0, 2, "a", 5)]
    assert run.kept(EVENT_TIMERS) == []


@planes
@pytest.mark.parametrize("watermark", [5, 8, 9])
def test_a_record_exactly_the_gap_behind_a_session_begins_another_one_whatever_the_watermark(
    plane: DataPlane, watermark: int
) -> None:
    run = run_of(plane, Session(10))
    run.take(row(0, 5, "a"))
    run.advance(watermark)
    run.take(row(10, 6, "b"))
    run.end()
    assert shown(run.rows) == [(0, 1, "a", 5), (10, 1, "b", 6)]


@planes
def test_a_record_is_late_if_all_of_its_windows_have_ended(plane: DataPlane) -> None:
    run = run_of(plane, Sliding(10, 5))
    run.advance(9)
    run.take(row(7, 1))
    assert run.late == [] and shown(run.advance(14)) == [(5, 1, "a", 1)]
    run.take(row(7, 2))
    assert run.late == [row(7, 2)] and run.kept(TOP) == []


# --- against a model -----------------------------------------------------------------------------------------

rows_given: st.SearchStrategy[Step] = st.tuples(
    st.just("row"),
    st.just(0),
    st.builds(
        row,
        st.integers(-12, 40),
        st.none() | st.integers(-2, 2),
        st.none() | st.sampled_from(["a", "b"]),
        st.integers(0, 3),
        st.sampled_from(["x", "y"]),
    ),
)
assigners = st.one_of(
    st.builds(Tumbling, st.integers(1, 15), st.integers(-3, 3)),
    st.builds(Sliding, st.integers(1, 15), st.integers(1, 15), st.integers(-3, 3)),
    st.builds(Session, st.integers(1, 9)),
)
orders = st.sampled_from(
    [
        {"score": Order.DESCENDING},
        {"score": Order.ASCENDING},
        SCORES,
        {"name": Order.DESCENDING, "score": Order.ASCENDING},
    ]
)


def compared(by: dict[str, Order], one: Row, other: Row) -> int:
    """Return below 0 if one ranks before the other."""
    for column, order in by.items():
        mine, theirs = one[column], other[column]
        if mine == theirs:
            continue
        if mine is None or theirs is None:
            return 1 if mine is None else -1
        return -1 if (mine < theirs) is (order is Order.ASCENDING) else 1
    return 0


def windows_of(run: Run, assigner: Any) -> tuple[list[tuple[str, int, int, list[Row]]], list[Row]]:
    """Return all windows that there ever were: key, bounds and rows; and the late records."""
    windows: list[tuple[str, int, int, list[Row]]] = []
    late = []
    for one in run.arrived:
        ts, key = one.row["ts"], one.row["k"]
        if isinstance(assigner, Session):
            end = ts + assigner.gap_ms
            met = [
                each
                for each in windows
                if each[0] == key and each[1] < end and ts < each[2] and each[2] - 1 > one.watermark
            ]
            whole = (
                key,
                min([ts, *(each[1] for each in met)]),
                max([end, *(each[2] for each in met)]),
                [one.row, *(inside for each in met for inside in each[3])],
            )
            if whole[2] - 1 <= one.watermark:
                late.append(one.row)
            else:
                windows = [*(each for each in windows if each not in met), whole]
            continue
        every = assigner.size_ms if isinstance(assigner, Tumbling) else assigner.slide_ms
        own = [
            (start, start + assigner.size_ms)
            for start in range(ts - assigner.size_ms + 1, ts + 1)
            if (start - assigner.offset_ms) % every == 0
        ]
        left = [window for window in own if window[1] - 1 > one.watermark]
        if own and not left:
            late.append(one.row)
        for start, end in left:
            known = [each for each in windows if each[:3] == (key, start, end)]
            if known:
                known[0][3].append(one.row)
            else:
                windows.append((key, start, end, [one.row]))
    return windows, late


@given(steps_with(rows_given, 24), assigners, st.integers(1, 4), orders)
def test_at_any_time_it_has_emitted_the_first_rows_of_the_windows_that_have_ended(
    steps: Sequence[Step], assigner: Any, n: int, by: dict[str, Order]
) -> None:
    columns = {"name": "name", "score": "score", "number": "id"}
    for plane in PLANES:
        run = run_of(plane, assigner, n, by, columns)

        def check(run: Run = run) -> None:
            windows, late = windows_of(run, assigner)
            assert bag(run.late) == bag(late)
            ended = [one for one in windows if one[2] - 1 <= run.watermark(one[0])]
            assert sum(min(n, len(rows)) for *_, rows in ended) == len(run.rows)
            for key, start, end, rows in ended:
                found = [
                    one
                    for one in run.rows
                    if (one["k"], one["window_start"], one["window_end"]) == (key, start, end)
                ]
                ranked = sorted(rows, key=cmp_to_key(partial(compared, by)))[:n]
                assert [one["rank"] for one in found] == list(range(1, len(ranked) + 1))
                assert [[one[column] for column in by] for one in found] == [
                    [one[column] for column in by] for one in ranked
                ]
                inside = [{output: one[column] for output, column in columns.items()} for one in rows]
                for one in found:
                    inside.remove({output: one[output] for output in columns})
            kept = [start for each in run.kept(TOP) for start in each]
            assert sorted(kept) == sorted(one[1] for one in windows if one not in ended)

        run.follow(steps, check)


@given(st.data(), st.lists(rows_given, max_size=10), assigners, st.integers(1, 3), orders)
def test_the_order_of_arrival_and_restores_change_nothing_as_long_as_nothing_is_late(
    data: st.DataObject, steps: list[Step], assigner: Any, n: int, by: dict[str, Order]
) -> None:
    """Also for rows that are equal in all columns of the order: the same of them go on, in the same order."""
    outputs = []
    for order in (steps, data.draw(st.permutations(steps))):
        run = run_of(PLANES[0], assigner, n, by, {"name": "name", "number": "id"})
        for place, step in enumerate(order):
            if data.draw(st.booleans()):
                run.advance(min(later[2]["ts"] for later in order[place:]) - 1)
            if data.draw(st.booleans()):
                run.restore()
            run.do(step)
        run.end()
        outputs.append(bag(run.rows))
    assert outputs[0] == outputs[1]


# --- as a step of a job --------------------------------------------------------------------------------------


def test_it_is_a_step_behind_key_by() -> None:
    source = StreamJob("job", 8).source(CollectionSource((), 1))
    graph = (
        source.key_by("k").top_n(Top(3, SCORES), Tumbling(5), "ts", ["name"]).sink(FileSink("out")).build()
    )
    assert graph.vertex("top").operators[0].inputs == 1 and graph.has_event_time


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: Top(0, SCORES), "n must be 1 or more, not 0"),
        (lambda: Top(1, {}), "by needs a column and its direction, as"),
        (lambda: run_of(PLANES[0], Tumbling(5), columns=["k"]), "'op' gives the column 'k' twice; rename it"),
        (lambda: run_of(PLANES[0], Tumbling(5), columns={"rank": "name"}), "'rank' twice"),
        (lambda: run_of(PLANES[0], Tumbling(5), columns="name"), r"write columns as a list, \['name'\]"),
        (
            lambda: run_of(PLANES[0], Tumbling(5)).take({"k": "x", "ts": 1}),
            "'op': there is no column 'score'",
        ),
        (lambda: run_of(PLANES[0], Tumbling(5)).take({"k": "x"}), "no column 'ts'"),
        (
            lambda: run_of(PLANES[0], Tumbling(5)).take(row(1, b"1")),
            "'op' keeps null, .*column 'score'; convert it before",
        ),
    ],
)
def test_rankings_that_make_no_sense_are_refused(mistake: Any, message: str) -> None:
    with pytest.raises(JobUsageError, match=message):
        mistake()
