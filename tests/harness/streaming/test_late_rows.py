"""Late rows: what a query must have committed then, and the watermarks that say so; grain: streams in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from barrier_tck.harness import QueryPlace, StreamingJob
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.record.history import OutputComparison
from barrier_tck.harness.record.query_times import Reference
from barrier_tck.harness.streaming.driver import batch_judge, expected_rows
from barrier_tck.harness.streaming.driver.batch_judge import judged
from barrier_tck.harness.streaming.driver.job_check import checked
from barrier_tck.harness.streaming.driver.micro_batches import noted_batches
from barrier_tck.harness.streaming.driver.undisturbed import UndisturbedRun, undisturbed_run
from barrier_tck.harness.streaming.stock_job import overwrite
from tests.harness.streaming import late_jobs, local_streams

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

SECONDS = ((0, 1, 2), (9, 3, 10), (1, 12, 2), (20, 11, 5), (30, 1, 22), (40, 33, 41))
"""The times of the rows of each micro-batch; with a delay of two seconds, some are late from the third one on."""
SHOWN_FIRST = ("tumbling", "once_within")


@pytest.fixture(scope="module")
def session() -> Iterator[SparkSession]:
    conf = {"spark.sql.shuffle.partitions": "2", **batch_judge.SMALL}
    with spark_session(None, "late-rows", conf, quick_start=True) as opened:
        yield opened


@pytest.fixture
def spark(session: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session, with the settings of the job that a test names."""
    name = request.node.callspec.params.get("name") if hasattr(request.node, "callspec") else None
    conf = late_jobs.RIGHT[name].conf if name in late_jobs.RIGHT else {}
    for key, value in conf.items():
        session.conf.set(key, value)
    yield session
    for key in conf:
        session.conf.unset(key)


@pytest.fixture
def place(tmp_path: Path) -> QueryPlace:
    found = QueryPlace(*(str(tmp_path / name) for name in ("input", "output", "checkpoint")))
    Path(found.input).mkdir()
    return found


def write(place: QueryPlace, seconds: Sequence[Sequence[int]], first: int = 0) -> None:
    for batch, times in enumerate(seconds):
        rows = [
            {
                "id": 10 * (first + batch) + number,
                "key": "ab"[number % 2],
                "value": 1,
                "at": local_streams.START + timedelta(seconds=second),
            }
            for number, second in enumerate(times)
        ]
        local_streams.write_file(place, first + batch, rows)


def run_with_a_restart(spark: SparkSession, job: StreamingJob, place: QueryPlace, **how: Any) -> None:
    """Run a query over a part of the input to its end, and start it again for the rest."""
    write(place, SECONDS[:3])
    local_streams.run(spark, job, place, **how)
    write(place, SECONDS[3:], first=3)
    local_streams.run(spark, job, place, **how)


def wrong(comparison: OutputComparison) -> tuple[int, int, int]:
    assert comparison.counts is not None, comparison.problem
    return comparison.counts.lost, comparison.counts.duplicated, comparison.counts.unexpected


def named_jobs(names: Sequence[str]) -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.long if name in SHOWN_FIRST else pytest.mark.nightly)
        for name in names
    ]


@pytest.mark.parametrize("name", named_jobs(list(late_jobs.RIGHT)))
def test_a_right_job_has_what_an_undisturbed_run_gives(
    spark: SparkSession, place: QueryPlace, name: str
) -> None:
    job = late_jobs.RIGHT[name]
    run_with_a_restart(spark, job, place, again=(1, 4))
    found = checked(spark, job, place)
    assert found.problem == ""
    comparison = judged(spark, job, place, (1, 4), as_batch=found.as_batch, restarted_before=restarts(place))
    assert wrong(comparison) == (0, 0, 0), comparison.examples
    assert comparison.counts is not None
    assert comparison.counts.expected > 0
    assert comparison.against is Reference.UNDISTURBED
    marks = comparison.watermarks
    assert marks is not None
    assert (marks.exact, marks.differences) == (True, ())
    assert marks.advances > 2
    assert found.as_batch == (name not in ("once_within", "counted_until_quiet"))
    if found.as_batch and name != "of_groups":
        assert comparison.late is not None
        assert comparison.late.number >= 4
        assert comparison.late.rows[0].micro_batch == 2


@pytest.mark.parametrize("name", named_jobs(list(late_jobs.WRONG)))
def test_a_sink_that_appends_has_rows_twice(spark: SparkSession, place: QueryPlace, name: str) -> None:
    job = late_jobs.WRONG[name]
    run_with_a_restart(spark, job, place, again=range(9))
    found = checked(spark, job, place)
    assert found.problem == ""
    comparison = judged(spark, job, place, (), as_batch=found.as_batch)
    lost, duplicated, unexpected = wrong(comparison)
    assert (lost, unexpected) == (0, 0), comparison.examples
    assert duplicated > 0


@pytest.mark.long
def test_a_row_that_is_missing_because_input_was_late_is_excused_and_shown(
    spark: SparkSession, place: QueryPlace
) -> None:
    job = late_jobs.RIGHT["tumbling"]
    run_with_a_restart(spark, job, place)
    late = judged(spark, job, place, ()).late
    assert late is not None
    # The rows at 1, 2, 5 and again at 1 s come when their window has ended; that at 11 s comes when it is open. Spark
    # counts the first two all the same: it drops what is behind the watermark of the micro-batch before.
    assert late.number == 4
    assert late.rows[0].sentence == (
        "id=20, key=a, value=1, at=2024-01-01 00:00:01, read by micro-batch 2 at the watermark 2024-01-01 00:00:08.000 "
        "UTC"
    )
    assert late.missing == 2
    assert all("count=" in example for example in late.examples)


@pytest.mark.parametrize("lost", ["late", "in time"])
def test_what_an_undisturbed_run_lacks_is_expected_where_no_late_row_has_a_part(
    spark: SparkSession, place: QueryPlace, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake of Spark's own is in both runs; planted here: neither gives one of the windows."""
    condition = "window.end = '2024-01-01 00:00:12'" if lost == "in time" else "false"

    def losing(*args: Any, **how: Any) -> UndisturbedRun:
        run = undisturbed_run(*args, **how)
        return replace(run, rows=run.rows.where(f"NOT ({condition})"))

    def sink(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
        overwrite(batch.where(f"NOT ({condition})"), batch_id, place)

    monkeypatch.setattr(expected_rows, "undisturbed_run", losing)
    job = replace(late_jobs.RIGHT["tumbling"], sink=sink)
    run_with_a_restart(spark, job, place)
    assert wrong(judged(spark, job, place, ()))[0] == (2 if lost == "in time" else 0)


def noted(place: QueryPlace, log: str, batch: int, name: str, value: int) -> None:
    """Change what a checkpoint directory says of a micro-batch."""
    file = Path(place.checkpoint, log, str(batch))
    lines = file.read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), name: value})
    file.write_text("\n".join(lines))
    file.with_name(f".{batch}.crc").unlink(missing_ok=True)


@pytest.mark.long
@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-1_000, "that of the one before, behind which it must not be"),
        (100_000, "by the rows that were read before it can be at most"),
        (9, "in an undisturbed run it is"),
    ],
    ids=["back", "ahead", "behind"],
)
def test_a_watermark_that_a_new_driver_takes_up_wrongly_is_seen(
    spark: SparkSession, place: QueryPlace, seconds: int, told: str
) -> None:
    """The driver before left one of 10 s; a micro-batch notes its own, and a commit that of the next one."""
    job = late_jobs.RIGHT["tumbling"]
    write(place, SECONDS[:3])
    local_streams.run(spark, job, place)
    last = max(int(file.name) for file in Path(place.checkpoint, "commits").glob("[0-9]*"))
    changed_ms = 1_000 * (int(local_streams.START.timestamp()) + seconds)
    noted(place, "commits", last, "nextBatchWatermarkMs", changed_ms)
    if seconds < 10:
        noted(place, "offsets", last, "batchWatermarkMs", changed_ms)
    write(place, SECONDS[3:], first=3)
    local_streams.run(spark, job, place)
    marks = judged(spark, job, place, ()).watermarks
    assert marks is not None
    assert told in marks.differences[0].sentence


def of_two_watermarks(rows: DataFrame) -> DataFrame:
    """One watermark for the rows of each key: that of a key which has no rows stays where it was."""
    halves = [rows.where(f"key = '{key}'").withWatermark("at", "2 seconds") for key in "ab"]
    return halves[0].unionAll(halves[1]).groupBy(sf.window("at", "4 seconds").alias("window")).count()


@pytest.mark.long
def test_several_watermarks_may_stay_behind_after_a_restart_and_rows_count_that_would_be_late(
    spark: SparkSession, place: QueryPlace
) -> None:
    """The first driver has met a row of the second key at 15 s; the second one has not, and takes 9 s for in time."""
    job = StreamingJob(query=of_two_watermarks, sink=overwrite, final_by="window.end")
    first = 0
    for part in ([(0, 1, 2), (9, 15, 10)], [(20, 11), (31, 12), (9,)], [(60, 61)]):
        write(place, part, first)
        local_streams.run(spark, job, place)
        first += len(part)
    comparison = judged(spark, job, place, (), restarted_before=restarts(place, 2, 5))
    assert comparison.watermarks is not None
    assert comparison.watermarks.differences == ()
    assert wrong(comparison) == (0, 0, 0), comparison.examples
    alone = judged(spark, job, place, ())
    assert alone.watermarks is not None
    assert "in an undisturbed run it is" in alone.watermarks.differences[0].sentence
    assert any(wrong(alone)), "otherwise this shows nothing of rows"


def restarts(place: QueryPlace, *files: int) -> tuple[int, ...]:
    """Return the micro-batches that read the files with which runs began."""
    names = {f"{number:05d}.parquet" for number in files}
    batches = noted_batches(Path(place.checkpoint)).batches
    return tuple(batch.number for batch in batches if names & set(batch.files))
