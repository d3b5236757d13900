"""A driver in a process of its own: calls both ways, a stop at a point, a kill there, and nothing left behind.

Grain: real processes and sockets, without Spark.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from barrier_tck.harness.cluster.driver.driver_process import DriverProcess
from barrier_tck.harness.cluster.driver.peer import FRAME_BYTES_MAX, Peer, PeerGone, RemoteError
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.reference_impl.ids import SubtaskId
from tests.harness.cluster import echoing_driver
from tests.harness.cluster.echoing_driver import EchoDriver, Reports
from tests.waiting import PATIENCE_S

WAIT_S = PATIENCE_S


class Told:
    """Takes what a driver tells."""

    def __init__(self) -> None:
        self.points: list[int] = []
        self.at: Callable[[int], None] = lambda number: None

    def at_point(self, number: int) -> None:
        self.points.append(number)
        self.at(number)


@pytest.fixture(name="told")
def _told() -> Told:
    return Told()


@pytest.fixture(name="driver")
def _driver(told: Told, tmp_path: Path) -> Iterator[DriverProcess]:
    process = DriverProcess(echoing_driver.__name__, tmp_path / "log", {}, {"reports": (Reports, told)})
    yield process
    process.close()


def remote_driver(process: DriverProcess) -> EchoDriver:
    return process.peer.remote("driver", EchoDriver)  # type: ignore[type-abstract]


def test_values_come_back_with_their_types(driver: DriverProcess) -> None:
    assert remote_driver(driver).echo(SubtaskId("totals", 1), 2) == (SubtaskId("totals", 1),) * 2


def test_what_the_driver_raises_is_raised_here(driver: DriverProcess) -> None:
    with pytest.raises(RemoteError, match="LookupError: no such thing") as raised:
        remote_driver(driver).fail("no such thing")
    assert raised.value.kind == "LookupError"


@pytest.mark.long
def test_the_driver_stands_at_a_point_until_it_was_taken_and_may_be_asked_meanwhile(
    driver: DriverProcess, told: Told
) -> None:
    answered: list[int] = []
    free = threading.Event()
    told.at = lambda number: (free.wait(WAIT_S), None)[1]
    caller = threading.Thread(target=lambda: answered.append(remote_driver(driver).pass_points(2)))
    caller.start()
    while told.points != [1]:
        assert caller.is_alive()
    assert answered == []
    free.set()
    caller.join(WAIT_S)
    assert (told.points, answered) == ([1, 2], [2])


def test_a_driver_that_is_killed_at_a_point_is_over_once_all_that_it_said_was_taken(
    driver: DriverProcess, told: Told
) -> None:
    over = threading.Event()
    taken_when_over: list[int] = []

    def note() -> None:
        taken_when_over.extend(told.points)
        over.set()

    driver.when_over(note)

    def kill(number: int) -> None:
        if number == 2:
            os.kill(driver.pid, signal.SIGKILL)
            while not driver.peer.gone:
                pass
            assert not over.is_set(), "this point is still being taken"

    told.at = kill
    with pytest.raises(PeerGone, match=f"the driver process {driver.pid} is gone"):
        remote_driver(driver).pass_points(3)
    assert over.wait(WAIT_S) and driver.over
    assert taken_when_over == [1, 2]
    with pytest.raises(PeerGone):
        remote_driver(driver).echo(SubtaskId("totals", 1), 1)
    late = threading.Event()
    driver.when_over(late.set)
    assert late.is_set()


def test_closing_ends_the_process(driver: DriverProcess) -> None:
    assert psutil.pid_exists(driver.pid)
    driver.close()
    assert not psutil.pid_exists(driver.pid)
    driver.close()


@pytest.mark.long
def test_a_driver_does_not_outlive_a_harness_that_was_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from barrier_tck.harness.cluster.driver.driver_process import DriverProcess\n"
        f"process = DriverProcess({echoing_driver.__name__!r}, Path({str(tmp_path / 'log')!r}), {{}}, {{}})\n"
        "print(process.pid, flush=True); time.sleep(600)\n"
    )
    harness = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": import_path()},
    )
    assert harness.stdout is not None
    driver = psutil.Process(int(harness.stdout.readline()))
    harness.kill()
    harness.wait()
    psutil.wait_procs([driver], timeout=WAIT_S)
    assert not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", FRAME_BYTES_MAX + 1),
        struct.pack(">I", 5) + b"\xff" * 5,
        struct.pack(">I", 100) + b"cut off",
    ],
    ids=["too-long", "no-frame", "cut-off"],
)
def test_what_is_no_frame_ends_the_connection_and_nothing_is_carried_out(sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    told = Told()
    peer = Peer(ours, "a stranger")
    peer.offer("reports", Reports, told)
    peer.start()
    theirs.sendall(sent)
    theirs.shutdown(socket.SHUT_WR)
    peer.work()
    assert peer.gone and told.points == []
    peer.close()
    theirs.close()


def test_a_call_of_what_is_not_offered_or_does_not_fit_is_an_answer_and_no_crash(
    driver: DriverProcess,
) -> None:
    wrong = remote_driver(driver)
    with pytest.raises(RemoteError):
        wrong.echo("no subtask", 1)  # type: ignore[arg-type]
    with pytest.raises(RemoteError, match="KeyError"):
        driver.peer.remote("nobody", EchoDriver).pass_points(1)  # type: ignore[type-abstract]
    with pytest.raises(AttributeError, match="has no method 'shutdown'"):
        wrong.shutdown  # type: ignore[attr-defined]  # noqa: B018
    assert wrong.echo(SubtaskId("sink", 0), 1) == (SubtaskId("sink", 0),)
