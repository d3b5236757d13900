"""Queries in event time whose input has late rows, one of each kind that Spark has, with a right and a wrong sink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from barrier_tck.harness import StreamingJob
from barrier_tck.harness.streaming.driver.stock_processors import ROCKSDB
from barrier_tck.harness.streaming.stock_job import overwrite
from tests.harness.streaming.unusual_jobs import appends, fully_joined, left_joined

if TYPE_CHECKING:
    from pyspark.sql.streaming.state import GroupState
    from pyspark.sql.streaming.stateful_processor import (
        ExpiredTimerInfo,
        StatefulProcessorHandle,
        TimerValues,
    )

DELAY = "2 seconds"


def in_time(rows: DataFrame) -> DataFrame:
    return rows.withWatermark("at", DELAY)


def tumbling(rows: DataFrame) -> DataFrame:
    return in_time(rows).groupBy(sf.window("at", "4 seconds").alias("window"), "key").count()


def sliding(rows: DataFrame) -> DataFrame:
    windows = sf.window("at", "4 seconds", "2 seconds").alias("window")
    return in_time(rows).groupBy(windows).agg(sf.sum("value").alias("sum"))


def sessions(rows: DataFrame) -> DataFrame:
    return in_time(rows).groupBy(sf.session_window("at", "3 seconds").alias("window"), "key").count()


def chained(rows: DataFrame) -> DataFrame:
    """Count in short windows, and add the counts up in longer ones."""
    short = in_time(rows).groupBy(sf.window("at", "2 seconds").alias("short"), "key").count()
    return short.groupBy(sf.window("short", "4 seconds").alias("window")).agg(sf.sum("count").alias("sum"))


def of_a_time_that_is_made(rows: DataFrame) -> DataFrame:
    made = rows.select("key", (sf.unix_seconds("at") + 60).cast("timestamp").alias("moved"))
    windows = sf.window("moved", "4 seconds").alias("window")
    return made.withWatermark("moved", DELAY).groupBy(windows, "key").count()


def of_groups(rows: DataFrame) -> DataFrame:
    """Exchange rows between executors before the time is named: nobody knows from which file they come."""
    newest = rows.repartition(2, "key")
    return in_time(newest).groupBy(sf.window("at", "4 seconds").alias("window"), "key").count()


def pairs(rows: DataFrame) -> DataFrame:
    """Join each row with later ones of its key, at most three seconds apart; pairs are given at once."""
    left = in_time(rows).selectExpr("key", "id AS lid", "at AS lat")
    right = in_time(rows).selectExpr("key AS rkey", "id AS rid", "at AS rat")
    near = "rat BETWEEN lat - INTERVAL 3 SECONDS AND lat + INTERVAL 3 SECONDS"
    return left.join(right, sf.expr(f"key = rkey AND lid < rid AND {near}")).select("key", "lid", "rid")


def once(rows: DataFrame) -> DataFrame:
    return in_time(rows).select("key", "at").dropDuplicates()


def once_within(rows: DataFrame) -> DataFrame:
    return in_time(rows).dropDuplicatesWithinWatermark(["key"]).select("key", "id")


def counted_until_quiet(rows: DataFrame) -> DataFrame:
    """Count the rows of a key in state of its own, and give the count when the key was quiet for three seconds."""

    def count(key: tuple[str], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            yield pd.DataFrame({"key": [key[0]], "count": [state.get[0]]})
            state.remove()
            return
        frames = list(parts)
        state.update(((state.get[0] if state.exists else 0) + sum(map(len, frames)),))
        newest_ms = max(int(frame["at"].max().timestamp() * 1_000) for frame in frames)
        state.setTimeoutTimestamp(max(newest_ms, state.getCurrentWatermarkMs()) + 3_000)

    return (
        in_time(rows)
        .groupBy("key")
        .applyInPandasWithState(count, "key string, count long", "count long", "append", "EventTimeTimeout")
    )


class CountsUntilATimer(StatefulProcessor):
    """Counts the rows of a key, and gives the count at a timer three seconds after the first of them."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._count = handle.getValueState("count", "count LONG")

    def handleInputRows(  # noqa: N802 - the names are Spark's
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._count.get()
        times = [int(row["at"].timestamp() * 1_000) for row in rows]
        if before is None:
            self._handle.registerTimer(max(min(times), timerValues.getCurrentWatermarkInMs()) + 3_000)
        self._count.update(((before or (0,))[0] + len(times),))
        return iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: tuple[str],
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[Row]:
        counted = self._count.get() or (0,)
        self._count.clear()
        yield Row(key=key[0], count=counted[0], timer=expiredTimerInfo.getExpiryTimeInMs())

    def close(self) -> None:
        pass


def counted_until_a_timer(rows: DataFrame) -> DataFrame:
    return (
        in_time(rows)
        .groupBy("key")
        .transformWithState(
            statefulProcessor=CountsUntilATimer(),
            outputStructType="key STRING, count LONG, timer LONG",
            outputMode="Append",
            timeMode="EventTime",
        )
    )


BY_WINDOW = "window.end"
RIGHT = {
    "tumbling": StreamingJob(query=tumbling, sink=overwrite, final_by=BY_WINDOW),
    "sliding": StreamingJob(query=sliding, sink=overwrite, final_by=BY_WINDOW),
    "sessions": StreamingJob(query=sessions, sink=overwrite, final_by=BY_WINDOW),
    "chained": StreamingJob(query=chained, sink=overwrite, final_by=BY_WINDOW),
    "of_a_time_that_is_made": StreamingJob(query=of_a_time_that_is_made, sink=overwrite, final_by=BY_WINDOW),
    "of_groups": StreamingJob(query=of_groups, sink=overwrite, final_by=BY_WINDOW),
    "left_joined": StreamingJob(query=left_joined, sink=overwrite, final_by="until"),
    "fully_joined": StreamingJob(query=fully_joined, sink=overwrite, final_by="until"),
    "pairs": StreamingJob(query=pairs, sink=overwrite, late_rows=True),
    "once": StreamingJob(query=once, sink=overwrite, late_rows=True),
    "once_within": StreamingJob(query=once_within, sink=overwrite, late_rows=True),
    "updates": StreamingJob(
        query=tumbling, sink=overwrite, output_mode="update", latest_by=("window", "key"), late_rows=True
    ),
    "whole": StreamingJob(query=tumbling, sink=overwrite, output_mode="complete", late_rows=True),
    "counted_until_quiet": StreamingJob(query=counted_until_quiet, sink=overwrite, late_rows=True),
    "counted_until_a_timer": StreamingJob(
        query=counted_until_a_timer, sink=overwrite, late_rows=True, conf=ROCKSDB
    ),
}
WRONG = {
    name: StreamingJob(
        query=job.query,
        sink=appends,
        output_mode=job.output_mode,
        final_by=job.final_by,
        late_rows=job.late_rows,
        conf=job.conf,
    )
    for name, job in RIGHT.items()
    if job.output_mode == "append"
}
"""They append, without asking whether the micro-batch was written before."""
