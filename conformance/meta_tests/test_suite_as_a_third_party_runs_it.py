"""The suite as a command: what it says about a system that does nothing, and about one that does not exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml, TestCase

from barrier_tck.conformance.meta_tests.do_nothing import DoNothing
from barrier_tck.conformance.plans import SIX_AIMS
from barrier_tck.conformance.trials import Trials, assert_valid
from barrier_tck.harness.draw.profiles import PROFILES
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.record.verdict import Verdict

SUITE = Path(__file__).parents[1]
DO_NOTHING = f"{DoNothing.__module__}:{DoNothing.__name__}"


def _run(system: str, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", str(SUITE), "--system", system, "-q", "-p", "no:cacheprovider"]
    # Tests of a state backend say nothing about a system, so they are left out.
    command += [f"--ignore={SUITE / name}" for name in ("meta_tests", "test_state_backend.py")]
    command += options
    return subprocess.run(command, cwd=SUITE.parent, capture_output=True, text=True, timeout=120, check=False)


def _cases(report: Path) -> list[TestCase]:
    return [case for suite in JUnitXml.fromfile(str(report)) for case in suite]


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


def test_a_system_that_does_nothing_is_never_valid(tmp_path: Path) -> None:
    trials = Trials(DoNothing(), tmp_path)
    for profile in PROFILES:
        for plan in draw_plans(seed=1, count=20, profile=profile):
            assert trials.one(plan).record.verdict is not Verdict.VALID


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("nonsense", "there is no system 'nonsense'; known: reference-simulated, reference-spark"),
        ("reference-sprak", "there is no system 'reference-sprak'; did you mean 'reference-spark'?"),
        (
            "no.such.module:System",
            "the system 'no.such.module:System' cannot be imported: No module named 'no'",
        ),
    ],
)
def test_a_system_that_does_not_exist_is_answered_with_what_to_use(wrong: str, hint: str) -> None:
    finished = _run(wrong)
    assert finished.returncode == pytest.ExitCode.USAGE_ERROR, finished.stdout + finished.stderr
    assert hint in finished.stderr
    assert "Traceback" not in finished.stderr


def test_a_failed_test_shows_findings_plan_and_replay_line(tmp_path: Path) -> None:
    trial = Trials(DoNothing(), tmp_path).one(SIX_AIMS["during-alignment"])
    with pytest.raises(AssertionError) as caught:
        assert_valid(trial)
    text = str(caught.value)
    assert "exactly-once-output (SNK-1, REC-1, SRC-1, ALN-1):" in text
    assert '"alignment_started"' in text
    assert (
        f"barrier-tck replay {trial.plan_file} --system barrier_tck.conformance.meta_tests.do_nothing:DoNothing"
        in text
    )
    assert trial.plan_file.exists()
