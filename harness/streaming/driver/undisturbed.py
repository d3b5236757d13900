"""A query once more over the micro-batches that it was given, with nothing that disturbs it.

What Spark gives depends on the micro-batches as soon as there is a watermark: a row is late or not by what was read
before it. So a run that was disturbed is compared with one that took the same files in each micro-batch. A micro-batch
without new input, which Spark runs when the watermark has gone on, takes an empty file: then both runs have the same
micro-batches at the same watermarks, whatever Spark would have planned.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from barrier_tck.harness.streaming.driver.micro_batches import WITHOUT_INPUT, MicroBatch, noted_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from barrier_tck.harness.streaming.query_definition import QueryDefinition, QueryPlace

_WITHOUT_INPUT = "spark.sql.streaming.noDataMicroBatches.enabled"
OF_BATCH = "barrier_tck_given_by"
"""The column with the micro-batch that gave a row; no query has it."""


@dataclass(frozen=True)
class UndisturbedRun:
    """What a query gave for some micro-batches."""

    rows: DataFrame
    """All rows that it gave, with the number of the micro-batch in ``OF_BATCH``; not computed yet, read from files."""
    watermarks_ms: tuple[int, ...]
    """The watermark at each micro-batch."""
    checkpoint: str
    """Its checkpoint directory."""


def undisturbed_run(
    spark: SparkSession,
    job: QueryDefinition,
    place: QueryPlace,
    batches: Sequence[MicroBatch],
    directory: Path,
    restarted_before: Collection[int] = (),
) -> UndisturbedRun:
    """Run a query over micro-batches of ``place.input``, and write what it gives below ``directory``, which is made.

    It is stopped and started again before some micro-batches, if those are given.
    """
    source, output, checkpoint = (directory / name for name in ("source", "output", "checkpoint"))
    source.mkdir(parents=True)
    schema = spark.read.parquet(place.input).schema

    def keep(rows: DataFrame, number: int) -> None:
        rows.write.mode("overwrite").parquet(f"{output}/{OF_BATCH}={number}")

    def started() -> StreamingQuery:
        # All files of a micro-batch become visible at once, as a directory.
        stream = spark.readStream.schema(schema).parquet(f"{source}/*")
        writer = job.query(stream).writeStream.outputMode(job.output_mode).foreachBatch(keep)
        return writer.option("checkpointLocation", str(checkpoint)).start()

    with _only_with_input(spark):
        query = started()
        try:
            for batch in batches:
                if batch.number in restarted_before:
                    query.stop()
                    query = started()
                _give(batch, Path(place.input), source, directory)
                query.processAllAvailable()
        finally:
            query.stop()
    watermarks = tuple(batch.watermark_ms for batch in noted_batches(checkpoint).batches)
    return UndisturbedRun(spark.read.parquet(str(output)), watermarks, str(checkpoint))


def _give(batch: MicroBatch, given: Path, source: Path, directory: Path) -> None:
    """Let the stream see the files of a micro-batch, which it has not seen."""
    group = directory / f"{batch.number:05d}"
    group.mkdir()
    for name in batch.files:
        shutil.copy2(given / name, group / name)
    if not batch.files:
        some = min(given.glob("*.parquet"))
        pq.write_table(pq.read_schema(some).empty_table(), group / WITHOUT_INPUT)
        shutil.copystat(some, group / WITHOUT_INPUT)
    os.rename(group, source / group.name)


@contextmanager
def _only_with_input(spark: SparkSession) -> Iterator[None]:
    """Let queries that start meanwhile plan no micro-batch without input by themselves."""
    before = spark.conf.get(_WITHOUT_INPUT)
    spark.conf.set(_WITHOUT_INPUT, "false")
    try:
        yield
    finally:
        spark.conf.set(_WITHOUT_INPUT, str(before))
