"""The driver's process of the reference runtime on Spark, from the harness's side: one is kept from trial to trial, and
the next one takes the place of one that was killed.

A killed driver is replaced at once, as a cluster manager would do. The new one resumes the job from durable
storage (COO-6). Whatever the old one had reported before it died is taken first, so a history is in order.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator

import msgspec

from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.driver.driver_process import DriverProcess
from barrier_tck.harness.cluster.driver.peer import PeerGone, RemoteError
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_builtins
from barrier_tck.harness.reference.repeated_messages import Repeated
from barrier_tck.harness.reference.spark import job_driver
from barrier_tck.harness.reference.spark.job_rpc import (
    JobOrder,
    JobOver,
    JobReports,
    JobRpc,
    Repeat,
)
from barrier_tck.harness.reference.spark.reports_timed import ReportsTimed
from barrier_tck.harness.support.errors import OperatingError, SystemBroke, SystemCrashed
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import AcknowledgeCheckpoint, Savepoint
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.spark.routes import DirectRoutes, Routes

_log = logging.getLogger(__name__)
_READ_AGAIN_S = 0.2
"""A coordinator that could not read its storage is started again after this time, as its supervisor would do."""


class _Switch:
    """Passes calls on to whatever object it is set to at the time."""

    def __init__(self, target: object) -> None:
        self.target = target

    def __getattr__(self, name: str) -> object:
        return getattr(self.target, name)


class JobDrivers:
    """The driver's process of one cluster. ``close`` at the end in every case."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._reports = _Switch(JobReports())
        self._routes = _Switch(DirectRoutes())
        self._present: DriverProcess | None = None
        self._spare: DriverProcess | None = None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False

    def report_to(self, reports: JobReports | ReportsTimed, routes: Routes | None) -> None:
        """Let drivers report to this trial, and ask it for routes, from now on."""
        self._reports.target, self._routes.target = reports, routes or DirectRoutes()

    def present(self) -> DriverProcess:
        """Return the driver's process, with an open session; start one if there is none, or the last one is gone.

        Raises OperatingError if no session can be opened.
        """
        if self._present is not None and not self._present.peer.gone:
            return self._present
        if self._present is not None:
            self._present.close()
        with self._lock:
            if self._closed:
                raise OperatingError("the system was closed: no driver is started any more")
            self._present, self._spare = self._spare or self._started(), None
        rpc_stub_of(self._present).open_session(self._cluster.session_config())
        return self._present

    def keep_spare(self) -> None:
        """Start the process that will take the place of the present one, up to its session: a kill is expected."""
        with self._lock:
            if self._closed or (self._spare is not None and not self._spare.peer.gone):
                return
            self._spare = spare = self._started()
        threading.Thread(target=self._warm_up, args=(spare,), name="warms a driver up", daemon=True).start()

    def close(self) -> None:
        """End what runs. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            processes = [process for process in (self._present, self._spare) if process is not None]
            self._present = self._spare = None
        for process in processes:
            process.close()

    def _warm_up(self, spare: DriverProcess) -> None:
        try:
            rpc_stub_of(spare).warm_up(self._cluster.session_config())
        except OperatingError as error:
            _log.info("the spare driver is not warm, and opens its session later: %s", error)

    def _started(self) -> DriverProcess:
        log = self._cluster.directory / f"driver-process-{next(self._numbers)}.log"
        offers: dict[str, tuple[type, object]] = {
            "observer": (JobReports, self._reports),
            "routes": (Routes, self._routes),
        }
        return DriverProcess(job_driver.__name__, log, self._cluster.driver_environment(), offers)


def rpc_stub_of(process: DriverProcess) -> JobRpc:
    """Return what a driver can be asked to do."""
    return process.peer.remote("driver", JobRpc)  # type: ignore[type-abstract]


class RemoteJob:
    """One job in the driver's process. ``start``, then ``wait``; ``close`` at the end in every case."""

    def __init__(self, drivers: JobDrivers, order: JobOrder, finished: Callable[[], bool]) -> None:
        self._drivers = drivers
        self._order = order
        self._finished = finished
        self._present: DriverProcess | None = None
        self._changed = threading.Condition()
        self._over: JobOver | None = None
        self._problem: BaseException | None = None
        self._killed: list[int] = []
        self._kill = threading.Lock()
        self._resuming = threading.Lock()
        self._to_hide_s = 0.0
        self._hidden_until: float | None = None
        """Until when storage is hidden from the coordinator, in seconds of the monotonic clock."""
        self._closed = False
        self._repeats: tuple[Repeat, ...] = ()
        self.refused: dict[str, int] = {}
        """Connections that the drivers refused, by reason; complete after ``close``. A killed driver's are unknown."""

    @property
    def pid(self) -> int | None:
        """Return the driver's process; None while there is none."""
        present = self._present
        return present.pid if present is not None and not present.peer.gone else None

    @property
    def stopped_with(self) -> str | None:
        """Return the savepoint with which the job was stopped; None if it was not."""
        return self._over.stopped_with if self._over is not None else None

    def start(self) -> None:
        """Start the job from durable storage."""
        process = self._drivers.present()
        if process is not self._present:  # it may have started the job before: its end is answered once
            self._present = process
            process.when_over(lambda: self._driver_gone(process))
        order = msgspec.structs.replace(
            self._order, repeats=self._repeats, unreadable_ms=1000.0 * self._hidden_for_s()
        )
        with contextlib.suppress(
            PeerGone
        ):  # a driver that was killed at its first point is replaced like any other
            rpc_stub_of(process).start_job(order)

    def wait(self, timeout_s: float) -> JobOver | None:
        """Wait for the job's end and return it, or None at the timeout.

        Raises StorageError as the coordinator did, SystemBroke if it met an illegal event, SystemCrashed if it died
        of an exception of its own, RuntimeError if the harness crashed it, and OperatingError if the driver's process
        is gone without a fault, or no other can be started.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._over is not None or self._problem is not None, timeout_s)
            if self._problem is not None:
                raise self._problem
            over = self._over
        if over is None or over.state is not None:
            return over
        errors: dict[str, type[Exception]] = {
            "StorageError": StorageError,
            "ProtocolError": SystemBroke,
            "SystemCrashed": SystemCrashed,
        }
        raise errors.get(over.crash, RuntimeError)(over.reason)

    def job_over(self, over: JobOver) -> None:
        """Learn how a run ended. One that could not read hidden storage is started again."""
        if over.crash == "StorageError" and self._hidden_until is not None:
            threading.Thread(
                target=self._read_again, args=(self._present,), name="reads storage again", daemon=True
            ).start()
            return
        self._ended(over)

    @contextlib.contextmanager
    def killing(self, pid: int) -> Iterator[None]:
        """A fault kills the driver's process; no other driver starts before that is done."""
        with self._kill:
            self._killed.append(pid)
            yield

    def hide_storage(self, duration_ms: float) -> None:
        """Let the coordinator's reads fail for so long after it starts the next time."""
        self._to_hide_s = duration_ms / 1000.0

    def repeat(self, in_force: Iterable[Repeated]) -> None:
        """Repeat the messages of these subtasks, and of no others, now and after the driver's death."""
        self._repeats = tuple(Repeat(repeat.subtask, repeat.direction, repeat.late_ms) for repeat in in_force)
        self._call_driver(lambda rpc: rpc.repeat(self._repeats))

    def start_from(self, savepoint: str, plan: TrialPlan) -> None:
        """Start the next job from the savepoint with which the last one was stopped, as a user would.

        ``plan`` has the next job's graph, which may be wider or narrower.
        """
        with self._changed:
            self._over = None
        self._order = msgspec.structs.replace(self._order, start_from=savepoint, plan=to_builtins(plan))
        self.start()

    def take_savepoint(self, savepoint: Savepoint, delay_ms: float) -> None:
        """Ask the coordinator for a savepoint; the request is lost if it has died."""
        self._call_driver(lambda rpc: rpc.take_savepoint(savepoint, delay_ms))

    def take_forged(self, message: AcknowledgeCheckpoint) -> None:
        """Let the coordinator take a message that no subtask sent."""
        self._call_driver(lambda rpc: rpc.take_forged(message))

    def waiting_for(self) -> tuple[str, ...]:
        """Return what the job waits for, in words."""
        present = self._present
        if present is None or present.peer.gone:
            return ("the driver's process",)
        try:
            return rpc_stub_of(present).waiting_for()
        except (PeerGone, RemoteError) as error:
            return (f"an answer of the driver's process: {error}",)

    def close(self) -> None:
        """End what still runs of the job; the driver's process stays. Closing twice is harmless."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
        self._call_driver(lambda rpc: self.refused.update(rpc.end_job()))

    def _call_driver(self, call: Callable[[JobRpc], object]) -> None:
        """Ask the driver's process; a driver that is gone needs no more."""
        present = self._present
        if present is not None:
            with contextlib.suppress(PeerGone):
                call(rpc_stub_of(present))

    def _hidden_for_s(self) -> float:
        """Return how long storage stays hidden from a coordinator that starts now."""
        now = time.monotonic()
        if self._to_hide_s:
            self._hidden_until, self._to_hide_s = now + self._to_hide_s, 0.0
        if self._hidden_until is not None and self._hidden_until <= now:
            self._hidden_until = None
        return 0.0 if self._hidden_until is None else self._hidden_until - now

    def _ended(self, over: JobOver) -> None:
        with self._changed:
            self._over = self._over or over
            self._changed.notify_all()

    def _driver_gone(self, process: DriverProcess) -> None:
        """Replace a driver that a fault killed; all that it reported was taken."""
        with self._changed:
            if self._closed or self._over is not None or process is not self._present:
                return
        if self._finished():
            self._ended(JobOver(JobState.FINISHED, ""))
        elif process.pid not in self._killed:
            self._failed(
                OperatingError(f"the driver's process {process.pid} is gone, and no fault killed it")
            )
        else:
            threading.Thread(
                target=self._resume, args=(process,), name="resumes the job", daemon=True
            ).start()

    def _read_again(self, process: DriverProcess | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed, _READ_AGAIN_S)
            if self._closed:
                return
        self._resume(process)

    def _resume(self, process: DriverProcess | None) -> None:
        """Start the job again after a process stopped running it, unless another thread did so already."""
        try:
            with self._kill:
                pass
            with self._resuming:
                if self._present is process:
                    self.start()
        except PeerGone:
            _log.debug("the next driver was killed while it started", exc_info=True)
        except BaseException as error:  # noqa: BLE001 - handed on to the thread that waits for the job
            self._failed(error)
        else:
            with self._changed:
                closed = self._closed
            if closed:
                self._call_driver(lambda rpc: rpc.end_job())

    def _failed(self, error: BaseException) -> None:
        with self._changed:
            self._problem = self._problem or error
            self._changed.notify_all()
