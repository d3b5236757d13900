"""Simulated channels with an output buffer, credits and input buffers, for records in flight in checkpoints (UNA-1).

An element waits in three places: in the sender's output buffer, on the wire, and unread at the receiver. It leaves the
output buffer only if the receiver has room, so what is on the wire always arrives soon; a control element needs no
room. A sender never stands still while it sends: its process reads nothing as long as an output buffer is full, but
takes messages. A barrier may be put ahead of what waits in an output buffer, and what is unread at the receiver can be
asked for.

A batch may be cut into fragments. What the receiver has of an incomplete batch takes no room, since the rest must find
room to arrive. Between two fragments of a batch a barrier may pass; then the batch lies behind it, and its beginning,
which had arrived before, belongs to what lies ahead of it.

A process that stands still has threads that stand still too: nothing leaves its output buffers and nothing arrives.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from barrier_tck.harness.reference.simulated.network import ChannelEnd, DataChannel, Disturbance
from barrier_tck.harness.reference.simulated.scheduler import Scheduler
from barrier_tck.reference_impl.config import JobConfig
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane
from barrier_tck.reference_impl.operators.elements import decode_element, encode_element
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier, CompletedCheckpoint, EndOfChannel
from barrier_tck.reference_impl.runtime.ports import Buffer
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver
from barrier_tck.reference_impl.runtime_errors import ProtocolError
from barrier_tck.reference_impl.storage.channel_state import Fragment


def holds_records(config: JobConfig, restore: CompletedCheckpoint | None) -> bool:
    """Return whether channels hold records of checkpoints: in modes that overtake, and if some are restored."""
    overtakes = config.checkpoints is not None and config.checkpoints.mode.overtakes
    return overtakes or (
        restore is not None and any(part.channels or part.rerouted for part in restore.snapshots)
    )


class BufferedEnd(ChannelEnd, Protocol):
    """A process at one end of a buffered channel."""

    alive: bool
    frozen: bool
    """Whether it stands still."""
    opened: bool
    """Whether its state is restored."""
    driver: SubtaskDriver | None

    def defer(self, action: Callable[..., None], argument: Any) -> None:
        """Do something once this process is resumed."""

    def guarded(self, action: Callable[..., Any], *arguments: Any) -> None:
        """Run an action of the process; the process handles what it raises."""


class _Batch:
    """A whole batch that arrived as bytes."""

    __slots__ = ("fragments",)

    def __init__(self, fragments: tuple[Fragment, ...]) -> None:
        self.fragments = fragments


class BufferedChannel(DataChannel):
    """A channel between two subtasks of one attempt whose buffers can be looked into."""

    __slots__ = (
        "_cuts",
        "_early",
        "_partial",
        "_passed",
        "_plane",
        "_wire",
        "_wire_data",
        "buffer_bytes",
        "number_in",
        "number_out",
        "pending",
        "pending_data",
        "takes_all",
        "urgent",
    )

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        stream: random.Random,
        latency_ms: float,
        capacity: int,
        plane: DataPlane,
        buffer_bytes: int | None,
    ) -> None:
        """Start empty and unconnected; batches are cut into fragments of ``buffer_bytes`` (None: they stay whole)."""
        super().__init__(name, scheduler, stream, latency_ms, capacity)
        self.buffer_bytes = buffer_bytes
        self.number_in = 0
        """Its number among the receiver's inputs."""
        self.number_out = 0
        """Its number among the sender's outputs."""
        self.pending: deque[tuple[bool, Any]] = deque()
        """The output buffer: (is data, element), oldest first."""
        self.pending_data = 0
        self._plane = plane
        self._wire: deque[tuple[bool, Any]] = deque()
        self._wire_data = 0
        self._early = 0
        self._partial: list[Fragment] = []
        self._cuts: dict[int, tuple[Fragment, ...]] = {}
        """Barrier -> what of an incomplete batch had arrived before it."""
        self._passed = 0
        """The newest barrier that was read in line."""
        self.takes_all = False
        """Whether the receiver takes in everything, although it reads nothing."""
        self.urgent = 0
        """How many of the oldest batches must be read before anything on other channels."""

    @property
    def full(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self.pending)

    # --- the sender's side ----------------------------------------------------------------------------------

    def send(self, is_data: bool, element: Any) -> None:
        """Append an element to the output buffer; raises ChannelBroken if the connection has ended."""
        if self.broken:
            self._disturbed(0.0, is_data, element)
        if not is_data:
            self.pending.append((False, element))
        else:
            for buffer in self._cut(element):
                self._append(buffer)
        self.pump()

    def _cut(self, payload: Any) -> Sequence[Buffer]:
        size = self.buffer_bytes
        if size is None:
            return (payload,)
        data = encode_element(self._plane, payload)
        starts = range(0, len(data), size)
        return [Fragment(data[start : start + size], start + size < len(data)) for start in starts]

    def _append(self, buffer: Buffer) -> None:
        self.pending.append((True, buffer))
        self.pending_data += 1
        if self.pending_data == self.capacity and self.sender is not None:
            self.sender.full_outputs += 1

    def put_ahead(self, barrier: CheckpointBarrier) -> tuple[Buffer, ...]:
        """Put a barrier before everything in the output buffer except older barriers; return the data overtaken.

        Older barriers go along, as on Spark, since barriers stay in order (BAR-2).
        """
        older: list[tuple[bool, Any]] = []
        overtaken: list[tuple[bool, Any]] = []
        while self.pending:
            is_data, element = self.pending.popleft()
            if not isinstance(element, CheckpointBarrier):
                overtaken.append((is_data, element))
            elif element.checkpoint < barrier.checkpoint:
                older.append((is_data, element))
            elif element.checkpoint == barrier.checkpoint:
                break
            else:
                raise ProtocolError(f"{barrier} comes after {element} in {self.name}")
        self.pending.extendleft(reversed([*older, (False, barrier), *overtaken]))
        self.pump()
        return tuple(element for is_data, element in overtaken if is_data)

    def _place_of(self, checkpoint: int) -> int | None:
        for place, (_, element) in enumerate(self.pending):
            if isinstance(element, CheckpointBarrier) and element.checkpoint == checkpoint:
                return place
        return None

    def holds(self, checkpoint: int) -> bool:
        """Return whether the barrier of a checkpoint waits in the output buffer."""
        return self._place_of(checkpoint) is not None

    def recover_output(self, fragments: Sequence[Fragment]) -> None:
        """Put data of a checkpoint into the output buffer, before anything was sent."""
        for fragment in fragments:
            self._append(fragment)
        self.pump()

    def pump(self, _: Any = None) -> None:
        """Put on the wire what the receiver has room for, as the sender's threads do."""
        sender: Any = self.sender
        if not sender.alive or self.broken:
            return
        if sender.frozen and self.pending:
            sender.defer(self.pump, None)
            return
        while self.pending and not self.broken:
            is_data, element = self.pending[0]
            if is_data and not self._has_credit():
                return
            self.pending.popleft()
            if is_data:
                self._took_pending()
            elif isinstance(element, CheckpointBarrier) and not element.ahead:
                self._scheduler.at(self._scheduler.now, self._report_sent, element)
            self._transmit(is_data, element)

    def _has_credit(self) -> bool:
        """Return whether data may leave the output buffer, as far as the sender knows."""
        unlimited = self.takes_all and self.returning is None
        return unlimited or self._wire_data + self.occupied < self.capacity

    def _took_pending(self) -> None:
        self.pending_data -= 1
        if self.pending_data == self.capacity - 1 and self.sender is not None:
            self.sender.full_outputs -= 1
            self.sender.wake()

    def _report_sent(self, barrier: CheckpointBarrier) -> None:
        sender: Any = self.sender
        if sender.frozen and sender.alive:
            sender.defer(self._report_sent, barrier)
        elif sender.alive and sender.driver is not None:
            sender.guarded(sender.driver.on_sent, self.number_out, barrier.checkpoint)

    def _transmit(self, is_data: bool, element: Any) -> None:
        scheduler = self._scheduler
        arrival = scheduler.now + self._random() * self._latency_ms
        if self.disturbance is not None:
            disturbed = self._disturbed(arrival, is_data, element)
            if disturbed is None:
                return
            arrival = disturbed
        self._last = arrival = max(arrival, self._last)
        self._wire.append((is_data, element))
        self._wire_data += is_data
        scheduler.at(arrival, self._arrive)

    def size_of(self, is_data: bool, element: Any) -> int:
        """Return the size of an element in bytes: a fragment has its own."""
        return len(element.data) if isinstance(element, Fragment) else super().size_of(is_data, element)

    # --- the receiver's side --------------------------------------------------------------------------------

    def _arrive(self, _: Any = None) -> None:
        receiver: Any = self.receiver
        if not receiver.alive:
            return
        if receiver.frozen:
            receiver.defer(self._arrive, None)
            return
        if not receiver.opened:
            self._early += 1
            return
        is_data, element = self._wire.popleft()
        self._wire_data -= is_data
        driver = receiver.driver
        if is_data:
            self._receive(element)
            if driver.recording and driver.recording[self.number_in]:
                receiver.guarded(driver.on_arrived, self.number_in, element)
            self.pump()
        else:
            self.queue.append((self._scheduler.now, False, element))
            if isinstance(element, CheckpointBarrier):
                if self._partial:
                    self._cuts[element.checkpoint] = tuple(self._partial)
                receiver.guarded(driver.on_announced, self.number_in, element)
            elif isinstance(element, EndOfChannel):
                receiver.guarded(driver.on_close_announced, self.number_in)
        receiver.wake()

    def open(self) -> None:
        """Let everything arrive that came before the receiver was open."""
        early, self._early = self._early, 0
        for _ in range(early):
            self._arrive()

    def _receive(self, buffer: Buffer) -> None:
        """Add data to what is unread: a whole batch, or a fragment, which may complete one."""
        if not isinstance(buffer, Fragment):
            self._add(buffer)
            return
        self._partial.append(buffer)
        if not buffer.more:
            self._add(_Batch(tuple(self._partial)))
            self._partial.clear()

    def _add(self, batch: Any) -> None:
        self.queue.append((self._scheduler.now, True, batch))
        self.occupied += 1

    def take(self) -> tuple[bool, Any]:
        _, is_data, element = self.queue.popleft()
        if is_data:
            self.urgent -= self.urgent > 0
            if self.returning is None:
                self.return_credit()
            else:
                self.send_credit()
            if isinstance(element, _Batch):
                data = b"".join(fragment.data for fragment in element.fragments)
                element = decode_element(self._plane, data)
        elif isinstance(element, CheckpointBarrier):
            self._passed = max(self._passed, element.checkpoint)
        return is_data, element

    def disturb(self, disturbance: Disturbance | None, returning: Disturbance | None) -> None:
        """Set the disturbances; a receiver that takes in everything can report it again once nothing disturbs the way
        back.
        """
        super().disturb(disturbance, returning)
        self.pump()

    def return_credit(self, _: Any = None) -> None:
        """Let the sender know of one more free place, and send what waits for it."""
        self.occupied -= 1
        self.pump()

    def overtake(self, checkpoint: int) -> tuple[Buffer, ...]:
        """Return what is unread ahead of a barrier, and take the barrier out; see ``ports.InputBuffers``."""
        cut = self._cuts.pop(checkpoint, ())
        place = next(
            (
                place
                for place, (_, _, element) in enumerate(self.queue)
                if isinstance(element, CheckpointBarrier) and element.checkpoint == checkpoint
            ),
            None,
        )
        unread = list(self.queue)
        if place is not None:
            del self.queue[place]
            unread = unread[:place]
        elif checkpoint <= self._passed:
            return cut
        else:
            cut = tuple(self._partial)
        found: list[Buffer] = []
        for _, is_data, element in unread:
            if is_data:
                found += element.fragments if isinstance(element, _Batch) else (element,)
        return (*found, *cut)

    def recover_input(self, fragments: Sequence[Fragment], before_all: int) -> None:
        """Put data of a checkpoint before all that arrives, and ``before_all`` batches of it before other channels."""
        for fragment in fragments:
            self._receive(fragment)
        if before_all:
            receiver: Any = self.receiver
            self.urgent = before_all
            receiver.read_first(self)


class OutputSide:
    """The output buffers of one process; implements ``ports.OutputBuffers``."""

    def __init__(self, channels: Sequence[DataChannel]) -> None:
        self._channels: Any = channels

    def send_ahead(self, channel: int, barrier: CheckpointBarrier) -> tuple[Buffer, ...]:
        overtaken: tuple[Buffer, ...] = self._channels[channel].put_ahead(barrier)
        return overtaken

    def holds(self, channel: int, checkpoint: CheckpointId) -> bool:
        return bool(self._channels[channel].holds(checkpoint))

    def recover(self, channel: int, fragments: Sequence[Fragment]) -> None:
        self._channels[channel].recover_output(fragments)


class InputSide:
    """The unread input of one process; implements ``ports.InputBuffers``."""

    def __init__(self, channels: Sequence[DataChannel]) -> None:
        self._channels: Any = channels

    def overtake(self, channel: int, checkpoint: CheckpointId) -> tuple[Buffer, ...]:
        found: tuple[Buffer, ...] = self._channels[channel].overtake(checkpoint)
        return found

    def recover(self, channel: int, fragments: Sequence[Fragment], before_all: int = 0) -> None:
        self._channels[channel].recover_input(fragments, before_all)

    def hold(self, held: bool) -> None:
        """Take in whatever arrives, as long as the input is held."""
        for channel in self._channels:
            channel.takes_all = held
            channel.pump()

    def before_all(self, channel: int) -> int:
        return int(self._channels[channel].urgent)
