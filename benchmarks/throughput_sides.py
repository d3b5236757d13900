"""The two sides of the throughput benchmark: the reference runtime, and PySpark Structured Streaming.

Each run reads the same files several times, keeps count and sum per key, and once a second writes the keys that
changed as Parquet. Its output is compared with the ground truth afterwards.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.functions import Count, Emission, Sum
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import ParquetSource
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver, SubtaskProcess
from barrier_tck.reference_impl.spark.spark_options import SparkOptions
from benchmarks.throughput_data import Totals, link_copies, read_final_totals, require_equal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
"""Source subtasks and keyed subtasks of the reference; shuffle partitions of Structured Streaming."""
DEFAULT_BACKEND = "heap"
_RUN_TIMEOUT_S = 600
_BATCH_ROWS = 1 << 20

STREAMING_SETTINGS: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Off by default in Spark; meant for frequent checkpoints.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run."""

    side: str
    rows: int
    """Rows processed: the rows of the input times the passes."""
    seconds: float
    passes: int
    checkpoints: int
    """Completed checkpoints; for Structured Streaming: micro-batches with data, each of which is one."""

    @property
    def rows_per_second(self) -> float:
        """Rows processed per second."""
        return self.rows / self.seconds

    def as_json(self) -> dict[str, Any]:
        """Return the fields, and the rate, in round numbers."""
        return {
            **asdict(self),
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows_per_second),
        }


@dataclass(frozen=True, slots=True)
class Input:
    """Files on disk, and the totals that must come out."""

    directory: Path
    rows: int
    rows_per_file: int
    totals: Totals
    suffix: str = ""
    """The suffix of the names of the sides that read it."""


class Side(Protocol):
    """Something to be measured."""

    @property
    def name(self) -> str:
        """Return what reports call it."""

    def run(self, passes: int) -> Run:
        """Read the input ``passes`` times; raises RuntimeError if the run fails or its output is wrong."""


def _new_directory(scratch: Path, name: str) -> Path:
    """Return a directory for one run, removed with all others at the end of the benchmark.

    It is not removed earlier, because executors clean up the state of an ended query in the background and write to it.
    """
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=scratch))


class _Stopwatch(SparkJobObserver):
    """Measures from the moment the subtasks are told to start, before any of them has opened a file.

    It stops at the end of the job, when all output is committed and the coordinator knows it.
    """

    def __init__(self) -> None:
        self.begin_s = self.end_s = 0.0
        self.attempts = self.checkpoints = 0

    def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
        self.attempts += 1

    def subtasks_placed(self, attempt: int, processes: Mapping[SubtaskId, SubtaskProcess]) -> None:
        self.begin_s = time.perf_counter()

    def checkpoint_completed(self, completed: CompletedCheckpoint) -> None:
        self.checkpoints += 1

    def job_ended(self, state: JobState, cause: Cause, reason: str) -> None:
        self.end_s = time.perf_counter()


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
        root = _new_directory(self.scratch, self.name)
        checkpoints = CheckpointConfig(self.interval_ms) if self.interval_ms is not None else None
        watch = _Stopwatch()
        runner = SparkJobRunner(
            self.spark,
            self._graph(passes),
            JobConfig(checkpoints, write_through=False),
            root,
            observer=watch,
            components=Components(state_backend=require_state_backend(self.backend)),
            # Nothing is killed here, so no preparation for a recovery is needed.
            options=SparkOptions(warm_executors=False),
        )
        with runner:
            end = runner.wait(_RUN_TIMEOUT_S)
        if end is None or end.state is not JobState.FINISHED or watch.attempts != 1:
            raise RuntimeError(
                f"{self.name} did not finish in one attempt: {end or runner.waiting_for()}, {watch.attempts} attempts"
            )
        require_equal(read_final_totals(root / "output"), self.source.totals.times(passes), self.name)
        seconds = watch.end_s - watch.begin_s
        return Run(self.name, self.source.rows * passes, seconds, passes, watch.checkpoints)

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
        root = _new_directory(self.scratch, self.name)
        link_copies(self.source.directory, root / "input", passes)
        progress = self._query(root)
        require_equal(read_final_totals(root / "output"), self.source.totals.times(passes), self.name)
        rows = sum(int(batch["numInputRows"]) for batch in progress)
        if rows != self.source.rows * passes:
            raise RuntimeError(f"{self.name} says that it read {rows} rows of {self.source.rows * passes}")
        return Run(self.name, rows, seconds_of(progress), passes, len(progress))

    def _query(self, root: Path) -> list[Mapping[str, Any]]:
        """Process all input and return the progress of each micro-batch that had data."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions

        def write(batch: DataFrame, number: int) -> None:
            # Overwriting makes a repeated batch harmless: with it, the output is exactly-once.
            batch.write.mode("overwrite").parquet(str(root / "output" / f"batch-{number:05d}"))

        for name, value in STREAMING_SETTINGS.items():
            self.spark.conf.set(name, value)
        query = (
            self.spark.readStream.schema("key bigint, value bigint")
            .option("maxFilesPerTrigger", self.files_per_trigger)
            .parquet(str(root / "input"))
            .groupBy("key")
            .agg(functions.count("*").alias("count"), functions.sum("value").alias("sum"))
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(root / "checkpoints"))
            .trigger(availableNow=True)
            .foreachBatch(write)
            .start()
        )
        try:
            if not query.awaitTermination(_RUN_TIMEOUT_S):
                raise RuntimeError(f"{self.name} did not end within {_RUN_TIMEOUT_S} s: {query.status}")
        except PySparkException as error:
            # Its text comes from the driver's JVM, which may be gone when somebody else asks for it.
            raise RuntimeError(f"{self.name} failed: {error}") from error
        else:
            return [batch for batch in query.recentProgress if batch["numInputRows"]]
        finally:
            query.stop()


def seconds_of(progress: Sequence[Mapping[str, Any]]) -> float:
    """Return the time from the start of the first micro-batch to the end of the last one's commit."""
    if not progress:
        raise RuntimeError("the query had no micro-batch with data")
    first, last = progress[0], progress[-1]
    started = (datetime.fromisoformat(batch["timestamp"]) for batch in (first, last))
    begin, begin_of_last = started
    return (begin_of_last - begin).total_seconds() + float(last["durationMs"]["triggerExecution"]) / 1_000.0
