"""The join by an interval over Arrow batches against rows one by one: the same rows and state at every step."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.operators import arrow_interval_join, arrow_window_entries, arrow_window_keys
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.arrow_interval_join import ArrowIntervalJoin
from barrier_tck.reference_impl.operators.arrow_waiting_rows import Run
from barrier_tck.reference_impl.operators.arrow_window_slabs import Pins
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS, EventTimeProcessOperator
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.interval_join import Within, interval_join
from barrier_tck.reference_impl.operators.join_sides import SIDES, JoinForm, JoinSide
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME, EventTimeSnapshot
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from tests.reference_impl.event_time_runs import bag
from tests.reference_impl.opened_operators import GROUPS, PLANES, Storage, listed, opened

ROWS, ARROW = PLANES
FAR = 1 << 60
HALVES = (KeyGroupRange(0, GROUPS // 2), KeyGroupRange(GROUPS // 2, GROUPS))
LEFT = JoinSide("ts", ["k", "a", "real", "day", "moment"])
RIGHT = JoinSide("time", {"b": "text", "n": "a", "price": "price"})
INT, TEXT = pa.int64(), pa.string()
MOMENT, PRICE = pa.timestamp("ms", tz="UTC"), pa.decimal128(9, 2)
SCHEMAS = (
    pa.schema(
        [
            ("k", INT),
            ("name", TEXT),
            ("ts", INT),
            ("a", pa.int32()),
            ("real", pa.float32()),
            ("day", pa.date32()),
            ("moment", MOMENT),
        ]
    ),
    pa.schema([("key", INT), ("called", TEXT), ("time", INT), ("a", INT), ("text", TEXT), ("price", PRICE)]),
)
KEYS = (("k", "name"), ("key", "called"))

texts, times = st.sampled_from(["x", "y"]) | st.none(), st.integers(-30, 30)
lefts = st.fixed_dictionaries(
    {
        "k": st.none() | st.integers(-2, 2),
        "name": texts,
        "ts": times,
        "a": st.none() | st.integers(-5, 5),
        "real": st.none() | st.sampled_from([0.5, -2.0]),
        "day": st.none() | st.sampled_from([date(1969, 12, 31), date(2026, 3, 1)]),
        "moment": st.none()
        | st.sampled_from([datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2026, 3, 1, 1, tzinfo=UTC)]),
    }
)
rights = st.fixed_dictionaries(
    {
        "key": st.none() | st.integers(-2, 2),
        "called": texts,
        "time": times,
        "a": st.none() | st.integers(-5, 5),
        "text": texts,
        "price": st.none() | st.sampled_from([Decimal("-0.50"), Decimal("7.00"), Decimal("120.25")]),
    }
)
batches = st.one_of(
    st.tuples(st.just("batch"), st.just(0), st.lists(lefts, min_size=1, max_size=8)),
    st.tuples(st.just("batch"), st.just(1), st.lists(rights, min_size=1, max_size=8)),
)
steps = st.lists(
    st.one_of(
        batches,
        batches,
        batches,
        st.tuples(st.just("watermark"), st.integers(-30, 40)),
        st.tuples(st.just("floor"), st.integers(0, 1), st.integers(-30, 40)),
        st.tuples(st.just("snapshot"), st.booleans()),
        st.tuples(st.just("swap")),
        st.tuples(st.just("restore")),
    ),
    max_size=16,
)
bounds = st.tuples(st.integers(-15, 15), st.integers(-15, 15)).map(sorted)


@pytest.fixture(autouse=True, scope="module", params=["as they are", "low"])
def limits(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let what is done for many keys or rows be done for few."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "low":
            patch.setattr(arrow_window_keys, "COMPACT_FLOOR", 2)
            patch.setattr(arrow_interval_join, "ROWS_OF_A_BATCH", 2)
            patch.setattr(arrow_window_entries, "KEYS_AT_ONCE", 1)
        yield


class Side:
    """One operator, and what has come of the last step."""

    def __init__(self, spec: Any, plane: DataPlane) -> None:
        self.spec, self.storage = spec, Storage()
        self.rows: list[Row] = []
        self.late: list[Row] = []
        self.at_ms, self.number = -(1 << 62), 0
        self.open(plane, None, ())

    def open(self, plane: DataPlane, part: Any, floors: Any) -> None:
        self.plane = plane
        time = EventTimeSnapshot(self.at_ms, floors=floors)
        self.operator = opened(
            self.spec, plane, self.storage, part, time, lambda _, payload: self.late.extend(listed(payload))
        )

    def do(self, step: tuple[Any, ...], keyed: int) -> None:
        self.rows, self.late = [], []
        match step:
            case "batch", number, rows:
                payload = rows if self.plane is ROWS else pa.RecordBatch.from_pylist(rows, SCHEMAS[number])
                self.emitted([self.operator.process_input(payload, number)])
                self.emitted(self.operator.fire_due())
            case "watermark", at_ms:
                self.at_ms = max(self.at_ms, at_ms)
                self.emitted(self.operator.advance_watermark(self.at_ms))
            case "floor", half, at_ms:
                self.emitted(self.operator.raise_floor(HALVES[half], at_ms))

    def emitted(self, payloads: Any) -> None:
        for payload in payloads:
            self.rows += listed(payload)

    def snapshot(self) -> Any:
        self.number += 1
        return self.operator.snapshot(CheckpointId(self.number))


def contents(storage: Storage, part: Any, spec: Any) -> Any:
    store = opened(spec, ROWS, storage, part)._opened()[1]
    return {
        (name, group, key): msgspec.msgpack.decode(data)
        for name in (*SIDES, EVENT_TIMERS)
        for group in range(GROUPS)
        for key, data in store.scan(name, group)
    }


@settings(max_examples=150)
@given(bounds, st.sampled_from(JoinForm), st.integers(1, 2), steps)
def test_batches_give_what_rows_give(
    within: list[int], form: JoinForm, width: int, taken: list[tuple[Any, ...]]
) -> None:
    keys = (KEYS[0][:width], KEYS[1][:width])
    spec = interval_join("op", keys, Within(*within), LEFT, RIGHT, "at", form)
    one, other = Side(spec, ROWS), Side(spec, ARROW)
    assert isinstance(one.operator, EventTimeProcessOperator) and isinstance(
        other.operator, ArrowIntervalJoin
    )
    pending: list[tuple[Any, Any]] = []
    part: Any = None
    for step in [*taken, ("snapshot", True), ("watermark", END_OF_TIME), ("snapshot", True)]:
        if step[0] in ("snapshot", "swap", "restore"):
            pending.append((other.snapshot(), contents(one.storage, one.snapshot().run(), spec)))
            if step == ("snapshot", False):
                continue  # its asynchronous part is done later, when other rows wait
            for future, then in pending:
                part = future.run()
                assert contents(other.storage, part, spec) == then
            pending.clear()
            if step[0] != "snapshot":
                plane = ROWS if step[0] == "swap" and other.plane is ARROW else ARROW
                other.open(plane, part, other.operator._watermarks.floors)
            continue
        for side in (one, other):
            side.do(step, width)
        assert bag(other.rows) == bag(one.rows)
        assert bag(other.late) == bag(one.late)
    assert contents(other.storage, part, spec) == {}


def test_sides_may_give_nothing_to_the_output() -> None:
    spec = interval_join(
        "op", (("k",), ("key",)), Within(0, 5), JoinSide("ts", []), JoinSide("time", []), "at", JoinForm.FULL
    )
    side = Side(spec, ARROW)
    side.do(("batch", 0, [{"k": 1, "ts": 3}]), 1)
    side.do(("batch", 1, [{"key": 1, "time": 4}, {"key": 2, "time": 4}]), 1)
    assert side.rows == [{"at": 4}]
    side.do(("watermark", END_OF_TIME), 1)
    assert side.rows == [{"at": 4}]


def test_a_column_that_state_cannot_keep_is_refused_as_it_is_for_a_row() -> None:
    side = Side(
        interval_join(
            "op",
            (("k",), ("k",)),
            Within(0, 5),
            JoinSide("ts", ["d"]),
            JoinSide("ts", []),
            "at",
            JoinForm.INNER,
        ),
        ARROW,
    )
    batch = pa.RecordBatch.from_pydict({"k": [1], "ts": [1], "d": [b"7"]})
    with pytest.raises(JobUsageError, match=r"left side of the join 'op' keeps null.* in column 'd'"):
        side.operator.process_input(batch, 0)
    with pytest.raises(JobUsageError, match="'op' needs an event time in column 'ts'"):
        side.operator.process_input(pa.RecordBatch.from_pydict({"k": [1], "ts": [None], "d": [1]}), 0)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([-FAR, -1, 0, 2, FAR])), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([-FAR, -2, 0, FAR])), min_size=1, max_size=8),
    st.integers(-2, 2),
    st.sampled_from([0, 3, 2 * FAR]),
)
def test_a_run_finds_what_nested_loops_find_however_far_times_are_from_each_other(
    rows: list[tuple[int, int]], wanted: list[tuple[int, int]], lower: int, length: int
) -> None:
    slots, times = (np.array(column) for column in zip(*rows, strict=True))
    numbers, false = np.arange(len(rows)), np.zeros(len(rows), dtype=bool)
    run = Run(slots, times, numbers, false, pa.RecordBatch.from_pydict({"n": numbers}), times, Pins())
    of_slots, at_ms = (np.array(column) for column in zip(*wanted, strict=True))
    found = run.find(of_slots, at_ms + lower, at_ms + lower + length)
    pairs = sorted(
        (one, int(run.numbers[place])) for one, place in zip(*map(np.ndarray.tolist, found), strict=True)
    )
    assert pairs == [
        (one, other)
        for one, (slot, first) in enumerate(wanted)
        for other, (of_slot, time) in enumerate(rows)
        if slot == of_slot and first + lower <= time <= first + lower + length
    ]
    assert run.batch.column("n").to_pylist() == run.numbers.tolist()
