"""Rows per second of each stage of the Arrow data path, in one process, without channels or checkpoints.

``python benchmarks/kernel_data_path.py [rows]`` writes Parquet files with an int64 key of 100,000 distinct
values and an int64 value to a temporary directory and measures reading, the partial aggregation, the
partitioning and the keyed accumulation, each alone and all in a row. The last lines give the cost of a
checkpoint's synchronous flush.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.functions import Aggregate, Count, Emission, Sum, merging_aggregates
from barrier_tck.reference_impl.operators.sources import ParquetSource
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem

KEYS = 100_000
FILES = 4
PARALLELISM = 2
MAX_PARALLELISM = 128
REPEATS = 3
AGGREGATES: dict[str, Aggregate] = {"count": Count(), "sum": Sum("value")}
PLANE = ArrowPlane()


def write_input(directory: Path, rows: int, spread: int) -> None:
    """Write the files; keys are multiples of ``spread``."""
    random = np.random.default_rng(7)
    for number in range(FILES):
        table = pa.table(
            {
                "key": random.integers(0, KEYS, rows // FILES) * spread,
                "value": random.integers(-1_000, 1_000, rows // FILES),
            }
        )
        pq.write_table(table, directory / f"part-{number}.parquet", row_group_size=1 << 20)


def read(directory: Path, batch_rows: int) -> Iterator[Any]:
    """Read all splits as one subtask."""
    source = ParquetSource((str(directory),), ("key", "value"), batch_rows=batch_rows)
    reader = source.open(0, 1, LocalFileSystem(directory), PLANE)
    while (batch := reader.poll()) is not None:
        yield batch
    reader.close()


def report(name: str, rows: int, task: Callable[[], object]) -> None:
    """Print the best of several runs."""
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        task()
        best = min(best, time.perf_counter() - begin)
    print(f"{name:64s} {rows / best / 1e6:8.1f} M rows/s {best / rows * 1e9:8.2f} ns/row")


def accumulate(batches: list[Any], aggregates: Any, emit: Emission = Emission.FINAL) -> Any:
    """Fold batches into one table."""
    table = PLANE.accumulators(("key",), aggregates, (), MAX_PARALLELISM)
    for batch in batches:
        table.update(batch, emit is Emission.EACH_RECORD)
    return table


def partition(batches: list[Any]) -> list[Any]:
    """Partition batches as the shuffle does."""
    return [PLANE.partition(batch, ("key",), PARALLELISM, MAX_PARALLELISM) for batch in batches]


def combine(batches: list[Any]) -> list[Any]:
    """Aggregate each batch."""
    return [PLANE.combine(batch, ("key",), AGGREGATES, MAX_PARALLELISM) for batch in batches]


def whole_path(directory: Path, batch_rows: int, combined: bool) -> None:
    """Do the work of all subtasks, one after the other."""
    aggregates = merging_aggregates(AGGREGATES) if combined else AGGREGATES
    tables = [PLANE.accumulators(("key",), aggregates, (), MAX_PARALLELISM) for _ in range(PARALLELISM)]
    for batch in read(directory, batch_rows):
        payload = PLANE.combine(batch, ("key",), AGGREGATES, MAX_PARALLELISM) if combined else batch
        for target, part in PLANE.partition(payload, ("key",), PARALLELISM, MAX_PARALLELISM):
            tables[target].update(part, False)


def measure(rows: int, batch_rows: int, spread: int) -> None:
    """Measure every stage for one kind of input."""
    print(f"\nkeys are multiples of {spread}, {batch_rows} rows per batch")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_input(directory, rows, spread)
        batches = list(read(directory, batch_rows))
        report("read Parquet", rows, lambda: sum(batch.num_rows for batch in read(directory, batch_rows)))
        report("combine", rows, lambda: combine(batches))
        combined = combine(batches)
        partial_rows = sum(batch.num_rows for batch in combined)
        print(f"  a combined batch has {partial_rows / rows:.1%} of the rows")
        report("partition", rows, lambda: partition(batches))
        report("partition combined (per combined row)", partial_rows, lambda: partition(combined))
        report("accumulate", rows, lambda: accumulate(batches, AGGREGATES))
        merging = merging_aggregates(AGGREGATES)
        report("accumulate combined (per combined row)", partial_rows, lambda: accumulate(combined, merging))
        report(
            "accumulate, a row per record",
            rows,
            lambda: accumulate(batches, AGGREGATES, Emission.EACH_RECORD),
        )
        report("whole path", rows, lambda: whole_path(directory, batch_rows, combined=False))
        report("whole path with combine", rows, lambda: whole_path(directory, batch_rows, combined=True))
        table = accumulate(batches[:1], AGGREGATES)
        begin = time.perf_counter()
        groups, _, _ = table.take_dirty()
        middle = time.perf_counter()
        changed = table.take_changed_rows()
        end = time.perf_counter()
        print(f"take_dirty of {len(groups)} keys: {(middle - begin) * 1e3:.1f} ms")
        print(f"take_changed_rows of {changed.num_rows} keys: {(end - middle) * 1e3:.1f} ms")


def main() -> None:
    """Measure dense and sparse keys, large and small batches."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000_000
    pa.set_cpu_count(1)
    print(f"{rows} rows, {KEYS} keys, best of {REPEATS}, one process")
    for batch_rows, spread in ((1 << 20, 1), (1 << 17, 1), (1 << 20, 1_000_003)):
        measure(rows, batch_rows, spread)


if __name__ == "__main__":
    main()
