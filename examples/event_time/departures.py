"""A job in event time: how many flights each carrier had in each hour, with those that come too late aside.

``python -m examples.event_time.departures`` runs it on Spark in this process, on eight flights.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from barrier_tck.reference_impl.job_api import (
    BoundedOutOfOrder,
    CheckpointConfig,
    Count,
    FileSink,
    JobConfig,
    JobGraph,
    JobState,
    ParquetSource,
    SparkJobRunner,
    StreamJob,
    Tumbling,
    session_settings,
)

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
TIMEOUT_S = 120.0
FLIGHTS = [("AA", 5), ("UA", 30), ("AA", 50), ("UA", 70), ("AA", 20), ("AA", 150), ("AA", 40), ("UA", 130)]
"""Carrier and scheduled minute of each flight, in the order in which they come."""


def departures(flights: Path) -> JobGraph:
    """Return the job."""
    job = StreamJob("departures")
    source = ParquetSource((str(flights),), batch_rows=1, in_turn=True)
    windows = (
        job.source(source, watermarks=BoundedOutOfOrder("scheduled_ms", bound_ms=5 * MINUTE_MS))
        .key_by("carrier")
        .window(Tumbling(HOUR_MS), "scheduled_ms", {"flights": Count()}, lateness_ms=30 * MINUTE_MS)
    )
    late = windows.side_output("late").sink(FileSink("late", uid="late"), name="late")
    return job.build(windows.sink(FileSink("hours")), late)


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """Return the committed rows below a directory."""
    names = sorted(path for path in directory.rglob("*.parquet") if "pending" not in str(path))
    return [row for name in names for row in pq.read_table(name).to_pylist()]


def run(spark: SparkSession, directory: Path) -> bool:
    """Run the job below a directory, print what it gives, and return whether it finished."""
    flights, files = directory / "flights", directory / "files"
    flights.mkdir()
    carriers, minutes = zip(*FLIGHTS, strict=True)
    table = pa.table({"carrier": carriers, "scheduled_ms": [minute * MINUTE_MS for minute in minutes]})
    pq.write_table(table, flights / "part-0.parquet")
    with SparkJobRunner(spark, departures(flights), JobConfig(CheckpointConfig(200)), files) as runner:
        end = runner.wait(TIMEOUT_S)
    hours = sorted(
        rows_of(files / "hours"), key=lambda row: (row["window_start"], row["carrier"], row["firing"])
    )
    for row in hours:
        again = f", again ({row['firing']})" if row["firing"] else ""
        print(f"hour {row['window_start'] // HOUR_MS}: {row['carrier']} {row['flights']}{again}")
    for row in rows_of(files / "late"):
        print(f"too late: {row['carrier']} of minute {row['scheduled_ms'] // MINUTE_MS}")
    return end is not None and end.state is JobState.FINISHED


def main() -> int:
    """Run the job in this process; return the exit code."""
    builder = SparkSession.builder.master("local[4]").appName("departures")
    for name, value in session_settings().items():
        builder = builder.config(name, value)
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    try:
        with tempfile.TemporaryDirectory() as directory:
            return 0 if run(spark, Path(directory)) else 1
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
