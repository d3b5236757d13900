"""What a barrier costs each state backend: the synchronous part of a snapshot of a million keys.

Both backends do the same things in one run, in the same order: put a million entries in batches, take a snapshot,
finish it, change every hundredth key, take another snapshot, finish it, and read random batches. During the
synchronous part a subtask processes nothing. So 30 more snapshots follow, each after a change of every hundredth key;
the p99 and the longest synchronous part are those of all 32. The cost of writing while a snapshot is unfinished and the
time of a restore are measured too. Keys have 16 bytes, values 32. All files are on the local disk of the temporary
directory.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.state.backend import KeyedStateStore, StateBackend, StateScope
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem

KEYS = 1_000_000
BATCH = 10_000
GROUPS = KeyGroupRange(0, 128)
MORE_SNAPSHOTS = 30
STATE = "state"

Batch = tuple[list[int], list[bytes], list[bytes]]
Progress = Callable[[str, float], None]


def run(progress: Progress, keys: int = KEYS) -> dict[str, Any]:
    """Run the benchmark; ``progress(what, share)`` is called as it advances (share from 0 to 1).

    Raises RuntimeError if a restored store does not hold what the snapshot must hold.
    """
    numbers: dict[str, Any] = {"keys": keys}
    for position, name in enumerate(SHIPPED_BACKENDS):
        progress(f"{name}, {keys:,} keys", position / len(SHIPPED_BACKENDS))
        with tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as directory:
            measured = _measure(require_state_backend(name)(), Path(directory), keys)
        numbers |= {f"{name}_{what}": value for what, value in measured.items()}
    return numbers


def _measure(backend: StateBackend, directory: Path, keys: int) -> dict[str, float]:
    storage = FileCheckpointStorage(LocalFileSystem(directory / "storage"), "bench")
    working = WorkingDirectory(backend, str(directory / "working"))
    scope = StateScope("bench", "v", "o", 0, 1, GROUPS, working.of_operator("o"))
    store = backend.open(scope, [], storage)
    numbers: dict[str, float] = {}
    every = list(_batches(keys, 1, b"a"))
    numbers["put_many_per_second"] = round(keys / _seconds(lambda: _put(store, every)))
    handles = _snapshot(store, storage, 1, numbers, "first")
    few = list(_batches(keys, 100, b"b"))
    _put(store, few)
    _snapshot(store, storage, 2, numbers, "second", while_unfinished=lambda: _put(store, few))
    parts = [numbers["first_sync_ms"], numbers["second_sync_ms"]]
    for number in range(3, 3 + MORE_SNAPSHOTS):
        _put(store, few)
        another: dict[str, float] = {}
        written = _snapshot(
            store, storage, number, another, "", while_unfinished=lambda: _put(store, few[:1])
        )
        parts.append(another["_sync_ms"])
        storage.discard(written)
    numbers["sync_ms_p99"] = round(float(np.percentile(parts, 99)), 4)
    numbers["sync_ms_max"] = max(parts)
    chosen = random.Random(0).choices(every, k=min(len(every), 20))
    read = sum(len(batch[1]) for batch in chosen)
    numbers["get_many_per_second"] = round(read / _seconds(lambda: _get(store, chosen)))
    store.close()
    other = StateScope("bench", "v", "o", 0, 2, GROUPS, working.of_operator("restored"))
    started = time.perf_counter()
    restored = backend.open(other, handles, storage)
    numbers["restore_seconds"] = round(time.perf_counter() - started, 3)
    if restored.get_many(STATE, *every[-1][:2]) != every[-1][2]:
        raise RuntimeError(f"{backend.name}: the restored store does not hold what the first snapshot held")
    restored.close()
    working.close()
    return numbers


def _batches(keys: int, step: int, mark: bytes) -> Iterator[Batch]:
    """Yield batches of every ``step``-th key, with values that carry the mark; each batch has keys of all groups."""
    numbers = range(0, keys, step)
    for start in range(0, len(numbers), BATCH):
        part = numbers[start : start + BATCH]
        yield (
            [number % len(GROUPS) for number in part],
            [b"%016d" % number for number in part],
            [b"%s%031d" % (mark, number) for number in part],
        )


def _put(store: KeyedStateStore, batches: list[Batch]) -> None:
    for groups, keys, values in batches:
        store.put_many(STATE, groups, keys, values)


def _get(store: KeyedStateStore, batches: list[Batch]) -> None:
    for groups, keys, _ in batches:
        if None in store.get_many(STATE, groups, keys):
            raise RuntimeError("a key that was put is missing")


def _snapshot(
    store: KeyedStateStore,
    storage: FileCheckpointStorage,
    number: int,
    numbers: dict[str, float],
    which: str,
    while_unfinished: Callable[[], None] | None = None,
) -> Any:
    checkpoint = CheckpointId(number)
    writer = storage.writer(checkpoint, AttemptNumber(1), SubtaskId("v", 0), "o")
    started = time.perf_counter()
    future = store.snapshot(checkpoint, writer)
    numbers[f"{which}_sync_ms"] = round(1000 * (time.perf_counter() - started), 4)
    if while_unfinished is not None:
        numbers["write_1_percent_while_unfinished_ms"] = round(1000 * _seconds(while_unfinished), 2)
    started = time.perf_counter()
    handles = future.run()
    numbers[f"{which}_async_ms"] = round(1000 * (time.perf_counter() - started), 2)
    numbers[f"{which}_bytes"] = sum(handle.size for handle in handles)
    return handles


def _seconds(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
