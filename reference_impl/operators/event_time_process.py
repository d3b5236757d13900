"""Keyed functions with timers in event time: they act on a key when the watermark has come to a time (EVT-5).

A timer of t goes off once the watermark of its key group is t or more, behind all records that came before that
watermark; one that is set for a time that has passed goes off behind the batch at hand. Timers lie in the state of
their key, so each goes off once over all attempts. Every operator of a chain has a watermark of its own: what the one
before it emits when its timers go off comes first, and is not late.

Windows, joins by interval and the like are such functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext, Payload
from barrier_tck.reference_impl.operators.functions import PerSubtask, Row
from barrier_tck.reference_impl.operators.keyed_process import require_joinable
from barrier_tck.reference_impl.operators.timed_process import (
    AT_THE_END_MAX,
    KeyedTimers,
    TimedProcessOperator,
)
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.protocol.watermarks import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    GroupFloor,
    GroupWatermarks,
)
from barrier_tck.reference_impl.runtime_errors import JobUsageError, ProtocolError
from barrier_tck.reference_impl.state.backend import KeyedStateStore
from barrier_tck.reference_impl.state.keyed import KeyedStates

EVENT_TIMERS = "~event-timers"
"""Name of the state that holds the timers in event time of each key: their times (ms), in order."""

ROWS_AT_ONCE = 4_096
"""What timers emit that go off together is passed on in batches of about so many rows."""

_Due = tuple[int, int, bytes]


class EventTimers(KeyedTimers):
    """The timers in event time of one operator in one subtask. For each key there is at most one for each time."""

    _state: ClassVar[str] = EVENT_TIMERS

    def __init__(self, store: KeyedStateStore, groups: KeyGroupRange, watermarks: GroupWatermarks) -> None:
        super().__init__(store, groups, lambda: watermarks.at_ms)
        self._watermarks = watermarks

    def watermark(self, group: int) -> int:
        """Return how far event time has come for the keys of a key group (ms)."""
        return self._watermarks.of(group)

    def take_due(self) -> _Due | None:
        """Take out the earliest timer that is due; None if none is."""
        due = self.take(self._watermarks.at_ms)
        if due is None and self._watermarks.floors:
            ahead = [one for one in self._live if one[0] <= self._watermarks.of(one[1])]
            if ahead:
                due = min(ahead)
                self.delete(due[1], due[2], due[0])
        return due


class EventTimeFunction(Protocol):
    """A user's function; one instance per subtask and attempt. What it must remember, it keeps in states."""

    def open(self, states: KeyedStates, timers: KeyedTimers, event_timers: EventTimers) -> None:
        """Name the states, and keep the timers: those in processing time, and those in event time."""

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Take a record of an input and return what is passed on; ``group`` and ``key`` are for states and timers."""

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        """A timer in processing time has gone off; return what is passed on."""

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        """A timer in event time has gone off; return what is passed on."""


@runtime_checkable
class EmitsAside(Protocol):
    """A function with side outputs."""

    def open_aside(self, emit: Callable[[str, Row], None]) -> None:
        """Keep what emits a row to a side output, by its name; called before ``open``."""


@runtime_checkable
class FollowsEventTime(Protocol):
    """An operator to which watermarks matter."""

    def advance_watermark(self, at_ms: int) -> Iterable[Payload]:
        """Event time has come so far; yield what is emitted."""

    def raise_floor(self, key_groups: KeyGroupRange, at_ms: int) -> Iterable[Payload]:
        """Event time has come so far for some key groups alone; yield what is emitted."""

    def fire_due(self) -> Iterable[Payload]:
        """Let timers go off that were set for a time that has passed; yield what is emitted."""


@dataclass(frozen=True, slots=True)
class EventTimeProcess:
    """Spec of a keyed function with timers in event time; input i is partitioned by ``keys[i]``."""

    keeps_state: ClassVar[bool] = True
    has_timers: ClassVar[bool] = True
    follows_event_time: ClassVar[bool] = True
    uid: str
    keys: tuple[tuple[str, ...], ...]
    """The key columns of each input. Their names may differ, but not their number."""
    function: Callable[[], EventTimeFunction] | PerSubtask
    """Makes the function of one subtask; shipped to subtasks."""
    side_outputs: tuple[str, ...] = ()
    """The names of its side outputs."""

    def __post_init__(self) -> None:
        if len(self.keys) != 1:
            require_joinable(self.uid, self.keys)

    @property
    def inputs(self) -> int:
        return len(self.keys)

    def build(self, plane: DataPlane) -> EventTimeProcessOperator:
        return EventTimeProcessOperator(self.uid, self.keys, self.function, plane)


@dataclass(frozen=True, slots=True)
class BatchedProcess(EventTimeProcess):
    """Spec of what is defined by a function for each record, and for which a data plane may have an operator."""

    definition: Any = None
    """What is to be done, for ``DataPlane.batched``."""

    def build(self, plane: DataPlane) -> Any:
        """Return the operator of the plane that takes whole batches, if it has one, and else one for the function."""
        return plane.batched(self.definition) or EventTimeProcess.build(self, plane)


class EventTimeProcessOperator(TimedProcessOperator):
    """A ``MultiInputOperator`` around an ``EventTimeFunction``, on either plane, a record at a time."""

    _event_timers: EventTimers | None = None
    _watermarks: GroupWatermarks

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Open the store with the restored files; event time goes on where it stood (REC-1, EVT-1)."""
        self._open_store(context, restored)
        store = self._opened()[1]
        at_ms, floors = BEGINNING_OF_TIME, tuple[GroupFloor, ...]()
        if context.event_time is not None:
            at_ms, floors = context.event_time.at_ms, context.event_time.floors
        self._watermarks = GroupWatermarks(at_ms, floors)
        self._timers = self._make_timers(store, context.key_groups, context.now_ms)
        self._event_timers = EventTimers(store, context.key_groups, self._watermarks)
        self._event_timers.ended = at_ms == END_OF_TIME
        if isinstance(self._function, EmitsAside):
            self._function.open_aside(self._emit_aside)
        self._function.open(self._open_states(), self._timers, self._event_timers)

    def advance_watermark(self, at_ms: int) -> Iterator[Payload]:
        self._watermarks.advance(at_ms)
        self._with_event_timers().ended = at_ms == END_OF_TIME
        return self.fire_due()

    def raise_floor(self, key_groups: KeyGroupRange, at_ms: int) -> Iterator[Payload]:
        self._watermarks.raise_floor(key_groups, at_ms)
        return self.fire_due()

    def fire_due(self) -> Iterator[Payload]:
        """Let all timers go off that are due; raises JobUsageError if those of a key do not end with the input."""
        timers, rows = self._with_event_timers(), list[Row]()
        while (due := timers.take_due()) is not None:
            at_ms, group, key = due
            rows += self._function.on_event_timer(group, key, at_ms)
            if len(rows) >= ROWS_AT_ONCE:
                yield self._plane.from_rows(rows)
                rows = []
            if timers.set_at_the_end[due[2]] > AT_THE_END_MAX:
                raise JobUsageError(
                    f"the input of {self.uid!r} has ended, and its timers in event time do not: each sets another "
                    "one; set none if event_timers.ended"
                )
        if rows:
            yield self._plane.from_rows(rows)

    def end_of_input(self) -> Iterator[Payload]:
        """Let all timers in processing time go off, and those in event time that they set."""
        for payload in super().end_of_input():
            yield payload
            yield from self.fire_due()

    def _emit_aside(self, output: str, row: Row) -> None:
        context, _ = self._opened()
        context.emit_aside(output, self._plane.from_rows([row]))

    def _with_event_timers(self) -> EventTimers:
        if self._event_timers is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._event_timers
