"""Snapshot futures run once and can be cancelled at any time, and nothing stays behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest

from barrier_tck.reference_impl.runtime_errors import JobUsageError, SnapshotCancelled, StorageError
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot, FinishedSnapshot, MappedSnapshot
from tests.waiting import PATIENCE_S


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
        assert told.wait(PATIENCE_S)
        raise SnapshotCancelled("noticed")

    def on_cancel() -> None:
        calls.append(1)
        told.set()

    snapshot: DeferredSnapshot[None] = DeferredSnapshot(work, on_cancel)

    def cancel() -> None:
        assert begun.wait(PATIENCE_S)
        snapshot.cancel()

    threads = [threading.Thread(target=cancel) for _ in range(3)]
    for thread in threads:
        thread.start()
    with pytest.raises(SnapshotCancelled, match="noticed"):
        snapshot.run()
    for thread in threads:
        thread.join()
    assert calls == [1]


def test_a_mapped_snapshot_is_done_when_its_part_is_and_gives_what_is_made_of_it() -> None:
    snapshot = MappedSnapshot(FinishedSnapshot(1), str)
    assert snapshot.done
    assert snapshot.run() == "1"
    later = MappedSnapshot(DeferredSnapshot(lambda: 2), str)
    assert not later.done
    assert later.run() == "2" and later.done


def test_a_mapped_snapshot_fails_as_its_part_does() -> None:
    with pytest.raises(StorageError, match="disk full"):
        MappedSnapshot(DeferredSnapshot(fail), str).run()


def test_cancelling_a_mapped_snapshot_cancels_its_part_once() -> None:
    calls: list[str] = []
    snapshot = MappedSnapshot(DeferredSnapshot(lambda: 1, partial(calls.append, "part")), str)
    snapshot.cancel()
    snapshot.cancel()
    with pytest.raises(SnapshotCancelled):
        snapshot.run()
    assert calls == ["part"]
