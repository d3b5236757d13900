"""A system that breaks a rule of its own is judged by that; one that merely cannot be run is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import OperatingError, SystemBroke
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.trial_run import run_trial
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
        (OperatingError("no room"), Verdict.UNKNOWN, (), "could not be run"),
        (RuntimeError("no idea"), Verdict.UNKNOWN, (), "could not be run"),
    ],
)
def test_only_a_system_that_says_so_broke(
    error: Exception, verdict: Verdict, clauses: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    record = run_trial(TrialPlan(), _Raises(error), tmp_path)
    (finding,) = record.findings
    assert (record.verdict, finding.checker, finding.clauses) == (verdict, "trial-ran", clauses)
    assert told in finding.summary
