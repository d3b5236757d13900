"""Queries that their users start: what Spark's own methods do meanwhile, so that faults can be aimed at their tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from barrier_tck.harness.streaming.driver.spark_classes import ClassicDataFrame
from barrier_tck.harness.streaming.driver.task_points import TaskPoints


@contextlib.contextmanager
def observed_starts(points: TaskPoints) -> Iterator[None]:
    """Let the tasks of each query that is written out meanwhile stand still at points.

    A stream reads one file in each micro-batch, as the streams do that the harness starts, unless the reader is told
    otherwise. The user's function calls Spark itself, so what it calls is replaced.
    """
    read, written = SparkSession.readStream, ClassicDataFrame.writeStream

    def read_one_by_one(session: SparkSession) -> DataStreamReader:
        return DataStreamReader(session).option("maxFilesPerTrigger", 1)

    def write_observed(frame: ClassicDataFrame) -> DataStreamWriter:
        return DataStreamWriter(points.observed(frame))

    SparkSession.readStream = property(read_one_by_one)  # type: ignore[method-assign, assignment]
    ClassicDataFrame.writeStream = property(write_observed)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        SparkSession.readStream = read  # type: ignore[method-assign]
        ClassicDataFrame.writeStream = written  # type: ignore[method-assign]
