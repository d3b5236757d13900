"""State larger than memory: a keyed aggregate with few keys in memory, in front of RocksDB (decision 0057).

A process of its own runs the operator on Arrow batches, as a subtask does. It sees so many new keys that their
accumulators have the wanted size: 16 sums a key, of random numbers, which cannot be compressed. Then records come for
keys drawn from all, which have to be fetched. A snapshot follows, into checkpoint storage on the same disk, and a
restore of it in another directory. At last keys drawn from all are compared with what they must hold. The process's
largest resident set is measured, and must stay below the limit. The synchronous part writes the keys in memory to
RocksDB first; ``bench state`` has the backend's part alone.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.functions import Aggregate, Emission, Sum
from benchmarks.opened_operator import opened_operator

STATE_MB = 200
MEMORY_MB = 1000
CACHED_KEYS = 100_000
BATCH = 20_000
SUMS = 16
ENTRY_BYTES = 9 + 3 + 8 * SUMS
"""An encoded key and its encoded accumulator."""
CHECKPOINT = CheckpointId(1)

Progress = Callable[[str, float], None]


def run(progress: Progress, state_mb: int = STATE_MB) -> dict[str, Any]:
    """Run the benchmark; ``progress(what, share)`` is called as it begins.

    Raises RuntimeError if a key does not hold what it must, or if more memory was resident than the limit.
    """
    progress(f"{state_mb:,} MB of state", 0.0)
    command = [sys.executable, "-m", "benchmarks.large_state", str(state_mb)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the measured process failed: {done.stderr.strip()[-2000:]}")
    numbers: dict[str, Any] = json.loads(done.stdout)
    if numbers["peak_resident_mb"] > MEMORY_MB:
        raise RuntimeError(f"{numbers['peak_resident_mb']} MB were resident; the limit is {MEMORY_MB} MB")
    return numbers


def measure(state_mb: int, cached_keys: int = CACHED_KEYS) -> dict[str, Any]:
    """Measure in this process."""
    keys = max(BATCH, state_mb * 1_000_000 // ENTRY_BYTES)
    with tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as directory:
        return {
            "state_mb": state_mb,
            "keys": keys,
            "cached_keys": cached_keys,
            "memory_limit_mb": MEMORY_MB,
            **_measured(Path(directory), keys, cached_keys),
            "peak_resident_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
        }


def _measured(directory: Path, keys: int, cached_keys: int) -> dict[str, Any]:
    spec, draw = _spec(), np.random.default_rng(1)
    with opened_operator(spec, directory, "first", "rocksdb", cached_keys=cached_keys) as operator:
        started = time.perf_counter()
        for first in range(0, keys, BATCH):
            operator.process(_batch(np.arange(first, min(first + BATCH, keys))))
        inserted = time.perf_counter() - started
        batches = max(1, min(20, keys // BATCH // 10))
        again = [draw.integers(0, keys, BATCH) for _ in range(batches)]
        started = time.perf_counter()
        for chosen in again:
            operator.process(_batch(chosen))
        updated = time.perf_counter() - started
        started = time.perf_counter()
        future = operator.snapshot(CHECKPOINT)
        sync = time.perf_counter() - started
        snapshot = future.run()
        stored = time.perf_counter() - started
    started = time.perf_counter()
    with opened_operator(spec, directory, "second", "rocksdb", snapshot, cached_keys) as restored:
        opened = time.perf_counter() - started
        _compare(restored, keys, again)
    return {
        "new_keys_per_second": round(keys / inserted),
        "keys_again_per_second": round(batches * BATCH / updated),
        "snapshot_sync_ms": round(1000 * sync, 2),
        "snapshot_seconds": round(stored, 2),
        "snapshot_mb": round(sum(handle.size for handle in snapshot.handles) / 1e6),
        "restore_seconds": round(opened, 2),
    }


def _spec() -> AggregateSpec:
    aggregates: dict[str, Aggregate] = {f"s{number}": Sum(f"v{number}") for number in range(SUMS)}
    return AggregateSpec("totals", ("k",), aggregates, Emission.EACH_RECORD)


def _batch(keys: Any) -> Any:
    """Return one record for each key, whose values follow from the key."""
    return pa.RecordBatch.from_arrays(
        [pa.array(keys), *(pa.array(column) for column in _values(keys))],
        ["k", *(f"v{number}" for number in range(SUMS))],
    )


def _values(keys: Any) -> Iterator[Any]:
    """Yield the columns of numbers that belong to keys, as good as random (splitmix64), below 2 ** 56."""
    for number in range(SUMS):
        mixed = keys.astype(np.uint64) * np.uint64(SUMS) + np.uint64(number)
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        yield (mixed >> np.uint64(8)).astype(np.int64)


def _compare(operator: Any, keys: int, again: list[Any]) -> None:
    """Require that keys drawn from all hold what all records before have added up to."""
    chosen = np.unique(np.concatenate([again[0], np.random.default_rng(2).integers(0, keys, BATCH)]))
    times = 2 + sum(_count(chosen, batch) for batch in again)
    rows: Any = operator.process(_batch(chosen))
    for number, column in enumerate(_values(chosen)):
        if not np.array_equal(rows.column(f"s{number}").to_numpy(), column * times):
            raise RuntimeError("keys of the restored state do not hold what they held")


def _count(chosen: Any, batch: Any) -> Any:
    """Return how often each of the chosen keys is in a batch."""
    distinct, counts = np.unique(batch, return_counts=True)
    places = np.minimum(np.searchsorted(distinct, chosen), len(distinct) - 1)
    return np.where(distinct[places] == chosen, counts[places], 0)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(int(sys.argv[1]))))
