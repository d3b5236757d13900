"""A system that breaks a rule of its own is judged by that; one that merely cannot be run is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference import observed_inputs, recorder
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import OperatingError, SystemBroke
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.reference_impl.state.heap import HeapStateBackend
from tests.harness.fake_system import FakeSystem


class _Raises(FakeSystem):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        raise self._error


@pytest.mark.parametrize(
    ("error", "verdict", "clauses", "told"),
    [
        (
            SystemBroke("a commit came first"),
            Verdict.INVALID,
            ("REC-6",),
            "broke a rule of its own: a commit came first",
        ),
        (
            RuntimeError("no idea"),
            Verdict.INVALID,
            ("REC-6",),
            "died of an exception of its own: RuntimeError: no idea (test_broken_systems.py, line ",
        ),
        (OperatingError("no room"), Verdict.UNKNOWN, (), "could not be run"),
        (OSError("no disk"), Verdict.UNKNOWN, (), "could not be run"),
        (MemoryError(), Verdict.UNKNOWN, (), "could not be run"),
    ],
)
def test_a_system_that_raises_broke_unless_the_machine_or_the_harness_did(
    error: Exception, verdict: Verdict, clauses: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    record = run_trial(TrialPlan(), _Raises(error), tmp_path)
    (finding,) = record.findings
    assert (record.verdict, finding.checker, finding.clauses) == (verdict, "trial-ran", clauses)
    assert told in finding.summary


class _Calls(FakeSystem):
    """A system with a runtime of its own, which calls ``action``."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self._action = action

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        self._action()
        raise AssertionError("not reached")


@pytest.mark.parametrize(
    ("action", "verdict"),
    [
        (lambda: json.loads("{"), Verdict.INVALID),  # a library raises on behalf of its caller
        (lambda: read_plan(None), Verdict.UNKNOWN),  # type: ignore[arg-type]
    ],
)
def test_it_counts_whose_code_raised(action: Callable[[], object], verdict: Verdict, tmp_path: Path) -> None:
    assert run_trial(TrialPlan(), _Calls(action), tmp_path).verdict is verdict


class _FailingStore(HeapStateBackend):
    """A backend whose stores cannot be opened."""

    def open(self, *arguments: Any, **named: Any) -> Any:
        raise ValueError("a bug of the backend")


def test_a_backend_that_raises_is_a_violation_and_says_where(tmp_path: Path) -> None:
    record = run_trial(TrialPlan(), ReferenceSimulated(_FailingStore), tmp_path)
    (finding,) = [one for one in record.findings if one.checker == "progress"]
    assert (finding.verdict, finding.clauses) == (Verdict.INVALID, ("REC-6",))
    assert "died of an exception of its own: ValueError: a bug of the backend (test_broken" in finding.summary


def test_a_coordinator_that_dies_of_its_own_exception_is_a_violation(tmp_path: Path) -> None:
    (plan,) = islice(planted_bugs()["DY-01"].plans("simulated"), 1)
    record = run_trial(plan, ReferenceSimulated(), tmp_path)
    (finding,) = record.findings
    assert (record.verdict, finding.clauses) == (Verdict.INVALID, ("REC-6",))
    assert "the coordinator died of an exception of its own: ValueError: cannot rescale" in finding.summary
    assert "(rescale.py with a patch, line " in finding.summary


def test_an_exception_of_the_harness_in_the_coordinator_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(recorder, "reason_of", None)
    record = run_trial(TrialPlan(), ReferenceSimulated(), tmp_path)
    assert record.verdict is Verdict.UNKNOWN
    assert "could not be run: TypeError" in record.findings[0].summary


def test_an_exception_of_the_harness_in_a_subtask_says_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(observed_inputs, "InputRead", None)
    record = run_trial(TrialPlan(), ReferenceSimulated(), tmp_path)
    (finding,) = [one for one in record.findings if one.checker == "progress"]
    assert finding.verdict is Verdict.UNKNOWN
    assert "died of an exception of the harness" in finding.summary
