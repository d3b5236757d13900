"""Unaligned checkpoints on a real cluster: a slow subtask, records in flight, and an executor that is killed then."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from barrier_tck.harness.cluster.local_cluster import LocalCluster, LocalClusterConfig
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.reference_impl.config import CheckpointConfig, CheckpointMode, JobConfig, RestartConfig
from barrier_tck.reference_impl.operators.functions import Count, Emission, Sum, Vectorized
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import ParquetSource
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.running_attempt import JobEnd
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver
from barrier_tck.reference_impl.spark.spark_options import SparkOptions, session_settings

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

BATCH_ROWS, BATCHES, KEYS, SOURCES = 100, 60, 17, 2
PAUSE_S = 0.04
"""What the slow subtask takes for each of its batches; the sources take next to nothing."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    config = LocalClusterConfig(workers=2, cores_per_worker=6, memory_per_worker_mb=512, quick_start=True)
    with LocalCluster(config) as cluster, spark_session(cluster, "unaligned", session_settings()) as session:
        yield session


def slowly(batch: Any) -> Any:
    """Return the batch, late."""
    time.sleep(PAUSE_S)
    return batch


def write_input(directory: Path) -> Path:
    """Write rows (k, v), with v counting up over all files."""
    directory.mkdir()
    rows = BATCH_ROWS * BATCHES
    for file in range(SOURCES):
        values = range(file * rows, (file + 1) * rows)
        table = pa.table({"k": [value % KEYS for value in values], "v": list(values)})
        pq.write_table(table, directory / f"part-{file}.parquet")
    return directory


def expected() -> list[dict[str, int]]:
    """Return the totals, computed without the runtime."""
    values = range(SOURCES * BATCH_ROWS * BATCHES)
    return [
        {
            "k": key,
            "n": sum(value % KEYS == key for value in values),
            "total": sum(value for value in values if value % KEYS == key),
        }
        for key in range(KEYS)
    ]


def job(source: Path) -> JobGraph:
    """Two sources in front of two slow subtasks, all of whose queues fill up at once."""
    return (
        StreamJob("totals", max_parallelism=16)
        .source(ParquetSource((str(source),), batch_rows=BATCH_ROWS), SOURCES, "source")
        .rebalance()
        .map(Vectorized(lambda row: row, slowly), parallelism=2, name="slow")
        .key_by("k")
        .aggregate({"n": Count(), "total": Sum("v")}, emit=Emission.FINAL, parallelism=2, name="totals")
        .sink(FileSink("out"), parallelism=1)
        .build()
    )


def committed(files: Path) -> list[dict[str, int]]:
    """Return every committed row, ordered by key; a row that was committed twice appears twice."""
    names = sorted(path for path in (files / "out").rglob("*.parquet") if "pending" not in str(path))
    rows = [row for name in names for row in pq.read_table(name).to_pylist()]
    return sorted(rows, key=lambda row: row["k"])


class Killer(SparkJobObserver):
    """Kills the executor of a slow subtask, each time a checkpoint with records in flight has completed."""

    def __init__(self, kills: int) -> None:
        """Take how often to strike."""
        self.kills = kills
        self.runner: SparkJobRunner | None = None
        self.restored: list[int | None] = []
        self.in_flight: dict[int, int] = {}
        self.alignment_ms: dict[int, float] = {}

    def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
        self.restored.append(restored_checkpoint)

    def acknowledged(self, message: Any) -> None:
        slowest = max(self.alignment_ms.get(message.checkpoint, 0.0), message.metrics.alignment_ms)
        self.alignment_ms[message.checkpoint] = slowest

    def checkpoint_completed(self, completed: CompletedCheckpoint) -> None:
        channels = [part.channels for part in completed.snapshots if part.channels is not None]
        contents = [content for one in channels for content in (*one.inputs, *one.outputs)]
        self.in_flight[completed.checkpoint] = sum(content.buffers for content in contents)
        if self.in_flight[completed.checkpoint] and self.kills and self.runner is not None:
            self.kills -= 1
            processes = self.runner.subtask_processes()
            victim = next(subtask for subtask in processes if subtask.vertex == "slow")
            os.kill(processes[victim].executor_pid, signal.SIGKILL)


def run(
    spark: SparkSession, tmp_path: Path, killer: Killer, mode: CheckpointMode, options: SparkOptions
) -> JobEnd | None:
    checkpoints = CheckpointConfig(
        300, mode, tolerated_failures=100, alignment_timeout_ms=50, retained=2, max_concurrent=2
    )
    config = JobConfig(checkpoints, RestartConfig(10, 10))
    graph = job(write_input(tmp_path / "in"))
    with SparkJobRunner(spark, graph, config, tmp_path / "files", observer=killer, options=options) as runner:
        killer.runner = runner
        return runner.wait(120)


@pytest.mark.parametrize(
    ("mode", "channel_bytes"),
    [
        (CheckpointMode.UNALIGNED, 32 << 20),
        (CheckpointMode.UNALIGNED, 8 * 500),
        (CheckpointMode.ALIGNED_TIMEOUT, 32 << 20),
    ],
    ids=["unaligned", "unaligned, batches in fragments", "aligned, then unaligned"],
)
def test_records_in_flight_are_restored_and_counted_once_although_executors_are_killed(
    spark: SparkSession, tmp_path: Path, mode: CheckpointMode, channel_bytes: int
) -> None:
    killer = Killer(2)
    end = run(spark, tmp_path, killer, mode, SparkOptions(channel_bytes=channel_bytes))
    assert end == JobEnd(JobState.FINISHED, "")
    assert committed(tmp_path / "files") == expected()
    assert killer.kills == 0
    assert len(killer.restored) == 3
    assert all(killer.in_flight[one] for one in killer.restored[1:] if one is not None)
    print(killer.restored, killer.in_flight, killer.alignment_ms)
