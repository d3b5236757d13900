"""The workload without a shuffle: its output is exact in both modes, whatever is killed (ALO-3)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.oracle.checkers.exactly_once_output import ExactlyOnceOutput
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.jobs import build_graph, collection_sources
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.passthrough import Passthrough
from barrier_tck.harness.workloads.workload_names import filled, workload_named
from barrier_tck.reference_impl.operators.graph import Partitioning
from tests.harness.oracle.oracle_histories import a_context

PLAN = filled(
    TrialPlan(
        workload=WorkloadPlan("passthrough", batches=6),
        job=JobPlan(widths={"source": 3}),
        checkpoints=CheckpointPlan(mode="at_least_once", max_concurrent=3),
    )
)


def test_every_subtask_has_one_sender_at_most() -> None:
    graph = build_graph(PLAN, Passthrough(), collection_sources(PLAN, Passthrough().splits(PLAN)))
    assert all(edge.partitioning is Partitioning.FORWARD for edge in graph.edges)
    assert max(len(graph.inputs_of(subtask)) for subtask in graph.subtasks) == 1
    assert tuple(str(subtask) for subtask in graph.subtasks) == ReferenceSimulated().job(PLAN).names


def test_it_is_found_by_name_and_keeps_no_state() -> None:
    spec = workload_named("passthrough").spec
    assert spec is not None and spec.stateful is False


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once"])
def test_output_is_exact_in_both_modes_whatever_fails(mode: str, tmp_path: Path) -> None:
    def passthrough(plan: TrialPlan) -> TrialPlan:
        checkpoints = msgspec.structs.replace(plan.checkpoints, mode=mode)
        workload = msgspec.structs.replace(plan.workload, name="passthrough")
        return msgspec.structs.replace(plan, workload=workload, checkpoints=checkpoints)

    system = ReferenceSimulated()
    plans = draw_plans(11, 60, profile_named("heavy"), Constraints(system.job, adjust=passthrough))
    recoveries = 0
    for plan in plans:
        record = run_trial(plan, system, tmp_path)
        assert record.verdict is Verdict.VALID, (plan, record.findings)
        [exact] = [finding for finding in record.findings if finding.checker == "exactly-once-output"]
        assert ("ALO-3" in exact.clauses) == (mode == "at_least_once" and len(record.attempts) > 1)
        recoveries += record.recoveries
    assert recoveries >= 60


def test_a_row_that_comes_twice_or_not_at_all_is_invalid() -> None:
    checker = ExactlyOnceOutput(TrialInput(Passthrough(), PLAN))
    output = [
        {"id": row["id"], "count": 1, "sum": row["value"]}
        for split in Passthrough().splits(PLAN)
        for row in split.input
    ]
    assert checker.check(a_context(PLAN, output=output)).verdict is Verdict.VALID
    assert checker.check(a_context(PLAN, output=[*output, output[0]])).verdict is Verdict.INVALID
    assert checker.check(a_context(PLAN, output=output[1:])).verdict is Verdict.INVALID
