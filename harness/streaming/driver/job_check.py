"""Whether the output of a job can be judged at all: looked at once, before any fault strikes."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from barrier_tck.harness.streaming.driver.expected_rows import (
    column_named,
    expected_rows,
    files_in_order,
    input_in_order,
    merged,
    streamed_plan,
)
from barrier_tck.harness.streaming.query_definition import QueryPlace
from barrier_tck.harness.streaming.query_rpc import JobCheck

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from barrier_tck.harness.streaming.driver.query_plan import QueryPlan
    from barrier_tck.harness.streaming.query_definition import QueryDefinition, Upserts

_SEQUENCE, _TIMES = "barrier_tck_sequence", "barrier_tck_times"
_AT = "at"
"""The column of event time that generated input has."""
_BATCH = """\
Say what the output must be with a function of your own from the whole input, as a batch, to the expected rows: \
StreamingJob(query={query}, batch=expected, ...), where `def expected(rows): ...` returns the columns to compare"""


def checked(spark: SparkSession, job: QueryDefinition, place: QueryPlace) -> JobCheck:
    """Return what is in the way of judging a job, if anything, and how long it keeps rows back."""
    try:
        rows = (job.batch or job.query)(input_in_order(spark, place.input)).localCheckpoint()
    except Exception as error:  # noqa: BLE001 - whatever a user's function or Spark raises is what we tell
        return JobCheck(_refused(job, error))
    plan = _plan(spark, job, place)
    for problem in _problems(spark, job, place, rows, plan):
        return JobCheck(problem)
    return JobCheck(held_back_s=_held_back_s(spark, job, place, rows, plan))


def _refused(job: QueryDefinition, error: Exception) -> str:
    shown = f"{type(error).__name__}: {_first_line(error)}"
    if job.batch is not None:
        return f"the function `batch` of the job cannot be run: {shown}"
    return f"the query cannot be run as a batch, so what it must commit is not known: {shown}. {_how_to_say_it(job)}"


def _how_to_say_it(job: QueryDefinition) -> str:
    return _BATCH.format(query=_name_of(job))


def _name_of(job: QueryDefinition) -> str:
    return str(getattr(job.query, "__name__", "your_query"))


def _plan(spark: SparkSession, job: QueryDefinition, place: QueryPlace) -> QueryPlan | None:
    try:
        return streamed_plan(spark, job, place)
    except Exception:  # noqa: BLE001 - the trial will tell what Spark says of it
        return None


def _problems(
    spark: SparkSession, job: QueryDefinition, place: QueryPlace, rows: DataFrame, plan: QueryPlan | None
) -> Iterator[str]:
    yield from _unknown_columns(job, rows)
    if job.upserts is not None:
        yield from _two_newest_rows(rows, job.upserts)
    yield from _differences(spark, job, place, rows, plan)
    yield from _differs_undisturbed(spark, job, place, plan)
    if job.batch is None and job.final_by is None and job.output_mode == "append" and plan is not None:
        why = plan.kept_back()
        if why and plan.watermark_delay_s() is not None:
            yield (
                f"the query {why}, and in append mode a stream gives such rows only when the watermark has passed "
                "them, which a batch does not know. Name the column of the output that says when a row is final, "
                "for instance final_by='window.end' (keep it in the output), or the output_mode if it is another"
            )


def _differs_undisturbed(
    spark: SparkSession, job: QueryDefinition, place: QueryPlace, plan: QueryPlan | None
) -> Iterator[str]:
    """Yield that the query with a watermark gives other rows as a stream than as a batch, although nothing disturbs it.

    It is given its files one by one, each when all that the one before may bring about is over. So the watermark is as
    far as it can come in any trial, and what no row is too late for here is too late in none.
    """
    if job.final_by is None or job.batch is not None or plan is None or plan.watermark_delay_s() is None:
        return
    # Whoever removes the place removes it, too, if this process is killed meanwhile.
    directory = tempfile.mkdtemp(prefix="undisturbed-", dir=Path(place.checkpoint).parent)
    alone = QueryPlace(*(f"{directory}/{name}" for name in ("input", "output", "checkpoint")))
    Path(alone.input).mkdir()
    try:
        _stream_one_by_one(spark, job, place, alone)
    except Exception:  # noqa: BLE001 - the trial will tell what Spark says of it
        return
    expected = expected_rows(spark, job, alone)
    given = spark.read.schema(expected.due.schema).parquet(alone.output)
    if expected.early is not None or _same(expected.due, given):
        return
    lost = expected.due.exceptAll(given).limit(1).collect()
    more = given.exceptAll(expected.due).limit(1).collect()
    shown = [f"the batch has {_rendered(row)}" for row in lost]
    shown += [f"the stream has {_rendered(row)}" for row in more]
    yield (
        "without any fault the query gives other rows as a stream than as a batch: "
        f"{', '.join(shown)}. Perhaps rows are late: when they are read the watermark has passed them, Spark "
        "drops them, and a batch does not. Give withWatermark a longer delay, or the job an input without such rows"
    )


def _stream_one_by_one(
    spark: SparkSession, job: QueryDefinition, place: QueryPlace, alone: QueryPlace
) -> None:
    """Run the query to its end, into files."""
    files = files_in_order(Path(place.input))
    stream = spark.readStream.schema(spark.read.parquet(place.input).schema).parquet(alone.input)
    into = job.query(stream).writeStream.format("parquet").option("path", alone.output)
    running = into.option("checkpointLocation", alone.checkpoint).start()
    try:
        for file in files:
            shutil.copyfile(file, Path(alone.input, file.name))
            running.processAllAvailable()
    finally:
        running.stop()


def _rendered(row: Row) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.asDict().items())


def _unknown_columns(job: QueryDefinition, rows: DataFrame) -> Iterator[str]:
    named = {"latest_by": job.latest_by, "final_by": (job.final_by,) if job.final_by is not None else ()}
    if job.upserts is not None:
        named["upserts.keys"] = job.upserts.keys
    for field, names in named.items():
        for name in names:
            try:
                rows.select(sf.col(name) if field == "final_by" else column_named(name))
            except Exception:  # noqa: BLE001 - Spark has several errors for it
                yield f"{field} names a column {name!r}, and the query has the columns {', '.join(rows.columns)}"


def _two_newest_rows(rows: DataFrame, upserts: Upserts) -> Iterator[str]:
    try:
        merged(rows, upserts)
    except Exception as error:  # noqa: BLE001 - Spark has several errors for it
        yield f"upserts cannot be applied to the rows of the query: {_first_line(error)}"
        return
    keys = [column_named(name) for name in upserts.keys]
    sequence = sf.expr(upserts.sequence_by).alias(_SEQUENCE)
    tied = rows.groupBy(*keys, sequence).agg(sf.count("*").alias(_TIMES)).where(f"{_TIMES} > 1")
    for row in tied.limit(1).collect():
        key = ", ".join(f"{name}={row[name]}" for name in upserts.keys)
        yield (
            f"{row[_TIMES]} rows of {key} have the same sequence_by ({row[_SEQUENCE]}), so which of them is the "
            "newest cannot be known; name more columns, for instance sequence_by='struct(at, id)'"
        )


def _differences(
    spark: SparkSession, job: QueryDefinition, place: QueryPlace, rows: DataFrame, plan: QueryPlan | None
) -> Iterator[str]:
    """Yield that another run of the batch gives other rows.

    A seeded random number, or the number of a partition, is the same in each run. So if there are such expressions, the
    other run has other partitions: what depends on them is seen, and what they only spread (a salt) is none.
    """
    if job.batch is not None:
        plan = None
    suspects = plan.nondeterministic() if plan is not None else ()
    given = input_in_order(spark, place.input, partitions=plan is not None and plan.depends_on_partitions())
    again = (job.batch or job.query)(given).localCheckpoint()
    if job.upserts is not None:  # a row that the table does not keep may differ
        rows, again = merged(rows, job.upserts), merged(again, job.upserts)
    if _same(rows, again):
        return
    columns = [name for name in rows.columns if not _same(_only(rows, name), _only(again, name))]
    which = f"the column {columns[0]}" if len(columns) == 1 else f"the columns {', '.join(columns)}"
    where = f"in {which}" if columns else "in how the columns go together"
    because = f", and it has {', '.join(suspects)}" if suspects else ""
    what = "`batch`" if job.batch is not None else "the query"
    yield (
        f"{what} is not deterministic: two runs of it as a batch over the same input differ {where}{because}. What a "
        f"query that is started again must commit cannot be known then. {_how_to_say_it(job)}, and leaves out or "
        f"replaces what differs{_dropping(job, columns)}"
    )


def _dropping(job: QueryDefinition, columns: list[str]) -> str:
    if not columns or job.batch is not None:
        return ""
    return f", for instance `return {_name_of(job)}(rows).drop({', '.join(map(repr, columns))})`"


def _held_back_s(
    spark: SparkSession, job: QueryDefinition, place: QueryPlace, rows: DataFrame, plan: QueryPlan | None
) -> float:
    """Return how far event time must go on, after a row was read, until each row of the output it is part of is due.

    Besides the delay of the watermark that is how long a window is. The input has rows of each second, so it shows in
    the distance of the ends, or if there is one end only, in how far that is from the first row.
    """
    given = input_in_order(spark, place.input)
    if job.final_by is None or plan is None or _AT not in given.columns:
        return 0.0
    first, last = given.agg(sf.min(_AT), sf.max(_AT)).collect()[0]
    ends = [row[0] for row in rows.select(sf.col(job.final_by)).distinct().collect() if row[0] is not None]
    if not ends or not all(isinstance(moment, datetime) for moment in (first, last, *ends)):
        return 0.0
    ends.sort()
    lengths = [later - sooner for sooner, later in itertools.pairwise(ends)] or [ends[0] - first]
    held_back = max(*lengths, ends[-1] - last)
    seconds: float = held_back.total_seconds()
    return (plan.watermark_delay_s() or 0.0) + max(0.0, seconds)


def _only(rows: DataFrame, name: str) -> DataFrame:
    return rows.select(column_named(name))


def _same(one: DataFrame, other: DataFrame) -> bool:
    """Return whether two multisets of rows are equal, whatever types they have."""
    both = one.withColumn(_TIMES, sf.lit(1)).unionAll(other.withColumn(_TIMES, sf.lit(-1)))
    tally = both.groupBy(*map(column_named, one.columns)).agg(sf.sum(_TIMES).alias(_TIMES))
    return tally.where(sf.col(_TIMES) != 0).isEmpty()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "").rstrip(" .;")
