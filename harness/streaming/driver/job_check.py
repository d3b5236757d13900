"""Whether the output of a job can be judged at all: looked at once, before any fault strikes."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from barrier_tck.harness.streaming.driver.expected_rows import (
    as_in,
    column_named,
    expected_rows,
    files_in_order,
    input_in_order,
    left_by,
    merged,
    streamed_plan,
)
from barrier_tck.harness.streaming.driver.input_rows import rendered
from barrier_tck.harness.streaming.driver.micro_batches import MicroBatch
from barrier_tck.harness.streaming.driver.undisturbed import undisturbed_run
from barrier_tck.harness.streaming.query_rpc import JobCheck

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barrier_tck.harness.streaming.driver.query_plan import QueryPlan
    from barrier_tck.harness.streaming.query_definition import QueryDefinition, QueryPlace, Upserts

_SEQUENCE, _TIMES = "barrier_tck_sequence", "barrier_tck_times"
_AT = "at"
"""The column of event time that generated input has."""
_BATCH = """\
Say what the output must be with a function of your own from the whole input, as a batch, to the expected rows: \
StreamingJob(query={query}, batch=expected, ...), where `def expected(rows): ...` returns the columns to compare"""


def checked(spark: SparkSession, job: QueryDefinition, place: QueryPlace) -> JobCheck:
    """Return what is in the way of judging a job, if anything, and how long it keeps rows back."""
    plan = _plan(spark, job, place)
    try:
        rows = (job.batch or job.query)(input_in_order(spark, place.input)).localCheckpoint()
    except Exception as error:  # noqa: BLE001 - whatever a user's function or Spark raises is what we tell
        if job.batch is not None:
            return JobCheck(f"the function `batch` of the job cannot be run: {_shown(error)}")
        return _checked_as_stream_only(spark, job, place, plan, error)
    for problem in _problems(spark, job, place, rows, plan):
        return JobCheck(problem)
    return JobCheck(held_back_s=_held_back_s(spark, job, place, rows, plan))


def _checked_as_stream_only(
    spark: SparkSession, job: QueryDefinition, place: QueryPlace, plan: QueryPlan | None, refused: Exception
) -> JobCheck:
    """Return what is in the way of judging a query, which Spark refuses as a batch, by an undisturbed run."""
    cannot = f"the query cannot be run as a batch, so what it must commit is not known: {_shown(refused)}"
    with _alone(place) as directory:
        batches = _a_file_each(place)
        try:
            runs = [
                undisturbed_run(spark, job, place, batches, directory / str(number)).rows
                for number in range(2)
            ]
        except Exception as error:  # noqa: BLE001 - whatever a user's function or Spark raises is what we tell
            return JobCheck(f"{cannot}; and not as a stream: {_shown(error)}. {_how_to_say_it(job)}")
        one, other = (left_by(job, rows, batches[-1].number) for rows in runs)
        if one is None or other is None:
            return JobCheck(
                f"{cannot}. Each update replaces a row of the table, too: name the columns that identify one "
                f"(latest_by or upserts). Or: {_how_to_say_it(job)}"
            )
        for problem in _unknown_columns(job, one):
            return JobCheck(problem)
        if not _same(one, other):
            return JobCheck(
                f"{cannot}; and two undisturbed runs of it as a stream over the same micro-batches give other rows: "
                f"it is not deterministic. {_how_to_say_it(job)}"
            )
        return JobCheck(
            held_back_s=_held_back_s(spark, job, place, one.localCheckpoint(), plan), as_batch=False
        )


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {_first_line(error)}"


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

    It is given its files one by one, and then none, so that the watermark is as far as it can come.
    """
    if job.final_by is None or job.batch is not None or plan is None or plan.watermark_delay_s() is None:
        return
    with _alone(place) as directory:
        try:
            run = undisturbed_run(spark, job, place, _a_file_each(place), directory / "run")
        except Exception:  # noqa: BLE001 - the trial will tell what Spark says of it
            return
        expected = expected_rows(spark, job, replace(place, checkpoint=run.checkpoint))
        given = as_in(run.rows, expected.due)
        if _same(expected.due, given):
            return
        lost = expected.due.exceptAll(given).limit(1).collect()
        more = given.exceptAll(expected.due).limit(1).collect()
        shown = [f"the batch has {rendered(row.asDict())}" for row in lost]
        shown += [f"the stream has {rendered(row.asDict())}" for row in more]
        yield (
            "without any fault, and where no late row has a part in it, the query gives other rows as a stream than as "
            f"a batch: {', '.join(shown)}. So the batch does not tell what it must commit. {_how_to_say_it(job)}"
        )


def _a_file_each(place: QueryPlace) -> tuple[MicroBatch, ...]:
    """Return a micro-batch for each file of an input, and one without input."""
    names = [(file.name,) for file in files_in_order(Path(place.input))]
    return tuple(MicroBatch(number, files, 0) for number, files in enumerate([*names, ()]))


@contextmanager
def _alone(place: QueryPlace) -> Iterator[Path]:
    """Yield a directory beside those of a trial."""
    # Whoever removes the place removes it, too, if this process is killed meanwhile.
    directory = Path(tempfile.mkdtemp(prefix="undisturbed-", dir=Path(place.checkpoint).parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


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
