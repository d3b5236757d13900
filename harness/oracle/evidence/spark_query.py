"""Runs the batch query of a workload on Spark SQL, over the same files that the trial has read (``batch_query``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from barrier_tck.harness.oracle.evidence.spark_batch import SHUFFLE_PARTITIONS
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.workloads.batch_query import BatchQuery


def query_on_spark(
    spark: SparkSession,
    query: BatchQuery,
    schemas: Mapping[str, pa.Schema],
    input_dir: Path,
    start_offset: int,
    late: Collection[int],
) -> list[Row]:
    """Return what a query gives over the Parquet splits of each source vertex.

    Records before the start offset of a split are not part of the input; those with the ids ``late`` are left out.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
    for vertex, schema in schemas.items():
        rows = _records(session, input_dir / vertex, schema, start_offset)
        rows.where(~f.col("id").isin(*late)).createOrReplaceTempView(vertex)
    return [row.asDict() for row in session.sql(query.sql, args=dict(query.parameters)).collect()]


def _records(session: SparkSession, directory: Path, schema: pa.Schema, start_offset: int) -> DataFrame:
    # The schema is given, since a source may have no file.
    rows = session.read.schema(from_arrow_schema(schema)).parquet(str(directory))
    return rows.where(f.col("_metadata.row_index") >= start_offset) if start_offset else rows
