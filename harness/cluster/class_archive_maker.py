"""Makes the archive of Spark's classes, as a process of its own: ``directory archive class_path`` are its arguments.

It does with Spark what a trial does; its JVM writes the archive as it ends. ``class_sharing`` starts it, and may not
wait for it: it puts the archive in its place by itself, removes its directory, and ends in any case.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as sf

from barrier_tck.harness.cluster.spark_releases import reads_state
from barrier_tck.harness.cluster.spark_session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ENDS_S = 1_800
"""However busy the machine is: nothing waits for this process any more."""

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


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _run_queries(spark: SparkSession, directory: str) -> None:
    """Run a small stateful query on a stream, read its output and its state, and run the same query as a batch."""
    source, output, checkpoint = (f"{directory}/{name}" for name in ("input", "output", "checkpoint"))
    spark.range(4).selectExpr("id", "CAST(id % 2 AS STRING) AS key").write.parquet(source)
    rows = spark.read.parquet(source)

    def totals(rows: DataFrame) -> DataFrame:
        return rows.groupBy("key").agg(sf.count("id").alias("count"), sf.sum("id").alias("sum"))

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{output}/batch={number}")

    counted = totals(spark.readStream.schema(rows.schema).parquet(source))
    observed = counted.mapInArrow(_same, counted.schema).writeStream.foreachBatch(write)
    started = (
        observed.outputMode("update").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    )
    started.start().awaitTermination()
    written = spark.read.parquet(output)
    newest = Window.partitionBy("key").orderBy(sf.col("batch").desc())
    ranked = (
        written.withColumn("rank", sf.rank().over(newest)).where("rank = 1").select("key", "count", "sum")
    )
    both = ranked.unionAll(totals(rows)).cache()
    both.groupBy("key").agg(sf.sort_array(sf.collect_list("sum"))).collect()
    if reads_state():
        spark.read.format("state-metadata").load(checkpoint).collect()
        spark.read.format("statestore").load(checkpoint).collect()


def _stage(name: str) -> None:
    sys.stdout.write(f"stage: {name}\n")
    sys.stdout.flush()


def _make(archive: Path, class_path: str) -> None:
    """Use Spark as a trial does; its JVM writes the archive as it ends."""
    _stage("step 1 of 4: Spark starts")
    settings = {
        "spark.master": "local[2]",
        "spark.authenticate": "true",
        "spark.authenticate.secret": "of one process",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraClassPath": class_path,
        "spark.driver.extraJavaOptions": f'"-XX:ArchiveClassesAtExit={archive}" -Xlog:cds*=off',
    }
    with spark_session(
        None,
        "barrier-tck-classes",
        settings,
        quick_start=True,
        share_classes=False,
        end_timeout_s=_ENDS_S,
    ) as spark:
        _stage("step 2 of 4: a job runs")
        context = spark.sparkContext
        context.parallelize(range(2), 2).barrier().mapPartitions(_gang).collect()
        _stage("step 3 of 4: queries run")
        with tempfile.TemporaryDirectory() as directory:
            _run_queries(spark, directory)
        jvm: Any = context._jvm  # noqa: SLF001 - PySpark's only way to the JVM
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        for name in _DAEMONS:
            jvm.java.lang.Class.forName(name, True, loader)
        _stage("step 4 of 4: the JVM writes the archive")


def _make_in(directory: Path, archive: Path, class_path: str) -> None:
    made = directory / archive.name
    _make(made, class_path)
    made.chmod(0o644)
    made.replace(archive)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    signal.alarm(_ENDS_S)
    _make_in(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
