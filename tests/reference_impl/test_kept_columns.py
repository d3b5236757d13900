"""Decimals, dates and timestamps as keys and values of joins and rankings in event time, on rows and on Arrow."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.interval_join import Within, interval_join
from barrier_tck.reference_impl.operators.join_sides import SIDES, JoinForm, JoinSide
from barrier_tck.reference_impl.operators.top_n import TOP, Order, Top, top_n
from barrier_tck.reference_impl.operators.window_join import window_join
from barrier_tck.reference_impl.operators.windows import Tumbling
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from tests.reference_impl.event_time_runs import Run
from tests.reference_impl.opened_operators import PLANES

planes = pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
NOON = datetime(2024, 6, 1, 12, 0, 0, 1, tzinfo=UTC)
IN_PARIS = NOON.astimezone(timezone(timedelta(hours=2)))
DAY = date(2024, 6, 1)
PRICE = Decimal("9.90")
LEFT, RIGHT = JoinSide("ts", ("at", "day")), JoinSide("ts", ("price",))
KEYS = (("k",), ("k",))
JOINS = {
    "interval": interval_join("op", KEYS, Within(-5, 5), LEFT, RIGHT, "time", JoinForm.FULL),
    "window": window_join("op", KEYS, Tumbling(10), LEFT, RIGHT, JoinForm.FULL),
}


def left(ts: int, key: Any = NOON) -> Row:
    return {"k": key, "ts": ts, "at": IN_PARIS, "day": DAY}


def right(ts: int, price: Decimal = PRICE, key: Any = NOON) -> Row:
    return {"k": key, "ts": ts, "price": price}


def of_sides(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["at"], row["day"], row["price"]) for row in rows]


@planes
@pytest.mark.parametrize("join", JOINS)
def test_a_join_gives_pairs_and_rows_alone_with_their_types_over_a_restore(
    plane: DataPlane, join: str
) -> None:
    run = Run(JOINS[join], plane, SIDES)
    run.take(left(1))
    run.restore()
    # The same moment is the same key, whatever its zone.
    run.take(right(2, key=IN_PARIS), number=1)
    run.restore()
    run.take(right(52, Decimal("-0.5"), key=NOON + timedelta(microseconds=1)), number=1)
    run.take(left(91))
    run.end()
    assert sorted(of_sides(run.rows), key=repr) == sorted(
        [(NOON, DAY, PRICE), (None, None, Decimal("-0.5")), (NOON, DAY, None)], key=repr
    )
    for row in run.rows:
        assert type(row["day"]) in (date, type(None)) and type(row["price"]) in (Decimal, type(None))
        assert row["at"] is None or row["at"].utcoffset() is not None


SCORES: dict[str, list[Any]] = {
    "decimals": [Decimal("-1.5"), Decimal("0.10"), Decimal("0.2"), Decimal(12)],
    "timestamps": [NOON - timedelta(days=1), NOON, NOON + timedelta(microseconds=1)],
    "dates": [DAY - timedelta(days=40), DAY, DAY + timedelta(days=1)],
}


@planes
@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize("kind", SCORES)
def test_rows_are_ranked_by_decimals_timestamps_and_dates_over_a_restore(
    plane: DataPlane, order: Order, kind: str
) -> None:
    scores = SCORES[kind]
    run = Run(top_n("op", ("k",), Top(9, {"score": order}), Tumbling(10), "ts", ("score",)), plane, (TOP,))
    for score in (scores[-1], None, *scores[:-1]):
        run.take({"k": PRICE, "ts": 1, "score": score})
        run.restore()
    expected = scores if order is Order.ASCENDING else scores[::-1]
    rows = run.end()
    assert [row["score"] for row in rows] == [*expected, None]
    assert {row["k"] for row in rows} == {PRICE}
    assert {type(row["score"]) for row in rows} == {type(scores[0]), type(None)}


def test_values_of_all_kinds_have_an_order() -> None:
    scores = [True, Decimal("1.5"), 2, 2.5, "a", DAY, NOON]
    run = Run(
        top_n("op", ("k",), Top(9, {"score": Order.ASCENDING}), Tumbling(10), "ts", ("score",)),
        PLANES[0],
        (TOP,),
    )
    run.take(*({"k": "x", "ts": 1, "score": score} for score in reversed(scores)))
    assert [row["score"] for row in run.end()] == scores


def test_nanoseconds_of_arrow_are_kept_as_microseconds() -> None:
    run = Run(JOINS["interval"], PLANES[1], SIDES)
    at = pa.array([pd.Timestamp(NOON)], pa.timestamp("ns", "UTC"))
    batch = pa.RecordBatch.from_pydict({"k": ["x"], "ts": [1], "at": at, "day": [DAY]})
    run.operator.process_input(batch, 0)
    [row] = run.advance(50)
    assert (row["at"], type(row["at"])) == (NOON, datetime)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Decimal("NaN"), "finite decimals.*'price'; convert it before"),
        (Decimal("Infinity"), "finite decimals"),
        (datetime(2024, 6, 1), "has no time zone"),
        (b"1", r"not b'1' \(bytes\)"),
    ],
)
def test_a_value_that_state_cannot_keep_is_refused(value: Any, message: str) -> None:
    with pytest.raises(JobUsageError, match=message):
        Run(JOINS["interval"], PLANES[0], SIDES).take(right(1, value), number=1)
