"""A query as a stream in this process, without a cluster: what a sink leaves if some micro-batches come again."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from barrier_tck.harness import QueryPlace, StreamingJob

START = datetime(2024, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [("id", pa.int64()), ("key", pa.string()), ("value", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))]
)


def write_input(place: QueryPlace, batches: int = 4, rows: int = 7, step_s: int = 1) -> None:
    """Write files of rows with a timestamp each; the keys a to c come again and again."""
    Path(place.input).mkdir()
    ids = iter(range(batches * rows))
    for batch in range(batches):
        written = [
            {
                "id": one,
                "key": "abc"[one * 7 % 3],
                "value": one * 3,
                "at": START + timedelta(seconds=one * step_s),
            }
            for one, _ in zip(ids, range(rows), strict=False)
        ]
        write_file(place, batch, written)


def write_file(place: QueryPlace, batch: int, rows: Sequence[dict[str, Any]]) -> None:
    """Write one micro-batch."""
    file = Path(place.input, f"{batch:05d}.parquet")
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), file)
    os.utime(file, (START.timestamp() + batch,) * 2)


def run(spark: SparkSession, job: StreamingJob, place: QueryPlace, again: Collection[int] = ()) -> list[int]:
    """Run a query to its end; the sink is given some micro-batches twice, as after a failure before the commit.

    Return how many rows each micro-batch wrote.
    """
    sizes: list[int] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        assert not isinstance(job.sink, str)
        sizes.append(batch.count())
        for _ in range(1 + (batch_id in again)):
            job.sink(batch, batch_id, place)

    stream = spark.readStream.schema(spark.read.parquet(place.input).schema).option("maxFilesPerTrigger", 1)
    query = (
        job.query(stream.parquet(place.input))
        .writeStream.outputMode(job.output_mode)
        .foreachBatch(write)
        .option("checkpointLocation", place.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sizes
