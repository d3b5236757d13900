"""What follows when the driver's process of a job is gone, by whom it was ended, and what the next one is told.

Grain: the harness's side alone; drivers are played.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barrier_tck.faults.targets import Direction
from barrier_tck.harness.cluster.driver.peer import PeerGone
from barrier_tck.harness.reference.spark import remote_job
from barrier_tck.harness.reference.spark.job_rpc import JobOrder, JobOver, Repeat
from barrier_tck.harness.reference.spark.remote_job import JobDrivers, RemoteJob
from barrier_tck.harness.support.errors import OperatingError, SystemBroke, SystemCrashed
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.runtime_errors import StorageError
from tests.waiting import PATIENCE_S

WAIT_S = PATIENCE_S
ORDER = JobOrder(
    plan={},
    source="in",
    root="files",
    reads="r",
    of_subtasks="a",
    inputs="i",
    elements="",
    trace_events="p",
    messages=None,
    watched=(),
    proxied=False,
    backend=None,
)
FINISHED = JobOver(JobState.FINISHED, "")


class PlayedDriver:
    """A driver's process and its interface."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peer = SimpleNamespace(gone=False)
        self.orders: list[JobOrder] = []
        self.repeats: list[tuple[Repeat, ...]] = []
        self.ended = 0
        self.started = threading.Event()
        self._on_over: list[Callable[[], None]] = []

    def when_over(self, call: Callable[[], None]) -> None:
        self._on_over.append(call)

    def start_job(self, order: JobOrder) -> None:
        self.orders.append(order)
        self.started.set()

    def repeat(self, repeats: tuple[Repeat, ...]) -> None:
        self._require_alive()
        self.repeats.append(repeats)

    def end_job(self) -> dict[str, int]:
        self._require_alive()
        self.ended += 1
        return {"old_attempt": 2}

    def waiting_for(self) -> tuple[str, ...]:
        return ("the end of the input",)

    def die(self) -> None:
        self.peer.gone = True
        for call in self._on_over:
            call()

    def _require_alive(self) -> None:
        if self.peer.gone:
            raise PeerGone("it is gone")


class PlayedDrivers:
    """Makes one driver after the other."""

    def __init__(self) -> None:
        self.made = [PlayedDriver(pid) for pid in (101, 102, 103)]

    def present(self) -> PlayedDriver:
        return next(driver for driver in self.made if not driver.peer.gone)


@pytest.fixture(name="drivers")
def _drivers(monkeypatch: pytest.MonkeyPatch) -> PlayedDrivers:
    monkeypatch.setattr(remote_job, "rpc_stub_of", lambda process: process)
    return PlayedDrivers()


def a_job(drivers: PlayedDrivers, finished: bool = False) -> RemoteJob:
    played: Any = drivers
    made: JobDrivers = played
    job = RemoteJob(made, ORDER, lambda: finished)
    job.start()
    return job


def kill(job: RemoteJob, driver: PlayedDriver) -> None:
    with job.killing(driver.pid):
        driver.die()


def test_after_a_kill_the_next_driver_runs_the_same_job_and_repeats_the_same_messages(
    drivers: PlayedDrivers,
) -> None:
    job = a_job(drivers)
    first, second, third = drivers.made
    assert job.pid == first.pid
    late = Repeat("totals[0]", Direction.BOTH, 3.0)
    job.repeat([late])
    assert first.repeats == [(late,)] and first.orders == [ORDER]
    kill(job, first)
    assert second.started.wait(WAIT_S)
    assert second.orders[0].repeats == (late,) and second.orders[0].root == ORDER.root
    assert job.pid == second.pid
    kill(job, second)
    assert third.started.wait(WAIT_S)
    assert job.wait(0.0) is None
    job.job_over(FINISHED)
    assert job.wait(WAIT_S) == FINISHED
    job.close()
    job.close()
    assert (third.ended, job.refused) == (1, {"old_attempt": 2})


def test_a_driver_that_is_gone_without_a_fault_is_no_fault_of_the_trial(drivers: PlayedDrivers) -> None:
    job = a_job(drivers)
    drivers.made[0].die()
    with pytest.raises(OperatingError, match="process 101 is gone, and no fault killed it"):
        job.wait(WAIT_S)
    assert not drivers.made[1].started.is_set()
    assert job.waiting_for() == ("the driver's process",)
    job.close()


def test_a_driver_that_is_killed_after_the_job_finished_is_not_replaced(drivers: PlayedDrivers) -> None:
    job = a_job(drivers, finished=True)
    kill(job, drivers.made[0])
    assert job.wait(WAIT_S) == FINISHED
    assert not drivers.made[1].started.is_set()


def test_a_driver_that_is_gone_after_the_end_is_nobodys_business(drivers: PlayedDrivers) -> None:
    job = a_job(drivers)
    job.job_over(FINISHED)
    job.close()
    drivers.made[0].die()
    assert job.wait(WAIT_S) == FINISHED


def test_no_other_driver_starts_before_the_kill_is_done(drivers: PlayedDrivers) -> None:
    job = a_job(drivers)
    first, second, _ = drivers.made
    with job.killing(first.pid):
        first.die()
        assert not second.started.wait(0.05), "unsynced writes may still have to be undone"
    assert second.started.wait(WAIT_S)


def test_storage_that_is_hidden_stays_hidden_for_so_long_and_the_job_is_started_again(
    drivers: PlayedDrivers,
) -> None:
    job = a_job(drivers)
    first, second, _ = drivers.made
    job.hide_storage(60_000)
    kill(job, first)
    assert second.started.wait(WAIT_S)
    assert 50_000 < second.orders[0].unreadable_ms <= 60_000
    second.started.clear()
    job.job_over(JobOver(None, "cannot read", crash="StorageError"))
    assert second.started.wait(WAIT_S)
    assert 40_000 < second.orders[1].unreadable_ms < second.orders[0].unreadable_ms
    job.close()


def test_a_driver_that_started_the_job_several_times_is_replaced_by_one_driver(
    drivers: PlayedDrivers,
) -> None:
    job = a_job(drivers)
    first, second, third = drivers.made
    job.hide_storage(60_000)
    kill(job, first)
    for _ in range(3):  # its supervisor starts the coordinator again as long as storage does not answer
        assert second.started.wait(WAIT_S)
        second.started.clear()
        job.job_over(JobOver(None, "cannot read", crash="StorageError"))
    assert second.started.wait(WAIT_S)
    kill(job, second)
    assert third.started.wait(WAIT_S)
    for thread in threading.enumerate():
        if thread.name == "resumes the job":
            thread.join(WAIT_S)
    assert len(third.orders) == 1, "several threads would each open a session"
    job.close()


def test_a_driver_that_dies_before_it_reads_again_is_replaced_by_one_driver(drivers: PlayedDrivers) -> None:
    job = a_job(drivers)
    first, second, third = drivers.made
    job.hide_storage(60_000)
    kill(job, first)
    assert second.started.wait(WAIT_S)
    job.job_over(JobOver(None, "cannot read", crash="StorageError"))
    kill(job, second)
    for thread in threading.enumerate():
        if thread.name in ("resumes the job", "reads storage again"):
            thread.join(WAIT_S)
    assert len(third.orders) == 1, "the second order would close the job of the first"
    job.close()


@pytest.mark.parametrize(
    ("crash", "error"),
    [
        ("StorageError", StorageError),
        ("ProtocolError", SystemBroke),
        ("SystemCrashed", SystemCrashed),
        ("ValueError", RuntimeError),
    ],
)
def test_a_coordinator_that_crashed_raises_what_it_raised(
    drivers: PlayedDrivers, crash: str, error: type[Exception]
) -> None:
    job = a_job(drivers)
    job.job_over(JobOver(None, "so it went", crash=crash))
    with pytest.raises(error, match="so it went"):
        job.wait(WAIT_S)
