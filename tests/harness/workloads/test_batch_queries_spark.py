"""Batch queries on Spark SQL: that of each workload over the real data, and what generated jobs commit.

What a workload's query gives in the harness's own process is what it gives in Spark SQL, and what Spark's own windows
and sessions give.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.oracle.evidence.batch_result import query_in_process, result_of
from barrier_tck.harness.oracle.evidence.spark_query import query_on_spark
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, FilledPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import Row
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.batch_query import RESULT
from barrier_tck.harness.workloads.flight_tables import departures
from barrier_tck.harness.workloads.workload import SplitData, read_splits, write_splits
from barrier_tck.harness.workloads.workload_names import filled, workload_named
from tests.harness.kills import kill

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

REAL = [
    ("hourly-flights", "hourly"),
    ("hourly-flights", "daily"),
    ("aircraft-sessions", "sessions"),
    ("flights-in-weather", "last-hour"),
    ("flights-in-weather", "around"),
]
RECORDS = {"hourly-flights": 330_000, "aircraft-sessions": 330_000, "flights-in-weather": 20_000}
"""About how many records are compared: all flights of the year, or weeks of them, since a range join with three keys
compares most of them with each other."""


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session(None, "batch-queries", quick_start=True) as session:
        yield session


def plan_of(name: str, shape: str, batches: int, **workload: int) -> FilledPlan:
    load = WorkloadPlan(name, batches=batches, batch_records=10, **workload)
    return filled(TrialPlan(seed=5, workload=load, job=JobPlan(shape)))


def both_results(
    spark: SparkSession, plan: FilledPlan, late: tuple[int, ...], directory: Path
) -> tuple[Counter[Any], Counter[Any]]:
    """Return what the plan's query gives in this process, and in Spark SQL over files."""
    workload: Any = workload_named(plan.workload.name)
    query, schemas = workload.batch_query(plan.job), workload.schemas(plan.job)
    splits = read_splits(workload, plan)
    write_splits(splits, directory, schemas)
    rows = query_on_spark(spark, query, schemas, directory, plan.workload.start_offset, late)
    return query_in_process(query, schemas, splits, late), Counter(result_of(row) for row in rows)


@pytest.mark.parametrize(("name", "shape"), REAL)
def test_the_query_gives_the_same_in_this_process_and_in_spark_sql_over_the_real_data(
    spark: SparkSession, tmp_path: Path, name: str, shape: str
) -> None:
    plan = plan_of(name, shape, RECORDS[name] // 20, keys=4_000)
    in_process, on_spark = both_results(spark, plan, (), tmp_path)
    assert in_process == on_spark
    # Aircraft that fly seldom are left out, and a pair stands for two records.
    least = 0.9 * min(RECORDS[name], len(departures()))
    assert sum(row[RESULT.index("n")] for row in in_process) > least


@pytest.mark.parametrize(("name", "shape"), REAL)
def test_late_records_and_those_before_the_start_are_left_out_by_both(
    spark: SparkSession, tmp_path: Path, name: str, shape: str
) -> None:
    plan = plan_of(name, shape, 6, keys=8, start_offset=3)
    inputs = [row["id"] for split in workload_named(name).splits(plan) for row in split.input]
    late = tuple(inputs[::7])
    in_process, on_spark = both_results(spark, plan, late, tmp_path)
    assert in_process == on_spark
    assert in_process != both_results(spark, plan, (), tmp_path / "all")[0]


# --- Spark's own windows and sessions -------------------------------------------------------------------------


def _summed(grouped: Any, end: str, before_ms: int = 1) -> DataFrame:
    sums = [f.sum(name).alias(name) for name in ("id", "mark", "n")]
    ended = (f.unix_millis(f.col(end)) - before_ms).alias("ts")
    found: DataFrame = grouped.agg(*sums).select("key", ended, "id", "mark", "n")
    return found


def _only(tables: Mapping[str, DataFrame]) -> DataFrame:
    [table] = tables.values()
    return table


def _time() -> Any:
    return f.timestamp_millis(f.col("ts"))


def _windows(size_ms: int, slide_ms: int | None = None) -> Callable[[Mapping[str, DataFrame]], DataFrame]:
    def run(tables: Mapping[str, DataFrame]) -> DataFrame:
        slide = f"{slide_ms or size_ms} milliseconds"
        window = f.window(_time(), f"{size_ms} milliseconds", slide)
        return _summed(_only(tables).groupBy("key", window.alias("window")), "window.end")

    return run


def _sessions(gap_ms: int) -> Callable[[Mapping[str, DataFrame]], DataFrame]:
    """Sessions of records less than a gap apart. Those of Spark are of records at most a gap apart."""

    def run(tables: Mapping[str, DataFrame]) -> DataFrame:
        session = f.session_window(_time(), f"{gap_ms - 1} milliseconds")
        return _summed(_only(tables).groupBy("key", session.alias("session")), "session.end", 0)

    return run


def _interval(lower_ms: int, upper_ms: int, form: str) -> Callable[[Mapping[str, DataFrame]], DataFrame]:
    def run(tables: Mapping[str, DataFrame]) -> DataFrame:
        left, right = tables["lefts"].alias("l"), tables["rights"].alias("r")
        near = f.col("r.ts").between(f.col("l.ts") + lower_ms, f.col("l.ts") + upper_ms)
        joined = left.join(right, (f.col("l.key") == f.col("r.key")) & near, form)
        alone_l = f.col("l.ts") + max(0, upper_ms)
        alone_r = f.col("r.ts") + max(0, -lower_ms)
        at = (
            f.when(f.col("r.ts").isNull(), alone_l)
            .when(f.col("l.ts").isNull(), alone_r)
            .otherwise(f.greatest("l.ts", "r.ts"))
        )
        sums = [
            (f.coalesce(f.col(f"l.{name}"), f.lit(0)) + f.coalesce(f.col(f"r.{name}"), f.lit(0))).alias(name)
            for name in ("id", "mark", "n")
        ]
        return joined.select(f.coalesce("l.key", "r.key").alias("key"), at.alias("ts"), *sums)

    return run


def _tables(spark: SparkSession, splits: tuple[SplitData, ...]) -> dict[str, DataFrame]:
    names = dict.fromkeys(split.vertex for split in splits)
    rows = {name: [row for one in splits if one.vertex == name for row in one.input] for name in names}
    schema = "key string, ts long, id long, mark long, n long, how string"
    return {name: spark.createDataFrame(held, schema) for name, held in rows.items()}


@pytest.mark.parametrize(("name", "shape"), REAL[:3])
def test_the_statement_gives_what_window_and_session_window_of_spark_give(
    spark: SparkSession, name: str, shape: str
) -> None:
    plan = plan_of(name, shape, 400, keys=50)
    workload: Any = workload_named(name)
    splits = workload.splits(plan)
    operators = plan.job.vertices[1].operators
    own = (
        _sessions(operators[0].parameters["gap_ms"])
        if shape == "sessions"
        else _windows(operators[-1].parameters["size_ms"])
    )
    expected = Counter(result_of(row.asDict()) for row in own(_tables(spark, splits)).collect())
    query = workload.batch_query(plan.job)
    assert query_in_process(query, workload.schemas(plan.job), splits, ()) == expected
    assert expected.total() > 100


# --- generated jobs -----------------------------------------------------------------------------------------

BOUND_MS = 2_000
"""More than any record of ``event-time`` is behind another of its split, or than its source has gone on meanwhile."""
JOIN = {"lower_ms": -20, "upper_ms": 50}
GENERATED: list[tuple[str, dict[str, Any], Callable[[Mapping[str, DataFrame]], DataFrame]]] = [
    ("event_window", {"size_ms": 100}, _windows(100)),
    ("event_window", {"size_ms": 120, "slide_ms": 50}, _windows(120, 50)),
    ("event_window", {"gap_ms": 40}, _sessions(40)),
    ("event_interval_join", {**JOIN, "form": "inner"}, _interval(-20, 50, "inner")),
    ("event_interval_join", {**JOIN, "form": "left"}, _interval(-20, 50, "left")),
    ("event_interval_join", {**JOIN, "form": "right"}, _interval(-20, 50, "right")),
    ("event_interval_join", {**JOIN, "form": "full"}, _interval(-20, 50, "full")),
]


def generated_job(kind: str, parameters: dict[str, Any]) -> JobPlan:
    sources = ("read",) if kind == "event_window" else ("lefts", "rights")
    vertices = (
        *(VertexPlan(name, SOURCE, 2, {"bound_ms": BOUND_MS}) for name in sources),
        VertexPlan("op", kind, 2, parameters),
        VertexPlan("out", SINK, 1),
        VertexPlan("late", SINK, 1),
    )
    edges = (
        *(EdgePlan(name, "op", Spread.HASH, ("key",), number) for number, name in enumerate(sources)),
        EdgePlan("op", "out", Spread.REBALANCE),
        EdgePlan("op", "late", Spread.REBALANCE, output="late"),
    )
    return JobPlan(vertices=vertices, edges=edges)


def committed(plan: FilledPlan) -> list[Row]:
    with tempfile.TemporaryDirectory() as directory:
        result = execute(plan, ReferenceSimulated(), Path(directory))
    assert result.record.verdict is Verdict.VALID and result.history is not None
    return list(result.history.output or ())


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("kind", "parameters", "batch"), GENERATED)
def test_what_a_generated_job_commits_without_late_records_is_sparks_batch(
    spark: SparkSession,
    kind: str,
    parameters: dict[str, Any],
    batch: Callable[[Mapping[str, DataFrame]], DataFrame],
    seed: int,
) -> None:
    plan = filled(
        TrialPlan(
            seed=seed,
            workload=WorkloadPlan("event-time", batches=20, batch_records=4, keys=5, records_per_second=600),
            job=generated_job(kind, parameters),
            checkpoints=CheckpointPlan(mode="unaligned", interval_ms=12),
            faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "op[0]", worker=True),
        )
    )
    output = committed(plan)
    assert not [row for row in output if not row["how"]], "no record is late"
    rows = batch(_tables(spark, workload_named("event-time").splits(plan))).collect()
    expected = Counter(result_of(row.asDict()) for row in rows)
    assert Counter(result_of(row) for row in output) == expected
    assert expected.total() > 20
