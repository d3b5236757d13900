"""What increments save: bytes and seconds of a checkpoint when 1 % of a million keys has changed.

Each backend keeps two stores with the same entries; the snapshots of one are full, those of the other are increments.
They take turns in one run: change every hundredth key, snapshot, confirm, and again, ``ROUNDS`` times, other keys each
time. Bytes are those that the snapshot wrote; files of earlier snapshots that an increment names are not counted. The
seconds are those of the synchronous and the asynchronous part together, onto the local disk with its syncs. At the end
the last increment is restored, and compared with the store that it was taken of.

RocksDB compacts its files by itself. An increment that has to upload compacted files is larger; ``bytes_of_rounds``
shows each round.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import KeyedStateStore, StateBackend, StateScope, StateWriter
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from barrier_tck.reference_impl.storage.sharing_writer import SharingWriter

KEYS = 1_000_000
STEP = 100
"""Every so many keys one changes: 1 %."""
ROUNDS = 5
BATCH = 10_000
GROUPS = KeyGroupRange(0, 128)
STATE = "state"

Progress = Callable[[str, float], None]


def run(progress: Progress, keys: int = KEYS, rounds: int = ROUNDS) -> dict[str, Any]:
    """Run the benchmark; ``progress(what, share)`` is called as it advances (share from 0 to 1).

    Raises RuntimeError if an increment does not restore to what it was taken of.
    """
    numbers: dict[str, Any] = {"keys": keys, "changed": keys // STEP, "rounds": rounds}
    for position, name in enumerate(SHIPPED_BACKENDS):
        progress(f"{name}, {keys:,} keys", position / len(SHIPPED_BACKENDS))
        with tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as directory:
            measured = _measure(require_state_backend(name)(), Path(directory), keys, rounds)
        numbers |= {f"{name}_{what}": value for what, value in measured.items()}
    return numbers


class _Side:
    """One store, its snapshots, and what each of them cost."""

    def __init__(self, backend: StateBackend, directory: Path, incremental: bool) -> None:
        self._backend, self._incremental = backend, incremental
        self._storage = FileCheckpointStorage(LocalFileSystem(directory / "storage"), "bench")
        self._working = WorkingDirectory(backend, str(directory / "working"))
        self.store = self._opened("o", ())
        self.handles: tuple[StateHandle, ...] = ()
        self.bytes: list[int] = []
        self.seconds: list[float] = []

    def _opened(self, uid: str, handles: tuple[StateHandle, ...]) -> KeyedStateStore:
        place = self._working.of_operator(uid)
        scope = StateScope("bench", "v", "o", 0, 1, GROUPS, place, incremental=self._incremental)
        return self._backend.open(scope, handles, self._storage)

    def snapshot(self, number: int) -> None:
        checkpoint = CheckpointId(number)
        place = checkpoint, AttemptNumber(1), SubtaskId("v", 0), "o"
        writer: StateWriter = self._storage.writer(*place)
        if self._incremental:
            writer = SharingWriter(writer, self._storage.shared_writer(*place), 1)
        started = time.perf_counter()
        self.handles = self.store.snapshot(checkpoint, writer).run()
        self.seconds.append(time.perf_counter() - started)
        self.bytes.append(sum(one.size for one in self.handles if one.is_written_for(number)))
        self.store.confirm(checkpoint)

    def check(self) -> None:
        """Restore the last snapshot, and raise RuntimeError unless it holds what the store holds."""
        restored = self._opened("restored", self.handles)
        for group in GROUPS:
            if sorted(restored.scan(STATE, group)) != sorted(self.store.scan(STATE, group)):
                raise RuntimeError(f"{self._backend.name}: key group {group} is not restored as it was")
        restored.close()

    def close(self) -> None:
        self.store.close()
        self._working.close()


def _measure(backend: StateBackend, directory: Path, keys: int, rounds: int) -> dict[str, Any]:
    sides = {
        "full": _Side(backend, directory / "full", incremental=False),
        "incremental": _Side(backend, directory / "incremental", incremental=True),
    }
    for number in range(1, rounds + 2):
        for side in sides.values():
            _change(side.store, keys, 1 if number == 1 else STEP, number)
            side.snapshot(number)
    sides["incremental"].check()
    numbers: dict[str, Any] = {}
    for name, side in sides.items():
        side.close()
        numbers[f"{name}_bytes"] = round(statistics.median(side.bytes[1:]))
        numbers[f"{name}_bytes_of_rounds"] = side.bytes[1:]
        numbers[f"{name}_seconds"] = round(statistics.median(side.seconds[1:]), 3)
    numbers["times_fewer_bytes"] = round(numbers["full_bytes"] / max(1, numbers["incremental_bytes"]), 1)
    full_s, incremental_s = (statistics.median(side.seconds[1:]) for side in sides.values())
    numbers["times_faster"] = round(full_s / incremental_s, 1)
    return numbers


def _change(store: KeyedStateStore, keys: int, step: int, mark: int) -> None:
    """Set every ``step``-th key, from another one on in each round."""
    for groups, names, values in _batches(range(mark % step, keys, step), mark):
        store.put_many(STATE, groups, names, values)


def _batches(numbers: range, mark: int) -> Iterator[tuple[list[int], list[bytes], list[bytes]]]:
    for start in range(0, len(numbers), BATCH):
        part = numbers[start : start + BATCH]
        yield (
            [number % len(GROUPS) for number in part],
            [b"%016d" % number for number in part],
            [b"%02d%030d" % (mark, number) for number in part],
        )
