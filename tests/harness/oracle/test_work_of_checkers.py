"""What a checker does grows with what it judges: four times as many checkpoints are about four times as much work.

A judge whose work grows with the square takes minutes for the longest of drawn trials, and runs into their limit. Left
out is `dataflow` in at-least-once mode, which must read each checkpoint whole (decision 0075). Grain: simulation; lines
of Python are counted, not seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.oracle.checker import Checker, TrialContext
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    FilledPlan,
    LimitsPlan,
    NetworkPlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import checkers_of, execute
from barrier_tck.harness.workloads.workload_names import filled

pytestmark = pytest.mark.long

FEW, MANY = 25, 100
"""Batches of the input; the number of checkpoints grows with them."""
SMALL = 3_000
"""A checker that runs no more lines than these is not looked at: it may be that they are all of its beginning."""

JOBS: dict[str, tuple[WorkloadPlan, JobPlan, CheckpointPlan, dict[str, Any]]] = {
    "totals": (WorkloadPlan("keyed-totals"), JobPlan(), CheckpointPlan(), {"local_recovery": True}),
    "at-least-once totals": (
        *(WorkloadPlan("keyed-totals"), JobPlan(), CheckpointPlan(mode="at_least_once"), {}),
    ),
    "increments": (WorkloadPlan("keyed-totals"), JobPlan(), CheckpointPlan(incremental=True), {}),
    "lists": (WorkloadPlan("lineage"), JobPlan("lists"), CheckpointPlan(), {}),
    "unaligned lists": (WorkloadPlan("lineage"), JobPlan("lists"), CheckpointPlan(mode="unaligned"), {}),
    "recorded channels": (
        *(WorkloadPlan("lineage"), JobPlan("lists"), CheckpointPlan(protocol="chandy_lamport"), {}),
    ),
    "changed totals": (WorkloadPlan("changed-totals"), JobPlan("line"), CheckpointPlan(), {}),
    "a loop": (WorkloadPlan("rounds"), JobPlan("loop"), CheckpointPlan(), {}),
    "savepoints": (
        WorkloadPlan("keyed-totals"),
        JobPlan(),
        CheckpointPlan(),
        {"savepoints": (SavepointPlan(after_checkpoints=3, stop=True),)},
    ),
}


class _Measured:
    """A checker of which the lines are counted that it runs."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.lines = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._checker, name)

    def check(self, context: TrialContext) -> Finding:
        before = sys.gettrace()
        sys.settrace(self._count)
        try:
            return self._checker.check(context)
        finally:
            sys.settrace(before)

    def _count(self, _frame: FrameType, _event: str, _argument: object) -> Callable[..., Any]:
        self.lines += 1
        return self._count


def _plan(job: str, batches: int) -> FilledPlan:
    workload, graph, checkpoints, more = JOBS[job]
    replace = msgspec.structs.replace
    return filled(
        TrialPlan(
            seed=1,
            workload=replace(workload, batches=batches, batch_records=2, keys=5, records_per_second=300),
            job=graph,
            checkpoints=replace(checkpoints, interval_ms=10),
            network=NetworkPlan(latency_ms_max=4),
            limits=LimitsPlan(wall_s=600),
            **more,
        )
    )


def _lines_of(job: str, batches: int, directory: Path) -> tuple[int, dict[str, int]]:
    """Return how many lines a valid trial's history has, and how many lines each checker ran for it."""
    plan, system = _plan(job, batches), ReferenceSimulated()
    measured = [_Measured(checker) for checker in checkers_of(plan, system)]
    directory.mkdir()
    result = execute(plan, system, directory, measured)
    assert result.record.verdict is Verdict.VALID, result.record.findings
    assert result.history is not None
    return len(result.history.operations), {checker.name: checker.lines for checker in measured}


@pytest.mark.parametrize("job", JOBS)
def test_the_work_of_each_checker_grows_with_the_history_and_not_with_its_square(
    job: str, tmp_path: Path
) -> None:
    short, few = _lines_of(job, FEW, tmp_path / "few")
    long, many = _lines_of(job, MANY, tmp_path / "many")
    growth = long / short
    assert growth > 2.5
    too_much = {
        name: round(many[name] / few[name], 1)
        for name in many
        if many[name] > max(SMALL, 1.5 * growth * few[name])
    }
    assert not too_much, (
        f"the history has {growth:.1f} times as many lines, the work is so many times as much"
    )
