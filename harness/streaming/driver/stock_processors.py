"""Jobs that come with the project whose state is their own (``transformWithState``), which PySpark has since 4.0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from barrier_tck.harness.streaming.query_definition import QueryState
from barrier_tck.harness.streaming.stock_job import overwrite, totals
from barrier_tck.harness.streaming.streaming_job import StreamingJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
    "RocksDBStateStoreProvider"
}
"""The state store that ``transformWithState`` needs."""


class Totals(StatefulProcessor):
    """Counts the rows of a key, and adds up their values, in state of its own."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self._total = handle.getValueState("total", "count LONG, sum LONG")

    def handleInputRows(  # noqa: N802 - the names are Spark's
        self,
        key: tuple[str],
        rows: Iterator[Row],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[Row]:
        """Add rows, and emit the total."""
        count, total = self._total.get() or (0, 0)
        for row in rows:
            count, total = count + 1, total + row["value"]
        self._total.update((count, total))
        yield Row(key=key[0], count=count, sum=total)

    def close(self) -> None:
        """Nothing is open."""


def processed(rows: DataFrame) -> DataFrame:
    """Do the same as ``totals``, with ``transformWithState``."""
    return rows.groupBy("key").transformWithState(
        statefulProcessor=Totals(),
        outputStructType="key STRING, count LONG, sum LONG",
        outputMode="Update",
        timeMode="None",
    )


own_state = StreamingJob(
    query=processed,
    sink=overwrite,
    output_mode="update",
    latest_by=("key",),
    conf=ROCKSDB,
    state=QueryState(of=totals, options={"stateVarName": "total"}),
)
