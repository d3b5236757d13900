"""No exit code without a verdict: whatever the code under test does to its process, the command's parent reports it.

Grain: commands in forked and in real processes, and the supervisor around functions that end in every possible way.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barrier_tck.harness.cli.main import run
from barrier_tck.harness.cli.supervision import cause_of, supervised
from barrier_tck.harness.record.run_reader import open_run
from tests.harness.cli.forked_command import forked
from tests.test_tidy import ROOT
from tests.waiting import eventually

FACTORIES = "tests.harness.support.third_party_factories"


@pytest.mark.parametrize(
    ("options", "how"),
    [
        (["--system", f"{FACTORIES}:Vanishing"], "with exit code 0"),
        (["--system", f"{FACTORIES}:vanishes"], "with exit code 0"),
        (["--system", f"{FACTORIES}:Aborting"], "by the signal SIGABRT"),
        (["--state-backend", f"{FACTORIES}:VanishingBackend"], "with exit code 0"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_code_that_ends_the_process_is_told_and_never_read_as_a_verdict(
    options: list[str], how: str, tmp_path: Path
) -> None:
    done = forked(["campaign", *options, "--trials", "3", "--out", str(tmp_path), "--json"])
    assert done.code == 2, done.err
    assert f"the command's process ended {how}, without a verdict" in done.err
    assert json.loads(done.out.splitlines()[-1])["exit_code"] == 2


def test_trials_before_the_process_ended_are_kept_and_reported_as_interrupted(tmp_path: Path) -> None:
    arguments = ["--system", f"{FACTORIES}:Vanishing", "--trials", "3", "--out", str(tmp_path)]
    assert forked(["campaign", *arguments]).code == 2
    (path,) = tmp_path.iterdir()
    assert [trial.trial for trial in tuple(open_run(path).rows())] == [0]
    assert run(["report", str(path)]) != 0


def leave_a_child_behind() -> None:
    """Fork a process that holds every descriptor open for a while, including the pipe to the parent."""
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)


def return_and_vanish() -> int:
    """End the process in another way after the code was reported."""
    atexit.register(os._exit, 0)
    return 1


@pytest.mark.parametrize(
    ("work", "code", "words"),
    [
        (lambda: 0, 0, ""),
        (lambda: 1, 1, ""),
        (lambda: os._exit(0), 2, "with exit code 0"),
        (lambda: os._exit(1), 2, "with exit code 1"),
        (lambda: sys.exit(0), 2, "with exit code 0"),
        (os.abort, 2, "by the signal SIGABRT"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), 2, "by the signal SIGKILL"),
        (return_and_vanish, 1, ""),
        (leave_a_child_behind, 2, "with exit code 0"),
    ],
    ids=[
        "0",
        "1",
        "_exit 0",
        "_exit 1",
        "exit 0",
        "abort",
        "killed",
        "vanishes after it",
        "a child holds the pipe",
    ],
)
def test_only_a_code_that_was_said_is_believed(work: Callable[[], int], code: int, words: str) -> None:
    def without_a_code(how: str) -> int:
        print("without a code:", how, file=sys.stderr)
        return 2

    done = forked([], call=lambda _: sys.exit(supervised(work, without_a_code)))
    assert (done.code, words in done.err) == (code, True), done.err


@pytest.mark.long
@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)],
    ids=["SIGTERM", "SIGINT"],
)
def test_a_signal_to_the_command_interrupts_the_campaign_in_its_child(number: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "barrier_tck.harness.cli.main", "campaign", "--trials", "100000"]
    process = subprocess.Popen([*command, "--out", tmp_path], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    deadline = time.monotonic() + 60
    while (
        not list(tmp_path.glob("*/trials.jsonl")) or not next(tmp_path.glob("*/trials.jsonl")).stat().st_size
    ):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "interrupted after" in out


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGTERM, "another program ended it"), (signal.SIGABRT, "ended or crashed it")],
    ids=["SIGTERM", "SIGABRT"],
)
def test_a_program_outside_that_ends_a_command_is_not_taken_for_what_it_ran(number: int, words: str) -> None:
    def without_a_code(how: str) -> int:
        print(cause_of(how), file=sys.stderr)
        return 2

    def work() -> int:
        os.kill(os.getpid(), number)
        return 0

    done = forked([], call=lambda _: sys.exit(supervised(work, without_a_code)))
    assert done.code == 2 and words in done.err, done.err


SLEEPING = """
import os, sys, time
from barrier_tck.harness.cli.supervision import supervised

def work():
    print(os.getpid(), flush=True)
    time.sleep(600)

supervised(work, len)
"""


def test_a_command_whose_parent_is_killed_ends_too() -> None:
    process = subprocess.Popen([sys.executable, "-c", SLEEPING], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    child = Path("/proc", process.stdout.readline().strip())
    assert child.exists()
    process.kill()
    process.wait()
    eventually(
        "it ends with its parent",
        lambda: not child.exists() or "(zombie)" in (child / "status").read_text(),
    )
