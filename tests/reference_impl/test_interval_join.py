"""The join by an interval against nested loops: each pair once, each row alone once, and nothing kept too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.functions import Count, Row
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.interval_join import Within, interval_join
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.join_sides import SIDES, JoinForm, JoinSide
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.operators.windows import Tumbling, window_aggregate
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from tests.reference_impl.event_time_runs import Arrived, Run, Step, bag, steps_with
from tests.reference_impl.opened_operators import PLANES

LEFT = JoinSide("ts", ["k", "a"])
RIGHT = JoinSide("ts", {"b": "id"})

planes = pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])


def spec(lower_ms: int, upper_ms: int, form: JoinForm = JoinForm.INNER) -> Any:
    return interval_join("op", (("k",), ("k",)), Within(lower_ms, upper_ms), LEFT, RIGHT, "at", form)


def run_of(plane: DataPlane, lower_ms: int, upper_ms: int, form: JoinForm = JoinForm.INNER) -> Run:
    return Run(spec(lower_ms, upper_ms, form), plane, SIDES)


def left(ts: int, a: int = 0, k: str | None = "x") -> Row:
    return {"k": k, "ts": ts, "a": a}


def right(ts: int, b: int = 0, k: str | None = "x") -> Row:
    return {"k": k, "ts": ts, "id": b}


def joined(k: str | None, a: int | None, b: int | None, at: int) -> Row:
    return {"k": k, "a": a, "b": b, "at": at}


@planes
def test_both_bounds_are_included_and_the_time_of_a_pair_is_the_later_one(plane: DataPlane) -> None:
    run = run_of(plane, -2, 5)
    assert run.take(left(10, 1)) == []
    assert run.take(right(7, 1), right(8, 2), right(15, 3), right(16, 4), number=1) == [
        joined("x", 1, 2, 10),
        joined("x", 1, 3, 15),
    ]
    assert run.take(left(11, 2)) == [joined("x", 2, 3, 15), joined("x", 2, 4, 16)]
    assert run.end() == []


@planes
def test_a_row_waits_until_nothing_on_time_can_match_it_and_no_longer(plane: DataPlane) -> None:
    run = run_of(plane, -2, 5, JoinForm.FULL)
    run.take(left(10, 1))
    run.take(right(20, 1), number=1)
    assert run.advance(14) == [] and run.kept("left") != []
    assert run.advance(15) == [joined("x", 1, None, 15)] and run.kept("left") == []
    assert run.advance(21) == []
    assert run.advance(22) == [joined(None, None, 1, 22)]
    assert run.kept("right") == [] and run.kept(EVENT_TIMERS) == []


@planes
def test_a_row_that_nothing_can_match_any_more_meets_who_waits_and_does_not_wait(plane: DataPlane) -> None:
    """Right rows are 10 to 20 earlier than left ones: a left row can only match what is there already."""
    run = run_of(plane, -20, -10, JoinForm.LEFT)
    run.take(right(1, 1), number=1)
    run.advance(12)
    assert run.take(left(15, 1), left(22, 2)) == [joined("x", 1, 1, 15), joined("x", 2, None, 22)]
    assert run.kept("left") == []
    assert run.take(left(23, 3)) == [] and run.kept("left") != []
    assert run.end() == [joined("x", 3, None, 23)]


@planes
def test_late_rows_go_aside_as_they_came_and_match_nothing(plane: DataPlane) -> None:
    run = run_of(plane, -5, 5, JoinForm.FULL)
    run.take(left(10, 1))
    run.advance(9)
    assert run.take(right(9, 1), number=1) == [] and run.late == [right(9, 1)]
    assert run.take(left(9, 2, None)) == [] and run.late == [right(9, 1), left(9, 2, None)]
    assert run.end() == [joined("x", 1, None, 15)]


@planes
@pytest.mark.parametrize("form", JoinForm)
def test_rows_with_a_null_in_the_key_match_nothing_and_outer_joins_emit_them_at_once(
    plane: DataPlane, form: JoinForm
) -> None:
    run = run_of(plane, -5, 5, form)
    alone_left = [joined(None, 1, None, 10)] if form.keeps(0) else []
    alone_right = [joined(None, None, 2, 10)] if form.keeps(1) else []
    assert run.take(left(10, 1, None)) == alone_left
    assert run.take(right(10, 2, None), number=1) == alone_right
    assert run.kept("left") == run.kept("right") == run.kept(EVENT_TIMERS) == []


def test_that_a_row_has_matched_is_kept_over_a_restore() -> None:
    run = run_of(PLANES[0], -5, 5, JoinForm.FULL)
    run.take(left(10, 1))
    run.take(right(10, 1), number=1)
    run.take(left(40, 2))
    run.restore()
    assert run.end() == [joined("x", 2, None, 45)]


def test_an_interval_wider_than_time_ends_with_it() -> None:
    run = run_of(PLANES[0], -END_OF_TIME, END_OF_TIME, JoinForm.FULL)
    run.take(left(10, 1))
    assert run.advance(10**15) == []
    assert run.end() == [joined("x", 1, None, END_OF_TIME)]


# --- against a model -----------------------------------------------------------------------------------------


keys = st.none() | st.sampled_from(["x", "y"])
times = st.integers(-12, 40)
rows_given: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("row"), st.just(0), st.builds(left, times, st.integers(0, 2), keys)),
    st.tuples(st.just("row"), st.just(1), st.builds(right, times, st.integers(0, 2), keys)),
)
bounds = st.tuples(st.integers(-12, 12), st.integers(-12, 12)).map(sorted)


def removal(one: Arrived, lower_ms: int, upper_ms: int) -> int:
    ts: int = one.row["ts"]
    return ts + upper_ms if one.number == 0 else ts - lower_ms


def nested_loops(run: Run, lower_ms: int, upper_ms: int, form: JoinForm) -> list[Row]:
    """What must have been emitted by now: by the definition, from all rows that came on time."""
    on_time = [one for one in run.arrived if not one.is_late]
    found, matched = list[Row](), set[int]()
    for one in on_time:
        for other in on_time:
            is_pair = one.number == 0 and other.number == 1 and one.row["k"] == other.row["k"] is not None
            if is_pair and lower_ms <= other.row["ts"] - one.row["ts"] <= upper_ms:
                matched |= {id(one), id(other)}
                at = max(one.row["ts"], other.row["ts"])
                found.append(joined(one.row["k"], one.row["a"], other.row["id"], at))
    for one in on_time:
        over = removal(one, lower_ms, upper_ms)
        is_over = one.row["k"] is None or over <= run.watermark(one.row["k"])
        if id(one) not in matched and is_over:
            at = one.row["ts"] if one.row["k"] is None else max(one.row["ts"], over)
            if one.number == 0 and form in (JoinForm.LEFT, JoinForm.FULL):
                found.append(joined(one.row["k"], one.row["a"], None, at))
            if one.number == 1 and form in (JoinForm.RIGHT, JoinForm.FULL):
                found.append(joined(None, None, one.row["id"], at))
    return found


@given(steps_with(rows_given), bounds, st.sampled_from(JoinForm))
def test_at_any_time_it_has_emitted_what_nested_loops_give_and_keeps_what_may_still_match(
    steps: Sequence[Step], within: list[int], form: JoinForm
) -> None:
    for plane in PLANES:
        run = run_of(plane, within[0], within[1], form)

        def check(run: Run = run) -> None:
            assert bag(run.rows) == bag(nested_loops(run, within[0], within[1], form))
            assert bag(run.late) == bag([one.row for one in run.arrived if one.is_late])
            for number, side in enumerate(SIDES):
                waiting = [
                    one.row["ts"]
                    for one in run.arrived
                    if one.number == number and not one.is_late and one.row["k"] is not None
                    if removal(one, within[0], within[1]) > run.watermark(one.row["k"])
                ]
                assert sorted(row[0] for rows in run.kept(side) for row in rows) == sorted(waiting)

        run.follow(steps, check)


@given(steps_with(rows_given), bounds)
def test_no_row_that_is_emitted_is_late_for_what_follows(steps: Sequence[Step], within: list[int]) -> None:
    run, before = run_of(PLANES[0], within[0], within[1], JoinForm.FULL), [-100]

    def check() -> None:
        assert all(row["at"] > before[0] for row in run.newest)
        before[0] = max(before[0], run.at_ms)

    run.follow(steps, check)


@given(st.data(), st.lists(rows_given, max_size=10), bounds, st.sampled_from(JoinForm))
def test_the_order_of_arrival_changes_nothing_as_long_as_nothing_is_late(
    data: st.DataObject, steps: list[Step], within: list[int], form: JoinForm
) -> None:
    outputs = []
    for order in (steps, data.draw(st.permutations(steps))):
        run = run_of(PLANES[0], within[0], within[1], form)
        for place, step in enumerate(order):
            if data.draw(st.booleans()):
                run.advance(min(later[2]["ts"] for later in order[place:]) - 1)
            run.do(step)
        run.end()
        assert run.late == []
        outputs.append(bag(run.rows))
    assert outputs[0] == outputs[1]


# --- as a step of a job --------------------------------------------------------------------------------------


def read(name: str) -> Any:
    return StreamJob("job", 8).source(CollectionSource((), 1), name=name)


def test_it_is_a_step_behind_connect_and_late_rows_may_be_read() -> None:
    pairs = (
        read("a").key_by("k").connect(read("b").key_by("k")).interval_join(Within(-1, 1), LEFT, RIGHT, "at")
    )
    graph: JobGraph = StreamJob("job", 8).build(
        pairs.sink(FileSink("out")), pairs.side_output("late").sink(FileSink("late", uid="late"), name="late")
    )
    operator = graph.vertex("interval_join").operators[0]
    assert operator.inputs == 2 and graph.has_event_time


def test_windows_behind_an_outer_join_get_its_rows_on_time() -> None:
    join = run_of(PLANES[0], -5, 30, JoinForm.LEFT)
    windows = Run(window_aggregate("w", ("k",), Tumbling(10), "ts", {"n": Count()}), PLANES[0], ("windows",))
    join.take(left(3, 1), left(8, 2))
    for at_ms in (5, 20, 35, 38, END_OF_TIME):
        for row in join.advance(at_ms):
            windows.take({"k": row["k"], "ts": row["at"]})
        windows.advance(at_ms)
    assert windows.late == [] and [row["n"] for row in windows.rows] == [2]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: Within(3, 2), "no time lies between 3 and 2; give the lower bound first"),
        (
            lambda: interval_join("j", (("k",), ("k",)), Within(0, 1), LEFT, LEFT, "at", JoinForm.INNER),
            "'a' twice; rename it on one side",
        ),
        (
            lambda: interval_join("j", (("k",), ("k",)), Within(0, 1), LEFT, RIGHT, "b", JoinForm.INNER),
            "'b' twice",
        ),
        (
            lambda: interval_join("j", (("k",), ("k", "j")), Within(0, 1), LEFT, RIGHT, "at", JoinForm.INNER),
            "equally many key columns",
        ),
        (
            lambda: interval_join("j", (("k",),) * 3, Within(0, 1), LEFT, RIGHT, "at", JoinForm.INNER),
            "takes two inputs, not 3; join the result again",
        ),
        (
            lambda: interval_join(
                "j", (("k",), ("k",)), Within(0, 1), JoinSide("ts", "abc"), RIGHT, "at", JoinForm.INNER
            ),
            r"write columns as a list, \['abc'\]",
        ),
        (
            lambda: read("a").key_by("k").connect().interval_join(Within(0, 1), LEFT, RIGHT),
            "two inputs or more, not of 1",
        ),
    ],
)
def test_joins_that_make_no_sense_are_refused(mistake: Any, message: str) -> None:
    with pytest.raises(JobUsageError, match=message):
        mistake()


@planes
def test_rows_that_cannot_be_joined_are_told(plane: DataPlane) -> None:
    for row, message in (
        ({"k": "x", "ts": None, "a": 1}, "'op' needs an event time in column 'ts'.*filter out"),
        ({"k": "x", "a": 1}, "op: there is no column 'ts'"),
        ({"k": "x", "ts": 1}, "the left side of the join 'op': there is no column 'a'"),
        ({"k": "x", "ts": 1, "a": b"1"}, "of the join 'op' keeps null, .*column 'a'; convert it before"),
    ):
        with pytest.raises(JobUsageError, match=message):
            run_of(plane, 0, 1).take(row)
