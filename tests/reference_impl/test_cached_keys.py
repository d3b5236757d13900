"""A keyed aggregate that keeps a limited number of keys in memory does what one that keeps all does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.aggregate import CHANGED_STATE, AggregateSpec, KeyedAggregate
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.functions import Aggregate, Count, Emission, FloatSum, Sum
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from tests.reference_impl.state_worlds import ALL, StateWorld, content
from tests.reference_impl.test_operators_aggregate import _Files, context

KEYS: dict[str, tuple[Any, ...]] = {
    "integers": tuple(range(12)),
    "far apart": (0, 2**40, -(2**63), 2**63 - 1, None),
    "anything": ("a", None, "c", "d", "e", "f"),
}


class Compared:
    """One operator with a limit and one without, on the same input."""

    def __init__(
        self, plane: Any, world: StateWorld, emit: Emission, limit: int, write_through: bool
    ) -> None:
        carry = ("id",) if emit is Emission.EACH_RECORD else ()
        aggregates: dict[str, Aggregate] = {"n": Count(), "sum": Sum("v"), "float": FloatSum("f")}
        self.spec = AggregateSpec("totals", ("k",), aggregates, emit, carry)
        self.plane, self.world, self.limit, self.write_through = plane, world, limit, write_through
        self.peak = 0
        self.evictions = 0
        self.limited, self.free = self.opened(limit), self.opened(None)

    def opened(self, limit: int | None, handles: Any = None) -> KeyedAggregate:
        operator = self.spec.build(self.plane)
        operator.open(context(_Files(), self.write_through, limit), handles)
        if limit is None:
            return operator
        table: Any = operator._table
        assert table is not None
        update, load, evict = table.update, table.load, operator.evict

        def counted(what: Any) -> Any:
            def call(*given: Any) -> Any:
                result = what(*given)
                self.peak = max(self.peak, len(table))
                return result

            return call

        def evicting(given: Any) -> None:
            self.evictions += len(table) > 0
            evict(given)

        table.update, table.load = counted(update), counted(load)
        operator.evict = evicting  # type: ignore[method-assign, assignment]
        return operator

    def listed(self, batches: Iterator[Any]) -> list[str]:
        """Return the rows of some batches, no batch larger than the limit, in an order of their own."""
        found = []
        for batch in batches:
            assert self.plane.length(batch) <= self.limit
            found.extend(self.plane.to_rows(batch))
        return sorted(map(str, found))

    def agree(self, of_limited: Any, of_free: Any) -> None:
        free = sorted(str(row) for batch in of_free for row in self.plane.to_rows(batch))
        assert self.listed(of_limited) == free

    def state(self, operator: KeyedAggregate) -> Any:
        store: Any = operator._store
        assert not list(content(store, ALL, (CHANGED_STATE,)))
        return content(store, ALL, ("aggregate",))


def batch(draw: random.Random, plane: Any, keys: tuple[Any, ...]) -> Any:
    rows = [
        {
            "id": number,
            "k": draw.choice(keys),
            "v": draw.choice((None, 1, 2**55)),
            "f": draw.choice((0.1, 1e9)),
        }
        for number in range(draw.randrange(1, 9))
    ]
    return plane.from_rows(rows)


@pytest.mark.parametrize("emit", Emission)
@pytest.mark.parametrize("plane", [RowPlane(), ArrowPlane()], ids=["rows", "arrow"])
@pytest.mark.parametrize("keys", KEYS.values(), ids=list(KEYS))
def test_a_limit_changes_no_result_and_is_never_exceeded(
    plane: Any, emit: Emission, keys: tuple[Any, ...]
) -> None:
    for seed in range(6):
        draw = random.Random(seed)
        world = StateWorld()
        compared = Compared(plane, world, emit, draw.choice((1, 2, 3, 7)), draw.random() < 0.5)
        for number in range(1, 12):
            payload = batch(draw, plane, keys)
            outputs = [one.process(payload) for one in (compared.limited, compared.free)]
            if emit is Emission.EACH_RECORD:
                assert plane.to_rows(outputs[0]) == plane.to_rows(outputs[1])
            else:
                assert outputs == [None, None]
            if draw.random() < 0.4:
                checkpoint = CheckpointId(number)
                compared.agree(
                    compared.limited.before_barrier(checkpoint), compared.free.before_barrier(checkpoint)
                )
                snapshots = [one.snapshot(checkpoint) for one in (compared.limited, compared.free)]
                assert compared.state(compared.limited) == compared.state(compared.free)
                assert len(snapshots[0].run().handles) == len(snapshots[1].run().handles)
        compared.agree(compared.limited.end_of_input(), compared.free.end_of_input())
        compared.limited.snapshot(CheckpointId(99))
        compared.free.snapshot(CheckpointId(99))
        assert compared.state(compared.limited) == compared.state(compared.free)
        assert compared.peak == min(compared.limit, len(keys))
        assert compared.limit >= len(keys) or compared.evictions
        world.close()


def test_what_was_restored_is_fetched_when_its_key_comes() -> None:
    files = _Files()
    plane: Any = RowPlane()
    spec = AggregateSpec("totals", ("k",), {"sum": Sum("v")}, Emission.EACH_RECORD)
    first = spec.build(plane)
    first.open(context(files), None)
    first.process([{"k": key, "v": 10} for key in range(50)])
    snapshot = first.snapshot(CheckpointId(1)).run()
    restored = spec.build(plane)
    restored.open(context(files, False, 5), snapshot)
    assert restored.keys_in_memory == 0
    assert restored.process([{"k": 7, "v": 1}]) == [{"k": 7, "sum": 11}]
    assert restored.keys_in_memory == 1


@pytest.mark.parametrize("limit", [None, 1])
def test_sums_of_restored_keys_do_not_wrap_around(limit: int | None) -> None:
    files = _Files()
    plane = ArrowPlane()
    spec = AggregateSpec("totals", ("k",), {"sum": Sum("v")}, Emission.FINAL)
    first = spec.build(plane)
    first.open(context(files), None)
    first.process(plane.from_rows([{"k": 1, "v": 2**63 - 1}]))
    restored = spec.build(plane)
    restored.open(context(files, False, limit), first.snapshot(CheckpointId(1)).run())
    with pytest.raises(JobUsageError, match="left the range"):
        restored.process(plane.from_rows([{"k": 1, "v": 1}]))


def test_no_limit_below_one() -> None:
    with pytest.raises(JobUsageError, match="0 keys in memory"):
        JobConfig(cached_keys=0)
