"""Lists without keys: what a function keeps is what it finds after a restore, and mistakes are told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.list_process import (
    HasListStates,
    ListProcess,
    ListProcessOperator,
    OperatorListState,
    OperatorStates,
)
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot, StateList
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError, ProtocolError


class Numbered:
    """Gives every record a number, and remembers the records."""

    def __init__(self, name: str = "seen") -> None:
        self._name = name
        self.kept: OperatorListState[int] | None = None

    def open(self, lists: OperatorStates) -> None:
        self.kept = lists.split_list(self._name, int)

    def process(self, row: Row, number: int) -> Iterable[Row]:
        assert self.kept is not None
        self.kept.add(row["v"])
        return ({"v": row["v"], "input": number, "nth": len(self.kept)},)


def restored(*lists: StateList) -> OperatorSnapshot:
    return OperatorSnapshot("op", lists=lists)


def opened(function: Any, before: OperatorSnapshot | None = None) -> ListProcessOperator:
    operator = ListProcess("op", function).build(RowPlane())
    context: Any = type("Context", (), {"place": None})()
    operator.open(context, before)
    return operator


def test_a_function_finds_after_a_restore_what_it_kept() -> None:
    first = opened(Numbered)
    assert first.process([{"v": 7}, {"v": 8}]) == [
        {"v": 7, "input": 0, "nth": 1},
        {"v": 8, "input": 0, "nth": 2},
    ]
    snapshot = first.snapshot(CheckpointId(1)).run()
    first.process([{"v": 9}])
    again = opened(Numbered, snapshot)
    assert again.process_input([{"v": 5}], 1) == [{"v": 5, "input": 1, "nth": 3}]
    (kept,) = again.stored_list_states()
    assert (kept.name, len(kept.entries), kept.to_all) == ("seen", 3, False)
    assert isinstance(again, HasListStates)


def test_equal_entries_stay_apart_and_in_their_order() -> None:
    first = opened(Numbered)
    first.process([{"v": value} for value in (2, 1, 2)])
    again = opened(Numbered, first.snapshot(CheckpointId(1)).run())
    assert again.stored_list_states() == first.stored_list_states()
    (kept,) = again.stored_list_states()
    assert kept.entries == (b"\x02", b"\x01", b"\x02")


def test_a_list_can_be_replaced_and_read() -> None:
    lists = OperatorStates("op", None)
    kept = lists.union_list("l", tuple[int, str])
    kept.add((1, "a"))
    kept.add((2, "b"))
    kept.replace(one for one in list(kept) if one[0] == 2)
    assert list(kept) == [(2, "b")]
    assert lists.stored() == (kept.stored(),)
    assert kept.stored().to_all


def test_a_list_that_the_function_does_not_name_any_more_is_handed_on() -> None:
    other = StateList("other", (b"\x01",))
    operator = opened(Numbered, restored(other))
    operator.process([{"v": 1}])
    assert [one.name for one in operator.stored_list_states()] == ["seen", "other"]
    assert operator.stored_list_states()[1] == other


def test_mistakes_are_told() -> None:
    lists = OperatorStates("op", restored(StateList("l", (), to_all=True), StateList("text", (b"\xa1x",))))
    with pytest.raises(
        JobUsageError, match="'l' of operator 'op' is union_list in the checkpoint and split_list"
    ):
        lists.split_list("l", int)
    with pytest.raises(CorruptStateError, match="list 'text' has an entry that is no"):
        lists.split_list("text", int)
    lists.split_list("new", int)
    with pytest.raises(JobUsageError, match="two lists of the name 'new'"):
        lists.union_list("new", int)
    with pytest.raises(ProtocolError, match="before it was opened"):
        ListProcess("op", Numbered).build(RowPlane()).stored_list_states()


def test_an_entry_that_no_restore_could_read_is_refused_when_it_is_added() -> None:
    lists = OperatorStates("op", None)
    kept = lists.split_list("l", int)
    kept.add(1)
    for wrong in ("text", object(), 2**70):
        with pytest.raises(JobUsageError, match="'l' cannot hold"):
            kept.add(wrong)  # type: ignore[arg-type]
        with pytest.raises(JobUsageError, match="'l' cannot hold"):
            kept.replace([2, wrong])  # type: ignore[list-item]
    assert list(kept) == [1], "what was kept before is kept still"
    with pytest.raises(JobUsageError, match="cannot hold values of type"):
        lists.split_list("none", object())  # type: ignore[arg-type]


def test_a_step_of_a_job_keeps_lists_and_its_vertex_and_uid_have_its_name() -> None:
    def at(place: Place) -> Numbered:
        return Numbered()

    graph = (
        StreamJob("numbers")
        .source(CollectionSource((("numbers", ({"v": 1},)),), 1), name="read")
        .process(PerSubtask(at), name="numbered", parallelism=2)
        .sink(FileSink("out"), parallelism=1)
        .build()
    )
    assert graph.vertex("numbered").parallelism == 2
    assert graph.vertex("numbered").stateful_uids == ("numbered",)
