"""The coordinator's process in the simulated world."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from barrier_tck.faults.targets import Direction
from barrier_tck.harness.reference.repeated_messages import RepeatedMessages
from barrier_tck.harness.reference.simulated.environment import Background, Environment, ProcessKilled
from barrier_tck.harness.reference.simulated.executors import SimulatedExecutors
from barrier_tck.harness.reference.simulated.file_system import SimulatedFileSystem
from barrier_tck.harness.reference.simulated.named_timers import NamedTimers
from barrier_tck.harness.reference.simulated.storage_faults import StorageFaults
from barrier_tck.harness.reference.simulated.subtask_processes import SimulatedSubtask
from barrier_tck.harness.support.errors import SystemBroke
from barrier_tck.harness.support.raised_by import crash_of
from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.messages import CancelSubtask, CompletedCheckpoint, Savepoint
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.coordinator_driver import CoordinatorDriver
from barrier_tck.reference_impl.runtime.coordinator_ports import CoordinatorPorts
from barrier_tck.reference_impl.runtime.job_observer import JobObserver
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.runtime_errors import ProtocolError, StorageError

DEPLOYMENT_TIMEOUT_MS = 200.0
"""A deployment for which slots are missing fails after this many virtual milliseconds."""


class CoordinatorWorld(Protocol):
    """What the coordinator's process needs from its world."""

    @property
    def environment(self) -> Environment:
        """Time, trace and latencies."""

    @property
    def job(self) -> JobGraph:
        """The job, as parallel as it is meant to be."""

    @property
    def executors(self) -> SimulatedExecutors:
        """The executors, which have room for a number of subtasks."""

    @property
    def config(self) -> JobConfig:
        """The settings of the job."""

    @property
    def components(self) -> Components:
        """The parts from which the runtime is built."""

    @property
    def observer(self) -> JobObserver:
        """The observer that is notified of what happens."""

    @property
    def storage_faults(self) -> StorageFaults:
        """What can go wrong with the storage of checkpoints."""

    @property
    def processes(self) -> Mapping[SubtaskId, SimulatedSubtask]:
        """The processes of the current attempt."""

    def deploy(
        self,
        coordinator: SimulatedCoordinator,
        attempt: int,
        graph: JobGraph,
        restore: CompletedCheckpoint | None,
    ) -> None:
        """Start every subtask of an attempt, if there is room for all."""

    @property
    def repeats(self) -> RepeatedMessages:
        """The messages that come twice."""

    def receive_again(self, message: Any) -> None:
        """Deliver a message a second time, to the present coordinator."""

    def receive_late(self, message: Any) -> None:
        """Deliver a message a second time, to the present coordinator, if the message's attempt is over."""

    def point_reached(
        self, point: RuntimePoint, subtask: str | None, attempt: int, checkpoint: CheckpointId | None
    ) -> None:
        """Handle a protocol point at which the coordinator stands; it may be killed before this returns."""

    def stop_if_over(self) -> None:
        """End the run if the job has ended and its last process is gone."""


class SimulatedCoordinator:
    """The coordinator's process; also its probe and its directory of subtasks."""

    def __init__(self, world: CoordinatorWorld, number: int, files: SimulatedFileSystem) -> None:
        self.world = world
        self.name = f"coordinator#{number}"
        self.alive = True
        self.frozen = False
        """The coordinator is never paused."""
        self.files = files
        self._environment = environment = world.environment
        self._scheduler = environment.scheduler
        background = Background(environment, self, environment.async_ms_max / 2)
        self.storage = world.components.checkpoint_storage(
            world.storage_faults.way_of_coordinator(files),
            world.job.name,
            world.config.storage_root,
        )
        ports = CoordinatorPorts(
            clock=self._scheduler,
            probe=self,
            timers=NamedTimers(self._scheduler, self._on_timer),
            subtasks=self,
            deployer=self,
            background=background,
            storage=self.storage,
            observer=world.observer,
        )
        self.driver = CoordinatorDriver(world.job, world.config, ports, world.components)

    def guarded(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Run an action of the process unless it is dead; a kill in the middle ends it silently."""
        if not self.alive:
            return
        try:
            action(*arguments)
        except ProcessKilled:
            return
        except ProtocolError as error:
            raise SystemBroke(f"the coordinator met an illegal event: {error}") from error
        except Exception as error:
            crash = crash_of(error, "the coordinator")
            if crash is None:
                raise
            raise crash from error
        if self.driver.ended:
            self.world.stop_if_over()

    def start(self) -> None:
        """Start the job; raises StorageError if what is stored of it cannot be read."""
        unreadable: list[StorageError] = []

        def start() -> None:
            try:
                self.driver.start()
            except StorageError as error:
                unreadable.append(error)

        self.guarded(start)
        if unreadable:
            raise unreadable[0]

    def reach(self, point: RuntimePoint, checkpoint: CheckpointId | None = None, attempt: int = 0) -> None:
        """Probe."""
        self.world.point_reached(point, None, attempt, checkpoint)
        if not self.alive:
            raise ProcessKilled

    def _on_timer(self, name: str) -> None:
        if self.alive:
            self._trace("timer", name)
            self.guarded(self.driver.on_timer, name)

    def send(self, subtask: SubtaskId, message: Any) -> None:
        """Directory: send to a subtask of the current attempt."""
        process = self.world.processes.get(subtask)
        if process is not None and process.from_coordinator is not None:
            process.from_coordinator.send(message)
            repeats = self.world.repeats
            if repeats.in_force:
                for late_ms in repeats.copies(process.text, Direction.BACKWARD, message):
                    self._scheduler.at(self._scheduler.now + late_ms, process.from_coordinator.send, message)

    def slots(self) -> int | None:
        """Deployer."""
        return self.world.executors.slots

    def deploy(self, attempt: int, graph: JobGraph, restore: CompletedCheckpoint | None) -> None:
        """Deployer."""
        self._trace("deploy", (attempt, restore.checkpoint if restore else None))
        self.world.deploy(self, attempt, graph, restore)

    def waits_for_slots(self, attempt: int, missing: str) -> None:
        """Wait in vain for the slots of an attempt, which then has failed."""
        reason = f"not every subtask ran within {DEPLOYMENT_TIMEOUT_MS:g} ms: {missing}"
        failed = functools.partial(self.driver.on_attempt_failed, attempt, reason)
        self._scheduler.at(self._scheduler.now + DEPLOYMENT_TIMEOUT_MS, lambda _: self.guarded(failed))

    def stop(self, attempt: int, reason: str) -> None:
        """Deployer: cancel every process; the answer comes as late as a message would."""
        self._trace("stop", attempt)
        for process in self.world.processes.values():
            if process.from_coordinator is not None:
                process.from_coordinator.send(CancelSubtask(reason))
        self._environment.after_latency(self._stopped, attempt)

    def _stopped(self, attempt: int) -> None:
        self.guarded(self.driver.on_attempt_stopped, attempt)

    def receive(self, message: Any) -> None:
        """Take a message of a subtask, which may come again, to the coordinator of that time."""
        world = self.world
        if world.repeats.in_force:
            for late_ms in world.repeats.copies(str(message.subtask), Direction.FORWARD, message):
                self._scheduler.at(self._scheduler.now + late_ms, world.receive_again, message)
            for late_ms in world.repeats.reports(str(message.subtask), message):
                self._scheduler.at(self._scheduler.now + late_ms, world.receive_late, message)
        self.receive_once(message)

    def receive_once(self, message: Any) -> None:
        if self.alive:
            self._trace("receive", message)
            self.guarded(self.driver.on_message, message)

    def take_savepoint(self, savepoint: Savepoint) -> None:
        """Take a user's request for a savepoint."""
        self.guarded(self.driver.request_savepoint, savepoint)

    def defer(self, action: Callable[..., None], argument: Any) -> None:
        """Do something later; this is never called, because a coordinator is never frozen."""
        raise AssertionError(f"{self.name} is never paused")

    def lost(self, process: SimulatedSubtask, why: str = "was lost") -> None:
        """Notice that a process is gone, or seems to be."""
        if self.alive:
            self._trace("lost", process.name)
            reason = f"{process.text} on executor {process.executor.number} {why}"
            self.guarded(self.driver.on_attempt_failed, process.attempt, reason, process.subtask)

    def _trace(self, step: str, details: Any = None) -> None:
        self._environment.trace.add((self._scheduler.now, self.name, step, details))
