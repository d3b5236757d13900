"""The driver of a query, in a process of its own.

Run as a module (``python -m barrier_tck.harness.streaming.driver.query_driver``) with the file descriptor of its end of
the connection to the harness. It answers the calls of ``QueryRpc`` and makes those of ``QueryReports``. It judges
nothing and injects no faults; only the harness kills it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from barrier_tck.harness.cluster.driver.peer import Peer, PeerGone
from barrier_tck.harness.cluster.session_config import SessionConfig
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.streaming.disturbed_writes import settings_of_writes
from barrier_tck.harness.streaming.driver.serving import job_at, serve
from barrier_tck.harness.streaming.driver.task_points import TaskPoints, observe_partitions
from barrier_tck.harness.streaming.driver.user_starts import observed_starts
from barrier_tck.harness.streaming.query_definition import QueryDefinition, QueryPlace
from barrier_tck.harness.streaming.query_rpc import QueryOrder, QueryReports, QueryRpc
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class QueryDriver:
    """Implements ``QueryRpc``."""

    def __init__(self, peer: Peer) -> None:
        self._reports = peer.remote("reports", QueryReports)  # type: ignore[type-abstract]
        self._stack = contextlib.ExitStack()
        self._spark: SparkSession | None = None
        self._query: StreamingQuery | None = None

    def open_session(self, place: SessionConfig, conf: Mapping[str, str]) -> str:
        if self._spark is None:
            self._spark = self._stack.enter_context(spark_session(place, "barrier-tck", dict(conf)))
        return str(self._spark.sparkContext.applicationId)

    def start_query(self, order: QueryOrder) -> None:
        if self._spark is None:
            raise UsageProblem("no session was opened")
        job = job_at(order.job)
        # The sink reports to the harness through the same directory as the tasks.
        place = replace(order.place, rendezvous=order.rendezvous)
        points = TaskPoints(order.rendezvous)
        for key, value in settings_of_writes(order.writes, job.conf).items():
            if value is None:
                self._spark.conf.unset(key)
            else:
                self._spark.conf.set(key, value)
        if job.start is not None:
            observe_partitions(points)
            with observed_starts(points):
                query = job.start(self._spark, place)
        else:
            query = _started(self._spark, job, place, points, self._reports)
        self._query = query
        threading.Thread(target=self._await_end, args=(query,), name="awaits the end", daemon=True).start()

    def stop_query(self) -> None:
        query, self._query = self._query, None
        if query is not None and query.isActive:
            query.stop()

    def try_write(self, path: str) -> str:
        """Write a file with the class that writes the query's checkpoints."""
        if self._spark is None:
            raise UsageProblem("no session was opened")
        # PySpark has no public API for calls to classes of its JVM.
        jvm: Any = self._spark._jvm  # noqa: SLF001
        session: Any = self._spark._jsparkSession  # noqa: SLF001
        return str(jvm.barriertck.DisturbedWrites.tryWrite(path, session.sessionState().newHadoopConf()))

    def close(self) -> None:
        """End the session, and with it the query."""
        self._stack.close()

    def _await_end(self, query: StreamingQuery) -> None:
        problem = ""
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - every error is reported to the harness
            problem = f"{type(error).__name__}: {error}"
        with contextlib.suppress(PeerGone):
            self._reports.query_over(problem)


def _started(
    spark: SparkSession, job: QueryDefinition, place: QueryPlace, points: TaskPoints, reports: QueryReports
) -> StreamingQuery:
    schema = spark.read.parquet(place.input).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(place.input)
    writer: DataStreamWriter = (
        points.observed(job.query(stream))
        .writeStream.outputMode(job.output_mode)
        .option("checkpointLocation", place.checkpoint)
        .trigger(availableNow=True)
    )
    if isinstance(job.sink, str):
        return writer.format(job.sink).option("path", place.output).start()
    observe_partitions(points)
    return writer.foreachBatch(partial(_write, job.sink, place, reports)).start()


def _write(
    sink: Callable[[DataFrame, int, QueryPlace], None],
    place: QueryPlace,
    reports: QueryReports,
    batch: DataFrame,
    batch_id: int,
) -> None:
    reports.sink_called(batch_id)
    sink(batch, batch_id, place)
    reports.sink_returned(batch_id)


def main() -> None:
    """Serve the driver."""
    serve("driver", QueryRpc, QueryDriver)


if __name__ == "__main__":
    # Not from ``__main__``: functions that are sent to executors must belong to a module that they can import.
    from barrier_tck.harness.streaming.driver import query_driver

    query_driver.main()
