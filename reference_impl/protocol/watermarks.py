"""Watermarks: how far event time has come on a channel, at a subtask, and for each key group (EVT-1).

A watermark of t says that no record with an event time of t or before follows on its channel, except late ones. It is
an element of the channel like a batch: it keeps its place among the records, in queues, on the wire and in channel
state. So a barrier that overtakes records overtakes watermarks with them, and a restore hands both out again in their
order: the result is that of an aligned run (EVT-3).

``WatermarkValve`` combines the watermarks of a subtask's inputs. Its watermark is the smallest one of the inputs that
are active, and never goes back. An input that has ended, or is idle, holds nothing up. An idle one that returns counts
again at once: as long as it is behind, the watermark stands still. If all inputs that have not ended are idle, the
watermark is the largest one among them, since it must not depend on which of them became idle last.

A snapshot holds the watermark of each channel, and that of the subtask. Where a change of parallelism brings key groups
together whose subtasks stood at different watermarks, each key group keeps its own as a *floor*: event time does not go
back for any key, and no key's records become late by the watermark of another one (EVT-1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from barrier_tck.reference_impl.ids import ChannelId, KeyGroupRange, SubtaskId

BEGINNING_OF_TIME = -(1 << 62)
"""The watermark (ms) of a channel on which none has come: every record is on time."""
END_OF_TIME = (1 << 62) - 1
"""The watermark (ms) behind the last record of a job that has consumed its input."""


InputState = tuple[int, bool, bool]
"""The watermark (ms) of an input, whether it is idle, and whether it has ended."""


class Watermark(msgspec.Struct, frozen=True):
    """An element of a channel: event time has come so far there."""

    at_ms: int
    """Event time, in milliseconds of the epoch."""
    idle: bool = False
    """Whether the sender expects nothing for now, so that others must not wait for it. It says so when that is over."""
    origin: tuple[ChannelId, ...] = ()
    """Of one in flight that was taken over from a job of another parallelism: the channel as it was (RSC-3). If that
    happened several times before it was read, each channel on which it was, the first one first."""

    def __len__(self) -> int:
        """Return 1: it takes as much room in a channel as one record."""
        return 1


class InputWatermark(msgspec.Struct, frozen=True):
    """How far event time has come on one input channel, or on all channels of an edge."""

    sender: SubtaskId
    """The subtask at the other end of the channel; of an edge, the first subtask of the vertex."""
    edge: int
    """Which of the edges between the two vertices it is."""
    at_ms: int = BEGINNING_OF_TIME
    idle: bool = False
    ended: bool = False

    @property
    def state(self) -> InputState:
        """Return what a valve knows of it."""
        return self.at_ms, self.idle, self.ended


class GroupFloor(msgspec.Struct, frozen=True):
    """Some key groups for which event time has come further than for the subtask that owns them."""

    key_groups: KeyGroupRange
    at_ms: int


class InheritedInputs(msgspec.Struct, frozen=True):
    """The inputs of a subtask of a former job, whose records in flight are taken over (RSC-3)."""

    receivers: tuple[SubtaskId, ...]
    """The subtask that they were on their way to. If the job was rescaled several times before they were read, each one
    that took them over, the first one first."""
    key_groups: KeyGroupRange
    """The key groups that have gone this way."""
    inputs: tuple[InputWatermark, ...]
    """How far event time had come on the inputs of the first one."""


class EventTimeSnapshot(msgspec.Struct, frozen=True):
    """How far event time has come in one subtask, as a part of its snapshot (EVT-1)."""

    at_ms: int
    """Its watermark, which it has passed on."""
    idle: bool = False
    """Whether it has passed on that it is idle."""
    inputs: tuple[InputWatermark, ...] = ()
    floors: tuple[GroupFloor, ...] = ()
    inherited: tuple[InheritedInputs, ...] = ()
    """Set in a part that was redistributed, and as long as anything is in flight that was taken over."""
    by_edge: bool = False
    """Whether each of ``inputs`` stands for all channels of its edge, which are others than when it was taken."""
    repeats: bool = False
    """Whether its receivers may not know ``at_ms`` and ``idle``, as after a change of parallelism, until it says so."""


@dataclass(slots=True)
class _Input:
    at_ms: int = BEGINNING_OF_TIME
    idle: bool = False
    ended: bool = False


class WatermarkValve:
    """Combines the watermarks of some inputs, numbered from 0."""

    def __init__(self, inputs: int) -> None:
        self._inputs = [_Input() for _ in range(inputs)]
        self.at_ms = BEGINNING_OF_TIME
        """The combined watermark."""
        self.idle = False
        """Whether all inputs that have not ended are idle."""

    def advance(self, number: int, watermark: Watermark) -> bool:
        """Take a watermark of an input; returns whether the combined one has advanced, or has become idle or active.

        One that would go back only says that the input is idle or active.
        """
        one = self._inputs[number]
        one.at_ms = max(one.at_ms, watermark.at_ms)
        one.idle = watermark.idle
        return self._combine()

    def end(self, number: int) -> bool:
        """Take the end of an input, which holds nothing up any more; returns what ``advance`` returns."""
        return self.mark((), (number,))

    def mark(self, idle: Iterable[int], ended: Iterable[int]) -> bool:
        """Take that some inputs have become idle and others have ended, all at once; returns what ``advance`` returns.

        One after the other, they could give another watermark, depending on their order.
        """
        for number in idle:
            self._inputs[number].idle = True
        for number in ended:
            self._inputs[number].ended = True
        return self._combine()

    def restore(self, at_ms: int, idle: bool, states: Sequence[InputState]) -> None:
        """Go on where a snapshot stood; ``states`` are in the order of the numbers."""
        self._inputs = [_Input(*state) for state in states]
        self.at_ms, self.idle = at_ms, idle

    def end_all(self) -> None:
        """Take the end of all inputs that have not ended."""
        for one in self._inputs:
            one.ended = True
        self._combine()

    def states(self) -> list[InputState]:
        """Return how far event time has come on each input."""
        return [(one.at_ms, one.idle, one.ended) for one in self._inputs]

    def _combine(self) -> bool:
        before = self.at_ms, self.idle
        open_inputs = [one for one in self._inputs if not one.ended]
        active = [one.at_ms for one in open_inputs if not one.idle]
        self.idle = bool(open_inputs) and not active
        among_idle = max([one.at_ms for one in open_inputs], default=END_OF_TIME)
        self.at_ms = max(self.at_ms, min(active, default=among_idle))
        return (self.at_ms, self.idle) != before


class GroupWatermarks:
    """How far event time has come for each key group of a subtask."""

    def __init__(self, at_ms: int = BEGINNING_OF_TIME, floors: Iterable[GroupFloor] = ()) -> None:
        self.at_ms = at_ms
        """The subtask's watermark."""
        self._floors = [floor for floor in floors if floor.at_ms > at_ms]

    def of(self, group: int) -> int:
        """Return the watermark (ms) of a key group: the subtask's, or its floor if that is higher."""
        if not self._floors:
            return self.at_ms
        return max([self.at_ms, *(one.at_ms for one in self._floors if group in one.key_groups)])

    def advance(self, at_ms: int) -> None:
        """Let the subtask's watermark advance; floors below it are of no further use."""
        self.at_ms = max(self.at_ms, at_ms)
        self._floors = [floor for floor in self._floors if floor.at_ms > self.at_ms]

    def raise_floor(self, key_groups: KeyGroupRange, at_ms: int) -> None:
        """Let event time advance for some key groups alone."""
        if at_ms > self.at_ms and GroupFloor(key_groups, at_ms) not in self._floors:
            lower = [one for one in self._floors if one.key_groups == key_groups and one.at_ms < at_ms]
            self._floors = [*(one for one in self._floors if one not in lower), GroupFloor(key_groups, at_ms)]

    @property
    def floors(self) -> tuple[GroupFloor, ...]:
        """Return the floors above the subtask's watermark."""
        return tuple(self._floors)
