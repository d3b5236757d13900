"""Local against remote recovery: 500 MB of state, or more if asked, behind a storage link of 100 MB/s, in one run.

Each backend writes a snapshot once, to checkpoint storage and also to the local disk, as a subtask with local recovery
does. Then the runtime's own reader restores it from checkpoint storage over a link of 100 MB/s, and from the local
copy with the same link; twice each, in turn. Both check every byte against size and checksum, and the result is
compared with what was written. Values are random, so they cannot be compressed. Everything is on the disk of the
temporary directory, whose cache is warm in both cases.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot, ServedBy, SubtaskSnapshot
from barrier_tck.reference_impl.state.backend import KeyedStateStore, StateBackend, StateScope
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from barrier_tck.reference_impl.storage.copying_writer import CopyingWriter
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem
from barrier_tck.reference_impl.storage.local_copies import FILES_WANTED, LocalScope, TaskLocalStateStore
from barrier_tck.reference_impl.storage.restore import RestoreReader

STATE_MB = 500
LINK_BYTES_PER_SECOND = 100_000_000
ROUNDS = 2
"""How often each restore is measured, in turn; the shorter one counts."""
VALUE_BYTES = 10_000
BATCH = 500
GROUPS = KeyGroupRange(0, 128)
SUBTASK, CHECKPOINT = SubtaskId("v", 0), CheckpointId(1)
STATE = "state"

Progress = Callable[[str, float], None]


class SlowLink(LocalFileSystem):
    """Files behind a link: reading takes at least as long as the link needs to carry the bytes."""

    def __init__(self, root: Path, bytes_per_second: int) -> None:
        super().__init__(root)
        self._rate = bytes_per_second
        self.bytes_read = 0

    def read(self, path: str) -> bytes:
        """Return the content once the link has carried it."""
        started = time.perf_counter()
        content = super().read(path)
        self.bytes_read += len(content)
        time.sleep(max(0.0, len(content) / self._rate - (time.perf_counter() - started)))
        return content


def run(progress: Progress, state_mb: int = STATE_MB) -> dict[str, Any]:
    """Run the benchmark; ``progress(what, share)`` is called as it advances (share from 0 to 1).

    Raises RuntimeError if a restored store does not hold what was written, or was read from the wrong copy.
    """
    state_bytes = state_mb * 1_000_000
    numbers: dict[str, Any] = {
        "state_bytes": state_bytes,
        "link_bytes_per_second": LINK_BYTES_PER_SECOND,
    }
    for position, name in enumerate(SHIPPED_BACKENDS):
        progress(f"{name}, {state_bytes / 1e6:,.0f} MB", position / len(SHIPPED_BACKENDS))
        with tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as directory:
            measured = _measure(require_state_backend(name)(), Path(directory), state_bytes)
        numbers |= {f"{name}_{what}": value for what, value in measured.items()}
    return numbers


def _measure(backend: StateBackend, directory: Path, state_bytes: int) -> dict[str, float]:
    link = SlowLink(directory / "storage", LINK_BYTES_PER_SECOND)
    storage = FileCheckpointStorage(link, "bench")
    host = LocalFileSystem(directory / "local")
    working = WorkingDirectory(backend, str(directory / "working"))
    keys = max(1, state_bytes // VALUE_BYTES)
    try:
        snapshot, async_seconds = _write(backend, working, storage, host, keys)
        numbers: dict[str, float] = {
            "snapshot_bytes": sum(handle.size for handle in snapshot.handles()),
            "write_both_copies_seconds": round(async_seconds, 3),
        }
        for number, (name, local) in enumerate((("remote", None), ("local", _store(host, 2))) * ROUNDS):
            before = link.bytes_read
            reader = RestoreReader(storage, snapshot, CHECKPOINT, local)
            scope = _scope(working, f"restored-{number}")
            started = time.perf_counter()
            store = backend.open(scope, snapshot.operators[0].handles, reader)
            seconds = time.perf_counter() - started
            shortest = f"{name}_restore_seconds"
            numbers[shortest] = min(seconds, numbers.get(shortest, seconds))
            numbers[f"{name}_bytes_over_the_link"] = link.bytes_read - before
            wanted = ServedBy.PRIMARY if local is None else ServedBy.SECONDARY
            if any(file.served_by is not wanted for file in reader.files):
                raise RuntimeError(
                    f"{backend.name}: the {name} restore was not served by the {wanted.value} copy"
                )
            _compare(store, keys, backend.name)
            store.close()
        speedup = numbers["remote_restore_seconds"] / numbers["local_restore_seconds"]
        rounded = {name: round(number, 3) for name, number in numbers.items()}
        return {**rounded, "speedup": round(speedup, 2)}
    finally:
        working.close()


def _write(
    backend: StateBackend,
    working: WorkingDirectory,
    storage: FileCheckpointStorage,
    host: LocalFileSystem,
    keys: int,
) -> tuple[SubtaskSnapshot, float]:
    """Fill a store and snapshot it to both places; returns the snapshot and the asynchronous part's seconds."""
    store = backend.open(_scope(working, "o"), [], storage)
    for start in range(0, keys, BATCH):
        chosen = range(start, min(start + BATCH, keys))
        store.put_many(
            STATE,
            [key % len(GROUPS) for key in chosen],
            [b"%016d" % key for key in chosen],
            [_value(key) for key in chosen],
        )
    copies = _store(host, 1)
    writer = CopyingWriter(
        copies, CHECKPOINT, "o", storage.writer(CHECKPOINT, AttemptNumber(1), SUBTASK, "o")
    )
    future = store.snapshot(CHECKPOINT, writer)
    started = time.perf_counter()
    handles = future.run()
    copies.seal(CHECKPOINT)
    seconds = time.perf_counter() - started
    store.close()
    return SubtaskSnapshot(SUBTASK, AttemptNumber(1), (OperatorSnapshot("o", handles=handles),)), seconds


def _store(host: LocalFileSystem, attempt: int) -> TaskLocalStateStore:
    return TaskLocalStateStore(host, LocalScope("bench", SUBTASK, AttemptNumber(attempt), GROUPS))


def _scope(working: WorkingDirectory, uid: str) -> StateScope:
    return StateScope("bench", "v", "o", 0, 1, GROUPS, working.of_operator(uid), FILES_WANTED)


def _value(key: int) -> bytes:
    return random.Random(key).randbytes(VALUE_BYTES)


def _compare(store: KeyedStateStore, keys: int, backend: str) -> None:
    for key in range(0, keys, max(1, keys // 100)):
        if store.get(STATE, key % len(GROUPS), b"%016d" % key) != _value(key):
            raise RuntimeError(f"{backend}: key {key} was not restored as it was written")
