"""One trial's query, from the first start to its end: started again after each failure, from its checkpoint directory.

Whoever runs a query supervises it like this: a driver that is gone is replaced, and a query that failed is started
again. Only what fails again and again, without a driver being killed, is given up.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.driver.driver_process import DriverProcess
from barrier_tck.harness.cluster.driver.peer import PeerGone, RemoteError
from barrier_tck.harness.cluster.machine_waits import MachineWaits
from barrier_tck.harness.record.held_up_notes import HeldUpNotes
from barrier_tck.harness.record.history import End, Recorded
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    Committed,
    JobCut,
    JobFailed,
    JobFinished,
    Operation,
    RowsPassed,
    SinkCalled,
    SinkReturned,
    SinkStood,
    TaskBegan,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.records import AttemptRecord
from barrier_tck.harness.record.slow_machine import allowed_on_a_slow_machine_ms
from barrier_tck.harness.streaming.checkpoint_outages import CheckpointOutages
from barrier_tck.harness.streaming.disturbed_writes import DisturbedWrites
from barrier_tck.harness.streaming.known_defects import known_defect
from barrier_tck.harness.streaming.query_rpc import QueryOrder, QueryReports, QueryRpc, TaskRun
from barrier_tck.harness.streaming.query_targets import TASKS, QueryTargets
from barrier_tck.harness.support.errors import OperatingError
from barrier_tck.harness.system.system_under_test import NemesisHooks

DRIVER_MODULE = "barrier_tck.harness.streaming.driver.query_driver"
_LOOK_AGAIN_S = 0.2
_TaskPlace = tuple[int, int, int]
"""Attempt, stage and partition: they name a task, whichever run of it."""
_FAILURES_MAX = 3
"""So many failures in a row, and one more for each planned fault, are answered with another start."""


@dataclass
class _Driver:
    """A driver's process, and the settings of its session."""

    process: DriverProcess
    conf: dict[str, str]
    application: str = ""
    """The id of its application, once the session is open."""

    @property
    def gone(self) -> bool:
        return self.process.peer.gone


class QueryDrivers:
    """The drivers of one cluster: one is kept from trial to trial, and one in reserve if a kill is expected.

    The one in reserve has a session, and executors of its own: the cluster has room for two applications. So the next
    start of a query finds what any new driver has, a session and executors that know nothing, and waits for no JVM.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._present: _Driver | None = None
        self._spare: _Driver | None = None
        self._conf: dict[str, str] = {}
        self._again: dict[str, str] = {}
        self._spare_taken = self._settings_change = False
        """What holds for the trial that runs."""
        self._numbers = itertools.count(1)
        self.reports: QueryReports | None = None
        """Whom drivers report to, from now on."""

    def use(self, conf: Mapping[str, str], again: Mapping[str, str]) -> None:
        """Begin a trial: its first session has some settings, and those of later drivers have others."""
        self._conf, self._again = dict(conf), dict(again)
        self._spare_taken, self._settings_change = False, self._conf != self._again
        if self._present is not None and (self._present.gone or self._present.conf != self._conf):
            self._present.process.close()
            self._present = None
        if self._spare is not None and self._spare.conf != self._again:
            self._drop_spare()

    def present(self) -> DriverProcess:
        """Return a driver with an open session; start one if there is none, or the last one is gone.

        Raises OperatingError if no session can be opened.
        """
        if self._present is not None and self._present.gone:
            self._present.process.close()
            self._present, self._conf = None, self._again
        if self._present is None:
            if self._spare is not None and self._spare.conf == self._conf:
                self._present, self._spare = self._spare, None
                self._spare_taken = True
            else:
                self._present = self._started(self._conf)
        present = self._present
        present.application = self._opened(present)
        return present.process

    def application(self) -> str | None:
        """Return the id of the application of the present driver; None before it has a session."""
        return self._present.application or None if self._present is not None else None

    def keep_spare(self) -> None:
        """Start the driver that will take the place of the present one: a kill is expected."""
        if self._spare is None or self._spare.gone:
            self._spare = self._started(self._again)
            threading.Thread(target=self._warm_up, args=(self._spare,), name="warms up", daemon=True).start()

    def trial_over(self) -> None:
        """Start another driver in reserve if the last one was needed, so that the next kill finds it ready.

        Not in a trial whose later drivers have settings of their own: others will need other settings.
        """
        if self._spare_taken and not self._settings_change:
            self.keep_spare()

    def close(self) -> None:
        """End what runs. Closing twice is harmless; drivers may be started again."""
        self._drop_spare()
        present, self._present = self._present, None
        if present is not None:
            present.process.close()

    def _drop_spare(self) -> None:
        """End the driver in reserve without waiting for a session that it may just open: it has nothing to lose."""
        spare, self._spare = self._spare, None
        if spare is not None:
            spare.process.close(patience_s=0.0)

    def _warm_up(self, spare: _Driver) -> None:
        with contextlib.suppress(OperatingError):  # then it opens its session later, when it is needed
            self._opened(spare)

    def _opened(self, driver: _Driver) -> str:
        return rpc_stub_of(driver.process).open_session(self._cluster.session_config(), driver.conf)

    def _started(self, conf: dict[str, str]) -> _Driver:
        log = self._cluster.directory / f"driver-process-{next(self._numbers)}.log"
        offers: dict[str, tuple[type, object]] = {"reports": (QueryReports, _Latest(self))}
        return _Driver(DriverProcess(DRIVER_MODULE, log, self._cluster.driver_environment(), offers), conf)


class _Latest:
    """Passes reports on to the trial that runs."""

    def __init__(self, drivers: QueryDrivers) -> None:
        self._drivers = drivers

    def __getattr__(self, name: str) -> object:
        return getattr(self._drivers.reports, name)


def rpc_stub_of(process: DriverProcess) -> QueryRpc:
    """Return what a driver can be asked to do."""
    return process.peer.remote("driver", QueryRpc)  # type: ignore[type-abstract]


def _place_of(task: TaskBegan) -> _TaskPlace:
    return task.attempt, task.stage, task.partition


@dataclass(frozen=True)
class _AttemptOver:
    """How one start of the query ended."""

    reason: Reason
    detail: str = ""


class QueryRun:
    """Runs a query to its end; implements ``QueryReports`` and ``PointReports``."""

    def __init__(
        self,
        drivers: QueryDrivers,
        order: QueryOrder,
        cluster: Cluster,
        nemesis: NemesisHooks,
        storage: CheckpointOutages,
        faults: int,
        writes: Path | None = None,
    ) -> None:
        self._drivers = drivers
        self._order = order
        self._nemesis = nemesis
        self._failures_max = _FAILURES_MAX + faults
        self._storage = storage
        self._writes = DisturbedWrites(writes, self._try_write) if writes is not None else None
        self._targets = QueryTargets(
            cluster, self._driver_pid, lambda: drivers.application(), storage, self._writes
        )
        self._held_up = HeldUpNotes(
            MachineWaits(lambda: (*cluster.processes(), os.getpid())),
            lambda held: self._note(held, process="machine"),
        )
        self._driver: DriverProcess | None = None
        self._events: queue.SimpleQueue[_AttemptOver] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._started_s = time.monotonic()
        self._batches: dict[int, None] = {}
        self._newest = -1
        """The newest micro-batch that began: those before it are committed."""
        self._attempt = 0
        self._run_again: dict[int, None] = {}
        self._first_attempts: dict[int, int] = {}
        """Micro-batch -> the attempt in which a task of it began first."""
        self._last_attempts: dict[int, int] = {}
        """Micro-batch -> the attempt in which a task of it began last."""
        self._task_runs: dict[_TaskPlace, int] = {}
        """A task -> its first run."""
        self._tasks_of: dict[int, TaskBegan] = {}
        """The pid of a Python worker -> the task that it runs, as it began."""
        self._tasks_with_rows: dict[_TaskPlace, None] = {}
        """Tasks that have passed rows on."""
        self._with_rows_since: dict[int, int] = {}
        """Micro-batch -> the attempt in which a task of it first passed rows on."""
        self._rows_again: dict[int, None] = {}
        self._sink_points: dict[str, None] = {}
        self.operations: list[Recorded[Operation]] = []
        self.attempts: list[AttemptRecord] = []

    @property
    def run_again(self) -> tuple[int, ...]:
        """Return the micro-batches that, or of which a task, ran more than once."""
        with self._lock:
            return tuple(sorted(self._run_again))

    @property
    def replayed(self) -> tuple[int, ...]:
        """Return those of which rows had been passed on before: what ran again could change the output."""
        with self._lock:
            return tuple(sorted(self._rows_again))

    @property
    def restarted_before(self) -> tuple[int, ...]:
        """Return the micro-batches that were the first ones of a start of the query, but for its first start."""
        with self._lock:
            batches = sorted(self._last_attempts)
            return tuple(
                batch
                for before, batch in itertools.pairwise(batches)
                if self._last_attempts[batch] != self._last_attempts[before]
            )

    @property
    def sink_points(self) -> tuple[str, ...]:
        """Return the sink's own points that it has passed."""
        with self._lock:
            return tuple(self._sink_points)

    def now_ms(self) -> float:
        """Return the milliseconds since the trial's start."""
        return (time.monotonic() - self._started_s) * 1_000.0

    def run(self, bound_s: float) -> tuple[End, Reason, str]:
        """Run the query; return how it ended, and why."""
        self._nemesis.bind(self._targets, self.now_ms)
        failures = 0
        while True:
            self._attempt += 1
            over = self._run_attempt(bound_s)
            match over.reason:
                case Reason.FINISHED:
                    self._committed_before(self._newest + 1)
                    self._note(JobFinished())
                    return End.FINISHED, over.reason, ""
                case Reason.OUT_OF_TIME:
                    self._note(JobCut(over.reason, over.detail))
                    return End.STUCK, over.reason, over.detail
                case Reason.SUBTASK_FAILED:
                    self._storage.failed()
                    struck = self._writes is not None and self._writes.struck_since()
                    failures += self._outage_over() and not struck
            if failures > self._failures_max:
                detail = f"the query failed {failures} times, the last time with: {over.detail}"
                killed = any(end.reason is Reason.PROCESS_LOST for end in self._ends())
                defect = known_defect(over.detail, killed)
                if defect is not None:
                    detail = f"{defect}; {detail}"
                self._note(JobFailed(Reason.RESTARTS_USED_UP, detail))
                return End.FAILED, Reason.RESTARTS_USED_UP, detail

    def _ends(self) -> Iterator[AttemptEnded]:
        for line in self.operations:
            if isinstance(line.operation, AttemptEnded):
                yield line.operation

    def _outage_over(self) -> bool:
        """Return whether storage is there; if it is not, the failure says nothing, and the next start waits a
        little."""
        self._storage.end_due(self.now_ms())
        if self._storage.is_away:
            time.sleep(_LOOK_AGAIN_S)
            return False
        return True

    def stop(self) -> None:
        """Stop the query, if it still runs, and disturb it no more."""
        if self._writes is not None:
            self._writes.stop()
        if self._driver is not None:
            with contextlib.suppress(PeerGone):
                rpc_stub_of(self._driver).stop_query()

    def _run_attempt(self, bound_s: float) -> _AttemptOver:
        self._events = events = queue.SimpleQueue[_AttemptOver]()
        started_ms, running_ms = self.now_ms(), None
        self._note(AttemptStarted(self._attempt))
        lost = _AttemptOver(Reason.PROCESS_LOST, "the driver's process is gone")
        try:
            self._driver = driver = self._drivers.present()
            driver.when_over(lambda: events.put(lost))
            self._storage.started(self.now_ms())
            rpc_stub_of(driver).start_query(self._order)
        except PeerGone:
            over = lost
        except RemoteError as error:
            over = _AttemptOver(Reason.SUBTASK_FAILED, str(error))
        else:
            running_ms = self.now_ms()
            self._note(AttemptRunning(self._attempt))
            self._nemesis.first_attempt_ran()
            over = self._wait(events, bound_s)
        if over is lost:
            self._driver = None
        self._note(AttemptEnded(self._attempt, over.reason, over.detail))
        end = {Reason.FINISHED: "finished", Reason.OUT_OF_TIME: "stopped"}.get(over.reason, "failed")
        self.attempts.append(
            AttemptRecord(self._attempt, started_ms, running_ms, self.now_ms(), end, over.detail)
        )
        return over

    def _wait(self, events: queue.SimpleQueue[_AttemptOver], bound_s: float) -> _AttemptOver:
        """Wait for the end of this start or of the trial; meanwhile timed faults strike."""
        while True:
            due_ms = self._nemesis.next_time_ms()
            wait_s = _LOOK_AGAIN_S if due_ms is None else (due_ms - self.now_ms()) / 1_000.0
            with contextlib.suppress(queue.Empty):
                return events.get(timeout=min(_LOOK_AGAIN_S, max(0.001, wait_s)))
            now_ms, bound_ms = self.now_ms(), bound_s * 1_000.0
            self._held_up.look(now_ms)
            if now_ms >= bound_ms:
                bound_ms += allowed_on_a_slow_machine_ms(self.operations, bound_ms)
            if now_ms >= bound_ms:
                return _AttemptOver(Reason.OUT_OF_TIME, f"no end within {bound_ms / 1_000.0:.0f} s")
            self._storage.end_due(self.now_ms())
            if due_ms is not None and self.now_ms() >= due_ms:
                self._nemesis.time_reached(self.now_ms())

    # --- QueryReports ---------------------------------------------------------------------------------------

    def sink_called(self, batch: int) -> None:
        """Stand at the beginning of a micro-batch."""
        with self._lock:
            if batch in self._batches:
                self._runs_again(batch, None)
            self._batches[batch] = None
        self._committed_before(batch)
        self._note(SinkCalled(batch, self._attempt))
        self._nemesis.point_reached(ProtocolPoint.CHECKPOINT_TRIGGERED, None, self._attempt)

    def sink_returned(self, batch: int) -> None:
        """Stand between the sink's write and the commit."""
        self._note(SinkReturned(batch, self._attempt))
        self._nemesis.point_reached(ProtocolPoint.ALL_ACKNOWLEDGED, None, self._attempt)

    def query_over(self, problem: str) -> None:
        """Take the end of this start."""
        reason = Reason.SUBTASK_FAILED if problem else Reason.FINISHED
        self._events.put(_AttemptOver(reason, problem))

    # --- PointReports ---------------------------------------------------------------------------------------

    def sink_stands(self, name: str) -> None:
        """Stand between two actions of the sink."""
        with self._lock:
            self._sink_points[name] = None
        self._note(SinkStood(name, self._attempt))
        self._nemesis.point_reached(ProtocolPoint.PUBLICATION_STEP, None, self._attempt)

    def task_began(self, worker: int, batch: int, task: TaskRun) -> None:
        """Stand at the beginning of a task."""
        self._committed_before(batch)
        began = TaskBegan(batch, self._attempt, task.stage, task.partition, task.run, task.retry)
        with self._lock:
            # Spark's own sinks tell nothing of micro-batches, so tasks have to tell of those that come again.
            first = self._first_attempts.setdefault(batch, self._attempt) == self._attempt
            self._last_attempts[batch] = self._attempt
            place = _place_of(began)
            alone = self._task_runs.setdefault(place, task.run) == task.run
            self._tasks_of[worker] = began
            if task.retry or not first or not alone:
                self._runs_again(batch, place)
        self._note(began)
        self._stand(ProtocolPoint.BARRIER_RECEIVED, worker)

    def rows_passed(self, worker: int, batch: int, rows: int) -> None:
        """Stand in the middle of a task."""
        self._note_rows(worker, batch, rows, all_of_them=False)
        self._stand(ProtocolPoint.RECORDS_PROCESSED, worker)

    def all_rows_passed(self, worker: int, batch: int, rows: int) -> None:
        """Stand at the end of a task, or after its write."""
        self._note_rows(worker, batch, rows, all_of_them=True)
        self._stand(ProtocolPoint.SNAPSHOT_TAKEN, worker)

    def _note_rows(self, worker: int, batch: int, rows: int, all_of_them: bool) -> None:
        with self._lock:
            task = self._tasks_of.get(worker)
            if rows:
                self._with_rows_since.setdefault(batch, self._attempt)
                if task is not None:
                    self._tasks_with_rows[_place_of(task)] = None
        if task is not None:
            place = batch, task.attempt, task.stage, task.partition, task.run
            self._note(RowsPassed(*place, rows, all_of_them))

    def _runs_again(self, batch: int, task: _TaskPlace | None) -> None:
        """Note that a micro-batch, or a task of it, runs again; the lock is held.

        What is repeated is the whole micro-batch if an earlier attempt ran it, else the task alone.
        """
        self._run_again[batch] = None
        if self._with_rows_since.get(batch, self._attempt) < self._attempt or task in self._tasks_with_rows:
            self._rows_again[batch] = None

    def _stand(self, point: ProtocolPoint, worker: int) -> None:
        with self._targets.standing_in(worker):
            self._nemesis.point_reached(point, TASKS, self._attempt)

    def _committed_before(self, batch: int) -> None:
        """Note that a micro-batch begins: Spark begins one when those before it are committed."""
        with self._lock:
            committed = range(max(0, self._newest), batch) if batch > self._newest else ()
            self._newest = max(self._newest, batch)
        for earlier in committed:
            self._note(Committed(TASKS, earlier, self._attempt))

    def _driver_pid(self) -> int | None:
        driver = self._driver
        return driver.pid if driver is not None and not driver.peer.gone else None

    def _try_write(self, path: str) -> str:
        driver = self._driver
        if driver is None:
            raise PeerGone("the driver is gone")
        return rpc_stub_of(driver).try_write(path)

    def _note(self, operation: Operation, process: str = "coordinator") -> None:
        with self._lock:
            number = len(self.operations)
            self.operations.append(Recorded(number, self.now_ms(), process, operation))
