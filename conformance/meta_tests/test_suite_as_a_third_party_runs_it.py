"""The suite as a command: what it says about a system that does nothing, and about one that does not exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from junitparser import Error, Failure, JUnitXml, TestCase

from barrier_tck.conformance.meta_tests.do_nothing import DoNothing
from barrier_tck.conformance.plans import SIX_AIMS
from barrier_tck.conformance.trials import Trials, assert_valid
from barrier_tck.examples.micro_batches.micro_batches import MicroBatches, TwoSteps
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import PROFILES, profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.plan_fields import unused_by, without
from barrier_tck.harness.trial.trial_run import run_trial

SUITE = Path(__file__).parents[1]
HANGS_S = 1_800
"""After so many seconds a run of the suite counts as hanging; on a busy machine it may take minutes."""
DO_NOTHING = f"{DoNothing.__module__}:{DoNothing.__name__}"


def _run(system: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", str(SUITE), "--system", system, "-q", "-p", "no:cacheprovider"]
    # Tests of a state backend say nothing about a system, so they are left out.
    command += [
        f"--ignore={SUITE / name}"
        for name in ("meta_tests", "test_state_backend.py", "test_checkpoint_storage.py")
    ]
    command += ["--seed", "20260101", *options]
    return subprocess.run(
        command, cwd=SUITE.parent, capture_output=True, text=True, timeout=HANGS_S, check=False
    )


def _cases(report: Path) -> list[TestCase]:
    return [case for suite in JUnitXml.fromfile(str(report)) for case in suite]


@pytest.mark.nightly
def test_no_test_passes_on_a_system_that_does_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    finished = _run(DO_NOTHING, f"--junitxml={report}", "--tb=no")
    assert finished.returncode == pytest.ExitCode.TESTS_FAILED, finished.stdout + finished.stderr
    cases = _cases(report)
    assert cases
    passed = [case.name for case in cases if not case.result]
    skipped = [case.name for case in cases if case.is_skipped]
    errors = [case.name for case in cases if any(isinstance(result, Error) for result in case.result)]
    assert (passed, skipped, errors) == ([], [], [])
    assert all(isinstance(result, Failure) for case in cases for result in case.result)


FOREIGN = f"{MicroBatches.__module__}:{MicroBatches.__name__}"
FOREIGN_BROKEN = f"{TwoSteps.__module__}:{TwoSteps.__name__}"

SHOWN_BY_MICRO_BATCHES = (
    "test_a_sink_that_dies_right_after_its_commit_does_not_commit_twice",
    "test_generated_jobs_and_faults",
    "test_a_coordinator_that_crashes_is_resumed_from_durable_storage[attempt_running]",
    "test_a_coordinator_that_crashes_is_resumed_from_durable_storage[checkpoint_triggered]",
    "test_a_coordinator_that_crashes_is_resumed_from_durable_storage[checkpoint_completed]",
    "test_generated_jobs_with_several_faults_each",
    "test_an_input_without_records_ends_with_a_checkpoint_and_no_output",
    "test_a_small_job_is_checkpointed_and_its_output_is_exact",
)
"""Tests that need neither barriers nor a look into checkpoints, nor points that a micro-batch has not."""

WHY = re.compile(
    r"does not declare: [A-Z_]+ \(|does not use: [a-z_.]+|exposes no target of the kind |cannot be stopped at "
    r"|is number \d of the subtasks with the role "
)
"""What a reason for skipping says."""


@pytest.mark.nightly
def test_a_system_that_is_not_ours_is_certified_as_far_as_it_can_show_anything(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    finished = _run(FOREIGN, f"--junitxml={report}")
    assert finished.returncode == pytest.ExitCode.OK, finished.stdout + finished.stderr
    cases = _cases(report)
    assert [case.name for case in cases if not case.result] == list(SHOWN_BY_MICRO_BATCHES)
    reasons = [result.message for case in cases for result in case.result]
    assert len(reasons) > 50
    assert [reason for reason in reasons if not WHY.search(reason)] == []


@pytest.mark.long
def test_a_system_that_is_not_ours_and_wrong_fails(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    finished = _run(FOREIGN_BROKEN, f"--junitxml={report}", "--tb=no")
    assert finished.returncode == pytest.ExitCode.TESTS_FAILED, finished.stdout + finished.stderr
    failed = [
        case.name for case in _cases(report) if any(isinstance(result, Failure) for result in case.result)
    ]
    assert failed == [SHOWN_BY_MICRO_BATCHES[0], SHOWN_BY_MICRO_BATCHES[1], SHOWN_BY_MICRO_BATCHES[5]]


@pytest.mark.long
def test_what_is_drawn_for_a_system_that_is_not_ours_strikes(tmp_path: Path) -> None:
    """Nothing is said of points that it does not pass, nor of what it has not.

    All that may stop a drawn fault is another one that killed its target at the same moment.
    """
    system = MicroBatches()
    constraints = Constraints(
        system.job, system.capabilities, fit=lambda plan: without(plan, unused_by(system))
    )
    too_late = 0
    for plan in draw_plans(3, 100, profile_named("heavy"), constraints):
        record = run_trial(plan, system, tmp_path)
        assert len(plan.faults) >= 2
        missed = [fault.reason for fault in record.faults if fault.outcome != "fired"]
        assert all("already dead" in reason for reason in missed)
        assert record.verdict is (Verdict.UNKNOWN if missed else Verdict.VALID)
        too_late += bool(missed)
    assert too_late <= 5


@pytest.mark.long
def test_a_system_that_does_nothing_is_never_valid(tmp_path: Path) -> None:
    trials = Trials(DoNothing(), tmp_path)
    for profile in PROFILES:
        for plan in draw_plans(seed=1, count=3, profile=profile):
            # It takes no settings, which profiles for Spark draw.
            bare = msgspec.structs.replace(plan, system={})
            assert trials.run(bare).record.verdict is not Verdict.VALID


@pytest.mark.long
@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        pytest.param(
            *("nonsense", "there is no system 'nonsense'; known: reference-simulated, reference-spark"),
            marks=pytest.mark.long,
        ),
        ("reference-sprak", "there is no system 'reference-sprak'; did you mean 'reference-spark'?"),
        pytest.param(
            "no.such.module:System",
            "the system 'no.such.module:System' cannot be imported: No module named 'no'",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_system_that_does_not_exist_is_answered_with_what_to_use(wrong: str, hint: str) -> None:
    finished = _run(wrong)
    assert finished.returncode == pytest.ExitCode.USAGE_ERROR, finished.stdout + finished.stderr
    assert hint in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_failed_test_shows_findings_plan_and_replay_line(tmp_path: Path) -> None:
    trial = Trials(DoNothing(), tmp_path).run(SIX_AIMS["during-alignment"])
    with pytest.raises(AssertionError) as caught:
        assert_valid(trial)
    text = str(caught.value)
    assert "exactly-once-output (SNK-1; also REC-1, SRC-1, ALN-1):" in text
    assert '"alignment_started"' in text
    assert (
        f"barrier-tck replay {trial.plan_file} --system barrier_tck.conformance.meta_tests.do_nothing:DoNothing"
        in text
    )
    assert trial.plan_file.exists()
