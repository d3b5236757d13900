"""Keyed functions with timers: they act on a key when its time has come, without a record of it (STA-1).

A timer belongs to a key and lies in its state, so it is part of every checkpoint, moves with its key group (RSC-3), and
goes off after a restore as it would have done before: at once if its time is past. With states, timers make windows: a
function collects what comes for a key, sets a timer for the end of the window, and passes on what it has when that goes
off. Times are processing time: milliseconds of the epoch, which each host counts on from the coordinator's clock.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol, runtime_checkable

from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext, Payload
from barrier_tck.reference_impl.operators.functions import PerSubtask, Row
from barrier_tck.reference_impl.operators.keyed_process import (
    TIMERS,
    KeyedFunctionOperator,
    require_joinable,
)
from barrier_tck.reference_impl.operators.stateless import flat_mapped
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.runtime_errors import JobUsageError, ProtocolError
from barrier_tck.reference_impl.state.backend import KeyedStateStore
from barrier_tck.reference_impl.state.keyed import Codec, KeyedStates, ListCell

AT_THE_END_MAX = 10_000
"""So many timers of one key may be set at the end of the input; more means that they would never end."""
_STALE_MAX = 1_000
"""So many timers that were deleted may be in the queue beside as many as are set, before it is made anew."""

_Due = tuple[int, int, bytes]
"""Time, key group and key of a timer."""


class KeyedTimers:
    """The timers of one operator in one subtask. For each key there is at most one timer for each time."""

    _state: ClassVar[str] = TIMERS
    """The name of the state that holds them."""

    def __init__(self, store: KeyedStateStore, groups: KeyGroupRange, now_ms: Callable[[], float]) -> None:
        self._store = store
        self._codec: Codec[list[int]] = Codec(self._state, list[int])
        self._now_ms = now_ms
        self.ended = False
        """Whether the input has ended. Every timer goes off then, before its time; a timer that sets itself again must
        not do so any more.
        """
        self.set_at_the_end: Counter[bytes] = Counter()
        """Key -> how many of its timers were set since then."""
        self._queue: list[_Due] = [
            (at_ms, group, key)
            for group in groups
            for key, data in store.scan(self._state, group)
            for at_ms in self._codec.decode(data)
        ]
        """What may be due, the earliest first; what was deleted meanwhile is skipped."""
        self._live = set(self._queue)
        """The timers that are set: the same as in the state."""
        heapq.heapify(self._queue)

    @property
    def now_ms(self) -> int:
        """Return the time now, in milliseconds of the epoch."""
        return int(self._now_ms())

    def set(self, group: int, key: bytes, at_ms: int) -> None:
        """Have ``on_timer`` called for a key at a time; at once, behind the records at hand, if that is past."""
        due = at_ms, group, key
        if due in self._live:
            return
        cell = self._cell(group, key)
        cell.set(sorted([*cell.get(), at_ms]))
        self._live.add(due)
        heapq.heappush(self._queue, due)
        if self.ended:
            self.set_at_the_end[key] += 1

    def delete(self, group: int, key: bytes, at_ms: int) -> None:
        """Remove a timer; it is no error if there is none."""
        due = at_ms, group, key
        if due not in self._live:
            return
        cell = self._cell(group, key)
        cell.set([one for one in cell.get() if one != at_ms])
        self._live.discard(due)
        if len(self._queue) > 2 * len(self._live) + _STALE_MAX:
            self._queue = list(dict.fromkeys(one for one in self._queue if one in self._live))
            heapq.heapify(self._queue)

    def next_ms(self) -> int | None:
        """Return the time of the earliest timer; None if none is set."""
        while self._queue and self._queue[0] not in self._live:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def take(self, until_ms: float | None) -> _Due | None:
        """Take out the earliest timer if it is due by a time, or at all if that is None; None if there is none."""
        at_ms = self.next_ms()
        if at_ms is None or (until_ms is not None and at_ms > until_ms):
            return None
        _, group, key = heapq.heappop(self._queue)
        self.delete(group, key, at_ms)
        return at_ms, group, key

    def _cell(self, group: int, key: bytes) -> ListCell[int]:
        return ListCell(self._store, self._codec, group, key)


class TimedFunction(Protocol):
    """A user's function; one instance per subtask and attempt. What it must remember, it keeps in states."""

    def open(self, states: KeyedStates, timers: KeyedTimers) -> None:
        """Name the states, and keep the timers."""

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Take a record of an input and return what is passed on; ``group`` and ``key`` are for states and timers."""

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        """A timer of a key has gone off, and return what is passed on.

        No batch says which types its columns have, so they follow from the values: on Arrow int64, double, text or
        boolean.
        """


@runtime_checkable
class HasTimers(Protocol):
    """An operator with timers."""

    def next_timer_ms(self) -> int | None:
        """Return when the next timer is due; None if none is set."""

    def fire_timer(self, until_ms: float) -> Sequence[Payload] | None:
        """Let the next timer go off if it is due by a time; return what it emits, or None if none is due."""


@dataclass(frozen=True, slots=True)
class TimedProcess:
    """Spec of a keyed function with timers, over one input or several; input i is partitioned by ``keys[i]``."""

    keeps_state: ClassVar[bool] = True
    has_timers: ClassVar[bool] = True
    uid: str
    keys: tuple[tuple[str, ...], ...]
    """The key columns of each input. Their names may differ, but not their number."""
    function: Callable[[], TimedFunction] | PerSubtask
    """Makes the function of one subtask; shipped to subtasks."""

    def __post_init__(self) -> None:
        if len(self.keys) != 1:
            require_joinable(self.uid, self.keys)

    @property
    def inputs(self) -> int:
        return len(self.keys)

    def build(self, plane: DataPlane) -> TimedProcessOperator:
        return TimedProcessOperator(self.uid, self.keys, self.function, plane)


class TimedProcessOperator(KeyedFunctionOperator):
    """A ``MultiInputOperator`` around a ``TimedFunction``, on either plane, a record at a time."""

    _make_timers: ClassVar[type[KeyedTimers]] = KeyedTimers
    _timers: KeyedTimers | None = None

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Open the store with the restored files, and let the function name its states and have its timers (REC-1)."""
        self._open_store(context, restored)
        store = self._opened()[1]
        self._timers = self._make_timers(store, context.key_groups, context.now_ms)
        self._function.open(self._open_states(), self._timers)

    def process(self, payload: Payload) -> Payload | None:
        """Give every record to the function, as of its only input."""
        return self._plane.flat_map(payload, partial(self._process_row, 0))

    def process_input(self, payload: Payload, number: int) -> Payload | None:
        """Give every record of an input to the function."""
        return flat_mapped(self._plane, partial(self._process_row, number), payload)

    def next_timer_ms(self) -> int | None:
        return self._with_timers().next_ms()

    def fire_timer(self, until_ms: float) -> Sequence[Payload] | None:
        due = self._with_timers().take(until_ms)
        return None if due is None else self._fired(due)

    def end_of_input(self) -> Iterator[Payload]:
        """Let all timers go off, in the order of their times: nothing waits for them any more.

        Raises JobUsageError if the timers of a key do not end because each sets another one.
        """
        timers = self._with_timers()
        timers.ended = True
        while (due := timers.take(None)) is not None:
            yield from self._fired(due)
            if timers.set_at_the_end[due[2]] > AT_THE_END_MAX:
                raise JobUsageError(
                    f"the input of {self.uid!r} has ended, and its timers do not: each sets another one; set none if "
                    "timers.ended"
                )

    def _fired(self, due: _Due) -> Sequence[Payload]:
        at_ms, group, key = due
        rows = list(self._function.on_timer(group, key, at_ms))
        return (self._plane.from_rows(rows),) if rows else ()

    def _process_row(self, number: int, row: Row) -> Iterable[Row]:
        group, key = self._key_of(row, self._keys[number])
        found: Iterable[Row] = self._function.process(group, key, row, number)
        return found

    def _with_timers(self) -> KeyedTimers:
        if self._timers is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._timers
