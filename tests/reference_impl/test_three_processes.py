"""The three processes of the textbook run of Chandy and Lamport's algorithm, with their exact channel states (CHL-1).

P1 initiates; P3 sees the first marker, then P2. Every process has a channel to each other one and to itself, for its
internal events. Grain: the machines, driven by a script; whatever is in a channel stays in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment_states import ChannelPolicy
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier, TriggerCheckpoint
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import (
    ForwardBarrier,
    SendAcknowledge,
    StoreChannelState,
    StoreSnapshot,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import (
    BarrierArrived,
    ChannelStateStored,
    SnapshotStored,
    SnapshotTaken,
)

SNAPSHOT = CheckpointId(1)
PROCESSES = (1, 2, 3)


@dataclass
class Process:
    """A machine and what it was told to do; its state is the list of messages that it has taken."""

    number: int
    network: Network
    machine: SubtaskMachine = field(init=False)
    taken: list[str] = field(default_factory=list)
    state: list[str] | None = None
    """As recorded in the snapshot."""
    channels: dict[int, list[str]] = field(default_factory=dict)
    """Sender -> what was recorded on its channel."""
    acknowledged: bool = False

    def __post_init__(self) -> None:
        policies = (ChannelPolicy.RECORD,) * len(PROCESSES)
        self.machine = SubtaskMachine(
            f"P{self.number}", len(policies), CheckpointMode.CHANDY_LAMPORT, policies
        )

    def feed(self, event: Any) -> None:
        for command in self.machine.handle(event):
            match command:
                case TakeSnapshot(barrier=barrier):
                    self.state = list(self.taken)
                    self.channels = {sender: [] for sender in PROCESSES}
                    self.feed(SnapshotTaken(barrier))
                case ForwardBarrier(barrier=barrier):
                    for receiver in PROCESSES:
                        self.network.channels[self.number, receiver].append(barrier)
                case StoreSnapshot(checkpoint=checkpoint):
                    self.feed(SnapshotStored(checkpoint))
                case StoreChannelState(checkpoint=checkpoint):
                    self.feed(ChannelStateStored(checkpoint))
                case SendAcknowledge():
                    self.acknowledged = True
                case other:
                    raise AssertionError(other)


class Network:
    """The processes and their channels."""

    def __init__(self) -> None:
        self.channels: dict[tuple[int, int], deque[Any]] = {
            (sender, receiver): deque() for sender in PROCESSES for receiver in PROCESSES
        }
        self.processes = {number: Process(number, self) for number in PROCESSES}

    def done(self) -> list[int]:
        return [number for number, process in self.processes.items() if process.acknowledged]

    def send(self, sender: int, receiver: int, message: str) -> None:
        self.channels[sender, receiver].append(message)

    def deliver(self, sender: int, receiver: int) -> None:
        """Let a process take the next element of a channel: a message, or a marker."""
        process, element = self.processes[receiver], self.channels[sender, receiver].popleft()
        channel = PROCESSES.index(sender)
        if isinstance(element, CheckpointBarrier):
            process.feed(BarrierArrived(channel, element))
            return
        if process.machine.recording[channel]:
            process.channels[sender].append(element)
        process.taken.append(element)


def test_the_run_of_three_processes_gives_exactly_its_channel_states() -> None:
    network = Network()
    p1, p2, p3 = network.processes.values()
    network.send(1, 1, "A")  # an internal event of P1, under way when P1 records itself
    network.send(2, 1, "H->D")
    network.send(3, 3, "J")
    p1.feed(TriggerCheckpoint(SNAPSHOT, 0))
    assert p1.state == [] and [len(network.channels[1, other]) for other in PROCESSES] == [2, 1, 1]
    network.send(1, 3, "E->F")  # sent after P1 recorded itself, behind its marker

    network.deliver(1, 3)  # the first marker at P3
    assert p3.state == [] and p3.machine.recording == [0, 1, 1], "C13 is empty, the others are recorded"
    network.deliver(1, 3)
    assert p3.taken == ["E->F"], "the application goes on, and this is in no snapshot"

    network.deliver(3, 1)  # P1 has recorded itself: C31 is closed
    assert p1.machine.recording == [1, 1, 0]

    network.deliver(3, 2)  # the first marker at P2
    assert p2.state == [] and p2.machine.recording == [1, 1, 0]
    network.deliver(1, 2)
    network.deliver(2, 2)
    assert network.done() == [2], "every channel of P2 is closed"

    network.deliver(2, 1)
    network.deliver(2, 1)  # the message, then the marker
    network.deliver(1, 1)
    network.deliver(1, 1)
    assert network.done() == [1, 2]

    network.deliver(3, 3)
    network.deliver(3, 3)
    assert network.done() == [1, 2]
    network.deliver(2, 3)
    assert network.done() == [1, 2, 3]

    recorded = {
        f"C{sender}{receiver}": network.processes[receiver].channels[sender]
        for sender in PROCESSES
        for receiver in PROCESSES
    }
    messages = {name: found for name, found in recorded.items() if found}
    assert messages == {"C11": ["A"], "C21": ["H->D"], "C33": ["J"]}
    assert not any(network.channels.values())
