"""Points in tasks: what runs in the Python workers of executors, and stands still there for the harness."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

from barrier_tck.harness.cluster.rendezvous import met
from barrier_tck.harness.streaming.driver.spark_classes import ClassicDataFrame
from barrier_tck.harness.streaming.query_rpc import TaskReports, TaskRun

_BATCH_ID = "streaming.sql.batchId"
"""The local property in which Spark tells tasks their micro-batch."""
_WRITES = "barrier_tck.task.writes"
"""A local property that is there if a function of the sink writes the rows of a task, and has an end of its own."""


@dataclass
class _Passed:
    """How many rows a task has passed on so far."""

    rows: int = 0


@dataclass(frozen=True)
class TaskPoints:
    """Lets the tasks of one query stand still. It is sent to executors with the functions that use it."""

    rendezvous: str
    """The directory in which they meet the harness."""

    def observed(self, result: DataFrame) -> DataFrame:
        """Return the same rows, which now pass points on their way to the sink."""
        return result.mapInArrow(self.pass_on, result.schema)

    def pass_on(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass on what comes, unchanged; a task without rows passes the same points."""
        yield from self._through_points(batches, begins=True, passed=_Passed())

    def constraints(self, write: Callable[[Iterator[Row]], Any]) -> Callable[[Iterator[Row]], None]:
        """Return a function for the rows of a partition that does the same, and stands still when it has written."""

        def write_at_points(rows: Iterator[Row]) -> None:
            passed = _Passed()
            result = write(self._through_points(rows, begins=False, passed=passed))
            if result is not None:  # PySpark lets such a function return an iterator, and exhausts it
                for _ in result:
                    pass
            self._tell(lambda harness, batch: harness.all_rows_passed(os.getpid(), batch, passed.rows))

        return write_at_points

    def _through_points(self, items: Iterable[Any], begins: bool, passed: _Passed) -> Iterator[Any]:
        if begins:
            context = _context()
            task = TaskRun(
                context.stageId(), context.partitionId(), context.taskAttemptId(), context.attemptNumber()
            )
            self._tell(lambda harness, batch: harness.task_began(os.getpid(), batch, task))
        stood = False
        for item in items:
            yield item
            passed.rows += item.num_rows if isinstance(item, pa.RecordBatch) else 1
            if not stood and passed.rows:
                self._tell(lambda harness, batch: harness.rows_passed(os.getpid(), batch, passed.rows))
                stood = True
        if begins:
            if not stood:
                self._tell(lambda harness, batch: harness.rows_passed(os.getpid(), batch, 0))
            if _context().getLocalProperty(_WRITES) is None:
                self._tell(lambda harness, batch: harness.all_rows_passed(os.getpid(), batch, passed.rows))

    def _tell(self, call: Callable[[TaskReports, int], None]) -> None:
        batch = _context().getLocalProperty(_BATCH_ID)
        with met(self.rendezvous, TaskReports) as harness:  # type: ignore[type-abstract]
            call(harness, int(batch) if batch is not None else -1)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "this runs in tasks only"
    return context


def observe_partitions(points: TaskPoints) -> None:
    """Let sinks that write row by row, in ``foreachPartition`` or ``foreach``, stand still at points, too.

    A sink calls these methods on a frame that it derives itself, so they are replaced for the whole process, which is
    the driver of this query and of nothing else.
    """

    def foreach_partition(frame: ClassicDataFrame, f: Callable[[Iterator[Row]], None]) -> None:
        context = frame.sparkSession.sparkContext
        context.setLocalProperty(_WRITES, "true")
        try:
            frame.rdd.foreachPartition(points.constraints(f))  # type: ignore[arg-type]
        finally:
            context.setLocalProperty(_WRITES, None)  # type: ignore[arg-type]

    def foreach(frame: ClassicDataFrame, f: Callable[[Row], None]) -> None:
        def write(rows: Iterator[Row]) -> None:
            for row in rows:
                f(row)

        foreach_partition(frame, write)

    ClassicDataFrame.foreachPartition = foreach_partition  # type: ignore[method-assign, assignment]
    ClassicDataFrame.foreach = foreach  # type: ignore[method-assign, assignment]
