"""An exception of the harness in a trial says nothing of the system, wherever it is raised. Grain: whole trials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import LimitsPlan, RestartPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference import observed_inputs, snapshot_views
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.reference_impl.operators import sources

PLAN = TrialPlan(
    seed=3,
    workload=WorkloadPlan(batches=10, keys=5),
    restart=RestartPlan(attempts_max=6),
    faults=(ScheduledFault(KillWorker("sink[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED)),),
    limits=LimitsPlan(virtual_ms=20_000),
)


def as_code_of(module: ModuleType, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as if it were written in a module, which is what an exception's place is known by."""
    code = function.__code__
    return FunctionType(code, vars(module), closure=function.__closure__)


def zips_unequal_lists(_: object, __: object) -> None:
    list(zip((), (1,), strict=True))


def run(tmp_path: Path) -> TrialRecord:
    return run_trial(PLAN, ReferenceSimulated(), tmp_path)


def findings(record: TrialRecord, verdict: Verdict) -> dict[str, str]:
    return {found.checker: found.summary for found in record.findings if found.verdict is verdict}


def test_restores_that_the_harness_makes_fail_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = as_code_of(observed_inputs, zips_unequal_lists)
    monkeypatch.setattr(observed_inputs.ObservedReader, "restore", restore)
    record = run(tmp_path)
    assert record.verdict is Verdict.UNKNOWN
    unknown = findings(record, Verdict.UNKNOWN)
    assert {"restorability", "progress"} <= set(unknown)
    assert "died of an exception of the harness: ValueError: zip()" in unknown["restorability"]


def test_restores_that_the_system_makes_fail_are_violations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = as_code_of(sources, zips_unequal_lists)
    monkeypatch.setattr(observed_inputs.ObservedReader, "restore", restore)
    record = run(tmp_path)
    assert {"restorability", "progress"} <= set(findings(record, Verdict.INVALID))


def test_a_checkpoint_that_the_harness_fails_to_open_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_views, "_key_text", None)
    record = run(tmp_path)
    assert record.verdict is Verdict.UNKNOWN
    (unknown,) = findings(record, Verdict.UNKNOWN).values()
    assert "TypeError: 'NoneType' object is not callable (snapshot_views.py, line" in unknown
