"""Property: the row plane and the Arrow plane do the same with the same rows, down to the bytes of state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.encoding import Key, encode_key, key_group_of
from barrier_tck.reference_impl.operators.folds import (
    Average,
    DecimalSum,
    DistinctSketch,
    Max,
    Min,
    OwnAggregate,
)
from barrier_tck.reference_impl.operators.functions import (
    Aggregate,
    Count,
    CountIf,
    FloatSum,
    Sum,
    Vectorized,
    merging_aggregates,
)
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.scalars import canonical
from barrier_tck.reference_impl.runtime_errors import JobUsageError

ROWS, ARROW = RowPlane(), ArrowPlane()
GROUPS = 16
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("number", pa.int64()),
        ("late", pa.bool_()),
        ("delay", pa.int64()),
        ("hours", pa.float64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(20, 2)),
    ]
)
AGGREGATES: dict[str, Aggregate] = {
    "n": Count(),
    "total": Sum("delay"),
    "lates": CountIf("late"),
    "time": FloatSum("hours"),
}


class Longest:
    """A user's aggregate: the longest text, with how many values were null; as a list that is changed in place."""

    def create(self) -> list[Any]:
        return ["", 0]

    def add(self, accumulator: list[Any], value: str | None) -> list[Any]:
        if value is None:
            accumulator[1] += 1
        elif len(value) > len(accumulator[0]):
            accumulator[0] = value
        return accumulator

    def merge(self, first: list[Any], second: list[Any]) -> list[Any]:
        return [max(first[0], second[0], key=len), first[1] + second[1]]

    def result(self, accumulator: list[Any]) -> str:
        return f"{accumulator[0]}/{accumulator[1]}"


class LongestInBatches(Longest):
    """The same, for the values that a key has in a batch at once."""

    def add_batch(self, accumulator: list[Any], values: Any) -> list[Any]:
        lengths = pc.utf8_length(values).fill_null(-1)
        place = pc.index(lengths, pc.max(lengths)).as_py()
        return self.merge(accumulator, [values[place].as_py() or "", values.null_count])


FOLDED: dict[str, Aggregate] = {
    "n": Count(),
    "total": Sum("delay"),
    "cost": DecimalSum("price"),
    "delays": DecimalSum("delay"),
    **{
        f"least {column}": Min(column)
        for column in ("delay", "hours", "carrier", "at", "day", "price", "late")
    },
}
MORE_FOLDED: dict[str, Aggregate] = {
    **{
        f"most {column}": Max(column)
        for column in ("delay", "hours", "carrier", "at", "day", "price", "late")
    },
    "mean delay": Average("delay"),
    "mean hours": Average("hours"),
    "mean price": Average("price"),
    "numbers": DistinctSketch("number"),
    "prices": DistinctSketch("price"),
    "longest": OwnAggregate("carrier", Longest()),
    "longest of batches": OwnAggregate("carrier", LongestInBatches()),
}
SETS = [AGGREGATES, FOLDED, MORE_FOLDED]
KEYS = [
    ("carrier",),
    ("number",),
    ("late",),
    ("hours",),
    ("carrier", "number"),
    ("number", "late", "carrier"),
    ("at",),
    ("day", "price"),
]

Row = dict[str, Any]


def _null_or(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


NOON = datetime(2024, 6, 1, 12, tzinfo=UTC)
PRICES = [Decimal("1.50"), Decimal("1.5"), Decimal(-2), Decimal("0.00"), Decimal("999999999999999999.99")]
NUMBERS = st.integers(-3, 3) | st.sampled_from([2**62, -(2**63), 2**63 - 1, 70_000, 40_000_000])

rows = st.fixed_dictionaries(
    {
        "id": st.integers(0, 9),
        "carrier": _null_or(st.sampled_from(["AA", "UA", "", "é"])),
        "number": _null_or(NUMBERS),
        "late": _null_or(st.booleans()),
        "delay": _null_or(st.integers(-(2**40), 2**40)),
        "hours": _null_or(st.floats(-1e6, 1e6) | st.sampled_from([float("nan"), -0.0, float("inf")])),
        "at": _null_or(st.integers(-3, 3).map(lambda number: NOON + timedelta(microseconds=number))),
        "day": _null_or(st.dates(date(1969, 12, 30), date(1970, 1, 2))),
        "price": _null_or(st.decimals(-(10**9), 10**9, places=2) | st.sampled_from(PRICES)),
    }
)
batches = st.lists(st.lists(rows, min_size=1, max_size=12), min_size=1, max_size=4)


def arrow(batch: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(batch, schema=SCHEMA)


def listed(payload: Any) -> list[Row] | None:
    return payload if payload is None or isinstance(payload, list) else payload.to_pylist()


def as_set(payload: Any) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in _canonical(payload))


def _canonical(payload: Any) -> list[Row]:
    """Zones, zeros at the end and -0.0 are shown as they came on one plane, and as they are stored on the other."""
    return [
        {column: value if isinstance(value, bytes) else canonical(value) for column, value in row.items()}
        for row in listed(payload) or []
    ]


@pytest.mark.long
@given(batches)
def test_planes_agree_on_row_functions(given_batches: list[list[Row]]) -> None:
    for batch in given_batches:
        for function in (
            lambda row: {"id": row["id"], "sum": (row["delay"] or 0) % 7, "carrier": row["carrier"]},
            lambda row: row | {"late": None},
        ):
            assert _text(ARROW.map(arrow(batch), function)) == _text(ROWS.map(batch, function))
        keep = Vectorized(lambda row: row["late"], lambda columns: columns.column("late"))
        for predicate in (keep, lambda row: row["delay"]):
            assert _text(ARROW.filter(arrow(batch), predicate)) == _text(ROWS.filter(batch, predicate))
        assert _text(ARROW.flat_map(arrow(batch), _repeated)) == _text(ROWS.flat_map(batch, _repeated))
        assert ARROW.length(arrow(batch)) == ROWS.length(batch)


def _repeated(row: Row) -> list[Row]:
    return [row] * (row["id"] % 3)


@pytest.mark.long
@given(batches, st.sampled_from(KEYS), st.integers(1, 12))
def test_planes_agree_on_partitions(
    given_batches: list[list[Row]], key: tuple[str, ...], parallelism: int
) -> None:
    for batch in given_batches:
        parts = ROWS.partition(batch, key, parallelism, GROUPS)
        from_arrow = ARROW.partition(arrow(batch), key, parallelism, GROUPS)
        assert [(to, _text(part)) for to, part in from_arrow] == [(to, _text(part)) for to, part in parts]
        for target, part in parts:
            for row in part:
                group = key_group_of(tuple(row[column] for column in key), GROUPS)
                assert group * parallelism // GROUPS == target


def _entries(table: Any) -> dict[bytes, tuple[int, bytes]]:
    groups, keys, values = table.take_dirty()
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, zip(groups, values, strict=True), strict=True))


@pytest.mark.long
@given(batches, st.sampled_from(KEYS), st.sampled_from(SETS), st.booleans(), st.integers(0, 3))
def test_planes_agree_on_aggregates(
    given_batches: list[list[Row]],
    key: tuple[str, ...],
    kept: dict[str, Aggregate],
    emit_each: bool,
    restore_after: int,
) -> None:
    """Running rows, changes, final rows and state agree, even if one plane continues from the other's state."""
    carry = () if "id" in key else ("id",)
    tables: list[Any] = [plane.accumulators(key, kept, carry, GROUPS) for plane in (ROWS, ARROW)]
    store: dict[bytes, tuple[int, bytes]] = {}
    for number, batch in enumerate(given_batches):
        if number == restore_after and store:
            tables = [plane.accumulators(key, kept, carry, GROUPS) for plane in (ROWS, ARROW)]
            for table in tables:
                table.load([(group, encoded, value) for encoded, (group, value) in store.items()])
                assert table.take_changed_rows() is None
                assert table.take_dirty() == ([], [], [])
        outputs = [tables[0].update(batch, emit_each), tables[1].update(arrow(batch), emit_each)]
        if not emit_each:
            assert outputs == [None, None]
        else:
            assert _text(outputs[1]) == _text(outputs[0])
            assert len(outputs[0]) == len(batch)
        dirty = [_entries(table) for table in tables]
        assert dirty[0] == dirty[1]
        store.update(dirty[0])
        if number % 2:
            assert as_set(tables[1].take_changed_rows()) == as_set(tables[0].take_changed_rows())
    assert as_set(tables[1].take_changed_rows()) == as_set(tables[0].take_changed_rows())
    assert as_set(tables[1].all_rows()) == as_set(tables[0].all_rows())
    assert [table.take_changed_rows() for table in tables] == [None, None]


def _text(payload: Any) -> str:
    return repr([sorted(row.items()) for row in _canonical(payload)])


@pytest.mark.long
@given(batches, st.sampled_from(KEYS), st.sampled_from(SETS))
def test_combining_first_gives_the_same_totals(
    given_batches: list[list[Row]], key: tuple[str, ...], kept: dict[str, Aggregate]
) -> None:
    exact = {name: aggregate for name, aggregate in kept.items() if name not in ("time", "mean hours")}
    direct: Any = ROWS.accumulators(key, exact, (), GROUPS)
    merged: list[Any] = [
        plane.accumulators(key, merging_aggregates(exact), (), GROUPS) for plane in (ROWS, ARROW)
    ]
    for batch in given_batches:
        direct.update(batch, emit_each=False)
        partial = ROWS.combine(batch, key, exact, GROUPS)
        from_arrow = ARROW.combine(arrow(batch), key, exact, GROUPS)
        assert len(as_set(from_arrow)) == len(as_set(partial))
        merged[0].update(partial, emit_each=False)
        merged[1].update(from_arrow, emit_each=False)
    expected = _entries(direct)
    assert _entries(merged[0]) == expected
    assert _entries(merged[1]) == expected
    assert as_set(merged[0].all_rows()) == as_set(merged[1].all_rows()) == as_set(direct.all_rows())


def test_a_sum_beyond_64_bits_is_refused_by_both_planes() -> None:
    for plane, make in ((ROWS, list), (ARROW, ARROW.from_rows)):
        table: Any = plane.accumulators(("k",), {"s": Sum("v")}, (), GROUPS)
        table.update(make([{"k": 1, "v": 2**62}, {"k": 2, "v": -(2**63)}, {"k": 1, "v": 2**62 - 1}]), False)
        assert as_set(table.all_rows()) == as_set([{"k": 1, "s": 2**63 - 1}, {"k": 2, "s": -(2**63)}])
        with pytest.raises(JobUsageError, match="64-bit"):
            _update_and_flush(table, make([{"k": 1, "v": 1}]))


def _update_and_flush(table: Any, payload: Any) -> None:
    table.update(payload, False)
    table.take_dirty()


def test_running_values_near_the_64_bit_bound_are_exact() -> None:
    table = ARROW.accumulators(("k",), {"s": Sum("v")}, (), GROUPS)
    batch = [{"k": k, "v": v} for k, v in [(1, 2**62), (2, 2**62), (1, 2**62 - 1), (2, -5)]]
    assert listed(table.update(ARROW.from_rows(batch), True)) == listed(
        ROWS.accumulators(("k",), {"s": Sum("v")}, (), GROUPS).update(batch, True)
    )


def test_int_keys_far_apart_keep_their_slots() -> None:
    """The lookup array gives way to the sorted index when keys spread out."""
    tables: Sequence[Any] = [
        plane.accumulators(("k",), {"n": Count()}, (), GROUPS) for plane in (ROWS, ARROW)
    ]
    for keys in ([5, 3, None, 5], [2**40, 3, -(2**63)], [2**40 + 1, 5, None, 7], [2**63 - 1, 7]):
        batch = [{"k": key} for key in keys]
        tables[0].update(batch, False)
        tables[1].update(pa.RecordBatch.from_pylist(batch), False)
        assert as_set(tables[1].take_changed_rows()) == as_set(tables[0].take_changed_rows())
    assert _entries(tables[0]) == _entries(tables[1])


def test_a_key_column_may_change_its_type() -> None:
    table = ARROW.accumulators(("k",), {"n": Count()}, (), GROUPS)
    for column in ([None], [1, 2], ["a"], [1.5], [None]):
        table.update(pa.RecordBatch.from_pydict({"k": column}), False)
    counts = {encoded: value[1][-8] for encoded, value in _entries(table).items()}
    keys: list[Key] = [(None,), (1,), (2,), ("a",), (1.5,)]
    assert counts == {encode_key(key): (2 if key == (None,) else 1) for key in keys}


def test_dictionary_columns_are_keys_like_any_other() -> None:
    batch = pa.RecordBatch.from_pydict({"k": pa.array(["a", "b", "a"]).dictionary_encode()})
    assert listed(ARROW.combine(batch, ("k",), {"n": Count()}, GROUPS)) == [
        {"k": "a", "n": 2},
        {"k": "b", "n": 1},
    ]


@pytest.mark.parametrize("plane", [ROWS, ARROW], ids=["rows", "arrow"])
def test_mistakes_are_told(plane: Any) -> None:
    batch = plane.from_rows([{"k": 1, "v": 1.5}])
    with pytest.raises(JobUsageError, match=r"no column 'z'.*k, v"):
        plane.partition(batch, ("z",), 2, GROUPS)
    with pytest.raises(JobUsageError, match="FloatSum"):
        plane.accumulators(("k",), {"s": Sum("v")}, (), GROUPS).update(batch, False)
    with pytest.raises(JobUsageError, match="no column 'z'"):
        plane.accumulators(("k",), {"s": Sum("z")}, (), GROUPS).update(batch, False)


def test_vectorized_forms_are_used_on_arrow() -> None:
    doubled = Vectorized(
        lambda row: {"v": row["v"] * 2},
        lambda batch: pa.RecordBatch.from_arrays([pc.multiply(batch.column("v"), 2)], ["v"]),
    )
    assert listed(ARROW.map(ARROW.from_rows([{"v": 4}]), doubled)) == ROWS.map([{"v": 4}], doubled)
    with pytest.raises(JobUsageError, match="RecordBatch"):
        ARROW.map(ARROW.from_rows([{"v": 4}]), Vectorized(dict, lambda batch: batch.to_pylist()))


def test_a_column_of_nulls_keeps_its_type_through_a_row_function() -> None:
    batch = arrow([{"id": 1}])
    mapped = ARROW.map(batch, lambda row: row)
    assert mapped.schema == SCHEMA
