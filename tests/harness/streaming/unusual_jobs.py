"""Jobs that are right and not simply their own batch, each with a wrong one beside it.

They are found by name, in processes that import this module.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from barrier_tck.harness import QueryPlace, StreamingJob, Upserts
from barrier_tck.harness.streaming.stock_job import overwrite

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState


def appends(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Append, without asking whether the micro-batch was written before."""
    batch.write.mode("append").parquet(place.output)


# --- an outer join: pairs are given at once, and rows without a partner when the watermark has passed them -------


def timed_halves(rows: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the rows whose id can be divided by two, and those whose id can be divided by three."""
    timed = rows.withWatermark("at", "1 second")
    left = timed.where("id % 2 = 0").selectExpr("key AS lkey", "id AS lid", "at AS lat")
    right = timed.where("id % 3 = 0").selectExpr("key AS rkey", "id AS rid", "at AS rat")
    return left, right


def left_joined(rows: DataFrame) -> DataFrame:
    left, right = timed_halves(rows)
    on = sf.expr("lkey = rkey AND rat BETWEEN lat AND lat + INTERVAL 3 SECONDS")
    return left.join(right, on, "left_outer").selectExpr(
        "lkey", "lid", "rid", "lat + INTERVAL 5 SECONDS AS until"
    )


def right_joined(rows: DataFrame) -> DataFrame:
    left, right = timed_halves(rows)
    on = sf.expr("lkey = rkey AND lat BETWEEN rat AND rat + INTERVAL 3 SECONDS")
    return left.join(right, on, "right_outer").selectExpr(
        "rkey", "lid", "rid", "rat + INTERVAL 5 SECONDS AS until"
    )


def fully_joined(rows: DataFrame) -> DataFrame:
    left, right = timed_halves(rows)
    on = sf.expr("lkey = rkey AND lat BETWEEN rat - INTERVAL 2 SECONDS AND rat + INTERVAL 2 SECONDS")
    return left.join(right, on, "full_outer").selectExpr(
        "lid", "rid", "coalesce(lat, rat) + INTERVAL 5 SECONDS AS until"
    )


def joined_windows(rows: DataFrame) -> DataFrame:
    """Pair what windows have counted; nothing is given before a window has ended, with a partner or without."""

    def counted(which: str, name: str) -> DataFrame:
        windows = (
            rows.withWatermark("at", "1 second").where(which).groupBy(sf.window("at", "2 seconds"), "key")
        )
        return windows.agg(sf.count("*").alias(name))

    pairs = counted("id % 2 = 0", "even").join(
        counted("id % 3 = 0", "third"), ["window", "key"], "left_outer"
    )
    return pairs.selectExpr("window.end + INTERVAL 8 SECONDS AS until", "key", "even", "third")


window_join = StreamingJob(query=joined_windows, sink=overwrite, final_by="until")
window_join_appended = StreamingJob(query=joined_windows, sink=appends, final_by="until")
left_outer = StreamingJob(query=left_joined, sink=overwrite, final_by="until")
left_outer_appended = StreamingJob(query=left_joined, sink=appends, final_by="until")
right_outer = StreamingJob(query=right_joined, sink=overwrite, final_by="until")
right_outer_appended = StreamingJob(query=right_joined, sink=appends, final_by="until")
full_outer = StreamingJob(query=fully_joined, sink=overwrite, final_by="until")
full_outer_appended = StreamingJob(query=fully_joined, sink=appends, final_by="until")


# --- a table of the newest row of each key -----------------------------------------------------------------------


def changes(rows: DataFrame) -> DataFrame:
    """Keep what a change is made of; a value below 0 deletes the key."""
    return rows.select("key", "id", "value")


def newest(rows: DataFrame) -> DataFrame:
    """Keep the newest change of each key."""
    ranked = rows.withColumn(
        "n", sf.row_number().over(Window.partitionBy("key").orderBy(sf.col("id").desc()))
    )
    return ranked.where("n = 1").drop("n")


def _merge(batch: DataFrame, batch_id: int, place: QueryPlace, source: DataFrame, keep: str) -> None:
    """Write the table anew, one version for each micro-batch."""
    done = [int(path.parent.name) for path in Path(place.output).glob("*/_SUCCESS")]
    before = max((number for number in done if number < batch_id), default=None)
    new = source
    if before is not None:
        old = batch.sparkSession.read.parquet(f"{place.output}/{before}")
        new = old.join(source.select("key").distinct(), "key", "left_anti").unionByName(new)
    new.where(keep).write.mode("overwrite").parquet(f"{place.output}/{batch_id}")


def merge(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    _merge(batch, batch_id, place, newest(batch), "true")


def merge_all(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Merge by a key that a micro-batch has more than once."""
    _merge(batch, batch_id, place, batch, "true")


def merge_any(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Merge some row of each key: the oldest, and not the newest."""
    oldest = newest(batch.withColumn("id", -sf.col("id"))).withColumn("id", -sf.col("id"))
    _merge(batch, batch_id, place, oldest, "true")


def merge_deletes(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    _merge(batch, batch_id, place, newest(batch), "value >= 0")


def merge_deletes_too_late(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Drop what deletes before the newest row of a key is looked for."""
    _merge(batch, batch_id, place, newest(batch.where("value >= 0")), "true")


def latest_version(spark: SparkSession, place: QueryPlace) -> DataFrame:
    """Read the newest version of the table."""
    done = max(int(path.parent.name) for path in Path(place.output).glob("*/_SUCCESS"))
    return spark.read.parquet(f"{place.output}/{done}")


TABLE = Upserts(keys=("key",), sequence_by="id")
WITH_DELETES = Upserts(keys=("key",), sequence_by="id", apply_as_deletes="value < 0")
merged = StreamingJob(query=changes, sink=merge, read=latest_version, upserts=TABLE)
merged_all = StreamingJob(query=changes, sink=merge_all, read=latest_version, upserts=TABLE)
merged_any = StreamingJob(query=changes, sink=merge_any, read=latest_version, upserts=TABLE)
deleted = StreamingJob(query=changes, sink=merge_deletes, read=latest_version, upserts=WITH_DELETES)
deleted_too_late = StreamingJob(
    query=changes, sink=merge_deletes_too_late, read=latest_version, upserts=WITH_DELETES
)


# --- queries that are not deterministic --------------------------------------------------------------------------


def with_load_time(rows: DataFrame) -> DataFrame:
    return rows.select("id", "value", sf.current_timestamp().alias("loaded_at"))


def without_load_time(rows: DataFrame) -> DataFrame:
    """Say what of it must be there."""
    return with_load_time(rows).drop("loaded_at")


def with_random_number(rows: DataFrame) -> DataFrame:
    return rows.select("id", sf.rand(7).alias("number"))


def with_new_ids(rows: DataFrame) -> DataFrame:
    return rows.select("id", sf.expr("uuid()").alias("row_id"))


def _now(value: int) -> float:
    return time.time()


def with_hidden_clock(rows: DataFrame) -> DataFrame:
    return rows.select("id", sf.udf(_now, "double")("value").alias("seen_at"))


def salted(rows: DataFrame) -> DataFrame:
    """Spread the rows of a key by a random number, which the result does not depend on."""
    return rows.withColumn("salt", sf.rand() * 4).where("salt >= 0").select("key", "id")


load_time = StreamingJob(query=with_load_time, sink=overwrite)
load_time_left_out = StreamingJob(query=with_load_time, batch=without_load_time, sink=overwrite)
load_time_appended = StreamingJob(query=with_load_time, batch=without_load_time, sink=appends)


def first_of_today(rows: DataFrame) -> DataFrame:
    """Keep the first row of each key, and none of the future: two clocks and no partition."""
    return rows.where("date(at) <= current_date()").dropDuplicates(["key"]).select("key", "id")


def with_map(rows: DataFrame) -> DataFrame:
    return rows.select("id", sf.create_map("key", "value").alias("values"))


first_today = StreamingJob(query=first_of_today, sink=overwrite)
maps = StreamingJob(query=with_map, sink=overwrite)
random_number = StreamingJob(query=with_random_number, sink=overwrite)
new_ids = StreamingJob(query=with_new_ids, sink=overwrite)
hidden_clock = StreamingJob(query=with_hidden_clock, sink=overwrite)
spread = StreamingJob(query=salted, sink=overwrite)


# --- queries that Spark refuses as a batch -----------------------------------------------------------------------


def once_within(rows: DataFrame) -> DataFrame:
    """Give each key once; the watermark does not pass it. Which of its rows Spark keeps is not said."""
    return rows.withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["key"]).select("key")


def once(rows: DataFrame) -> DataFrame:
    return rows.select("key").distinct()


DELAY_S = 2


def first_within(rows: DataFrame) -> DataFrame:
    return (
        rows.withWatermark("at", f"{DELAY_S} seconds")
        .dropDuplicatesWithinWatermark(["key"])
        .select("key", "id")
    )


def first_by_hand(rows: DataFrame) -> DataFrame:
    """Keep a row if its key has not come, or was given so long ago that the watermark has passed it.

    Each file is a micro-batch, and the watermark is what the micro-batches before have reached. One task sees them all.
    """

    def kept(parts: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        expires: dict[str, pd.Timestamp] = {}
        watermark = newest = pd.Timestamp(0)
        delay = pd.Timedelta(seconds=DELAY_S)
        for _, batch in pd.concat(parts).groupby("file", sort=True):
            first = batch[~batch["key"].isin(list(expires))].drop_duplicates("key")
            expires |= dict(zip(first["key"], first["at"] + delay, strict=True))
            expires = {key: at for key, at in expires.items() if at > watermark}
            newest = max(newest, batch["at"].max())
            watermark = newest - delay
            yield first[["key", "id"]]

    in_one_task = rows.withColumn("file", sf.input_file_name()).coalesce(1)
    return in_one_task.mapInPandas(kept, "key string, id long")


def counted(rows: DataFrame) -> DataFrame:
    """Count the rows of each key in state of its own."""

    def count(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        before = state.get[0] if state.exists else 0
        total = before + sum(map(len, parts))
        state.update((total,))
        yield pd.DataFrame({"key": [key[0]], "count": [total]})

    return rows.groupBy("key").applyInPandasWithState(
        count, "key string, count long", "count long", "update", "NoTimeout"
    )


def counted_as_a_batch(rows: DataFrame) -> DataFrame:
    return rows.groupBy("key").count()


within_watermark = StreamingJob(query=once_within, batch=once, sink=overwrite)
within_watermark_appended = StreamingJob(query=once_within, batch=once, sink=appends)
within_short_watermark = StreamingJob(query=first_within, batch=first_by_hand, sink=overwrite)
within_short_watermark_appended = StreamingJob(query=first_within, batch=first_by_hand, sink=appends)
within_watermark_alone = StreamingJob(query=first_within, sink=overwrite)
pandas_state = StreamingJob(
    query=counted, batch=counted_as_a_batch, sink=overwrite, output_mode="update", latest_by=("key",)
)
pandas_state_appended = StreamingJob(
    query=counted, batch=counted_as_a_batch, sink=appends, output_mode="update", latest_by=("key",)
)
pandas_state_alone = StreamingJob(query=counted, sink=overwrite, output_mode="update", latest_by=("key",))


def with_random_first(rows: DataFrame) -> DataFrame:
    return first_within(rows).withColumn("number", sf.rand())


def without_column(rows: DataFrame) -> DataFrame:
    return rows.select("nothing")


neither = StreamingJob(query=without_column, sink=overwrite)
random_within = StreamingJob(query=with_random_first, sink=overwrite)
updates_alone = StreamingJob(query=counted, sink=overwrite, output_mode="update")


# --- rows of which the first counts ------------------------------------------------------------------------------


def first_of_key(rows: DataFrame) -> DataFrame:
    """Give each key once. Which of the rows of one micro-batch Spark keeps is not said."""
    return rows.dropDuplicates(["key"]).select("key")


first_rows = StreamingJob(query=first_of_key, sink=overwrite)
first_rows_appended = StreamingJob(query=first_of_key, sink=appends)


# --- windows without a word of when they are final ----------------------------------------------------------------


def windowed(rows: DataFrame) -> DataFrame:
    groups = rows.withWatermark("at", "1 second").groupBy(sf.window("at", "4 seconds").alias("window"), "key")
    return groups.count().selectExpr("window.end AS until", "key", "count")


def in_long_windows(rows: DataFrame) -> DataFrame:
    groups = rows.withWatermark("at", "10 minutes").groupBy(sf.window("at", "5 minutes").alias("window"))
    return groups.count().selectExpr("window.end AS until", "count")


windows_without_end = StreamingJob(query=windowed, sink=overwrite)
long_windows = StreamingJob(query=in_long_windows, sink=overwrite, final_by="until")
long_windows_appended = StreamingJob(query=in_long_windows, sink=appends, final_by="until")

PAIRS: tuple[tuple[str, str], ...] = (
    ("left_outer", "left_outer_appended"),
    ("right_outer", "right_outer_appended"),
    ("full_outer", "full_outer_appended"),
    ("window_join", "window_join_appended"),
    ("merged", "merged_all"),
    ("merged", "merged_any"),
    ("deleted", "deleted_too_late"),
    ("load_time_left_out", "load_time_appended"),
    ("within_watermark", "within_watermark_appended"),
    ("within_short_watermark", "within_short_watermark_appended"),
    ("pandas_state", "pandas_state_appended"),
    ("first_rows", "first_rows_appended"),
)
"""A right job, and a wrong one that does the same."""
