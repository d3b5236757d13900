"""What each aggregate that folds gives, what it refuses, and that a snapshot keeps it; on both planes."""

from __future__ import annotations

import math
import sys
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators import distinct_sketch
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.arrow_folded_table import ArrowFoldedTable
from barrier_tck.reference_impl.operators.arrow_table import ArrowAccumulatorTable
from barrier_tck.reference_impl.operators.distinct_sketch import DistinctValues
from barrier_tck.reference_impl.operators.encoding import decode_accumulator
from barrier_tck.reference_impl.operators.folds import (
    Average,
    DecimalSum,
    DistinctSketch,
    Max,
    Min,
    OwnAggregate,
)
from barrier_tck.reference_impl.operators.functions import Aggregate, Count, Emission, FloatSum, Sum
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.scalars import EXACT
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError
from tests.reference_impl.opened_operators import PLANES, Storage, listed, opened

NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
NAN = float("nan")

both_planes = pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])


def folded(plane: DataPlane, aggregate: Aggregate, *batches: list[Any]) -> Any:
    """Return the result for the only key, after batches of values."""
    table = plane.accumulators(("k",), {"found": aggregate}, (), 8)
    for values in batches:
        table.update(plane.from_rows([{"k": 1, "v": value} for value in values]), False)
    (row,) = listed(table.all_rows())
    return row["found"]


@both_planes
@pytest.mark.parametrize(
    ("values", "least", "most"),
    [
        ([3, None, -2], -2, 3),
        ([2**63 - 1, -(2**63)], -(2**63), 2**63 - 1),
        ([1.5, -2.5], -2.5, 1.5),
        (["b", None, "é", "zz", "a"], "a", "é"),
        ([True, False], False, True),
        ([Decimal("1.50"), Decimal("-0.1"), None], Decimal("-0.1"), Decimal("1.5")),
        ([NOON, NOON - timedelta(microseconds=1)], NOON - timedelta(microseconds=1), NOON),
        ([date(2024, 2, 29), date(1960, 1, 1)], date(1960, 1, 1), date(2024, 2, 29)),
        ([None, None], None, None),
    ],
    ids=str,
)
def test_the_least_and_the_greatest_of_any_type(
    plane: DataPlane, values: list[Any], least: Any, most: Any
) -> None:
    for batches in ([values], [[value] for value in values], [values, [None]]):
        for aggregate, expected in ((Min("v"), least), (Max("v"), most)):
            found = folded(plane, aggregate, *batches)
            assert (found, type(found)) == (expected, type(expected))


@both_planes
def test_nan_is_the_greatest_float_and_zeros_are_one(plane: DataPlane) -> None:
    assert folded(plane, Min("v"), [NAN, 1.0], [NAN]) == 1.0
    assert math.isnan(folded(plane, Max("v"), [math.inf, NAN], [1.0]))
    assert math.isnan(folded(plane, Min("v"), [NAN], [NAN]))
    assert str(folded(plane, Min("v"), [0.0, -0.0])) == "0.0"


@both_planes
def test_means_are_exact_as_far_as_their_type_goes(plane: DataPlane) -> None:
    assert folded(plane, Average("v"), [1, None], [2], [2]) == 5 / 3
    assert folded(plane, Average("v"), [2**62, 2**62 - 1]) == (2**63 - 1) / 2
    assert folded(plane, Average("v"), [0.1, 0.2], [0.3]) == (0.1 + 0.2 + 0.3) / 3
    assert folded(plane, Average("v"), [Decimal("0.10"), Decimal("0.2")], [None]) == Decimal("0.15")
    assert folded(plane, Average("v"), [Decimal(1), Decimal(1)], [Decimal(0)]) == Decimal(
        "0.666666666666666667"
    )
    large = Decimal(10**30)
    assert folded(plane, Average("v"), [large, EXACT.add(large, Decimal(1))]) == EXACT.add(
        large, Decimal("0.5")
    )
    assert folded(plane, Average("v"), [large, large, EXACT.add(large, Decimal(1))]) == EXACT.add(
        large, Decimal("0.3333333")
    )
    assert folded(plane, Average("v"), [None]) is None
    assert folded(plane, Average("v"), [1], [0.5]) == 0.75
    assert folded(plane, Average("v"), [0.5], [1]) == 0.75


@both_planes
def test_sums_of_decimals_are_exact_and_refuse_what_does_not_fit(plane: DataPlane) -> None:
    assert folded(plane, DecimalSum("v"), [Decimal("0.1")] * 10, [None]) == 1
    assert folded(plane, DecimalSum("v"), [None]) == Decimal(0)
    assert folded(plane, DecimalSum("v"), [2**63 - 1, 2**62], [Decimal("0.5")]) == Decimal(
        2**63 - 1 + 2**62
    ) + Decimal("0.5")
    large = Decimal(9 * 10**37)
    assert folded(plane, DecimalSum("v"), [large], [-large, Decimal("1E-10")]) == Decimal("1E-10")
    with pytest.raises(JobUsageError, match="more than 38 digits"):
        folded(plane, DecimalSum("v"), [large, large])


@both_planes
@pytest.mark.parametrize(
    ("aggregate", "values", "match"),
    [
        (DecimalSum("v"), [1.5], r"DecimalSum\('v'\) adds decimals and integers .*use FloatSum"),
        (DecimalSum("v"), [True], "adds decimals and integers"),
        (Sum("v"), [Decimal(1)], "DecimalSum for decimals"),
        (Average("v"), ["a"], r"Average\('v'\) takes integers, floats and decimals"),
        (Average("v"), [True], "takes integers, floats and decimals"),
        (Min("v"), [b"a"], "a column holds null, booleans"),
        (Min("v"), [datetime(2024, 1, 1)], "no time zone"),
    ],
    ids=str,
)
def test_values_that_an_aggregate_cannot_take_are_refused(
    plane: DataPlane, aggregate: Aggregate, values: list[Any], match: str
) -> None:
    with pytest.raises(JobUsageError, match=match):
        folded(plane, aggregate, values)


@both_planes
def test_values_of_two_types_are_not_compared(plane: DataPlane) -> None:
    for aggregate in (Min("v"), Max("v")):
        with pytest.raises(JobUsageError, match=r"values of one type, and found 1 and 1\.5"):
            folded(plane, aggregate, [1], [1.5])
    with pytest.raises(JobUsageError, match="found decimals and other numbers"):
        folded(plane, Average("v"), [1], [Decimal(1)])


@both_planes
def test_a_missing_column_is_told(plane: DataPlane) -> None:
    table = plane.accumulators(("k",), {"least": Min("z")}, (), 8)
    with pytest.raises(JobUsageError, match=r"no column 'z'.*k, v"):
        table.update(plane.from_rows([{"k": 1, "v": 2}]), False)


# --- distinct values ------------------------------------------------------------------------------------------


@both_planes
def test_distinct_values_are_those_of_keys_and_nulls_do_not_count(plane: DataPlane) -> None:
    assert folded(plane, DistinctSketch("v"), [1, 2, 2, None], [2, 3]) == 3
    assert folded(plane, DistinctSketch("v"), [Decimal("1.0"), Decimal("1.00")], [Decimal(1)]) == 1
    shifted = NOON.astimezone(timezone(timedelta(hours=5)))
    assert folded(plane, DistinctSketch("v"), [NOON], [shifted]) == 1
    assert folded(plane, DistinctSketch("v"), [None]) == 0


def test_many_distinct_values_are_estimated_and_their_bytes_depend_on_the_values_alone() -> None:
    numbers = list(range(30_000))
    forwards, backwards, halves = DistinctValues(), DistinctValues(), DistinctValues()
    for number in numbers:
        forwards.add(number)
    for number in [*reversed(numbers), *numbers[:1_000]]:
        backwards.add(number)
    for part in (numbers[:7_000], numbers[5_000:]):
        half = DistinctValues()
        for number in part:
            half.add(number)
        halves.merge(DistinctValues(half.stored()))
    assert forwards.stored() == backwards.stored() == halves.stored()
    assert len(forwards.stored()) < 2**15 + 100
    assert abs(forwards.estimate() - 30_000) < 5 * 0.016 * 30_000


def test_up_to_4096_distinct_values_are_counted_exactly() -> None:
    values = DistinctValues()
    for number in range(4_096):
        values.add(f"value {number}")
    assert values.estimate() == 4_096


def test_bytes_that_are_no_sketch_are_called_corrupt() -> None:
    for stored in (b"", b"nothing", DistinctValues().stored()[:-1]):
        with pytest.raises(CorruptStateError, match="no sketch"):
            DistinctValues(stored)


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    distinct_sketch._library.cache_clear()
    with pytest.raises(JobUsageError, match="pip install datasketches"):
        DistinctSketch("v").create()
    distinct_sketch._library.cache_clear()


# --- a user's own ---------------------------------------------------------------------------------------------


class Spread:
    """The difference between the greatest and the least number, in an accumulator that is a tuple."""

    def create(self) -> tuple[int, int] | None:
        return None

    def add(self, accumulator: tuple[int, int] | None, value: int | None) -> tuple[int, int] | None:
        return accumulator if value is None else self.merge(accumulator, (value, value))

    def merge(self, first: tuple[int, int] | None, second: tuple[int, int] | None) -> tuple[int, int] | None:
        if first is None or second is None:
            return first or second
        return min(first[0], second[0]), max(first[1], second[1])

    def result(self, accumulator: tuple[int, int] | None) -> int | None:
        return None if accumulator is None else accumulator[1] - accumulator[0]


class InBatches(Spread):
    """The same, whole batches at once; it notes how many values it was given at once."""

    def __init__(self) -> None:
        self.given: list[list[int | None]] = []

    def add_batch(self, accumulator: tuple[int, int] | None, values: Any) -> tuple[int, int] | None:
        self.given.append(values.to_pylist())
        for value in values.to_pylist():
            accumulator = self.add(accumulator, value)
        return accumulator


class Years(Spread):
    """The sum of the years of times, which need no time zone here."""

    def create(self) -> Any:
        return 0

    def add(self, accumulator: Any, value: Any) -> Any:
        return accumulator + (0 if value is None else value.year)

    def result(self, accumulator: Any) -> Any:
        return accumulator


class Looking(Spread):
    def add(self, accumulator: Any, value: Any) -> Any:
        nothing: dict[str, Any] = {}
        return nothing["nowhere"]


@both_planes
def test_a_users_own_aggregate_sees_every_value(plane: DataPlane) -> None:
    assert folded(plane, OwnAggregate("v", Spread()), [5, None, 7], [3]) == 4
    assert folded(plane, OwnAggregate("v", Spread()), [None]) is None
    assert (
        folded(plane, OwnAggregate("v", Years()), [datetime(2024, 1, 1), None], [datetime(2023, 1, 1)])
        == 4047
    )
    with pytest.raises(KeyError, match="nowhere"):
        folded(plane, OwnAggregate("v", Looking()), [1])


def test_on_arrow_a_users_own_aggregate_may_take_the_values_of_a_key_at_once() -> None:
    function = InBatches()
    plane = ArrowPlane()
    table = plane.accumulators(("k",), {"spread": OwnAggregate("v", function)}, (), 8)
    table.update(plane.from_rows([{"k": k, "v": v} for k, v in [(1, 5), (2, 1), (1, None), (1, 9)]]), False)
    assert listed(table.all_rows()) == [{"k": 1, "spread": 4}, {"k": 2, "spread": 0}]
    assert function.given == [[5, None, 9], [1]]


# --- tables and snapshots -------------------------------------------------------------------------------------


def test_sums_stay_in_the_table_of_arrays() -> None:
    sums: dict[str, Aggregate] = {"n": Count(), "s": Sum("v"), "f": FloatSum("v")}
    assert isinstance(ArrowPlane().accumulators(("k",), sums, (), 8), ArrowAccumulatorTable)
    assert isinstance(ArrowPlane().accumulators(("k",), {**sums, "m": Min("v")}, (), 8), ArrowFoldedTable)


KEPT: dict[str, Aggregate] = {
    "n": Count(),
    "least": Min("at"),
    "cost": DecimalSum("price"),
    "mean": Average("price"),
    "prices": DistinctSketch("price"),
    "spread": OwnAggregate("v", Spread()),
}
RECORDS = [
    {"k": date(2024, 1, 1), "v": 4, "at": NOON, "price": Decimal("1.50")},
    {"k": date(2024, 1, 2), "v": 1, "at": NOON - timedelta(hours=1), "price": None},
    {"k": date(2024, 1, 1), "v": 9, "at": None, "price": Decimal("2.25")},
]
COLUMNS = ("k", "n", "least", "cost", "mean", "prices", "spread")
TOTALS = [
    (date(2024, 1, 1), 2, NOON, Decimal("3.75"), Decimal("1.875"), 2, 5),
    (date(2024, 1, 2), 1, NOON - timedelta(hours=1), Decimal(0), None, 0, 0),
]


@both_planes
@pytest.mark.parametrize("restored_on", PLANES, ids=["restored on rows", "restored on arrow"])
@pytest.mark.parametrize("combined", [False, True], ids=["directly", "combined"])
def test_a_snapshot_keeps_every_aggregate_and_either_plane_goes_on_from_it(
    plane: DataPlane, restored_on: DataPlane, combined: bool
) -> None:
    storage = Storage()
    kept = {name: aggregate.merging(name) for name, aggregate in KEPT.items()} if combined else KEPT
    spec = AggregateSpec("totals", ("k",), kept, Emission.FINAL)

    def records(on: DataPlane, rows: list[dict[str, Any]]) -> Any:
        batch = on.from_rows(rows)
        return on.combine(batch, ("k",), KEPT, 8) if combined else batch

    operator = opened(spec, plane, storage)
    operator.process(records(plane, RECORDS[:2]))
    snapshot = operator.snapshot(CheckpointId(1)).run()
    operator.process(records(plane, RECORDS))
    again = opened(spec, restored_on, storage, snapshot)
    again.process(records(restored_on, RECORDS[2:]))
    (rows,) = again.end_of_input()
    assert sorted(tuple(row[column] for column in COLUMNS) for row in listed(rows)) == TOTALS


def test_running_results_come_with_each_record_on_both_planes() -> None:
    for plane in PLANES:
        table = plane.accumulators(("k",), {"mean": Average("v"), "most": Max("v"), "n": Count()}, ("id",), 8)
        rows = [
            {"id": i, "k": k, "v": v} for i, (k, v) in enumerate([("a", 2), ("b", 7), ("a", 4), ("a", 1)])
        ]
        assert listed(table.update(plane.from_rows(rows), True)) == [
            {"id": 0, "k": "a", "mean": 2.0, "most": 2, "n": 1},
            {"id": 1, "k": "b", "mean": 7.0, "most": 7, "n": 1},
            {"id": 2, "k": "a", "mean": 3.0, "most": 4, "n": 2},
            {"id": 3, "k": "a", "mean": 7 / 3, "most": 4, "n": 3},
        ]


def test_results_keep_the_type_of_their_column() -> None:
    plane = ArrowPlane()
    kinds = {"at": pa.timestamp("us", tz="UTC"), "price": pa.decimal128(10, 3), "day": pa.date32()}
    kept: dict[str, Aggregate] = {**{name: Min(name) for name in kinds}, "cost": DecimalSum("price")}
    table: Any = plane.accumulators(("k",), kept, (), 8)
    schema = pa.schema([("k", pa.int64()), *kinds.items()])
    table.update(pa.RecordBatch.from_pylist([{"k": 1}], schema), False)
    assert table.all_rows().schema == pa.schema([*schema, ("cost", pa.decimal128(38, 3))])


def test_parts_of_a_batch_are_joined_whatever_is_null_in_them() -> None:
    plane = ArrowPlane()
    joined = plane.joined([plane.from_rows([{"a": None}]), plane.from_rows([{"a": 1}])])
    assert listed(joined) == [{"a": None}, {"a": 1}]


def test_state_of_sums_that_was_written_before_is_read_by_a_job_with_other_aggregates_too() -> None:
    """Sums are kept in the same bytes as ever, whatever is kept beside them."""
    written = bytes.fromhex("02000001000000000000000200000000000000")
    assert decode_accumulator(written) == (1, 2)
    table = RowPlane().accumulators(("k",), {"n": Count(), "least": Min("v")}, (), 8)
    table.load([(0, bytes.fromhex("91a161"), written)])
    table.update([{"k": "a", "v": -3}], False)
    assert listed(table.all_rows()) == [{"k": "a", "n": 2, "least": -3}]
