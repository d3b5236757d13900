"""Rows per second of the reference runtime and of PySpark Structured Streaming, side by side on two cores.

Both keep a count and a sum per key of a Parquet input of 20 million rows and 100,000 keys, take a checkpoint about once
a second, and write the keys that changed since the last one as Parquet. The reference runs with its state on the heap
and in RocksDB. On the heap it also runs without checkpoints, alternately right before and right after a run with them;
the cost of checkpoints is the median over these pairs. Dense integer keys (0, 1, 2, ...) save the reference all
hashing, so both sides are also measured with the same number of keys that are far apart. Runs take turns, so that a
busy machine affects all of them alike. Each lasts at least five seconds; for that, the input is read several times.
Every run's output is compared with the ground truth.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.both_on_spark import CHECKPOINT_INTERVAL_MS, REFERENCE_CLOCK, session_on_both_cores
from benchmarks.checkpoint_cost import (
    CONFIDENCE,
    SPREAD_MAX,
    WITHOUT_CHECKPOINTS,
    alternating,
    checkpoint_costs,
    costs_as_json,
    measured_costs,
)
from benchmarks.cores import CORES, bound_to_cores
from benchmarks.measured_runs import Run, Side, long_enough, median_rate, passes_for
from benchmarks.throughput_data import InputShape, write_input
from benchmarks.throughput_sides import Input, ReferenceSide, StructuredStreamingSide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, float], None]

SHAPE = InputShape()
SPARSE = 1_000_003
"""Distance between the keys of the second input: too far for arrays indexed by the key."""
_SPARSE_KEYS, _ROCKSDB = "_sparse_keys", "_rocksdb"
PAIRS, ROUNDS = 5, 3
"""Number of pairs of runs with and without checkpoints, and of runs of each other side."""
_FIRST_PASSES = 4

COST_NOTE = (
    "checkpoint_cost_percent: the median over pairs of neighbouring runs with and without checkpoints, whose order "
    f"alternates. Its interval holds the median with {CONFIDENCE:.0%} confidence (sign test)."
)
NOTES = (
    (
        "Rates are medians, in rows really processed per second. Each run's final totals were equal to the ground "
        "truth, and no row was committed twice."
    ),
    REFERENCE_CLOCK,
    (
        "Structured Streaming: from the start of the first micro-batch with data to the end of the last one's "
        "commit, as its own progress reports say. Starting the query is left out, and a query over the whole input "
        "warmed the JVM up before."
    ),
    (
        "Both ran on one standalone cluster with one executor, all of their processes bound to the same two cores. "
        "The reference: 2 sources and 2 keyed subtasks, transactional Parquet sink; state on the heap, or in RocksDB "
        "where a name says so, written to the backend at barriers. Structured "
        "Streaming: up to 4 tasks that read, 2 shuffle partitions, RocksDB state store with changelog "
        "checkpointing, micro-batches of about a second, Parquet written by foreachBatch in update mode."
    ),
    COST_NOTE,
    (
        "Keys are 0 to 99,999, which the reference uses as array indexes without hashing. The numbers with "
        f"sparse_keys in their names are for multiples of {SPARSE:,}, which it has to hash."
    ),
)


def run(progress: Progress, pairs: int | None = None) -> dict[str, Any]:
    """Run the benchmark; ``progress(what, share)`` is called as it advances (share from 0 to 1).

    With ``pairs``, only the cost of checkpoints is measured, over at most so many pairs of runs. Raises RuntimeError if
    a side's totals are wrong or a run does not end, EnvironmentProblem if this process may not use two cores.
    """
    with bound_to_cores() as cores, tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as name:
        directory = Path(name)
        progress("writing the input", 0.0)
        dense = _input(directory / "dense", SHAPE)
        with session_on_both_cores("throughput") as spark:
            pair = (
                ReferenceSide(spark, dense, directory, CHECKPOINT_INTERVAL_MS),
                ReferenceSide(spark, dense, directory, None),
            )
            if pairs is not None:
                return cost_of_checkpoints(pair, pairs, cores, progress)
            return _side_by_side(spark, pair, dense, cores, progress)


def cost_of_checkpoints(
    pair: tuple[Side, Side], pairs: int, cores: Sequence[int], progress: Progress
) -> dict[str, Any]:
    """Measure what checkpoints cost, and nothing else; see ``checkpoint_cost``."""
    progress("warming up the reference runtime", 0.0)
    passes = long_enough(pair[0], _FIRST_PASSES).passes
    runs = measured_costs(pair, lambda side: long_enough(side, passes), pairs, progress)
    return {
        **costs_as_json(checkpoint_costs(runs)),
        "pairs": len(runs) // 2,
        "reference_rows_per_second": round(median_rate(runs, pair[0].name)),
        "reference_without_checkpoints_rows_per_second": round(median_rate(runs, pair[1].name)),
        "checkpoints_per_run": statistics.median(
            done.checkpoints for done in runs if done.side == pair[0].name
        ),
        "cores": list(cores),
        "rows": SHAPE.rows,
        "keys": SHAPE.keys,
        "notes": [COST_NOTE, f"Pairs are run until the interval is narrower than {SPREAD_MAX:g} points."],
    }


def _side_by_side(
    spark: SparkSession, pair: tuple[Side, Side], dense: Input, cores: Sequence[int], progress: Progress
) -> dict[str, Any]:
    directory = dense.directory.parent
    sparse = _input(directory / "sparse", replace(SHAPE, spread=SPARSE), _SPARSE_KEYS)
    progress("warming up Structured Streaming", 0.1)
    warm = StructuredStreamingSide(spark, dense, directory, CORES).run(1)
    files = files_per_second(warm.rows_per_second, dense.rows_per_file)
    others: tuple[Side, ...] = (
        StructuredStreamingSide(spark, dense, directory, files),
        ReferenceSide(spark, dense, directory, CHECKPOINT_INTERVAL_MS, "rocksdb"),
        ReferenceSide(spark, sparse, directory, CHECKPOINT_INTERVAL_MS),
        StructuredStreamingSide(spark, sparse, directory, files),
    )
    progress("warming up the reference runtime", 0.2)
    streaming_passes = passes_for(warm.rows_per_second, dense.rows)
    passes = {
        "reference": long_enough(pair[0], _FIRST_PASSES).passes,
        "structured_streaming": streaming_passes,
        "reference" + _ROCKSDB: _FIRST_PASSES,
        # Sparse keys are slower: their first run starts with few passes and gets more as far as needed.
        "reference" + _SPARSE_KEYS: _FIRST_PASSES,
        "structured_streaming" + _SPARSE_KEYS: streaming_passes,
    }
    runs: list[Run] = []
    order = in_turn(pair, others)
    for side in order:
        progress(side.name, 0.25 + 0.75 * len(runs) / len(order))
        # The reference reads the same input with and without checkpoints: one-time work weighs the same.
        same_length = side.name.removesuffix(WITHOUT_CHECKPOINTS)
        done = long_enough(side, passes[same_length])
        passes[same_length] = done.passes
        runs.append(done)
    return result_of(runs, cores, SHAPE)


def in_turn(pair: tuple[Side, Side], others: Sequence[Side]) -> list[Side]:
    """Return the sides in the order of their runs: the two of a pair are neighbours, and their order alternates."""
    order: list[Side] = []
    for number, both in zip(range(max(PAIRS, ROUNDS)), alternating(pair), strict=False):
        if number < PAIRS:
            order += both
        if number < ROUNDS:
            order += others
    return order


def _input(files: Path, shape: InputShape, suffix: str = "") -> Input:
    return Input(files, shape.rows, shape.rows_per_file, write_input(files, shape), suffix)


def files_per_second(rows_per_second: float, rows_per_file: int) -> int:
    """Return the number of files of a micro-batch of about a second: at least one per core."""
    return max(CORES, math.ceil(rows_per_second / rows_per_file))


def result_of(runs: Sequence[Run], cores: Sequence[int], shape: InputShape) -> dict[str, Any]:
    """Return the benchmark's numbers. Raises RuntimeError if a side has no run."""
    reference = median_rate(runs, "reference")
    plain = median_rate(runs, "reference" + WITHOUT_CHECKPOINTS)
    streaming = median_rate(runs, "structured_streaming")
    rocksdb = median_rate(runs, "reference" + _ROCKSDB)
    sparse = median_rate(runs, "reference" + _SPARSE_KEYS)
    streaming_sparse = median_rate(runs, "structured_streaming" + _SPARSE_KEYS)
    return {
        "ratio": round(reference / streaming, 2),
        "reference_rows_per_second": round(reference),
        "reference_without_checkpoints_rows_per_second": round(plain),
        "reference_rocksdb_rows_per_second": round(rocksdb),
        **costs_as_json(checkpoint_costs(runs)),
        "structured_streaming_rows_per_second": round(streaming),
        "ratio_sparse_keys": round(sparse / streaming_sparse, 2),
        "reference_sparse_keys_rows_per_second": round(sparse),
        "structured_streaming_sparse_keys_rows_per_second": round(streaming_sparse),
        "cores": list(cores),
        "rows": shape.rows,
        "keys": shape.keys,
        "runs": [done.as_json() for done in runs],
        "notes": list(NOTES),
    }
