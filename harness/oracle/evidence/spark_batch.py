"""Judges committed output by Spark SQL batch queries over the same input (SNK-1).

Spark computes the job's meaning a second time, as a batch, and both sides are compared in both directions as
multisets: ids with keys, keys with their counts 1 to n, final totals per key, and the increments between neighbouring
rows of a key. Rows of the input never leave Spark; only counts and a few examples do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from barrier_tck.harness.record.history import OutputComparison, OutputCounts
from barrier_tck.harness.workloads.sequential_model import SequentialSpec
from barrier_tck.harness.workloads.workload import split_name

EXAMPLES_MAX = 10
SHUFFLE_PARTITIONS = 4
"""Enough for hundreds of thousands of rows; Spark's 200 would cost more than the work."""


def judge_output(
    spark: SparkSession,
    spec: SequentialSpec,
    input_dir: Path,
    output_dir: Path,
    offsets: Mapping[str, int] | int = 0,
) -> OutputComparison:
    """Compare the Parquet output of a running aggregation with its Parquet input, and return the result.

    ``offsets`` says where the input of the splits begins, for all of them or by split name (0 for those left out). In
    the result, ``checks`` lists each check with the number of rows that only one side has. For an output without the
    right columns, the result has a ``problem`` instead of counts.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
    records = _read_input(session, spec, input_dir, offsets)
    output, problem = _read_output(session, spec, output_dir, records.schema)
    if output is None:
        return OutputComparison(None, problem=problem)
    return _Comparison(session, spec, records, output).result()


class _Comparison:
    """All checks of one input and one output: the input's totals, then one pass over both sides.

    A full outer join by id compares ids and keys in both directions, including repeated ones. Its result is that of
    ``exceptAll`` in both directions, at a quarter of the cost, and it serves the other checks as well.
    """

    def __init__(
        self, session: SparkSession, spec: SequentialSpec, records: DataFrame, output: DataFrame
    ) -> None:
        self._session = session
        self._spec = spec
        self._records = records
        self._output = output
        self._keys = list(spec.key_columns)
        self._count = spec.aggregates[spec.count_index].name
        self._names = [aggregate.name for aggregate in spec.aggregates]
        self._sums = [name for name in self._names if name != self._count]

    def result(self) -> OutputComparison:
        """Run all checks."""
        totals = self._records.groupBy(*self._keys).agg(*[f.sum(name).alias(name) for name in self._names])
        # These are few rows, which are needed twice: fetching them avoids a second pass over the input. An Arrow table
        # goes back to Spark without a Python worker, which would take a second to start.
        expected_totals = totals.toArrow()
        expected = sum(expected_totals.column(self._count).to_pylist())
        judged = self._judged(self._session.createDataFrame(expected_totals, totals.schema))
        found = judged.agg(*[f.count_if(f"is_{kind}").cast("long").alias(kind) for kind in _KINDS]).first()
        numbers: dict[str, int] = dict.fromkeys(_KINDS, 0) if found is None else found.asDict()
        matched = numbers["committed"] - numbers["unexpected"]
        duplicated = matched - (expected - numbers["lost"])
        counts = OutputCounts(
            expected=expected,
            committed=numbers["committed"],
            lost=numbers["lost"],
            duplicated=duplicated,
            unexpected=numbers["unexpected"],
            wrong_key=numbers["wrong_key"],
            wrong_count=numbers["wrong_count"],
            wrong_sum=numbers["wrong_increment"] + numbers["wrong_total"],
        )
        checks = {
            "ids": {
                "only_expected": numbers["lost"],
                "only_output": duplicated + numbers["unexpected"] + numbers["wrong_key"],
            },
            "counts": {
                "only_expected": expected - (numbers["committed"] - numbers["wrong_count"]),
                "only_output": numbers["wrong_count"],
            },
            "final_totals": {
                "only_expected": expected_totals.num_rows - numbers["right_total"],
                "only_output": numbers["wrong_total"],
            },
            "increments": {"wrong": numbers["wrong_increment"]},
        }
        return OutputComparison(counts, _examples(judged) if counts.any_wrong else (), checks=checks)

    def _judged(self, totals: DataFrame) -> DataFrame:
        """Return one row per output row and per lost record, with a flag for each kind of problem."""
        numbered = self._in_order_of_counts(totals)
        identifier = self._spec.id_column
        added = self._records.select(
            f.col(identifier).alias("record_id"),
            f.struct(*self._keys).alias("record_key"),
            *[f.col(name).alias(f"added_{name}") for name in self._sums],
        )
        both = numbered.join(added, numbered[identifier] == added["record_id"], "full_outer")
        committed = f.col("committed").isNotNull()
        matched = committed & f.col("record_id").isNotNull()
        same_key = f.struct(*self._keys).eqNullSafe(f.col("record_key"))
        grown = [f.col(f"grown_{name}") != f.col(f"added_{name}") for name in self._sums]
        flags = {
            "committed": committed,
            "lost": ~committed,
            "unexpected": committed & f.col("record_id").isNull(),
            "wrong_key": matched & ~same_key,
            "wrong_count": committed & f.col("count_is_wrong"),
            # Across a gap, or after a repeated count, no increment can be computed; other checks report those.
            "wrong_increment": matched & same_key & (f.col("step") == 1) & _any(grown),
            "right_total": committed & f.col("is_last") & ~f.col("total_differs"),
            "wrong_total": committed & f.col("is_last") & f.col("total_differs"),
        }
        return both.select(
            "*", *[f.coalesce(flag, f.lit(False)).alias(f"is_{kind}") for kind, flag in flags.items()]
        )

    def _in_order_of_counts(self, totals: DataFrame) -> DataFrame:
        """Return the output with each row's step and growth since the previous row (same key, by count)."""
        by_count = Window.partitionBy(*self._keys).orderBy(self._count, self._spec.id_column)
        expected = totals.select(
            f.struct(*self._keys).alias("total_key"),
            *[f.col(name).alias(f"total_{name}") for name in self._names],
        )
        known = self._output.join(
            f.broadcast(expected), f.struct(*self._keys).eqNullSafe(f.col("total_key")), "left"
        )
        number = f.coalesce(f.col(f"total_{self._count}"), f.lit(0))
        count, step = f.col(self._count), f.col("step")
        stepped = known.select(
            "*",
            *[_since_last(name, by_count).alias(f"grown_{name}") for name in self._sums],
            _since_last(self._count, by_count).alias("step"),
        )
        return stepped.select(
            self._spec.id_column,
            *self._keys,
            *self._names,
            "step",
            *[f"grown_{name}" for name in self._sums],
            f.lit(True).alias("committed"),
            ((count < 1) | (count > number) | (step == 0)).alias("count_is_wrong"),
            ((count == number) & (step != 0)).alias("is_last"),
            _any([f.col(name) != f.col(f"total_{name}") for name in self._sums]).alias("total_differs"),
        )


_KINDS = (
    "committed",
    "lost",
    "unexpected",
    "wrong_key",
    "wrong_count",
    "wrong_increment",
    "right_total",
    "wrong_total",
)
"""Kind of problem -> how it is found in a row."""

_FAULTY = ("lost", "unexpected", "wrong_key", "wrong_count", "wrong_increment", "wrong_total")
"""The kinds for which examples are shown; a duplicate also shows as a wrong count."""


def _since_last(name: str, window: WindowSpec) -> Column:
    return f.col(name) - f.coalesce(f.lag(name).over(window), f.lit(0))


def _examples(judged: DataFrame) -> tuple[str, ...]:
    """Return the first few faulty rows, by id, each with its problem."""
    faulty = judged.where(_any([f.col(f"is_{kind}") for kind in _FAULTY]))
    rows = (
        faulty.orderBy(f.coalesce(f.col(judged.columns[0]), f.col("record_id"))).limit(EXAMPLES_MAX).collect()
    )
    return tuple(_sentence(row.asDict(recursive=True)) for row in rows)


def _sentence(row: dict[str, Any]) -> str:
    kinds = ", ".join(kind.replace("_", " ") for kind in _FAULTY if row[f"is_{kind}"])
    shown = {name: value for name, value in row.items() if value is not None and not isinstance(value, bool)}
    return f"{kinds}: {shown}"


def _read_input(
    session: SparkSession, spec: SequentialSpec, directory: Path, offsets: Mapping[str, int] | int
) -> DataFrame:
    """Return id, key and, per aggregate, what each record adds, without the records before the start offsets."""
    rows = session.read.parquet(str(directory))
    if isinstance(offsets, int):
        if offsets:
            rows = rows.where(f.col("_metadata.row_index") >= offsets)
    else:
        for name, start in sorted(offsets.items()):
            in_split = f.col("_metadata.file_name") == f"{split_name(name)}.parquet"
            rows = rows.where(~in_split | (f.col("_metadata.row_index") >= start))
    added = [
        (f.lit(1) if item.column is None else f.coalesce(f.col(item.column), f.lit(0)))
        .cast("long")
        .alias(item.name)
        for item in spec.aggregates
    ]
    return rows.select(spec.id_column, *spec.key_columns, *added)


def _read_output(
    session: SparkSession, spec: SequentialSpec, directory: Path, schema: StructType
) -> tuple[DataFrame | None, str]:
    """Return the committed output in the input's types, or None and what is wrong with it."""
    if not directory.is_dir() or not any(directory.glob("[!_.]*.parquet")):
        return session.createDataFrame([], schema), ""
    rows = session.read.parquet(str(directory))
    missing = [column for column in spec.output_columns if column not in rows.columns]
    if missing:
        return None, f"it has no column {', '.join(missing)}, only {', '.join(rows.columns)}"
    names = {aggregate.name for aggregate in spec.aggregates}
    columns = [
        # A sum over no value may be shown as null; together with the count, 0 means the same.
        (f.coalesce(f.col(field.name), f.lit(0)) if field.name in names else f.col(field.name))
        .cast(field.dataType)
        .alias(field.name)
        for field in schema.fields
    ]
    return rows.select(*columns), ""


def _any(conditions: list[Column]) -> Column:
    """Return the disjunction; false if there is nothing to join."""
    result = f.lit(False)
    for condition in conditions:
        result = result | condition
    return result
