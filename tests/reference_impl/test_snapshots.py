"""Snapshot futures: once, cancellable at any time, nothing forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from barrier_tck.reference_impl.runtime_errors import JobUsageError, SnapshotCancelled, StorageError
from barrier_tck.reference_impl.state.snapshots import CompositeSnapshot, DeferredSnapshot, FinishedSnapshot


def fail() -> int:
    raise StorageError("disk full")


def test_a_finished_snapshot_has_its_result_and_cannot_be_cancelled() -> None:
    snapshot = FinishedSnapshot(7)
    snapshot.cancel()
    assert snapshot.done
    assert snapshot.run() == 7


def test_a_deferred_snapshot_runs_once() -> None:
    calls: list[int] = []
    snapshot = DeferredSnapshot(lambda: calls.append(1))
    states = [snapshot.done]
    snapshot.run()
    states.append(snapshot.done)
    assert states == [False, True]
    with pytest.raises(JobUsageError):
        snapshot.run()
    assert calls == [1]


def test_a_cancel_before_the_run_releases_once_and_the_function_never_runs() -> None:
    calls: list[str] = []
    snapshot = DeferredSnapshot(lambda: calls.append("run"), lambda: calls.append("released"))
    snapshot.cancel()
    snapshot.cancel()
    with pytest.raises(SnapshotCancelled):
        snapshot.run()
    assert calls == ["released"]
    assert not snapshot.done


@pytest.mark.parametrize("function", [lambda: 1, fail])
def test_a_cancel_after_the_run_does_nothing(function: Callable[[], int]) -> None:
    released: list[int] = []
    snapshot = DeferredSnapshot(function, lambda: released.append(1))
    with suppress(StorageError):
        snapshot.run()
    snapshot.cancel()
    assert released == []
    assert snapshot.done


def test_a_cancel_from_another_thread_reaches_the_function_once() -> None:
    begun, told = threading.Event(), threading.Event()
    calls: list[int] = []

    def work() -> None:
        begun.set()
        assert told.wait(5)
        raise SnapshotCancelled("noticed")

    def on_cancel() -> None:
        calls.append(1)
        told.set()

    snapshot: DeferredSnapshot[None] = DeferredSnapshot(work, on_cancel)

    def cancel() -> None:
        assert begun.wait(5)
        snapshot.cancel()

    threads = [threading.Thread(target=cancel) for _ in range(3)]
    for thread in threads:
        thread.start()
    with pytest.raises(SnapshotCancelled, match="noticed"):
        snapshot.run()
    for thread in threads:
        thread.join()
    assert calls == [1]


def test_a_composite_combines_in_order_and_is_done_at_once_if_its_parts_are() -> None:
    snapshot = CompositeSnapshot([FinishedSnapshot(1), FinishedSnapshot(2)], tuple)
    assert snapshot.done
    assert snapshot.run() == (1, 2)
    assert not CompositeSnapshot([FinishedSnapshot(1), DeferredSnapshot(lambda: 2)], tuple).done


def test_a_failed_part_cancels_the_later_ones_and_discards_the_earlier_ones() -> None:
    calls: list[object] = []
    later = DeferredSnapshot(lambda: 3, lambda: calls.append("later released"))
    snapshot = CompositeSnapshot(
        [DeferredSnapshot(lambda: 1), DeferredSnapshot(fail), later], tuple, calls.append
    )
    with pytest.raises(StorageError, match="disk full"):
        snapshot.run()
    assert calls == ["later released", 1]
    snapshot.cancel()
    assert calls == ["later released", 1]


def test_a_discard_that_fails_is_told_with_the_first_error() -> None:
    def refuse(result: int) -> None:
        raise StorageError(f"cannot delete {result}")

    with pytest.raises(StorageError, match="disk full") as caught:
        CompositeSnapshot([FinishedSnapshot(1), DeferredSnapshot(fail)], tuple, refuse).run()
    assert "cannot delete 1" in caught.value.__notes__[0]


def test_cancelling_a_composite_cancels_every_part_once() -> None:
    calls: list[str] = []
    parts = [DeferredSnapshot(lambda: 1, partial(calls.append, name)) for name in "ab"]
    snapshot = CompositeSnapshot(parts, tuple)
    snapshot.cancel()
    snapshot.cancel()
    with pytest.raises(SnapshotCancelled):
        snapshot.run()
    assert calls == ["a", "b"]
