"""The pytest plugin as a third party uses it: marks add up, and tests that cannot run are skipped with a reason."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from junitparser import JUnitXml

ROOT = Path(__file__).resolve().parents[3]
SYSTEM = "barrier_tck.examples.micro_batches.micro_batches:MicroBatches"
SUITE = """
import pytest
from barrier_tck.harness import Capability, TrialPlan, WorkloadPlan

pytestmark = pytest.mark.needs(Capability.CHECKPOINTS)

@pytest.mark.needs(Capability.WORKER_KILL)
def test_all_is_there(system):
    assert system.name == "micro-batches"

@pytest.mark.needs(Capability.WORKER_KILL)
@pytest.mark.needs(Capability.PAUSE)
def test_the_outer_of_two_marks_is_there_and_the_inner_is_not():
    raise AssertionError

@pytest.mark.needs(Capability.PAUSE)
@pytest.mark.needs(Capability.WORKER_KILL)
def test_the_inner_of_two_marks_is_there_and_the_outer_is_not():
    raise AssertionError

@pytest.mark.needs(Capability.BARRIERS)
class TestOfAClass:
    @pytest.mark.needs(Capability.WORKER_KILL)
    def test_what_the_class_needs_is_not_there(self):
        raise AssertionError

@pytest.mark.uses("restart.delay_ms")
def test_a_field_is_used():
    pass

@pytest.mark.uses("restart.delay_ms", "network.latency_ms_max")
def test_a_field_is_not_used():
    raise AssertionError

def test_a_plan_of_ones_own_is_run(run_trial):
    record = run_trial(TrialPlan(workload=WorkloadPlan(batches=2)))
    assert record.verdict.value == "valid"
"""
MODULE = """
import pytest
from barrier_tck.harness import Capability

pytestmark = [pytest.mark.needs(Capability.BARRIERS)]

@pytest.mark.needs(Capability.WORKER_KILL)
def test_what_the_module_needs_is_not_there():
    raise AssertionError
"""


@pytest.fixture(scope="module")
def skipped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return test name -> why it was skipped (empty if it ran), for a small suite on a system that is not ours."""
    directory = tmp_path_factory.mktemp("suite")
    (directory / "test_suite.py").write_text(SUITE)
    (directory / "test_module.py").write_text(MODULE)
    command = [
        sys.executable,
        "-m",
        "pytest",
        str(directory),
        "--system",
        SYSTEM,
        "-q",
        "--junitxml=report.xml",
    ]
    finished = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    cases = [case for suite in JUnitXml.fromfile(str(directory / "report.xml")) for case in suite]
    return {case.name: " ".join(result.message for result in case.result) for case in cases}


@pytest.mark.long
def test_what_a_test_needs_is_what_all_its_marks_say(skipped: dict[str, str]) -> None:
    pause, barriers = "does not declare: PAUSE", "does not declare: BARRIERS"
    for name, why in (
        ("test_the_outer_of_two_marks_is_there_and_the_inner_is_not", pause),
        ("test_the_inner_of_two_marks_is_there_and_the_outer_is_not", pause),
        ("test_what_the_class_needs_is_not_there", barriers),
        ("test_what_the_module_needs_is_not_there", barriers),
    ):
        assert why in skipped[name], skipped
        assert "WORKER_KILL" not in skipped[name]


@pytest.mark.long
def test_a_field_that_the_system_leaves_unused_is_named(skipped: dict[str, str]) -> None:
    assert skipped["test_a_field_is_not_used"] == "micro-batches does not use: network.latency_ms_max"


@pytest.mark.long
def test_what_can_be_shown_runs(skipped: dict[str, str]) -> None:
    ran = [name for name, why in skipped.items() if not why]
    assert ran == ["test_all_is_there", "test_a_field_is_used", "test_a_plan_of_ones_own_is_run"]


QUERIES = """
import pytest
from barrier_tck.harness import StreamingJob
from examples.echo_system.echo import EchoSystem, LossyEchoSystem

class Echo(EchoSystem):
    def check_settings(self, settings):
        assert settings == {"retries": "none"}

class LossyEcho(LossyEchoSystem):
    def check_settings(self, settings):
        assert settings == {"retries": "stock"}

class EchoJob(StreamingJob):
    def __call__(self):
        return Echo() if self.conf else LossyEcho()

right = EchoJob(query=list, conf={"spark": "none is needed"})
wrong = EchoJob(query=list)

def test_all_trials_of_the_right_one_are_valid(judge_query):
    assert len(judge_query(right, trials=6, seed=3, retries="none")) == 6

def test_a_budget_takes_the_place_of_a_number_of_trials(judge_query):
    assert len(judge_query(right, trials=6, seed=3, retries="none", budget="1ms")) == 1

def test_one_of_the_wrong_ones_fails_the_test(judge_query):
    judge_query(wrong, trials=20, seed=0)
"""


@pytest.mark.long
def test_queries_are_judged_in_tests(tmp_path: Path) -> None:
    (tmp_path / "test_queries.py").write_text(QUERIES)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_queries.py"]
    result = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert "1 failed, 2 passed" in result.stdout, result.stdout + result.stderr
    assert "exactly-once-output: invalid" in result.stdout
    assert "kill worker of echo[0]" in result.stdout


ONE_TRIAL = """
from barrier_tck.harness import TrialPlan, Verdict

def test_one_trial(run_trial, pytestconfig):
    backend = pytestconfig.getoption("--state-backend") or "heap"
    assert run_trial(TrialPlan(state_backend=backend)).verdict is Verdict.VALID

def test_nothing():
    pass
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("option", "name", "code", "told"),
    [
        ("--system", "vanishes", 2, "pytest's process ended with exit code 0 before the tests were over"),
        pytest.param(
            *("--state-backend", "VanishingBackend", 2, "pytest's process ended with exit code 0"),
            marks=pytest.mark.nightly,
        ),
        pytest.param("--system", "Exiting", 1, "1 failed, 1 passed", marks=pytest.mark.long),
        pytest.param("--system", "Right", 0, "2 passed", marks=pytest.mark.long),
        pytest.param("--system", "nowhere", 4, "has no 'nowhere'", marks=pytest.mark.nightly),
    ],
)
def test_whatever_ends_the_process_pytest_exits_with_0_only_if_all_tests_passed(
    option: str, name: str, code: int, told: str, tmp_path: Path
) -> None:
    (tmp_path / "test_one.py").write_text(ONE_TRIAL)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    target = f"tests.harness.support.third_party_factories:{name}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_one.py", option, target]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, told in done.stdout + done.stderr) == (code, True), done.stdout + done.stderr
