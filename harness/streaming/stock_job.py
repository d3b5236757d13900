"""The job that comes with the project: totals by key, and a sink that overwrites what a micro-batch wrote before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barrier_tck.harness.streaming.query_definition import BATCH_ID, QueryPlace, QueryState
from barrier_tck.harness.streaming.streaming_job import StreamingJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def totals(rows: DataFrame) -> DataFrame:
    """Count the rows of each key, and add up their values."""
    return rows.groupBy("key").agg({"id": "count", "value": "sum"}).toDF("key", "count", "sum")


def overwrite(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Write one directory for each micro-batch; the same one if it comes again."""
    batch.write.mode("overwrite").parquet(f"{place.output}/{BATCH_ID}={batch_id}")


job = StreamingJob(
    query=totals, sink=overwrite, output_mode="update", latest_by=("key",), state=QueryState(of=totals)
)
