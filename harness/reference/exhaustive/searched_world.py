"""A simulated world as a model that can be searched: its steps, and when it stands where it stood before."""

from __future__ import annotations

import functools
import hashlib
import operator
import types
import weakref
from _thread import LockType
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.reference.exhaustive.choosing_order import ChoosingOrder, ChoosingScheduler, Entry
from barrier_tck.harness.reference.exhaustive.scopes import crash_of
from barrier_tck.harness.reference.exhaustive.search import EVERYBODY, Step
from barrier_tck.harness.reference.exhaustive.state_digest import StateDigester
from barrier_tck.harness.reference.exhaustive.world_copies import (
    copied,
    is_shared,
    restored,
    share,
    where_it_stands,
)
from barrier_tck.harness.reference.recorder import RunRecorder
from barrier_tck.harness.reference.simulated.buffered_channels import BufferedChannel
from barrier_tck.harness.reference.simulated.coordinator_process import SimulatedCoordinator
from barrier_tck.harness.reference.simulated.environment import Background, Environment
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk, SimulatedFileSystem
from barrier_tck.harness.reference.simulated.named_timers import NamedTimers
from barrier_tck.harness.reference.simulated.network import DataChannel, Link
from barrier_tck.harness.reference.simulated.simulated_system import SimulatedTrial
from barrier_tck.harness.reference.simulated.simulated_targets import SimulatedTargets
from barrier_tck.harness.reference.simulated.storage_faults import StorageFaults
from barrier_tck.harness.reference.simulated.subtask_processes import SimulatedSubtask
from barrier_tck.harness.reference.simulated.trace import Trace
from barrier_tck.harness.reference.simulated.world import SimulatedWorld, notice
from barrier_tck.harness.support.errors import HarnessError, InternalError
from barrier_tck.harness.trial.nemesis import Nemesis
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.coordinator_events import TriggerDue
from barrier_tck.reference_impl.protocol.messages import CancelSubtask
from barrier_tck.reference_impl.protocol.table import TableMachine
from barrier_tck.reference_impl.runtime.coordinator_driver import CoordinatorDriver
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

CRASH, TIME = "crash", "time"
_POLL, _MESSAGE = -1, -2
_TRIGGER = TriggerDue.name


@dataclass
class _Root:
    """All that a step may change."""

    trial: SimulatedTrial
    order: ChoosingOrder
    triggers: int
    """How many checkpoints may still be triggered at any time."""
    crashes: int
    """How many processes may still crash."""
    held_up_ms: float = 0.0
    """How much time subtasks' timers have taken with them that went off early."""
    crash: Nemesis | None = None
    """The nemesis that let one crash, and the fault."""
    fault: Fault | None = None
    lines_before: int = 0
    """How many lines the history had when one crashed."""
    broken: HarnessError | None = None
    """The rule of its own that the system broke."""
    views: list[bytes] = field(default_factory=list)
    """What was seen of completed checkpoints, encoded."""
    drivers: dict[str, bytes] = field(default_factory=dict)
    """Process -> the digest of its driver, if it is known."""


class SearchedWorld:
    """One plan's world; implements ``search.Model``."""

    def __init__(self, trial: SimulatedTrial, order: ChoosingOrder, triggers: int, crashes: int) -> None:
        """Take a world that has not begun.

        ``triggers`` checkpoints are triggered at any time, later ones only when nothing else is left to do.
        """
        world = trial.world
        # Not the components: what watches them reports to the recorder of its own world.
        share((world.plan, world.job, world.graph, world.config, world.plane, world.nemesis))
        world.begin(SimulatedTargets(world))
        self.root = _Root(trial, order, triggers, crashes)
        self._settle()

    @property
    def world(self) -> SimulatedWorld:
        return self.root.trial.world

    @property
    def _scheduler(self) -> ChoosingScheduler:
        return self.root.order.scheduler

    # --- search.Model ---------------------------------------------------------------------------------------

    def steps(self) -> Sequence[Step]:
        """Return the steps that are possible: those of subtasks first, from the sources on, then the coordinator's."""
        if self._scheduler.stopped:
            return ()
        found = self._steps()
        return [step for step, _ in found]

    def own_accord(self, step: Step) -> bool:
        return step.queue.startswith(CRASH)

    def waiting(self) -> dict[str, list[Step]]:
        found: dict[str, list[Step]] = {}
        for process in self._living():
            if process.mailbox:
                mail = f"mail {process.name}"
                found[mail] = [Step(process.name, mail)] * len(process.mailbox)
            for channel in process.inputs:
                if channel.queue:
                    queue = _channel(channel, process)
                    found[queue] = [Step(process.name, queue)] * len(channel.queue)
        for entry in self._scheduler.entries:
            step = self._step_of(entry)
            found.setdefault(step.queue, []).append(step)
        return found

    def take(self, step: Step) -> None:
        self._scheduler.tick()
        self.root.drivers.pop(step.actor, None)
        if step.actor == EVERYBODY:
            self._scheduler.advance(float(self.world.plan.limits.virtual_ms))
        else:
            action = next((action for possible, action in self._steps() if possible == step), None)
            if action is None:
                raise InternalError(f"{step} is not possible here")
            self._guarded(action)
        self._guarded(self._settle)

    def copy(self) -> bytes:
        return copied(self.root)

    def restore(self, copied: bytes) -> None:
        self.release()
        self.root = restored(copied)

    def release(self) -> None:
        """Release the world, whose parts refer to each other: a search runs without the garbage collector."""
        self.root.trial.release()

    def digest(self) -> Hashable:
        """Return the digest of everything that what follows can depend on, and of what attempts and checkpoints became.

        How that came about is not part of it: see ``lines``.
        """
        return _OUTSIDE.digest(self._state())

    @property
    def recorded(self) -> int:
        """Return how many lines the history has."""
        return len(self.root.trial.recorder.operations)

    def lines(self) -> list[HistoryLine]:
        """Return what was recorded of the run, and where one crashed, as far as judges tell it apart."""
        found = self.lines_since(0)
        if self.root.fault is not None:
            found.insert(self.root.lines_before, CRASHED)
        return found

    def lines_since(self, begin: int) -> list[HistoryLine]:
        """Return what was recorded of the run from a line on, without the crash."""
        return [_line_of(line) for line in self.root.trial.recorder.operations[begin:]]

    def outcome(self) -> Hashable:
        """Return the same for two ends if and only if judges can tell no difference between them."""
        root, broken = self.root, self.root.broken
        return _OUTSIDE.digest(
            (
                str(self.world.coordinator.driver.state),
                _of_disk(self.world.disk),
                told_apart(self.lines()),
                root.fault,
                _of_views(root),
                root.trial.logs.logs,
                None if broken is None else repr(broken),
            )
        )

    def _guarded(self, action: Callable[[], None]) -> None:
        """Do something; if the system breaks a rule of its own, that is the end."""
        try:
            action()
        except HarnessError as error:
            self.root.broken = error
            self._scheduler.stopped = True

    # --- steps ----------------------------------------------------------------------------------------------

    def _living(self) -> list[SimulatedSubtask]:
        return [process for process in self.world._everyone if process.alive]

    def _steps(self) -> list[tuple[Step, Callable[[], None]]]:
        found: list[tuple[Step, Callable[[], None]]] = []
        scheduler, now = self._scheduler, self._scheduler.now
        living = self._living()
        for process in living:
            if process.runs and process.driver is not None:
                choices = process._enabled(process.driver, now)
                for number, choice in enumerate(choices):
                    queue = self._read_from(process, choice)
                    step = functools.partial(self._step, process, number, len(choices))
                    found.append((Step(process.name, queue), step))
        seen: dict[str, None] = {}
        for entry in scheduler.entries:
            of_entry = self._step_of(entry)
            if of_entry.queue in seen or (entry[0] > now and not self._any_time(entry)):
                continue
            seen[of_entry.queue] = None
            found.append((of_entry, functools.partial(self._fire, entry)))
        order = {process.name: position for position, process in enumerate(living)}
        found.sort(key=lambda one: order.get(one[0].actor, len(order)))
        if not found and scheduler.entries:
            found.append((Step(EVERYBODY, TIME), lambda: None))
        if self.root.crashes and not self.world.coordinator.driver.ended:
            found += [
                (Step(process.name, f"{CRASH} {process.name}"), functools.partial(self._crash, process.text))
                for process in living
            ]
            if self.world.coordinator.alive:
                found.append(
                    (
                        Step(self.world.coordinator.name, f"{CRASH} {self.world.coordinator.name}"),
                        functools.partial(self._crash, None),
                    )
                )
        return found

    def _read_from(self, process: SimulatedSubtask, choice: int) -> str:
        if choice == _MESSAGE:
            return f"mail {process.name}"
        return f"poll {process.name}" if choice == _POLL else _channel(process.inputs[choice], process)

    def _step(self, process: SimulatedSubtask, number: int, choices: int) -> None:
        self.root.order.choice.number = (number + 0.5) / choices
        process.due = self._scheduler.now
        process._step(process.due)
        self.root.order.choice.number = 0.0

    def _fire(self, entry: Entry) -> None:
        early_ms = entry[0] - self._scheduler.now
        trigger = self._place_of(entry)[1] == f"timer {_TRIGGER}"
        if early_ms > 0 and trigger:
            self.root.triggers -= 1
        self._scheduler.fire(entry)
        if early_ms > 0 and not trigger:
            # Timers of others may be overdue now, which is no fault of theirs.
            self.root.held_up_ms += early_ms
            self.root.trial.recorder.note(ops.HeldUp(self.root.held_up_ms), process="machine")

    def _crash(self, subtask: str | None) -> None:
        root = self.root
        root.crashes -= 1
        root.fault = crash_of(subtask)
        root.crash = Nemesis((ScheduledFault(root.fault, At(0)),))
        root.crash.bind(SimulatedTargets(self.world), self._scheduler.now_ms)
        root.lines_before = len(root.trial.recorder.operations)
        root.crash.first_attempt_ran()
        root.crash.time_reached(self._scheduler.now)

    def _any_time(self, entry: Entry) -> bool:
        """Return whether a timer may go off before its time, as far as others can tell."""
        owner, argument = getattr(entry[2], "__self__", None), entry[3]
        if not isinstance(owner, NamedTimers):
            return False
        if argument[0] == _TRIGGER:
            return self.root.triggers > 0
        return isinstance(_owner(owner._due), SimulatedSubtask)

    def _settle(self) -> None:
        """Do at once every step that has the same effect now as later."""
        scheduler = self._scheduler
        done = False
        while not done and not scheduler.stopped:
            done = True
            for entry in scheduler.entries:
                if self._passes_unseen(entry):
                    scheduler.fire(entry) if entry[0] <= scheduler.now else scheduler.entries.remove(entry)
                    done = False
                    break

    def _passes_unseen(self, entry: Entry) -> bool:
        time_ms, _, action, argument = entry
        owner = _owner(action, argument)
        if isinstance(owner, NamedTimers):
            if owner._numbers.get(argument[0]) != argument[1]:
                return True
            owner = _owner(owner._due)
        if isinstance(owner, Background):
            owner = owner._owner
        if isinstance(owner, SimulatedSubtask | SimulatedCoordinator) and not owner.alive:
            return True
        if isinstance(owner, SimulatedCoordinator) and owner.driver.ended:
            return True
        if isinstance(argument, SimulatedCoordinator) and not argument.alive:
            return True
        if time_ms > self._scheduler.now:
            return False
        if isinstance(owner, SimulatedSubtask):
            return getattr(action, "__name__", "") == "receive" and not isinstance(argument, CancelSubtask)
        return isinstance(owner, SimulatedWorld) and getattr(action, "__name__", "") == "_heal_all"

    def _step_of(self, entry: Entry) -> Step:
        return Step(*self._place_of(entry))

    def _place_of(self, entry: Entry) -> tuple[str, str]:
        """Return whose step an entry is, and the queue in which it waits."""
        _, _, action, argument = entry
        owner, name = _owner(action, argument), _name(action, argument)
        if isinstance(owner, NamedTimers):
            whose = _owner(owner._due)
            return whose.name, f"timer {argument[0]}" + ("" if argument[0] == _TRIGGER else f" {whose.name}")
        if isinstance(owner, SimulatedCoordinator):
            if name == "receive":
                return owner.name, f"{argument.subtask}#{argument.attempt} to {owner.name}"
            if name == "lost":
                return owner.name, f"loss of {_arguments(action, argument)[0].name}"
            return owner.name, f"{name} {owner.name}"
        if isinstance(owner, SimulatedSubtask):
            return owner.name, f"{name} {owner.name}"
        if isinstance(owner, Background):
            return owner._owner.name, f"{name} {owner._owner.name}"
        if isinstance(owner, BufferedChannel):
            end = owner.receiver if name == "_arrive" else owner.sender
            assert isinstance(end, SimulatedSubtask)
            return end.name, f"{name} {_channel(owner, end)}"
        if isinstance(owner, SimulatedWorld):
            return owner.coordinator.name, f"{name} {owner.coordinator.name}"
        raise InternalError(f"the step {action!r} belongs to no known owner")

    # --- states ---------------------------------------------------------------------------------------------

    def _state(self) -> Any:
        world, root, scheduler = self.world, self.root, self._scheduler
        queues: dict[str, list[Any]] = {}
        for time_ms, _, action, argument in scheduler.entries:
            _, queue = self._place_of((time_ms, 0, action, argument))
            later = time_ms if time_ms > scheduler.now else 0.0
            content = argument
            if isinstance(_owner(action, argument), NamedTimers):
                content = argument[0]
            elif action is notice:
                content = None
            queues.setdefault(queue, []).append((later, content))
        return (
            scheduler.now,
            scheduler.stopped,
            root.triggers,
            root.crashes,
            sorted(queues.items()),
            [(*_of_process(process), self._driver_of(process)) for process in self._living()],
            (world.coordinator.name, world.coordinator.alive, self._driver_of(world.coordinator)),
            _of_disk(world.disk),
            [_encoded(line.operation) for line in _milestones(root)],
            root.fault,
            root.held_up_ms,
            None if root.broken is None else repr(root.broken),
            _of_views(root),
            root.trial.logs.logs,
            world.failures[-3:],
        )

    def _driver_of(self, process: SimulatedSubtask | SimulatedCoordinator) -> bytes:
        """Return the digest of a driver, which only steps of its own process change."""
        drivers = self.root.drivers
        known = drivers.get(process.name)
        if known is None:
            driver = process.driver
            if isinstance(driver, CoordinatorDriver) and driver.ended:
                return driver.state.value.encode()
            known = drivers[process.name] = _OF_DRIVERS.digest(driver)
        return known


def _owner(action: Any, argument: Any = None) -> Any:
    """Return the object whose method an action is."""
    if action is notice:
        return _owner(argument)
    if isinstance(action, functools.partial):
        return _owner(action.func)
    return getattr(action, "__self__", None)


def _name(action: Any, argument: Any) -> str:
    if action is notice:
        return _name(argument, None)
    if isinstance(action, functools.partial):
        return _name(action.func, None)
    return str(action.__name__)


def _arguments(action: Any, argument: Any) -> tuple[Any, ...]:
    found = argument if action is notice else action
    return found.args if isinstance(found, functools.partial) else (argument,)


def _channel(channel: DataChannel, end: SimulatedSubtask) -> str:
    return f"{channel.name}#{end.attempt}"


# --- what a state is ----------------------------------------------------------------------------------------


def _rule_of(kind: type) -> Callable[[Any], Any] | None:
    """Return what counts of objects of a type in a digest; None: all that they hold."""
    if issubclass(kind, _LEFT_OUT):
        return _nothing
    if issubclass(kind, SimulatedSubtask | SimulatedCoordinator | DataChannel):
        return operator.attrgetter("name")
    if issubclass(kind, types.GeneratorType):
        return where_it_stands
    if issubclass(kind, weakref.ReferenceType | LockType):
        return _nothing  # what is referred to is held, and so met, elsewhere; no lock is held between steps
    of_protocol = kind.__module__.startswith(_PROTOCOL) and hasattr(kind, "__dict__") and kind.__dictoffset__
    if of_protocol and not issubclass(kind, msgspec.Struct | Enum | type):
        return _without_order
    return None


_LEFT_OUT = (
    RunRecorder,
    Trace,
    Environment,
    SimulatedWorld,
    SimulatedDisk,
    SimulatedFileSystem,
    StorageFaults,
    ChoosingScheduler,
    SimulatedTrial,
    Link,
)
"""What is looked at elsewhere, or not at all."""


_PROTOCOL = TableMachine.__module__.rpartition(".")[0] + "."


def _nothing(_: Any) -> None:
    return None


def _without_order(machine: Any) -> list[tuple[str, Any]]:
    """Return what a machine of the protocol knows, without its story, and without the order in which subtasks came."""
    return [
        (name, sorted(part.items(), key=_by_key) if isinstance(part, dict) and _by_subtask(part) else part)
        for name, part in vars(machine).items()
        if name != "_story"
    ]


def _rule_outside(kind: type) -> Callable[[Any], Any] | None:
    """Return the same outside of drivers: what waits for one may hold it, and drivers are digested by themselves."""
    return _nothing if issubclass(kind, SubtaskDriver | CoordinatorDriver) else _rule_of(kind)


_OF_DRIVERS = StateDigester(_rule_of, is_shared)
_OUTSIDE = StateDigester(_rule_outside, is_shared)


def _by_key(item: tuple[Any, Any]) -> str:
    return str(item[0])


def _by_subtask(part: dict[Any, Any]) -> bool:
    return isinstance(next(iter(part), None), SubtaskId)


def _of_process(process: SimulatedSubtask) -> Any:
    return (
        process.name,
        process.opened,
        process.full_outputs,
        tuple(process.mailbox),
        [_of_channel(channel) for channel in process.inputs],
        [[job[0] for job in process.background._waiting]],
    )


def _of_channel(channel: DataChannel) -> Any:
    read = tuple((is_data, element) for _, is_data, element in channel.queue)
    if not isinstance(channel, BufferedChannel):
        return read, channel.occupied
    rest = [
        getattr(channel, name)
        for name in ("pending", "_wire", "_early", "_partial", "_cuts", "_passed", "takes_all", "urgent")
    ]
    return read, channel.occupied, rest


def _of_disk(disk: SimulatedDisk) -> Any:
    files = [(path, bytes(disk.files[path].content), disk.files[path].durable) for path in disk.names]
    return files, sorted(name.path for name in disk._unsynced)


_OWN = ("source", "storage", "file systems")
"""The processes of lines that only say what one subtask did in one attempt."""
_MILESTONES = (
    ops.AttemptStarted,
    ops.AttemptRunning,
    ops.AttemptEnded,
    ops.CheckpointTriggered,
    ops.CheckpointCompleted,
    ops.CheckpointAborted,
    ops.SavepointRequested,
    ops.SavepointRefused,
    ops.JobFinished,
    ops.JobStopped,
    ops.JobFailed,
)


class HistoryLine(NamedTuple):
    """A line of a history, for comparisons."""

    kind: str
    """A milestone, what the coordinator heard, or what only says what one subtask did in one attempt."""
    encoded: bytes


_MILESTONE, _HEARD, _OF_ONE = "milestone", "heard", "of one"
CRASHED = HistoryLine(_MILESTONE, b"crash")
"""Stands where one crashed: judges see the fault there."""


def _milestones(root: _Root) -> Iterator[Recorded[Operation]]:
    return (line for line in root.trial.recorder.operations if isinstance(line.operation, _MILESTONES))


def _line_of(line: Recorded[Operation]) -> HistoryLine:
    encoded = _encoded(line.operation)
    if line.process in _OWN or isinstance(line.operation, ops.Finished | ops.Restored | ops.AbortLearned):
        return HistoryLine(_OF_ONE, encoded)
    return HistoryLine(_MILESTONE if isinstance(line.operation, _MILESTONES) else _HEARD, encoded)


def _encoded(operation: Operation) -> bytes:
    """Encode an operation with all its fields: what is left out as a default depends on which copy of it there is."""
    return msgspec.msgpack.encode((type(operation).__name__, *msgspec.structs.astuple(operation)))


def told_apart(lines: Iterable[HistoryLine]) -> bytes:
    """Return a digest that is the same for two histories if and only if judges tell no difference between them.

    These are milestones in their order, the crash among them, what came between them in any order, and what single
    subtasks said.
    """
    own: list[bytes] = []
    parts: list[list[bytes]] = [[]]
    milestones: list[bytes] = []
    for kind, encoded in lines:
        if kind == _OF_ONE:
            own.append(encoded)
        elif kind == _MILESTONE:
            milestones.append(encoded)
            parts.append([])
        else:
            parts[-1].append(encoded)
    told = msgspec.msgpack.encode((milestones, [sorted(part) for part in parts], sorted(own)))
    return hashlib.blake2b(told, digest_size=16).digest()


def _of_views(root: _Root) -> Any:
    """Return what was seen of completed checkpoints; each is encoded once, as it never changes."""
    views = root.trial.recorder.views
    root.views += [msgspec.msgpack.encode(view) for view in views[len(root.views) :]]
    return tuple(root.views)
