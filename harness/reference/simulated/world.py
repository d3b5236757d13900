"""The simulated world: executors, a coordinator, channels and storage in one process and one virtual time.

It supplies the runtime's ports and exposes the targets of faults. The same plan gives the same trace: all choices are
drawn from named streams of the plan's seed, the order of scheduling breaks ties, and no code iterates over a set.

What is simulated, and how it differs from Spark: A lost executor is replaced at once, if at all. A failure is noticed
after the latency of a message. A cancelled process lives on until the cancellation reaches it, so that two attempts
overlap (a zombie period). Subtasks notice a crash of the coordinator in the same way. A deployment on a paused executor
waits there. The coordinator receives messages of zombies and must recognise them by their attempt; on Spark their
connections are closed. A subtask that hears nothing from its coordinator lives on until its connection heals and
breaks; on Spark it ends itself after a while.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from barrier_tck.faults.targets import COORDINATOR, Targets
from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.planned_savepoints import planned_savepoints, started_from
from barrier_tck.harness.reference.repeated_messages import RepeatedMessages
from barrier_tck.harness.reference.simulated.buffered_channels import (
    BufferedChannel,
    InputSide,
    OutputSide,
    holds_records,
)
from barrier_tck.harness.reference.simulated.coordinator_process import SimulatedCoordinator
from barrier_tck.harness.reference.simulated.disturbances import Disturbances
from barrier_tck.harness.reference.simulated.environment import Environment
from barrier_tck.harness.reference.simulated.executors import Lost, SimulatedExecutors
from barrier_tck.harness.reference.simulated.failure_detector import HEARTBEAT_TIMEOUT_MS, Heartbeats
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk, SimulatedFileSystem
from barrier_tck.harness.reference.simulated.hosts import memory_for_copies
from barrier_tck.harness.reference.simulated.network import UNBOUNDED, DataChannel, Link
from barrier_tck.harness.reference.simulated.order import Order, SeededOrder
from barrier_tck.harness.reference.simulated.simulated_placement import placed_on
from barrier_tck.harness.reference.simulated.storage_faults import StorageFaults
from barrier_tck.harness.reference.simulated.subtask_processes import (
    SimulatedExecutor,
    SimulatedSubtask,
    WorldCrashed,
)
from barrier_tck.harness.reference.simulated.trace import Trace
from barrier_tck.harness.support.work_directories import temporary_work_directory
from barrier_tck.harness.system.system_under_test import NemesisHooks
from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.heartbeats import FailureDetector
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint, Savepoint
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.job_observer import JobObserver
from barrier_tck.reference_impl.runtime.ports import RECORDS_PROCESSED, RuntimePoint
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment, SubtaskPorts
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.state.backend import StateCapability

_FAULT_POINTS = {point: ProtocolPoint(point.value) for point in RuntimePoint}
_NOTHING_DEPLOYED = (JobState.CREATED, JobState.STOPPING, JobState.BACKING_OFF)
COORDINATOR_RESTART_MS = 15.0
"""A crashed coordinator is restarted after this many virtual milliseconds."""


class SimulatedWorld:
    """Runs one plan's job to its end."""

    def __init__(  # noqa: PLR0913 - a world has that many parts, and those that are rare have defaults
        self,
        plan: TrialPlan,
        graph: JobGraph,
        config: JobConfig,
        plane: DataPlane,
        components: Components,
        observer: JobObserver,
        nemesis: NemesisHooks,
        disk: SimulatedDisk | None = None,
        order: Order | None = None,
    ) -> None:
        """Set up executors and storage; ``run`` starts the coordinator.

        ``disk`` is the disk of an earlier world. ``order`` decides what comes when; None: the plan's seed does.
        """
        self.plan = plan
        self.job = graph
        """What the user has started: as parallel as it is meant to be."""
        self.graph = graph
        """The job that is deployed; narrower if slots are missing and it is elastic."""
        self.next_graph: Callable[[], JobGraph] = lambda: self.job
        """Gives the job that is started when this one has been stopped with a savepoint."""
        self.starts_from: Callable[[int, str], None] = lambda _, __: None
        """Learns that the job is started from a savepoint, by its id and directory, after its coordinator crashed."""
        self.config = config
        self.plane = plane
        self.components = components
        self.observer = observer
        self.nemesis = nemesis
        self._order = used = SeededOrder(plan.seed, plan.network.change_points) if order is None else order
        self.scheduler = used.scheduler
        self.trace = Trace()
        self.disk = disk if disk is not None else SimulatedDisk()
        self.storage_faults = StorageFaults(plan, self.disk)
        self.environment = Environment(
            self.scheduler,
            self.trace,
            latency_ms=float(plan.network.latency_ms_max),
            async_ms_max=float(plan.checkpoints.async_ms_max),
            network_random=used.stream("network"),
            storage_random=used.stream("storage"),
            take_late_ms=self.storage_faults.take_late_ms,
        )
        self.disturbances = Disturbances(self, plan.seed)
        self.repeats = RepeatedMessages()
        self.heartbeats = Heartbeats(
            self.scheduler,
            plan.seed,
            FailureDetector(HEARTBEAT_TIMEOUT_MS),
            is_awaited=self._is_awaited,
            is_disturbed=lambda process: self.disturbances.any_on((process.text, COORDINATOR)),
        )
        self.processes: dict[SubtaskId, SimulatedSubtask] = {}
        self._everyone: list[SimulatedSubtask] = []
        """Every process that may still be alive, including zombies."""
        self.coordinators = 0
        self._readable_at = 0.0  # the time at which storage answers the coordinator's reads again
        self.failures: list[str] = []
        watched = [point for point, _ in nemesis.watched_points()]
        # By identity, because hashing an enum member would cost more than everything else when a point is passed.
        self.watched = {id(point): fault for point, fault in _FAULT_POINTS.items() if fault in watched}
        self.records_watched = ProtocolPoint.RECORDS_PROCESSED in watched
        keeps_files = StateCapability.LOCAL_FILES in components.state_backend().capabilities
        self._working = temporary_work_directory("world", in_memory=True) if keeps_files else None
        self.working_root = real = self._working.name if self._working is not None else None
        """The real directory of the state backend's files, if it keeps any."""
        in_memory = memory_for_copies(config)
        self.executors = SimulatedExecutors(plan.deployment, self.disk, real, in_memory, self.scheduler)
        self._killed: list[SimulatedSubtask] = []
        self._in_rings: list[Any] = [self.disturbances, self.heartbeats]
        """Objects in reference cycles with the world or with each other: processes, past and present, and targets."""
        self._deployed = 0
        """The attempt that was deployed last."""
        self._ran_on: dict[str, SimulatedExecutor] = {}
        """Subtask -> the executor on which it was deployed last."""
        self._over = False
        """Whether the job has ended."""
        self._ran = False
        """Whether any attempt reached running."""
        self._armed_ms: float | None = None
        """The time at which the nemesis is called next."""
        self.first_record_ms: dict[int, float] = {}
        """Attempt -> the time at which its first batch was processed."""
        self._driver_type = components.instruments.subtask_driver or SubtaskDriver
        self.coordinator = self._new_coordinator()

    # --- running --------------------------------------------------------------------------------------------

    def begin(self, targets: Targets) -> None:
        """Schedule the start of the coordinator.

        ``targets`` is what the nemesis can hit; ``release`` releases it together with the world.
        """
        self._in_rings.append(targets)
        self.nemesis.bind(targets, self.scheduler.now_ms)
        self.scheduler.at(0.0, self._start, self.coordinator)

    def run(self, targets: Targets) -> bool:
        """Run until the job has ended and its processes are gone; return False if the time limit came first."""
        self.begin(targets)
        try:
            return self.scheduler.run(float(self.plan.limits.virtual_ms))
        except WorldCrashed as crash:
            raise crash.error from None

    def release(self) -> None:
        """Release what the processes hold: files outside the simulation, and each other.

        Call it last: it also closes what killed processes left open, and no process is left afterwards. No reference
        cycles remain, so the world's memory is freed with its last reference, without the garbage collector, which
        took a fifth of a trial. Calling it twice is harmless.
        """
        if self._working is not None:
            self.watched = {}  # closing what killed processes left open must not end other processes
            for process in (*self._killed, *self._everyone):
                if process.driver is not None:
                    process.driver.close()
            self._working.cleanup()
        for part in self._in_rings:
            vars(part).clear()
        self._in_rings.clear()
        self.scheduler.clear()

    @property
    def files_repeat(self) -> bool:
        """Whether the state backend's files are the same in each run of the plan."""
        capabilities = self.components.state_backend().capabilities
        return self.working_root is None and StateCapability.DETERMINISTIC_FILES in capabilities

    def stop_if_over(self) -> None:
        """End the run if the job has ended and its last process has left."""
        coordinator = self.coordinator
        if coordinator.alive and coordinator.driver.state is JobState.STOPPED:
            self._start_from_savepoint(coordinator)
        elif coordinator.alive and coordinator.driver.ended:
            self.scheduler.stopped = not [process for process in self._everyone if process.alive]
            if not self._over:
                # No fault strikes any more, and processes that were paused or cut off may leave.
                self._over = True
                self.scheduler.at(self.scheduler.now, self._heal_all)

    def _start_from_savepoint(self, stopped: SimulatedCoordinator) -> None:
        """Start a second job from the savepoint with which the first one was stopped, as a user would.

        Processes of the first job that have not heard of its end by then learn of it in the usual way.
        """
        stopped.alive, savepoint = False, stopped.driver.stopped_with
        assert savepoint is not None
        self.trace.add((self.scheduler.now, stopped.name, "stopped", savepoint.directory))
        self.config = started_from(self.config, self.plan, savepoint.directory)
        self.job = self.graph = self.next_graph()
        for process in self.processes.values():
            self._notify_through(process.from_coordinator, process.orphan)
        self._restart_coordinator(self.scheduler.now + COORDINATOR_RESTART_MS)

    def request_savepoint(self, savepoint: Savepoint, delay_ms: float) -> None:
        """Ask the coordinator of that time for a savepoint; the request is lost if it has died."""
        self.scheduler.at(self.scheduler.now + delay_ms, self._ask_for_savepoint, savepoint)

    def _ask_for_savepoint(self, savepoint: Savepoint) -> None:
        self.coordinator.take_savepoint(savepoint)

    def _heal_all(self, _: Any) -> None:
        self.nemesis.heal_all()

    def _start(self, coordinator: SimulatedCoordinator) -> None:
        if not coordinator.alive:
            return  # it died before it could start, and another one will
        self._arm()
        now = self.scheduler.now
        self.trace.add((now, coordinator.name, "start", None))
        if now < self._readable_at:
            coordinator.files.hide(True)
            self.scheduler.at(self._readable_at, coordinator.files.hide, False)
        try:
            coordinator.start()
        except StorageError as error:
            self.trace.add((now, coordinator.name, "failed", repr(error)))
            coordinator.alive = False
            self._restart_coordinator(now + COORDINATOR_RESTART_MS)  # as its supervisor would

    def _new_coordinator(self) -> SimulatedCoordinator:
        self.coordinators += 1
        # Each is started on the host of the one before.
        files = self.disk.host() if self.coordinators == 1 else self.coordinator.files.of_next_process()
        coordinator = SimulatedCoordinator(self, self.coordinators, files)
        self._in_rings.append(coordinator)
        return coordinator

    def note_failure(self, name: str, error: Exception) -> None:
        """Keep what a process died of, for the record."""
        self.failures.append(f"{name}: {error!r}")

    # --- deployment -----------------------------------------------------------------------------------------

    def deploy(
        self,
        coordinator: SimulatedCoordinator,
        attempt: int,
        graph: JobGraph,
        restore: CompletedCheckpoint | None,
    ) -> None:
        """Start every subtask of an attempt, if there is room for all."""
        self.graph, slots, wanted = graph, self.executors.slots, len(graph.subtasks)
        if slots is not None and slots < wanted:
            self.processes = {}
            coordinator.waits_for_slots(attempt, f"{slots} of {wanted} slots are there")
            return
        network, scheduler = self.plan.network, self.scheduler
        latency_ms = self.environment.latency_ms
        from_coordinator, choices = self._order.sending(COORDINATOR), self._order.stream("choices")
        processes: dict[SubtaskId, SimulatedSubtask] = {}
        executors = self.executors.present
        placed, placement = placed_on(executors, graph.subtasks, restore, self.config.local_recovery)
        if placement is not None:
            self.observer.subtasks_assigned(attempt, placement)
        for subtask, executor in placed.items():
            process = SimulatedSubtask(self, subtask, attempt, executor, coordinator, choices)
            process.from_coordinator = Link(scheduler, from_coordinator, latency_ms, process.receive)
            process.to_coordinator = Link(
                scheduler, self._order.sending(str(subtask)), latency_ms, coordinator.receive
            )
            executor.subtasks.append(process)
            processes[subtask] = process
            self._in_rings.append(process)
        buffered = holds_records(self.config, restore)
        for number, identity in enumerate(self.graph.channels):
            slow = network.slow_factor if number == network.slow_channel else 1
            feedback = self.graph.edge_of(identity).feedback
            capacity = UNBOUNDED if feedback else network.channel_capacity
            sending = self._order.sending(str(identity.sender))
            common = (str(identity), scheduler, sending, latency_ms * slow, capacity)
            channel = (
                BufferedChannel(*common, self.plane, network.buffer_bytes)
                if buffered
                else DataChannel(*common)
            )
            processes[identity.sender].write_to(channel)
            processes[identity.receiver].read_from(channel, network.channel_capacity if feedback else None)
        for process in processes.values():
            process.buffered = buffered
            if process.subtask.vertex == self.plan.deployment.slow_vertex:
                process.batch_ms = float(self.plan.deployment.slow_batch_ms)
        self.processes = processes
        self._deployed = attempt
        self._ran_on |= {process.text: process.executor for process in processes.values()}
        self._everyone = [process for process in self._everyone if process.alive]
        self._everyone.extend(processes.values())
        for process in processes.values():
            self.disturbances.disturb_new(process)
            for _ in range(process.executor.pauses):
                process.pause()
        for subtask, process in processes.items():
            process.attach(self._driver_for(process, subtask, attempt, restore))

    def _driver_for(
        self, process: SimulatedSubtask, subtask: SubtaskId, attempt: int, restore: CompletedCheckpoint | None
    ) -> SubtaskDriver:
        deployment = SubtaskDeployment(
            self.graph.name,
            subtask,
            attempt=AttemptNumber(attempt),
            config=self.config,
            restore=restore.snapshot_of(subtask) if restore is not None else None,
            restored_checkpoint=restore.checkpoint if restore is not None else None,
            stopped=restore is not None and restore.stops_the_job,
        )
        shared, storage_faults, host = process.executor.files, self.storage_faults, process.executor.host
        ports = SubtaskPorts(
            clock=self.scheduler,
            probe=process,
            output=process,
            coordinator=process,
            background=process.background,
            storage=self.components.checkpoint_storage(
                storage_faults.way_to_storage(shared), self.graph.name, self.config.storage_root
            ),
            files=storage_faults.disk_of(shared),
            buffered_bytes=process.buffered_bytes,
            working_root=self.working_root,
            own_threads=False,
            local_files=host.local,
            host=host.name,
            input_buffers=InputSide(process.inputs) if process.buffered else None,
            output_buffers=OutputSide(process.outputs) if process.buffered else None,
            has_room=lambda: not process.full_outputs,
            timers=process.timers,
        )
        driver: SubtaskDriver = self._driver_type(deployment, self.graph, self.plane, ports, self.components)
        return driver

    # --- points and faults ----------------------------------------------------------------------------------

    def point_reached(
        self, point: RuntimePoint, subtask: str | None, attempt: int, checkpoint: CheckpointId | None
    ) -> None:
        """Handle a protocol point at which a process stands; the nemesis may strike before this returns."""
        if point is RECORDS_PROCESSED:
            if attempt not in self.first_record_ms:
                self.first_record_ms[attempt] = self.scheduler.now
        elif point is RuntimePoint.ATTEMPT_RUNNING and not self._ran:
            self._ran = True
            self.nemesis.first_attempt_ran()
            self._arm()
        fault_point = self.watched.get(id(point))
        if fault_point is not None:
            self.trace.add((self.scheduler.now, subtask or "coordinator", "point", (point.value, checkpoint)))
            self.nemesis.point_reached(fault_point, subtask, attempt)
            self._arm()

    def receive_again(self, message: Any) -> None:
        """Deliver a message a second time, to the present coordinator, because its first receiver may have died.

        A coordinator that has not read storage yet takes no message.
        """
        if self.coordinator.driver.state is not JobState.CREATED:
            self.coordinator.receive_once(message)

    def receive_late(self, message: Any) -> None:
        """Deliver a message a second time, as late as from a process of an attempt that is over; else never."""
        if self.coordinator.driver.machine.attempt != message.attempt:
            self.receive_again(message)

    def receive_forged(self, message: Any) -> None:
        """Deliver a message that no subtask sent, after what is under way, to a coordinator that has read storage."""
        self.scheduler.at(self.scheduler.now, self._forged_due, message)

    def _forged_due(self, message: Any) -> None:
        if self.coordinator.driver.state is JobState.CREATED:
            self.scheduler.at(self.scheduler.now + 1.0, self._forged_due, message)
        else:
            self.coordinator.receive_once(message)

    def _arm(self) -> None:
        """Make sure that the nemesis is called when its next fault or healing is due."""
        due = self.nemesis.next_time_ms()
        if due is not None and (self._armed_ms is None or due < self._armed_ms):
            self._armed_ms = due
            self.scheduler.at(due, self._time_reached, due)

    def _time_reached(self, due: float) -> None:
        if self._armed_ms != due:
            return  # something else became due earlier
        self._armed_ms = None
        if not self.coordinator.driver.ended:
            self.nemesis.time_reached(self.scheduler.now)
            self._arm()

    def live(self, subtask: str) -> SimulatedSubtask | None:
        """Return the living process of a subtask, if there is one."""
        process = self.processes.get(SubtaskId.parse(subtask))
        return process if process is not None and process.alive else None

    def hosting(self, subtask: str) -> SimulatedExecutor | None:
        """Return the executor that a subtask runs on. While nothing is deployed: on which it ran last, or what replaced
        that."""
        process = self.live(subtask)
        if process is not None:
            return process.executor
        driver = self.coordinator.driver
        between = driver.state in _NOTHING_DEPLOYED or driver.machine.attempt != self._deployed
        last = self._ran_on.get(subtask) if between else None
        while last is not None and not last.alive:
            last = last.successor
        return last

    def living(self, subtask: str) -> list[SimulatedSubtask]:
        return [process for process in self._everyone if process.alive and process.text == subtask]

    def is_cut(self, sender: str, receiver: str) -> bool:
        """Return whether a subtask cannot connect to another now, or to the coordinator."""
        return self.disturbances.is_cut((sender, receiver))

    def watch(self, process: SimulatedSubtask) -> None:
        """Look from now on whether the process is silent."""
        self.heartbeats.watch(process)

    def _is_awaited(self, process: SimulatedSubtask) -> bool:
        """Return whether the coordinator that deployed a process still waits for it."""
        current = self.processes.get(process.subtask) is process and not self.coordinator.driver.ended
        return current and process.coordinator is self.coordinator

    def kill_executor(
        self, executor: SimulatedExecutor, lose_unsynced: bool, lost: Lost = Lost.PROCESS
    ) -> None:
        """Kill an executor and everything on it; unless it is lost for good, a new one replaces it."""
        self.trace.add((self.scheduler.now, f"executor {executor.number}", "killed", lose_unsynced))
        host = self.executors.lose(executor, lost)
        for process in executor.subtasks:
            if process.alive:
                self.kill_process(process)
        if lose_unsynced or lost is not Lost.PROCESS:
            executor.files.lose_unsynced()
        if lose_unsynced:
            host.local.lose_unsynced()

    def kill_process(self, process: SimulatedSubtask) -> None:
        """Kill one process; the coordinator notices it after a latency, or by missing heartbeats."""
        self.trace.add((self.scheduler.now, process.name, "killed", None))
        process.kill()
        process.background.die_with(process.driver.ports.storage if process.driver is not None else None)
        if self._working is not None:
            self._killed.append(process)
        self.stop_if_over()
        self._notify_through(process.to_coordinator, functools.partial(process.coordinator.lost, process))

    def pause_executor(self, executor: SimulatedExecutor) -> None:
        """Stop an executor and every process on it."""
        executor.pauses += 1
        for process in executor.subtasks:
            if process.alive:
                process.pause()

    def resume_executor(self, executor: SimulatedExecutor) -> None:
        """End one pause of an executor and its processes; what no other pause holds goes on."""
        executor.pauses -= 1
        for process in executor.subtasks:
            process.resume()

    def break_control(self, process: SimulatedSubtask, arrived_ms: float = 0.0) -> None:
        """End a control connection: the coordinator takes the subtask for lost, and the subtask must not go on.

        Both notice it after ``arrived_ms``, when everything that was sent before has arrived.
        """
        self.trace.add((self.scheduler.now, process.name, "broken", COORDINATOR))
        assert process.to_coordinator is not None and process.from_coordinator is not None
        process.to_coordinator.broken = process.from_coordinator.broken = True
        lost = functools.partial(process.coordinator.lost, process, "lost its control connection")
        self._after_latency(lost, arrived_ms)
        self._after_latency(process.orphan, arrived_ms)

    def break_channel(self, channel: DataChannel, arrived_ms: float = 0.0) -> None:
        """End a data channel: its receiver notices it, and so does its sender when it sends or waits to send.

        The receiver notices it after ``arrived_ms``, when everything that was sent before has arrived.
        """
        self.trace.add((self.scheduler.now, channel.name, "broken", None))
        channel.broken = True
        sender, receiver = channel.sender, channel.receiver
        assert sender is not None and receiver is not None
        self._after_latency(lambda: receiver.channel_ended(channel), arrived_ms)
        if channel.full:
            self._after_latency(lambda: sender.channel_ended(channel))

    def crash_coordinator(
        self, lose_unsynced: bool, unreadable_ms: int = 0, from_savepoint: bool = False
    ) -> None:
        """Kill the coordinator; its subtasks notice one by one, and a new one starts from durable storage, or from the
        newest savepoint if no newer checkpoint is complete there.
        """
        old = self.coordinator
        self.trace.add((self.scheduler.now, old.name, "killed", lose_unsynced))
        old.alive = False
        if lose_unsynced:
            old.files.lose_unsynced()
        for process in self.processes.values():
            self._notify_through(process.from_coordinator, process.orphan)
        origin = self._newest_savepoint() if from_savepoint else None
        if origin is not None and origin.savepoint is not None:
            directory = origin.savepoint.directory
            self.trace.add((self.scheduler.now, old.name, "started again from", directory))
            self.config = started_from(self.config, self.plan, directory)
            self.starts_from(origin.checkpoint, directory)
        restart_at = self.scheduler.now + COORDINATOR_RESTART_MS
        self._readable_at = restart_at + unreadable_ms
        self._restart_coordinator(restart_at)

    def _newest_savepoint(self) -> CompletedCheckpoint | None:
        """Return the newest savepoint if the job was not to stop with it and was not started from it before."""
        storage = self.components.checkpoint_storage(
            self.read_only_files(), self.job.name, self.config.storage_root
        )
        found: list[CompletedCheckpoint] = []
        for planned in planned_savepoints(self.plan):
            with contextlib.suppress(StorageError):  # it does not exist, or cannot be read
                found.append(storage.load_savepoint(planned.savepoint.directory))
        newest = max(found, key=lambda one: one.checkpoint, default=None)
        if newest is None or newest.stops_the_job or newest.savepoint is None:
            return None
        return None if newest.savepoint.directory == self.config.start_from else newest

    def _restart_coordinator(self, at_ms: float) -> None:
        self.coordinator = self._new_coordinator()
        self.scheduler.at(at_ms, self._start, self.coordinator)

    def _notify_through(self, link: Link | None, notice: Callable[[], None]) -> None:
        """Let one side of a control connection learn of the other's end, unless a black hole is between them."""
        assert link is not None
        if link.disturbance is None:
            self._after_latency(notice)
        else:
            link.send(None, lambda _: notice())

    def _after_latency(self, action: Callable[[], None], not_before_ms: float = 0.0) -> None:
        self.environment.after_latency(notice, action, not_before_ms=not_before_ms)

    def read_only_files(self) -> SimulatedFileSystem:
        """Return a view of the disk for final reads."""
        return self.disk.host()


def notice(action: Callable[[], None]) -> None:
    """Let a process react to what it has noticed: a step of the scheduler."""
    action()
