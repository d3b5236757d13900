"""Judges the state in between: what Spark's state data source shows after each micro-batch, against a batch."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf

from barrier_tck.harness.record.history import StateComparison
from barrier_tck.harness.streaming.driver.micro_batches import files_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

    from barrier_tck.harness.streaming.query_definition import QueryPlace, QueryState

_EXAMPLES = 5
_BATCH, _EXPECTED, _FOUND = "barrier_tck_batch", "barrier_tck_expected", "barrier_tck_found"


def judged_state(spark: SparkSession, kept: QueryState, place: QueryPlace) -> StateComparison:
    """Return how the state after each micro-batch that Spark retains differs from the rows read until then.

    Raises nothing of Spark's: state that cannot be read is a problem, in words.
    """
    checkpoint = Path(place.checkpoint)
    # Spark 4.1 and 4.2 read state only in a session that has asked for its queries (SPARK-58973).
    _ = spark.streams.active
    try:
        batches = _retained(spark, checkpoint)
        if not batches:
            return StateComparison(problem="no micro-batch with state was committed")
        rows = spark.read.schema(spark.read.parquet(place.input).schema)
        sides = [side for batch in batches for side in _sides(spark, rows, kept, checkpoint, batch)]
        return _compared(reduce(lambda one, other: one.unionAll(other), sides), len(batches))
    except PySparkException as error:
        return StateComparison(problem=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    except Py4JJavaError as error:
        return StateComparison(problem=_innermost(error))


def _innermost(error: Py4JJavaError) -> str:
    """Return the first line of what the innermost of the causes says, which Py4J leaves out."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.toString()).splitlines()[0]


def _retained(spark: SparkSession, checkpoint: Path) -> list[int]:
    committed = sorted(int(file.name) for file in (checkpoint / "commits").glob("*") if file.name.isdigit())
    operators = spark.read.format("state-metadata").load(str(checkpoint)).collect()
    first = max((int(operator["minBatchId"]) for operator in operators), default=0)
    return [batch for batch in committed if batch >= first] if operators else []


def _sides(
    spark: SparkSession, rows: DataFrameReader, kept: QueryState, checkpoint: Path, batch: int
) -> tuple[DataFrame, DataFrame]:
    """Return what should be kept after a micro-batch, and what is."""
    expected = kept.of(rows.parquet(*files_read(checkpoint, batch)))
    found = (
        spark.read.format("statestore")
        .options(**kept.options)
        .option("batchId", batch)
        .load(str(checkpoint))
        .selectExpr(*kept.columns)
    )
    if len(found.columns) != len(expected.columns):
        detail = f"the state has the columns {', '.join(found.columns)}; QueryState gives {', '.join(expected.columns)}"
        raise PySparkException(message=detail)
    found = found.toDF(*expected.columns).select(
        *(sf.col(field.name).cast(field.dataType) for field in expected.schema)
    )
    return _marked(expected, batch, 1, 0), _marked(found, batch, 0, 1)


def _marked(rows: DataFrame, batch: int, expected: int, found: int) -> DataFrame:
    marks = {_BATCH: sf.lit(batch), _EXPECTED: sf.lit(expected), _FOUND: sf.lit(found)}
    return rows.withColumns(marks)


def _compared(sides: DataFrame, batches: int) -> StateComparison:
    names = [name for name in sides.columns if name not in (_EXPECTED, _FOUND)]
    tally = (
        sides.groupBy(*names).agg(sf.sum(_EXPECTED).alias(_EXPECTED), sf.sum(_FOUND).alias(_FOUND)).collect()
    )
    wrong = [row for row in tally if row[_EXPECTED] != row[_FOUND]]
    wrong.sort(key=lambda row: int(row[_BATCH]))
    examples = []
    for row in wrong[:_EXAMPLES]:
        entry = ", ".join(f"{name}={row[name]}" for name in names if name != _BATCH)
        what = "missing" if row[_EXPECTED] > row[_FOUND] else "not expected"
        examples.append(f"after micro-batch {row[_BATCH]}, {what}: {entry}")
    return StateComparison(
        batches=batches,
        entries=sum(int(row[_FOUND]) for row in tally),
        missing=sum(max(0, int(row[_EXPECTED]) - int(row[_FOUND])) for row in tally),
        unexpected=sum(max(0, int(row[_FOUND]) - int(row[_EXPECTED])) for row in tally),
        examples=tuple(examples),
    )
