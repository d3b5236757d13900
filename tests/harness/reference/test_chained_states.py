"""Two stateful operators with several named states in one chain: the same job is exact in both worlds under kills."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.vocabulary import After, ScheduledFault
from barrier_tck.faults.vocabulary import ProtocolPoint as FaultPoint
from barrier_tck.harness.cluster.local_cluster import LocalCluster, LocalClusterConfig
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, DeploymentPlan, RestartPlan, TrialPlan
from barrier_tck.harness.reference.jobs import job_config
from barrier_tck.harness.reference.simulated.simulated_system import committed_rows
from barrier_tck.harness.reference.simulated.simulated_targets import SimulatedTargets
from barrier_tck.harness.reference.simulated.world import SimulatedWorld
from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.harness.trial.nemesis import Nemesis
from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig, RestartConfig
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.operators.api import Source
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import KeyedStream, StreamJob
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource, ParquetSource
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.job_observer import JobObserver
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.running_attempt import JobEnd
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver
from barrier_tck.reference_impl.spark.spark_options import session_settings
from barrier_tck.reference_impl.state.keyed import KeyedStates

KEYS, FILES = 11, 2
BACKENDS = ("heap", "rocksdb")


class Numbers:
    """Numbers the records of a key, and adds the previous record's value: two states."""

    def open(self, states: KeyedStates) -> None:
        self.count = states.reducing("count", int, lambda first, second: first + second)
        self.last = states.value("last", int)

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        count, last = self.count.of(group, key), self.last.of(group, key)
        before = last.get()
        count.add(1)
        last.set(row["v"])
        yield {**row, "n": count.get(), "before": -1 if before is None else before}


class Sums:
    """Sums up, and counts how often each value came; its states have the same names as the other operator's."""

    def open(self, states: KeyedStates) -> None:
        self.sum = states.value("count", int)
        self.seen = states.map("last", int, int)

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        total, seen = self.sum.of(group, key), self.seen.of(group, key)
        total.set((total.get() or 0) + row["v"])
        last_digit = row["v"] % 10
        seen.put(last_digit, (seen.get(last_digit) or 0) + 1)
        yield {**row, "total": total.get(), "alike": seen.get(last_digit)}


def job(source: Source, parallelism: int = 2) -> JobGraph:
    keyed = StreamJob("chained", max_parallelism=16).source(source, FILES, "source").key_by("k")
    first = keyed.process(Numbers, parallelism=parallelism, name="numbers")
    chain = first.key_by("k").process(Sums, name="sums", chain=True)
    return chain.sink(FileSink("output"), parallelism=1, chain=False).build()


def require_exact(found: list[Row], values: range) -> None:
    """Every record is there once, and both operators' values follow from the earlier records of its key."""
    assert sorted(row["v"] for row in found) == list(values)
    for key in range(KEYS):
        rows = sorted((row for row in found if row["k"] == key), key=lambda row: row["n"])
        assert [row["n"] for row in rows] == list(range(1, len(rows) + 1))
        total, before, digits = 0, -1, [0] * 10
        for row in rows:
            total += row["v"]
            digits[row["v"] % 10] += 1
            assert (row["before"], row["total"], row["alike"]) == (before, total, digits[row["v"] % 10])
            before = row["v"]


def test_both_operators_are_in_one_chain_with_stores_of_their_own() -> None:
    graph = job(CollectionSource((("s", ({"k": 1, "v": 1},)),), batch_records=1))
    assert [[operator.uid for operator in vertex.operators][:2] for vertex in graph.vertices][1] == [
        "numbers",
        "sums",
    ]


def test_a_function_is_chained_only_where_its_keys_are() -> None:
    source = CollectionSource((("s", ({"k": 1, "v": 1},)),), batch_records=1)
    stream = StreamJob("j").source(source, 2, "source")
    with pytest.raises(JobUsageError, match="'sums' cannot be chained to 'source'"):
        stream.key_by("k").process(Sums, name="sums", chain=True)
    keyed = stream.key_by("k").process(Numbers, parallelism=2, name="numbers")
    with pytest.raises(JobUsageError, match=r"not partitioned by \('v',\)"):
        keyed.key_by("v").process(Sums, name="sums", chain=True)
    with pytest.raises(JobUsageError, match="into 3"):
        keyed.key_by("k").process(Sums, name="sums", parallelism=3, chain=True)
    assert isinstance(keyed.key_by("v"), KeyedStream)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("point", [FaultPoint.SNAPSHOT_TAKEN, FaultPoint.COMPLETION_NOTIFIED])
def test_the_chain_is_exact_in_the_simulator_while_its_executor_is_killed(
    backend: str, point: FaultPoint
) -> None:
    values = range(300)
    splits = tuple(
        (f"split-{number}", tuple({"k": v % KEYS, "v": v} for v in values[number::FILES]))
        for number in range(FILES)
    )
    graph = job(CollectionSource(splits, batch_records=5, rate_limit=500))
    kill = ScheduledFault(KillExecutor("numbers[0]"), After(point, "numbers[0]", 2))
    plan = TrialPlan(
        deployment=DeploymentPlan(executors=3),
        checkpoints=CheckpointPlan(interval_ms=60),
        restart=RestartPlan(attempts_max=3, delay_ms=5),
        faults=(kill,),
        state_backend=backend,
    )
    nemesis = Nemesis(plan.faults)
    restored: list[int | None] = []

    class Observer(JobObserver):
        def attempt_started(self, attempt: int, restored_checkpoint: int | None) -> None:
            restored.append(restored_checkpoint)

    components = Components(state_backend=require_state_backend(backend))
    world = SimulatedWorld(plan, graph, job_config(plan), RowPlane(), components, Observer(), nemesis)
    try:
        assert world.run(SimulatedTargets(world))
        assert world.coordinator.driver.state is JobState.FINISHED
        require_exact([dict(row) for row in committed_rows(world.read_only_files())[0]], values)
    finally:
        world.release()
    assert len(restored) == 2 and restored[1] is not None


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    config = LocalClusterConfig(workers=2, cores_per_worker=5, memory_per_worker_mb=512, quick_start=True)
    with LocalCluster(config) as cluster, spark_session(cluster, "chained", session_settings()) as session:
        yield session


class Killer(SparkJobObserver):
    """Kills an executor once, when a subtask stands at the watched point and a checkpoint is complete."""

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
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_chain_is_exact_on_spark_while_its_executor_is_killed(
    backend: str, spark: Any, tmp_path: Path
) -> None:
    values = range(4_000)
    for number in range(FILES):
        mine = list(values[number::FILES])
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(
            pa.table({"k": [v % KEYS for v in mine], "v": mine}), tmp_path / f"in/part-{number}.parquet"
        )
    graph = job(ParquetSource((str(tmp_path / "in"),), batch_rows=50, rate_limit=1_500))
    killer = Killer()
    config = JobConfig(CheckpointConfig(200, tolerated_failures=100), RestartConfig(10, 10))
    watched = [(RuntimePoint.SNAPSHOT_TAKEN, SubtaskId("numbers", 0))]
    components = Components(state_backend=require_state_backend(backend))
    with SparkJobRunner(
        spark, graph, config, tmp_path / "files", observer=killer, watched=watched, components=components
    ) as runner:
        killer.runner = runner
        assert runner.wait(120) == JobEnd(JobState.FINISHED, "")
    names = [path for path in (tmp_path / "files/output").rglob("*.parquet") if "pending" not in str(path)]
    require_exact([row for name in names for row in pq.read_table(name).to_pylist()], values)
    assert len(killer.struck) == 1
    assert len(killer.restored) == 2 and killer.restored[1] is not None
