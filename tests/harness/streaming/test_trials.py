"""Whole trials of a query without Spark; grain: a Structured Streaming of a few lines, whose driver is really killed.

Everything of the harness is the product's own: plan, nemesis, rendezvous, restart, and what the judge is told.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import psutil
import pyarrow.parquet as pq
import pytest

from barrier_tck.faults.vocabulary import COORDINATOR_POINTS
from barrier_tck.harness import (
    After,
    CrashCoordinator,
    LimitsPlan,
    ProtocolPoint,
    QueryPlace,
    ScheduledFault,
    StreamingJob,
    TrialPlan,
    TrialRecord,
    Verdict,
    WorkloadPlan,
)
from barrier_tck.harness.cluster.driver.peer import RemoteError
from barrier_tck.harness.cluster.rendezvous import met
from barrier_tck.harness.record.history import History, InputRow, OutputComparison, OutputCounts, WrongRow
from barrier_tck.harness.record.operations import (
    FaultFired,
    Operation,
    RowsPassed,
    SinkCalled,
    SinkReturned,
    SinkStood,
    TaskBegan,
)
from barrier_tck.harness.record.verdict import EXERCISED
from barrier_tck.harness.streaming import query_run, structured_streaming
from barrier_tck.harness.streaming.query_rpc import (
    NOTHING_KNOWN,
    JobCheck,
    JudgeOrder,
    QueryOrder,
    QueryReports,
    RowNames,
    TaskReports,
    TaskRun,
)
from barrier_tck.harness.streaming.query_targets import TASKS
from barrier_tck.harness.streaming.structured_streaming import POINTS, STEP_OF_SINK, StructuredStreaming
from barrier_tck.harness.support.errors import NotJudgeable
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.workload_names import filled, workload_named
from tests.waiting import PATIENCE_S

ROWS = 24
"""Three micro-batches, two sources, four rows each."""


def same(frame: Any) -> Any:
    return frame


def written(batch: Any, batch_id: int, place: QueryPlace) -> None:
    raise AssertionError("no Spark runs here")


job = StreamingJob(query=same, sink=written)
at_least_once = StreamingJob(query=same, sink=written, delivery="at_least_once")
two_tables = StreamingJob(query=same, sink=written, points=("between the tables",))
Sink = Callable[[Path, int, list[int]], None]


def append(output: Path, batch: int, rows: list[int]) -> None:
    with open(output, "a") as file:
        file.writelines(f"{batch} {row}\n" for row in rows)


def overwrite(output: Path, batch: int, rows: list[int]) -> None:
    output.with_name(f"output-{batch}").write_text("".join(f"{batch} {row}\n" for row in rows))


def overwrite_second(output: Path, batch: int, rows: list[int]) -> None:
    output.with_name(f"output-second-{batch}").write_text("".join(f"{batch} {row}\n" for row in rows))


class PretendedDriver:
    """A driver's process: it is a real one, which can be killed, and what it does is done by a thread of ours.

    It keeps the order that Spark keeps: offsets, tasks, sink, commit. Its tasks come to the real rendezvous.
    """

    made: ClassVar[list[PretendedDriver]] = []
    sink: ClassVar[Sink]
    second: ClassVar[Sink | None]
    """What the sink does after it stood between its two tables; None: it has one."""
    batches_run: ClassVar[list[int]]

    def __init__(
        self, module: str, log: Path, environment: object, offers: Mapping[str, tuple[type, Any]]
    ) -> None:
        self.peer = self
        self._child = subprocess.Popen(["sleep", "600"])
        self.process = psutil.Process(self._child.pid)
        self.pid = self.process.pid
        self.conf: dict[str, str] | None = None
        self.reports: QueryReports = offers["reports"][1]
        self._over = threading.Event()
        self._on_over: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None
        self.made.append(self)

    @property
    def gone(self) -> bool:
        return self._child.poll() is not None

    def remote(self, name: str, interface: type) -> PretendedDriver:
        return self

    def when_over(self, call: Callable[[], None]) -> None:
        self._on_over.append(call)

    def open_session(self, place: object, conf: Mapping[str, str]) -> str:
        if self.conf is None:
            self.conf = dict(conf)
        return f"application {self.made.index(self)}"

    def start_query(self, order: QueryOrder) -> None:
        self._thread = threading.Thread(target=self._run, args=(order,), daemon=True)
        self._thread.start()

    def stop_query(self) -> None: ...

    def close(self, patience_s: float = 20.0) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.kill()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    def _run(self, order: QueryOrder) -> None:
        try:
            problem = ""
            with contextlib.suppress(_Killed):
                try:
                    for number, file in enumerate(sorted(Path(order.place.input).iterdir())):
                        self._run_batch(order, number, file)
                except OSError as error:
                    problem = str(error)
                self.reports.query_over(problem)
        finally:
            if self.gone:
                for call in self._on_over:
                    call()

    def _run_batch(self, order: QueryOrder, number: int, file: Path) -> None:
        commits = Path(order.place.checkpoint, "commits")
        commits.mkdir(parents=True, exist_ok=True)
        if (commits / str(number)).exists():
            return
        self.batches_run.append(number)
        rows = self.rows_written(number, pq.read_table(file).num_rows)
        self._at(lambda: self.reports.sink_called(number))
        with met(order.rendezvous, TaskReports) as harness:  # type: ignore[type-abstract]
            self._at(
                lambda: harness.task_began(
                    self.pid, number, TaskRun(stage=number, partition=0, run=number, retry=0)
                )
            )
            self._at(lambda: harness.rows_passed(self.pid, number, rows))
            self._at(lambda: harness.all_rows_passed(self.pid, number, rows))
        ids = pq.read_table(file)["id"].to_pylist()
        second = type(self).second
        if second is None:
            type(self).sink(Path(order.place.output), number, ids)
        else:
            type(self).sink(Path(order.place.output), number, ids[::2])
            place = replace(order.place, rendezvous=order.rendezvous)
            self._at(lambda: place.point("between the tables"))
            second(Path(order.place.output), number, ids[1::2])
        self._at(lambda: self.reports.sink_returned(number))
        (commits / str(number)).touch()

    @staticmethod
    def rows_written(number: int, rows: int) -> int:
        """Return how many rows the query gives for a micro-batch that has so many."""
        return rows

    def _at(self, point: Callable[[], None]) -> None:
        point()
        if self.gone:
            raise _Killed


class _Killed(Exception):
    """What a killed process does not do any more."""


class PretendedJudge:
    """Compares ids in plain Python, and notes what it was told."""

    orders: ClassVar[list[JudgeOrder]] = []
    conf: ClassVar[dict[str, str]] = {}

    def __init__(self, *arguments: object) -> None:
        self.peer = self

    def remote(self, name: str, interface: type) -> PretendedJudge:
        return self

    def open_session(self, conf: Mapping[str, str]) -> None:
        self.conf.update(conf)

    def check(self, job: str, place: QueryPlace) -> JobCheck:
        return JobCheck()

    def judge(self, order: JudgeOrder) -> OutputComparison:
        self.orders.append(order)
        expected, committed = Counter[int](), Counter[int]()
        for file in sorted(Path(order.place.input).iterdir()):
            expected.update(pq.read_table(file)["id"].to_pylist())
        copies = 0
        seen = set[str]()
        for file in sorted(Path(order.place.output).parent.glob("output*")):
            for line in file.read_text().splitlines():
                batch, row = map(int, line.split())
                if line in seen and "at_least_once" in order.job and batch in order.run_again:
                    copies += 1
                else:
                    committed[row] += 1
                seen.add(line)
        lost, more = expected - committed, committed - expected
        counts = OutputCounts(expected.total(), committed.total(), lost.total(), more.total(), 0, 0, 0, 0)
        return OutputComparison(counts, checks={"copies": {"output": copies}} if copies else {})

    def close(self) -> None: ...


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StructuredStreaming]:
    """The product's system on a cluster that is pretended."""
    cluster = SimpleNamespace(
        directory=tmp_path,
        driver_environment=dict,
        session_config=lambda: None,
        wait_for_executors=lambda *_: (),
        executors=lambda *_: (),
        log_files=tuple,
        host=lambda *_: None,
        processes=lambda: [driver.pid for driver in PretendedDriver.made],
    )
    monkeypatch.setattr(structured_streaming, "cluster_of", lambda config: contextlib.nullcontext(cluster))
    monkeypatch.setattr(structured_streaming, "jar_of_writes", lambda directory: None)
    monkeypatch.setattr(structured_streaming, "DriverProcess", PretendedJudge)
    monkeypatch.setattr(query_run, "DriverProcess", PretendedDriver)
    # As on a slow machine, where what supervises a query looks at it many times before it ends.
    monkeypatch.setattr(query_run, "_LOOK_AGAIN_S", 0.001)
    PretendedDriver.made.clear()
    PretendedDriver.batches_run = []
    PretendedDriver.sink = staticmethod(append)
    PretendedDriver.second = None
    PretendedJudge.orders.clear()
    PretendedJudge.conf.clear()
    made = StructuredStreaming(job)
    yield made
    made.close()
    for driver in PretendedDriver.made:
        driver.close()


KILLED = CrashCoordinator()


BEGAN = TaskBegan(1, 1, stage=1, partition=0, run=1)
PASSED = RowsPassed(1, 1, stage=1, partition=0, run=1, rows=8)
ALL_PASSED = RowsPassed(1, 1, stage=1, partition=0, run=1, rows=8, all=True)
OF_MICRO_BATCHES = (SinkCalled, SinkStood, SinkReturned, TaskBegan, RowsPassed)


def tried(
    system: StructuredStreaming,
    directory: Path,
    *faults: ScheduledFault,
    settings: Mapping[str, Any] | None = None,
) -> TrialRecord:
    return tried_with_history(system, directory, *faults, settings=settings)[0]


def tried_with_history(
    system: StructuredStreaming,
    directory: Path,
    *faults: ScheduledFault,
    settings: Mapping[str, Any] | None = None,
) -> tuple[TrialRecord, History]:
    directory = directory / "record"
    directory.mkdir(exist_ok=True)
    plan = TrialPlan(
        workload=WorkloadPlan(batches=3, batch_records=4),
        faults=faults,
        system=dict(settings or {}),
        limits=LimitsPlan(wall_s=30),
    )
    result = execute(plan, system, directory)
    record, history = result.record, result.history
    assert history is not None, record.findings
    assert all(fault.outcome == "fired" for fault in record.faults), record.faults
    return record, history


def killed_at(point: ProtocolPoint, nth: int = 2) -> ScheduledFault:
    of_tasks = point not in COORDINATOR_POINTS
    return ScheduledFault(KILLED, After(point, TASKS if of_tasks else None, nth=nth))


@pytest.mark.parametrize(
    ("settings", "first", "later"),
    [
        ({}, {}, {}),
        ({"retries": "stock", "executors_again": 2}, {}, {}),
        ({"retries": "none"}, {"spark.task.maxFailures": "1"}, {"spark.task.maxFailures": "1"}),
        ({"executors_again": 1}, {}, {"spark.cores.max": "1"}),
        (
            {"executors_again": 1, "retries": "none"},
            {"spark.task.maxFailures": "1"},
            {"spark.task.maxFailures": "1", "spark.cores.max": "1"},
        ),
    ],
    ids=["nothing", "stock", "no retries", "fewer executors", "both"],
)
def test_settings_of_a_trial_are_those_of_its_first_session_and_of_the_one_after_a_kill(
    system: StructuredStreaming,
    tmp_path: Path,
    settings: dict[str, Any],
    first: dict[str, str],
    later: dict[str, str],
) -> None:
    record = tried(system, tmp_path, killed_at(ProtocolPoint.ALL_ACKNOWLEDGED), settings=settings)
    assert len(record.attempts) == 2
    small = {"spark.sql.shuffle.partitions": "2"}
    used = [driver.conf for driver in PretendedDriver.made if driver._thread is not None]
    assert used == [small | first, small | later]
    assert PretendedJudge.conf == small, "who judges is not disturbed"


@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_a_driver_that_is_killed_at_any_point_is_replaced_and_its_micro_batch_is_known_to_have_run_again(
    system: StructuredStreaming, tmp_path: Path, point: ProtocolPoint, nth: int
) -> None:
    PretendedDriver.sink = staticmethod(overwrite)
    record = tried(system, tmp_path, killed_at(point, nth))
    assert record.verdict is Verdict.VALID, record.findings
    batch = nth - 1
    assert PretendedDriver.batches_run == [*range(batch), batch, batch, *range(batch + 1, 3)]
    assert [order.run_again for order in PretendedJudge.orders] == [(batch,)]
    assert finding(record, "committed-output").counts["expected"] == ROWS
    assert [attempt.end for attempt in record.attempts] == ["failed", "finished"]
    assert record.batches_committed == 3


@pytest.mark.parametrize(
    ("point", "before"),
    [
        (ProtocolPoint.CHECKPOINT_TRIGGERED, [SinkCalled(1, 1)]),
        (ProtocolPoint.BARRIER_RECEIVED, [SinkCalled(1, 1), BEGAN]),
        (ProtocolPoint.RECORDS_PROCESSED, [SinkCalled(1, 1), BEGAN, PASSED]),
        (ProtocolPoint.SNAPSHOT_TAKEN, [SinkCalled(1, 1), BEGAN, PASSED, ALL_PASSED]),
        (STEP_OF_SINK, [SinkCalled(1, 1), BEGAN, PASSED, ALL_PASSED, SinkStood("between the tables", 1)]),
        (
            ProtocolPoint.ALL_ACKNOWLEDGED,
            [
                *(SinkCalled(1, 1), BEGAN, PASSED, ALL_PASSED),
                *(SinkStood("between the tables", 1), SinkReturned(1, 1)),
            ],
        ),
    ],
    ids=str,
)
def test_the_history_has_how_far_a_micro_batch_had_come_when_a_fault_struck(
    system: StructuredStreaming, tmp_path: Path, point: ProtocolPoint, before: list[Operation]
) -> None:
    """What is noted stands in front of the fault, and the second run behind it."""
    system._job = two_tables
    PretendedDriver.sink, PretendedDriver.second = staticmethod(overwrite), staticmethod(overwrite_second)
    record, history = tried_with_history(system, tmp_path, killed_at(point))
    told = [
        line.operation
        for line in history.operations
        if isinstance(line.operation, (*OF_MICRO_BATCHES, FaultFired))
        and getattr(line.operation, "micro_batch", 1) == 1
    ]
    fired = next(number for number, operation in enumerate(told) if isinstance(operation, FaultFired))
    of_first = [operation for operation in told[:fired] if operation != SinkStood("between the tables", 1)]
    assert of_first == [operation for operation in before if not isinstance(operation, SinkStood)]
    assert told[:fired].count(SinkStood("between the tables", 1)) == 1 + (len(before) > 4)
    assert told[fired + 1] == SinkCalled(1, 2)
    assert record.faults[0].label == "kill the driver", "users of Spark know no coordinator"
    again = TaskBegan(1, 2, stage=1, partition=0, run=1)
    assert told[fired + 2] == again and SinkReturned(1, 2) in told[fired:]
    assert record.verdict is Verdict.VALID, record.findings


@pytest.mark.parametrize(
    ("tested", "sink", "point", "verdict"),
    [
        (job, append, ProtocolPoint.ALL_ACKNOWLEDGED, Verdict.INVALID),
        (job, append, ProtocolPoint.CHECKPOINT_TRIGGERED, Verdict.VALID),
        (job, overwrite, ProtocolPoint.ALL_ACKNOWLEDGED, Verdict.VALID),
        (at_least_once, append, ProtocolPoint.ALL_ACKNOWLEDGED, Verdict.VALID),
    ],
    ids=["naive", "naive, before it wrote", "idempotent", "at least once"],
)
def test_a_sink_is_judged_by_what_it_does_when_its_driver_is_killed(
    system: StructuredStreaming,
    tmp_path: Path,
    tested: StreamingJob,
    sink: Sink,
    point: ProtocolPoint,
    verdict: Verdict,
) -> None:
    system._job, PretendedDriver.sink = tested, staticmethod(sink)
    record = tried(system, tmp_path, killed_at(point))
    assert record.verdict is verdict, record.findings
    if tested is at_least_once:
        assert finding(record, "committed-output").counts["copies_excused"] == ROWS // 3


@pytest.mark.parametrize(
    ("sink", "nth", "verdict"),
    [
        (append, None, Verdict.VALID),
        *((append, nth, Verdict.INVALID) for nth in (1, 2, 3)),
        (overwrite, 2, Verdict.VALID),
    ],
)
def test_a_kill_between_two_actions_of_a_sink_strikes_there_and_nowhere_else(
    system: StructuredStreaming, tmp_path: Path, sink: Sink, nth: int | None, verdict: Verdict
) -> None:
    system._job = two_tables
    PretendedDriver.sink, PretendedDriver.second = staticmethod(sink), staticmethod(overwrite_second)
    faults = [killed_at(STEP_OF_SINK, nth)] if nth is not None else []
    record = tried(system, tmp_path, *faults)
    assert record.verdict is verdict, record.findings
    assert [fault.point for fault in record.faults] == [STEP_OF_SINK.value for _ in faults]
    if nth is not None:
        assert PretendedDriver.batches_run == [*range(nth), *range(nth - 1, 3)]
        assert finding(record, "committed-output").counts["duplicated"] == (4 if sink is append else 0)


def test_a_point_that_the_job_does_not_name_is_a_mistake_of_the_user(
    system: StructuredStreaming, tmp_path: Path
) -> None:
    """No fault would ever be aimed there, and nobody would know."""
    PretendedDriver.second = staticmethod(overwrite_second)
    with pytest.raises(
        NotJudgeable, match="stands at the point 'between the tables', which its StreamingJob"
    ):
        tried(system, tmp_path)


@pytest.mark.parametrize(
    ("tested", "told"),
    [
        (job, RowNames("id", ("key",))),
        (StreamingJob(query=same, sink=written, input="money"), NOTHING_KNOWN),
        (StreamingJob(query=same, sink=written, input=Path("somewhere")), RowNames(any_columns=True)),
    ],
    ids=["a workload with ids", "one without", "files"],
)
def test_the_judge_is_told_what_is_known_of_the_columns_of_the_input(
    tested: StreamingJob, told: RowNames
) -> None:
    made = StructuredStreaming(tested)
    made.__dict__["_files"] = (Path("a.parquet"),) if isinstance(tested.input, Path) else ()
    name = tested.input if isinstance(tested.input, str) else WorkloadPlan().name
    assert made._names(TrialPlan(workload=WorkloadPlan(name))) == told


def test_a_users_file_is_named_as_the_user_has_named_it() -> None:
    made = StructuredStreaming(job)
    found = WrongRow(
        kind="lost", row="", expected=1, committed=0, input=(InputRow("00001.parquet", 1, ""),) * 2
    )
    compared = OutputComparison(None, wrong=(found,))
    assert made._with_names_of_files(compared) == compared, "generated files have no other names"
    made.__dict__["_files"] = (Path("somewhere/a.parquet"), Path("somewhere/b.parquet"))
    named = made._with_names_of_files(compared)
    assert [row.file for row in named.wrong[0].input] == ["b.parquet", "b.parquet"]


def test_trials_after_one_another_know_nothing_of_each_other(
    system: StructuredStreaming, tmp_path: Path
) -> None:
    PretendedDriver.sink = staticmethod(overwrite)
    tried(system, tmp_path, killed_at(ProtocolPoint.ALL_ACKNOWLEDGED), settings={"executors_again": 1})
    quiet = tried(system, tmp_path)
    assert PretendedJudge.orders[-1].run_again == ()
    assert quiet.verdict is Verdict.VALID, quiet.findings
    assert (len(quiet.attempts), quiet.batches_committed) == (1, 3)
    last = [driver for driver in PretendedDriver.made if not driver.gone and driver._thread is not None]
    assert [driver.conf for driver in last] == [{"spark.sql.shuffle.partitions": "2"}]
    assert not list(tmp_path.glob("trial-*")), "files of a trial go with it"


@pytest.mark.parametrize(
    ("point", "replayed"),
    [
        (ProtocolPoint.CHECKPOINT_TRIGGERED, 0),
        (ProtocolPoint.BARRIER_RECEIVED, 0),
        (ProtocolPoint.SNAPSHOT_TAKEN, 1),
        (ProtocolPoint.ALL_ACKNOWLEDGED, 1),
    ],
    ids=str,
)
def test_a_kill_is_a_chance_only_if_the_sink_had_been_given_rows_of_what_runs_again(
    system: StructuredStreaming, tmp_path: Path, point: ProtocolPoint, replayed: int
) -> None:
    PretendedDriver.sink = staticmethod(overwrite)
    record = tried(system, tmp_path, killed_at(point))
    assert finding(record, "committed-output").counts[EXERCISED] == replayed


def test_a_micro_batch_without_rows_is_no_chance(
    system: StructuredStreaming, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a query with a watermark, whose micro-batches may write nothing for a long time."""
    PretendedDriver.sink = staticmethod(overwrite)
    monkeypatch.setattr(
        PretendedDriver, "rows_written", staticmethod(lambda number, rows: rows * (number != 1))
    )
    for nth, replayed in ((2, 0), (3, 1)):
        record = tried(system, tmp_path, killed_at(ProtocolPoint.ALL_ACKNOWLEDGED, nth))
        counts = finding(record, "committed-output").counts
        assert counts[EXERCISED] == replayed
        assert PretendedJudge.orders[-1].run_again == (nth - 1,)


def test_a_job_that_cannot_be_judged_ends_before_any_fault_and_is_a_mistake_of_the_user(
    system: StructuredStreaming, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PretendedJudge, "check", lambda *_: JobCheck("the query is not deterministic"))
    for run in (system.prepare, lambda: tried(system, tmp_path, killed_at(ProtocolPoint.ALL_ACKNOWLEDGED))):
        with pytest.raises(
            NotJudgeable, match="test_trials:job cannot be judged: the query is not determ"
        ) as found:
            run()
    assert found.value.exit_code == 3
    assert not PretendedDriver.batches_run


def test_a_look_at_the_job_that_fails_stops_nothing(
    system: StructuredStreaming, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RemoteError("Py4JError", "an answer from the Java side is empty")

    monkeypatch.setattr(PretendedJudge, "check", fails)
    PretendedDriver.sink = staticmethod(overwrite)
    assert tried(system, tmp_path, killed_at(ProtocolPoint.ALL_ACKNOWLEDGED)).verdict is Verdict.VALID


def test_event_time_goes_on_so_fast_that_rows_which_are_held_back_are_final_a_micro_batch_later(
    tmp_path: Path,
) -> None:
    made = StructuredStreaming(job)
    plan = filled(TrialPlan(workload=WorkloadPlan(batches=3, batch_records=4)))
    made._write_input(plan, tmp_path / "input", held_back_s=873)
    files = sorted((tmp_path / "input").iterdir())
    ends = [max(pq.read_table(file)["at"].to_pylist()).timestamp() for file in files]
    assert all(later - sooner >= 873 for sooner, later in itertools.pairwise(ends))


@pytest.mark.parametrize("name", ["keyed-totals", "money", "passthrough"])
@pytest.mark.parametrize("early_ends", [0, 1])
def test_the_input_has_each_row_of_the_workload_once_in_files_whose_times_are_their_order(
    tmp_path: Path, name: str, early_ends: int
) -> None:
    """Rows that are missing here are missing for the query and for its judge, who would agree."""
    made = StructuredStreaming(StreamingJob(query=same, sink=written, input=name))
    workload = WorkloadPlan(name, batches=3, batch_records=5, early_ends=early_ends)
    plan = filled(TrialPlan(seed=6, workload=workload))
    made._write_input(plan, tmp_path / "input")
    files = sorted((tmp_path / "input").iterdir(), key=lambda file: file.stat().st_mtime)
    assert [file.name for file in files] == ["00000.parquet", "00001.parquet", "00002.parquet"]
    tables = [pq.read_table(file) for file in files]
    assert max(table.num_rows for table in tables) - min(table.num_rows for table in tables) <= 1
    found = [row for table in tables for row in table.to_pylist()]
    times = [row.pop("at").timestamp() for row in found]
    expected = [row for split in workload_named(name).splits(plan) for row in split.input]
    assert found == (expected if name == "money" else sorted(expected, key=itemgetter("id")))
    assert times == [times[0] + second for second in range(len(times))]


def finding(record: TrialRecord, checker: str) -> Any:
    return next(found for found in record.findings if found.checker == checker)
