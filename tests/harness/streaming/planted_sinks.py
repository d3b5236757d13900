"""Sinks with bugs that real ones have had, each of which looks right until something dies.

Every one writes Parquet or lines of JSON below ``place.output``. They are found by name, in processes that import this
module.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession

from barrier_tck.harness import QueryPlace, StreamingJob
from barrier_tck.harness.streaming.stock_job import overwrite


def plain(rows: DataFrame) -> DataFrame:
    """Keep what a sink needs to be judged by."""
    return rows.select("id", "key", "value")


def appends(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Append, without asking whether the micro-batch was written before."""
    batch.write.mode("append").parquet(place.output)


def appends_rows(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Append row after row in each task, without asking whether the task ran before."""

    def write(rows: Iterable[Row]) -> None:
        with open(place.output, "a", buffering=1) as file:
            file.writelines(json.dumps(row.asDict()) + "\n" for row in rows)

    batch.foreachPartition(write)


def keeps_failed_tasks(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Write a file for each attempt of a task, and keep those of attempts that failed."""
    Path(place.output).mkdir(exist_ok=True)

    def write(rows: Iterable[Row]) -> None:
        context = TaskContext.get()
        assert context is not None
        name = f"part-{batch_id}-{context.partitionId()}-{context.attemptNumber()}"
        Path(place.output, name).write_text("".join(json.dumps(row.asDict()) + "\n" for row in rows))

    batch.foreachPartition(write)


def takes_what_exists(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Take a directory that is there for a complete one, and write nothing."""
    directory = Path(place.output, f"batch_id={batch_id}")
    if not directory.exists():
        batch.write.parquet(str(directory))


def notes_it_first(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Note that a micro-batch is written, write it, and skip what is noted."""
    noted = Path(place.output, "_noted")
    noted.mkdir(parents=True, exist_ok=True)
    try:
        (noted / str(batch_id)).touch(exist_ok=False)
    except FileExistsError:
        return
    batch.write.parquet(f"{place.output}/batch_id={batch_id}")


_SEEN: set[tuple[str, int]] = set()


def remembers_in_memory(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Remember which micro-batches are written where no other driver finds it."""
    if (place.output, batch_id) not in _SEEN:
        batch.write.mode("append").parquet(place.output)
        _SEEN.add((place.output, batch_id))


def of_lines(spark: SparkSession, place: QueryPlace) -> DataFrame:
    """Read lines of JSON, from a file or from those of a directory."""
    return spark.read.schema("id LONG, key STRING, value LONG").json(place.output)


appended = StreamingJob(query=plain, sink=appends)
appended_rows = StreamingJob(query=plain, sink=appends_rows, read=of_lines)
kept = StreamingJob(query=plain, sink=keeps_failed_tasks, read=of_lines)
taken = StreamingJob(query=plain, sink=takes_what_exists)
noted = StreamingJob(query=plain, sink=notes_it_first)
remembered = StreamingJob(query=plain, sink=remembers_in_memory)
right = StreamingJob(query=plain, sink=overwrite)
PLANTED = ("appended", "appended_rows", "kept", "taken", "noted", "remembered")
"""The names of the wrong ones."""


def shuffled(rows: DataFrame) -> DataFrame:
    """Keep the same, after a shuffle: if its files are lost, Spark runs a stage again, and not a task of it."""
    return plain(rows).repartition(2, "id")


def appends_rows_and_says_so(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Append row after row, with the number of the micro-batch."""

    def write(rows: Iterable[Row]) -> None:
        with open(place.output, "a", buffering=1) as file:
            file.writelines(json.dumps({**row.asDict(), "batch_id": batch_id}) + "\n" for row in rows)

    batch.foreachPartition(write)


def of_numbered_lines(spark: SparkSession, place: QueryPlace) -> DataFrame:
    """Read lines of JSON with the number of their micro-batch."""
    return spark.read.schema("id LONG, key STRING, value LONG, batch_id LONG").json(place.output)


at_least_once = StreamingJob(
    query=shuffled, sink=appends_rows_and_says_so, read=of_numbered_lines, delivery="at_least_once"
)
