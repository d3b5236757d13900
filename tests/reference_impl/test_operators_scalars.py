"""Timestamps, dates and decimals: one form for equal values, as keys, in rows in flight, in joins, and on Arrow."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.arrow_values import cast_table
from barrier_tck.reference_impl.operators.encoding import (
    Key,
    decode_accumulator,
    decode_key,
    encode_accumulator,
    encode_key,
    key_group_of,
)
from barrier_tck.reference_impl.operators.functions import Count, CountIf, Row
from barrier_tck.reference_impl.operators.join import Join
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.scalars import canonical
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError
from tests.reference_impl.opened_operators import PLANES, listed, opened

ROWS, ARROW = RowPlane(), ArrowPlane()
NOON = datetime(2024, 6, 1, 12, 0, 0, 7, tzinfo=UTC)
IN_PARIS = NOON.astimezone(timezone(timedelta(hours=2)))

moments = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=30))]))
moments = moments.filter(
    lambda moment: datetime(2, 1, 1, tzinfo=UTC) < moment < datetime(9998, 1, 1, tzinfo=UTC)
)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**12), max_value=10**12)
scalars = moments | st.dates() | decimals


@given(scalars)
def test_extended_values_round_trip_as_keys_and_in_accumulators(value: Any) -> None:
    for found in (*decode_key(encode_key((value,))), *decode_accumulator(encode_accumulator((value,)))):
        assert found == value
        assert type(found) is type(value)


@given(scalars, scalars)
def test_keys_have_equal_bytes_exactly_if_the_values_are_equal(one: Any, other: Any) -> None:
    equal = type(one) is type(other) and one == other
    assert (encode_key((one,)) == encode_key((other,))) == equal


def test_zones_and_trailing_zeros_do_not_count_and_types_do() -> None:
    assert encode_key((NOON,)) == encode_key((IN_PARIS,))
    for texts in (
        ("1", "1.0", "1.00"),
        ("0", "-0", "0.000", "0E+5"),
        ("100", "1E+2", "1.00E+2"),
        ("-0.5", "-0.500"),
    ):
        assert len({encode_key((Decimal(text),)) for text in texts}) == 1, texts
    values: tuple[Any, ...] = (
        1,
        1.0,
        True,
        Decimal(1),
        "1",
        date(1970, 1, 2),
        datetime(1970, 1, 2, tzinfo=UTC),
    )
    assert len({encode_key((value,)) for value in values}) == len(values)


def test_the_bytes_of_keys_never_change() -> None:
    """They decide where stored state is found."""
    keys: list[Key] = [(NOON,), (date(1969, 12, 31),), (Decimal("-12.50"),), (Decimal("0.1"), "a")]
    assert [encode_key(key).hex() for key in keys] == [
        "91d701000619d2d6edd007",
        "91d602ffffffff",
        "91c705032d31322e35",
        "92c70303302e31a161",
    ]
    assert [key_group_of(key, 128) for key in keys] == [31, 104, 125, 125]


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (datetime(2024, 6, 1), "has no time zone"),
        (Decimal("NaN"), "must be finite"),
        (Decimal("-Infinity"), "must be finite"),
        (Decimal(10**38), "more than 38 digits"),
        (Decimal("1E-39"), "more than 38 digits"),
    ],
    ids=str,
)
def test_what_cannot_be_a_key_is_refused_with_what_to_do(value: Any, match: str) -> None:
    with pytest.raises(JobUsageError, match=match):
        encode_key(("a", value))


def test_the_largest_decimals_are_keys() -> None:
    for value in (Decimal(10**38 - 1), Decimal(1 - 10**38), Decimal("1E+37"), Decimal("1E-38")):
        assert decode_key(encode_key((value,))) == (value,)


@pytest.mark.parametrize(
    "data", ["91d70112", "91d50112ab", "91d40378", "91d40931", "91d7017fffffffffffffff", "91d6027fffffff"]
)
def test_bytes_that_are_no_extension_of_ours_are_called_corrupt(data: str) -> None:
    with pytest.raises(CorruptStateError):
        decode_key(bytes.fromhex(data))


def test_an_accumulator_comes_back_as_it_was_and_what_would_not_is_refused() -> None:
    kept = ([1, (2, Decimal(3))], {"a": NOON, 5: b"x"}, "", None, 1.5)
    assert repr(decode_accumulator(encode_accumulator(kept))) == repr(kept)
    for value in ({1, 2}, {(1, 2): 3}, object(), [object()]):
        with pytest.raises(JobUsageError, match="an accumulator is made of"):
            encode_accumulator((value,))


# --- rows in flight -------------------------------------------------------------------------------------------


def test_rows_in_flight_keep_types_and_digits() -> None:
    rows: list[Row] = [
        {"a": 1, "t": IN_PARIS, "d": date(2024, 2, 29), "x": Decimal("1.00")},
        {"a": None, "t": None, "d": None, "x": None},
    ]
    for plane in PLANES:
        assert listed(plane.decode(plane.encode(plane.from_rows(rows)))) == rows
    assert str(ROWS.decode(ROWS.encode(rows))[0]["x"]) == "1.00"
    assert type(ROWS.decode(ROWS.encode(rows))[0]["d"]) is date
    with pytest.raises(JobUsageError, match="no time zone"):
        ROWS.encode([{"a": 1}, {"a": datetime(2024, 1, 1)}])
    with pytest.raises(CorruptStateError, match="in flight"):
        ROWS.decode(bytes.fromhex("9181a161d40931"))


# --- on Arrow -------------------------------------------------------------------------------------------------

COLUMNS = [
    pa.array([NOON, None, NOON + timedelta(seconds=1), NOON], pa.timestamp("us", tz="UTC")),
    pa.array([NOON, None, NOON + timedelta(seconds=1), NOON], pa.timestamp("ns", tz="Europe/Paris")),
    pa.array(
        [NOON.replace(microsecond=0), None, NOON, NOON.replace(microsecond=0)],
        pa.timestamp("us", tz="+05:00"),
    ),
    pa.array([date(1960, 2, 29), None, date(2024, 1, 1), date(1960, 2, 29)], pa.date32()),
    pa.array([date(1960, 2, 29), None, date(2024, 1, 1), date(1960, 2, 29)], pa.date64()),
    pa.array([Decimal("1.50"), None, Decimal("-2"), Decimal("1.5")], pa.decimal128(20, 4)),
    pa.array([Decimal("1.50"), None, Decimal("-2"), Decimal("1.5")], pa.decimal256(50, 4)),
    pa.array(
        [NOON, None, NOON + timedelta(seconds=1), NOON], pa.timestamp("us", tz="UTC")
    ).dictionary_encode(),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type)[:30])
@pytest.mark.parametrize("more", [(), ("id",)], ids=["alone", "with another"])
def test_equal_keys_of_both_planes_have_equal_bytes_and_meet_in_one_subtask(
    column: Any, more: tuple[str, ...]
) -> None:
    batch = pa.RecordBatch.from_arrays([column, pa.array([1, 2, 3, 1])], ["k", "id"])
    plain = [
        {"k": value if value is None or type(value) in (date, Decimal) else _micros(value), "id": number}
        for value, number in zip(column.to_pylist(), [1, 2, 3, 1], strict=True)
    ]
    key = ("k", *more)
    parts = [(target, listed(part)) for target, part in ROWS.partition(plain, key, 5, 16)]
    assert [(target, listed(part)) for target, part in ARROW.partition(batch, key, 5, 16)] == parts
    tables: list[Any] = [plane.accumulators(key, {"n": Count()}, (), 16) for plane in PLANES]
    tables[0].update(plain, False)
    tables[1].update(batch, False)
    assert listed(tables[1].all_rows()) == listed(tables[0].all_rows())
    dirty = [sorted(zip(*table.take_dirty(), strict=True)) for table in tables]
    assert dirty[0] == dirty[1]
    assert len(dirty[0]) == 3
    restored: Any = ARROW.accumulators(key, {"n": Count()}, (), 16)
    restored.load(dirty[0])
    assert len(listed(restored.all_rows())) == 3
    assert sorted(map(repr, listed(ARROW.combine(batch, key, {"n": Count()}, 16)))) == sorted(
        map(repr, listed(tables[1].all_rows()))
    )


def _micros(value: Any) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(
        microseconds=int(np.datetime64(value.astimezone(UTC).replace(tzinfo=None), "us").astype(np.int64))
    )


def test_decimals_of_several_scales_are_one_key() -> None:
    table: Any = ARROW.accumulators(("k",), {"n": Count()}, (), 16)
    for text, kind in (
        ("1.5", pa.decimal128(3, 1)),
        ("1.50", pa.decimal128(9, 5)),
        ("1.25", pa.decimal128(3, 2)),
        ("2", pa.decimal128(2, 0)),
    ):
        table.update(pa.RecordBatch.from_arrays([pa.array([Decimal(text)], kind)], ["k"]), False)
    assert listed(table.all_rows()) == [
        {"k": Decimal("1.5"), "n": 2},
        {"k": Decimal("1.25"), "n": 1},
        {"k": Decimal(2), "n": 1},
    ]


def test_batches_of_decimals_have_one_type_whatever_their_scales() -> None:
    types = {
        ARROW.from_rows([{"x": Decimal(text)}]).schema.field("x").type for text in ("1", "1.25", "-1E+5")
    }
    assert types == {pa.decimal128(38, 18)}
    large = ARROW.from_rows([{"x": Decimal(10**30)}])
    assert listed(large) == [{"x": Decimal(10**30)}]


@pytest.mark.parametrize(
    ("column", "match"),
    [
        (pa.array([datetime(2024, 1, 1)], pa.timestamp("us")), "'k' have no time zone"),
        (pa.array([1_000_000_001], pa.timestamp("ns", tz="UTC")), "'k' do not fit microseconds"),
    ],
)
def test_timestamps_that_are_no_moments_of_microseconds_are_refused(column: Any, match: str) -> None:
    batch = pa.RecordBatch.from_arrays([column], ["k"])
    for use in (
        lambda: ARROW.partition(batch, ("k",), 2, 16),
        lambda: ARROW.combine(batch, ("k",), {"n": Count()}, 16),
        lambda: ARROW.accumulators(("k",), {"n": Count()}, (), 16).update(batch, False),
    ):
        with pytest.raises(JobUsageError, match=match):
            use()


def test_what_is_true_of_extended_values_is_the_same_on_both_planes() -> None:
    rows: list[Row] = [
        {"x": Decimal("0.00"), "t": NOON, "d": None},
        {"x": Decimal("0.1"), "t": None, "d": date(1970, 1, 1)},
    ]
    kept = {"x": CountIf("x"), "t": CountIf("t"), "d": CountIf("d")}
    for plane in PLANES:
        table = (
            plane.accumulators((), kept, (), 16)
            if plane is ROWS
            else plane.accumulators(("one",), kept, (), 16)
        )
        table.update(plane.from_rows([{**row, "one": 1} for row in rows]), False)
        (found,) = listed(table.all_rows())
        assert [found[name] for name in kept] == [1, 1, 1]


def test_decimals_that_do_not_fit_a_file_are_refused_and_others_take_its_type() -> None:
    """Arrow's own cast turns 10**30 into another number."""
    small = pa.table({"x": pa.array([Decimal("1.5")], pa.decimal128(38, 18)), "n": [1]})
    other = pa.table(
        {
            "n": [2],
            "x": pa.array(
                [
                    Decimal("-20.25"),
                ],
                pa.decimal128(4, 2),
            ),
        }
    )
    assert cast_table(other, small.schema).to_pylist() == [{"x": Decimal("-20.25"), "n": 2}]
    assert cast_table(other, small.schema).schema == small.schema
    with pytest.raises(JobUsageError, match="later batch does not fit"):
        cast_table(pa.table({"x": pa.array([Decimal(10**30)]), "n": [3]}), small.schema)


# --- a join ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_a_join_by_a_timestamp_keeps_extended_values(plane: DataPlane) -> None:
    join = Join("joined", ("at",), ("hour",), {"at": "at", "day": "day"}, {"price": "price"})
    operator = opened(join, plane)
    left = {"at": NOON, "day": date(2024, 6, 1)}
    assert operator.process_input(plane.from_rows([left]), 0) is None
    found = operator.process_input(plane.from_rows([{"hour": IN_PARIS, "price": Decimal("9.90")}]), 1)
    assert listed(found) == [{**left, "price": Decimal("9.9")}]
    assert type(listed(found)[0]["day"]) is date


def test_a_value_has_one_canonical_form() -> None:
    assert str(canonical(Decimal("1.5000"))) == "1.5"
    assert str(canonical(Decimal("1E+2"))) == "100"
    assert canonical(IN_PARIS).tzinfo is UTC
    with_nanoseconds = pd.Timestamp(IN_PARIS)
    assert (canonical(with_nanoseconds), type(canonical(with_nanoseconds))) == (NOON, datetime)
    with pytest.raises(JobUsageError, match=r"\(Timestamp\)"):
        canonical(with_nanoseconds + pd.Timedelta(1, "ns"))
    with pytest.raises(JobUsageError, match=r"not \(1,\) \(tuple\)"):
        canonical((1,))
