"""Programs that are run to their end, and what is left of one if the wait for it ends early; grain: processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
import pytest

from barrier_tck.harness.support import child_program
from barrier_tck.harness.support.child_program import run_program
from tests.waiting import eventually

FAMILY = """
import os, signal, subprocess, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}")
os.kill(os.getppid(), signal.SIGUSR1)
time.sleep(600)
"""

TIDY = """
import os, signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    os.kill(os.getppid(), signal.SIGUSR1)
    time.sleep(600)
except KeyboardInterrupt:
    Path(sys.argv[1]).write_text("tidy")
"""


@pytest.fixture(name="interrupted_by_sigusr1")
def _interrupted_by_sigusr1() -> Iterator[None]:
    """Let a program that this process runs interrupt it."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


def test_what_a_program_writes_and_its_exit_code_are_returned() -> None:
    program = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(sys.stdin.read() or 7)"
    done = run_program([sys.executable, "-c", program], os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_a_program_is_ended_when_it_is_time_and_what_it_wrote_is_returned(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(child_program, "_ASKED_EVERY_S", 0.05)
    began = tmp_path / "began"
    program = (
        "import signal, sys, time\n"
        "from pathlib import Path\n"
        "def tidy(*_):\n    print('tidy'); sys.exit(5)\n"
        "signal.signal(signal.SIGINT, tidy); Path(sys.argv[1]).touch(); time.sleep(600)"
    )
    done = run_program([sys.executable, "-c", program, str(began)], os.environ, began.exists)
    assert (done.returncode, done.stdout) == (5, "tidy\n")
    quick = run_program([sys.executable, "-c", "print('out')"], os.environ, lambda: False)
    assert (quick.returncode, quick.stdout) == (0, "out\n")


def test_a_program_can_be_interrupted_though_this_process_ignores_interrupts() -> None:
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = run_program([sys.executable, "-c", program], os.environ)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.stdout == "True\n"


@pytest.mark.usefixtures("interrupted_by_sigusr1")
def test_a_program_is_interrupted_and_may_tidy_up(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_program([sys.executable, "-c", TIDY, str(tmp_path / "said")], os.environ)
    assert (tmp_path / "said").read_text() == "tidy"


@pytest.mark.usefixtures("interrupted_by_sigusr1")
def test_a_program_that_ignores_an_interrupt_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_program, "_PATIENCE_S", 0.1)
    with pytest.raises(KeyboardInterrupt):
        run_program([sys.executable, "-c", FAMILY, str(tmp_path / "pids")], os.environ)
    program, child = map(int, (tmp_path / "pids").read_text().split())
    assert not psutil.pid_exists(program)
    eventually("the child is gone, or only not collected by whoever adopted it", lambda: gone(child))


@pytest.mark.usefixtures("interrupted_by_sigusr1")
def test_a_program_is_ended_if_the_interrupt_comes_while_it_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = []

    class Interrupted(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)
            signal.raise_signal(signal.SIGUSR1)

    handlers = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGINT)]
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_program([sys.executable, "-c", "import time; time.sleep(600)"], os.environ)
    assert len(started) == 1
    assert not psutil.pid_exists(started[0])
    assert [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGINT)] == handlers


def gone(pid: int) -> bool:
    """Return whether a process has ended."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
