"""Plans of the scenario ``no_restarts``: one failure, and the job must be given up with it (REC-3)."""

from __future__ import annotations

from pathlib import Path

from barrier_tck.harness.record.operations import JobFailed
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.trial.trial_run import execute
from tests.harness.draw.test_rare_moments import SYSTEM, drawn, shown_by


def test_a_restart_that_is_one_too_many_shows_in_these_plans(tmp_path: Path) -> None:
    assert shown_by("RK-07", drawn("no_restarts", "standard", 24), tmp_path)


def test_a_job_without_restarts_is_given_up_with_its_only_failure(tmp_path: Path) -> None:
    given_up = 0
    for number, plan in enumerate(drawn("no_restarts", "graphs", 60)):
        if plan.restart.strategy != "none":
            continue  # several faults, or one that kills nothing
        place = tmp_path / str(number)
        place.mkdir()
        trial = execute(plan, SYSTEM, place)
        assert trial.record.verdict is Verdict.VALID, (plan, trial.record.findings)
        assert trial.history is not None and len(trial.record.attempts) == 1
        given_up += any(trial.history.of(JobFailed))
    assert given_up >= 3
