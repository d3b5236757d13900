"""Operators that keep records in maps and sums: they survive a kill, and states that do not agree end the job."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import LimitsPlan, RestartPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.workload_names import filled
from barrier_tck.reference_impl.state.keyed import ReducingCell

KILL = ScheduledFault(KillWorker("keep[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2))


def a_plan() -> TrialPlan:
    plan = filled(
        TrialPlan(
            workload=WorkloadPlan("lineage", batches=16, records_per_second=300),
            job=JobPlan("line"),
            limits=LimitsPlan(virtual_ms=5_000),
            restart=RestartPlan(attempts_max=3),
            faults=(KILL,),
        )
    )
    vertices = tuple(
        msgspec.structs.replace(vertex, kind="forms") if vertex.kind == "keep" else vertex
        for vertex in plan.job.vertices
    )
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, vertices=vertices))


def test_maps_and_sums_survive_a_kill(tmp_path: Path) -> None:
    record = run_trial(a_plan(), ReferenceSimulated(), tmp_path)
    assert (record.verdict, len(record.attempts)) == (Verdict.VALID, 2), record.findings


def test_a_sum_that_forgets_ends_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReducingCell, "add", lambda self, value: None)
    record = run_trial(a_plan(), ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.INVALID
    assert "records are kept" in str(record.findings)
