"""The judge with its own Spark: what it finds; it does not outlive the harness, and its death is reported."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barrier_tck.harness.oracle.evidence.batch_result import query_in_process, result_of
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.reference.spark import judge as spark_judge
from barrier_tck.harness.reference.spark.judge import SparkJudge
from barrier_tck.harness.support.errors import OperatingError
from barrier_tck.harness.workloads.hourly_flights import HourlyFlights
from barrier_tck.harness.workloads.keyed_totals import SCHEMA, KeyedTotals
from barrier_tck.harness.workloads.workload import write_splits
from barrier_tck.harness.workloads.workload_names import filled
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
PLAN = TrialPlan(seed=3, workload=WorkloadPlan(name="keyed-totals", batches=4, batch_records=3, keys=2))
LEAVES_WITHIN_S = PATIENCE_S


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkJudge]:
    with closing(SparkJudge(tmp_path_factory.mktemp("judge"))) as started:
        yield started


def input_and_output(directory: Path, left_out: int) -> tuple[Path, Path]:
    """Write the plan's input and its right output without the first ``left_out`` rows."""
    inputs, outputs = directory / "input", directory / "output"
    directory.mkdir(exist_ok=True)
    splits = KeyedTotals().splits(PLAN)
    write_splits(splits, inputs, {"source": SCHEMA})
    outputs.mkdir()
    rows = KeyedTotals.spec.running([row for split in splits for row in split.input])[left_out:]
    pq.write_table(pa.Table.from_pylist(rows), outputs / "part-0.parquet")
    return inputs / "source", outputs


@pytest.mark.parametrize("left_out", [0, 2])
def test_it_finds_what_is_lost_and_nothing_else(judge: SparkJudge, tmp_path: Path, left_out: int) -> None:
    inputs, outputs = input_and_output(tmp_path, left_out)
    counts = judge.judge("keyed-totals", inputs, outputs, 0).counts
    assert counts is not None
    assert (counts.expected, counts.committed, counts.lost) == (24, 24 - left_out, left_out)
    assert counts.unexpected == counts.duplicated == 0


def test_it_gives_the_result_of_a_batch_query_without_late_records(judge: SparkJudge, tmp_path: Path) -> None:
    plan = filled(TrialPlan(seed=3, workload=WorkloadPlan("hourly-flights", batches=9, start_offset=2)))
    workload = HourlyFlights()
    splits, schemas = workload.splits(plan), workload.schemas(plan.job)
    write_splits(splits, tmp_path, schemas)
    late = (splits[0].input[1]["id"],)
    expected = query_in_process(workload.batch_query(plan.job), schemas, splits, late)
    assert Counter(map(result_of, judge.query(plan, tmp_path, late))) == expected
    assert expected and expected != query_in_process(workload.batch_query(plan.job), schemas, splits, ())


def test_what_it_cannot_read_is_no_verdict_and_it_goes_on(judge: SparkJudge, tmp_path: Path) -> None:
    inputs, outputs = input_and_output(tmp_path, 0)
    with pytest.raises(OperatingError, match=r"judge of the output could not judge: .*nowhere"):
        judge.judge("keyed-totals", tmp_path / "nowhere", outputs, 0)
    counts = judge.judge("keyed-totals", inputs, outputs, 0).counts
    assert counts is not None and counts.lost == 0


def test_a_killed_judge_is_named(tmp_path: Path) -> None:
    with closing(SparkJudge(tmp_path)) as judge:
        psutil.Process(judge.pid).kill()
        assert judge.usable
        with pytest.raises(OperatingError, match="judge of the output process is gone"):
            judge.judge("keyed-totals", tmp_path, tmp_path, 0)
        assert not judge.usable


def test_an_answer_that_came_too_late_is_not_taken_for_that_of_the_next_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, damaged = (input_and_output(tmp_path / str(left_out), left_out) for left_out in (0, 2))
    with closing(SparkJudge(tmp_path)) as judge:
        with monkeypatch.context() as patch:
            patch.setattr(spark_judge, "TIMEOUT_S", 0.01)
            with pytest.raises(OperatingError, match=r"did not judge within 0\.01 s"):
                judge.judge("keyed-totals", *whole, 0)
        with pytest.raises(OperatingError, match="still owes the answer to an earlier call"):
            judge.judge("keyed-totals", *damaged, 0)
        psutil.Process(judge.pid).kill()  # otherwise it would first finish its answer


def test_it_ends_with_a_killed_harness(tmp_path: Path) -> None:
    script = f"""
import pathlib
from barrier_tck.harness.reference.spark.judge import SparkJudge
judge = SparkJudge(pathlib.Path({str(tmp_path)!r}))
try:
    judge.judge("keyed-totals", pathlib.Path("/nowhere"), pathlib.Path("/nowhere"), 0)
except Exception:
    print("started", flush=True)
input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == "started\n"
        below = psutil.Process(harness.pid).children(recursive=True)
        assert any("java" in process.name() for process in below)
        harness.kill()
    _, alive = psutil.wait_procs(below, LEAVES_WITHIN_S)
    assert not alive
    assert [path.name for path in tmp_path.iterdir()] == ["judge.log"]
