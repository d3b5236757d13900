"""A job on Spark, from the driver's side: ``SparkJobRunner``.

Every attempt is one barrier stage. Its tasks register as slots with the coordinator service, are given
subtasks, and stay until the attempt ends. The coordinator driver, the deployer, and all observers run on one
thread, the event loop; other threads only post to it.

An attempt ends in this order: its control connections are closed, which ends every subtask wherever it
stands; Spark is asked to cancel the stage; and once the stage's thread is back, the coordinator may deploy the
next. What an old process still does after that is fenced off by its attempt number (REC-2).
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.heartbeats import FailureDetector
from barrier_tck.reference_impl.protocol.messages import (
    CancelSubtask,
    CompletedCheckpoint,
    FromSubtask,
    Savepoint,
)
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.coordinator_driver import CoordinatorDriver
from barrier_tck.reference_impl.runtime.coordinator_ports import CoordinatorPorts
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.runtime_errors import IncompatibleState, JobUsageError, StorageError
from barrier_tck.reference_impl.spark.coordinator_service import CoordinatorService, SlotConnection
from barrier_tck.reference_impl.spark.event_loop import EventLoop, LoopBackground, MonotonicClock
from barrier_tck.reference_impl.spark.handshake import new_secret
from barrier_tck.reference_impl.spark.link_messages import (
    DeploySubtask,
    FirstRecords,
    PointReached,
    Resume,
    WatchedPoint,
)
from barrier_tck.reference_impl.spark.placement import addresses, assign_slots, deployment_of, process_of
from barrier_tck.reference_impl.spark.routes import CoordinatorAddress, DirectRoutes, Routes
from barrier_tck.reference_impl.spark.running_attempt import JobEnd, RunningAttempt
from barrier_tck.reference_impl.spark.slot_count import slots_of
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver, SubtaskProcess
from barrier_tck.reference_impl.spark.spark_options import SparkOptions
from barrier_tck.reference_impl.spark.stage import BarrierStage, StageOutcome
from barrier_tck.reference_impl.spark.subtask_process import SubtaskProgram
from barrier_tck.reference_impl.spark.warm_up import ExecutorWarmUp
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem

_log = logging.getLogger(__name__)
_CANCEL_AGAIN_MS = 200.0
_LOOK_AT_SLOTS_MS = 500.0
_MORE_SLOTS = "give the cluster enough cores, or raise deployment_timeout_ms"
_SYMPTOM_GRACE_MS = 50.0
_LEAVE_TIMEOUT_MS = 10_000.0
_CLOSE_TIMEOUT_S = 10.0
_ANSWER_TIMEOUT_S = 5.0


class SparkJobRunner:
    """Runs one job once. ``start``, then ``wait``; ``close`` at the end in every case (or use ``with``)."""

    open_files: Callable[[str], FileSystem] = LocalFileSystem
    """Opens the coordinator's files; subtasks open their own."""

    def __init__(
        self,
        spark: SparkSession,
        graph: JobGraph,
        config: JobConfig,
        files_root: str | Path,
        *,
        plane: Callable[[], DataPlane] = ArrowPlane,
        components: Components | None = None,
        options: SparkOptions | None = None,
        observer: SparkJobObserver | None = None,
        watched: Sequence[tuple[RuntimePoint, SubtaskId | None]] = (),
        routes: Routes | None = None,
    ) -> None:
        """Prepare a run; nothing happens before ``start``.

        ``files_root`` is a directory that driver and executors reach under this path: checkpoint storage and
        sinks live below it. ``watched`` lists the points at which a subtask (None: any) stops until the
        observer's ``point_reached`` returned. ``routes`` may replace the addresses of data channels and of
        control connections by proxies'.
        """
        self._context = spark.sparkContext
        self._graph = graph
        self._config = config
        self._files_root = str(Path(files_root).absolute())
        self._plane = plane
        self._components = components or Components()
        self._options = options or SparkOptions()
        self._observer = observer or SparkJobObserver()
        self._watched = tuple(WatchedPoint(point.value, subtask) for point, subtask in watched)
        self._routes = routes or DirectRoutes()
        self._secret = new_secret()
        self._run_id = uuid.uuid4().hex[:8]
        self._clock = MonotonicClock()
        self._loop = EventLoop(self._clock, self._after_each, self._crashed)
        self._background = LoopBackground(self._loop.post, 1, "metadata")
        self._warmer = ExecutorWarmUp(self._context, f"{graph.name}-{self._run_id}-warming")
        self._driver: CoordinatorDriver | None = None
        self._service: CoordinatorService | None = None
        self._attempt: RunningAttempt | None = None
        self._processes: dict[SubtaskId, SubtaskProcess] = {}
        self._slots = 0  # how many there were when the coordinator asked last; only an elastic job's does
        self._ended = threading.Event()
        self._end: JobEnd | None = None
        self._crash: BaseException | None = None
        self._closed = False

    # --- what a user calls, from any thread -----------------------------------------------------------------

    def start(self) -> None:
        """Start the coordinator and deploy the first attempt, from the last completed checkpoint if any."""
        if self._service is not None:
            raise JobUsageError("this runner was started before; make a new SparkJobRunner for each run")
        host = self._context.getConf().get("spark.driver.host") or "127.0.0.1"
        self._service = CoordinatorService(
            host,
            self._secret,
            self._loop.post,
            self,
            self._options.heartbeat_timeout_ms,
            FailureDetector(self._options.heartbeat_timeout_ms),
        )
        files = self.open_files(self._files_root)
        ports = CoordinatorPorts(
            clock=self._clock,
            probe=self,
            timers=self,
            subtasks=self,
            deployer=self,
            background=self._background,
            storage=self._components.checkpoint_storage(files, self._graph.name, self._config.storage_root),
            observer=self._observer,
        )
        driver = CoordinatorDriver(self._graph, self._config, ports, self._components)
        self._driver = driver
        self._service.start()
        self._loop.start()
        self._loop.post(driver.start)
        self._loop.post(self._watch_heartbeats)

    def wait(self, timeout_s: float | None = None) -> JobEnd | None:
        """Wait for the job's end and return it, or None at the timeout.

        Raises StorageError if checkpoint storage cannot be read at the start, IncompatibleState if the job does
        not fit what is stored of it, and RuntimeError if anything else crashed the coordinator (an observer that
        raised, or a bug), which is not a failure of the job.
        """
        if not self._ended.wait(timeout_s):
            return None
        if isinstance(self._crash, StorageError | IncompatibleState):
            raise self._crash
        if self._crash is not None:
            raise RuntimeError(f"the coordinator crashed: {self._crash!r}") from self._crash
        return self._end

    def take_savepoint(self, directory: str, stop: bool = False, delay_ms: float = 0.0) -> None:
        """Ask for a savepoint in a directory below ``files_root``, and for the end of the job with it if ``stop``.

        Returns at once. The observer learns that it was triggered and completed, aborted, or refused; a job that is
        stopped ends as STOPPED. ``delay_ms`` puts the request off.
        """
        savepoint = Savepoint(directory, stop)
        driver = self._required_driver()
        at_ms = self._clock.now_ms() + delay_ms
        name = f"savepoint-{directory}"
        self._loop.post(
            lambda: self._loop.set_timer(name, at_ms, lambda: driver.request_savepoint(savepoint))
        )

    def stop_with_savepoint(self, directory: str, timeout_s: float | None = None) -> JobEnd | None:
        """Stop the job with a savepoint and wait for its end, as ``wait`` does (COO-5).

        It was stopped if the end's ``savepoint`` is the directory. If the savepoint failed or was refused, the job goes
        on, and this waits for its own end, or for the timeout (then it returns None).
        """
        self.take_savepoint(directory, stop=True)
        return self.wait(timeout_s)

    @property
    def stopped_with(self) -> str | None:
        """Return the directory of the savepoint with which the job was stopped; None if it was not, or not yet."""
        return self._end.savepoint if self._end is not None else None

    def refused_connections(self) -> dict[str, int]:
        """Return how many connections were refused so far, as ``CoordinatorService.refused`` names them."""
        return self._service.refused() if self._service is not None else {}

    def close(self) -> None:
        """End whatever still runs: attempt, Spark stage, connections, threads. Closing twice is harmless."""
        if self._closed or self._service is None:
            return
        self._closed = True
        attempt = self._attempt
        # The loop first: the coordinator must not answer the end of the connections with another attempt.
        if not self._loop.stop(_CLOSE_TIMEOUT_S):
            _log.warning("the coordinator's event loop is still in a call after %g s", _CLOSE_TIMEOUT_S)
        self._service.close()
        self._warmer.stop()
        if attempt is not None:
            deadline, again_s = time.monotonic() + _CLOSE_TIMEOUT_S, _CANCEL_AGAIN_MS / 1000.0
            while not (ended := attempt.stage.join(again_s)) and time.monotonic() < deadline:
                attempt.stage.cancel()
            if not ended:
                _log.warning(
                    "the Spark stage of attempt %d still runs %g s after it was cancelled: its slots are not free",
                    attempt.number,
                    _CLOSE_TIMEOUT_S,
                )
        self._background.close()
        if self._end is None and self._crash is None:
            self._end = JobEnd(JobState.FAILED, "the runner was closed before the job's end")
        self._ended.set()

    def __enter__(self) -> SparkJobRunner:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def now_ms(self) -> float:
        """Return the coordinator's time: milliseconds of the epoch, which never go back."""
        return self._clock.now_ms()

    def subtask_processes(self) -> dict[SubtaskId, SubtaskProcess]:
        """Return where every subtask of the current attempt runs; empty while an attempt is being placed."""
        return dict(self._processes)

    def waiting_for(self) -> tuple[str, ...]:
        """Return what the job waits for, as a sentence (REC-6)."""
        driver = self._driver
        if driver is None or self._ended.is_set():
            return ()
        answer: queue.SimpleQueue[tuple[str, ...]] = queue.SimpleQueue()
        self._loop.post(lambda: answer.put(driver.waiting_for()))
        try:
            return answer.get(timeout=_ANSWER_TIMEOUT_S)
        except queue.Empty:
            return (f"an answer of the coordinator's event loop, which was busy for {_ANSWER_TIMEOUT_S:g} s",)

    # --- the coordinator's ports, called on the event loop --------------------------------------------------

    def reach(self, point: RuntimePoint, checkpoint: CheckpointId | None = None, attempt: int = 0) -> None:
        """Probe: the coordinator stands at a point."""
        if point is RuntimePoint.ATTEMPT_RUNNING and self._options.warm_executors:
            self._warmer.start()
        self._observer.point_reached(point, None, attempt, checkpoint)

    def set(self, name: str, at_ms: float) -> None:
        """Timers: call the driver at a time."""
        driver = self._required_driver()
        self._loop.set_timer(f"job-{name}", at_ms, lambda: driver.on_timer(name))

    def send(self, subtask: SubtaskId, message: Any) -> None:
        """Directory: send to a subtask of the current attempt."""
        connection = self._attempt.placed.get(subtask) if self._attempt is not None else None
        if connection is not None:
            connection.send(message)

    def slots(self) -> int:
        """Deployer: ask Spark."""
        self._slots = slots_of(self._context)
        return self._slots

    def deploy(self, attempt: int, graph: JobGraph, restore: CompletedCheckpoint | None) -> None:
        """Deployer: submit the barrier stage of an attempt."""
        service = self._required_service()
        address, slots = (service.host, service.port), len(graph.subtasks)
        program = SubtaskProgram(
            graph=graph,
            plane=self._plane,
            components=self._components,
            files_root=self._files_root,
            coordinator=CoordinatorAddress(address, self._routes.to_coordinator(address, slots)),
            attempt=AttemptNumber(attempt),
            options=self._options,
            secret=self._secret,
            config=self._config,
        )
        group = f"{self._graph.name}-{self._run_id}-attempt-{attempt}"

        def ended(outcome: StageOutcome) -> None:
            self._loop.post(lambda: self._stage_ended(attempt, outcome))

        stage = BarrierStage(self._context, group, slots, program, ended)
        self._attempt = RunningAttempt(attempt, graph, restore, stage)
        self._processes = {}
        service.admit_attempt(attempt)
        self._loop.set_timer(
            "deployment",
            self._clock.now_ms() + self._options.deployment_timeout_ms,
            lambda: self._check_deployed(attempt),
        )
        if self._slots >= slots:
            self._watch_slots(attempt)
        stage.start()

    def stop(self, attempt: int, reason: str) -> None:
        """Deployer: end an attempt; the coordinator is notified when the stage has ended."""
        driver = self._required_driver()
        current = self._attempt
        if current is None or current.number != attempt:
            # It was never deployed: its number could not be made durable. So it has no stage that could end.
            self._loop.post(lambda: driver.on_attempt_stopped(attempt))
            return
        current.stopping = True
        self._processes = {}
        self._observer.subtasks_gone(attempt)
        for connection in current.offered.values():
            connection.send(CancelSubtask(reason))
        self._required_service().close_attempt()
        if current.stage_ended:
            self._loop.post(lambda: driver.on_attempt_stopped(attempt))
        else:
            self._cancel_stage(current)

    # --- events of the control connections, called on the event loop ----------------------------------------

    def slot_offered(self, connection: SlotConnection) -> None:
        """Take a slot in; the last one starts the subtasks."""
        attempt = self._attempt
        if attempt is None or attempt.stopping or connection.attempt != attempt.number:
            connection.close()
            return
        attempt.offered[connection.slot] = connection
        if len(attempt.offered) == len(attempt.graph.subtasks):
            self._place(attempt)

    def message_received(self, connection: SlotConnection, message: Any) -> None:
        attempt, subtask = self._attempt, connection.subtask
        if attempt is None or attempt.stopping or connection.attempt != attempt.number or subtask is None:
            return
        if isinstance(message, PointReached):
            point = RuntimePoint(message.point)
            self._observer.point_reached(point, subtask, attempt.number, message.checkpoint)
            connection.send(Resume(message.sequence))
        elif isinstance(message, FirstRecords):
            self._observer.first_records(subtask, attempt.number, message.at_ms)
        elif isinstance(message, FromSubtask) and (message.attempt, message.subtask) == (
            attempt.number,
            subtask,
        ):
            self._required_driver().on_message(message)
        else:
            _log.warning("dropped from %s of attempt %d: %r", subtask, attempt.number, message)

    def slot_lost(self, connection: SlotConnection, reason: str) -> None:
        """Fail the attempt for a slot that is gone, unless it left in good order."""
        attempt = self._attempt
        if attempt is None or attempt.stopping or connection.attempt != attempt.number or connection.left:
            return
        if self._crash is not None:
            return  # its connection was ended from this side: no recovery follows
        offer, where = connection.offer, f"slot {connection.slot} at {connection.peer}"
        if offer is not None:
            process = f"worker {offer.worker_pid} of executor {offer.executor_id}"
            where = f"{connection.subtask or where} ({process})"
        self._attempt_failed(f"{where}: {reason}", connection.subtask)

    # --- inside ---------------------------------------------------------------------------------------------

    def _place(self, attempt: RunningAttempt) -> None:
        offer_of, placement = assign_slots(attempt)
        if self._config.local_recovery:
            self._observer.subtasks_assigned(attempt.number, placement)
        self._processes = {
            subtask: process_of(subtask, attempt.number, offer) for subtask, offer in offer_of.items()
        }
        self._observer.subtasks_placed(attempt.number, self._processes)
        number = AttemptNumber(attempt.number)
        outputs = addresses(number, attempt.graph, offer_of, self._routes)
        for subtask, connection in attempt.placed.items():
            deployment = deployment_of(subtask, attempt.graph.name, number, self._config, attempt.restore)
            connection.send(DeploySubtask(deployment, outputs[subtask], self._watched, self._clock.now_ms()))

    def _stage_ended(self, number: int, outcome: StageOutcome) -> None:
        attempt = self._attempt
        if attempt is None or attempt.number != number or self._crash is not None:
            return
        attempt.stage_ended = True
        driver = self._required_driver()
        if driver.ended:
            return  # its subtasks left with the job; the coordinator stopped nothing and waits for nothing
        if attempt.stopping:
            driver.on_attempt_stopped(number)
        else:
            described = outcome if isinstance(outcome, str) else f"every slot returned: {outcome}"
            # A control connection tells better why the stage ended; give it a moment to do so.
            self._loop.set_timer(
                "stage-ended",
                self._clock.now_ms() + _SYMPTOM_GRACE_MS,
                lambda: driver.on_attempt_failed(number, f"the Spark stage ended: {described}"),
            )

    def _cancel_stage(self, attempt: RunningAttempt) -> None:
        if not attempt.stage_ended:
            attempt.stage.cancel()
            again_ms = self._clock.now_ms() + _CANCEL_AGAIN_MS
            self._loop.set_timer("cancel", again_ms, lambda: self._cancel_stage(attempt))

    def _attempt_failed(self, reason: str, subtask: SubtaskId | None) -> None:
        driver = self._required_driver()
        if self._attempt is not None and not driver.ended:
            driver.on_attempt_failed(self._attempt.number, reason, subtask)

    def _deploying(self, attempt: int) -> RunningAttempt | None:
        """Return an attempt if it is the present one and not every subtask of it runs yet."""
        current, deploying = self._attempt, self._required_driver().state is JobState.DEPLOYING
        return current if deploying and current is not None and current.number == attempt else None

    def _check_deployed(self, attempt: int) -> None:
        deploying = self._deploying(attempt)
        if deploying is not None:
            why = deploying.not_deployed(f"within {self._options.deployment_timeout_ms} ms")
            self._required_driver().on_attempt_failed(attempt, f"{why}; {_MORE_SLOTS}")

    def _watch_slots(self, attempt: int) -> None:
        """An elastic job does not wait for slots that were lost while it was deployed: its next attempt is narrower."""
        deploying = self._deploying(attempt)
        if deploying is not None and slots_of(self._context) < len(deploying.graph.subtasks):
            why = deploying.not_deployed("before executors were lost")
            self._required_driver().on_attempt_failed(attempt, why)
        elif deploying is not None:
            again_ms = self._clock.now_ms() + _LOOK_AT_SLOTS_MS
            self._loop.set_timer("slots-there", again_ms, lambda: self._watch_slots(attempt))

    def _watch_heartbeats(self) -> None:
        for connection in self._required_service().timed_out():
            if not connection.lost:
                connection.lost = True
                connection.close()
                self.slot_lost(connection, f"silent for more than {self._options.heartbeat_timeout_ms} ms")
        next_ms = self._clock.now_ms() + self._options.heartbeat_interval_ms
        self._loop.set_timer("heartbeats", next_ms, self._watch_heartbeats)

    def _after_each(self) -> None:
        """After every call on the loop, look whether the job has ended, and everything that belongs to it."""
        driver = self._driver
        if driver is None or not driver.ended or self._end is not None:
            return
        attempt = self._attempt
        if attempt is None or attempt.stage_ended:
            stopped = driver.stopped_with
            self._end = JobEnd(
                driver.state, driver.reason, stopped.directory if stopped is not None else None
            )
            self._ended.set()
        elif not attempt.stopping:
            # The subtasks were asked to leave; those that do not are made to.
            attempt.stopping = True
            self._loop.set_timer("leave", self._clock.now_ms() + _LEAVE_TIMEOUT_MS, self._leave_now)

    def _leave_now(self) -> None:
        if self._attempt is not None and not self._attempt.stage_ended:
            self._required_service().close_attempt()
            self._cancel_stage(self._attempt)

    def _crashed(self, error: BaseException) -> None:
        if isinstance(error, IncompatibleState):
            _log.error("%s", error)
        else:
            _log.error("the coordinator crashed", exc_info=error)
        if self._crash is None:
            self._crash = error
            self._required_service().close_attempt()
            self._ended.set()

    def _required_driver(self) -> CoordinatorDriver:
        if self._driver is None:
            raise JobUsageError("the runner was not started; call start() first")
        return self._driver

    def _required_service(self) -> CoordinatorService:
        if self._service is None:
            raise JobUsageError("the runner was not started; call start() first")
        return self._service
