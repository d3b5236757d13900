"""The cases of the windows benchmark: each a job of the reference, a query of Structured Streaming, and what they give.

All read the same input. In windows of 10 s a key has about ten records; the sessions of a key last about as long as
seven records; a record of the left input has about one partner.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from barrier_tck.reference_impl.operators.functions import Aggregate, Count, Sum
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.interval_join import Within
from barrier_tck.reference_impl.operators.job import Stream, StreamJob
from barrier_tck.reference_impl.operators.join_sides import JoinSide
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import ParquetSource
from barrier_tck.reference_impl.operators.watermark_strategies import BoundedOutOfOrder
from barrier_tck.reference_impl.operators.windows import Session, Sliding, Tumbling, WindowAssigner
from benchmarks import windows_truth
from benchmarks.cores import CORES
from benchmarks.windows_data import COLUMNS, LANES, EventShape, lane_file
from benchmarks.windows_truth import PAIR_COLUMNS, WINDOW_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SIZE_MS, SLIDE_MS, GAP_MS, UPPER_MS = 10_000, 2_000, 2_001, 2_000
BATCH_ROWS = 1 << 14
"""Of the reference's sources. A subtask handles no barrier amid a batch."""
AGGREGATES: dict[str, Aggregate] = {"count": Count(), "sum": Sum("value")}
"""Of all windows of the reference."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of window or join."""

    name: str
    columns: tuple[str, ...]
    """Those of its output that are compared."""
    graph: Callable[[Path, EventShape], JobGraph]
    """Makes the job that reads a directory of lanes."""
    query: Callable[[SparkSession, Path, EventShape], DataFrame]
    """Makes the query that reads a directory of steps, one at a time."""
    truth: Callable[[pa.Table, pa.Table], pa.Table]
    """Makes the right output of both lanes."""


def _windows(
    name: str,
    assigner: WindowAssigner,
    of_spark: Callable[[], Column],
    truth: Callable[[pa.Table], pa.Table],
) -> Case:
    return Case(
        name,
        WINDOW_COLUMNS,
        lambda directory, shape: window_job(directory, shape, assigner),
        lambda spark, directory, shape: _window_query(spark, directory, shape, of_spark()),
        lambda *lanes: truth(pa.concat_tables(lanes)),
    )


def window_job(directory: Path, shape: EventShape, assigner: WindowAssigner) -> JobGraph:
    """Return the job with windows over both lanes."""
    lanes = tuple(str(lane_file(directory, lane)) for lane in range(LANES))
    stream = _source(StreamJob("windows"), "source", lanes, shape).key_by("key")
    return stream.window(assigner, "at_ms", AGGREGATES, parallelism=CORES).sink(FileSink("output")).build()


def _source(job: StreamJob, name: str, files: tuple[str, ...], shape: EventShape) -> Stream:
    # One split for each subtask: the watermark of a subtask with several is that of its slowest.
    return job.source(
        ParquetSource(files, COLUMNS, batch_rows=BATCH_ROWS),
        parallelism=len(files),
        name=name,
        watermarks=BoundedOutOfOrder("at_ms", shape.bound_ms),
    )


def _window_query(spark: SparkSession, directory: Path, shape: EventShape, window: Column) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        _stream(spark, directory, shape, "*.parquet", LANES)
        .groupBy("key", window.alias("window"))
        .agg(f.count("*").alias("count"), f.sum("value").alias("sum"))
        .select(
            "key",
            f.unix_millis("window.start").alias("window_start"),
            f.unix_millis("window.end").alias("window_end"),
            "count",
            "sum",
        )
    )


def _stream(spark: SparkSession, directory: Path, shape: EventShape, files: str, per_step: int) -> DataFrame:
    from pyspark.sql import functions as f

    return (
        spark.readStream.schema(", ".join(f"{name} bigint" for name in COLUMNS))
        .option("maxFilesPerTrigger", per_step)
        .option("pathGlobFilter", files)
        .parquet(str(directory))
        .select("key", "value", f.timestamp_millis("at_ms").alias("at"))
        .withWatermark("at", f"{shape.bound_ms} milliseconds")
    )


def _tumbling() -> Column:
    from pyspark.sql import functions as f

    return f.window("at", f"{SIZE_MS} milliseconds")


def _sliding() -> Column:
    from pyspark.sql import functions as f

    return f.window("at", f"{SIZE_MS} milliseconds", f"{SLIDE_MS} milliseconds")


def _session() -> Column:
    from pyspark.sql import functions as f

    return f.session_window("at", f"{GAP_MS} milliseconds")


def _join_job(directory: Path, shape: EventShape) -> JobGraph:
    job = StreamJob("windows")
    left, right = (
        _source(job, name, (str(lane_file(directory, lane)),), shape).key_by("key")
        for lane, name in enumerate(("left_source", "right_source"))
    )
    joined = left.connect(right).interval_join(
        Within(0, UPPER_MS),
        JoinSide("at_ms", {"key": "key", "left": "value"}),
        JoinSide("at_ms", {"right": "value"}),
        parallelism=CORES,
    )
    return joined.sink(FileSink("output")).build()


def _join_query(spark: SparkSession, directory: Path, shape: EventShape) -> DataFrame:
    from pyspark.sql import functions as f

    left, right = (
        _stream(spark, directory, shape, f"lane-{lane}-*.parquet", 1).select(
            f.col("key").alias(f"{name}_key"), f.col("value").alias(name), f.col("at").alias(f"{name}_at")
        )
        for lane, name in enumerate(("left", "right"))
    )
    within = f"right_at >= left_at and right_at <= left_at + interval {UPPER_MS} milliseconds"
    return left.join(right, f.expr(f"left_key = right_key and {within}")).select(
        f.col("left_key").alias("key"),
        "left",
        "right",
        f.unix_millis(f.greatest("left_at", "right_at")).alias("time"),
    )


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        _windows(
            "tumbling",
            Tumbling(SIZE_MS),
            _tumbling,
            lambda rows: windows_truth.sliding_windows(rows, SIZE_MS, SIZE_MS),
        ),
        _windows(
            "sliding",
            Sliding(SIZE_MS, SLIDE_MS),
            _sliding,
            lambda rows: windows_truth.sliding_windows(rows, SIZE_MS, SLIDE_MS),
        ),
        Case(
            "join",
            PAIR_COLUMNS,
            _join_job,
            _join_query,
            lambda left, right: windows_truth.pairs(left, right, UPPER_MS),
        ),
        _windows("session", Session(GAP_MS), _session, lambda rows: windows_truth.sessions(rows, GAP_MS)),
    )
}
"""By name."""
