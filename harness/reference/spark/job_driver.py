"""The driver of a job on Spark, in a process of its own: session, coordinator, deployment.

Run as a module (``python -m barrier_tck.harness.reference.spark.job_driver``) with the number of its end of the
connection to the harness. It judges nothing and injects nothing: it does what ``JobRpc`` says and reports what
``JobReports`` says. Only the harness kills it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from barrier_tck.harness.cluster.driver.peer import Peer, PeerGone
from barrier_tck.harness.cluster.session_config import SessionConfig
from barrier_tck.harness.cluster.spark_session import session_later
from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.reference.bugs.catalogue import bug_of
from barrier_tck.harness.reference.delegating_files import DelegatingFileSystem
from barrier_tck.harness.reference.failing_snapshots import FailuresDirectory, with_failing_snapshots
from barrier_tck.harness.reference.instrumented import with_instruments
from barrier_tck.harness.reference.jobs import job_config
from barrier_tck.harness.reference.message_tracing import MessageTraceDirectory, with_message_trace
from barrier_tck.harness.reference.notes_directory import NotesDirectory
from barrier_tck.harness.reference.observed_barriers import barriers_observed
from barrier_tck.harness.reference.observed_elements import ElementsDirectory, elements_observed
from barrier_tck.harness.reference.observed_ends import ends_observed
from barrier_tck.harness.reference.observed_inputs import InputsDirectory, inputs_observed
from barrier_tck.harness.reference.observed_messages import MessagesDirectory, messages_observed
from barrier_tck.harness.reference.observed_reads import ReadsDirectory, observed
from barrier_tck.harness.reference.observed_requests import requests_counted
from barrier_tck.harness.reference.planned_savepoints import started_from
from barrier_tck.harness.reference.repeated_messages import RepeatedMessages
from barrier_tck.harness.reference.skewed_clocks import skewed
from barrier_tck.harness.reference.slow_storage import slowed
from barrier_tck.harness.reference.spark.job_parts import graph_of, parts_of
from barrier_tck.harness.reference.spark.job_rpc import (
    JobOrder,
    JobOver,
    JobReports,
    JobRpc,
    Repeat,
)
from barrier_tck.harness.reference.spark.planned_options import options_of
from barrier_tck.harness.reference.spark.repeating_runner import RepeatingRunner
from barrier_tck.harness.reference.spark.watched_slots import SlotReportingRunner
from barrier_tck.harness.reference.unsynced_files import JournaledFiles, journaled
from barrier_tck.harness.support.raised_by import crash_of
from barrier_tck.harness.workloads import flights
from barrier_tck.reference_impl.protocol.messages import AcknowledgeCheckpoint, Savepoint
from barrier_tck.reference_impl.runtime_errors import (
    IncompatibleState,
    JobUsageError,
    ProtocolError,
    StorageError,
)
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.routes import Routes
from barrier_tck.reference_impl.spark.slot_count import slots_of
from barrier_tck.reference_impl.spark.spark_options import session_settings
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_END_TIMEOUT_S = 15.0
"""After the harness is gone, the process ends within this time, with all that it started."""


_HOST = "driver"
"""What the host is called on which drivers are started, one after the other."""
_POLL_S = 0.05
_NOTES_TOGETHER = 32
"""So many notes of what passes a channel are written at once."""


class HiddenFiles(DelegatingFileSystem):
    """A file system whose files cannot be read for a while; names can always be listed."""

    def __init__(self, inner: FileSystem, milliseconds: float) -> None:
        """Hide them for so long from now on."""
        super().__init__(inner)
        self._until = time.monotonic() + milliseconds / 1000.0

    def check_read(self, path: str) -> None:
        """Raise StorageError while files are hidden."""
        if time.monotonic() < self._until:
            raise StorageError(f"cannot read {path}: the storage does not answer")


def _opened(order: JobOrder, root: str) -> FileSystem:
    """Open the coordinator's files: with a journal, or hidden at first, if so ordered."""
    files = LocalFileSystem(root)
    seen = JournaledFiles(files, Path(order.journals), _HOST) if order.journals is not None else files
    return HiddenFiles(seen, order.unreadable_ms) if order.unreadable_ms else seen


class JobDriver:
    """Implements ``JobRpc``."""

    def __init__(self, peer: Peer) -> None:
        self._observer = peer.remote("observer", JobReports)
        self._routes = peer.remote("routes", Routes)  # type: ignore[type-abstract]
        self._stack = contextlib.ExitStack()
        self._open: Callable[[], SparkSession] | None = None
        self._spark: SparkSession | None = None
        self._runner: RepeatingRunner | None = None
        self._repeats = RepeatedMessages()
        self._planted = contextlib.ExitStack()
        """While a job runs, its plan's bug is in force in this process."""

    def warm_up(self, place: SessionConfig) -> None:
        if self._open is None:
            later = session_later(place, "barrier-tck", dict(session_settings()))
            self._open = self._stack.enter_context(later)

    def open_session(self, place: SessionConfig) -> None:
        self.warm_up(place)
        assert self._open is not None
        self._spark = self._open()

    def prepare_flights(self, directory: str, splits: int) -> None:
        flights.prepare(self._session(), Path(directory), splits)

    def await_slots(self, slots: int, timeout_s: float) -> bool:
        """Ask Spark, which knows only the executors that have registered."""
        deadline = time.monotonic() + timeout_s
        while slots_of(self._session().sparkContext) < slots:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def start_job(self, order: JobOrder) -> None:
        """Start a job. One that ran before is ended."""
        self.end_job()
        plan = plan_from(dict(order.plan), "the order of a job")
        bug = bug_of(plan)
        self._planted.enter_context(bug())
        self._repeats = RepeatedMessages()
        self._repeats.put_in_force(order.repeats)
        slow = slowed(parts_of(plan, order.backend, order.external_storage), plan.checkpoints.async_ms_max)
        notes = NotesDirectory(order.of_subtasks)
        counted = requests_counted(slow, notes)
        logged = inputs_observed(counted, InputsDirectory(order.inputs), ends=bool(plan.savepoints))
        logged = ends_observed(logged, InputsDirectory(order.inputs))
        logged = barriers_observed(logged, plan.checkpoints, InputsDirectory(order.inputs))
        graph = graph_of(plan, Path(order.source))
        if graph.has_event_time:
            logged = elements_observed(logged, ElementsDirectory(order.elements))
        logged = skewed(logged, plan.deployment.clock_skew_ms, notes)
        components = with_message_trace(
            observed(logged, ReadsDirectory(order.reads)),
            MessageTraceDirectory(order.trace_events),
            _NOTES_TOGETHER,
        )
        if order.messages is not None:
            components = messages_observed(components, MessagesDirectory(order.messages))
        if order.failures is not None:
            components = with_failing_snapshots(components, FailuresDirectory(order.failures))
        if order.journals is not None:
            components = journaled(components, order.journals)
        if plan.mutant is not None or plan.patch is not None:
            components = with_instruments(components, around_process=bug)
        runner = SlotReportingRunner(
            self._session(),
            graph,
            started_from(job_config(plan), plan, order.start_from),
            order.root,
            components=components,
            options=options_of(plan),
            observer=self._observer,
            routes=self._routes if order.proxied else None,
            watched=order.watched,
            repeats=self._repeats,
            report_slots=self._observer.slots_changed,
        )
        runner.open_files = partial(_opened, order)
        self._runner = runner
        runner.start()
        threading.Thread(target=self._await_end, args=(runner,), name="awaits the end", daemon=True).start()

    def end_job(self) -> dict[str, int]:
        runner, self._runner = self._runner, None
        with self._planted:
            if runner is None:
                return {}
            runner.close()
            return runner.refused_connections()

    def waiting_for(self) -> tuple[str, ...]:
        """Ask the coordinator."""
        return self._runner.waiting_for() if self._runner is not None else ("the start of the job",)

    def repeat(self, repeats: tuple[Repeat, ...]) -> None:
        self._repeats.put_in_force(repeats)

    def take_savepoint(self, savepoint: Savepoint, delay_ms: float) -> None:
        if self._runner is not None:
            self._runner.take_savepoint(savepoint.directory, savepoint.stop, delay_ms)

    def take_forged(self, message: AcknowledgeCheckpoint) -> None:
        """Hand it to the coordinator."""
        if self._runner is not None:
            self._runner.take_forged(message)

    def close(self) -> None:
        """End job and session."""
        with contextlib.suppress(Exception):
            self.end_job()
        self._stack.close()

    def _session(self) -> SparkSession:
        if self._spark is None:
            raise JobUsageError("no session was opened")
        return self._spark

    def _await_end(self, runner: SparkJobRunner) -> None:
        with contextlib.suppress(PeerGone):
            self._observer.job_over(how_it_ended(runner))


def how_it_ended(runner: SparkJobRunner) -> JobOver:
    """Wait for the end of a job, and return how it ended: of a crash, whose it was."""
    try:
        end = runner.wait()
    except (StorageError, IncompatibleState, RuntimeError) as error:
        crash = error.__cause__ if isinstance(error, RuntimeError) else error
        if isinstance(crash, StorageError | ProtocolError):
            return JobOver(None, str(error), crash=type(crash).__name__)
        own = crash_of(crash, "the coordinator") if isinstance(crash, Exception) else None
        raised = own or error
        return JobOver(None, str(raised), crash=type(raised).__name__)
    assert end is not None, "without a timeout there is an end"
    return JobOver(end.state, end.reason, runner.stopped_with)


def main() -> None:
    """Serve until the harness hangs up or is gone."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    peer = Peer(socket.socket(fileno=int(sys.argv[1])), "the harness")
    driver = JobDriver(peer)
    peer.offer("driver", JobRpc, driver)
    peer.start()
    try:
        peer.work()
    finally:
        # If the harness was killed its cluster is ending too, and a session may wait for it in vain.
        last = threading.Timer(_END_TIMEOUT_S, _end_at_once)
        last.daemon = True
        last.start()
        driver.close()


def _end_at_once() -> None:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    os._exit(1)


if __name__ == "__main__":
    # Not from ``__main__``: functions that are sent to executors must belong to a module that they can import.
    from barrier_tck.harness.reference.spark import job_driver

    job_driver.main()
