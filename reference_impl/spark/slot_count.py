"""The capacity of a cluster, in subtasks."""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext


def slots_of(context: SparkContext) -> int:
    """Return how many tasks can run at once on the executors that Spark has now, whether or not something runs there.

    It is the number with which Spark itself decides whether a barrier stage can be started. An executor counts until
    the driver has noticed that its connection is gone.
    """
    spark: Any = context._jsc.sc()  # noqa: SLF001 - PySpark has no name for it
    return int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))
