"""What runs inside a Spark task: one slot, which becomes one subtask, from registration to its status row.

The task's closure (``SubtaskProgram``) comes through Spark; everything else comes over the control
connection. The loop is the one thread that touches the subtask driver. A task that reached the coordinator always
*returns*, failed subtasks included: the coordinator learns of failures over the connection, and the Python worker
stays fit for the next attempt.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil

from barrier_tck.reference_impl.config import CheckpointMode, CopyMedium, JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.alignment_states import ChannelPolicy
from barrier_tck.reference_impl.protocol.messages import ChannelControl, CheckpointBarrier, EndOfChannel
from barrier_tck.reference_impl.runtime.channel_snapshots import policies_of
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import Buffer, RuntimePoint
from barrier_tck.reference_impl.runtime.state_copies import failure_of
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.spark.connect import connect_with_retries
from barrier_tck.reference_impl.spark.control_link import ControlLink, SlotProbe
from barrier_tck.reference_impl.spark.control_wire import ConnectionLost
from barrier_tck.reference_impl.spark.event_loop import LoopBackground, MonotonicClock
from barrier_tck.reference_impl.spark.event_loop_timers import EventLoopTimers
from barrier_tck.reference_impl.spark.executor_memory import executor_memory
from barrier_tck.reference_impl.spark.handshake import Claim, NotAdmitted, Unanswered
from barrier_tck.reference_impl.spark.link_messages import (
    ChannelAddress,
    DeploySubtask,
    SlotOffer,
    SubtaskLeft,
)
from barrier_tck.reference_impl.spark.mailbox import Arrivals, Mailbox, SubtaskCancelled
from barrier_tck.reference_impl.spark.output_buffers import BufferedOutput
from barrier_tck.reference_impl.spark.routes import CoordinatorAddress
from barrier_tck.reference_impl.spark.spark_options import SparkOptions
from barrier_tck.reference_impl.spark.transport import (
    ChannelSender,
    ChannelServer,
    OpenConnections,
    connect_channel,
)
from barrier_tck.reference_impl.storage.copy_memory import MemoryFileSystem
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem
from barrier_tck.reference_impl.storage.local_copies import copies_on, local_root

_SYMPTOM_GRACE_S = 0.05
_log = logging.getLogger(__name__)

StatusRow = tuple[int, str, str, str]
"""Slot, subtask (empty if none came), how it ended (``finished``, ``cancelled``, ``failed``), and why."""


@dataclass(frozen=True, slots=True)
class Executor:
    """The executor JVM that a Python worker belongs to."""

    pid: int
    """0: not found."""
    name: str
    """What Spark calls it."""
    host: str
    """The address that Spark knows the machine by."""


@dataclass(frozen=True)
class SubtaskProgram:
    """What every slot of an attempt is given by Spark: the job, and where the coordinator is."""

    graph: JobGraph
    plane: Callable[[], DataPlane]
    components: Components
    files_root: str
    """Directory that every process of the job reaches."""
    coordinator: CoordinatorAddress
    attempt: AttemptNumber
    options: SparkOptions
    secret: bytes = field(repr=False)
    config: JobConfig
    """Whether slots offer a place for copies of state, and which (LOC-1)."""

    def local_files(self) -> FileSystem | None:
        """Return the place for the job's copies; None without local recovery.

        On disk, it lies in what Spark's worker gives its application for local files. That directory belongs to the
        application and not to the executor: the next executor on the worker finds it, and the worker removes it
        with the application. It is gone when the host is. Memory belongs to the executor.
        """
        if not self.config.local_recovery:
            return None
        if self.config.local_copies is CopyMedium.MEMORY:
            own = executor_memory()
            root = str(local_root("", self.graph.name, self.files_root))
            return (
                MemoryFileSystem(own.memory, root, self.config.local_memory_bytes)
                if own is not None
                else None
            )
        base = application_directory()
        return (
            LocalFileSystem(local_root(base, self.graph.name, self.files_root)) if base is not None else None
        )

    def place_of_copies(self, host: str) -> str:
        """Return the name of that place: the host's, or one of its own for the memory of each executor."""
        own = executor_memory() if self.config.local_copies is CopyMedium.MEMORY else None
        return own.place(host) if own is not None else host

    def __call__(self, _partition: Iterable[Any]) -> Iterator[StatusRow]:
        """Be a slot; the body of ``mapPartitions`` on a barrier stage."""
        from pyspark import BarrierTaskContext

        with self.components.instruments.around_process():
            yield run_slot(self, BarrierTaskContext.get().partitionId(), executor_of_this_process())


def run_slot(program: SubtaskProgram, number: int, executor: Executor) -> StatusRow:
    """Register, run what is deployed, and return how it ended.

    Raises RuntimeFailure if the coordinator cannot be reached: only Spark can tell it then, by the stage's failure.
    """
    server = ChannelServer(executor.host)
    try:
        # Before the coordinator knows of the slot: a slow disk must not count as silence.
        local = program.local_files()
        copies = copies_on(local, program.graph.subtasks) if local is not None else ()
        link = _link_to_coordinator(program, number, executor.host)
    except NotAdmitted as error:
        server.close()
        return (number, "", "cancelled", str(error))
    except BaseException:
        server.close()
        raise
    try:
        process = os.getpid(), executor.pid, executor.name
        place = program.place_of_copies(executor.host)
        offer = SlotOffer(number, executor.host, server.port, *process, place, copies)
        deploy = link.await_deployment(offer)
        link.report_refused(server.take_refused)
        end, reason = _SubtaskRun(program, deploy, link, server, executor.host).run()
        return (number, str(deploy.deployment.subtask), end, reason)
    except SubtaskCancelled as error:
        return (number, "", "cancelled", str(error))
    finally:
        with contextlib.suppress(SubtaskCancelled):  # no coordinator is left to count them
            link.send_refused()
        link.close()
        server.close()


def _link_to_coordinator(program: SubtaskProgram, number: int, host: str) -> ControlLink:
    options = program.options

    def connect(left_s: float) -> ControlLink:
        return ControlLink.connect(
            program.coordinator.of_slot(host, number),
            program.secret,
            Claim("slot", program.attempt, str(number)),
            options.heartbeat_interval_ms / 1000.0,
            min(left_s, options.heartbeat_timeout_ms / 1000.0),
            options.isolation_timeout_ms / 1000.0,
        )

    never_stopped = threading.Event()
    return connect_with_retries(connect, options.connect_timeout_ms / 1000.0, never_stopped.wait)


def local_directory() -> str | None:
    """Return Spark's directory for local files, which goes with the application even if this process is killed.

    None where Spark named none.
    """
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None


def application_directory() -> str | None:
    """Return the directory for local files that all executors of the application on this worker share, if there is one.

    A standalone worker names it in the environment of its executors. Elsewhere it is the one around the executor's own.
    """
    shared = os.environ.get("SPARK_EXECUTOR_DIRS", "").split(os.pathsep)[0]
    if shared:
        return shared
    own = local_directory()
    return os.path.dirname(own) if own is not None else None


def executor_of_this_process() -> Executor:
    """Find the executor above this Python worker among its ancestors; in local mode that is the driver."""
    for process in psutil.Process().parents():
        try:
            arguments = process.cmdline()
        except psutil.Error:
            continue
        options = dict(itertools.pairwise(arguments))
        if "--executor-id" in options:
            return Executor(process.pid, options["--executor-id"], options.get("--hostname", "127.0.0.1"))
        if any("org.apache.spark" in argument for argument in arguments):
            return Executor(process.pid, "driver", "127.0.0.1")
    return Executor(0, "", socket.gethostname())


def _wake_loop() -> None:
    """Do nothing: the call wakes the loop."""


class _SubtaskRun:
    """One subtask in this process."""

    def __init__(
        self,
        program: SubtaskProgram,
        deploy: DeploySubtask,
        link: ControlLink,
        server: ChannelServer,
        host: str,
    ) -> None:
        self._program = program
        self._deploy = deploy
        self._link = link
        self._server = server
        self._host = host
        self._opened = OpenConnections()
        self._inputs = program.graph.inputs_of(deploy.deployment.subtask)
        checkpoints = deploy.deployment.config.checkpoints
        mode = CheckpointMode.EXACTLY_ONCE if checkpoints is None else checkpoints.mode
        policies = policies_of(program.graph, deploy.deployment.subtask, mode)
        self._overtaken = [policy is ChannelPolicy.OVERTAKE for policy in policies]
        options = program.options
        feedback = [n for n, channel in enumerate(self._inputs) if program.graph.edge_of(channel).feedback]
        arrivals = Arrivals(self._on_announced, self._on_arrived, self._is_recorded)
        self._mailbox = Mailbox(len(self._inputs), options.channel_batches, arrivals, feedback)
        self._background = LoopBackground(self._mailbox.post, 1, "snapshots")
        self._clock = MonotonicClock(deploy.now_ms)
        self._timers = EventLoopTimers(self._clock)
        self._driver: SubtaskDriver | None = None
        self._output: BufferedOutput | None = None

    def run(self) -> tuple[str, str]:
        """Run to the end and return how it ended and why."""
        deployment = self._deploy.deployment
        self._link.start_reading(self._on_message, self._cancel)
        try:
            self._server.start(self._inputs, deployment.attempt, self._program.secret, self._mailbox)
            output = self._output = self._connect()
            driver = self._driver = self._build(output)
            driver.open()
            self._loop(driver, output)
            output.finish()
            self._link.send(SubtaskLeft())
        except SubtaskCancelled as error:
            return ("cancelled", str(error))
        except ConnectionLost as error:
            # A neighbour that died takes its channels along. The coordinator knows of the death itself, which
            # explains more than the broken channel does: leave it a moment to say so.
            if self._link.ends_within(_SYMPTOM_GRACE_S):
                return ("cancelled", str(error))
            return self._failed(error)
        except RuntimeFailure as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - a bug of ours or of the job's functions: the job must learn it
            _log.exception("%s failed", deployment.subtask)
            return self._failed(error)
        finally:
            self._release()
        return ("finished", "")

    def _failed(self, error: Exception) -> tuple[str, str]:
        failure = failure_of(self._deploy.deployment, error)
        try:
            self._link.send(failure)
        except SubtaskCancelled:
            return ("cancelled", failure.reason)
        return ("failed", failure.reason)

    def _connect(self) -> BufferedOutput:
        attempt, program = self._deploy.deployment.attempt, self._program
        bound_s = program.options.connect_timeout_ms / 1000.0

        def sender(address: ChannelAddress) -> ChannelSender:
            def connect(left_s: float) -> ChannelSender:
                return connect_channel(
                    address.channel,
                    address.host,
                    address.port,
                    attempt,
                    program.secret,
                    left_s,
                    self._opened,
                )

            # A receiver that let the channel in takes its end for a failure, and lets it in only once (BAR-2).
            return connect_with_retries(connect, bound_s, self._opened.shut_within, (NotAdmitted, Unanswered))

        options = program.options
        return BufferedOutput(
            [sender(address) for address in self._deploy.outputs],
            options.channel_batches,
            options.channel_bytes,
            options.fragment_bytes,
            on_capacity=lambda: self._mailbox.post(_wake_loop),
            on_sent=lambda channel, checkpoint: self._mailbox.post(
                partial(self._on_sent, channel, checkpoint)
            ),
            on_failure=self._mailbox.fail,
        )

    def _build(self, output: BufferedOutput) -> SubtaskDriver:
        program, deployment = self._program, self._deploy.deployment
        files = LocalFileSystem(program.files_root)
        watched = frozenset(
            RuntimePoint(watched.point)
            for watched in self._deploy.watched
            if watched.subtask in (None, deployment.subtask)
        )
        ports = SubtaskPorts(
            clock=self._clock,
            probe=SlotProbe(self._link, self._clock, watched),
            output=output,
            coordinator=self._link,
            background=self._background,
            storage=program.components.checkpoint_storage(
                files, deployment.job, deployment.config.storage_root
            ),
            files=files,
            buffered_bytes=self._buffered_bytes,
            working_root=local_directory(),
            local_files=program.local_files(),
            host=program.place_of_copies(self._host),
            input_buffers=self._mailbox,
            output_buffers=output,
            has_room=lambda: not output.full,
            timers=self._timers,
        )
        factory = program.components.instruments.subtask_driver or SubtaskDriver
        driver: SubtaskDriver = factory(deployment, program.graph, program.plane(), ports, program.components)
        return driver

    def _loop(self, driver: SubtaskDriver, output: BufferedOutput) -> None:
        mailbox, blocked = self._mailbox, driver.blocked
        next_poll_s = time.monotonic()
        while not driver.finished:
            timer_s = self._timers.due_in_s()
            if timer_s is not None and timer_s <= 0:
                driver.on_timer(self._timers.pop())
                timer_s = (
                    0.0  # however many timers there are: between two of them, what has arrived has its turn
                )
            # Output that has to wait stops the data, never barriers and messages. Once there is room, a call wakes
            # the loop.
            flows = mailbox.reads_data = not output.full
            polls = flows and not driver.exhausted
            poll_s = max(0.0, next_poll_s - time.monotonic()) if polls else None
            taken = mailbox.take(blocked, min((s for s in (poll_s, timer_s) if s is not None), default=None))
            if taken is None:
                if polls and time.monotonic() >= next_poll_s:
                    wait_ms = driver.poll_source()
                    if wait_ms is not None:
                        # Counted from when the poll was due, so that late wake-ups do not add up.
                        next_poll_s = max(next_poll_s + wait_ms / 1000.0, time.monotonic())
            elif not isinstance(taken, tuple):
                taken()
            elif isinstance(taken[1], ChannelControl):
                driver.on_control(taken[0], taken[1])
            else:
                driver.on_data(taken[0], taken[1])

    def _on_message(self, message: Any) -> None:
        self._mailbox.post(lambda: self._give(message))

    def _give(self, message: Any) -> None:
        if self._driver is not None:
            self._driver.on_message(message)

    def _on_announced(self, channel: int, element: CheckpointBarrier | EndOfChannel) -> None:
        assert self._driver is not None
        if isinstance(element, EndOfChannel):
            self._driver.on_close_announced(channel)
        else:
            self._driver.on_announced(channel, element)

    def _on_arrived(self, channel: int, buffer: Buffer) -> None:
        assert self._driver is not None
        self._driver.on_arrived(channel, buffer)

    def _is_recorded(self, channel: int) -> bool:
        assert self._driver is not None
        return self._overtaken[channel] and self._driver.recording[channel] > 0

    def _on_sent(self, channel: int, checkpoint: CheckpointId) -> None:
        if self._driver is not None:
            self._driver.on_sent(channel, checkpoint)

    def _buffered_bytes(self) -> int:
        return self._mailbox.buffered_bytes(self._driver.blocked) if self._driver is not None else 0

    def _cancel(self, reason: str) -> None:
        """End what the loop waits for, from another thread."""
        self._mailbox.fail(SubtaskCancelled(reason))
        self._opened.shut()

    def _release(self) -> None:
        self._cancel("the subtask ended")
        if self._driver is not None:
            try:
                self._driver.close()
            except RuntimeFailure as error:
                _log.warning("%s left something behind: %s", self._deploy.deployment.subtask, error)
        if self._output is not None:
            self._output.close()
        self._background.close()
