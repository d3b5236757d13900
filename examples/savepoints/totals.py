"""A job that is stopped with a savepoint, and a second job that goes on from there.

``python -m examples.savepoints.totals`` runs both on Spark in this process, in a temporary directory. The input has
12,000 rows of 17 keys. The first job is stopped about in the middle. The totals of the second are those of all rows.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from barrier_tck.reference_impl.job_api import (
    CheckpointConfig,
    CompletedCheckpoint,
    Count,
    Emission,
    FileSink,
    JobConfig,
    JobEnd,
    JobGraph,
    JobState,
    ParquetSource,
    SparkJobObserver,
    SparkJobRunner,
    StreamJob,
    Sum,
    session_settings,
)

ROWS, KEYS, FILES = 6_000, 17, 2
TIMEOUT_S = 120.0


def totals(source: Path, rows_per_second: int) -> JobGraph:
    """Return the job: count and sum per key, written once, at the end of the input."""
    return (
        StreamJob("totals")
        .source(ParquetSource((str(source),), batch_rows=100, rate_limit=rows_per_second), FILES, "source")
        .key_by("k")
        .aggregate({"n": Count(), "total": Sum("v")}, emit=Emission.FINAL, parallelism=2, name="totals")
        .sink(FileSink("out"), parallelism=1)
        .build()
    )


class StopsAfterCheckpoints(SparkJobObserver):
    """Asks for the end of the job with a savepoint when some checkpoints are complete."""

    def __init__(self, checkpoints: int, savepoint: str) -> None:
        """Take after how many, and the directory of the savepoint."""
        self.left, self.savepoint = checkpoints, savepoint
        self.runner: SparkJobRunner | None = None

    def checkpoint_completed(self, completed: CompletedCheckpoint) -> None:
        """Count it."""
        self.left -= 1
        if self.left == 0 and self.runner is not None:
            self.runner.take_savepoint(self.savepoint, stop=True)


def stop(spark: SparkSession, job: JobGraph, files: Path) -> JobEnd | None:
    """Run the job until three checkpoints are complete, and stop it with the savepoint ``savepoints/monday``."""
    stopper = StopsAfterCheckpoints(3, "savepoints/monday")
    with SparkJobRunner(spark, job, JobConfig(CheckpointConfig(200)), files, observer=stopper) as runner:
        stopper.runner = runner
        return runner.wait(TIMEOUT_S)


def go_on(spark: SparkSession, job: JobGraph, files: Path) -> JobEnd | None:
    """Start the same job from the savepoint, and run it to its end."""
    config = JobConfig(CheckpointConfig(200), start_from="savepoints/monday")
    with SparkJobRunner(spark, job, config, files) as runner:
        return runner.wait(TIMEOUT_S)


def write_input(directory: Path) -> Path:
    """Write rows (k, v), with v counting up over all files."""
    directory.mkdir()
    for file in range(FILES):
        values = range(file * ROWS, (file + 1) * ROWS)
        table = pa.table({"k": [value % KEYS for value in values], "v": list(values)})
        pq.write_table(table, directory / f"part-{file}.parquet")
    return directory


def committed(files: Path) -> list[tuple[int, int, int]]:
    """Return key, count and sum of every committed row, ordered by key."""
    names = sorted(path for path in (files / "out").rglob("*.parquet") if "pending" not in str(path))
    rows = [row for name in names for row in pq.read_table(name).to_pylist()]
    return sorted((row["k"], row["n"], row["total"]) for row in rows)


def expected() -> list[tuple[int, int, int]]:
    """Return the same, computed without the runtime."""
    values = range(FILES * ROWS)
    of = {key: [value for value in values if value % KEYS == key] for key in range(KEYS)}
    return [(key, len(found), sum(found)) for key, found in of.items()]


def run(spark: SparkSession, directory: Path) -> bool:
    """Run both jobs below a directory; print what happened, and return whether the totals are right."""
    source, files = write_input(directory / "in"), directory / "files"
    first = stop(spark, totals(source, 2_000), files)
    print("the first job:", first.state.value if first else "did not end")
    print("its savepoint:", first.savepoint if first else None)
    second = go_on(spark, totals(source, 100_000), files)
    print("the second job:", second.state.value if second else "did not end")
    right = committed(files) == expected()
    print("totals of all rows:", "right" if right else f"WRONG: {committed(files)}")
    return right and first is not None and first.state is JobState.STOPPED


def main() -> int:
    """Run both jobs in this process; return the exit code."""
    builder = SparkSession.builder.master("local[5]").appName("savepoints")
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
