"""More jobs that come with the project: one for each other kind of stateful query, and for each other kind of output.

They write with the sink of ``harness.streaming.stock_job``, the job that has a short name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from barrier_tck.harness.streaming.query_definition import QueryPlace, QueryState
from barrier_tck.harness.streaming.stock_job import overwrite, totals
from barrier_tck.harness.streaming.streaming_job import StreamingJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def in_windows(rows: DataFrame) -> DataFrame:
    """Count the rows of each key in windows of four seconds."""
    windows = rows.withWatermark("at", "1 second").groupBy(
        sf.window("at", "4 seconds").alias("window"), "key"
    )
    return windows.count().selectExpr("window.start AS since", "window.end AS until", "key", "count")


def joined(rows: DataFrame) -> DataFrame:
    """Pair the rows of a key that have an even id with those that have an odd one."""
    odd = rows.where("id % 2 = 1").selectExpr("key", "id AS odd")
    return _even(rows).join(odd, sf.col("even_key") == sf.col("key")).select("key", "even", "odd")


def _even(rows: DataFrame) -> DataFrame:
    return rows.where("id % 2 = 0").selectExpr("key AS even_key", "id AS even")


def distinct(rows: DataFrame) -> DataFrame:
    """Keep each key once."""
    return rows.select("key").dropDuplicates()


def start_files(spark: SparkSession, place: QueryPlace) -> StreamingQuery:
    """Start a query that writes files by itself, without a function as its sink."""
    stream = spark.readStream.schema(spark.read.parquet(place.input).schema).option("maxFilesPerTrigger", 1)
    writer = distinct(stream.parquet(place.input)).writeStream.format("parquet").option("path", place.output)
    return writer.option("checkpointLocation", place.checkpoint).trigger(availableNow=True).start()


windows = StreamingJob(query=in_windows, sink=overwrite, final_by="until")
pairs = StreamingJob(
    query=joined,
    sink=overwrite,
    state=QueryState(of=_even, columns=("value.even_key", "value.even"), options={"joinSide": "left"}),
)
keys = StreamingJob(query=distinct, sink=overwrite, state=QueryState(of=distinct, columns=("key.*",)))
whole = StreamingJob(query=totals, sink=overwrite, output_mode="complete")
files = StreamingJob(query=distinct)
started = StreamingJob(query=distinct, start=start_files)
