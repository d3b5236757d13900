"""The inner join: each matching pair once, whatever the interleaving, and the same on both planes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.encoding import decode_key
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.join import JOIN_STATES, Join
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from tests.reference_impl.opened_operators import GROUPS, PLANES, Storage, listed, opened

FLIGHTS_WEATHER = Join(
    "joined", ("origin", "hour"), ("station", "at"), {"flight": "id", "origin": "origin"}, {"temp": "temp"}
)

places = st.none() | st.sampled_from(["EWR", "JFK"])
hours = st.integers(0, 1)
flights = st.fixed_dictionaries({"id": st.integers(0, 99), "origin": places, "hour": hours})
weather = st.fixed_dictionaries(
    {"station": places, "at": hours, "temp": st.none() | st.floats(-50, 50), "id": st.booleans()}
)
batches = st.lists(
    st.tuples(st.just(0), st.lists(flights, min_size=1, max_size=5))
    | st.tuples(st.just(1), st.lists(weather, min_size=1, max_size=5)),
    max_size=10,
)


def nested_loops(given_batches: Sequence[tuple[int, list[Row]]]) -> list[Row]:
    """The textbook join of all records, by nested loops."""
    sides: list[list[Row]] = [[], []]
    for number, rows in given_batches:
        sides[number].extend(rows)
    return [
        {"flight": one["id"], "origin": one["origin"], "temp": other["temp"]}
        for one in sides[0]
        for other in sides[1]
        if one["origin"] is not None and (one["origin"], one["hour"]) == (other["station"], other["at"])
    ]


def as_bag(rows: Sequence[Row]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.long
@given(batches, st.integers(0, 10))
def test_every_pair_is_emitted_once_on_both_planes_and_across_a_restore(
    given_batches: Sequence[tuple[int, list[Row]]], restore_after: int
) -> None:
    for plane in PLANES:
        storage = Storage()
        operator, found = opened(FLIGHTS_WEATHER, plane, storage), []
        for turn, (number, rows) in enumerate(given_batches):
            if turn == restore_after:
                part = operator.snapshot(CheckpointId(1)).run()
                operator = opened(FLIGHTS_WEATHER, plane, storage, part)
            found.extend(listed(operator.process_input(plane.from_rows(rows), number)))
        assert as_bag(found) == as_bag(nested_loops(given_batches))


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_what_is_kept_can_be_read_from_the_store_by_key(plane: DataPlane) -> None:
    operator = opened(FLIGHTS_WEATHER, plane)
    sides: list[list[Row]] = [
        [{"id": 1, "origin": "EWR", "hour": 3}, {"id": 2, "origin": None, "hour": 3}],
        [{"station": "EWR", "at": 3, "temp": 1.5}, {"station": "EWR", "at": 3, "temp": 1.5}],
    ]
    for number, rows in enumerate(sides):
        operator.process_input(plane.from_rows(rows), number)
    found: dict[str, Any] = {
        name: [
            (decode_key(key), msgspec.msgpack.decode(value))
            for group in range(GROUPS)
            for key, value in operator._store.scan(name, group)
        ]
        for name in JOIN_STATES
    }
    assert found == {
        "left": [(("EWR", 3), [{"flight": 1, "origin": "EWR"}])],
        "right": [(("EWR", 3), [{"temp": 1.5}, {"temp": 1.5}])],
    }


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_what_cannot_be_joined_is_told(plane: DataPlane) -> None:
    for row, match in (
        ({"id": 1, "origin": "EWR"}, "joined: there is no column 'hour'; the record has id, origin"),
        ({"origin": "EWR", "hour": 3}, "join, left side: there is no column 'id'"),
        ({"id": b"1", "origin": "EWR", "hour": 3}, r"keeps null, .*not b'1' \(bytes\) in column 'id'"),
    ):
        with pytest.raises(JobUsageError, match=match):
            opened(FLIGHTS_WEATHER, plane).process_input(plane.from_rows([row]), 0)
