"""Windows over Arrow batches against those record by record: the same rows, and the same state, at every step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators import (
    arrow_session_table,
    arrow_window_entries,
    arrow_window_keys,
    arrow_window_slabs,
    arrow_window_table,
)
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext
from barrier_tck.reference_impl.operators.arrow_windows import ArrowWindows
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS, EventTimeProcessOperator
from barrier_tck.reference_impl.operators.folds import (
    Average,
    DecimalSum,
    DistinctSketch,
    Max,
    Min,
    OwnAggregate,
)
from barrier_tck.reference_impl.operators.functions import Aggregate, Count, CountIf, FloatSum, Row, Sum
from barrier_tck.reference_impl.operators.windows import (
    WINDOWS,
    EveryRecords,
    Session,
    Sliding,
    Tumbling,
    WindowAssigner,
    window_aggregate,
)
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME, EventTimeSnapshot
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from tests.reference_impl.opened_operators import GROUPS, PLANES, Storage, listed, opened
from tests.reference_impl.state_worlds import ALL
from tests.reference_impl.storage_fakes import MemoryFileSystem
from tests.reference_impl.test_incremental_snapshots import IncrementalWorld

ROWS, ARROW = PLANES
HALVES = (KeyGroupRange(0, GROUPS // 2), KeyGroupRange(GROUPS // 2, GROUPS))


@pytest.fixture(autouse=True, scope="module", params=["as they are", "low"])
def limits(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let what is done for many keys, or for many rows of a window, be done for few."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "low":
            patch.setattr(arrow_window_keys, "COMPACT_FLOOR", 2)
            patch.setattr(arrow_window_table, "ROWS_OF_A_BATCH", 2)
            patch.setattr(arrow_session_table, "ROWS_OF_A_BATCH", 2)
            patch.setattr(arrow_session_table, "TIME_LINE_MAX", 1)
            patch.setattr(arrow_window_slabs, "DENSE_FLOOR", 2)
            patch.setattr(arrow_window_slabs, "SPARSE_TIMES", 1)
            patch.setattr(arrow_window_entries, "KEYS_AT_ONCE", 1)
        yield


class Longest:
    """A user's own aggregate, whose accumulator is changed in place."""

    def create(self) -> Any:
        return []

    def add(self, accumulator: Any, value: Any) -> Any:
        accumulator.append(value)
        return accumulator

    def merge(self, first: Any, second: Any) -> Any:
        first.extend(second)
        return first

    def result(self, accumulator: Any) -> Any:
        return "/".join(map(str, accumulator))


ADDITIVE: dict[str, Aggregate] = {
    "n": Count(),
    "whole": Sum("whole"),
    "real": FloatSum("real"),
    "flags": CountIf("flag"),
}
FOLDED: dict[str, Aggregate] = {
    "least": Min("whole"),
    "most": Max("text"),
    "mean": Average("real"),
    "mean_of_whole": Average("whole"),
    "money": DecimalSum("money"),
    "distinct": DistinctSketch("text"),
    "own": OwnAggregate("whole", Longest()),
    "n": Count(),
}
SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("ts", pa.int64()),
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("flag", pa.bool_()),
        ("text", pa.string()),
        ("money", pa.decimal128(10, 2)),
    ]
)

assigners = st.one_of(
    st.builds(Tumbling, st.integers(1, 12), st.integers(-7, 7)),
    st.builds(Sliding, st.integers(1, 12), st.integers(1, 12), st.integers(-7, 7)),
    st.builds(Session, st.integers(1, 12)),
)
rows = st.fixed_dictionaries(
    {
        "k": st.none() | st.integers(-3, 3),
        "name": st.sampled_from([None, "a", "b"]),
        "ts": st.integers(-30, 30),
        "whole": st.none() | st.integers(-5, 5),
        "real": st.none() | st.sampled_from([0.1, 0.2, 0.3, 1e9, -7.5]),
        "flag": st.none() | st.booleans(),
        "text": st.none() | st.sampled_from(["", "x", "yy"]),
        "money": st.none() | st.sampled_from([Decimal("0.10"), Decimal("-3.00"), Decimal("12.34")]),
    }
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), st.lists(rows, min_size=1, max_size=8)),
        st.tuples(st.just("batch"), st.lists(rows, min_size=1, max_size=8)),
        st.tuples(st.just("watermark"), st.integers(-30, 40)),
        st.tuples(st.just("floor"), st.integers(0, 1), st.integers(-30, 40)),
        st.tuples(st.just("snapshot"), st.booleans()),
        st.tuples(st.just("swap")),
        st.tuples(st.just("restore")),
    ),
    max_size=14,
)


@dataclass
class Side:
    """One operator, and what has come of the last step."""

    spec: Any
    plane: DataPlane
    storage: Storage = field(default_factory=Storage)
    rows: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    at_ms: int = -(1 << 62)
    pending: list[tuple[Any, Any]] = field(default_factory=list)
    """Snapshots whose asynchronous part has yet to be done, and the state as it was then."""
    number: int = 0
    operator: Any = None

    def open(self, plane: DataPlane, part: OperatorSnapshot | None, floors: Any = ()) -> None:
        self.plane = plane
        self.operator = opened(
            self.spec, plane, self.storage, part, EventTimeSnapshot(self.at_ms, floors=floors),
            lambda _, payload: self.late.extend(listed(payload)),
        )  # fmt: skip

    def do(self, step: tuple[Any, ...]) -> None:
        match step:
            case "batch", batch:
                payload = batch if self.plane is ROWS else pa.RecordBatch.from_pylist(batch, SCHEMA)
                self.emitted([self.operator.process_input(payload, 0)])
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

    def restore(self, plane: DataPlane, part: OperatorSnapshot) -> None:
        self.open(plane, part, self.operator._watermarks.floors)


def ordered(row: Row) -> Row:
    return dict(sorted(row.items()))


def bag(rows: Iterable[Row]) -> list[str]:
    return sorted(repr({column: _plain(value) for column, value in row.items()}) for row in rows)


def _plain(value: Any) -> Any:
    return value.normalize() if isinstance(value, Decimal) else value


def contents(storage: Storage, part: OperatorSnapshot, spec: Any) -> Any:
    """Return what a snapshot holds, decoded, by way of an operator on rows."""
    store = opened(spec, ROWS, storage, part)._opened()[1]
    return {
        (name, group, key): _decoded(name, data)
        for name in (WINDOWS, EVENT_TIMERS)
        for group in range(GROUPS)
        for key, data in store.scan(name, group)
    }


def _decoded(name: str, data: bytes) -> Any:
    return msgspec.msgpack.decode(data, type=dict[int, Any] if name == WINDOWS else Any)


@pytest.mark.parametrize("aggregates", [ADDITIVE, FOLDED], ids=["sums", "folds"])
@pytest.mark.parametrize("key", [("k",), ("k", "name")], ids=["one", "two"])
@settings(max_examples=60)
@given(assigners, st.sampled_from([0, 0, 3, 20]), steps)
def test_batches_give_what_records_give(
    aggregates: dict[str, Aggregate],
    key: tuple[str, ...],
    assigner: WindowAssigner,
    lateness_ms: int,
    taken: list[tuple[Any, ...]],
) -> None:
    spec = window_aggregate("op", key, assigner, "ts", aggregates, lateness_ms)
    one, other = Side(spec, ROWS), Side(spec, ARROW)
    one.open(ROWS, None)
    other.open(ARROW, None)
    assert isinstance(one.operator, EventTimeProcessOperator) and isinstance(other.operator, ArrowWindows)
    pending: list[tuple[Any, Any]] = []
    for step in [*taken, ("snapshot", True), ("watermark", END_OF_TIME), ("snapshot", True)]:
        if step[0] in ("snapshot", "swap", "restore"):
            wanted = contents(one.storage, one.snapshot().run(), spec)
            pending.append((other.snapshot(), wanted))
            if step == ("snapshot", False):
                continue  # its asynchronous part is done later, when the windows have changed
            for future, then in pending:
                part = future.run()
                assert contents(other.storage, part, spec) == then
            pending.clear()
            if step[0] != "snapshot":
                back = ROWS if step[0] == "swap" and other.plane is ARROW else ARROW
                other.restore(back, part)
            continue
        for side in (one, other):
            side.rows, side.late = [], []
            side.do(step)
        assert bag(other.rows) == bag(one.rows)
        assert bag(map(ordered, other.late)) == bag(map(ordered, one.late))
        ends = [row["window_end"] for row in other.rows]
        assert step[0] == "batch" or ends == sorted(ends)
    assert contents(other.storage, part, spec) == {}


def test_a_window_that_has_ended_for_some_key_groups_ends_for_the_others_in_its_time() -> None:
    """Although it stays for late records, and its slab with it."""
    spec = window_aggregate("op", ("k",), Tumbling(10), "ts", ADDITIVE, 50)
    one, other = Side(spec, ROWS), Side(spec, ARROW)
    one.open(ROWS, None)
    other.open(ARROW, None)
    record = {"name": None, "ts": 5, "whole": 1, "real": None, "flag": None, "text": None, "money": None}
    records = [{**record, "k": key} for key in range(8)]
    for step in (
        ("batch", records),
        ("floor", 0, 20),
        ("watermark", 20),
        ("batch", records),
        ("watermark", 70),
    ):
        for side in (one, other):
            side.rows = []
            side.do(step)
        assert bag(other.rows) == bag(one.rows)


def test_sessions_that_become_one_are_merged_in_the_order_of_their_starts() -> None:
    """The earlier one grew last, and its records stand before those of the later one all the same."""
    nothing = dict.fromkeys(SCHEMA.names)
    come = [(0, 1), (9, 2), (1, 3), (3, 4)]
    batches = [[{**nothing, "ts": ts, "whole": whole} for ts, whole in some] for some in (come[:3], come[3:])]
    spec = window_aggregate("op", ("k",), Session(8), "ts", {"own": OwnAggregate("whole", Longest())})
    for plane in PLANES:
        side = Side(spec, plane)
        side.open(plane, None)
        for step in (*(("batch", batch) for batch in batches), ("watermark", END_OF_TIME)):
            side.do(step)
        assert [row["own"] for row in side.rows] == ["1/3/2/4"]


@pytest.mark.parametrize(
    ("spec", "vectorised"),
    [
        (window_aggregate("op", ("k",), Tumbling(5), "ts", ADDITIVE), True),
        (window_aggregate("op", ("k",), Sliding(5, 2), "ts", FOLDED), True),
        (window_aggregate("op", ("k",), Session(5), "ts", ADDITIVE), True),
        (window_aggregate("op", ("k",), Tumbling(5), "ts", ADDITIVE, 0, EveryRecords(2)), False),
    ],
)
def test_which_windows_take_batches_is_as_the_guide_says(spec: Any, vectorised: bool) -> None:
    assert isinstance(spec.build(ARROW), ArrowWindows) is vectorised
    assert isinstance(spec.build(ROWS), EventTimeProcessOperator)


# --- with every kind of store --------------------------------------------------------------------------------


class Writers:
    """The writers of an operator, which share files, and note the version from which they may be used again."""

    def __init__(self, world: IncrementalWorld) -> None:
        self.world = world

    def writer(self, checkpoint: CheckpointId, operator: str) -> Any:
        return self.world.sharing(checkpoint)


@pytest.mark.parametrize(
    ("backend", "incremental", "write_through"),
    [
        ("heap", True, False),
        ("heap", True, True),
        ("rocksdb", False, False),
        ("rocksdb", True, False),
        ("rocksdb", False, True),
    ],
)
@settings(max_examples=25, deadline=None)
@given(data=st.data(), assigner=assigners, lateness_ms=st.sampled_from([0, 3]), taken=steps)
def test_snapshots_hold_what_those_of_records_hold_whatever_the_store(
    backend: str,
    incremental: bool,
    write_through: bool,
    data: st.DataObject,
    assigner: WindowAssigner,
    lateness_ms: int,
    taken: list[tuple[Any, ...]],
) -> None:
    """Some snapshots complete, some are aborted, and some are written when later ones have been taken."""
    spec = window_aggregate("op", ("k",), assigner, "ts", ADDITIVE, lateness_ms)
    world, one = IncrementalWorld(backend), Side(spec, ROWS)
    one.open(ROWS, None)
    working = WorkingDirectory(world.backend, world.root.name)
    other = Side(spec, ARROW, operator=spec.build(ARROW))
    other.operator.open(
        OperatorContext(
            "job", SubtaskId("count", 0), 1, AttemptNumber(1), ALL, GROUPS, world.backend, world.storage,
            Writers(world), MemoryFileSystem(), write_through=write_through, incremental=incremental,
            working_directory=working.of_operator,
        ),
        None,
    )  # fmt: skip
    pending: list[tuple[int, Any, Any]] = []
    try:
        for number, step in enumerate(
            [*taken, ("snapshot", True), ("watermark", END_OF_TIME), ("snapshot", True)], 1
        ):
            if step[0] not in ("snapshot", "swap", "restore"):
                for side in (one, other):
                    side.do(step)
                continue
            wanted = contents(one.storage, one.snapshot().run(), spec)
            pending.append((number, other.operator.snapshot(CheckpointId(number)), wanted))
            if step[0] == "swap":
                other.operator.checkpoint_aborted(CheckpointId(number))
                pending.pop()
            if step == ("snapshot", False):
                continue
            for checkpoint, future, then in pending:
                held = world.held(future.run().handles, names=(WINDOWS, EVENT_TIMERS))
                decoded = {place: _decoded(place[0], entry) for place, entry in held.items()}
                assert decoded == then
                if data.draw(st.booleans()):
                    other.operator.checkpoint_completed(CheckpointId(checkpoint))
            pending.clear()
    finally:
        other.operator.close()
        working.close()
        world.close()
