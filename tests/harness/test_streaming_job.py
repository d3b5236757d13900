"""A user's streaming job without Spark: its definition, what it shows of itself, and what is drawn for it."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.targets import NoTargets, TargetGone
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint
from barrier_tck.harness import StreamingJob, TrialPlan, UsageProblem, WorkloadPlan
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, SystemSection
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.cli import campaign_command
from barrier_tck.harness.cli.main import run as run_command
from barrier_tck.harness.cluster.driver.peer import RemoteError
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.record.history import End, History, OutputComparison, OutputCounts, StateComparison
from barrier_tck.harness.record.operations import Committed
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.streaming import query_run
from barrier_tck.harness.streaming.checkpoint_outages import CheckpointOutages
from barrier_tck.harness.streaming.committed_output import CommittedOutput
from barrier_tck.harness.streaming.driver.state_judge import rows_read
from barrier_tck.harness.streaming.query_definition import QueryPlace, QueryState
from barrier_tck.harness.streaming.query_run import QueryDrivers, QueryRun
from barrier_tck.harness.streaming.query_targets import TASKS, QueryTargets
from barrier_tck.harness.streaming.state_in_between import StateInBetween
from barrier_tck.harness.streaming.structured_streaming import POINTS, StructuredStreaming
from barrier_tck.harness.system.system_names import open_system, reference_of
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import checkers_of

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "my_streaming_job"


def same(frame: Any) -> Any:
    return frame


def written(batch: Any, batch_id: int, place: QueryPlace) -> None:
    raise AssertionError("no Spark runs here")


def started(spark: Any, place: QueryPlace) -> Any:
    raise AssertionError("no Spark runs here")


job = StreamingJob(query=same, sink=written)
to_files = StreamingJob(query=same)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"output_mode": "upsert"}, "output_mode is 'upsert'"),
        ({"delivery": "maybe"}, "delivery is 'maybe'"),
        ({"sink": "csv"}, "sink is 'csv'; name one of parquet, orc"),
        ({"sink": "parquet", "output_mode": "complete"}, "a file sink only appends"),
        ({"latest_by": ("key",)}, "latest_by is for output_mode 'update'"),
        (
            {"output_mode": "update", "sink": written, "final_by": "at"},
            "final_by is for output_mode 'append'",
        ),
    ],
)
def test_a_job_that_contradicts_itself_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageProblem, match=told):
        StreamingJob(query=same, **fields)


def test_a_job_is_found_again_by_the_name_of_its_module() -> None:
    assert job.address == f"{__name__}:job"
    with pytest.raises(UsageProblem, match="must be bound to a name"):
        _ = StreamingJob(query=same, sink=written).address


def test_a_job_is_opened_by_its_name_and_opened_again_by_the_same_name() -> None:
    for name in (f"{__name__}:job", "structured-streaming"):
        system = open_system(name)
        assert isinstance(system, StructuredStreaming)
        assert reference_of(system) == name


def test_a_view_has_the_points_that_the_sink_and_its_tasks_pass() -> None:
    plan = TrialPlan(workload=WorkloadPlan(batches=3))
    view = StructuredStreaming(job).job(plan)
    assert set(view.shows) == set(POINTS)
    assert view.times(ProtocolPoint.ALL_ACKNOWLEDGED, None) == 3
    assert view.times(ProtocolPoint.SNAPSHOT_TAKEN, TASKS) == 3
    # Spark's own sinks call nothing of ours in the driver.
    assert StructuredStreaming(to_files).job(plan).coordinator_passes == {}


def test_a_directory_gives_no_more_batches_than_it_has_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"{name}.parquet")
    system = StructuredStreaming(StreamingJob(query=same, sink=written, input=tmp_path))
    assert system.job(TrialPlan()).times(ProtocolPoint.ALL_ACKNOWLEDGED, None) == 2
    assert system.profiles[0].batches == (2, 2)


def test_the_output_is_judged_by_the_batch_and_by_no_model_of_the_workload() -> None:
    names = [checker.name for checker in checkers_of(TrialPlan(), StructuredStreaming(job))]
    assert names == ["progress", "faults-fired", "committed-output"]


def test_state_is_judged_if_the_job_says_what_it_keeps() -> None:
    keeps = replace(job, state=QueryState(of=same))
    assert [checker.name for checker in checkers_of(TrialPlan(), StructuredStreaming(keeps))][-1] == (
        StateInBetween.name
    )


def test_a_query_that_its_user_starts_is_hit_where_nothing_of_ours_stands() -> None:
    system = StructuredStreaming(replace(to_files, start=started))
    assert not system.job(TrialPlan()).shows
    assert Capability.WORKER_KILL not in system.capabilities
    assert [kind for kind, _ in system.profiles[0].kinds] == ["coordinator", "executor", "pause-executor"]
    configuration = CampaignConfiguration(system=SystemSection(f"{__name__}:job"), trials=20)
    for plan in islice(campaign_plans(configuration, system), 20):
        check_plan(plan, system)
        assert all(isinstance(one.trigger, At) for one in plan.faults)


def test_drawn_trials_pause_processes_and_hide_the_checkpoint_directory() -> None:
    system = StructuredStreaming(job)
    configuration = CampaignConfiguration(system=SystemSection(f"{__name__}:job"), trials=60)
    faults = [one.fault for plan in islice(campaign_plans(configuration, system), 60) for one in plan.faults]
    assert {type(fault) for fault in faults} == {
        CrashCoordinator, KillExecutor, KillWorker, PauseExecutor, PauseWorker
    }  # fmt: skip
    assert any(isinstance(fault, CrashCoordinator) and fault.unreadable_ms for fault in faults)


@pytest.mark.parametrize("part", ["", "commits"])
def test_storage_that_is_taken_away_comes_back_after_so_many_failures(tmp_path: Path, part: str) -> None:
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    (tmp_path / "checkpoint" / "commits" / "0").write_text("v1")
    storage = CheckpointOutages(tmp_path / "checkpoint")
    writes = storage.writes(part)
    injection = FailPrimaryWrites(TASKS, checkpoints=2, metadata=bool(part)).inject(
        QueryTargets(NoTargets(), lambda: None, storage)  # type: ignore[arg-type]
    )
    assert injection.fired
    assert writes.refuses_writes()
    with pytest.raises(OSError, match="Not a directory"):
        (tmp_path / "checkpoint" / "commits" / "1").write_text("v1")
    storage.failed()
    assert writes.refuses_writes()
    storage.failed()
    assert [one.refuses_writes() for one in (writes, storage.writes())] == [False, False]
    assert [file.name for file in tmp_path.rglob("*")] == ["checkpoint", "commits", "0"]


def test_storage_is_hidden_until_some_time_after_the_next_driver_starts(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    storage = CheckpointOutages(checkpoint)
    storage.hide(100)
    storage.look(now_ms=10_000)
    storage.failed()
    assert checkpoint.is_file()
    storage.started(now_ms=10_000)
    storage.started(now_ms=10_050)  # the time counts from the first
    storage.look(now_ms=10_099)
    assert storage.is_away
    storage.look(now_ms=10_100)
    assert checkpoint.is_dir()


def test_all_that_was_taken_away_comes_back_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    storage = CheckpointOutages(tmp_path / "checkpoint")
    storage.writes("commits").refuse_writes(1)
    storage.writes().refuse_writes(1)
    with pytest.raises(TargetGone):
        storage.writes().refuse_writes(1)
    storage.restore()
    storage.restore()
    assert [file.name for file in tmp_path.rglob("*")] == ["checkpoint", "commits"]
    assert not storage.writes().refuses_writes()


def test_a_checkpoint_directory_that_does_not_exist_yet_is_not_hidden(tmp_path: Path) -> None:
    storage = CheckpointOutages(tmp_path / "checkpoint")
    storage.hide(100)
    assert not storage.is_away


class NoDriver:
    """Stands for a driver's process, and for what it can be asked to do."""

    made: ClassVar[list[NoDriver]] = []

    def __init__(self, *arguments: object) -> None:
        self.peer = self
        self.gone = self.closed = False
        self.conf: dict[str, str] | None = None
        self.made.append(self)

    def remote(self, name: str, interface: type) -> NoDriver:
        return self

    def warm_up(self, place: object, conf: dict[str, str]) -> None:
        self.conf = conf

    def open_session(self, place: object, conf: dict[str, str]) -> None:
        assert self.conf in (None, conf), "a JVM that runs keeps its settings"
        self.conf = conf

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> QueryDrivers:
    NoDriver.made.clear()
    monkeypatch.setattr(query_run, "DriverProcess", NoDriver)
    cluster: Any = SimpleNamespace(directory=Path(), driver_environment=dict, session_place=lambda: None)
    return QueryDrivers(cluster)


class FailsWithoutStorage(NoDriver):
    """A driver whose query ends at once, and cannot be started while the checkpoint directory is gone."""

    checkpoint: ClassVar[Path]
    run: ClassVar[QueryRun]
    pid = 1

    def when_over(self, call: object) -> None: ...

    def start_query(self, order: object) -> None:
        if not self.checkpoint.is_dir():
            raise RemoteError("OSError", "not a directory")
        self.run.query_over("")


@pytest.mark.parametrize(("hidden_ms", "end"), [(100, End.FINISHED), (0, End.FAILED)])
def test_starts_that_find_no_storage_are_not_failures_of_the_query(
    drivers: QueryDrivers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hidden_ms: int,
    end: End,
) -> None:
    monkeypatch.setattr(query_run, "DriverProcess", FailsWithoutStorage)
    monkeypatch.setattr(query_run, "_LOOK_AGAIN_S", 0.005)
    checkpoint = FailsWithoutStorage.checkpoint = tmp_path / "checkpoint"
    nemesis: Any = NoNemesis()
    nothing: Any = None
    storage = CheckpointOutages(checkpoint)
    run = FailsWithoutStorage.run = QueryRun(drivers, nothing, nothing, nemesis, storage, 0)
    if hidden_ms:  # otherwise the directory was never there
        checkpoint.mkdir()
        storage.hide(hidden_ms)
    assert run.run(10.0)[0] is end
    failed = [attempt for attempt in run.attempts if attempt.end == "failed"]
    assert len(failed) > 4 if hidden_ms else len(failed) == 4


FEWER, MORE = {"spark.cores.max": "1"}, {"spark.cores.max": "2"}


@pytest.mark.parametrize("spare", [False, True])
def test_the_drivers_after_the_first_have_settings_of_their_own(drivers: QueryDrivers, spare: bool) -> None:
    drivers.use(MORE, FEWER)
    first: Any = drivers.present()
    assert first.conf == MORE
    if spare:
        drivers.keep_spare()
    first.gone = True
    second: Any = drivers.present()
    assert (first.closed, second.conf) == (True, FEWER)
    drivers.use(MORE, MORE)
    third: Any = drivers.present()
    assert (second.closed, third.conf) == (True, MORE)
    assert len(NoDriver.made) == 3


def test_a_driver_is_kept_for_the_next_trial_and_a_spare_that_nobody_needed_too(
    drivers: QueryDrivers,
) -> None:
    drivers.use(MORE, MORE)
    first: Any = drivers.present()
    drivers.keep_spare()
    drivers.use(MORE, MORE)
    again: Any = drivers.present()
    assert again is first
    first.gone = True
    drivers.use(MORE, FEWER)
    other: Any = drivers.present()
    assert other.conf == MORE
    assert [driver.closed for driver in NoDriver.made] == [True, True, False]


def test_files_that_were_read_are_those_of_the_log_up_to_an_offset(tmp_path: Path) -> None:
    for name, lines in {
        "offsets/3": ["v1", "{}", '{"logOffset":2}'],
        "sources/0/1.compact": ["v1", '{"path":"a","batchId":0}', '{"path":"b","batchId":1}'],
        "sources/0/2": ["v1", '{"path":"c","batchId":2}'],
        "sources/0/3": ["v1", '{"path":"d","batchId":3}'],
        "sources/0/1": ["v1", '{"path":"b","batchId":1}'],
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("\n".join(lines))
    assert rows_read(tmp_path, 3) == ["a", "b", "c"]


def state_judged(comparison: StateComparison | None) -> tuple[Verdict, str]:
    history = History((), End.FINISHED, Reason.FINISHED, "", None, state_query=comparison)
    found = StateInBetween().check(TrialContext(TrialPlan(), history, ()))
    return found.verdict, found.summary


def test_state_is_right_wrong_or_unreadable() -> None:
    right = StateComparison(batches=3, entries=9)
    assert state_judged(right)[0] is Verdict.VALID
    assert state_judged(msgspec.structs.replace(right, missing=1, unexpected=2)) == (
        Verdict.INVALID,
        "1 missing and 2 unexpected of the entries that 3 micro-batches left",
    )
    assert state_judged(StateComparison(problem="no such file"))[0] is Verdict.UNKNOWN
    assert state_judged(None)[0] is Verdict.UNKNOWN


def test_settings_are_checked() -> None:
    system = StructuredStreaming(job)
    system.check_settings({"retries": "none"})
    with pytest.raises(ValueError, match="retries is 'few'"):
        system.check_settings({"retries": "few"})
    with pytest.raises(ValueError, match="did you mean"):
        system.check_settings({"retrys": "none"})
    system.check_settings({"executors_again": 1})
    for wrong in (0, 3, True, "1"):
        with pytest.raises(ValueError, match=r"executors_again is .* not from 1 to 2"):
            system.check_settings({"executors_again": wrong})


def test_twenty_drawn_trials_kill_the_driver_after_the_sinks_write() -> None:
    """That is what a naive append cannot survive, so 20 trials catch it, whatever the seed."""
    system = StructuredStreaming(job)
    for seed in range(10):
        configuration = CampaignConfiguration(system=SystemSection(f"{__name__}:job"), seed=seed, trials=20)
        plans = list(islice(campaign_plans(configuration, system), 20))
        for plan in plans:
            check_plan(plan, system)
        assert any(
            isinstance(one.fault, CrashCoordinator)
            and isinstance(one.trigger, After)
            and one.trigger.point is ProtocolPoint.ALL_ACKNOWLEDGED
            for plan in plans
            for one in plan.faults
        )


def test_code_in_the_chapter_is_code_of_the_examples() -> None:
    files = [path.read_text() for path in sorted((EXAMPLES / "my_streaming_job").glob("*.py"))]
    blocks = re.findall(
        r"```python\n(.*?)```", (ROOT / "docs" / "guide" / "streaming-job.md").read_text(), re.DOTALL
    )
    assert len(blocks) == 2
    for block in blocks:
        assert any(block in file for file in files), block
    assert max(len(file.splitlines()) for file in files) <= 25


def judged(comparison: OutputComparison | None, end: End = End.FINISHED) -> tuple[Verdict, str]:
    history = History((), end, Reason.FINISHED, "", None, output_query=comparison)
    finding = CommittedOutput().check(TrialContext(TrialPlan(), history))
    return finding.verdict, finding.summary


RIGHT = OutputCounts(5, 5, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("wrong", ["lost", "duplicated", "unexpected"])
def test_any_difference_is_invalid(wrong: str) -> None:
    counts = msgspec.structs.replace(RIGHT, **{wrong: 2})
    verdict, summary = judged(OutputComparison(counts, ("an example",)))
    assert verdict is Verdict.INVALID
    assert f"2 {wrong}" in summary


def test_copies_that_are_excused_are_told() -> None:
    excused = {"copies of rows of micro-batches that ran again": {"output": 3}}
    assert judged(OutputComparison(RIGHT)) == (
        Verdict.VALID,
        "all 5 rows of the batch are in the output, and nothing else",
    )
    verdict, summary = judged(OutputComparison(RIGHT, checks=excused))
    assert verdict is Verdict.VALID
    assert "3 copies" in summary


def test_what_cannot_be_compared_is_unknown() -> None:
    assert judged(None)[0] is Verdict.UNKNOWN
    assert judged(OutputComparison(None, problem="no such column"))[0] is Verdict.UNKNOWN


def test_a_query_that_did_not_end_may_lack_rows_but_may_not_repeat_them() -> None:
    lost, repeated = (msgspec.structs.replace(RIGHT, **{name: 1}) for name in ("lost", "duplicated"))
    assert judged(OutputComparison(lost), End.STUCK)[0] is Verdict.UNKNOWN
    assert judged(OutputComparison(repeated), End.STUCK)[0] is Verdict.INVALID


class NoNemesis:
    """Takes reports and strikes nobody."""

    def __init__(self) -> None:
        self.points: list[tuple[ProtocolPoint, str | None]] = []

    def bind(self, targets: object, now_ms: object) -> None: ...

    def first_attempt_ran(self) -> None: ...

    def next_time_ms(self) -> None: ...

    def point_reached(self, point: ProtocolPoint, subtask: str | None, attempt: int) -> None:
        self.points.append((point, subtask))


def test_a_run_knows_what_is_committed_and_what_ran_again() -> None:
    nemesis: Any = NoNemesis()
    nothing: Any = None
    run = QueryRun(nothing, nothing, nothing, nemesis, nothing, 0)
    run.sink_called(0)
    run.task_began(worker=7, batch=0, retry=0)
    run.sink_returned(0)
    run.sink_called(1)
    assert list(run.run_again) == []
    run.task_began(worker=7, batch=1, retry=1)
    run.sink_called(2)
    run.sink_called(2)
    assert run.run_again == (1, 2)
    committed = [
        line.operation.checkpoint for line in run.operations if isinstance(line.operation, Committed)
    ]
    assert committed == [0, 1]
    assert nemesis.points[:3] == [
        (ProtocolPoint.CHECKPOINT_TRIGGERED, None),
        (ProtocolPoint.BARRIER_RECEIVED, TASKS),
        (ProtocolPoint.ALL_ACKNOWLEDGED, None),
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--query", f"{__name__}:same"], "which is no StreamingJob, but function"),
        (["--query", "my_job"], "name your job as package.module:job"),
        (["--query", f"{__name__}:job", "--system", "reference-spark"], "keep one of the two"),
    ],
)
def test_a_query_that_is_none_is_a_mistake_of_the_user(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["campaign", *options]) == 3
    assert told in " ".join(capsys.readouterr().err.split())


def test_a_campaign_of_a_query_bears_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[CampaignConfiguration] = []

    def run(configuration: CampaignConfiguration, *rest: object) -> None:
        seen.append(configuration)
        raise UsageProblem("that is enough")

    monkeypatch.setattr(campaign_command, "_run", run)
    assert run_command(["campaign", "--query", f"{__name__}:job"]) == 3
    assert [(one.name, one.trials) for one in seen] == [(f"{__name__}.job", 20)]
