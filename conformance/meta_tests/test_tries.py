"""Where trials differ from run to run, a test is run again if nothing was shown, and never if something was wrong."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SESSION = """
import pytest
from barrier_tck.conformance.conftest import pytest_pyfunc_call
from barrier_tck.conformance.meta_tests.do_nothing import DoNothing
from barrier_tck.conformance.trials import Trials
from barrier_tck.harness.system.scale import Scale

class Differs(DoNothing):
    scale = Scale(tries_max={tries})

@pytest.fixture(scope="session")
def trials(tmp_path_factory):
    return Trials(Differs(), tmp_path_factory.mktemp("trials"))
"""

TESTS = """
from dataclasses import replace

import msgspec
import pytest
from barrier_tck.conformance.plans import CALM
from barrier_tck.conformance.trials import assert_valid, happened, require
from barrier_tck.harness.record.unknown_trials import CRASHED
from barrier_tck.harness.record.verdict import Finding, Verdict

seen = []

@pytest.mark.parametrize("needed", [1, 2, 3, 4])
def test_what_happens_late(trials, needed):
    print("\\nrun: late", needed)
    seen.append(trials.run(CALM))
    before = [one for one in seen[:-1] if one is seen[-1]]
    happened(len(seen) >= needed, f"something, at try {needed}", seen[-1])
    assert needed == 1 or not before, "a trial of another try was taken for a new one"

@pytest.fixture(autouse=True)
def anew():
    seen.clear()

def test_wrong(trials):
    print("\\nrun: wrong")
    require(False, "nothing is wrong", trials.run(CALM))

@pytest.mark.parametrize("verdict", Verdict)
def test_a(trials, verdict):
    print("\\nrun:", verdict)
    trial = trials.run(CALM)
    assert_valid(replace(trial, record=msgspec.structs.replace(trial.record, verdict=verdict)))

def test_not_judged(trials):
    print("\\nrun: not judged")
    trial = trials.run(CALM)
    crashed = Finding("a-checker", (), Verdict.UNKNOWN, f"{CRASHED}: IndexError")
    record = msgspec.structs.replace(trial.record, verdict=Verdict.UNKNOWN, findings=(crashed,))
    assert_valid(replace(trial, record=record))
"""


def _outcomes(directory: Path, tries: int) -> tuple[Counter[str], set[str], str]:
    """Return how often each test was run, which failed, and all that pytest printed."""
    (directory / "conftest.py").write_text(SESSION.format(tries=tries))
    (directory / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-s", "-v", "-p", "no:cacheprovider", "--tb=line", "."]
    printed = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False).stdout
    failed = set(re.findall(r"^FAILED \S+::test_(\S+)", printed, re.MULTILINE))
    return Counter(re.findall(r"^run: (.*)$", printed, re.MULTILINE)), failed, printed


@pytest.mark.long
@pytest.mark.parametrize(
    ("tries", "runs", "failed"),
    [
        (3, {"late 1": 1, "late 2": 2, "late 3": 3, "late 4": 3}, {"what_happens_late[4]"}),
        (
            1,
            {"late 1": 1, "late 2": 1, "late 3": 1, "late 4": 1},
            {"what_happens_late[2]", "what_happens_late[3]", "what_happens_late[4]"},
        ),
    ],
)
def test_a_test_is_run_again_only_if_nothing_was_shown(
    tmp_path: Path, tries: int, runs: dict[str, int], failed: set[str]
) -> None:
    ran, outcomes, printed = _outcomes(tmp_path, tries)
    assert ran == {**runs, "wrong": 1, "not judged": 1, "valid": 1, "invalid": 1, "unknown": tries}, printed
    assert outcomes == {*failed, "wrong", "not_judged", "a[invalid]", "a[unknown]"}, printed
    retries = re.findall(r"UserWarning: (try .*)$", printed, re.MULTILINE)
    assert len(retries) == sum(ran.values()) - len(ran), "each run after the first is announced"
    if tries > 1:
        assert "try 2 of 3, because in the last this did not happen: something, at try 4" in retries
