"""A job with a union, a join, a broadcast and parallel edges on a real cluster is exact under a kill."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barrier_tck.harness.cluster.local_cluster import LocalCluster, LocalClusterConfig
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig, RestartConfig
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.functions import PerSubtask, Place, Row
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import Stream, StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import ParquetSource
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.runtime_errors import IncompatibleState
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.running_attempt import JobEnd
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver
from barrier_tck.reference_impl.spark.spark_options import session_settings

FLIGHTS = [{"id": number, "origin": number % 5, "hour": number % 24} for number in range(2_400)]
WEATHER = [
    {"station": origin, "at": hour, "degrees": 10.0 * origin + hour / 2}
    for origin in range(5)
    for hour in range(0, 24, 2)
]
RULES = [{"rule": f"rule {number}"} for number in range(3)]
JOINED, TOLD = 3, 2
CONFIG = JobConfig(CheckpointConfig(200, tolerated_failures=100), RestartConfig(10, 10))


def _told(place: Place) -> Callable[[Row, int], list[Row]]:
    """Turns records of three inputs into rows with the same columns; the second and third input reach every subtask."""

    def told(row: Row, number: int) -> list[Row]:
        at = str(place.subtask) if number else ""
        text = row["rule"] if number == 1 else ""
        return [
            {
                "input": number,
                "at": at,
                "text": text,
                "id": row.get("id", -1),
                "degrees": row.get("degrees", 0.0),
            }
        ]

    return told


def job(directory: Path, joined: int = JOINED, max_parallelism: int = 16) -> JobGraph:
    """Two sources of flights, one with an idle subtask, joined with the weather; rules and flights are broadcast."""
    begin = StreamJob("flights-and-weather", max_parallelism=max_parallelism)

    def source(name: str, parallelism: int, rate: float | None = None) -> Stream:
        return begin.source(
            ParquetSource(str(directory / name), batch_rows=40, rate_limit=rate), parallelism, name
        )

    flights = source("early", 2, 500).union(source("late", 2, 500).map(dict)).key_by("origin", "hour")
    weather = source("weather", 1).key_by("station", "at")
    pairs = flights.join(weather, ["id"], ["degrees"], parallelism=joined, name="joined")
    met = pairs.rebalance().connect(source("rules", 1).broadcast(), pairs.broadcast())
    told = met.process(PerSubtask(_told), parallelism=TOLD, name="told")
    return told.sink(FileSink("output")).build()


def write_inputs(directory: Path) -> None:
    half = len(FLIGHTS) // 2
    inputs: dict[str, list[list[Row]]] = {
        "early": [FLIGHTS[:half:2], FLIGHTS[1:half:2]],
        "late": [FLIGHTS[half:]],
        "weather": [WEATHER],
        "rules": [RULES],
    }
    for name, files in inputs.items():
        (directory / name).mkdir(parents=True)
        for number, rows in enumerate(files):
            pq.write_table(pa.Table.from_pylist(rows), directory / name / f"part-{number}.parquet")


def expected() -> list[Row]:
    """Return what must be committed, computed by nested loops."""
    pairs = [
        {"id": one["id"], "degrees": other["degrees"]}
        for one in FLIGHTS
        for other in WEATHER
        if (one["origin"], one["hour"]) == (other["station"], other["at"])
    ]
    places = [f"told[{index}]" for index in range(TOLD)]
    rows = [{"input": 0, "at": "", "text": "", **pair} for pair in pairs]
    rows += [
        {"input": 1, "at": at, "text": rule["rule"], "id": -1, "degrees": 0.0}
        for at in places
        for rule in RULES
    ]
    rows += [{"input": 2, "at": at, "text": "", **pair} for at in places for pair in pairs]
    return in_order(rows)


def in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["input"], row["at"], row["text"], row["id"], row["degrees"]))


class Killer(SparkJobObserver):
    """Kills the executor of a subtask once, when it stands at the watched point and a checkpoint is complete."""

    def __init__(self) -> None:
        self.runner: SparkJobRunner | None = None
        self.completed = 0
        self.struck: list[int] = []
        self.restored: list[int | None] = []

    def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
        self.restored.append(restored_checkpoint)

    def checkpoint_completed(self, completed: CompletedCheckpoint) -> None:
        self.completed += 1

    def point_reached(
        self, point: RuntimePoint, subtask: SubtaskId | None, attempt: int, checkpoint: int | None
    ) -> None:
        if subtask is not None and self.completed and not self.struck and self.runner is not None:
            self.struck.append(self.runner.subtask_processes()[subtask].executor_pid)
            os.kill(self.struck[0], signal.SIGKILL)


@pytest.mark.spark
@pytest.mark.nightly
def test_a_graph_is_exact_on_spark_and_what_it_leaves_is_taken_up_by_another_width_but_not_in_other_key_groups(
    tmp_path: Path,
) -> None:
    write_inputs(tmp_path / "in")
    graph, files, killer = job(tmp_path / "in"), tmp_path / "files", Killer()
    watched = [(RuntimePoint.SNAPSHOT_TAKEN, SubtaskId("joined", 1))]
    config = LocalClusterConfig(workers=2, cores_per_worker=6, memory_per_worker_mb=512, quick_start=True)
    with LocalCluster(config) as cluster, spark_session(cluster, "graphs", session_settings()) as spark:
        with SparkJobRunner(spark, graph, CONFIG, files, observer=killer, watched=watched) as runner:
            killer.runner = runner
            assert runner.wait(120) == JobEnd(JobState.FINISHED, "")
        before = stored(files)
        with (
            SparkJobRunner(spark, job(tmp_path / "in", max_parallelism=8), CONFIG, files) as runner,
            pytest.raises(IncompatibleState, match=r"its maximum parallelism is 8, .* in 16 key groups"),
        ):
            runner.wait(60)
        assert stored(files) == before
        narrower = Killer()
        with SparkJobRunner(
            spark, job(tmp_path / "in", joined=2), CONFIG, files, observer=narrower
        ) as runner:
            assert runner.wait(60) == JobEnd(JobState.FINISHED, "")
    names = [path for path in (files / "output").rglob("*.parquet") if "pending" not in str(path)]
    assert in_order([row for name in names for row in pq.read_table(name).to_pylist()]) == expected()
    assert len(killer.struck) == 1
    assert len(killer.restored) == 2 and killer.restored[1] is not None
    assert len(narrower.restored) == 1 and narrower.restored[0] is not None


def stored(files: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(files.rglob("*")) if path.is_file()}
