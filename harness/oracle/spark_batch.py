"""Judges committed output by Spark SQL batch queries over the same input (SNK-1).

Spark computes what the job means a second time, as a batch, and both sides are compared both ways as
multisets: ids with keys, keys with their counts 1 to n, final totals per key, and the increments between
neighbouring rows of a key. Rows of the input never leave Spark; only counts and a few examples do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from harness.oracle.sequential_model import SequentialSpec
from harness.workloads.flights import Flights
from harness.workloads.workload import split_name

EXAMPLES_PER_CHECK = 5
SHUFFLE_PARTITIONS = 4
"""Enough for hundreds of thousands of rows; Spark's 200 would cost more than the work."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Two multisets of rows compared both ways."""

    only_expected: int
    only_output: int
    examples: tuple[str, ...]
    """The first few differing rows, with the side that has them."""


def judge_flights_output(
    spark: SparkSession, input_dir: Path, output_dir: Path, offsets: Mapping[str, int] | int = 0
) -> dict[str, Any]:
    """Judge the output of the workload ``flights``; see ``judge_output``."""
    return judge_output(spark, Flights.spec, input_dir, output_dir, offsets)


def judge_output(
    spark: SparkSession,
    spec: SequentialSpec,
    input_dir: Path,
    output_dir: Path,
    offsets: Mapping[str, int] | int = 0,
) -> dict[str, Any]:
    """Compare the Parquet output of a running aggregation with its Parquet input, and return the result.

    ``offsets`` is where the splits' input begins, for all of them or by split name (0 for those left out).
    The result fits ``History.output_query``: ``counts`` and ``examples`` in the words of the checker
    ``exactly-once-output``, and ``checks``, each with the number of rows on one side only. An output without
    the right columns gives ``problem`` instead.
    """
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
    records = _read_input(session, spec, input_dir, offsets).cache()
    try:
        output, problem = _read_output(session, spec, output_dir, records.schema)
        if output is None:
            return {"problem": problem}
        output = output.cache()
        try:
            return _Comparison(spec, records, output).result()
        finally:
            output.unpersist()
    finally:
        records.unpersist()


class _Comparison:
    """The checks over one input and one output, both cached."""

    def __init__(self, spec: SequentialSpec, records: DataFrame, output: DataFrame) -> None:
        self._spec = spec
        self._records = records
        self._output = output
        self._keys = list(spec.key_columns)
        self._identity = [spec.id_column, *spec.key_columns]
        self._count = spec.aggregates[spec.count_index].name
        self._names = [aggregate.name for aggregate in spec.aggregates]

    def result(self) -> dict[str, Any]:
        """Run all checks."""
        totals = self._records.groupBy(*self._keys).agg(*[f.sum(name).alias(name) for name in self._names])
        totals = totals.cache()
        try:
            ids = _difference(self._records.select(*self._identity), self._output.select(*self._identity))
            numbers = _difference(
                totals.select(
                    *self._keys, f.explode(f.sequence(f.lit(1), f.col(self._count))).alias(self._count)
                ),
                self._output.select(*self._keys, self._count),
            )
            finals = self._final_totals(totals)
        finally:
            totals.unpersist()
        wrong_increments, increment_examples = self._wrong_increments()
        counts = self._classified(ids) | {
            "wrong_count": numbers.only_output,
            "wrong_sum": finals.only_output + wrong_increments,
        }
        compared = {"ids": ids, "counts": numbers, "final_totals": finals}
        return {
            "counts": counts,
            "checks": {
                name: {"only_expected": difference.only_expected, "only_output": difference.only_output}
                for name, difference in compared.items()
            }
            | {"increments": {"wrong": wrong_increments}},
            "examples": [
                f"{name}, {example}"
                for name, difference in compared.items()
                for example in difference.examples
            ]
            + [f"increments, {example}" for example in increment_examples],
        }

    def _final_totals(self, totals: DataFrame) -> Difference:
        """Compare each key's totals with its output row of the last count."""
        last = totals.select(*self._keys, f.col(self._count))
        final = self._output.join(f.broadcast(last), [*self._keys, self._count])
        columns = [*self._keys, *self._names]
        return _difference(totals.select(*columns), final.select(*columns))

    def _wrong_increments(self) -> tuple[int, list[str]]:
        """Count rows whose sums did not grow by their own record's values since the row before (same key)."""
        before = Window.partitionBy(*self._keys).orderBy(self._count)
        sums = [name for name in self._names if name != self._count]
        grown = self._output.select(
            *self._identity,
            self._count,
            *[
                (f.col(name) - f.coalesce(f.lag(name).over(before), f.lit(0))).alias(f"grown_{name}")
                for name in sums
            ],
            # Across a gap, or from a count that occurs twice, no increment can be told; other checks name
            # those.
            (f.col(self._count) - f.coalesce(f.lag(self._count).over(before), f.lit(0))).alias("step"),
        ).where("step = 1")
        added = self._records.select(*self._identity, *[f.col(name).alias(f"added_{name}") for name in sums])
        differs = _any([f.col(f"grown_{name}") != f.col(f"added_{name}") for name in sums])
        wrong = grown.join(added, self._identity).where(differs)
        return _counted(wrong)

    def _classified(self, ids: Difference) -> dict[str, int]:
        """Say what the differing ids are: lost, duplicated, unexpected, or under the wrong key."""
        identifier = self._spec.id_column
        counts = {"expected": self._records.count(), "committed": self._output.count()}
        counts |= {"lost": 0, "duplicated": 0, "unexpected": 0, "wrong_key": 0}
        if not ids.only_expected and not ids.only_output:
            return counts
        output_ids = self._output.select(identifier).distinct()
        input_ids = self._records.select(identifier)
        counts["lost"] = input_ids.join(output_ids, identifier, "left_anti").count()
        counts["unexpected"] = self._output.join(input_ids, identifier, "left_anti").count()
        matched = self._output.join(self._records.select(*self._identity), self._identity, "left_semi")
        counts["duplicated"] = matched.count() - matched.select(identifier).distinct().count()
        counts["wrong_key"] = counts["committed"] - matched.count() - counts["unexpected"]
        return counts


def _read_input(
    session: SparkSession, spec: SequentialSpec, directory: Path, offsets: Mapping[str, int] | int
) -> DataFrame:
    """Return id, key and, per aggregate, what each record adds; records before the start offsets left out."""
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
        # A sum over no value may be shown as null; beside the count, 0 says the same.
        (f.coalesce(f.col(field.name), f.lit(0)) if field.name in names else f.col(field.name))
        .cast(field.dataType)
        .alias(field.name)
        for field in schema.fields
    ]
    return rows.select(*columns), ""


def _difference(expected: DataFrame, output: DataFrame) -> Difference:
    """Compare as multisets: ``expected.exceptAll(output)`` and the reverse, in one pass over both."""
    columns = expected.columns
    balance = (
        expected.withColumn("_sign", f.lit(1))
        .unionByName(output.select(*columns).withColumn("_sign", f.lit(-1)))
        .groupBy(*columns)
        .agg(f.sum("_sign").alias("_balance"))
        .where("_balance != 0")
    )
    example = f.struct("_balance", *columns)
    found = balance.agg(
        f.sum(f.greatest(f.col("_balance"), f.lit(0))),
        f.sum(f.greatest(-f.col("_balance"), f.lit(0))),
        f.slice(f.sort_array(f.collect_list(example)), 1, EXAMPLES_PER_CHECK),
    ).first()
    if found is None or found[0] is None:
        return Difference(0, 0, ())
    return Difference(int(found[0]), int(found[1]), tuple(_sentence(row.asDict()) for row in found[2]))


def _sentence(row: dict[str, Any]) -> str:
    balance = row.pop("_balance")
    return f"{abs(balance)} times {'too rarely' if balance > 0 else 'too often'}: {row}"


def _counted(rows: DataFrame) -> tuple[int, list[str]]:
    """Return the number of rows and a few of them, in order."""
    number = rows.count()
    if not number:
        return 0, []
    return number, [
        str(row.asDict()) for row in rows.orderBy(*rows.columns).limit(EXAMPLES_PER_CHECK).collect()
    ]


def _any(conditions: list[Column]) -> Column:
    """Return the disjunction; false if there is nothing to join."""
    result = f.lit(False)
    for condition in conditions:
        result = result | condition
    return result
