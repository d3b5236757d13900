"""What a query must have committed: its function as a batch, less what the watermark still holds back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from barrier_tck.harness.streaming.driver.micro_batches import one_file_each
from barrier_tck.harness.streaming.driver.query_plan import QueryPlan
from barrier_tck.harness.streaming.query_definition import QueryDefinition, QueryPlace, Upserts

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_SEQUENCE, _DELETED = "barrier_tck_sequence", "barrier_tck_deleted"
"""Columns that no query has."""
_MICRO_BATCHES = "micro-batches"
"""A directory beside the query's own."""


@dataclass(frozen=True)
class ExpectedRows:
    """Two multisets of rows."""

    due: DataFrame
    """Each must be there."""
    early: DataFrame | None = None
    """Each may be there: the batch gives it, and when the stream does, the job has not said."""


def expected_rows(spark: SparkSession, job: QueryDefinition, place: QueryPlace) -> ExpectedRows:
    """Return what a job must have committed, after the micro-batches that its checkpoint directory says."""
    directory = place.input
    if job.batch is not None:  # it may distinguish micro-batches
        checkpoint = Path(place.checkpoint)
        directory = str(one_file_each(Path(directory), checkpoint, checkpoint.with_name(_MICRO_BATCHES)))
    given = batch_rows(job, input_in_order(spark, directory))
    if job.final_by is None:
        return ExpectedRows(given)
    rows = computed(given)
    watermark = sf.timestamp_millis(sf.lit(last_watermark_ms(Path(place.checkpoint))))
    final = final_at(sf.col(job.final_by), watermark)
    if job.batch is not None:
        return ExpectedRows(rows.where(final))
    streamed = streamed_plan(spark, job, place)
    outer = streamed.outer_joins_of_streams()
    if not any(outer):
        return ExpectedRows(rows.where(final))
    at_once = job.upserts is None and streamed.pairs_come_at_once()
    joined = QueryPlan(spark, given).with_inner_joins(outer) if at_once else None
    if joined is None:
        return ExpectedRows(rows.where(final), rows.where(~final))
    pairs = computed(joined)
    # Rows without a partner come when the watermark says that none can follow, and pairs come at once.
    alone = rows.exceptAll(pairs)
    return ExpectedRows(pairs.unionAll(alone.where(final)), alone.where(~final))


def final_at(column: Column, watermark: Column) -> Column:
    """Return which rows are due: those up to the watermark, and those that do not wait for it."""
    return column.isNull() | (column <= watermark)


def computed(rows: DataFrame) -> DataFrame:
    """Return the same rows, computed now, so that nothing that is asked of them changes how they are computed.

    Spark moves a filter behind a query into it. Up to 4.3 it moves one on the end of a session window in front of the
    merging of sessions; then some of a session's rows are missing, and a shorter session is found in its place.
    """
    return rows.localCheckpoint()


def batch_rows(job: QueryDefinition, rows: DataFrame) -> DataFrame:
    """Return what a job gives for the whole input, whatever the watermark."""
    given = (job.batch or job.query)(rows)
    return given if job.upserts is None else merged(given, job.upserts)


def input_in_order(spark: SparkSession, directory: str, partitions: bool = False) -> DataFrame:
    """Return the input as a stream meets it: file by file, in one partition (or one for each file).

    So a batch that keeps the first row of a key keeps that which a stream has met first.
    """
    rows = rows_of_files(spark, files_in_order(Path(directory)))
    return rows if partitions else rows.coalesce(1)


def files_in_order(directory: Path) -> list[Path]:
    """Return the files of an input as a stream meets them: by their times."""
    return sorted(
        (file for file in directory.iterdir() if file.is_file() and not file.name.startswith(("_", "."))),
        key=lambda file: (file.stat().st_mtime_ns, file.name),
    )


def rows_of_files(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Return the rows of some files of an input, file by file."""
    read = spark.read.schema(spark.read.parquet(*map(str, files)).schema)
    return reduce(DataFrame.unionAll, [read.parquet(str(file)) for file in files])


def streamed_plan(spark: SparkSession, job: QueryDefinition, place: QueryPlace) -> QueryPlan:
    """Return the plan of a query whose input is a stream; nothing is started."""
    stream = spark.readStream.schema(spark.read.parquet(place.input).schema).parquet(place.input)
    return QueryPlan(spark, job.query(stream))


def last_watermark_ms(checkpoint: Path) -> int:
    """Return the watermark of the last micro-batch that was committed, in milliseconds since 1970; 0 without any."""
    commits = [int(file.name) for file in (checkpoint / "commits").glob("*") if file.name.isdigit()]
    if not commits:
        return 0
    # Line by line: the version, the batch's metadata, and the offsets of each source.
    lines = (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()
    return int(json.loads(lines[1])["batchWatermarkMs"])


def column_named(name: str) -> Column:
    """Return a column, whatever characters its name has."""
    quoted = name.replace("`", "``")
    return sf.col(f"`{quoted}`")


def merged(rows: DataFrame, upserts: Upserts) -> DataFrame:
    """Return the newest row of each key, unless it deletes the key."""
    columns = rows.columns
    newest = Window.partitionBy(*map(column_named, upserts.keys)).orderBy(
        sf.expr(upserts.sequence_by).desc_nulls_last()
    )
    deleted = sf.expr(upserts.apply_as_deletes or "false")
    marked = rows.withColumns({_SEQUENCE: sf.row_number().over(newest), _DELETED: deleted})
    kept = (sf.col(_SEQUENCE) == 1) & sf.expr(f"{_DELETED} IS NOT TRUE")
    return marked.where(kept).select(*map(column_named, columns))
