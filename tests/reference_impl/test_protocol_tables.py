"""The tables of the protocol's machines: exactly what they list happens, and what they leave out is illegal.

Grain: tables, without any I/O. Random events drive the machines, and everything that they do is compared with their
tables.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, ClassVar

import msgspec
import pytest

from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig, RestartConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol import coordinator_commands as do
from barrier_tck.reference_impl.protocol import coordinator_events as ev
from barrier_tck.reference_impl.protocol.alignment import BarrierAligner
from barrier_tck.reference_impl.protocol.coordinator import FENCED, CoordinatorMachine
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.loop_commands import CloseLoop, RestLoop, StartWave
from barrier_tck.reference_impl.protocol.loop_events import WaveDue
from barrier_tck.reference_impl.protocol.loop_termination import LoopTermination
from barrier_tck.reference_impl.protocol.messages import (
    AcknowledgeCheckpoint,
    ChannelsClosed,
    CompletedCheckpoint,
    DeclineCheckpoint,
    InputConsumed,
    LoopCounted,
    LoopInputEnded,
    Savepoint,
    SnapshotMetrics,
    SourceWatermark,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskRunning,
    SubtaskSnapshot,
    TransactionsCommitted,
)
from barrier_tck.reference_impl.protocol.recording import BarrierRecorder
from barrier_tck.reference_impl.protocol.source_alignment import SourceAlignment
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.protocol.table import IGNORED, STORY_MAX, Leads, TableMachine, leads
from barrier_tck.reference_impl.protocol.tracking import BarrierTracker
from barrier_tck.reference_impl.protocol_page import MACHINES
from barrier_tck.reference_impl.runtime_errors import ProtocolError
from tests.reference_impl.channel_walks import AlignerWalk, RecorderWalk, SubtaskWalk, TrackerWalk, Walk

SUBTASKS = (SubtaskId("source", 0), SubtaskId("count", 0))
Transition = tuple[StrEnum, type, StrEnum]
"""(state, type of the event, next state)."""


# --- the helper ---------------------------------------------------------------------------------------------


class Lamp(StrEnum):
    OFF = "off"
    ON = "on"
    BROKEN = "broken"


class Press:
    """Turns the lamp on or off."""


class Stroke:
    """Does nothing to a lamp."""


class Switch(TableMachine[Lamp, str]):
    def __init__(self) -> None:
        super().__init__("the switch", Lamp.OFF)

    def handle(self, event: object, volts: int = 230) -> tuple[str, ...]:
        return self._take(event, volts)

    def _on_press(self, event: Press, volts: int) -> tuple[str, ...]:
        self.state = Lamp.BROKEN if volts > 240 else Lamp.ON
        return (f"light at {volts} V",)

    def _off(self, event: Press, volts: int) -> tuple[str, ...]:
        self.state = Lamp.OFF
        return ()

    TABLE: ClassVar = {
        Lamp.OFF: {Press: leads(_on_press, Lamp.ON), Stroke: IGNORED},
        Lamp.ON: {Press: leads(_off, Lamp.OFF)},
    }


def test_an_event_is_handled_as_the_table_says_with_what_came_beside_it() -> None:
    switch = Switch()
    assert switch.handle(Stroke()) == () and str(switch.state) == "off"
    assert switch.handle(Press(), 12) == ("light at 12 V",) and str(switch.state) == "on"
    assert len(switch.story()) == 2 and switch.story()[1].endswith("-> ('light at 12 V',)")


def test_an_absent_entry_is_illegal_tells_the_story_and_changes_nothing() -> None:
    switch = Switch()
    switch.handle(Press())
    with pytest.raises(
        ProtocolError, match=r"(?s)the switch: .*Stroke.* illegal in state on .*light at 230 V"
    ):
        switch.handle(Stroke())
    assert switch.state is Lamp.ON and len(switch.story()) == 1


def test_a_handler_that_leads_where_its_entry_does_not_say_is_caught() -> None:
    with pytest.raises(ProtocolError, match="from off to broken, against the table"):
        Switch().handle(Press(), 400)


def test_the_story_is_bounded() -> None:
    switch = Switch()
    for _ in range(2 * STORY_MAX):
        switch.handle(Stroke())
    assert len(switch.story()) == STORY_MAX


# --- the machines -------------------------------------------------------------------------------------------


class JobWalk(Walk):
    """The life of a job with two subtasks: events that are due come in any order."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        checkpoints = CheckpointConfig(interval_ms=10, timeout_ms=50, tolerated_failures=1, max_concurrent=2)
        without = chance.random() < 0.2
        config = JobConfig(None if without else checkpoints, RestartConfig(attempts_max=2, delay_ms=7))
        self.machine = CoordinatorMachine(config, SUBTASKS, SUBTASKS[1:])
        self.due: list[Any] = [ev.JobStarted((), 0, 0)]
        self.due += [ev.SavepointRequested(Savepoint("savepoints/early"))] if chance.random() < 0.1 else []
        self.now = 0.0
        self.resized: list[AttemptNumber] = []

    def choose(self) -> Any:
        nothing_runs = self.machine.state in (JobState.CREATED, JobState.BACKING_OFF)
        if nothing_runs and self.machine.attempt not in self.resized:  # once before each attempt
            self.resized.append(self.machine.attempt)
            return ev.JobResized(SUBTASKS, SUBTASKS[1:])
        return self.due.pop(self.chance.randrange(len(self.due))) if self.due else None

    def tell(self, event: Any) -> None:
        if not isinstance(event, ev.JobResized):  # it comes at the same moment as what follows it
            self.now += 10 * self.chance.random()
        for command in self.machine.handle(event, self.now):
            self.due += self.answers(command)

    def answers(self, command: Any) -> list[Any]:
        chance = self.chance.random
        match command:
            case do.DeployAttempt(attempt=attempt, restore=restore):
                said: list[Any] = [SubtaskRunning(attempt, subtask) for subtask in SUBTASKS]
                said += [InputConsumed(attempt, SUBTASKS[1])] if chance() < 0.7 else []
                wanted = Savepoint("savepoints/one", stop=chance() < 0.7)
                said += [ev.SavepointRequested(wanted)] if chance() < 0.3 else []
                said += [SubtaskFailed(attempt, SUBTASKS[0], "disk")] if chance() < 0.3 else []
                said += [ev.AttemptFailed(attempt, "lost")] if chance() < 0.3 else []
                often = 0.7 if restore is not None and restore.stops_the_job else 0.2
                return said + ([finished(attempt, SUBTASKS[1])] if chance() < often else [])
            case do.SendTrigger(attempt=attempt, checkpoint=checkpoint):
                if chance() < 0.2:
                    return [DeclineCheckpoint(attempt, checkpoint, SUBTASKS[0], "disk")]
                if chance() < 0.3:
                    said = [finished(attempt, SUBTASKS[0]), ChannelsClosed(attempt, SUBTASKS[1])]
                    return [*said, acknowledged(attempt, checkpoint, SUBTASKS[1])]
                return [acknowledged(attempt, checkpoint, subtask) for subtask in SUBTASKS]
            case do.WriteMetadata(completed=completed):
                failed = chance() < 0.3
                return [
                    ev.MetadataFailed(completed.checkpoint, "disk")
                    if failed
                    else ev.MetadataWritten(completed)
                ]
            case do.NotifyComplete(attempt=attempt, checkpoint=checkpoint):
                late = [acknowledged(attempt, checkpoint, SUBTASKS[0])] if chance() < 0.2 else []
                asked = [ev.SavepointRequested(Savepoint("savepoints/late"))] if chance() < 0.1 else []
                said = [finished(attempt, SUBTASKS[1])] if chance() < 0.3 else []
                if not said or chance() < 0.5:
                    said.insert(0, TransactionsCommitted(attempt, SUBTASKS[1], checkpoint))
                return [*said, *late, *asked]
            case do.StopAttempt(attempt=attempt):
                return [ev.AttemptStopped(attempt)]
            case do.FinishJob():
                return [ev.SavepointRequested(Savepoint("savepoints/late"))]
            case do.SetTimer(timer=timer):
                return [timer]
        return []

    @staticmethod
    def fitted(machine: Any, state: StrEnum, event: Any) -> Any:
        return msgspec.structs.replace(event, attempt=machine.attempt) if isinstance(event, FENCED) else event


def acknowledged(
    attempt: AttemptNumber, checkpoint: CheckpointId, subtask: SubtaskId
) -> AcknowledgeCheckpoint:
    part = SubtaskSnapshot(subtask, attempt, ())
    return AcknowledgeCheckpoint(attempt, checkpoint, subtask, part, SnapshotMetrics())


def finished(attempt: AttemptNumber, subtask: SubtaskId) -> SubtaskFinished:
    return SubtaskFinished(attempt, subtask, SubtaskSnapshot(subtask, attempt, (), finished=True))


class LoopWalk(Walk):
    """A loop of two members, one of them fed from outside, between which elements are under way."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.machine = LoopTermination("loop", SUBTASKS, SUBTASKS[:1])
        attempt = AttemptNumber(1)
        self.due: list[Any] = [SubtaskRunning(attempt, subtask) for subtask in SUBTASKS]
        self.due.append(LoopInputEnded(attempt, SUBTASKS[0], "loop"))
        self.counts = {subtask: [0, 0] for subtask in SUBTASKS}
        """What each member has sent and taken."""
        self.to_come = chance.randint(0, 8)
        """So many more elements are made at the most."""
        self.under_way: list[SubtaskId] = []
        self.send(SUBTASKS[0], chance.randint(0, 3))

    def send(self, sender: SubtaskId, elements: int) -> None:
        for _ in range(elements):
            self.counts[sender][0] += 1
            self.under_way.append(self.chance.choice(SUBTASKS))

    def take(self) -> None:
        """Let a member take an element, and send what follows from it."""
        taker = self.under_way.pop(self.chance.randrange(len(self.under_way)))
        self.counts[taker][1] += 1
        made = min(self.to_come, self.chance.randint(0, 2))
        self.to_come -= made
        self.send(taker, made)

    def choose(self) -> Any:
        while self.under_way and (not self.due or self.chance.random() < 0.4):
            self.take()
        event = self.due.pop(self.chance.randrange(len(self.due))) if self.due else None
        if isinstance(event, LoopCounted):  # it counts when it answers
            sent, taken = self.counts[event.subtask]
            return msgspec.structs.replace(event, sent=sent, taken=taken)
        return event

    def tell(self, event: Any) -> None:
        for command in self.machine.handle(event):
            match command:
                case StartWave(wave=wave):
                    self.due += [LoopCounted(AttemptNumber(1), one, "loop", wave, 0, 0) for one in SUBTASKS]
                case RestLoop():
                    self.due.append(WaveDue(AttemptNumber(1), "loop"))
                case CloseLoop():
                    assert not self.under_way, "nothing is under way when a loop is closed (CHL-5)"


class AlignmentWalk(Walk):
    """A group of two aligned sources, each of which comes forward, is idle for a time, or ends."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.machine = SourceAlignment("aligned", 100, SUBTASKS)
        self.reached = dict.fromkeys(SUBTASKS, 0)
        self.ended: set[SubtaskId] = set()

    def choose(self) -> Any:
        member = self.chance.choice(SUBTASKS)
        if member in self.ended or self.chance.random() < 0.1:
            self.ended.add(member)
            return SourceWatermark(AttemptNumber(1), member, 0, ended=True)
        self.reached[member] += self.chance.randint(0, 50)
        idle = self.chance.random() < 0.4
        return SourceWatermark(AttemptNumber(1), member, self.reached[member], idle)

    def tell(self, event: Any) -> None:
        for command in self.machine.handle(event):
            behind = [self.reached[one] for one in SUBTASKS if one not in self.ended]
            assert not behind or command.largest_ms >= min(behind), (
                "the slowest one is never held back (EVT-6)"
            )


WALKS: dict[type[TableMachine[Any, Any]], type[Any]] = {
    CoordinatorMachine: JobWalk,
    SubtaskMachine: SubtaskWalk,
    BarrierAligner: AlignerWalk,
    BarrierTracker: TrackerWalk,
    BarrierRecorder: RecorderWalk,
    LoopTermination: LoopWalk,
    SourceAlignment: AlignmentWalk,
}


@dataclass
class Walked:
    """What many walks of one machine found."""

    seen: set[Transition] = field(default_factory=set)
    machines: dict[StrEnum, Any] = field(default_factory=dict)
    """A machine in each state."""
    events: dict[type, Any] = field(default_factory=dict)
    """An event of each type."""


WALKS_MIN, WALKS_MAX = 500, 30_000


def promised(machine: type[TableMachine[Any, Any]]) -> set[Transition]:
    """Return the transitions to another state that a machine's table names."""
    return {
        (state, event, goal)
        for state, row in machine.TABLE.items()
        for event, entry in row.items()
        for goal in (entry.states if isinstance(entry, Leads) else ())
    }


_walked: dict[type[TableMachine[Any, Any]], Walked] = {}


def walked(machine: type[TableMachine[Any, Any]]) -> Walked:
    """Walk often enough, and then until all that the table says was seen; the result is cached."""
    if machine not in _walked:
        found = _walked[machine] = Walked()
        missing = promised(machine)
        for seed in range(WALKS_MAX):
            missing -= found.seen
            if seed >= WALKS_MIN and not missing:
                break
            going: Walk = WALKS[machine](random.Random(seed))
            for _ in range(64):
                event = going.choose()
                if event is None:
                    break
                before = going.machine.state_for(event)
                if before not in found.machines:
                    found.machines[before] = copy.deepcopy(going.machine)
                going.tell(event)
                found.events[type(event)] = event
                after = going.machine.state_for(event)
                found.seen.add((before, type(event), after))
                if after not in found.machines:  # a state in which a machine's life ends
                    found.machines[after] = copy.deepcopy(going.machine)
                for state, kind in getattr(going, "early", ()):
                    found.seen.add((state, kind, state))
    return _walked[machine]


@pytest.mark.long
@pytest.mark.parametrize("machine", WALKS, ids=lambda machine: machine.__name__)
def test_whatever_a_table_handles_happens_and_leads_wherever_the_table_says(
    machine: type[TableMachine[Any, Any]],
) -> None:
    seen, machines = walked(machine).seen, walked(machine).machines
    assert sorted(machines) == sorted(machine.TABLE), "every state is reached"
    for state, row in machine.TABLE.items():
        for event, entry in row.items():
            if entry is not IGNORED:
                assert any(key[:2] == (state, event) for key in seen), (
                    f"{state}: no {event.__name__} ever came"
                )
            for goal in entry.states if isinstance(entry, Leads) else ():
                assert (state, event, goal) in seen, f"{state}: {event.__name__} never led to {goal}"


@pytest.mark.parametrize(
    ("machine", "state"),
    [(machine, state) for machine in WALKS for state in machine.TABLE],
    ids=lambda value: value.value if isinstance(value, StrEnum) else value.__name__,
)
def test_an_event_without_an_entry_is_illegal_and_leaves_the_machine_unchanged(
    machine: type[TableMachine[Any, Any]], state: StrEnum
) -> None:
    stands, events = walked(machine).machines[state], walked(machine).events
    every = {event for row in machine.TABLE.values() for event in row}
    absent = [event for event in events.values() if type(event) not in machine.TABLE[state]]
    assert len(absent) == len(every) - len(machine.TABLE[state])
    before = plain(stands)
    for event in absent:
        fitted = WALKS[machine].fitted(stands, state, event)
        if stands.state_for(fitted) is not state:
            continue  # another row decides about it: it is about no checkpoint
        with pytest.raises(ProtocolError, match=f"illegal in state {state.value} .*no entry"):
            stands.handle(fitted, *([0.0] if machine is CoordinatorMachine else []))
        assert plain(stands) == before


def plain(value: Any) -> Any:
    """Return a value that is equal for two objects if everything that they hold is equal."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple | deque):
        return [plain(one) for one in value]
    if hasattr(value, "__dict__") and not isinstance(value, Enum):
        return type(value).__name__, plain(vars(value))
    return value


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.STOPPING])
def test_an_outcome_of_metadata_that_nobody_wrote_is_illegal_and_leaves_the_job_unchanged(
    state: JobState,
) -> None:
    machine = walked(CoordinatorMachine).machines[state]
    nothing = CompletedCheckpoint(CheckpointId(99), AttemptNumber(1), 0, 0, ())
    before = plain(machine)
    for event in (ev.MetadataWritten(nothing), ev.MetadataFailed(nothing.checkpoint, "disk")):
        with pytest.raises(ProtocolError, match="metadata of checkpoint 99 is not being written"):
            machine.handle(event, 0.0)
        assert plain(machine) == before


def test_what_another_attempt_sends_is_ignored_in_every_state() -> None:
    for machine in walked(CoordinatorMachine).machines.values():
        before = plain(machine)
        for event in walked(CoordinatorMachine).events.values():
            if isinstance(event, FENCED):
                stale = msgspec.structs.replace(event, attempt=machine.attempt + 1)
                assert machine.handle(stale, 0.0) == ()
        assert plain(machine) == before


def test_every_machine_is_walked() -> None:
    assert list(WALKS) == list(MACHINES)
