"""One small job on a real standalone cluster: it finishes, and it survives SIGKILLs aimed at protocol points."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from barrier_tck.harness.cluster.local_cluster import LocalCluster, LocalClusterConfig
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig, RestartConfig
from barrier_tck.reference_impl.ids import AttemptNumber, SubtaskId
from barrier_tck.reference_impl.operators.functions import Count, Emission, Row, Sum
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import ParquetSource
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.protocol.causes import Cause
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.routes import Address, ChannelEnds, DirectRoutes
from barrier_tck.reference_impl.spark.running_attempt import JobEnd
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver
from barrier_tck.reference_impl.spark.spark_options import SparkOptions, session_settings
from barrier_tck.reference_impl.spark.transport import ChannelServer
from barrier_tck.reference_impl.state.keyed import KeyedStates

pytestmark = [pytest.mark.spark, pytest.mark.long]

ROWS, KEYS, FILES = 6_000, 17, 2
CONFIG = JobConfig(CheckpointConfig(200, tolerated_failures=100), RestartConfig(10, 10))


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    config = LocalClusterConfig(workers=2, cores_per_worker=5, memory_per_worker_mb=512, quick_start=True)
    with LocalCluster(config) as cluster, spark_session(cluster, "end-to-end", session_settings()) as session:
        yield session


def write_input(directory: Path) -> Path:
    """Write rows (k, v), with v counting up over all files."""
    directory.mkdir()
    for file in range(FILES):
        values = range(file * ROWS, (file + 1) * ROWS)
        table = pa.table({"k": [value % KEYS for value in values], "v": list(values)})
        pq.write_table(table, directory / f"part-{file}.parquet")
    return directory


def expected() -> list[dict[str, int]]:
    """Return the totals, computed without the runtime."""
    values = range(FILES * ROWS)
    return [
        {
            "k": key,
            "n": sum(value % KEYS == key for value in values),
            "total": sum(value for value in values if value % KEYS == key),
        }
        for key in range(KEYS)
    ]


def job(source: Path, rows_per_second: int) -> JobGraph:
    return (
        StreamJob("totals", max_parallelism=16)
        .source(ParquetSource((str(source),), batch_rows=100, rate_limit=rows_per_second), FILES, "source")
        .key_by("k")
        .aggregate({"n": Count(), "total": Sum("v")}, emit=Emission.FINAL, parallelism=2, name="totals")
        .sink(FileSink("out"), parallelism=1)
        .build()
    )


def committed(files: Path, column: str = "k") -> list[dict[str, int]]:
    """Return every committed row, ordered by a column; a row that was committed twice appears twice."""
    names = sorted(path for path in (files / "out").rglob("*.parquet") if "pending" not in str(path))
    rows = [row for name in names for row in pq.read_table(name).to_pylist()]
    return sorted(rows, key=lambda row: row[column])


class Killer(SparkJobObserver):
    """Kills the executor, or only the worker, of a subtask that stands at a watched point."""

    def __init__(self, kills: dict[RuntimePoint, int], executor: bool = True) -> None:
        """Take how often to strike at each point."""
        self.kills = dict(kills)
        self.executor = executor
        self.struck: list[tuple[RuntimePoint, int]] = []
        self.attempts: list[tuple[int, int | None]] = []
        self.completed: list[int] = []
        self.reasons: list[str] = []
        self.runner: SparkJobRunner | None = None

    def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
        self.attempts.append((attempt, restored_checkpoint))

    def attempt_ended(self, attempt: int, cause: Cause, reason: str) -> None:
        self.reasons.append(reason)

    def checkpoint_completed(self, completed: CompletedCheckpoint) -> None:
        self.completed.append(completed.checkpoint)

    def point_reached(
        self, point: RuntimePoint, subtask: SubtaskId | None, attempt: int, checkpoint: int | None
    ) -> None:
        if subtask is None or not self.completed or not self.kills.get(point) or self.runner is None:
            return
        self.kills[point] -= 1
        self.struck.append((point, attempt))
        process = self.runner.subtask_processes()[subtask]
        os.kill(process.executor_pid if self.executor else process.worker_pid, signal.SIGKILL)


def run(
    spark: SparkSession, graph: JobGraph, files: Path, killer: Killer, watched: list[RuntimePoint]
) -> JobEnd | None:
    points = [(point, SubtaskId("totals", 0)) for point in watched]
    with SparkJobRunner(spark, graph, CONFIG, files, observer=killer, watched=points) as runner:
        killer.runner = runner
        return runner.wait(120)


def test_a_job_finishes_with_the_exact_output_and_leaves_no_thread(
    spark: SparkSession, tmp_path: Path
) -> None:
    observer = Killer({})
    end = run(spark, job(write_input(tmp_path / "in"), 6_000), tmp_path / "files", observer, [])
    assert end == JobEnd(JobState.FINISHED, "")
    assert committed(tmp_path / "files") == expected()
    assert observer.attempts == [(1, None)]
    assert len(observer.completed) >= 2
    assert not [thread.name for thread in threading.enumerate() if thread.name in ("coordinator", "metadata")]


def test_the_output_is_exact_although_executors_are_killed_at_protocol_points(
    spark: SparkSession, tmp_path: Path
) -> None:
    points = [RuntimePoint.SNAPSHOT_TAKEN, RuntimePoint.RESTORE_STARTED]
    killer = Killer(dict.fromkeys(points, 1))
    end = run(spark, job(write_input(tmp_path / "in"), 2_000), tmp_path / "files", killer, points)
    assert end == JobEnd(JobState.FINISHED, "")
    assert committed(tmp_path / "files") == expected()
    assert killer.struck == [(RuntimePoint.SNAPSHOT_TAKEN, 1), (RuntimePoint.RESTORE_STARTED, 2)]
    assert [attempt for attempt, _ in killer.attempts] == [1, 2, 3]
    assert all(restored is not None for _, restored in killer.attempts[1:])


def test_the_output_is_exact_although_a_worker_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    points = [RuntimePoint.BARRIER_FORWARDED]
    killer = Killer(dict.fromkeys(points, 1), executor=False)
    end = run(spark, job(write_input(tmp_path / "in"), 3_000), tmp_path / "files", killer, points)
    assert end == JobEnd(JobState.FINISHED, "")
    assert committed(tmp_path / "files") == expected()
    assert [attempt for attempt, _ in killer.attempts] == [1, 2]
    assert "totals[0] (worker" in killer.reasons[0], "the reason names the process that died, not a symptom"


def test_a_subtask_that_falls_silent_is_replaced_and_cannot_come_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    """SIGSTOP looks like a partition: the process lives, holds its files, and says nothing (REC-2)."""
    frozen: list[int] = []

    class Freezer(Killer):
        def point_reached(
            self, point: RuntimePoint, subtask: SubtaskId | None, attempt: int, checkpoint: int | None
        ) -> None:
            if subtask is not None and self.completed and not frozen and self.runner is not None:
                frozen.append(self.runner.subtask_processes()[subtask].worker_pid)
                os.kill(frozen[0], signal.SIGSTOP)

        def attempt_running(self, attempt: int) -> None:
            if attempt == 2:
                with contextlib.suppress(ProcessLookupError):  # Spark may have killed it in the meantime.
                    os.kill(frozen[0], signal.SIGCONT)

    freezer = Freezer({})
    options = SparkOptions(heartbeat_interval_ms=100, heartbeat_timeout_ms=1_000)
    point = (RuntimePoint.SNAPSHOT_TAKEN, SubtaskId("totals", 1))
    graph = job(write_input(tmp_path / "in"), 3_000)
    with SparkJobRunner(
        spark, graph, CONFIG, tmp_path / "files", observer=freezer, watched=[point], options=options
    ) as runner:
        freezer.runner = runner
        assert runner.wait(90) == JobEnd(JobState.FINISHED, "")
    assert len(frozen) == 1
    assert [attempt for attempt, _ in freezer.attempts] == [1, 2]
    assert "silent for more than 1000 ms" in freezer.reasons[0]
    assert committed(tmp_path / "files") == expected()


def test_a_channel_that_leads_nowhere_fails_the_attempt_and_the_next_one_takes_another_route(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The address table passes through the route, so a proxy can be inserted without the runtime knowing."""
    dead = ChannelServer("127.0.0.1")
    dead.close()
    asked: list[str] = []
    options = SparkOptions(connect_timeout_ms=500)

    class Detour(DirectRoutes):
        def to_channels(self, channels: Sequence[tuple[ChannelEnds, Address]]) -> Sequence[Address]:
            first = not asked
            asked.extend(str(ends.channel) for ends, _ in channels)
            direct = [address for _, address in channels]
            return [("127.0.0.1", dead.port), *direct[1:]] if first else direct

    observer = Killer({})
    graph = job(write_input(tmp_path / "in"), 60_000)
    with SparkJobRunner(
        spark, graph, CONFIG, tmp_path / "files", observer=observer, routes=Detour(), options=options
    ) as runner:
        assert runner.wait(60) == JobEnd(JobState.FINISHED, "")
    assert [attempt for attempt, _ in observer.attempts] == [AttemptNumber(1), AttemptNumber(2)]
    assert len(asked) == 2 * len(graph.channels)
    assert committed(tmp_path / "files") == expected()


def test_a_runner_that_is_closed_ends_its_job_and_frees_the_cluster(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph = job(write_input(tmp_path / "in"), 100)
    running = threading.Event()
    attempts: list[int] = []

    class Observer(SparkJobObserver):
        def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
            attempts.append(attempt)

        def attempt_running(self, attempt: int) -> None:
            running.set()

    runner = SparkJobRunner(spark, graph, CONFIG, tmp_path / "files", observer=Observer())
    runner.start()
    assert running.wait(60)
    runner.close()
    end = runner.wait(0)
    assert end is not None
    assert end.state is JobState.FAILED
    assert spark.sparkContext.parallelize(range(10), 10).count() == 10
    assert attempts == [1]


def test_an_observer_that_raises_is_reported_and_not_taken_for_a_failure_of_the_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    class Broken(SparkJobObserver):
        def attempt_running(self, attempt: int) -> None:
            raise ValueError("broken")

    graph = job(write_input(tmp_path / "in"), 100)
    with (
        SparkJobRunner(spark, graph, CONFIG, tmp_path / "files", observer=Broken()) as runner,
        pytest.raises(RuntimeError, match="the coordinator crashed"),
    ):
        runner.wait(60)


def test_timers_that_are_always_due_hold_up_neither_checkpoints_nor_the_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each goes off 2 ms after it should, and sets the next one for 1 ms after its own time. So one is always due."""

    class Ever:
        def open(self, states: KeyedStates, timers: KeyedTimers) -> None:
            self.timers = timers

        def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
            self.timers.set(group, key, self.timers.now_ms)
            return (row,) if row["v"] % 100 == 0 else ()

        def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
            time.sleep(0.002)
            if not self.timers.ended:
                self.timers.set(group, key, at_ms + 1)
            return ()

    source = ParquetSource((str(write_input(tmp_path / "in")),), batch_rows=200, rate_limit=3_000)
    timed = StreamJob("timed", max_parallelism=16).source(source, FILES, "source").key_by("k")
    graph = timed.process(Ever, 2, "ever", timers=True).sink(FileSink("out"), parallelism=1).build()
    observer = Killer({})
    end = run(spark, graph, tmp_path / "files", observer, [])
    assert end == JobEnd(JobState.FINISHED, "")
    assert len(observer.completed) > 2 and observer.attempts == [(1, None)]
    assert [row["v"] for row in committed(tmp_path / "files", "v")] == list(range(0, FILES * ROWS, 100))
