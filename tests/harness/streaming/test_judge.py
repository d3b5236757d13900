"""The judges of a query's output and state; grain: files that tests write, compared with the same rules in Python.

Every situation in which a row can be is in one table, so one comparison by Spark answers for all of them.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from barrier_tck.harness import QueryPlace, QueryState, StreamingJob
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.record.history import OutputComparison, StateComparison
from barrier_tck.harness.streaming import stock_job
from barrier_tck.harness.streaming.driver.batch_judge import judged
from barrier_tck.harness.streaming.driver.state_judge import judged_state

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session(
        None, "judge-tests", {"spark.sql.shuffle.partitions": "2"}, quick_start=True
    ) as session:
        yield session


@pytest.fixture
def place(tmp_path: Path) -> QueryPlace:
    return QueryPlace(*(str(tmp_path / name) for name in ("input", "output", "checkpoint")))


def nothing(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Stand for a sink."""


def same(frame: DataFrame) -> DataFrame:
    return frame


Row = tuple[str | None, str | None, int]
TRICKY = tuple(itertools.product((None, "", "a", "a|", "|a", "b", "A", "a "), repeat=2))
"""Pairs that only a comparison column by column tells apart, with what is null and what is empty among them."""
ONCE, AGAIN = (1, 9), (2, 10)
"""Micro-batches that ran once, and that ran again. As text, 10 comes before 2 and before 9."""
Written = tuple[tuple[int, int], ...]
"""Micro-batch -> how many copies of a row it has written."""


@dataclass
class Found:
    """What the judge says, and what must be said."""

    expected: int = 0
    committed: int = 0
    lost: int = 0
    duplicated: int = 0
    unexpected: int = 0
    excused: int = 0

    @classmethod
    def by_spark(cls, comparison: OutputComparison) -> Found:
        counts = comparison.counts
        assert counts is not None, comparison.problem
        copies = sum(sum(sides.values()) for sides in comparison.checks.values())
        found = counts.expected, counts.committed, counts.lost, counts.duplicated, counts.unexpected
        return cls(*found, copies)

    def add(self, wanted: int, written: Written, excused: Callable[[int], int]) -> None:
        """Count a row; ``excused`` tells how many of so many copies too many may be there."""
        found = sum(copies for _, copies in written)
        more = max(0, found - wanted) if wanted else 0
        self.expected += wanted
        self.committed += found
        self.lost += max(0, wanted - found)
        self.unexpected += 0 if wanted else found
        self.excused += min(more, excused(more))
        self.duplicated += more - min(more, excused(more))


def table() -> Iterator[tuple[Row, int, Written]]:
    """Yield rows, how often the batch gives each, and how often it was written: each in a situation of its own."""
    written: list[Written] = [
        tuple((batch, copies) for batch, copies in zip((ONCE[1], *AGAIN), some, strict=True) if copies)
        for some in itertools.product(range(3), repeat=3)
    ]
    written += [((ONCE[0], copies), (ONCE[1], 1)) for copies in (1, 2)]
    for number, (wanted, one) in enumerate(itertools.product(range(3), written)):
        first, second = TRICKY[number % len(TRICKY)]
        yield (first, second, number // len(TRICKY)), wanted, one


def compared(
    spark: SparkSession,
    job: StreamingJob,
    place: QueryPlace,
    given: Sequence[tuple[Any, ...]],
    committed: Sequence[tuple[Any, ...]],
    columns: str,
    type_of_ids: str = "",
) -> OutputComparison:
    """Write input and output, the output with the number of the micro-batch as the last column if it has a type."""
    spark.createDataFrame(list(given), columns).write.parquet(place.input)
    output = spark.createDataFrame(list(committed), f"{columns}, batch_id long")
    ids = sf.col("batch_id").cast(type_of_ids) if type_of_ids else None
    output = output.drop("batch_id") if ids is None else output.withColumn("batch_id", ids)
    output.write.parquet(place.output)
    return judged(spark, job, place, AGAIN)


def may_be_there(delivery: str, type_of_ids: str, wanted: int, written: Written) -> int:
    """Return how many copies of a row are excused, at the most.

    A micro-batch that ran again and wrote the row has it, so it is not one of those that the others may have written.
    """
    if delivery == "exactly_once":
        return 0
    again = [batch for batch, copies in written if batch in AGAIN]
    if not type_of_ids:
        return 1_000
    of_others = sum(copies for batch, copies in written if batch not in AGAIN)
    found = sum(copies for _, copies in written)
    return found - wanted - max(0, of_others + len(again) - wanted) if again else 0


@pytest.mark.parametrize(
    ("delivery", "type_of_ids"),
    [("exactly_once", "long"), ("exactly_once", ""), ("at_least_once", "string"), ("at_least_once", "")],
)
def test_rows_are_judged_as_multisets_whatever_is_in_them(
    spark: SparkSession, place: QueryPlace, delivery: Any, type_of_ids: str
) -> None:
    job = StreamingJob(query=same, sink=nothing, delivery=delivery)
    told, given, committed = Found(), [], []
    for row, wanted, written in table():
        given += [row] * wanted
        committed += [(*row, batch) for batch, copies in written for _ in range(copies)]
        excused = max(0, may_be_there(delivery, type_of_ids, wanted, written))
        told.add(wanted, written, lambda more, excused=excused: min(more, excused))  # type: ignore[misc]
    columns = "a string, b string, n long"
    found = compared(spark, job, place, given, committed, columns, type_of_ids)
    assert Found.by_spark(found) == told


def changelogs() -> Iterator[dict[int, Counter[str]]]:
    """Yield what micro-batches wrote of one key: nothing, the right value, twice, a wrong one, or both."""
    # They differ from one micro-batch to the other: what is wrong with one key must not make up for another.
    ways = {ONCE[1]: ("", "x", "y", "yy"), AGAIN[0]: ("", "x", "xx"), AGAIN[1]: ("", "x", "xy")}
    for some in itertools.product(*ways.values()):
        yield {batch: Counter(way) for batch, way in zip(ways, some, strict=True) if way}


@pytest.mark.parametrize(("delivery", "type_of_ids"), [("exactly_once", "string"), ("at_least_once", "long")])
def test_of_a_changelog_all_rows_of_the_latest_micro_batch_count_and_each_update_is_there_once(
    spark: SparkSession, place: QueryPlace, delivery: Any, type_of_ids: str
) -> None:
    job = StreamingJob(query=same, sink=nothing, output_mode="update", latest_by=("key",), delivery=delivery)
    told, given, committed = Found(), [], []
    for number, (wanted, log) in enumerate(itertools.product((True, False), changelogs())):
        given += [(number, "x")] if wanted else []
        committed += [(number, value, batch) for batch, values in log.items() for value in values.elements()]
        latest = log[max(log)] if log else Counter[str]()
        for value in ("x", "y"):
            told.add(wanted and value == "x", ((0, 1),) if latest[value] else (), lambda more: 0)
        told.duplicated += sum(
            values.total() - len(values)
            for batch, values in log.items()
            if delivery == "exactly_once" or batch not in AGAIN
        )
    found = compared(spark, job, place, given, committed, "key long, value string", type_of_ids)
    assert Found.by_spark(found) == told


@pytest.mark.parametrize("newest", [ONCE[1], AGAIN[1]])
def test_of_a_complete_output_only_the_last_micro_batch_counts_and_all_of_it(
    spark: SparkSession, place: QueryPlace, newest: int
) -> None:
    job = StreamingJob(query=same, sink=nothing, output_mode="complete", delivery="at_least_once")
    told, given, committed = Found(), [], []
    for number, (wanted, last, before) in enumerate(itertools.product(range(3), repeat=3)):
        given += [(number,)] * wanted
        committed += [(number, newest)] * last + [(number, AGAIN[0])] * before
        told.add(wanted, ((newest, last),), lambda more: more if newest in AGAIN else 0)
    found = compared(spark, job, place, given, committed, "n long", "string")
    assert Found.by_spark(found) == told


def test_an_output_is_read_whatever_its_files_are_called_and_what_is_hidden_is_none_of_it(
    spark: SparkSession, place: QueryPlace
) -> None:
    job = StreamingJob(query=same, sink=nothing)
    rows = pa.table({"n": [1, 2]})
    Path(place.input).mkdir()
    pq.write_table(rows, Path(place.input, "0.parquet"))
    unfinished = Path(place.output, "_temporary", "0")
    unfinished.mkdir(parents=True)
    pq.write_table(rows, unfinished / "part-0.parquet")
    assert Found.by_spark(judged(spark, job, place, ())) == Found(expected=2, lost=2)
    pq.write_table(rows, Path(place.output, "micro-batch-0.parquet"))
    assert Found.by_spark(judged(spark, job, place, ())) == Found(expected=2, committed=2)
    in_one_file = replace_output(place)
    pq.write_table(rows, in_one_file.output)
    assert Found.by_spark(judged(spark, job, in_one_file, ())) == Found(expected=2, committed=2)


def replace_output(place: QueryPlace) -> QueryPlace:
    return replace(place, output=f"{place.output}-in-one-file")


# --- the state in between ---------------------------------------------------------------------------------------


def test_state_that_is_wrong_after_one_micro_batch_is_seen_whichever_it_is(
    spark: SparkSession, place: QueryPlace
) -> None:
    """Three micro-batches of two rows; one of them is expected to leave something else than it does."""
    Path(place.input).mkdir()
    for number in range(3):
        file = Path(place.input, f"{number}.parquet")
        pq.write_table(pa.table({"id": [number, number], "key": ["a", "bcd"[number]], "value": [1, 2]}), file)
        os.utime(file, (number, number))
    stream = spark.readStream.schema(spark.read.parquet(place.input).schema).option("maxFilesPerTrigger", 1)
    query = (
        stock_job.totals(stream.parquet(place.input))
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", place.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    right = judged_state(spark, QueryState(of=stock_job.totals), place)
    # After each micro-batch there are "a" and one more key for each of them.
    assert right == StateComparison(batches=3, entries=2 + 3 + 4)

    def other(batch: int, change: Callable[[DataFrame], DataFrame]) -> StateComparison:
        def of(rows: DataFrame) -> DataFrame:
            kept = stock_job.totals(rows)
            return change(kept) if rows.count() == 2 * (batch + 1) else kept

        return judged_state(spark, QueryState(of=of), place)

    lacks = other(0, lambda kept: kept.where("key != 'a'"))
    twice = other(1, lambda kept: kept.unionAll(kept.where("key = 'a'")))
    changed = other(2, lambda kept: kept.withColumn("sum", sf.col("sum") + sf.expr("int(key = 'a')")))
    assert [(one.missing, one.unexpected) for one in (lacks, twice, changed)] == [(0, 1), (1, 0), (1, 1)]
    told = [one.examples[0].split(",")[0] for one in (lacks, twice, changed)]
    assert told == [f"after micro-batch {batch}" for batch in range(3)]
