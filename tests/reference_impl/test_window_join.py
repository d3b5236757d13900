"""The join by windows against its definition: what is emitted when a window ends, and nothing kept behind that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.join_sides import SIDES, JoinForm, JoinSide
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.operators.window_join import window_join
from barrier_tck.reference_impl.operators.windows import Session, Sliding, Tumbling
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from tests.reference_impl.event_time_runs import Run, Step, bag, steps_with
from tests.reference_impl.opened_operators import PLANES

LEFT = JoinSide("ts", ["k", "a"])
RIGHT = JoinSide("ts", {"b": "id"})
KEYS = (("k",), ("k",))

planes = pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])


def run_of(plane: DataPlane, assigner: Any, form: JoinForm = JoinForm.INNER) -> Run:
    return Run(window_join("op", KEYS, assigner, LEFT, RIGHT, form), plane, SIDES)


def left(ts: int, a: int = 0, k: str | None = "x") -> Row:
    return {"k": k, "ts": ts, "a": a}


def right(ts: int, b: int = 0, k: str | None = "x") -> Row:
    return {"k": k, "ts": ts, "id": b}


def joined(k: str | None, a: int | None, b: int | None, start: int, end: int) -> Row:
    return {"k": k, "a": a, "b": b, "window_start": start, "window_end": end, "window_time": end - 1}


@planes
def test_all_pairs_of_a_window_are_emitted_when_it_ends_and_not_before(plane: DataPlane) -> None:
    run = run_of(plane, Tumbling(10))
    assert run.take(left(0, 1), left(9, 2), left(10, 3)) == []
    assert run.take(right(9, 1), right(-1, 2), number=1) == []
    assert run.advance(8) == []
    assert run.advance(9) == [joined("x", 1, 1, 0, 10), joined("x", 2, 1, 0, 10)]
    assert run.end() == []


@planes
def test_an_outer_join_emits_rows_alone_in_each_window_in_which_they_have_no_partner(
    plane: DataPlane,
) -> None:
    run = run_of(plane, Sliding(10, 5), JoinForm.FULL)
    run.take(left(7, 1))
    run.take(right(3, 1), number=1)
    assert run.end() == [
        joined(None, None, 1, -5, 5),
        joined("x", 1, 1, 0, 10),
        joined("x", 1, None, 5, 15),
    ]


@planes
def test_a_row_between_the_ends_of_its_windows_is_in_the_later_ones_and_then_it_is_late(
    plane: DataPlane,
) -> None:
    run = run_of(plane, Sliding(10, 5), JoinForm.LEFT)
    run.advance(9)
    assert run.take(left(7, 1)) == [] and run.late == []
    assert run.advance(14) == [joined("x", 1, None, 5, 15)]
    assert run.take(left(7, 2)) == [] and run.late == [left(7, 2)]
    assert run.kept("left") == run.kept(EVENT_TIMERS) == []


@planes
@pytest.mark.parametrize("form", JoinForm)
def test_rows_with_a_null_in_the_key_match_nothing(plane: DataPlane, form: JoinForm) -> None:
    run = run_of(plane, Tumbling(10), form)
    run.take(left(1, 1, None))
    run.take(right(1, 2, None), number=1)
    alone_left = [joined(None, 1, None, 0, 10)] if form.keeps(0) else []
    alone_right = [joined(None, None, 2, 0, 10)] if form.keeps(1) else []
    assert run.end() == alone_left + alone_right


def test_a_row_between_windows_is_in_no_output_and_not_late() -> None:
    run = run_of(PLANES[0], Sliding(2, 5), JoinForm.FULL)
    run.take(left(3, 1))
    assert run.kept("left") == [] and run.end() == [] and run.late == []


def test_a_row_is_kept_once_whatever_the_number_of_its_windows() -> None:
    run = run_of(PLANES[0], Sliding(100, 1))
    run.take(left(3, 1))
    assert run.kept("left") == [[[3, {"k": "x", "a": 1}]]]


# --- against a model -----------------------------------------------------------------------------------------


keys = st.none() | st.sampled_from(["x", "y"])
times = st.integers(-12, 40)
rows_given: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("row"), st.just(0), st.builds(left, times, st.integers(0, 2), keys)),
    st.tuples(st.just("row"), st.just(1), st.builds(right, times, st.integers(0, 2), keys)),
)
assigners = st.one_of(
    st.builds(Tumbling, st.integers(1, 15), st.integers(-3, 3)),
    st.builds(Sliding, st.integers(1, 15), st.integers(1, 15), st.integers(-3, 3)),
)


def all_windows(assigner: Any) -> list[tuple[int, int]]:
    """Return every window near the times of these tests, by its definition."""
    every = assigner.size_ms if isinstance(assigner, Tumbling) else assigner.slide_ms
    return [
        (start, start + assigner.size_ms)
        for start in range(-60, 80)
        if (start - assigner.offset_ms) % every == 0
    ]


def by_definition(run: Run, assigner: Any, form: JoinForm) -> tuple[list[Row], list[Row]]:
    """Return what must have been emitted by now, and what was late."""
    windows, found, late = all_windows(assigner), list[Row](), list[Row]()
    for one in run.arrived:
        own = [window for window in windows if window[0] <= one.row["ts"] < window[1]]
        if own and all(end - 1 <= one.watermark for _, end in own):
            late.append(one.row)
    for start, end in windows:
        for key in (None, "x", "y"):
            if end - 1 > run.watermark(key):
                continue
            inside: list[list[Row]] = [
                [
                    one.row
                    for one in run.arrived
                    if (one.number, one.row["k"]) == (number, key)
                    if start <= one.row["ts"] < end and end - 1 > one.watermark
                ]
                for number in (0, 1)
            ]
            pairs = [(one, other) for one in inside[0] for other in inside[1] if key is not None]
            found += [joined(key, one["a"], other["id"], start, end) for one, other in pairs]
            if not pairs and form in (JoinForm.LEFT, JoinForm.FULL):
                found += [joined(key, one["a"], None, start, end) for one in inside[0]]
            if not pairs and form in (JoinForm.RIGHT, JoinForm.FULL):
                found += [joined(None, None, one["id"], start, end) for one in inside[1]]
    return found, late


@given(steps_with(rows_given), assigners, st.sampled_from(JoinForm))
def test_at_any_time_it_has_emitted_the_windows_that_have_ended_and_keeps_the_others(
    steps: Sequence[Step], assigner: Any, form: JoinForm
) -> None:
    for plane in PLANES:
        run, before = run_of(plane, assigner, form), [-100]

        def check(run: Run = run, before: list[int] = before) -> None:
            found, late = by_definition(run, assigner, form)
            assert bag(run.rows) == bag(found)
            assert bag(run.late) == bag(late)
            assert all(row["window_time"] > before[0] for row in run.newest), "late for what follows"
            before[0] = max(before[0], run.at_ms)
            open_until = [window for window in all_windows(assigner) if window[1] - 1 > run.at_ms]
            for side in SIDES:
                for rows in run.kept(side):
                    assert all(any(start <= row[0] < end for start, end in open_until) for row in rows)

        run.follow(steps, check)


@given(st.data(), st.lists(rows_given, max_size=10), assigners, st.sampled_from(JoinForm))
def test_the_order_of_arrival_changes_nothing_as_long_as_nothing_is_late(
    data: st.DataObject, steps: list[Step], assigner: Any, form: JoinForm
) -> None:
    outputs = []
    for order in (steps, data.draw(st.permutations(steps))):
        run = run_of(PLANES[0], assigner, form)
        for place, step in enumerate(order):
            if data.draw(st.booleans()):
                run.advance(min(later[2]["ts"] for later in order[place:]) - 1)
            run.do(step)
        run.end()
        outputs.append(bag(run.rows))
    assert outputs[0] == outputs[1]


# --- as a step of a job --------------------------------------------------------------------------------------


def test_it_is_a_step_behind_connect() -> None:
    source = StreamJob("job", 8).source(CollectionSource((), 1))
    step = source.key_by("k").connect(source.key_by("k")).window_join(Tumbling(5), LEFT, RIGHT)
    graph = step.sink(FileSink("out")).build()
    assert graph.vertex("window_join").operators[0].inputs == 2 and graph.has_event_time


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (
            lambda: window_join("j", KEYS, Session(5), LEFT, RIGHT, JoinForm.INNER),
            r"Tumbling or Sliding windows, not Session\(gap_ms=5\).*interval_join pairs",
        ),
        (
            lambda: window_join(
                "j", KEYS, Tumbling(5), JoinSide("ts", ["window_end"]), RIGHT, JoinForm.INNER
            ),
            "'window_end' twice",
        ),
        (lambda: window_join("j", (("k",),), Tumbling(5), LEFT, RIGHT, JoinForm.INNER), "two inputs or more"),
    ],
)
def test_joins_that_make_no_sense_are_refused(mistake: Any, message: str) -> None:
    with pytest.raises(JobUsageError, match=message):
        mistake()


def test_a_row_without_an_event_time_is_refused() -> None:
    with pytest.raises(JobUsageError, match="'op' needs an event time in column 'ts'"):
        run_of(PLANES[0], Tumbling(5)).take({"k": "x", "ts": 1.5, "a": 1})
