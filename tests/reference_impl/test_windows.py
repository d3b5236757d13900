"""Windows: when they fire, with what, what is late, and what merges (EVT-2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.folds import Average, Max, Min
from barrier_tck.reference_impl.operators.functions import Aggregate, Count, Row, Sum
from barrier_tck.reference_impl.operators.windows import (
    EveryRecords,
    Session,
    Sliding,
    Tumbling,
    WindowAssigner,
    window_aggregate,
)
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from tests.reference_impl.opened_operators import PLANES, Storage, listed, opened

AGGREGATES: dict[str, Aggregate] = {"n": Count(), "sum": Sum("id")}


def spec(assigner: WindowAssigner, lateness_ms: int = 0, trigger: Any = None) -> Any:
    return window_aggregate("op", ("k",), assigner, "ts", AGGREGATES, lateness_ms, trigger)


def taken(operator: Any, plane: DataPlane, *times: int, key: str = "a") -> list[Row]:
    rows: list[Row] = []
    for time in times:
        rows += listed(operator.process(plane.from_rows([{"k": key, "ts": time, "id": time}])))
    return rows


def advanced(operator: Any, at_ms: int) -> list[Row]:
    return [row for payload in operator.advance_watermark(at_ms) for row in listed(payload)]


def shown(rows: Sequence[Row]) -> list[tuple[int, int, int, int, int]]:
    return [
        (row["window_start"], row["window_end"], row["firing"], row["n"], row["sum"])
        for row in rows
        if row["window_time"] == row["window_end"] - 1
    ]


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_a_window_fires_when_the_watermark_has_come_to_its_end_and_not_before(plane: DataPlane) -> None:
    operator = opened(spec(Tumbling(10)), plane)
    assert taken(operator, plane, 3, 12, 9, -1) == []
    assert advanced(operator, 8) == [
        {"k": "a", "window_start": -10, "window_end": 0, "window_time": -1, "firing": 0, "n": 1, "sum": -1}
    ]
    assert shown(advanced(operator, 9)) == [(0, 10, 0, 2, 12)]
    assert shown(advanced(operator, END_OF_TIME)) == [(10, 20, 0, 1, 12)]


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_a_late_record_fires_its_window_again_until_the_allowed_lateness_is_over(plane: DataPlane) -> None:
    late: list[Row] = []
    operator = opened(spec(Tumbling(10), 5), plane, aside=lambda _, payload: late.extend(listed(payload)))
    taken(operator, plane, 1)
    assert shown(advanced(operator, 10)) == [(0, 10, 0, 1, 1)]
    assert shown(taken(operator, plane, 2)) == [(0, 10, 1, 2, 3)]
    assert advanced(operator, 13) == []
    assert shown(taken(operator, plane, 3)) == [(0, 10, 2, 3, 6)]
    assert advanced(operator, 14) == []
    assert taken(operator, plane, 4) == []
    assert late == [{"k": "a", "ts": 4, "id": 4}]
    assert advanced(operator, END_OF_TIME) == []


def test_sliding_windows_overlap_and_a_record_is_late_only_if_all_of_its_windows_are_gone() -> None:
    late: list[Row] = []
    operator = opened(spec(Sliding(10, 5)), PLANES[0], aside=lambda _, payload: late.extend(listed(payload)))
    taken(operator, PLANES[0], 7)
    assert shown(advanced(operator, 9)) == [(0, 10, 0, 1, 7)]
    taken(operator, PLANES[0], 8)
    assert late == []
    assert shown(advanced(operator, 14)) == [(5, 15, 0, 2, 15)]
    taken(operator, PLANES[0], 8)
    assert len(late) == 1


def test_sessions_that_meet_become_one_and_fire_once() -> None:
    operator = opened(spec(Session(10)), PLANES[0])
    taken(operator, PLANES[0], 0, 20)
    assert shown(advanced(operator, 9)) == [(0, 10, 0, 1, 0)]
    taken(operator, PLANES[0], 38, 29)
    assert advanced(operator, 46) == []
    assert shown(advanced(operator, 47)) == [(20, 48, 0, 3, 87)]


def test_a_session_that_has_fired_fires_again_with_all_it_has_when_it_grows() -> None:
    operator = opened(spec(Session(10), 20), PLANES[0])
    taken(operator, PLANES[0], 0)
    assert shown(advanced(operator, 10)) == [(0, 10, 0, 1, 0)]
    assert shown(taken(operator, PLANES[0], 1)) == [(0, 11, 1, 2, 1)]
    assert shown(taken(operator, PLANES[0], 7)) == []
    assert shown(advanced(operator, 16)) == [(0, 17, 2, 3, 8)]


def test_a_timer_that_two_windows_of_a_key_need_stays_when_one_of_them_merges() -> None:
    operator = opened(spec(Session(10), 10), PLANES[0])
    taken(operator, PLANES[0], 0, 10)  # the first is removed when the second ends, at 19
    taken(operator, PLANES[0], 19)
    advanced(operator, 18)
    assert taken(operator, PLANES[0], 0) == [
        {"k": "a", "window_start": 0, "window_end": 10, "window_time": 9, "firing": 1, "n": 2, "sum": 0}
    ]
    advanced(operator, 19)
    late: list[Row] = []
    assert taken(operator, PLANES[0], 0) == late
    assert shown(advanced(operator, 100)) == [(10, 29, 0, 2, 29)]


def test_a_trigger_fires_windows_early_and_the_end_fires_them_again() -> None:
    operator = opened(spec(Tumbling(10), trigger=EveryRecords(2)), PLANES[0])
    assert shown(taken(operator, PLANES[0], 1, 2, 3)) == [(0, 10, 0, 2, 3)]
    assert shown(advanced(operator, 9)) == [(0, 10, 1, 3, 6)]


def _model(times: Sequence[int], gap: int) -> list[tuple[int, int, int, int, int]]:
    sessions: list[list[int]] = []
    for time in sorted(times):
        if sessions and time - sessions[-1][-1] < gap:
            sessions[-1].append(time)
        else:
            sessions.append([time])
    return [(one[0], one[-1] + gap, 0, len(one), sum(one)) for one in sessions]


@given(st.lists(st.integers(0, 60), min_size=1, max_size=12), st.integers(1, 9), st.integers(0, 12))
def test_sessions_are_those_of_the_sorted_records_whatever_the_order_and_the_restore(
    times: list[int], gap: int, cut: int
) -> None:
    plane, storage = PLANES[0], Storage()
    first = opened(spec(Session(gap)), plane, storage)
    taken(first, plane, *times[:cut])
    snapshot = first.snapshot(CheckpointId(1)).run()
    second = opened(spec(Session(gap)), plane, storage, snapshot)
    taken(second, plane, *times[cut:])
    assert shown(advanced(second, END_OF_TIME)) == _model(times, gap)


@given(st.lists(st.integers(-40, 60), min_size=1, max_size=12), st.integers(1, 9), st.integers(1, 9))
def test_sliding_windows_hold_what_lies_in_them(times: list[int], size: int, slide: int) -> None:
    operator = opened(spec(Sliding(size, slide)), PLANES[0])
    taken(operator, PLANES[0], *times)
    expected = [
        (start, start + size, 0, len(inside), sum(inside))
        for start in range(-60, 61)
        if start % slide == 0 and (inside := [time for time in times if start <= time < start + size])
    ]
    assert shown(advanced(operator, END_OF_TIME)) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tumbling(0), "size_ms"),
        (lambda: Sliding(5, 0), "slide_ms"),
        (lambda: Session(-1), "gap_ms"),
        (lambda: EveryRecords(0), "count"),
        (lambda: spec(Tumbling(5), -1), "lateness_ms"),
        (lambda: window_aggregate("w", ("firing",), Tumbling(5), "ts", AGGREGATES), "'firing' twice"),
    ],
)
def test_windows_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(JobUsageError, match=message):
        make()


def test_a_record_without_an_event_time_is_refused() -> None:
    operator = opened(spec(Tumbling(5)), PLANES[0])
    with pytest.raises(JobUsageError, match="need an event time in column 'ts'"):
        operator.process([{"k": "a", "ts": None, "id": 1}])
    with pytest.raises(JobUsageError, match="no column 'ts'"):
        operator.process([{"k": "a", "id": 1}])


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_windows_take_every_kind_of_aggregate_and_sessions_merge_them(plane: DataPlane) -> None:
    aggregates: dict[str, Aggregate] = {
        "least": Min("id"),
        "most": Max("id"),
        "mean": Average("id"),
        "n": Count(),
    }
    operator = opened(window_aggregate("op", ("k",), Session(10), "ts", aggregates), plane)
    taken(operator, plane, 0, 16, 8)
    (row,) = advanced(operator, END_OF_TIME)
    assert (row["least"], row["most"], row["mean"], row["n"]) == (0, 16, 8.0, 3)
