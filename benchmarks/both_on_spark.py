"""Running a job of the reference runtime and a query of Structured Streaming on one cluster, each timed on its own.

What is timed is the work alone: of the reference from the moment its subtasks are told to start, of a query from its
first micro-batch on. Both end when all of their output is committed.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from barrier_tck.harness.cluster.cluster_config import LocalClusterConfig
from barrier_tck.harness.cluster.local_cluster import LocalCluster
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver, SubtaskProcess
from barrier_tck.reference_impl.spark.spark_options import SparkOptions, session_settings
from benchmarks.cores import CORES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CLUSTER = LocalClusterConfig(
    # One executor. The reference's four subtasks hold one slot each, and Structured Streaming may read with as many
    # tasks. All processes of both share the same two cores.
    workers=1,
    cores_per_worker=2 * CORES,
    memory_per_worker_mb=3_072,
    driver_memory_mb=1_024,
)
SETTINGS = {
    **session_settings(),
    # Nothing is killed here, so a busy machine gets time and tasks get a second chance, as Spark does by default.
    "spark.network.timeout": "120s",
    "spark.task.maxFailures": "4",
}
STREAMING_SETTINGS: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": str(CORES),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Off by default in Spark; meant for frequent checkpoints.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}
CHECKPOINT_INTERVAL_MS = 1_000
DEFAULT_BACKEND = "heap"
REFERENCE_CLOCK = (
    "Reference: from the moment the subtasks, each in its Spark task, are told to start (before any connected, "
    "opened a file or read a record) to the end of the job, when the coordinator knows that all output is "
    "committed. Submitting the Spark stage and placing the subtasks is left out."
)
"""The note on what is timed of the reference."""
_RUN_TIMEOUT_S = 600


@contextlib.contextmanager
def session_on_both_cores(name: str) -> Iterator[SparkSession]:
    """Return a session on a cluster of this process's cores; both end at exit."""
    with LocalCluster(CLUSTER) as cluster, spark_session(cluster, name, SETTINGS) as spark:
        yield spark


def new_directory(scratch: Path, name: str) -> Path:
    """Return a directory for one run, removed with all others at the end of the benchmark.

    It is not removed earlier, because executors clean up the state of an ended query in the background and write to it.
    """
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=scratch))


class Stopwatch(SparkJobObserver):
    """Measures from the moment the subtasks are told to start, before any of them has opened a file.

    It stops at the end of the job, when all output is committed and the coordinator knows it.
    """

    def __init__(self) -> None:
        self.begin_s = self.end_s = 0.0
        self.attempts = self.checkpoints = 0

    @property
    def seconds(self) -> float:
        """Return the time in between."""
        return self.end_s - self.begin_s

    def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
        self.attempts += 1

    def subtasks_placed(self, attempt: int, processes: Mapping[SubtaskId, SubtaskProcess]) -> None:
        self.begin_s = time.perf_counter()

    def checkpoint_completed(self, completed: CompletedCheckpoint) -> None:
        self.checkpoints += 1

    def job_ended(self, state: JobState, cause: Cause, reason: str) -> None:
        self.end_s = time.perf_counter()


def run_job(
    spark: SparkSession,
    graph: JobGraph,
    root: Path,
    watch: Stopwatch,
    interval_ms: int | None = CHECKPOINT_INTERVAL_MS,
    backend: str = DEFAULT_BACKEND,
) -> None:
    """Run a job of the reference once, below ``root``; without an interval it takes no checkpoints.

    Raises RuntimeError if it does not finish in one attempt.
    """
    runner = SparkJobRunner(
        spark,
        graph,
        JobConfig(CheckpointConfig(interval_ms) if interval_ms is not None else None, write_through=False),
        root,
        observer=watch,
        components=Components(state_backend=require_state_backend(backend)),
        # Nothing is killed here, so no preparation for a recovery is needed.
        options=SparkOptions(warm_executors=False),
    )
    with runner:
        end = runner.wait(_RUN_TIMEOUT_S)
    if end is None or end.state is not JobState.FINISHED or watch.attempts != 1:
        raise RuntimeError(
            f"{graph.name} did not finish in one attempt: {end or runner.waiting_for()}, {watch.attempts} attempts"
        )


def run_query(writer: DataStreamWriter, root: Path, name: str) -> list[Mapping[str, Any]]:
    """Let a query process all its input, with its checkpoints below ``root``; return its micro-batches' progress.

    Raises RuntimeError if it fails, or does not end.
    """
    from pyspark.errors import PySparkException

    query = writer.option("checkpointLocation", str(root / "checkpoints")).trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(_RUN_TIMEOUT_S):
            raise RuntimeError(f"{name} did not end within {_RUN_TIMEOUT_S} s: {query.status}")
    except PySparkException as error:
        # Its text comes from the driver's JVM, which may be gone when somebody else asks for it.
        raise RuntimeError(f"{name} failed: {error}") from error
    else:
        return list(query.recentProgress)
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


def committed_table(directory: Path, columns: Sequence[str]) -> pa.Table:
    """Return some columns of all rows in the committed files below a directory, the files in the order of their names.

    Raises RuntimeError if there is no committed file.
    """
    files = [
        file
        for file in sorted(directory.rglob("*.parquet"))
        if not any(part.startswith(("_", ".")) for part in file.relative_to(directory).parts)
    ]
    if not files:
        raise RuntimeError(f"no committed file below {directory}")
    # Read one by one, by handle, so that directory names such as ``batch=3`` are not taken for columns.
    return pa.concat_tables([pq.ParquetFile(file).read(columns=list(columns)) for file in files])
