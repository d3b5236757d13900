"""Windows and joins in event time: the reference runtime and Structured Streaming, side by side on two cores.

Four cases: tumbling, sliding and session windows, and a join of two inputs by an interval. In each, the reference runs
with its state on the heap and in RocksDB, and Structured Streaming with RocksDB; all read records of the same stream,
which come out of order within a bound, and give the same output. Runs take turns, so that a busy machine affects all
alike. Each lasts at least five seconds; for that, a fast side reads more of the stream than a slow one, and rates are
compared. Every run's output is compared with the ground truth, row by row.

At the end comes a burst: a million windows that one watermark ends at once, on the reference.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.benchmark_trials import text_table
from benchmarks.both_on_spark import CHECKPOINT_INTERVAL_MS, REFERENCE_CLOCK, session_on_both_cores
from benchmarks.cores import CORES, bound_to_cores
from benchmarks.measured_runs import Run, Side, long_enough, median_rate, passes_for
from benchmarks.windows_burst import measure_burst
from benchmarks.windows_cases import BATCH_ROWS, CASES, GAP_MS, SIZE_MS, SLIDE_MS, UPPER_MS
from benchmarks.windows_data import EventShape
from benchmarks.windows_sides import STREAMING, TUNED_SETTINGS, Inputs, Pace, ReferenceSide, StreamingSide

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Progress = Callable[[str, float], None]

SHAPE = EventShape()
BACKENDS = ("heap", "rocksdb")
BURST = "burst"
PARTS = (*CASES, BURST)
"""What ``--only`` may name."""
ROUNDS = 3
"""Number of measured runs of each side."""
_FIRST_SLICES = {"reference_heap": 5, "reference_rocksdb": 5, STREAMING: 40}
"""Of the run that warms a side up: Spark's JVM needs a longer one."""
_FIRST_STEP, _SLICES_MAX = 5, 6_000
_BURST_SHARE = 0.12
"""Of the time of all."""

NOTES = (
    (
        "Rates are medians, in records really processed per second; ratio is that to Structured Streaming. The "
        "committed rows of each run were equal to the ground truth, each as often."
    ),
    (
        f"The stream: {SHAPE.keys:,} keys, {SHAPE.slice_rows // (SHAPE.slice_ms // 1_000):,} records for a second of "
        f"event time, out of order by less than {SHAPE.bound_ms:,} ms, which is the bound of watermarks. Tumbling "
        f"windows of {SIZE_MS:,} ms; sliding ones of {SIZE_MS:,} ms every {SLIDE_MS:,} ms; sessions with a gap of "
        f"{GAP_MS:,} ms; pairs whose right record is later by up to {UPPER_MS:,} ms. Windows count and sum. Its "
        "length is that which a side needs for a run, so faster sides read more of it."
    ),
    REFERENCE_CLOCK,
    (
        "Structured Streaming: from the start of the first micro-batch to the end of the last one's commit, as its own "
        "progress reports say: that is the one without data, which ends the last windows. Starting the query is left "
        "out, and a query warmed the JVM up before."
    ),
    (
        "Both ran on one standalone cluster with one executor, all of their processes bound to the same two cores. The "
        f"reference: 2 sources with batches of {BATCH_ROWS:,} records, 2 keyed subtasks, transactional Parquet sink, a "
        f"checkpoint every {CHECKPOINT_INTERVAL_MS:,} ms. Structured Streaming: {CORES} shuffle partitions, RocksDB "
        "state store with changelog checkpointing, its Parquet sink in append mode. Each micro-batch is a durable "
        "checkpoint, and is made to last as long as the reference's checkpoints are apart: the interval, or more if a "
        "checkpoint takes longer than that."
    ),
    "checkpoint_every_ms: the length of a run divided by the checkpoints completed in it, median of all runs.",
)
BURST_NOTE = (
    "Burst: windows of keys with one record each fill for some seconds; one watermark ends them all. delay_ms: from a "
    "checkpoint's trigger until its last subtask takes its snapshot. one_subtask_alone_ms: how long an operator with "
    "half of the windows takes to fire them, measured alone; no barrier is handled meanwhile."
)


def run(progress: Progress, only: str | None = None) -> dict[str, Any]:
    """Run the benchmark, or one of ``PARTS``; ``progress(what, share)`` is called as it advances (share from 0 to 1).

    Raises RuntimeError if a side's output is wrong or a run does not end, EnvironmentProblem if this process may not
    use two cores.
    """
    cases = [case for case in CASES if only in (None, case)]
    with (
        bound_to_cores() as cores,
        tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as name,
        session_on_both_cores("windows") as spark,
    ):
        points: list[dict[str, Any]] = []
        for number, case in enumerate(cases):
            told = _part_of(progress, number, len(cases))
            with tempfile.TemporaryDirectory(dir=name) as inputs:
                sides = _sides(spark, Inputs(CASES[case], SHAPE, Path(inputs)), Path(name))
                points += points_of(case, runs_of(case, sides, told))
        bursts: dict[str, dict[str, Any]] = {}
        if only in (None, BURST):
            for backend in BACKENDS:
                progress(f"burst, reference_{backend}", 1.0 - _BURST_SHARE / (1 + len(bursts)))
                bursts[backend] = measure_burst(spark, Path(name), backend)
    return result_of(points, bursts, cores)


def runs_of(case: str, sides: Sequence[Side], progress: Progress) -> list[Run]:
    """Run each side once to warm it up and to see how fast it is, then all in turn; return the measured runs."""
    passes: dict[str, int] = {}
    for side in sides:
        progress(f"{case}: warming up {side.name}", 0.0)
        first = side.run(_FIRST_SLICES[side.name])
        passes[side.name] = passes_for(first.rows_per_second, SHAPE.slice_rows, _SLICES_MAX)
    runs: list[Run] = []
    for _ in range(ROUNDS):
        for side in sides:
            progress(f"{case}: {side.name}", (1 + len(runs)) / (1 + ROUNDS * len(sides)))
            done = long_enough(side, passes[side.name], _SLICES_MAX)
            passes[side.name] = done.passes
            runs.append(done)
            told = f"{done.rows_per_second:,.0f} records per second in {done.seconds:.1f} s"
            progress(f"{case}: {side.name}: {told}", (1 + len(runs)) / (1 + ROUNDS * len(sides)))
    return runs


def points_of(case: str, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the numbers of one case, a point for each side; raises RuntimeError if Structured Streaming has no run."""
    streaming = median_rate(runs, STREAMING)
    points = []
    for side in dict.fromkeys(done.side for done in runs):
        of_side = [done for done in runs if done.side == side]
        rate = median_rate(of_side, side)
        every = [1_000 * done.seconds / max(1, done.checkpoints) for done in of_side]
        points.append(
            {
                "case": case,
                "side": side,
                "rows_per_second": round(rate),
                "ratio": round(rate / streaming, 2),
                "checkpoint_every_ms": round(statistics.median(every)),
                "rows": of_side[-1].rows,
                "runs": [done.as_json() for done in of_side],
            }
        )
    return points


def result_of(
    points: Sequence[dict[str, Any]], bursts: dict[str, dict[str, Any]], cores: Sequence[int]
) -> dict[str, Any]:
    """Return all numbers: the ratios and the burst by name, and the points."""
    ratios = {
        f"ratio_{point['case']}_{point['side'].removeprefix('reference_')}": point["ratio"]
        for point in points
        if point["side"] != STREAMING
    }
    burst = {
        f"{BURST}_{backend}_{name}": value
        for backend, numbers in bursts.items()
        for name, value in numbers.items()
    }
    return {
        **ratios,
        **burst,
        "cores": list(cores),
        "structured_streaming_settings": dict(TUNED_SETTINGS) if points else {},
        "notes": [*(NOTES if points else ()), *((BURST_NOTE,) if bursts else ())],
        "points": list(points),
    }


def table(numbers: dict[str, Any]) -> str:
    """Return the sides of all cases as text."""
    columns = ("case", "side", "rows_per_second", "ratio", "checkpoint_every_ms", "rows")
    return text_table(numbers["points"], columns) if numbers["points"] else ""


def _sides(spark: SparkSession, inputs: Inputs, scratch: Path) -> list[Side]:
    pace = Pace()
    return [
        ReferenceSide(spark, inputs, scratch, "heap", pace),
        StreamingSide(spark, inputs, scratch, _FIRST_STEP, pace),
        ReferenceSide(spark, inputs, scratch, "rocksdb"),
    ]


def _part_of(progress: Progress, number: int, parts: int) -> Progress:
    """Return what tells the progress of one case as that of all."""
    return lambda what, share: progress(what, (1.0 - _BURST_SHARE) * (number + share) / parts)
