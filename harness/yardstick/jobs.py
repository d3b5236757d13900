"""The queries with which bugs of the yardstick are looked for: written as users write them, for no schedule.

They are found by name, in processes that import this module.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

from barrier_tck.harness.streaming.query_definition import BATCH_ID, QueryPlace
from barrier_tck.harness.streaming.stock_job import overwrite, totals
from barrier_tck.harness.streaming.streaming_job import StreamingJob
from barrier_tck.harness.yardstick.bugs import settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def _stream(spark: SparkSession, place: QueryPlace, files: int) -> DataFrame:
    """Open the input as a stream that takes so many files at a time."""
    schema = spark.read.parquet(place.input).schema
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(place.input)


def _started(rows: DataFrame, place: QueryPlace, output_mode: str) -> StreamingQuery:
    """Start a query with the sink of all of these jobs."""
    writer = rows.writeStream.outputMode(output_mode).option("checkpointLocation", place.checkpoint)
    sink = writer.foreachBatch(lambda batch, batch_id: overwrite(batch, batch_id, place))
    return sink.trigger(availableNow=True).start()


# --- totals by key, in the state stores that Spark has ----------------------------------------------------------------

totals_by_key = StreamingJob(query=totals, sink=overwrite, output_mode="update", latest_by=("key",))
totals_in_rocksdb = replace(totals_by_key, conf=settings_of("SPARK-54389"))
totals_with_maintenance = replace(totals_by_key, conf=settings_of("SPARK-46547"))


# --- what was shown, and what was clicked within three seconds -------------------------------------------------------


def with_clicks(rows: DataFrame) -> DataFrame:
    """Give each row with an even id with those of its key with an odd one that come soon after, or alone."""
    shown = rows.where("id % 2 = 0").selectExpr("key AS shown_key", "id AS shown", "at AS shown_at")
    clicks = rows.where("id % 2 = 1").selectExpr("key AS clicked_key", "id AS clicked", "at AS clicked_at")
    soon = sf.expr(
        "shown_key = clicked_key AND clicked_at BETWEEN shown_at AND shown_at + INTERVAL 3 SECONDS"
    )
    joined = shown.withWatermark("shown_at", "1 second").join(
        clicks.withWatermark("clicked_at", "1 second"), soon, "left_outer"
    )
    return joined.selectExpr("shown_key AS key", "shown", "clicked", "shown_at + INTERVAL 5 SECONDS AS until")


shown_and_clicked = StreamingJob(query=with_clicks, sink=overwrite, final_by="until")


# --- two streams of different speed in a union -----------------------------------------------------------------------


def _by_origin(even: DataFrame, odd: DataFrame) -> DataFrame:
    first = even.where("id % 2 = 0").select(sf.lit("even").alias("origin"), "id", "value")
    second = odd.where("id % 2 = 1").select(sf.lit("odd").alias("origin"), "id", "value")
    return (
        first.union(second).groupBy("origin").agg(sf.count("id").alias("count"), sf.sum("value").alias("sum"))
    )


def by_origin(rows: DataFrame) -> DataFrame:
    """Count the rows of two streams, and add up their values, under the name of each."""
    return _by_origin(rows, rows)


def start_by_origin(spark: SparkSession, place: QueryPlace) -> StreamingQuery:
    """Start it, with the whole table after each micro-batch."""
    return _started(_by_origin(_stream(spark, place, 1), _stream(spark, place, 2)), place, "complete")


totals_by_stream = StreamingJob(query=by_origin, start=start_by_origin, output_mode="complete")


def _once_and_rows(even: DataFrame, odd: DataFrame) -> DataFrame:
    once = even.where("id % 2 = 0").select(sf.lit("even").alias("origin"), "key").distinct()
    return once.union(odd.where("id % 2 = 1").selectExpr("'odd' AS origin", "cast(id AS string) AS key"))


def once_and_rows(rows: DataFrame) -> DataFrame:
    """Keep each key of one stream once, and every row of another."""
    return _once_and_rows(rows, rows)


def start_once_and_rows(spark: SparkSession, place: QueryPlace) -> StreamingQuery:
    """Start it, with the keys of each micro-batch."""
    return _started(_once_and_rows(_stream(spark, place, 1), _stream(spark, place, 2)), place, "update")


keys_once_and_rows = StreamingJob(
    query=once_and_rows, start=start_once_and_rows, output_mode="update", latest_by=("origin", "key")
)


# --- a sink that knows micro-batches by the id of their query ---------------------------------------------------------


def plain(rows: DataFrame) -> DataFrame:
    """Pass on what is to be written."""
    return rows.select("id", "value")


def write_by_query_id(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Write one directory for each micro-batch of each query, over the one that is there."""
    query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    batch.write.mode("overwrite").parquet(f"{place.output}/query={query}/{BATCH_ID}={batch_id}")


def of_all_queries(spark: SparkSession, place: QueryPlace) -> DataFrame:
    """Read what all queries have written."""
    return spark.read.parquet(place.output).drop("query")


written_by_query_id = StreamingJob(query=plain, sink=write_by_query_id, read=of_all_queries)
