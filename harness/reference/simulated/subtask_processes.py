"""Simulated processes: an executor, and a subtask with its mailbox and input gate.

A subtask does one thing in each step: it takes a coordinator message, reads one element from a channel that is not
held back, or emits one batch of its source. The scheduler chooses what comes next, drawing from a named stream. A
process that is killed does nothing more, wherever it stands: a kill in the middle of a step unwinds the step with
``ProcessKilled``.

A process that is paused stands still wherever it is, even in a step; then the world goes on within that step. What
arrives meanwhile waits. Up to ``NOTICE_MS_MAX`` after it is resumed it learns that it was cancelled or orphaned.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.reference.simulated.buffered_channels import BufferedChannel
from barrier_tck.harness.reference.simulated.environment import Background, Environment, ProcessKilled
from barrier_tck.harness.reference.simulated.file_system import SimulatedFileSystem
from barrier_tck.harness.reference.simulated.hosts import SimulatedHost
from barrier_tck.harness.reference.simulated.named_timers import NamedTimers
from barrier_tck.harness.reference.simulated.network import ChannelBroken, DataChannel, Link
from barrier_tck.reference_impl.ids import CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.api import Payload
from barrier_tck.reference_impl.protocol.messages import CancelSubtask, ChannelControl, FinishSubtask
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.runtime.ports import RECORDS_PROCESSED, RuntimePoint
from barrier_tck.reference_impl.runtime.state_copies import failure_of
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

STEP_MS_MAX = 1.0
"""Processing one element takes up to this many virtual milliseconds."""
NOTICE_MS_MAX = 4.0
"""A process that was resumed learns at most this many milliseconds later what its other threads have to report."""
NEVER = math.inf
"""The time of the next step of a process that expects none."""
_POLL, _MESSAGE = -1, -2
"""What a step can be, besides reading a channel."""


class WorldCrashed(BaseException):
    """Carries an error of the world through a paused step during which it happened: it is not the step's own error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Supervisor(Protocol):
    """The coordinator, as a subtask's process sees it."""

    def lost(self, process: SimulatedSubtask, why: str = "was lost") -> None:
        """Notice that a process is gone, or seems to be."""


class SubtaskWorld(Protocol):
    """What a subtask's process needs from its world."""

    @property
    def environment(self) -> Environment:
        """Time, trace and latencies."""

    @property
    def watched(self) -> Mapping[int, Any]:
        """The points at which a fault may strike, by identity."""

    @property
    def records_watched(self) -> bool:
        """Whether a fault may strike while records are processed."""

    def point_reached(
        self, point: RuntimePoint, subtask: str | None, attempt: int, checkpoint: CheckpointId | None
    ) -> None:
        """Handle a protocol point at which a process stands; it may be killed or paused before this returns."""

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Return whether a connection between two ends cannot be opened now."""

    def watch(self, process: SimulatedSubtask) -> None:
        """Check from now on whether the process is silent."""

    def note_failure(self, name: str, error: Exception) -> None:
        """Keep the error that ended a process, for the record."""

    def stop_if_over(self) -> None:
        """End the run if the job has ended and its last process is gone."""


class SimulatedExecutor:
    """A process with slots on a host. Its loss kills every subtask on it; the host's disk stays."""

    def __init__(self, number: int, files: SimulatedFileSystem, host: SimulatedHost) -> None:
        self.number = number
        self.files = files
        self.host = host
        self.subtasks: list[SimulatedSubtask] = []
        self.alive = True
        self.successor: SimulatedExecutor | None = None
        """What has replaced it, if it died and something has."""
        self.pauses = 0
        """How many pauses hold it and all its subtasks."""


class SimulatedSubtask:
    """The process of one subtask of one attempt; also its probe, its output port and its coordinator link."""

    def __init__(
        self,
        world: SubtaskWorld,
        subtask: SubtaskId,
        attempt: int,
        executor: SimulatedExecutor,
        coordinator: Supervisor,
        choices: random.Random,
    ) -> None:
        self.world = world
        self.subtask = subtask
        self.text = str(subtask)
        self.attempt = attempt
        self.name = f"{subtask}#{attempt}"
        self.executor = executor
        self.coordinator = coordinator
        """The coordinator that deployed it."""
        self.alive = True
        self.runs = False
        """Whether it takes steps: it is alive, open and not frozen."""
        self.paused = False
        self._pauses = 0
        """How many pauses hold it; it goes on when the last of them is over."""
        self.frozen = False
        """Whether it is paused, or still stands in the step in which it was paused."""
        self.watched = False
        self.last_heard = 0.0
        """For failure detection (``barrier_tck.harness.reference.simulated.failure_detector``)."""
        self.inputs: list[DataChannel] = []
        self._queues: list[tuple[int, deque[tuple[float, bool, Any]]]] = []
        """The number and the queue of each input channel; every step looks through them."""
        self._feedback: list[tuple[int, deque[tuple[float, bool, Any]], int]] = []
        """The number and the queue of each input channel that closes a loop, and how long the queue should become."""
        self._urgent: list[BufferedChannel] = []
        self._orders = False  # whether some channels are, at times, read before all others
        self.outputs: list[DataChannel] = []
        self.buffered = False
        """Whether its channels are buffered: then it reads barriers even if its outputs are full."""
        self.batch_ms = 0.0
        """How much longer than usual it takes to process a batch (virtual ms)."""
        self._free_at = 0.0
        self.full_outputs = 0
        """How many of them are full; as long as one is, nothing is read and no source is polled."""
        self.mailbox: deque[Any] = deque()
        environment = world.environment
        self.background = Background(environment, self, environment.async_ms_max)
        self.driver: SubtaskDriver | None = None
        self.opened = False
        self.from_coordinator: Link | None = None
        self.to_coordinator: Link | None = None
        self._choices = choices
        self._draw = choices.random
        self._latency_ms = environment.latency_ms
        self._scheduler = environment.scheduler
        self.timers = NamedTimers(environment.scheduler, self._on_timer, choices.random)
        """They go off when the process is resumed, if it is paused."""
        self._note = environment.trace.add
        self.due = NEVER
        """When its next step comes (virtual ms)."""
        self._standing = False
        """Whether it stands still in the middle of a step."""
        self._deferred: list[tuple[Callable[..., None], Any]] = []
        self._deferred_notices: list[Callable[[], None]] = []
        self._poll_at = 0.0
        self._processed_nothing = True

    # --- ports ----------------------------------------------------------------------------------------------

    def reach(self, point: RuntimePoint, checkpoint: CheckpointId | None = None, attempt: int = 0) -> None:
        """Probe: notify the world, and die here if this killed the process."""
        if point is RECORDS_PROCESSED:
            if not (self._processed_nothing or self.world.records_watched):
                return  # by far the most frequent point, and no fault waits for it
            self._processed_nothing = False
        elif id(point) not in self.world.watched:
            return  # no fault can strike here
        self.world.point_reached(point, self.text, self.attempt, checkpoint)
        if self.paused and self.alive:
            self._stand_still()
        if not self.alive:
            raise ProcessKilled

    def send_data(self, channel: int, payload: Payload) -> None:
        """Output port: append a batch."""
        self.outputs[channel].send(True, payload)

    def send_control(self, channel: int, element: ChannelControl) -> None:
        """Output port: append a control element."""
        self.outputs[channel].send(False, element)

    def send(self, message: Any) -> None:
        """Coordinator link."""
        assert self.to_coordinator is not None
        self.to_coordinator.send(message)

    def buffered_bytes(self) -> int:
        """Estimate the bytes that wait in held channels; the row plane counts 64 bytes for each element."""
        now = self._scheduler.now
        return (
            0
            if self.driver is None
            else sum(
                64 * sum(1 for arrival, _, _ in channel.queue if arrival <= now)
                for channel, held in zip(self.inputs, self.driver.blocked, strict=True)
                if held
            )
        )

    # --- life -----------------------------------------------------------------------------------------------

    def read_from(self, channel: DataChannel, crowded_at: int | None = None) -> None:
        """Add an input channel; its number is the number of channels before.

        ``crowded_at`` is the length of the queue of a channel that closes a loop from which on nothing is read from
        outside the loop; None for any other channel.
        """
        channel.receiver = self
        if crowded_at is not None:
            self._orders = True
            self._feedback.append((len(self.inputs), channel.queue, crowded_at))
        self._queues.append((len(self.inputs), channel.queue))
        if isinstance(channel, BufferedChannel):
            channel.number_in = len(self.inputs)
        self.inputs.append(channel)

    def read_first(self, channel: BufferedChannel) -> None:
        """Read what is urgent on an input channel before anything else."""
        self._orders = True
        self._urgent.append(channel)

    def write_to(self, channel: DataChannel) -> None:
        """Add an output channel; its number is the number of channels before."""
        channel.sender = self
        if isinstance(channel, BufferedChannel):
            channel.number_out = len(self.outputs)
        self.outputs.append(channel)

    def _on_timer(self, name: str) -> None:
        if self.frozen and self.alive:
            self.defer(self._on_timer, name)
        elif self.alive and self.driver is not None:
            self.guarded(self.driver.on_timer, name)
            self.wake()

    def attach(self, driver: SubtaskDriver) -> None:
        """Give the process its driver and schedule its opening."""
        self.driver = driver
        delay = self._choices.random() * self._latency_ms
        self._scheduler.at(self._scheduler.now + delay, self._open)

    def _open(self, _: Any) -> None:
        if not self.alive or self.driver is None:
            return
        if self.frozen:
            self.defer(self._open, None)
            return
        self._trace("open")
        self.guarded(self._open_connected)
        self.opened = True
        self.runs = self.alive
        for channel in self.inputs:
            if isinstance(channel, BufferedChannel):
                channel.open()
        self.wake()

    def _open_connected(self) -> None:
        assert self.driver is not None
        if self.world.is_cut(self.text, COORDINATOR):
            self.leave()  # it cannot register; the coordinator does not learn of it
            return
        for channel in self.outputs:
            assert channel.receiver is not None
            if channel.broken or self.world.is_cut(self.text, channel.receiver.text):
                raise ChannelBroken(f"{channel.name}: no answer")
        self.driver.open()

    def receive(self, message: Any) -> None:
        """Put a message of the coordinator into the mailbox; a cancellation acts at once."""
        if not self.alive:
            return
        if isinstance(message, CancelSubtask):
            self.receive_notice("cancelled", self.leave)
            return
        self.mailbox.append(message)
        self.wake()

    def receive_notice(self, what: str, action: Callable[[], None]) -> None:
        """Act on a report of another thread of the process, or some time after it is resumed if it is paused."""
        if not self.alive:
            return
        if self.frozen:
            self._deferred_notices.append(lambda: self.receive_notice(what, action))
            return
        self._trace(what)
        action()

    def orphan(self) -> None:
        """Notice that the control connection has ended, and leave."""
        self.receive_notice("orphaned", self.leave)

    def channel_ended(self, channel: DataChannel) -> None:
        """Notice that an input channel, or an output channel on which this process waits to send, has ended; fail."""
        error = ChannelBroken(f"{channel.name}: the connection is broken")
        self.receive_notice("disconnected", lambda: self._die_of(error))

    def kill(self) -> None:
        """Die at once, without releasing anything."""
        self.alive = self.runs = False

    def pause(self) -> None:
        """Stand still from now on, even in the middle of a step."""
        self._trace("paused")
        self._pauses += 1
        self.paused = self.frozen = True
        self.runs = False
        self.world.watch(self)

    def resume(self) -> None:
        """End one pause, and go on if it was the last."""
        self._pauses = max(0, self._pauses - 1)
        if self.paused and not self._pauses:
            self._trace("resumed")
            self.paused = False
            if not self._standing:
                self._thaw()

    def defer(self, action: Callable[..., None], argument: Any) -> None:
        self._deferred.append((action, argument))

    def _stand_still(self) -> None:
        """Let the world go on until this process is resumed; end the process if the run is over before."""
        self._standing = True
        try:
            in_time = self._scheduler.run_while(lambda: self.paused and self.alive)
        except Exception as error:
            raise WorldCrashed(error) from error
        self._standing = False
        if not in_time:
            self.kill()
        elif self.alive:
            self._thaw()

    def _thaw(self) -> None:
        self.frozen = False
        self.runs = self.alive and self.opened
        deferred, self._deferred = self._deferred, []
        for action, argument in deferred:
            self._scheduler.at(self._scheduler.now, action, argument)
        notices, self._deferred_notices = self._deferred_notices, []
        for notice in notices:
            delay = self._draw() * NOTICE_MS_MAX
            self._scheduler.at(self._scheduler.now + delay, lambda _, notice=notice: notice(), None)
        self.wake()

    def leave(self) -> None:
        """Leave in good order: close the driver, then be gone; background work may still report.

        Whoever is killed while it closes does not come back from there.
        """
        if not self.alive or self.driver is None:
            return
        try:
            self.driver.close()
        except ProcessKilled:
            return
        finally:
            self.alive = self.runs = False
            self.world.stop_if_over()

    def guarded(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Run an action of the process; an error fails the subtask, a kill ends it silently."""
        try:
            action(*arguments)
        except ProcessKilled:
            return
        except Exception as error:  # noqa: BLE001 - the coordinator must learn which error ended the process
            self._die_of(error)

    def _die_of(self, error: Exception) -> None:
        self._trace("failed", repr(error))
        self.world.note_failure(self.name, error)
        assert self.driver is not None, "only a driver's own step can fail"
        self.send(replace(failure_of(self.driver.deployment, error), reason=repr(error)))
        self.leave()

    # --- steps ----------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Make sure that a step comes if there is anything to do."""
        self.expect(self._scheduler.now)

    def expect(self, time_ms: float) -> None:
        if self.runs and self.due > time_ms + STEP_MS_MAX:
            self.due = due = time_ms + self._draw() * STEP_MS_MAX
            self._scheduler.at(due, self._step, due)

    def _step(self, due: float) -> None:
        """Do one thing. It is written without helpers: thousands of schedules per minute pass through here."""
        if due != self.due:
            return  # an earlier step was requested since
        self.due = NEVER
        driver = self.driver
        if not self.runs or driver is None:
            return
        now = self._scheduler.now
        choices = self._enabled(driver, now)
        if choices:
            choice = choices[int(self._draw() * len(choices))] if len(choices) > 1 else choices[0]
            try:
                if choice >= 0:
                    is_data, element = self.inputs[choice].take()
                    if is_data:
                        self._note((now, self.name, "data", choice))
                        driver.on_data(choice, element)
                        if self.batch_ms and not isinstance(element, Watermark):
                            self._free_at = self._scheduler.now + self.batch_ms
                    else:
                        self._note((now, self.name, "control", (choice, element)))
                        driver.on_control(choice, element)
                elif choice == _POLL:
                    self._note((now, self.name, "poll", None))
                    wait_ms = driver.poll_source()
                    if wait_ms:
                        self._poll_at = self._scheduler.now + wait_ms
                else:
                    message = self.mailbox.popleft()
                    self._note((now, self.name, "message", message))
                    driver.on_message(message)
                    if isinstance(message, FinishSubtask):
                        self.leave()
            except ProcessKilled:
                return
            except Exception as error:  # noqa: BLE001 - the coordinator must learn which error ended the process
                self._die_of(error)
        if self.runs:
            self._expect_next(driver)

    def _enabled(self, driver: SubtaskDriver, now: float) -> list[int]:
        """List what may come next: channel numbers, ``_POLL``, or ``_MESSAGE``."""
        choices = [_MESSAGE] if self.mailbox else []
        if self.full_outputs or now < self._free_at:
            return choices if not self.buffered or now < self._free_at else choices + self._barriers(driver)
        if not driver.exhausted:
            if now >= self._poll_at:
                choices.append(_POLL)
            if not self._queues:
                return choices
        blocked = driver.blocked
        for number, queue in self._open_queues(blocked) if self._orders else self._queues:
            if queue and queue[0][0] <= now and not blocked[number]:
                choices.append(number)
        return choices

    def _open_queues(self, blocked: list[bool]) -> list[tuple[int, deque[tuple[float, bool, Any]]]]:
        """Return the queues to read from: while too much waits to go round a loop again, only those that close it.

        A channel that is held back does not count: what holds it may wait for an element from outside.
        """
        urgent = [
            self._queues[one.number_in] for one in self._urgent if one.urgent and not blocked[one.number_in]
        ]
        if urgent:
            return urgent
        crowded = [(n, queue) for n, queue, most in self._feedback if len(queue) >= most and not blocked[n]]
        return crowded or self._queues

    def _barriers(self, driver: SubtaskDriver) -> list[int]:
        """List the channels of which a control element comes next: it is read even if there is no room for output."""
        blocked = driver.blocked
        return [number for number, queue in self._queues if queue and not queue[0][1] and not blocked[number]]

    def _expect_next(self, driver: SubtaskDriver) -> None:
        """Expect a step for the earliest thing that ``_enabled`` would list, now or later."""
        now = self._scheduler.now
        if self.mailbox:
            earliest = now
        elif self.full_outputs:
            if self.buffered and self._barriers(driver):
                self.expect(max(now, self._free_at))
            return  # the receiver wakes this process when it makes room
        elif not driver.exhausted and not self._queues:
            earliest = self._poll_at
        else:
            earliest = NEVER if driver.exhausted else self._poll_at
            blocked = driver.blocked
            for number, queue in self._open_queues(blocked) if self._orders else self._queues:
                if queue and queue[0][0] < earliest and not blocked[number]:
                    earliest = queue[0][0]
            if earliest == NEVER:
                return
        self.expect(max(earliest, now, self._free_at))

    def _trace(self, step: str, details: Any = None) -> None:
        self._note((self._scheduler.now, self.name, step, details))
