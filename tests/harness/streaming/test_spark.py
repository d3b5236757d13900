"""Streaming jobs with Spark; grain: the judge over files that tests write, then the examples under real kills."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.disturb_writes import DisturbWrites
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.pause_executor import PauseExecutor
from barrier_tck.faults.kinds.pause_worker import PauseWorker
from barrier_tck.faults.targets import TargetKind, WriteFault
from barrier_tck.faults.vocabulary import At, Trigger
from barrier_tck.harness import (
    After,
    CrashCoordinator,
    KillExecutor,
    LimitsPlan,
    ProtocolPoint,
    QueryPlace,
    QueryState,
    ScheduledFault,
    StreamingJob,
    TrialPlan,
    TrialRecord,
    Verdict,
    WorkloadPlan,
    run_trial,
)
from barrier_tck.harness.cluster.java_compiler import has_java_compiler
from barrier_tck.harness.cluster.rendezvous import Rendezvous
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.record.history import OutputComparison
from barrier_tck.harness.record.verdict import EXERCISED
from barrier_tck.harness.streaming import stock_job
from barrier_tck.harness.streaming.driver import stock_jobs, stock_processors
from barrier_tck.harness.streaming.driver.batch_judge import judged
from barrier_tck.harness.streaming.driver.task_points import TaskPoints
from barrier_tck.harness.streaming.driver.user_starts import observed_starts
from barrier_tck.harness.streaming.query_rpc import PointReports, RowNames, TaskRun
from barrier_tck.harness.streaming.structured_streaming import STEP_OF_SINK, StructuredStreaming
from tests.harness.streaming import local_streams, reported_jobs
from tests.harness.streaming.test_micro_batches import noted

pytestmark = [pytest.mark.spark, pytest.mark.long]
ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples" / "my_streaming_job"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session(
        None, "judge-tests", {"spark.sql.shuffle.partitions": "2"}, quick_start=True
    ) as session:
        yield session


@pytest.fixture
def place(tmp_path: Path) -> QueryPlace:
    return QueryPlace(*(str(tmp_path / name) for name in ("input", "output", "checkpoint")))


def same(frame: DataFrame) -> DataFrame:
    return frame


def nothing(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Stand for a sink."""


APPENDS = StreamingJob(query=same, sink=nothing)
COUNTS = StreamingJob(
    query=lambda frame: frame.groupBy("key").count(), sink=nothing, output_mode="update", latest_by=("key",)
)


def compared(
    spark: SparkSession,
    job: StreamingJob,
    place: QueryPlace,
    given: list[dict[str, Any]],
    committed: list[dict[str, Any]],
    run_again: tuple[int, ...] = (),
) -> OutputComparison:
    spark.createDataFrame(given).write.parquet(place.input)
    if committed:
        spark.createDataFrame(committed).write.parquet(place.output)
    return judged(spark, job, place, run_again)


def wrong(comparison: OutputComparison) -> tuple[int, int, int]:
    assert comparison.counts is not None, comparison.problem
    return comparison.counts.lost, comparison.counts.duplicated, comparison.counts.unexpected


ROWS = [{"key": "a", "n": 1}, {"key": "a", "n": 1}, {"key": "b", "n": 2}]


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (ROWS, (0, 0, 0)),
        (ROWS[1:], (1, 0, 0)),
        ([*ROWS, ROWS[0]], (0, 1, 0)),
        ([*ROWS, {"key": "c", "n": 1}], (0, 0, 1)),
        ([], (3, 0, 0)),
    ],
    ids=["equal", "lost", "duplicated", "unexpected", "nothing"],
)
def test_multisets_are_compared_both_ways(
    spark: SparkSession,
    place: QueryPlace,
    committed: list[dict[str, Any]],
    expected: tuple[int, int, int],
) -> None:
    assert wrong(compared(spark, APPENDS, place, ROWS, committed)) == expected


def test_a_total_that_was_added_to_twice_is_shown_beside_the_one_that_it_should_be(
    spark: SparkSession, place: QueryPlace
) -> None:
    committed = [{"key": "a", "n": 2}, {"key": "b", "n": 5}, {"key": "d", "n": 1}]
    given = [{"key": "a", "n": 1}, {"key": "b", "n": 3}, {"key": "c", "n": 1}]
    found = compared(spark, APPENDS, place, given, committed)
    assert found.added_again == 1 and wrong(found) == (3, 0, 3)
    assert found.examples[:2] == (
        "duplicated: key=a, n=2 is in the output in place of key=a, n=1: 2 times as much: n is higher by 1",
        "lost: key=b, n=5 is in the output in place of key=b, n=3: n is higher by 2",
    )
    assert set(found.examples[2:]) == {
        "lost: key=c, n=1 is not in the output",
        "unexpected: key=d, n=1 is in the output once, and the query run as a batch gives no such row",
    }


def test_a_total_that_is_too_great_by_what_a_micro_batch_adds_is_duplicated_and_names_it(
    spark: SparkSession, place: QueryPlace
) -> None:
    """The key "a" is in two of three micro-batches; what the second one adds is there twice."""
    Path(place.input).mkdir()
    for number, rows in enumerate(([("a", 10), ("b", 1)], [("a", 3)], [("b", 5)])):
        table = pa.Table.from_pylist([{"key": key, "n": n} for key, n in rows])
        pq.write_table(table, Path(place.input, f"{number:05d}.parquet"))
    noted(Path(place.checkpoint), [[0], [1], [2]], [0, 1, 2], compact=False)
    job = StreamingJob(
        query=same, batch=lambda rows: rows.groupBy("key").agg(sf.sum("n").alias("n")), sink=nothing
    )
    spark.createDataFrame([{"key": "a", "n": 16}, {"key": "b", "n": 6}]).write.parquet(place.output)
    found = judged(spark, job, place, (1,), RowNames("id", ("key",)))
    (row,) = found.wrong
    assert row.difference == "n is higher by 3, which is what micro-batch 1 adds (it ran more than once)"
    assert (row.kind, row.found_by, row.input_rows, row.read_by) == ("duplicated", ("key",), 2, (0, 1))
    assert (found.added_again, wrong(found)) == (1, (1, 0, 1))
    elsewhere = judged(spark, job, place, (2,), RowNames("id", ("key",)))
    assert (elsewhere.added_again, elsewhere.wrong[0].kind) == (0, "lost")


def test_a_row_that_came_twice_is_shown_twice_with_its_micro_batches(
    spark: SparkSession, place: QueryPlace
) -> None:
    rows = [{"key": "a", "batch_id": 3}, {"key": "a", "batch_id": 3}]
    found = compared(spark, APPENDS, place, [{"key": "a"}], rows)
    assert found.examples == (
        "duplicated: key=a is in the output 2 times, and expected once; written by micro-batch 3 (2 times)",
    )


def test_at_least_once_excuses_copies_of_what_ran_again_and_nothing_else(
    spark: SparkSession, place: QueryPlace
) -> None:
    job = replace(APPENDS, delivery="at_least_once")
    rows = [{"key": "a", "batch_id": 1}, {"key": "b", "batch_id": 2}]
    doubled = [*rows, *rows]
    found = compared(spark, job, place, [{"key": "a"}, {"key": "b"}, {"key": "c"}], doubled, run_again=(1,))
    assert wrong(found) == (1, 1, 0)
    assert found.checks == {"copies of rows of micro-batches that ran again": {"output": 1}}


def test_a_changelog_is_reduced_to_its_latest_rows(spark: SparkSession, place: QueryPlace) -> None:
    given = [{"key": "a"}, {"key": "a"}]
    log = [{"key": "a", "count": 1, "batch_id": 0}, {"key": "a", "count": 2, "batch_id": 1}]
    assert wrong(compared(spark, COUNTS, place, given, log)) == (0, 0, 0)


def test_an_update_that_was_written_twice_is_told(spark: SparkSession, place: QueryPlace) -> None:
    given = [{"key": "a"}, {"key": "a"}]
    log = [
        {"key": "a", "count": 1, "batch_id": 0},
        {"key": "a", "count": 1, "batch_id": 0},
        {"key": "a", "count": 2, "batch_id": 1},
    ]
    found = compared(spark, COUNTS, place, given, log)
    assert wrong(found) == (0, 1, 0)
    assert found.examples[0] == "duplicated: one micro-batch wrote the update key=a, count=1 2 times"


def test_of_a_complete_output_the_last_micro_batch_counts(spark: SparkSession, place: QueryPlace) -> None:
    job = replace(COUNTS, output_mode="complete", latest_by=())
    log = [{"key": "a", "count": 1, "batch_id": 0}, {"key": "a", "count": 2, "batch_id": 1}]
    assert wrong(compared(spark, job, place, [{"key": "a"}, {"key": "a"}], log)) == (0, 0, 0)


def test_rows_beyond_the_watermark_are_not_expected_yet(spark: SparkSession, place: QueryPlace) -> None:
    job = StreamingJob(
        query=lambda frame: frame.selectExpr("timestamp_seconds(second) AS at"), sink=nothing, final_by="at"
    )
    for name, watermark_ms in (("0", 5_000), ("1", 9_000), ("2", 50_000)):
        offsets = Path(place.checkpoint, "offsets", name)
        offsets.parent.mkdir(parents=True, exist_ok=True)
        offsets.write_text("v1\n" + json.dumps({"batchWatermarkMs": watermark_ms}) + "\n{}")
    for name in ("0", "1"):  # the third micro-batch was not committed
        Path(place.checkpoint, "commits").mkdir(exist_ok=True)
        Path(place.checkpoint, "commits", name).write_text("v1\n{}")
    given = [{"second": second} for second in (1, 9, 10, 60)]
    spark.createDataFrame(given).write.parquet(place.input)
    job.query(spark.createDataFrame([{"second": 1}, {"second": 10}])).write.parquet(place.output)
    # 9 is final and missing; 10 is not final, and is there.
    assert wrong(judged(spark, job, place, ())) == (1, 0, 1)


def test_a_row_without_a_moment_at_which_it_is_final_is_due_at_once(
    spark: SparkSession, place: QueryPlace
) -> None:
    job = StreamingJob(
        query=lambda frame: frame.selectExpr("id", "timestamp_seconds(second) AS at"),
        sink=nothing,
        final_by="at",
    )
    given = [(1, None), (2, None), (3, 60)]
    spark.createDataFrame(given, "id long, second long").write.parquet(place.input)
    job.query(spark.createDataFrame(given[:1], "id long, second long")).write.parquet(place.output)
    assert wrong(judged(spark, job, place, ())) == (1, 0, 0)


@pytest.mark.long
def test_an_output_without_the_columns_cannot_be_compared(spark: SparkSession, place: QueryPlace) -> None:
    found = compared(spark, APPENDS, place, [{"key": "a"}], [{"other": "a"}])
    assert found.counts is None
    assert found.problem == "the output that was read has no column key"


# --- Spark itself -------------------------------------------------------------------------------------------

EMPTY_AT_FIRST = "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart"


@pytest.mark.long
def test_spark_starts_no_query_whose_first_offsets_were_half_written_unless_it_is_told_to(
    spark: SparkSession, place: QueryPlace
) -> None:
    """Told in the guide, because trials meet it: a temporary file is all that a driver leaves that is killed then."""
    spark.createDataFrame(ROWS).write.parquet(place.input)
    left = Path(place.checkpoint, "offsets", ".0.5d1c1a53-9d5c-4b6e-8f2b-0c5a4b7e6f10.tmp")
    left.parent.mkdir(parents=True)
    left.touch()
    counts = COUNTS.query(
        spark.readStream.schema(spark.read.parquet(place.input).schema).parquet(place.input)
    )
    writer = (
        counts.writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", place.checkpoint)
        .trigger(availableNow=True)
    )
    with pytest.raises(StreamingQueryException, match="STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"):
        writer.start().awaitTermination()
    spark.conf.set(EMPTY_AT_FIRST, "false")
    try:
        writer.start().awaitTermination()
    finally:
        spark.conf.unset(EMPTY_AT_FIRST)
    assert Path(place.checkpoint, "commits", "0").exists()


# --- where faults are aimed in queries that a user starts, and between two actions of a sink ---------------


class Noted:
    """Takes what is reported at points; implements ``PointReports``."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.ended: list[tuple[int, int]] = []
        self.stood: list[str] = []

    def task_began(self, worker: int, batch: int, task: TaskRun) -> None:
        self.began.append(batch)

    def rows_passed(self, worker: int, batch: int, rows: int) -> None: ...

    def all_rows_passed(self, worker: int, batch: int, rows: int) -> None:
        self.ended.append((batch, rows))

    def sink_stands(self, name: str) -> None:
        self.stood.append(name)


def stands(spark: SparkSession, place: QueryPlace) -> StreamingQuery:
    """Start a query that reads as much at a time as it is given, with a sink that does two things."""

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{place.output}/{batch_id}")
        place.point("after the write")

    stream = spark.readStream.schema(spark.read.parquet(place.input).schema).parquet(place.input)
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", place.checkpoint)
    return writer.trigger(availableNow=True).start()


@pytest.mark.long
def test_the_tasks_of_a_query_that_its_user_starts_stand_still_in_each_micro_batch_and_so_does_its_sink(
    spark: SparkSession, place: QueryPlace, tmp_path: Path
) -> None:
    local_streams.write_input(place, batches=3, rows=3)
    noted, rendezvous = Noted(), tmp_path / "points"
    with Rendezvous(rendezvous, PointReports, noted):
        with observed_starts(TaskPoints(str(rendezvous))):
            query = stands(spark, replace(place, rendezvous=str(rendezvous)))
        query.awaitTermination()
    files = [pq.read_metadata(file).num_rows for file in sorted(Path(place.input).iterdir())]
    assert noted.began == [0, 1, 2]
    assert noted.ended == list(enumerate(files))
    assert noted.stood == ["after the write"] * 3


# --- the examples -------------------------------------------------------------------------------------------

AFTER_THE_WRITE = After(ProtocolPoint.ALL_ACKNOWLEDGED, None, nth=2)
AFTER_THE_TASKS_WRITE = After(ProtocolPoint.SNAPSHOT_TAKEN, "tasks", nth=2)
DRIVER, EXECUTOR = CrashCoordinator(), KillExecutor("tasks")


@pytest.fixture(scope="module")
def cluster() -> Iterator[StructuredStreaming]:
    """One cluster for all examples: between two trials a test puts another job on it."""
    sys.path.insert(0, str(EXAMPLES))
    system = StructuredStreaming(example("idempotent"))
    try:
        yield system
    finally:
        system.close()
        sys.path.remove(str(EXAMPLES))


def example(name: str) -> StreamingJob:
    found = importlib.import_module(f"my_streaming_job.{name}").job
    assert isinstance(found, StreamingJob)
    return found


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "doubled"),
    [("naive", True), ("row_by_row", True), ("idempotent", False), ("at_least_once", False)],
)
def test_examples_double_a_micro_batch_that_comes_again_or_do_not(
    importable: None, spark: SparkSession, place: QueryPlace, name: str, doubled: bool
) -> None:
    """What the cluster shows below, without one: the sink is called twice for the last micro-batch."""
    local_streams.write_input(place, batches=2, rows=3)
    written = local_streams.run(spark, example(name), place, again={1})
    found = judged(spark, example(name), place, run_again=(1,))
    assert wrong(found) == (0, written[1] if doubled else 0, 0)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "fault", "trigger", "retries", "verdict"),
    [
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("naive", DRIVER, AFTER_THE_WRITE, "stock", Verdict.INVALID),
                ("idempotent", DRIVER, AFTER_THE_WRITE, "stock", Verdict.VALID),
            )
        ),
        *(
            pytest.param(*case, marks=pytest.mark.nightly)
            for case in (
                ("row_by_row", EXECUTOR, AFTER_THE_TASKS_WRITE, "stock", Verdict.INVALID),
                ("at_least_once", DRIVER, AFTER_THE_WRITE, "stock", Verdict.VALID),
                ("naive", EXECUTOR, AFTER_THE_TASKS_WRITE, "stock", Verdict.VALID),
                ("idempotent", EXECUTOR, AFTER_THE_TASKS_WRITE, "none", Verdict.VALID),
            )
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_examples_keep_their_promise_or_do_not(
    cluster: StructuredStreaming,
    tmp_path: Path,
    name: str,
    fault: Fault,
    trigger: After,
    retries: str,
    verdict: Verdict,
) -> None:
    record = run_one(cluster, tmp_path, example(name), fault, trigger, {"retries": retries})
    assert record.verdict is verdict, finding(record, "committed-output")
    if name == "at_least_once":
        assert finding(record, "committed-output").counts["copies_excused"] == 8
    if retries == "none":  # the query ended, and was started again
        assert len(record.attempts) > 1


# --- other kinds of queries, outputs and faults ---------------------------------------------------------------

NEEDS_JAVAC = pytest.mark.skipif(
    not has_java_compiler(), reason="there is no javac, which compiles the class that disturbs writes"
)
WITHIN_A_TASK = After(ProtocolPoint.RECORDS_PROCESSED, "tasks", nth=3)
AT_THE_COMMIT = FailPrimaryWrites("tasks", metadata=True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("job", "fault", "trigger", "settings"),
    [
        pytest.param(
            stock_job.job,
            CrashCoordinator(),
            AFTER_THE_WRITE,
            {"executors_again": 1},
            marks=pytest.mark.nightly,
        ),
        pytest.param(stock_job.job, AT_THE_COMMIT, AFTER_THE_WRITE, {}, marks=pytest.mark.nightly),
        pytest.param(
            stock_jobs.windows,
            CrashCoordinator(unreadable_ms=1_500),
            AFTER_THE_WRITE,
            {},
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            stock_jobs.windows,
            CrashCoordinator(),
            AFTER_THE_WRITE,
            {"late_rows": 500},
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            stock_jobs.pairs, FailPrimaryWrites("tasks"), WITHIN_A_TASK, {}, marks=pytest.mark.nightly
        ),
        pytest.param(
            stock_jobs.keys, PauseExecutor("tasks", 1_000), WITHIN_A_TASK, {}, marks=pytest.mark.nightly
        ),
        pytest.param(
            stock_jobs.pairs,
            DisturbWrites(WriteFault.FULL, 3),
            WITHIN_A_TASK,
            {},
            marks=[pytest.mark.long, NEEDS_JAVAC],
        ),
        pytest.param(
            stock_processors.own_state,
            DisturbWrites(WriteFault.FAILS, 2),
            WITHIN_A_TASK,
            {"retries": "none"},
            marks=[pytest.mark.nightly, NEEDS_JAVAC],
        ),
        pytest.param(
            stock_processors.own_state,
            KillExecutor("tasks"),
            WITHIN_A_TASK,
            {"retries": "none"},
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            stock_jobs.whole, PauseWorker("tasks", 1_000), WITHIN_A_TASK, {}, marks=pytest.mark.nightly
        ),
        pytest.param(stock_jobs.files, KillExecutor("tasks"), WITHIN_A_TASK, {}, marks=pytest.mark.nightly),
        *(
            pytest.param(stock_jobs.started, CrashCoordinator(), trigger, {}, marks=pytest.mark.nightly)
            for trigger in (At(1_000), After(ProtocolPoint.SNAPSHOT_TAKEN, "tasks", nth=3))
        ),
    ],
    ids=[
        *(
            "totals",
            "commit",
            "windows",
            "late-rows",
            "pairs",
            "keys",
            "full",
            "writes-fail",
            "own-state",
            "complete",
        ),
        *("files", "started", "started-later"),
    ],
)
def test_stock_jobs_keep_their_promise(
    cluster: StructuredStreaming,
    tmp_path: Path,
    job: StreamingJob,
    fault: Fault,
    trigger: Trigger,
    settings: dict[str, Any],
) -> None:
    record = run_one(cluster, tmp_path, job, fault, trigger, settings)
    assert record.verdict is Verdict.VALID, record.findings
    assert finding(record, "committed-output").counts["expected"] > 0
    if "late_rows" in settings:
        assert finding(record, "committed-output").counts["missing_because_late"] > 0
        assert finding(record, "batch-watermarks").counts[EXERCISED] > 0
    if job.state is not None:
        assert finding(record, "state-in-between").counts["entries"] > 0
    if (
        not isinstance(fault, PauseExecutor | PauseWorker | KillExecutor)
        and fault.needs is not TargetKind.WRITES
    ):
        assert len(record.attempts) > 1, "the query ended, and was started again"


def swaps(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Plant a bug: the state of the third micro-batch is, on disk, that of the second."""
    stock_job.overwrite(batch, batch_id, place)
    for file in Path(place.checkpoint, "state", "0").glob("*/3.delta") if batch_id == 2 else ():
        file.with_name(f".{file.name}.crc").unlink()
        file.write_bytes(file.with_name("2.delta").read_bytes())


swapped = StreamingJob(
    query=stock_job.totals,
    sink=swaps,
    output_mode="update",
    latest_by=("key",),
    state=QueryState(of=stock_job.totals),
)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("job", "trigger", "told"),
    [
        (reported_jobs.windows_noted_first, After(STEP_OF_SINK, None, nth=3), "lost"),
        (reported_jobs.checkpoint_lost, After(ProtocolPoint.SNAPSHOT_TAKEN, "tasks", nth=3), "duplicated"),
    ],
    ids=["between two transactions", "started by its user"],
)
def test_wrong_jobs_are_caught_where_no_fault_could_strike_before(
    cluster: StructuredStreaming, tmp_path: Path, job: StreamingJob, trigger: Trigger, told: str
) -> None:
    record = run_one(cluster, tmp_path, job, CrashCoordinator(), trigger, {})
    assert record.verdict is Verdict.INVALID
    assert finding(record, "committed-output").counts[told] > 0


@pytest.mark.nightly
def test_wrong_state_shows_only_in_the_state(cluster: StructuredStreaming, tmp_path: Path) -> None:
    record = run_one(cluster, tmp_path, swapped, PauseWorker("tasks", 200), WITHIN_A_TASK, {})
    assert finding(record, "committed-output").verdict is Verdict.VALID
    found = finding(record, "state-in-between")
    assert found.verdict is Verdict.INVALID
    assert found.examples[0].startswith("after micro-batch 2, ")


@NEEDS_JAVAC
@pytest.mark.nightly
@pytest.mark.parametrize("trouble", WriteFault)
def test_a_naive_append_shows_what_a_disturbed_commit_does(
    cluster: StructuredStreaming, tmp_path: Path, trouble: WriteFault
) -> None:
    """The commit is not noted, and the micro-batch comes again; or it is, and the driver only believes otherwise."""
    fault = DisturbWrites(trouble, 1, 700 if trouble is WriteFault.SLOW else 0)
    record = run_one(cluster, tmp_path, example("naive"), fault, AFTER_THE_WRITE, {})
    again = trouble in (WriteFault.FAILS, WriteFault.FULL)
    assert finding(record, "committed-output").counts["duplicated"] == (8 if again else 0)
    assert len(record.attempts) == (1 if trouble is WriteFault.SLOW else 2)


@pytest.mark.nightly
def test_a_naive_append_is_caught_without_any_kill(cluster: StructuredStreaming, tmp_path: Path) -> None:
    """The commit log cannot be written once, so the micro-batch comes again."""
    naive = example("naive")
    record = run_one(cluster, tmp_path, naive, AT_THE_COMMIT, AFTER_THE_WRITE, {})
    assert finding(record, "committed-output").counts["duplicated"] == 8


def run_one(
    cluster: StructuredStreaming,
    directory: Path,
    job: StreamingJob,
    fault: Fault,
    trigger: Trigger,
    settings: dict[str, Any],
) -> TrialRecord:
    cluster._job = job
    plan = TrialPlan(
        workload=WorkloadPlan(batches=3, batch_records=4),
        faults=(ScheduledFault(fault, trigger),),
        system=settings,
        limits=LimitsPlan(wall_s=300),
    )
    record = run_trial(plan, cluster, directory)
    assert finding(record, "faults-fired").verdict is Verdict.VALID, record.findings
    return record


def finding(record: TrialRecord, checker: str) -> Any:
    return next(found for found in record.findings if found.checker == checker)
