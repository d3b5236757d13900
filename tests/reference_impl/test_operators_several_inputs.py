"""Operators with several inputs: the planes agree, states are shared, and functions know their subtask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.keyed_process import KeyedCoProcess, KeyedProcess
from barrier_tck.reference_impl.operators.stateless import CoFlatMap, Filter, FlatMap, Map
from barrier_tck.reference_impl.runtime_errors import ProtocolError
from barrier_tck.reference_impl.state.keyed import KeyedStates
from tests.reference_impl.opened_operators import GROUPS, PLANES, Storage, listed, opened


class Meetings:
    """Counts the records of each key by input, and adds to each record what its key has seen on the other inputs."""

    def open(self, states: KeyedStates) -> None:
        self.seen = states.map("seen", int, int)
        self.last = states.value("last", str)

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        seen, last = self.seen.of(group, key), self.last.of(group, key)
        counts = seen.items()
        seen.put(number, counts.get(number, 0) + 1)
        before = last.get()
        last.set(row.get("name") or "")
        for other in sorted(counts):
            yield {"input": number, "other": other, "times": counts[other], "before": before, **row}


MEETINGS = KeyedCoProcess("meetings", (("k",), ("id",)), Meetings)
"""Its inputs have columns with different names, and columns with one name but different types."""

left = st.fixed_dictionaries({"k": st.integers(0, 3), "v": st.integers(-5, 5)})
right = st.fixed_dictionaries(
    {
        "id": st.integers(0, 3),
        "v": st.floats(-1e6, 1e6),
        "name": st.none() | st.sampled_from(["a", "é", ""]),
        "late": st.booleans(),
    }
)
batches = st.lists(
    st.tuples(st.just(0), st.lists(left, min_size=1, max_size=6))
    | st.tuples(st.just(1), st.lists(right, min_size=1, max_size=6)),
    max_size=8,
)


@pytest.mark.long
@given(batches, st.integers(0, 8))
def test_planes_agree_on_keyed_functions_of_two_inputs_and_take_over_each_others_state(
    given_batches: Sequence[tuple[int, list[Row]]], restore_after: int
) -> None:
    storages = [Storage(), Storage()]
    operators = [opened(MEETINGS, plane, storage) for plane, storage in zip(PLANES, storages, strict=True)]
    for turn, (number, rows) in enumerate(given_batches):
        if turn == restore_after:
            parts = [operator.snapshot(CheckpointId(1)).run() for operator in operators]
            operators = [
                opened(MEETINGS, plane, storage, part)
                for plane, storage, part in zip(PLANES, reversed(storages), reversed(parts), strict=True)
            ]
        outputs = [
            listed(operator.process_input(plane.from_rows(rows), number))
            for plane, operator in zip(PLANES, operators, strict=True)
        ]
        assert _text(outputs[1]) == _text(outputs[0])
    entries = [
        [
            entry
            for name in ("seen", "last")
            for group in range(GROUPS)
            for entry in sorted(operator._store.scan(name, group))
        ]
        for operator in operators
    ]
    assert entries[0] == entries[1]


def _text(rows: list[Row]) -> str:
    """Return the rows as text with the values' types; the order of columns does not matter."""
    return repr([sorted(row.items()) for row in rows])


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_a_column_takes_the_type_of_its_values_not_that_of_the_input_it_shares_a_name_with(
    plane: DataPlane,
) -> None:
    """An integer kept from one input stays an integer, although the other input's column of that name holds floats."""

    class Remembers:
        def open(self, states: KeyedStates) -> None:
            self.kept = states.value("kept", int)

        def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
            cell = self.kept.of(group, key)
            if number == 0:
                cell.set(row["v"])
                return ()
            return ({"v": cell.get()},)

    operator = opened(KeyedCoProcess("r", (("k",), ("k",)), Remembers), plane)
    assert operator.process_input(plane.from_rows([{"k": 1, "v": 7}]), 0) is None
    (row,) = listed(operator.process_input(plane.from_rows([{"k": 1, "v": 0.5}]), 1))
    assert row == {"v": 7} and type(row["v"]) is int


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_a_flat_map_of_several_inputs_is_told_which(plane: DataPlane) -> None:
    def numbered(row: Row, number: int) -> list[Row]:
        return [{"input": number, "v": value} for value in row.values() if value]

    operator = opened(CoFlatMap("numbered", 3, numbered), plane)
    assert listed(operator.process_input(plane.from_rows([{"a": 1, "b": 2}, {"a": 0, "b": 3}]), 0)) == [
        {"input": 0, "v": 1}, {"input": 0, "v": 2}, {"input": 0, "v": 3}
    ]  # fmt: skip
    assert listed(operator.process_input(plane.from_rows([{"z": "x"}]), 2)) == [{"input": 2, "v": "x"}]
    assert operator.process_input(plane.from_rows([{"z": None}]), 1) is None
    with pytest.raises(ProtocolError, match="numbered"):
        operator.process(plane.from_rows([{"z": 1}]))


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_a_batch_of_an_operator_with_several_inputs_must_come_on_one(plane: DataPlane) -> None:
    with pytest.raises(ProtocolError, match="'meetings' has several inputs"):
        opened(MEETINGS, plane).process(plane.from_rows([{"k": 1}]))


class Stamps:
    """A keyed function that knows where it runs."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def open(self, states: KeyedStates) -> None:
        pass

    def process(self, group: int, key: bytes, row: Row, number: int = 0) -> Iterable[Row]:
        return [_stamped(self.place, row)]


def _stamped(place: Place, row: Row) -> Row:
    return {**row, "at": f"{place.subtask} of {place.parallelism}, attempt {place.attempt} of {place.job}"}


@pytest.mark.parametrize("plane", PLANES, ids=["rows", "arrow"])
def test_functions_may_know_their_subtask(plane: DataPlane) -> None:
    batch = plane.from_rows([{"k": 1}])
    here = {"k": 1, "at": "joined[1] of 3, attempt 2 of job"}
    one_input: list[Any] = [
        Map("s", PerSubtask(lambda place: lambda row: _stamped(place, row))),
        FlatMap("s", PerSubtask(lambda place: lambda row: [_stamped(place, row)])),
        KeyedProcess("s", ("k",), PerSubtask(Stamps)),
    ]
    for spec in one_input:
        assert listed(opened(spec, plane).process(batch)) == [here], spec
    several: list[Any] = [
        CoFlatMap("s", 2, PerSubtask(lambda place: lambda row, number: [_stamped(place, row)])),
        KeyedCoProcess("s", (("k",), ("k",)), PerSubtask(Stamps)),
    ]
    for spec in several:
        assert listed(opened(spec, plane).process_input(batch, 1)) == [here], spec
    external_storage = Filter("s", PerSubtask(lambda place: lambda row: place.subtask.index != 1))
    assert opened(external_storage, plane).process(batch) is None
