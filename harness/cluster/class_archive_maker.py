"""Makes the archive of Spark's classes, as a process of its own: ``archive class_path timeout_s`` are its arguments.

It does with Spark what a trial does; its JVM writes the archive as it ends. ``class_sharing`` starts it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from barrier_tck.harness.cluster.spark_session import spark_session

_DAEMONS = (
    "org.apache.spark.deploy.master.Master",
    "org.apache.spark.deploy.worker.Worker",
    "org.apache.spark.deploy.worker.ExecutorRunner",
    "org.apache.spark.executor.CoarseGrainedExecutorBackend",
    "org.apache.spark.scheduler.cluster.StandaloneSchedulerBackend",
)
"""Classes that a driver in local mode does not use, but that the processes of a cluster start with."""


def _gang(_rows: Any) -> Iterator[int]:
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    context.barrier()
    yield context.partitionId()


def _make(archive: str, class_path: str, timeout_s: float) -> None:
    """Use Spark as a trial does; its JVM writes the archive as it ends."""
    settings = {
        "spark.master": "local[2]",
        "spark.authenticate": "true",
        "spark.authenticate.secret": "of one process",
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:cds*=off',
    }
    with spark_session(
        None,
        "barrier-tck-classes",
        settings,
        quick_start=True,
        share_classes=False,
        end_timeout_s=timeout_s,
    ) as spark:
        context = spark.sparkContext
        context.parallelize(range(2), 2).barrier().mapPartitions(_gang).collect()
        jvm: Any = context._jvm  # noqa: SLF001 - PySpark's only way to the JVM
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for name in _DAEMONS:
            jvm.java.lang.Class.forName(name, True, loader)


if __name__ == "__main__":
    _make(sys.argv[1], sys.argv[2], float(sys.argv[3]))
