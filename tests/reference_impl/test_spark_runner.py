"""The runner's own threads, without Spark: what may be asked on which thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barrier_tck.reference_impl.config import CheckpointConfig, CheckpointMode, JobConfig, RestartConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import ParquetSource
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime_errors import IncompatibleState, JobUsageError, StorageError
from barrier_tck.reference_impl.spark import deployment
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.running_attempt import JobEnd, RunningAttempt
from barrier_tck.reference_impl.storage.checkpoint_storage import FileCheckpointStorage
from tests.waiting import PATIENCE_S


class Machine:
    """Notes the thread on which it is asked."""

    def __init__(self) -> None:
        self.asked_on: list[str] = []

    def waiting_for(self) -> tuple[str, ...]:
        self.asked_on.append(threading.current_thread().name)
        return ("the end of the input",)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[SparkJobRunner, Machine]]:
    spark: Any = SimpleNamespace(sparkContext=None)
    graph: Any = SimpleNamespace(name="job")
    runner, machine = SparkJobRunner(spark, graph, JobConfig(), tmp_path), Machine()
    driver: Any = SimpleNamespace(waiting_for=machine.waiting_for, ended=False)
    runner._driver = driver
    runner._loop.start()
    yield runner, machine
    assert runner._loop.stop(5.0)


def test_the_coordinator_is_asked_on_its_own_thread(running: tuple[SparkJobRunner, Machine]) -> None:
    """On any other thread it would be read while it changes."""
    runner, machine = running
    assert runner.waiting_for() == ("the end of the input",)
    assert machine.asked_on == ["coordinator"]


def test_a_job_that_does_not_fit_its_stored_state_is_no_crash_of_the_coordinator(
    running: tuple[SparkJobRunner, Machine],
) -> None:
    runner, _ = running
    service: Any = SimpleNamespace(close_attempt=lambda: None)
    runner._service = service

    def refuse() -> None:
        raise IncompatibleState("vertex 'totals' has parallelism 3")

    runner._loop.post(refuse)
    with pytest.raises(IncompatibleState, match="parallelism 3"):
        runner.wait(PATIENCE_S)


@pytest.mark.parametrize(("ended", "told"), [(True, []), (False, [1])])
def test_the_coordinator_hears_of_the_end_of_a_stage_that_it_stopped_and_of_no_other(
    running: tuple[SparkJobRunner, Machine], ended: bool, told: list[int]
) -> None:
    """When the job has ended, its subtasks leave by themselves and the stage ends, so there is nothing to report."""
    runner, machine = running
    heard: list[int] = []
    driver: Any = SimpleNamespace(
        machine=machine,
        waiting_for=machine.waiting_for,
        ended=ended,
        on_attempt_stopped=heard.append,
        state=JobState.FINISHED,
        stopped_with=None,
        reason="",
    )
    runner._driver = driver
    stage: Any = None
    runner._attempt = RunningAttempt(1, runner._graph, None, stage, stopping=True)
    runner._loop.post(lambda: runner._stage_ended(1, []))
    runner.waiting_for()
    assert heard == told
    assert runner.wait(0.0 if not ended else PATIENCE_S) == (JobEnd(JobState.FINISHED, "") if ended else None)


def test_a_coordinator_that_does_not_answer_is_what_the_job_waits_for(
    running: tuple[SparkJobRunner, Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, machine = running
    goes_on = threading.Event()

    def stand_still() -> None:
        goes_on.wait()

    runner._loop.post(stand_still)
    monkeypatch.setattr(deployment, "_ANSWER_TIMEOUT_S", 0.05)
    (waits,) = runner.waiting_for()
    assert "an answer of the coordinator's event loop" in waits
    assert machine.asked_on == []
    goes_on.set()


class NeverReserves(FileCheckpointStorage):
    """A disk on which no attempt number can be made durable."""

    def reserve(self, checkpoint: CheckpointId, attempt: AttemptNumber) -> None:
        raise StorageError("the disk is full")


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_job_ends_although_none_of_its_attempts_could_be_deployed(tmp_path: Path, restarts: int) -> None:
    """No Spark stage exists whose end would tell the coordinator that such an attempt is gone.

    The coordinator's storage is a component, as its subtasks' is: the full disk is planted there.
    """
    conf = SimpleNamespace(get=lambda _: None)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))
    graph = (
        StreamJob("job", max_parallelism=16)
        .source(ParquetSource(("in",)), 1)
        .sink(FileSink("out"), 1)
        .build()
    )
    config = JobConfig(restart=RestartConfig(attempts_max=restarts))
    full = Components(checkpoint_storage=NeverReserves)
    with SparkJobRunner(spark, graph, config, tmp_path, components=full) as runner:
        end = runner.wait(PATIENCE_S)
    assert end is not None, "the job waits for the end of an attempt that never began"
    assert end.state is JobState.FAILED
    assert "attempt number could not be made durable: the disk is full" in end.reason


def test_a_loop_in_at_least_once_mode_is_refused_before_anything_is_deployed(tmp_path: Path) -> None:
    conf = SimpleNamespace(get=lambda _: None)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))
    read = StreamJob("job", max_parallelism=16).source(ParquetSource(("in",)), 1)
    graph = read.iterate(lambda rows: ((kept := rows.filter(bool)), kept)).sink(FileSink("out"), 1).build()
    config = JobConfig(checkpoints=CheckpointConfig(100, CheckpointMode.AT_LEAST_ONCE))
    runner = SparkJobRunner(spark, graph, config, tmp_path)
    with pytest.raises(JobUsageError, match="wait for ever for its own barrier"), runner:
        pytest.fail("the job was started")
    assert runner.wait(0.0) is not None, "the runner was closed"


def test_the_stop_of_an_attempt_that_was_never_deployed_leaves_the_one_before_it_alone(
    running: tuple[SparkJobRunner, Machine],
) -> None:
    runner, machine = running
    heard: list[int] = []
    driver: Any = SimpleNamespace(
        waiting_for=machine.waiting_for, ended=False, on_attempt_stopped=heard.append
    )
    runner._driver = driver
    stage: Any = None
    before = runner._attempt = RunningAttempt(1, runner._graph, None, stage, stage_ended=True)
    runner._loop.post(lambda: runner.stop(2, "no attempt number"))
    runner.waiting_for()
    runner.waiting_for()
    assert (heard, before.stopping) == ([2], False)


@pytest.mark.parametrize(
    ("left", "told"), [(6, ["not every subtask ran before executors were lost"]), (8, [])]
)
def test_an_attempt_fails_if_slots_that_were_counted_for_it_are_gone_before_it_runs(
    running: tuple[SparkJobRunner, Machine], monkeypatch: pytest.MonkeyPatch, left: int, told: list[str]
) -> None:
    """Spark notices the death of an executor a moment after the coordinator does, which may have counted it."""
    runner, machine = running
    counts = iter([8])
    monkeypatch.setattr(deployment, "slots_of", lambda _: next(counts, left))
    monkeypatch.setattr(deployment, "BarrierStage", lambda *_: SimpleNamespace(start=lambda: None))
    heard: list[str] = []
    driver: Any = SimpleNamespace(
        waiting_for=machine.waiting_for,
        ended=False,
        state=JobState.DEPLOYING,
        on_attempt_failed=lambda attempt, reason: heard.append(reason.partition(";")[0]),
    )
    service: Any = SimpleNamespace(host="127.0.0.1", port=1, admit_attempt=lambda attempt: None)
    graph: Any = SimpleNamespace(name="job", subtasks=tuple(range(8)))
    runner._driver, runner._service = driver, service
    asked: list[int] = []
    runner._loop.post(lambda: asked.append(runner.slots()))
    runner._loop.post(lambda: runner.deploy(1, graph, None))
    runner.waiting_for()
    runner.waiting_for()
    assert asked == [8] and heard == told
