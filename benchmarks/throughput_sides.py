"""The two sides of the throughput benchmark: the reference runtime, and PySpark Structured Streaming.

Each run reads the same files several times, keeps count and sum per key, and once a second writes the keys that
changed as Parquet. Its output is compared with the ground truth afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barrier_tck.reference_impl.operators.functions import Count, Emission, Sum
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import ParquetSource
from benchmarks.both_on_spark import (
    DEFAULT_BACKEND,
    STREAMING_SETTINGS,
    Stopwatch,
    new_directory,
    run_job,
    run_query,
    seconds_of,
)
from benchmarks.cores import CORES
from benchmarks.measured_runs import Run
from benchmarks.throughput_data import Totals, link_copies, read_final_totals, require_equal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Input:
    """Files on disk, and the totals that must come out."""

    directory: Path
    rows: int
    rows_per_file: int
    totals: Totals
    suffix: str = ""
    """The suffix of the names of the sides that read it."""


@dataclass(frozen=True, slots=True)
class ReferenceSide:
    """The reference runtime: two sources that aggregate ahead of the shuffle, two keyed subtasks with sinks."""

    spark: SparkSession
    source: Input
    scratch: Path
    interval_ms: int | None
    """Time between checkpoints; None: none are taken."""
    backend: str = DEFAULT_BACKEND
    """Name of the state backend."""

    @property
    def name(self) -> str:
        """Return the variant's name."""
        kind = "reference" if self.backend == DEFAULT_BACKEND else f"reference_{self.backend}"
        return kind + ("" if self.interval_ms is not None else "_without_checkpoints") + self.source.suffix

    def run(self, passes: int) -> Run:
        """Run the job once; the time does not include deployment."""
        root, watch = new_directory(self.scratch, self.name), Stopwatch()
        run_job(self.spark, self._graph(passes), root, watch, self.interval_ms, self.backend)
        require_equal(read_final_totals(root / "output"), self.source.totals.times(passes), self.name)
        return Run(self.name, self.source.rows * passes, watch.seconds, passes, watch.checkpoints)

    def _graph(self, passes: int) -> JobGraph:
        source = ParquetSource(
            str(self.source.directory), ("key", "value"), batch_rows=_BATCH_ROWS, repeat=passes
        )
        return (
            StreamJob("throughput")
            .source(source, parallelism=CORES)
            .key_by("key")
            .aggregate(
                {"count": Count(), "sum": Sum("value")},
                emit=Emission.CHANGES,
                parallelism=CORES,
                name="totals",
                combine=True,
            )
            .sink(FileSink("output"))
            .build()
        )


@dataclass(frozen=True, slots=True)
class StructuredStreamingSide:
    """Structured Streaming with RocksDB state: the keys that each micro-batch changed, written as Parquet."""

    spark: SparkSession
    source: Input
    scratch: Path
    files_per_trigger: int

    @property
    def name(self) -> str:
        """Return the side's name."""
        return "structured_streaming" + self.source.suffix

    def run(self, passes: int) -> Run:
        """Run the query once, from the start of its first micro-batch to the commit of the last one."""
        root = new_directory(self.scratch, self.name)
        link_copies(self.source.directory, root / "input", passes)
        progress = self._query(root)
        require_equal(read_final_totals(root / "output"), self.source.totals.times(passes), self.name)
        rows = sum(int(batch["numInputRows"]) for batch in progress)
        if rows != self.source.rows * passes:
            raise RuntimeError(f"{self.name} says that it read {rows} rows of {self.source.rows * passes}")
        return Run(self.name, rows, seconds_of(progress), passes, len(progress))

    def _query(self, root: Path) -> list[Mapping[str, Any]]:
        """Process all input and return the progress of each micro-batch that had data."""
        from pyspark.sql import functions

        def write(batch: DataFrame, number: int) -> None:
            # Overwriting makes a repeated batch harmless: with it, the output is exactly-once.
            batch.write.mode("overwrite").parquet(str(root / "output" / f"batch-{number:05d}"))

        for name, value in STREAMING_SETTINGS.items():
            self.spark.conf.set(name, value)
        writer = (
            self.spark.readStream.schema("key bigint, value bigint")
            .option("maxFilesPerTrigger", self.files_per_trigger)
            .parquet(str(root / "input"))
            .groupBy("key")
            .agg(functions.count("*").alias("count"), functions.sum("value").alias("sum"))
            .writeStream.outputMode("update")
            .foreachBatch(write)
        )
        return [batch for batch in run_query(writer, root, self.name) if batch["numInputRows"]]
