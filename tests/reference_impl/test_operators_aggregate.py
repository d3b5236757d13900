"""The keyed aggregate over a real heap store: emissions, snapshots and restores, on both planes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any

import pytest

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.aggregate import AGGREGATE_STATE, AggregateSpec, KeyedAggregate
from barrier_tck.reference_impl.operators.api import OperatorContext
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.encoding import decode_accumulator, decode_key
from barrier_tck.reference_impl.operators.functions import Count, Emission, Sum
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.stateless import Combine, Filter, FlatMap, Map
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot, StateHandle
from barrier_tck.reference_impl.runtime_errors import ProtocolError, SnapshotCancelled
from barrier_tck.reference_impl.state.backend import StateScope
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem

GROUPS = KeyGroupRange(0, 8)
FIRST = CheckpointId(1)


class _Files:
    """Checkpoint storage in a dict: reader, writer and factory of writers in one."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.cancelled = False

    def writer(self, checkpoint: CheckpointId, operator: str) -> _Files:
        self.prefix = f"{checkpoint}/{operator}"
        return self

    def write(self, name: str, chunks: Iterable[bytes], key_groups: KeyGroupRange) -> StateHandle:
        data = b"".join(chunks)
        path = f"{self.prefix}/{name}"
        self.content[path] = data
        return StateHandle(path, len(data), f"crc32:{zlib.crc32(data):08x}", key_groups)

    def read(self, handle: StateHandle) -> bytes:
        return self.content[handle.path]

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture(params=["rows", "arrow"])
def plane(request: pytest.FixtureRequest) -> Any:
    return RowPlane() if request.param == "rows" else ArrowPlane()


def opened(
    plane: Any,
    files: _Files,
    emit: Emission,
    restored: OperatorSnapshot | None = None,
    write_through: bool = False,
) -> KeyedAggregate:
    carry = ("id",) if emit is Emission.EACH_RECORD else ()
    spec = AggregateSpec("totals", ("k",), {"n": Count(), "sum": Sum("v")}, emit, carry)
    operator = spec.build(plane)
    operator.open(context(files, write_through), restored)
    return operator


def context(files: _Files, write_through: bool = False, cached_keys: int | None = None) -> OperatorContext:
    backend: Any = HeapStateBackend()
    subtask = SubtaskId("totals", 0)
    return OperatorContext(
        "job", subtask, 1, AttemptNumber(1), GROUPS, 8, backend, files, files, LocalFileSystem("x"),
        write_through, cached_keys
    )  # fmt: skip


def rows(payload: Any) -> list[dict[str, Any]] | None:
    return payload if payload is None or isinstance(payload, list) else payload.to_pylist()


def emitted(batches: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the rows of several batches."""
    return [row for one in batches for row in rows(one) or ()]


def batch(plane: Any, *pairs: tuple[str, int | None]) -> Any:
    return plane.from_rows([{"id": i, "k": k, "v": v} for i, (k, v) in enumerate(pairs)])


def state(files: _Files, snapshot: OperatorSnapshot) -> dict[Any, Any]:
    backend: Any = HeapStateBackend()
    store = backend.open(StateScope("job", "totals", "totals", 0, 1, GROUPS), snapshot.handles, files)
    return {
        decode_key(key): decode_accumulator(value)
        for group in GROUPS
        for key, value in store.scan(AGGREGATE_STATE, group)
    }


def test_each_record_gives_running_totals(plane: Any) -> None:
    operator = opened(plane, _Files(), Emission.EACH_RECORD)
    operator.process(batch(plane, ("a", 1)))
    assert rows(operator.process(batch(plane, ("a", 2), ("b", 5), ("a", None)))) == [
        {"id": 0, "k": "a", "n": 2, "sum": 3},
        {"id": 1, "k": "b", "n": 1, "sum": 5},
        {"id": 2, "k": "a", "n": 3, "sum": 3},
    ]
    assert not emitted(operator.before_barrier(FIRST))
    assert not emitted(operator.end_of_input())


def test_changes_are_emitted_ahead_of_a_barrier_and_at_the_end(plane: Any) -> None:
    operator = opened(plane, _Files(), Emission.CHANGES)
    assert operator.process(batch(plane, ("a", 1), ("b", 2))) is None
    assert emitted(operator.before_barrier(FIRST)) == [
        {"k": "a", "n": 1, "sum": 1},
        {"k": "b", "n": 1, "sum": 2},
    ]
    assert not emitted(operator.before_barrier(CheckpointId(2)))
    operator.process(batch(plane, ("b", 3)))
    assert emitted(operator.end_of_input()) == [{"k": "b", "n": 2, "sum": 5}]


def test_final_rows_come_once_at_the_end(plane: Any) -> None:
    operator = opened(plane, _Files(), Emission.FINAL)
    operator.process(batch(plane, ("a", 1), ("b", 2)))
    assert not emitted(operator.before_barrier(FIRST))
    assert emitted(operator.end_of_input()) == [{"k": "a", "n": 1, "sum": 1}, {"k": "b", "n": 1, "sum": 2}]


def test_a_job_without_records_emits_nothing(plane: Any) -> None:
    for emit in (Emission.CHANGES, Emission.FINAL):
        operator = opened(plane, _Files(), emit)
        assert not emitted(operator.before_barrier(FIRST))
        assert not emitted(operator.end_of_input())


@pytest.mark.parametrize("write_through", [False, True])
def test_a_snapshot_holds_the_records_before_it_and_no_later_ones(plane: Any, write_through: bool) -> None:
    """ALN-2 and SNP-1: records between the synchronous and the asynchronous part are not in the snapshot."""
    files = _Files()
    operator = opened(plane, files, Emission.CHANGES, write_through=write_through)
    operator.process(batch(plane, ("a", 1), ("b", 2)))
    assert emitted(operator.before_barrier(FIRST))
    future = operator.snapshot(FIRST)
    operator.process(batch(plane, ("a", 100), ("c", 100)))
    snapshot = future.run()
    assert state(files, snapshot) == {("a",): (1, 1), ("b",): (1, 2)}
    assert (snapshot.operator, snapshot.input_ended) == ("totals", False)
    assert operator.checkpoint_completed(FIRST) is False

    restored = opened(plane, files, Emission.CHANGES, snapshot)
    assert not emitted(restored.before_barrier(CheckpointId(2))), "restored keys have not changed"
    restored.process(batch(plane, ("a", 10)))
    assert emitted(restored.end_of_input()) == [{"k": "a", "n": 2, "sum": 11}]
    again = restored.snapshot(CheckpointId(2)).run()
    assert state(files, again) == {("a",): (2, 11), ("b",): (1, 2)}
    assert again.input_ended


@pytest.mark.parametrize("write_through", [False, True])
def test_write_through_reaches_the_store_after_every_batch(plane: Any, write_through: bool) -> None:
    operator = opened(plane, _Files(), Emission.FINAL, write_through=write_through)
    operator.process(batch(plane, ("a", 1)))
    assert operator._store is not None
    entries = [entry for group in GROUPS for entry in operator._store.scan(AGGREGATE_STATE, group)]
    assert len(entries) == (1 if write_through else 0)


def test_the_end_of_input_is_emitted_once_across_a_restore(plane: Any) -> None:
    for emit in (Emission.FINAL, Emission.CHANGES):
        files = _Files()
        operator = opened(plane, files, emit)
        operator.process(batch(plane, ("a", 1)))
        assert emitted(operator.end_of_input())
        snapshot = operator.snapshot(FIRST).run()
        assert snapshot.input_ended
        assert not emitted(opened(plane, files, emit, snapshot).end_of_input())


def test_final_rows_after_a_restore_include_restored_keys(plane: Any) -> None:
    files = _Files()
    operator = opened(plane, files, Emission.FINAL)
    operator.process(batch(plane, ("a", 1)))
    snapshot = operator.snapshot(FIRST).run()
    assert emitted(opened(plane, files, Emission.FINAL, snapshot).end_of_input()) == [
        {"k": "a", "n": 1, "sum": 1}
    ]


def test_a_cancelled_snapshot_gives_no_result(plane: Any) -> None:
    operator = opened(plane, _Files(), Emission.FINAL)
    operator.process(batch(plane, ("a", 1)))
    future = operator.snapshot(FIRST)
    future.cancel()
    with pytest.raises(SnapshotCancelled):
        future.run()
    operator.checkpoint_aborted(FIRST)
    operator.close()
    operator.close()


def test_use_before_open_is_a_protocol_error(plane: Any) -> None:
    operator = AggregateSpec("totals", ("k",), {"n": Count()}, Emission.FINAL).build(plane)
    operator.close()
    with pytest.raises(ProtocolError, match="totals"):
        operator.process([])


def test_stateless_operators_apply_their_function_and_keep_nothing(plane: Any) -> None:
    payload = batch(plane, ("a", 1), ("b", 2), ("a", 3))
    for spec, expected in (
        (Map("m", lambda row: {"v": row["v"] + 1}), [{"v": 2}, {"v": 3}, {"v": 4}]),
        (Filter("f", lambda row: row["k"] == "b"), [{"id": 1, "k": "b", "v": 2}]),
        (Filter("f", lambda row: row["k"] == "z"), None),
        (FlatMap("x", lambda row: [{"v": row["v"]}] * (row["v"] - 1)), [{"v": 2}, {"v": 3}, {"v": 3}]),
        (Combine("c", ("k",), {"n": Count()}, 8), [{"k": "a", "n": 2}, {"k": "b", "n": 1}]),
    ):
        operator = spec.build(plane)
        operator.open(context(_Files()), None)
        assert rows(operator.process(payload)) == expected
        assert not emitted(operator.before_barrier(FIRST))
        assert not emitted(operator.end_of_input())
        future = operator.snapshot(FIRST)
        assert future.done
        assert future.run() == OperatorSnapshot(operator.uid, input_ended=True)
        assert operator.checkpoint_completed(FIRST) is False
        operator.checkpoint_aborted(FIRST)
        operator.close()
