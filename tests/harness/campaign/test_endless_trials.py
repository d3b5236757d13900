"""A trial that never ends is UNKNOWN with the reason, and the campaign goes on with the next one.

Grain: campaigns in one and in several processes on state backends that never return.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Never

import pytest

from barrier_tck.harness.campaign import process_of_trials, trial_pool
from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.process_of_trials import TrialProcess
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.plan.trial_plan import LimitsPlan, TrialPlan
from barrier_tck.harness.record.run_reader import open_run, read_record
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support import wall_clock
from barrier_tck.harness.support.wall_clock import TooLate, limited
from barrier_tck.harness.trial.trial_run import execute
from tests.harness.cli.forked_command import forked
from tests.harness.support.third_party_factories import hangs

FACTORIES = "tests.harness.support.third_party_factories"
CAMPAIGN = """
name = "endless"
controls = 0

[[trial]]
checkpoints = { enabled = false }

[[trial]]
limits = { wall_s = 1 }

[[trial]]
checkpoints = { enabled = false }
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("drawn", "jobs"),
    [
        pytest.param(False, "1", id="listed-1"),
        pytest.param(True, "2", id="drawn-2"),
        pytest.param(False, "2", id="listed-2", marks=pytest.mark.long),
        pytest.param(True, "1", id="drawn-1", marks=pytest.mark.long),
    ],
)
def test_a_backend_that_never_returns_makes_its_trial_unknown_and_the_next_one_runs(
    jobs: str, drawn: bool, tmp_path: Path
) -> None:
    file = tmp_path / "endless.toml"
    file.write_text('name = "endless"\ncontrols = 0\ntrials = 3\ntimeout = "1s"\n' if drawn else CAMPAIGN)
    backend = ["--state-backend", f"{FACTORIES}:SleepingBackend", "--jobs", jobs]
    done = forked(["campaign", str(file), *backend, "--out", str(tmp_path / "runs")])
    assert done.code == 2, done.out + done.err
    (path,) = (tmp_path / "runs").iterdir()
    run = open_run(path)
    assert len(tuple(run.rows())) == 3 and not run.campaign.interrupted
    endless = [trial.trial for trial in tuple(run.rows()) if trial.verdict is Verdict.UNKNOWN]
    assert endless == [1] if not drawn else endless
    record = read_record(path / "trials" / f"{endless[0]:05d}")
    (finding,) = record.findings
    assert "did not end within 1 s of wall time; it was at line" in finding.summary
    assert "of third_party_factories.py (hangs)" in finding.summary


@pytest.mark.nightly
def test_a_process_that_no_signal_reaches_is_ended_and_the_next_trial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_pool, "GRACE_S", 1.0)
    file = tmp_path / "endless.toml"
    file.write_text(CAMPAIGN)
    backend = ["--state-backend", f"{FACTORIES}:DeadlockedBackend", "--jobs", "2"]
    done = forked(["campaign", str(file), *backend, "--out", str(tmp_path / "runs")])
    assert done.code == 2, done.out + done.err
    (path,) = (tmp_path / "runs").iterdir()
    assert [trial.verdict for trial in tuple(open_run(path).rows())] == [
        Verdict.VALID,
        Verdict.UNKNOWN,
        Verdict.VALID,
    ]
    (finding,) = read_record(path / "trials" / "00001").findings
    assert "gave no answer within 3 s and was ended" in finding.summary


class _Endless:
    """A checker that never decides."""

    name = "endless"
    clauses = ("REC-6",)

    def check(self, context: TrialContext) -> Finding:
        hangs()
        raise AssertionError("it never returns")


@pytest.mark.long
def test_a_checker_that_never_returns_makes_the_trial_unknown(tmp_path: Path) -> None:
    record = execute(
        TrialPlan(limits=LimitsPlan(wall_s=1)), ReferenceSimulated(), tmp_path, [_Endless()]
    ).record
    assert record.verdict is Verdict.UNKNOWN and "did not end within 1 s" in record.findings[0].summary


@pytest.mark.long
def test_a_trial_that_ends_in_time_leaves_no_timer(tmp_path: Path) -> None:
    configuration = configuration_from({"trials": 2, "controls": 0, "timeout": "1s"}, "test")
    run_campaign(configuration, ReferenceSimulated(), tmp_path / "run")
    time.sleep(1.2)  # the limit of the last trial would strike here


class _Late(TooLate):
    """Raised by the tests below."""


@pytest.mark.long
def test_code_that_catches_the_interruption_is_interrupted_again() -> None:
    caught = 0

    def stubborn() -> None:
        nonlocal caught
        while caught < 2:
            try:
                time.sleep(60)
            except _Late:
                caught += 1
        time.sleep(60)

    with pytest.raises(_Late), limited(0.1, _Late):
        stubborn()
    assert caught == 2


def test_code_that_a_busy_machine_keeps_waiting_is_given_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each look it has used some milliseconds more of a processor, until it has used half of its time."""
    looks: list[float] = []

    def used() -> float:
        looks.append(len(looks) * 0.002)
        return looks[-1]

    monkeypatch.setattr(wall_clock, "process_time", used)
    with pytest.raises(_Late), limited(0.02, _Late):
        time.sleep(60)
    assert looks == [0.0, 0.002, 0.004, 0.006, 0.008, 0.01]


def test_code_whose_threads_wait_for_a_processor_is_given_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that hardly ever runs uses next to nothing of a processor, like one that stands still."""
    waits = iter([0.0, 0.02, 0.04, 0.06, 0.061])
    monkeypatch.setattr(wall_clock, "waited_for_a_processor_s", lambda: next(waits))
    monkeypatch.setattr(wall_clock, "process_time", lambda: 0.0)
    with pytest.raises(_Late), limited(0.02, _Late):
        time.sleep(60)
    assert next(waits, None) is None, "it was ended when its threads waited no longer"


def test_a_process_that_waited_for_a_processor_has_longer_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([0.0, 0.02, 0.02, 0.04, 0.04, 0.041])
    monkeypatch.setattr(process_of_trials, "waited_for_a_processor_s", lambda pid: next(waits))
    process = TrialProcess()
    try:
        assert not process._answers_within(0.02), "nothing was asked"
        assert next(waits, None) is None, "it was given up when it waited no longer"
    finally:
        process.close(at_once=True)


def test_a_process_that_has_ended_waits_for_no_processor() -> None:
    assert wall_clock.waited_for_a_processor_s() >= 0
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    assert wall_clock.waited_for_a_processor_s(ended.pid) == 0


class _NeverLate(TooLate):
    """Belongs to a limit inside another one."""


@pytest.mark.parametrize("call", ["scandir", "listdir"])
def test_a_process_that_ends_while_it_is_looked_at_waits_for_no_processor(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> Never:
        raise FileNotFoundError(2, "No such file or directory", "/proc/1/task")

    monkeypatch.setattr(os, call, ended)
    assert wall_clock.waited_for_a_processor_s(1) >= 0.0


def test_the_inner_one_of_two_limits_does_not_disturb_the_outer_one() -> None:
    def nested() -> None:
        with limited(0.01, _NeverLate):
            time.sleep(0.1)
        time.sleep(60)

    with pytest.raises(_Late), limited(0.3, _Late):
        nested()
