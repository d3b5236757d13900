"""What a job must have committed, for queries that are not simply their own batch; grain: streams in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from barrier_tck.harness import QueryPlace, StreamingJob, Upserts
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.record.history import OutputComparison
from barrier_tck.harness.streaming.driver.batch_judge import judged
from barrier_tck.harness.streaming.driver.expected_rows import expected_rows
from barrier_tck.harness.streaming.driver.job_check import checked
from tests.harness.streaming import local_streams, reported_jobs, unusual_jobs
from tests.harness.streaming.test_micro_batches import noted

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session(
        None, "judge-tests", {"spark.sql.shuffle.partitions": "2"}, quick_start=True
    ) as session:
        yield session


@pytest.fixture
def place(tmp_path: Path) -> QueryPlace:
    found = QueryPlace(*(str(tmp_path / name) for name in ("input", "output", "checkpoint")))
    local_streams.write_input(found)
    return found


def named(name: str) -> StreamingJob:
    found = getattr(unusual_jobs, name)
    assert isinstance(found, StreamingJob)
    return found


def wrong(comparison: OutputComparison) -> tuple[int, int, int]:
    assert comparison.counts is not None, comparison.problem
    return comparison.counts.lost, comparison.counts.duplicated, comparison.counts.unexpected


SHOWN_FIRST = (
    "left_outer",
    "merged",
    "load_time_left_out",
    "within_watermark",
)


@pytest.mark.parametrize("last_s", [3, 2], ids=["touching", "overlapping"])
def test_a_session_is_merged_before_it_is_asked_whether_it_is_final(
    spark: SparkSession, tmp_path: Path, last_s: int
) -> None:
    """The first row's window alone would have ended before the watermark, and the session of both rows does not."""
    place = QueryPlace(*(str(tmp_path / name) for name in ("input", "output", "checkpoint")))
    Path(place.input).mkdir()
    for batch, (key, second) in enumerate((("a", 0), ("a", last_s), ("b", 5))):
        at = local_streams.START + timedelta(seconds=second)
        local_streams.write_file(place, batch, [{"id": batch, "key": key, "value": 1, "at": at}])
    local_streams.run(spark, reported_jobs.sessions, place)
    comparison = judged(spark, reported_jobs.sessions, place, ())
    assert comparison.counts is not None, comparison.problem
    assert (comparison.counts.expected, comparison.counts.committed) == (0, 0), comparison.examples


def named_jobs(names: Iterable[str]) -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.long if name in SHOWN_FIRST else pytest.mark.nightly)
        for name in dict.fromkeys(names)
    ]


@pytest.mark.parametrize("name", named_jobs(right for right, _ in unusual_jobs.PAIRS))
def test_a_right_job_has_exactly_the_rows_that_are_expected(
    spark: SparkSession, place: QueryPlace, name: str
) -> None:
    job = named(name)
    if name == "deleted":
        delete_some(place)
    assert checked(spark, job, place).problem == ""
    local_streams.run(spark, job, place, again=(1, 2))
    comparison = judged(spark, job, place, (1, 2))
    assert wrong(comparison) == (0, 0, 0), comparison.examples
    assert comparison.counts is not None
    assert comparison.counts.expected > 0


@pytest.mark.parametrize("name", named_jobs(wrong for _, wrong in unusual_jobs.PAIRS))
def test_a_wrong_job_has_others(spark: SparkSession, place: QueryPlace, name: str) -> None:
    job = named(name)
    if name == "deleted_too_late":
        delete_some(place)
    assert checked(spark, job, place).problem == ""
    sizes = local_streams.run(spark, job, place, again=range(9))
    assert sum(map(bool, sizes)), "something was written"
    comparison = judged(spark, job, place, ())
    if comparison.counts is None:
        assert "latest_by needs a column batch_id" in comparison.problem
    else:
        assert any(wrong(comparison)), comparison


def test_a_batch_function_is_given_a_file_for_each_micro_batch(
    spark: SparkSession, place: QueryPlace
) -> None:
    rows_of_files = [
        spark.read.parquet(str(file)).count() for file in sorted(Path(place.input).glob("*.parquet"))
    ]
    job = StreamingJob(
        query=lambda rows: rows.select("id"),
        batch=lambda rows: rows.groupBy(sf.input_file_name().alias("file")).count(),
    )
    for entries, first in (([[0], [1]], rows_of_files[0]), ([[0, 1]], sum(rows_of_files[:2]))):
        checkpoint = noted(
            Path(f"{place.checkpoint}-{len(entries)}") / "checkpoint", entries, range(len(entries)), False
        )
        due = expected_rows(spark, job, replace(place, checkpoint=str(checkpoint))).due
        counts = [row["count"] for row in due.orderBy("file").collect()]
        assert counts == [first, *rows_of_files[3 - len(entries) :]]


def delete_some(place: QueryPlace) -> None:
    """Let the last row of a key delete it, and an earlier row of another, which comes again."""
    rows = [
        {"id": 100 + number, "key": key, "value": value, "at": local_streams.START}
        for number, (key, value) in enumerate([("a", 5), ("a", -1), ("b", -1), ("b", 7)])
    ]
    local_streams.write_file(place, 9, rows)


@pytest.mark.long
def test_a_pair_that_is_lost_is_seen_beyond_the_watermark_and_one_that_waits_is_not_missed(
    spark: SparkSession, place: QueryPlace
) -> None:
    """Rows are final in two ways, and each way has rows that can be lost."""
    job = unusual_jobs.left_outer
    local_streams.run(spark, job, place)
    rows = spark.read.parquet(place.output).cache()
    pairs, alone = rows.where("rid IS NOT NULL"), rows.where("rid IS NULL")
    newest_pair, first_alone = (
        pairs.agg({"lid": "max"}).collect()[0][0],
        alone.agg({"lid": "min"}).collect()[0][0],
    )
    for lost in (f"lid = {newest_pair} AND rid IS NOT NULL", f"lid = {first_alone}"):
        number = rows.where(lost).count()
        assert number > 0
        other = QueryPlace(place.input, f"{place.output}-{len(lost)}", place.checkpoint)
        rows.where(f"NOT ({lost})").write.parquet(other.output)
        assert wrong(judged(spark, job, other, ())) == (number, 0, 0)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("load_time", "differ in the column loaded_at, and it has current_timestamp()"),
        ("random_number", "differ in the column number, and it has rand(7"),
        ("new_ids", "differ in the column row_id, and it has uuid()"),
        ("hidden_clock", "differ in the column seen_at"),
        ("neither", "cannot be run as a batch, so what it must commit is not known: AnalysisException"),
        ("neither", "; and not as a stream: AnalysisException"),
        ("random_within", "give other rows: it is not deterministic"),
        ("updates_alone", "name the columns that identify one"),
        ("windows_without_end", "final_by='window.end'"),
    ],
)
def test_a_job_that_cannot_be_judged_is_told_so_and_how_to_say_more(
    spark: SparkSession, place: QueryPlace, name: str, told: str
) -> None:
    problem = checked(spark, named(name), place).problem
    assert told in problem
    assert ("batch=" in problem) == (name != "windows_without_end")


@pytest.mark.long
@pytest.mark.parametrize("name", ["within_watermark_alone", "pandas_state_alone"])
def test_a_query_that_spark_refuses_as_a_batch_is_judged_as_a_stream(
    spark: SparkSession, place: QueryPlace, name: str
) -> None:
    job = named(name)
    found = checked(spark, job, place)
    assert (found.problem, found.as_batch) == ("", False)
    local_streams.run(spark, job, place, again=(1,))
    comparison = judged(spark, job, place, (1,), as_batch=False)
    assert wrong(comparison) == (0, 0, 0), comparison.examples
    local_streams.write_file(place, 9, [])
    other = replace(job, sink=unusual_jobs.appends)
    again = replace(place, output=f"{place.output}-appended", checkpoint=f"{place.checkpoint}-appended")
    local_streams.run(spark, other, again, again=range(9))
    comparison = judged(spark, other, again, (), as_batch=False)
    assert "latest_by needs" in comparison.problem or wrong(comparison)[1] > 0


def per_window(rows: DataFrame) -> DataFrame:
    """Windows of four seconds, and a watermark eight seconds behind the newest row."""
    windows = sf.window("at", "4 seconds").alias("window")
    return rows.withWatermark("at", "8 seconds").groupBy(windows, "key").count()


def other_as_a_stream(rows: DataFrame) -> DataFrame:
    return per_window(rows.where("value > 0") if rows.isStreaming else rows)


@pytest.mark.long
@pytest.mark.parametrize("query", [per_window, other_as_a_stream])
def test_a_query_that_gives_other_rows_as_a_stream_without_any_fault_is_refused(
    spark: SparkSession, tmp_path: Path, query: Any
) -> None:
    """The third row is late, which is no difference; the fourth is in time, and its value is not above zero."""
    place = QueryPlace(*(str(tmp_path / name) for name in ("input", "output", "checkpoint")))
    Path(place.input).mkdir()
    for batch, second in enumerate((0, 12, 3, 13, 60)):
        at = local_streams.START + timedelta(seconds=second)
        row = {"id": batch, "key": "a", "value": int(batch != 3), "at": at}
        local_streams.write_file(place, batch, [row])
    problem = checked(spark, StreamingJob(query=query, final_by="window.end"), place).problem
    refused = problem.startswith(
        "without any fault, and where no late row has a part in it, the query gives other rows"
    )
    assert refused == (query is other_as_a_stream), problem
    assert ("the batch has window=" in problem) == refused


@pytest.mark.long
@pytest.mark.parametrize("name", ["spread", "first_today", "maps"])
def test_a_salt_a_date_and_a_map_are_no_obstacle(spark: SparkSession, place: QueryPlace, name: str) -> None:
    assert checked(spark, named(name), place).problem == ""


@pytest.mark.long
def test_columns_that_a_job_names_must_be_there(spark: SparkSession, place: QueryPlace) -> None:
    for job in (
        replace(unusual_jobs.left_outer, final_by="window.end"),
        replace(unusual_jobs.pandas_state, latest_by=("kee",)),
        replace(unusual_jobs.merged, upserts=Upserts(keys=("kee",), sequence_by="id")),
    ):
        assert checked(spark, job, place).problem
    tied = replace(unusual_jobs.merged, upserts=Upserts(keys=("key",), sequence_by="length(key)"))
    assert "same sequence_by" in checked(spark, tied, place).problem


@pytest.mark.long
def test_a_query_that_holds_rows_back_says_for_how_long(spark: SparkSession, place: QueryPlace) -> None:
    assert checked(spark, unusual_jobs.long_windows, place).held_back_s == 600 + 300
    assert checked(spark, unusual_jobs.left_outer, place).held_back_s == 1 + 4
    assert checked(spark, unusual_jobs.merged, place).held_back_s == 0
