"""The rendezvous of processes that Spark starts; grain: real processes and sockets."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Protocol

import pytest

from barrier_tck.harness.cluster.driver.peer import PeerGone
from barrier_tck.harness.cluster.rendezvous import Rendezvous, met
from tests.waiting import PATIENCE_S

COMES = """
import os, sys
from tests.harness.cluster.test_rendezvous import Reports
from barrier_tck.harness.cluster.rendezvous import met
with met(sys.argv[1], Reports) as harness:
    print(harness.stand(os.getpid()), flush=True)
"""


class Reports(Protocol):
    def stand(self, pid: int) -> str:
        """Stand still."""


class Gate:
    """Lets who stands there go when it is opened."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.opened = threading.Event()
        self.pid = 0

    def stand(self, pid: int) -> str:
        self.pid = pid
        self.came.set()
        assert self.opened.wait(PATIENCE_S)
        return "go"


def comes_to(place: Path) -> subprocess.Popen[str]:
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    command = [sys.executable, "-c", COMES, str(place)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_a_process_stands_still_until_it_may_go(tmp_path: Path) -> None:
    # Longer than the address of a socket may be.
    place, gate = tmp_path / ("long" * 40), Gate()
    with Rendezvous(place, Reports, gate):
        process = comes_to(place)
        assert gate.came.wait(PATIENCE_S)
        assert gate.pid == process.pid
        assert process.poll() is None
        gate.opened.set()
        assert process.communicate(timeout=PATIENCE_S)[0] == "go\n"


def test_only_the_user_may_enter_the_place(tmp_path: Path) -> None:
    with Rendezvous(tmp_path / "place", Reports, Gate()):
        assert stat.S_IMODE((tmp_path / "place").stat().st_mode) == 0o700


def test_who_is_killed_there_does_not_disturb_the_next_one(tmp_path: Path) -> None:
    place, gate = tmp_path / "place", Gate()
    with Rendezvous(place, Reports, gate):
        first = comes_to(place)
        assert gate.came.wait(PATIENCE_S)
        first.kill()
        first.wait(PATIENCE_S)
        gate.opened.set()
        with met(str(place), Reports) as harness:  # type: ignore[type-abstract]
            assert harness.stand(7) == "go"


def test_closing_it_lets_everybody_go_and_nobody_in(tmp_path: Path) -> None:
    place, gate = tmp_path / "place", Gate()
    rendezvous = Rendezvous(place, Reports, gate)
    with met(str(place), Reports) as harness:  # type: ignore[type-abstract]
        said: list[object] = []

        def stand() -> None:
            try:
                said.append(harness.stand(1))
            except PeerGone as gone:
                said.append(gone)

        standing = threading.Thread(target=stand)
        standing.start()
        assert gate.came.wait(PATIENCE_S)
        rendezvous.close()
        standing.join(PATIENCE_S)
        assert isinstance(said[0], PeerGone)
    gate.opened.set()
    with pytest.raises(OSError, match=r"refused|No such file"), met(str(place), Reports):  # type: ignore[type-abstract]
        pass
