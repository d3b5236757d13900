"""What only the Spark world says on a control connection, beside ``protocol.messages``.

A control connection joins one slot (a Spark task in a Python worker) to the coordinator service on the
driver. First the slot offers itself, then it is deployed, then messages of the protocol pass both ways.
"""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.reference_impl.ids import ChannelId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import LocalCopy
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment


@dataclass(frozen=True, slots=True)
class SlotOffer:
    """Slot to driver: here is a process that can run one subtask."""

    slot: int
    host: str
    """Where data channels reach the slot."""
    data_port: int
    worker_pid: int
    """The Python worker."""
    executor_pid: int
    """The executor's JVM; 0 if it could not be found."""
    executor_id: str
    """What Spark calls the executor; empty if it could not be found."""
    place: str
    """Where the slot finds and keeps local copies of state: its host, or the memory of its executor."""
    copies: tuple[LocalCopy, ...] = ()
    """The local copies that are there, with local recovery on (LOC-9)."""


@dataclass(frozen=True, slots=True)
class ChannelAddress:
    """Where to connect to send into a channel: the receiver's slot, or a proxy before it."""

    channel: ChannelId
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class WatchedPoint:
    """A protocol point at which a subtask (None: any) stops until the driver says ``Resume``."""

    point: str
    """Value of a ``runtime.ports.RuntimePoint``."""
    subtask: SubtaskId | None


@dataclass(frozen=True, slots=True)
class DeploySubtask:
    """Driver to slot: run this subtask."""

    deployment: SubtaskDeployment
    outputs: tuple[ChannelAddress, ...]
    """In the order of ``JobGraph.outputs_of``."""
    watched: tuple[WatchedPoint, ...]
    now_ms: float
    """The coordinator's clock when this was sent: the slot sets its own by it."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Slot to driver, and back: the process is alive."""


@dataclass(frozen=True, slots=True)
class PointReached:
    """Slot to driver: the subtask stands still at a watched point."""

    sequence: int
    """Which stop of this subtask's attempt it is; ``Resume`` repeats it."""
    point: str
    checkpoint: int | None


@dataclass(frozen=True, slots=True)
class Resume:
    """Driver to slot: go on from the point."""

    sequence: int


@dataclass(frozen=True, slots=True)
class FirstRecords:
    """Slot to driver: the subtask finished the first batch of records of its attempt."""

    at_ms: float
    """On the coordinator's clock, as near as the slot knows it."""


@dataclass(frozen=True, slots=True)
class ChannelsRefused:
    """Slot to driver: so many peers were not let in as senders of data channels since the last such message."""

    counts: dict[str, int]
    """By ``handshake.Refusal``."""


@dataclass(frozen=True, slots=True)
class SubtaskLeft:
    """Slot to driver: the subtask ended in good order; that the connection ends next is no failure."""
