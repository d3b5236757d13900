"""Typed state against plain Python values, on every backend; and two stateful operators in one chain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.api import OperatorContext
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, Partitioning, Vertex
from barrier_tck.reference_impl.operators.keyed_process import KeyedProcess
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError
from barrier_tck.reference_impl.state.backend import KeyedStateStore
from barrier_tck.reference_impl.state.keyed import AggregatingCell, KeyedStates, NamedState
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from tests.reference_impl.state_worlds import ALL, StateWorld

BACKENDS = ("heap", "rocksdb")


class Point(msgspec.Struct, frozen=True):
    x: int
    label: str = ""


@pytest.fixture(params=BACKENDS)
def world(request: pytest.FixtureRequest) -> Iterator[StateWorld]:
    world = StateWorld(request.param)
    yield world
    world.close()


@pytest.fixture(scope="module", params=BACKENDS)
def store(request: pytest.FixtureRequest) -> Iterator[KeyedStateStore]:
    world = StateWorld(request.param)
    yield world.store()
    world.close()


cells = st.tuples(st.integers(0, 7), st.binary(max_size=2))
texts = st.text(max_size=3)
numbers = st.integers(-(2**63), 2**63 - 1)
small = st.integers(-9, 9)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("value"), cells, st.builds(Point, numbers, texts)),
        st.tuples(st.just("list"), cells, st.lists(numbers, max_size=3)),
        st.tuples(st.just("put"), cells, st.tuples(texts, numbers)),
        st.tuples(st.just("remove"), cells, texts),
        st.tuples(st.just("reduce"), cells, small),
        st.tuples(st.just("fold"), cells, small),
        st.tuples(st.sampled_from(["clear value", "clear list", "clear map"]), cells, st.none()),
    ),
    max_size=25,
)


def mean(total: tuple[int, int]) -> float:
    return total[0] / total[1]


@settings(max_examples=40, deadline=None)
@given(actions=actions)
def test_five_states_of_one_operator_behave_like_five_dicts(
    store: KeyedStateStore, actions: list[tuple[str, tuple[int, bytes], Any]]
) -> None:
    for name in "vlmra":
        for group in ALL:
            for key, _ in list(store.scan(name, group)):
                store.delete(name, group, key)
    states = KeyedStates(store)
    value = states.value("v", Point)
    items = states.list("l", int)
    mapped = states.map("m", str, int)
    reduced = states.reducing("r", int, max)
    folded: NamedState[AggregatingCell[int, tuple[int, int], float]] = states.aggregating(
        "a", tuple[int, int], lambda: (0, 0), lambda total, new: (total[0] + new, total[1] + 1), mean
    )
    model: dict[str, dict[Any, Any]] = {name: {} for name in "vlmra"}
    for action, cell, argument in actions:
        match action:
            case "value":
                value.of(*cell).set(argument)
                model["v"][cell] = argument
            case "list":
                items.of(*cell).add(*argument)
                model["l"].setdefault(cell, []).extend(argument)
            case "put":
                mapped.of(*cell).put(*argument)
                model["m"].setdefault(cell, {})[argument[0]] = argument[1]
            case "remove":
                mapped.of(*cell).remove(argument)
                model["m"].get(cell, {}).pop(argument, None)
            case "reduce":
                reduced.of(*cell).add(argument)
                model["r"][cell] = max(argument, model["r"].get(cell, argument))
            case "fold":
                folded.of(*cell).add(argument)
                model["a"].setdefault(cell, []).append(argument)
            case _:
                {"value": value, "list": items, "map": mapped}[action.split()[1]].of(*cell).clear()  # type: ignore[attr-defined]
                model[action.split()[1][0]].pop(cell, None)
    touched = dict.fromkeys(cell for _, cell, _ in actions)
    for cell in touched:
        assert value.of(*cell).get() == model["v"].get(cell)
        assert items.of(*cell).get() == model["l"].get(cell, [])
        assert mapped.of(*cell).items() == model["m"].get(cell, {})
        assert reduced.of(*cell).get() == model["r"].get(cell)
        added = model["a"].get(cell)
        assert folded.of(*cell).get() == (sum(added) / len(added) if added else None)
    # Only non-empty values are entries: an emptied list or map takes no space.
    for name, kept in model.items():
        expected = {cell for cell, content in kept.items() if name in "vr" or content}
        assert {(group, key) for group in ALL for key, _ in store.scan(name, group)} == expected
    assert {key for key, _ in value.cells(3)} == {key for group, key in model["v"] if group == 3}


def test_a_value_of_another_type_is_refused_when_it_is_written(world: StateWorld) -> None:
    states = KeyedStates(world.store())
    with pytest.raises(JobUsageError, match=r"'count' cannot hold 'many'"):
        states.value("count", int).of(0, b"k").set("many")  # type: ignore[arg-type]
    with pytest.raises(JobUsageError, match="cannot hold"):
        states.list("big", int).of(0, b"k").add(2**70)
    with pytest.raises(JobUsageError, match="cannot hold"):
        states.value("open", object).of(0, b"k").set(lambda: None)


def test_bytes_of_another_type_are_a_corrupt_state(world: StateWorld) -> None:
    store = world.store()
    KeyedStates(store).value("s", str).of(0, b"k").set("text")
    with pytest.raises(CorruptStateError, match="'s'"):
        KeyedStates(store).value("s", int).of(0, b"k").get()


def test_a_name_is_given_once(world: StateWorld) -> None:
    states = KeyedStates(world.store())
    states.value("s", int)
    with pytest.raises(JobUsageError, match="twice"):
        states.list("s", int)
    with pytest.raises(JobUsageError, match="needs a name"):
        states.value("", int)


NOON = datetime(2024, 6, 1, 12, 0, 0, 7, tzinfo=UTC)


def test_timestamps_dates_and_decimals_are_kept_in_every_kind_of_state_and_restored(
    world: StateWorld,
) -> None:
    cell = (3, b"k")
    store = world.store()
    day, moments, prices, cheapest, spent = _extended_states(store)
    day.of(*cell).set(date(2024, 2, 29))
    moments.of(*cell).add(NOON, NOON.astimezone(timezone(timedelta(hours=-5))))
    prices.of(*cell).put(NOON.date(), Decimal("1.10"))
    for price in ("2.50", "1.25", "9.00"):
        cheapest.of(*cell).add(Decimal(price))
        spent.of(*cell).add(Decimal(price))
    handles = world.snapshot(store).run()
    day, moments, prices, cheapest, spent = _extended_states(world.store(handles=handles))
    assert day.of(*cell).get() == date(2024, 2, 29)
    assert moments.of(*cell).get() == [NOON, NOON]
    assert prices.of(*cell).items() == {date(2024, 6, 1): Decimal("1.10")}
    assert cheapest.of(*cell).get() == Decimal("1.25")
    assert spent.of(*cell).get() == (Decimal("12.75"), 3)


def _spent(sums: tuple[Decimal, int], price: Decimal) -> tuple[Decimal, int]:
    return sums[0] + price, sums[1] + 1


def _extended_states(store: KeyedStateStore) -> Any:
    states = KeyedStates(store)
    return (
        states.value("day", date),
        states.list("moments", datetime),
        states.map("prices", date, Decimal),
        states.reducing("cheapest", Decimal, min),
        states.aggregating("spent", tuple[Decimal, int], lambda: (Decimal(0), 0), _spent, lambda sums: sums),
    )


# --- two stateful operators in one chain ----------------------------------------------------------------------


class CountsAndDistances:
    """Two named states: how many records a key had, and the value of the previous record."""

    def open(self, states: KeyedStates) -> None:
        self.count = states.reducing("count", int, lambda first, second: first + second)
        self.last = states.value("last", int)

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        count, last = self.count.of(group, key), self.last.of(group, key)
        before = last.get()
        count.add(1)
        last.set(row["v"])
        yield {"k": row["k"], "v": row["v"] - (before or 0)}


class SumsAndNames:
    """Its states have the same names as those of the other operator, but other types."""

    def open(self, states: KeyedStates) -> None:
        self.sums = states.value("count", float)
        self.seen = states.list("last", int)

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        sums = self.sums.of(group, key)
        sums.set((sums.get() or 0.0) + row["v"])
        self.seen.of(group, key).add(row["v"])
        yield {"k": row["k"], "v": len(self.seen.of(group, key).get())}


FIRST = KeyedProcess("distances", ("k",), CountsAndDistances)
SECOND = KeyedProcess("sums", ("k",), SumsAndNames)


class Chain:
    """Both operators in one subtask, as the runtime opens and snapshots them."""

    def __init__(
        self, world: StateWorld, plane: Any, groups: KeyGroupRange, restored: list[OperatorSnapshot]
    ) -> None:
        self._world = world
        self._working = WorkingDirectory(world.backend, world.root.name)
        self._subtask = SubtaskId("chain", groups.start)
        context = OperatorContext(
            "job", self._subtask, 1, AttemptNumber(1), groups, 8, world.backend, world.storage, self,
            LocalFileSystem("x"), working_directory=self._working.of_operator,
        )  # fmt: skip
        self.operators = [spec.build(plane) for spec in (FIRST, SECOND)]
        for operator in self.operators:
            operator.open(context, _merged(operator.uid, restored))
        self.plane = plane

    def writer(self, checkpoint: CheckpointId, operator: str) -> Any:
        return self._world.storage.writer(checkpoint, AttemptNumber(1), self._subtask, operator)

    def process(self, *pairs: tuple[str, int]) -> list[Row]:
        payload = self.plane.from_rows([{"k": k, "v": v} for k, v in pairs])
        for operator in self.operators:
            payload = operator.process(payload)
        return list(payload if isinstance(payload, list) else payload.to_pylist())

    def close(self) -> None:
        for operator in self.operators:
            operator.close()
        self._working.close()


def _merged(uid: str, parts: list[OperatorSnapshot]) -> OperatorSnapshot | None:
    handles = tuple(handle for part in parts if part.operator == uid for handle in part.handles)
    return OperatorSnapshot(uid, handles=handles) if parts else None


@pytest.mark.parametrize("plane", [RowPlane(), ArrowPlane()], ids=["rows", "arrow"])
def test_states_of_two_operators_in_a_chain_do_not_mix_and_both_are_restored(
    world: StateWorld, plane: Any
) -> None:
    chain = Chain(world, plane, ALL, [])
    assert chain.process(("a", 5), ("b", 7), ("a", 8)) == [
        {"k": "a", "v": 1}, {"k": "b", "v": 1}, {"k": "a", "v": 2}
    ]  # fmt: skip
    futures = [operator.snapshot(CheckpointId(1)) for operator in chain.operators]
    chain.process(("a", 100), ("c", 1))
    snapshots = [future.run() for future in futures]
    assert [snapshot.operator for snapshot in snapshots] == ["distances", "sums"]
    # The files in checkpoint storage and on the local disk keep the operators apart as well.
    paths = [[handle.path for handle in snapshot.handles] for snapshot in snapshots]
    assert all(paths) and not set(paths[0]) & set(paths[1])
    chain.close()
    again = Chain(world, plane, ALL, snapshots)
    first, second = again.operators
    counts = {key: cell.get() for group in ALL for key, cell in first._function.count.cells(group)}
    sums = {key: cell.get() for group in ALL for key, cell in second._function.sums.cells(group)}
    assert sorted(counts.values()) == [1, 2]
    assert sorted(sums.values()) == [7.0, 8.0], "5 and then 8 - 5"
    assert counts.keys() == sums.keys()
    assert again.process(("a", 10), ("c", 4)) == [{"k": "a", "v": 3}, {"k": "c", "v": 1}]
    assert counts.keys() < {key for group in ALL for key, _ in first._function.last.cells(group)}
    again.close()


def test_both_operators_survive_a_change_of_parallelism(world: StateWorld) -> None:
    chain = Chain(world, RowPlane(), ALL, [])
    names = [f"key {number}" for number in range(20)]
    chain.process(*[(name, number) for number, name in enumerate(names)])
    snapshots = [operator.snapshot(CheckpointId(1)).run() for operator in chain.operators]
    chain.close()
    found: list[Any] = []
    parts: list[OperatorSnapshot] = []
    for groups in (KeyGroupRange(0, 3), KeyGroupRange(3, 8)):
        part = Chain(world, RowPlane(), groups, snapshots)
        for group in groups:
            found.extend(cell.get() for _, cell in part.operators[0]._function.last.cells(group))
        parts.extend(operator.snapshot(CheckpointId(2)).run() for operator in part.operators)
        part.close()
    assert sorted(found) == list(range(20))
    whole = Chain(world, RowPlane(), ALL, parts)
    assert whole.process(*[(name, 0) for name in names]) == [{"k": name, "v": 2} for name in names]
    whole.close()


def test_two_operators_of_a_job_cannot_have_one_uid() -> None:
    with pytest.raises(JobUsageError, match="'distances' is used twice"):
        JobGraph(
            "job",
            (Vertex("in", 1, object()), Vertex("chain", 1, None, (FIRST, FIRST))),  # type: ignore[arg-type]
            (Edge("in", "chain", Partitioning.HASH, ("k",)),),
        )
