"""Judges committed output in a process with its own Spark, which no fault touches (SNK-1, EVT-2, EVT-4).

The judge must not be part of what it judges, so the query does not run on the cluster under test. It would also cost
more there: an executor that has just replaced a killed one compiles everything anew, which takes several times as
long as the query. Run as a module (`python -m barrier_tck.harness.reference.spark.judge`), this is the judge's
process: it reads and writes one JSON object per line.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.cluster.json_lines import JsonLines
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.oracle.evidence.spark_batch import judge_output
from barrier_tck.harness.oracle.evidence.spark_query import query_on_spark
from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.plan.trial_plan import FilledPlan, to_builtins
from barrier_tck.harness.record.history import OutputComparison, Row
from barrier_tck.harness.workloads.batch_query import HasBatchQuery
from barrier_tck.harness.workloads.workload_names import workload_named

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TIMEOUT_S = 180.0
"""Limit for one judgement, including the start of the judge's Spark; it usually takes a few seconds."""
_END_TIMEOUT_S = 20.0


class SparkJudge:
    """Starts the judge's process at once; its Spark starts while the caller does something else."""

    def __init__(self, directory: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": import_path(), "TMPDIR": str(directory)}
        with open(directory / "judge.log", "ab") as log:
            popen = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # Ctrl-C is for the campaign, which then closes this end of the pipe.
                start_new_session=True,
                env=environment,
            )
        self.pid = popen.pid
        self._lines = JsonLines(popen, "the judge of the output")

    def judge(
        self, workload: str, input_dir: Path, output_dir: Path, offsets: Mapping[str, int] | int
    ) -> OutputComparison:
        """Return what ``judge_output`` says about the workload's committed output.

        Raises RuntimeFailure if the judge is gone, takes longer than ``TIMEOUT_S``, or failed: then there is no
        verdict.
        """
        command = {
            "do": "judge",
            "workload": workload,
            "input": str(input_dir.absolute()),
            "output": str(output_dir.absolute()),
            "offsets": offsets if isinstance(offsets, int) else dict(offsets),
        }
        return msgspec.convert(self._lines.call(command, TIMEOUT_S)["found"], OutputComparison)

    def query(self, plan: FilledPlan, input_dir: Path, late: Collection[int]) -> list[Row]:
        """Return what the batch query of the plan's workload gives in Spark SQL without the records with some ids.

        Raises RuntimeFailure as ``judge`` does.
        """
        command = {
            "do": "query",
            "plan": to_builtins(plan),
            "input": str(input_dir.absolute()),
            "late": list(late),
        }
        rows: list[Row] = self._lines.call(command, TIMEOUT_S)["rows"]
        return rows

    @property
    def usable(self) -> bool:
        """Whether it can be asked again: not if it was killed or did not answer in time."""
        return self._lines.usable

    def close(self) -> None:
        """End the judge's process and its Spark; closing twice is harmless."""
        self._lines.close(_END_TIMEOUT_S)


def _answer(spark: SparkSession, command: Mapping[str, Any]) -> dict[str, Any]:
    try:
        if command["do"] == "query":
            return {"rows": _queried(spark, command)}
        spec = workload_named(command["workload"]).spec
        assert spec is not None, "without a sequential model the harness judges the output"
        directories = Path(command["input"]), Path(command["output"])
        found = judge_output(spark, spec, *directories, command["offsets"])
        return {"found": msgspec.to_builtins(found)}
    except Exception as error:  # noqa: BLE001 - whatever it is, the process that asked reports it
        return {"error": f"{type(error).__name__}: {error}"}


def _queried(spark: SparkSession, command: Mapping[str, Any]) -> list[Row]:
    plan = plan_from(command["plan"], "the question for a batch")
    workload = workload_named(plan.workload.name)
    assert isinstance(workload, HasBatchQuery), "only workloads with a batch query are asked for its result"
    query, schemas = workload.batch_query(plan.job), workload.schemas(plan.job)
    start = plan.workload.start_offset
    return query_on_spark(spark, query, schemas, Path(command["input"]), start, command["late"])


def _serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer until the input ends, because the harness closed it or was killed."""
    with spark_session(None, "barrier-tck-judge", quick_start=True) as spark:
        for line in requests:
            print(json.dumps(_answer(spark, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    # Nothing that a library prints may get between the answers.
    _answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(BrokenPipeError):
        _serve(sys.stdin, _answers)
