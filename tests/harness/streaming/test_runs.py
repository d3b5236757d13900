"""One trial of a query without Spark: its drivers, its starts, and what faults do to its checkpoint directory."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from queue import Empty
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from barrier_tck.faults.kinds.disturb_writes import DisturbWrites
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.targets import NoTargets, TargetGone, WriteFault
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.cluster.driver.peer import PeerGone, RemoteError
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.progress import Progress
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import End, History
from barrier_tck.harness.record.operations import Committed, HeldUp
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.slow_machine import WAITS_ALLOWED
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.streaming import query_run
from barrier_tck.harness.streaming.checkpoint_outages import CheckpointOutages
from barrier_tck.harness.streaming.disturbed_writes import (
    CLASS,
    FILE_MANAGER,
    DisturbedWrites,
    settings_of_writes,
)
from barrier_tck.harness.streaming.driver import task_points
from barrier_tck.harness.streaming.driver.task_points import TaskPoints
from barrier_tck.harness.streaming.query_rpc import TaskRun
from barrier_tck.harness.streaming.query_run import QueryDrivers, QueryRun
from barrier_tck.harness.streaming.query_targets import TASKS, QueryTargets
from tests.harness.oracle.oracle_histories import input_of


def targets_of(storage: CheckpointOutages, writes: DisturbedWrites | None = None) -> QueryTargets:
    """Return the targets of a query without a cluster and without a driver."""
    no_cluster: Any = NoTargets()
    return QueryTargets(no_cluster, lambda: None, lambda: None, storage, writes)


class Writer:
    """Stands for the class in Spark's JVMs: the driver writes a file when it is asked to."""

    def __init__(self, directory: Path) -> None:
        self.writes = DisturbedWrites(directory, self.write)
        self.driver_is_there = True

    def write(self, path: str) -> str:
        if not self.driver_is_there:
            raise PeerGone("the driver is gone")
        tokens = sorted(self.writes.directory.glob("token-*"), reverse=True)
        if not tokens:
            return ""
        tokens[0].unlink()
        with open(self.writes.directory / "struck", "a") as struck:
            struck.write(f"{' '.join(tokens[0].name.split('.')[:2])} {path}\n")
        return "No space left on device"


def test_a_disturbed_write_is_proved_and_the_query_meets_as_many_as_were_planned(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "writes")
    writes = writer.writes
    fault = DisturbWrites(WriteFault.FULL, 2).inject(targets_of(CheckpointOutages(tmp_path), writes))
    assert fault.fired and fault.met is not None
    assert not fault.met(), "the write that is the proof is none of the query"
    assert [bool(writer.write("commits/1")) for _ in range(3)] == [True, True, False]
    assert fault.met()
    assert writes.struck() == (f"full {tmp_path}/writes/proof", "full commits/1", "full commits/1")
    assert [writes.struck_since(), writes.struck_since()] == [True, False]


@pytest.mark.parametrize("pattern", ["first", "second", "both", "neither"])
def test_each_of_two_faults_on_writes_tells_only_what_it_has_disturbed_itself(
    tmp_path: Path, pattern: str
) -> None:
    """The one that comes later neither hides that the first has struck, nor lends it a write of its own."""
    writer = Writer(tmp_path / "writes")
    targets = targets_of(CheckpointOutages(tmp_path), writer.writes)
    met = []
    for name in ("first", "second"):
        fault = DisturbWrites(WriteFault.FULL).inject(targets)
        assert fault.fired and fault.met is not None
        met.append(fault.met)
        if pattern in (name, "both"):
            assert writer.write("commits/1")
    assert [told() for told in met] == [pattern in ("first", "both"), pattern in ("second", "both")]


def test_a_fault_on_writes_without_a_driver_takes_back_no_trouble_of_an_earlier_one(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "writes")
    targets = targets_of(CheckpointOutages(tmp_path), writer.writes)
    assert DisturbWrites(WriteFault.FAILS).inject(targets).fired
    writer.driver_is_there = False
    assert not DisturbWrites(WriteFault.FAILS).inject(targets).fired
    writer.driver_is_there = True
    assert [bool(writer.write("offsets/1")) for _ in range(2)] == [True, False]


def test_writes_are_not_disturbed_while_there_is_no_driver_and_after_the_trial(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "writes")
    writer.driver_is_there = False
    with pytest.raises(TargetGone, match="no driver"):
        writer.writes.of_one_fault().disturb(WriteFault.FAILS, 1, 0)
    writer.driver_is_there = True
    assert writer.write("offsets/0") == ""
    writer.writes.of_one_fault().disturb(WriteFault.FAILS, 1, 0)
    writer.writes.stop()
    writer.writes.stop()
    assert writer.write("offsets/0") == ""


def test_the_file_manager_of_a_user_does_the_work_of_ours() -> None:
    own = {FILE_MANAGER: "theirs"}
    assert settings_of_writes("", {}) == {FILE_MANAGER: None}
    assert settings_of_writes("", own) == own
    told = settings_of_writes("/writes", own)
    assert told[FILE_MANAGER] == CLASS
    assert sorted(value or "" for value in told.values()) == ["/writes", CLASS, "theirs"]


@pytest.mark.parametrize("part", ["", "commits"])
def test_storage_that_is_taken_away_comes_back_after_so_many_failures(tmp_path: Path, part: str) -> None:
    (tmp_path / "checkpoint" / "commits").mkdir(parents=True)
    (tmp_path / "checkpoint" / "commits" / "0").write_text("v1")
    storage = CheckpointOutages(tmp_path / "checkpoint")
    writes = storage.writes(part)
    injection = FailPrimaryWrites(TASKS, checkpoints=2, metadata=bool(part)).inject(targets_of(storage))
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
    storage.end_due(now_ms=10_000)
    storage.failed()
    assert checkpoint.is_file()
    storage.started(now_ms=10_000)
    storage.started(now_ms=10_050)  # the time counts from the first
    storage.end_due(now_ms=10_099)
    assert storage.is_away
    storage.end_due(now_ms=10_100)
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

    def open_session(self, place: object, conf: dict[str, str]) -> str:
        assert self.conf in (None, conf), "a session that is open keeps its settings"
        self.conf = conf
        return f"application {self.made.index(self)}"

    def close(self, patience_s: float = 20.0) -> None:
        self.closed = True


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> QueryDrivers:
    NoDriver.made.clear()
    monkeypatch.setattr(query_run, "DriverProcess", NoDriver)
    cluster: Any = SimpleNamespace(directory=Path(), driver_environment=dict, session_config=lambda: None)
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
    run = FailsWithoutStorage.run = QueryRun(drivers, nothing, no_cluster(), nemesis, storage, 0)
    if hidden_ms:  # otherwise the directory was never there
        checkpoint.mkdir()
        storage.hide(hidden_ms)
    assert run.run(10.0)[0] is end
    failed = [attempt for attempt in run.attempts if attempt.end == "failed"]
    assert len(failed) > 4 if hidden_ms else len(failed) == 4


STACK = (
    "StreamingQueryException: [STREAM_FAILED] Query terminated with exception: [{name}] The checkpoint is not empty\n"
    "=== Streaming Query ===\nIdentifier: [id = 1]\n\nJVM stacktrace:\n\tat org.apache.spark.sql.Query.run(Query.scala)"
)


class FailsForever(NoDriver):
    """A driver that is gone in its first attempt if it is to be killed; all later ones say the same."""

    run: ClassVar[QueryRun]
    error: ClassVar[str]
    killed: ClassVar[bool]
    pid = 1

    def when_over(self, call: object) -> None: ...

    def start_query(self, order: object) -> None:
        if self.killed:
            type(self).killed = False
            raise PeerGone("killed")
        self.run.query_over(self.error)


@pytest.mark.parametrize(
    ("error", "killed", "known"),
    [
        ("STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY", True, True),
        ("STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY", False, False),
        ("CANNOT_LOAD_STATE_STORE", True, False),
    ],
)
def test_a_known_defect_of_spark_is_named_before_the_first_line_of_its_stack(
    drivers: QueryDrivers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: str,
    killed: bool,
    known: bool,
) -> None:
    monkeypatch.setattr(query_run, "DriverProcess", FailsForever)
    FailsForever.error, FailsForever.killed = STACK.format(name=error), killed
    nothing: Any = None
    nemesis: Any = NoNemesis()
    storage = CheckpointOutages(tmp_path)
    run = FailsForever.run = QueryRun(drivers, nothing, no_cluster(), nemesis, storage, 0)
    end, reason, detail = run.run(10.0)
    history = History(tuple(run.operations), end, reason, detail, None)
    finding = Progress(input_of(TrialPlan())).check(TrialContext(TrialPlan(), history))
    assert finding.verdict is Verdict.INVALID
    assert (": a known defect of Spark 4.1 to 4.3" in finding.summary) == known
    assert ("verifyCheckpointDirectoryEmptyOnStart=false" in finding.summary) == known
    assert f"exception: [{error}] The checkpoint is not empty [...]" in finding.summary
    assert "JVM stacktrace" not in finding.summary and "\n" not in finding.summary
    assert run.attempts[-1].reason == STACK.format(name=error)


class FailsAtDisturbedWrites(FailsWithoutStorage):
    """A driver whose query fails as long as a write is disturbed at each start."""

    writes: ClassVar[Path]
    left: ClassVar[int]

    def start_query(self, order: object) -> None:
        type(self).left -= 1
        if self.left >= 0:
            with open(self.writes / "struck", "a") as struck:
                struck.write("token-0000 full commits/1\n")
            raise RemoteError("OSError", "No space left on device")
        self.run.query_over("")


def test_starts_that_meet_disturbed_writes_are_not_failures_of_the_query(
    drivers: QueryDrivers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_run, "DriverProcess", FailsAtDisturbedWrites)
    FailsAtDisturbedWrites.writes, FailsAtDisturbedWrites.left = tmp_path / "writes", 9
    nemesis: Any = NoNemesis()
    nothing: Any = None
    storage = CheckpointOutages(tmp_path)
    run = QueryRun(drivers, nothing, no_cluster(), nemesis, storage, 0, FailsAtDisturbedWrites.writes)
    FailsWithoutStorage.run = run
    assert run.run(10.0)[0] is End.FINISHED
    assert len(run.attempts) == 10
    (FailsAtDisturbedWrites.writes / "token-0001.full.0").touch()
    run._driver = None
    run.stop()
    assert not list(FailsAtDisturbedWrites.writes.glob("token-*")), (
        "a trial that is over disturbs nothing more"
    )


FEWER, MORE = {"spark.cores.max": "1"}, {"spark.cores.max": "2"}


@pytest.mark.parametrize("spare", [False, True])
def test_the_drivers_after_the_first_have_settings_of_their_own(drivers: QueryDrivers, spare: bool) -> None:
    drivers.use(MORE, FEWER)
    assert drivers.application() is None
    first: Any = drivers.present()
    assert first.conf == MORE
    if spare:
        drivers.keep_spare()
    assert drivers.application() == "application 0"
    first.gone = True
    second: Any = drivers.present()
    assert (first.closed, second.conf) == (True, FEWER)
    assert drivers.application() == "application 1"
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


@pytest.mark.parametrize("settings", [MORE, FEWER])
def test_the_next_spare_starts_when_the_last_one_was_needed_and_the_settings_stay(
    drivers: QueryDrivers, settings: dict[str, str]
) -> None:
    drivers.use(MORE, settings)
    first: Any = drivers.present()
    drivers.keep_spare()
    drivers.trial_over()
    assert len(NoDriver.made) == 2, "nobody needed the spare"
    first.gone = True
    drivers.present()
    drivers.trial_over()
    assert len(NoDriver.made) == (3 if settings == MORE else 2)
    drivers.close()
    assert all(driver.closed for driver in NoDriver.made)


class NoNemesis:
    """Takes reports and strikes nobody."""

    def __init__(self) -> None:
        self.points: list[tuple[ProtocolPoint, str | None]] = []

    def bind(self, targets: object, now_ms: object) -> None: ...

    def first_attempt_ran(self) -> None: ...

    def next_time_ms(self) -> None: ...

    def point_reached(self, point: ProtocolPoint, subtask: str | None, attempt: int) -> None:
        self.points.append((point, subtask))


@pytest.mark.parametrize(
    ("held_up_ms", "ends_ms"), [(0, 10_000), (25_000, 35_000), (10_000_000, (1 + WAITS_ALLOWED) * 10_000)]
)
def test_a_query_that_was_held_up_by_a_busy_machine_has_so_much_longer(held_up_ms: int, ends_ms: int) -> None:
    nemesis: Any = NoNemesis()
    nothing: Any = None
    storage: Any = CheckpointOutages(Path("nowhere"))
    run = QueryRun(nothing, nothing, no_cluster(), nemesis, storage, 0)
    now_ms = 0.0

    def pretended_ms() -> float:
        nonlocal now_ms
        now_ms += 100.0
        return now_ms

    vars(run)["now_ms"] = pretended_ms
    run._note(HeldUp(processor_ms=held_up_ms))
    vars(run)["_held_up"] = SimpleNamespace(look=lambda now_ms: None)
    ended: Any = SimpleNamespace(get=raises_empty)
    over = run._wait(ended, bound_s=10.0)
    assert over.reason is Reason.OUT_OF_TIME and over.detail == f"no end within {ends_ms // 1_000} s"
    assert ends_ms <= now_ms < ends_ms + 1_000


def raises_empty(timeout: float) -> None:
    raise Empty


def no_cluster() -> Any:
    """Return a cluster without processes."""
    return SimpleNamespace(processes=lambda: ())


def test_a_run_knows_what_is_committed_and_what_ran_again() -> None:
    nemesis: Any = NoNemesis()
    nothing: Any = None
    run = QueryRun(nothing, nothing, no_cluster(), nemesis, nothing, 0)
    run.sink_called(0)
    run.task_began(7, 0, TaskRun(stage=0, partition=0, run=0, retry=0))
    run.sink_returned(0)
    run.sink_called(1)
    assert list(run.run_again) == []
    run.task_began(7, 1, TaskRun(stage=1, partition=0, run=2, retry=1))
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


FIRST = TaskRun(stage=4, partition=1, run=7, retry=0)


@pytest.mark.parametrize(
    ("second", "attempt", "again"),
    [
        (FIRST, 1, False),  # a task that reads several partitions of what was observed begins with each
        (replace(FIRST, partition=0, run=8), 1, False),
        (replace(FIRST, stage=5, run=8), 1, False),  # the sink asks for the rows once more
        (replace(FIRST, run=8, retry=1), 1, True),
        (replace(FIRST, run=8), 1, True),  # its stage runs again, because shuffle files were lost
        (FIRST, 2, True),
        (replace(FIRST, stage=0, partition=0, run=0), 2, True),
    ],
)
def test_a_micro_batch_ran_again_if_a_task_of_it_did_or_if_it_begins_in_a_later_attempt(
    second: TaskRun, attempt: int, again: bool
) -> None:
    nemesis: Any = NoNemesis()
    nothing: Any = None
    run = QueryRun(nothing, nothing, no_cluster(), nemesis, nothing, 0)
    run._attempt = 1
    run.task_began(7, 0, replace(FIRST, stage=1, run=1))
    run.task_began(7, 3, replace(FIRST, stage=3, run=6))
    run.task_began(7, 4, FIRST)
    run._attempt = attempt
    run.task_began(7, 4, second)
    assert run.run_again == ((4,) if again else ())


@pytest.mark.parametrize("writes", [False, True])
def test_a_task_has_one_end_which_is_that_of_a_function_that_writes_its_rows(
    writes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the sink's function writes them, rows pass through two Python workers, and only the second is at the end."""
    told: list[str] = []
    tasks: list[object] = []
    rows_passed: list[object] = []
    properties = {"streaming.sql.batchId": "7", "barrier_tck.task.writes": "true" if writes else None}
    numbers = {"stageId": 4, "partitionId": 1, "taskAttemptId": 7, "attemptNumber": 0}
    context = SimpleNamespace(
        getLocalProperty=properties.get,
        **{name: lambda value=value: value for name, value in numbers.items()},
    )

    class Harness:
        def __getattr__(self, name: str) -> Any:
            def tell(worker: int, batch: int, *more: object) -> None:
                told.append(name)
                (tasks if name == "task_began" else rows_passed).extend(more)

            return tell

    monkeypatch.setattr(task_points, "_context", lambda: context)
    monkeypatch.setattr(task_points, "met", lambda *_: nullcontext(Harness()))
    points = TaskPoints("nowhere")
    rows: Any = [1, 2]
    assert list(points.pass_on(iter(rows))) == rows
    assert tasks == [FIRST]
    if writes:
        points.constraints(lambda passed: told.extend(f"row {row}" for row in passed))(iter(rows))
        assert told == [
            *("task_began", "rows_passed"),
            *("row 1", "rows_passed", "row 2", "all_rows_passed"),
        ]
        assert rows_passed == [1, 1, 2], "how many so far, in the first worker and in the second"
    else:
        assert rows_passed == [1, 2]
        assert told == ["task_began", "rows_passed", "all_rows_passed"]
