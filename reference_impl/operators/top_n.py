"""The first n rows of each window in event time, by the values of some columns: one ranking for each key.

A window's rows are emitted when it ends, in the order of their rank, which begins at 1. Nulls come last in either
direction; otherwise booleans come before numbers, these before strings, then dates, then timestamps. Decimals are
numbers, and NaN is the largest one. Rows that are equal in all columns of the order are ranked by the bytes of what
they give to the output. That order means nothing, but it is always the same: rows that share a place give the same
output in whatever order they came.

Only the first n rows of a window are kept, as no later record can bring another one back. Windows are tumbling, sliding
or sessions; there is no allowed lateness. Sessions are those of ``windows``: records whose distance is less than the
gap belong together, and one exactly the gap behind the last one begins another session. A record all of whose windows
have ended is late, and goes to the side output ``late``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from functools import partial
from typing import Any

import msgspec

from barrier_tck.reference_impl.operators.chosen_columns import (
    Columns,
    Kept,
    as_mapping,
    chosen,
    shown,
    value_of,
)
from barrier_tck.reference_impl.operators.encoding import decode_key
from barrier_tck.reference_impl.operators.event_time_process import EventTimeProcess, EventTimers
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.on_time import OnTimeFunction
from barrier_tck.reference_impl.operators.scalars import Scalar
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.operators.window_join import WINDOW_BOUNDS
from barrier_tck.reference_impl.operators.windows import LATE, WindowAssigner
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.keyed import KeyedStates

TOP = "top"
"""The name of the state with the windows of a key: start (ms) to ``TopWindow``."""

_pack = msgspec.msgpack.Encoder().encode


class Order(Enum):
    """In which direction a column is ranked."""

    DESCENDING = "descending"
    """The largest value first."""
    ASCENDING = "ascending"
    """The smallest value first."""


@dataclass(frozen=True, slots=True)
class Top:
    """Which rows of a window are the first ones."""

    n: int
    """How many rows of each window and key go on, at most."""
    by: Mapping[str, Order]
    """Column of the input to its direction; later ones decide between rows that are equal in those before."""
    rank: str = "rank"
    """The output column with the rank, from 1."""

    def __post_init__(self) -> None:
        if self.n < 1:
            raise JobUsageError(f"Top: n must be 1 or more, not {self.n}")
        if not self.by:
            raise JobUsageError("Top: by needs a column and its direction, as {'score': Order.DESCENDING}")


class TopRow(msgspec.Struct, array_like=True):
    """One of the first rows of a window."""

    order: list[Kept]
    """Its values in the columns of the order."""
    columns: dict[str, Kept]
    """What it gives to the output."""


class TopWindow(msgspec.Struct, array_like=True):
    """What the state of a key holds for one window."""

    end: int
    """Its end (ms)."""
    rows: list[TopRow]
    """Its first rows, in the order of their rank."""


def top_n(
    uid: str, key: tuple[str, ...], top: Top, assigner: WindowAssigner, time: str, columns: Columns
) -> EventTimeProcess:
    """Return the spec of rankings by window; ``time`` is the column with the event time (ms).

    The output has the key, the bounds of the window (``WINDOW_BOUNDS``), the rank, and ``columns``: columns of the
    input, or a mapping from output column to column. Raises JobUsageError if columns of the output have the same name.
    """
    mapping = as_mapping(columns)
    outputs = (*key, *WINDOW_BOUNDS, top.rank, *mapping)
    twice = sorted({column for column in outputs if outputs.count(column) > 1})
    if twice:
        raise JobUsageError(
            f"{uid!r} gives the column {twice[0]!r} twice; rename it in a mapping, or the rank"
        )
    return EventTimeProcess(
        uid, (key,), partial(TopFunction, uid, key, top, assigner, time, mapping), (LATE,)
    )


class TopFunction(OnTimeFunction):
    """An ``EventTimeFunction``: the first rows of the windows of each key."""

    def __init__(
        self,
        uid: str,
        key: tuple[str, ...],
        top: Top,
        assigner: WindowAssigner,
        time: str,
        columns: Mapping[str, str],
    ) -> None:
        super().__init__(uid)
        self._key = key
        self._top = top
        self._assigner = assigner
        self._time = time
        self._columns = columns
        self._by = {column: column for column in top.by}
        # Of a stable sort by several columns, the last one decides first.
        self._passes = [(place, order) for place, order in enumerate(top.by.values())][::-1]

    def open(self, states: KeyedStates, timers: KeyedTimers, event_timers: EventTimers) -> None:
        self._windows = states.map(TOP, int, TopWindow)
        self._timers = event_timers

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Rank a row in its windows; return nothing, as none ends by that."""
        event_ms = self._event_time_of(row, self._time)
        one = TopRow(
            list(chosen(row, self._by, repr(self._uid)).values()), chosen(row, self._columns, repr(self._uid))
        )
        watermark = self._timers.watermark(group)
        cell = self._windows.of(group, key)
        windows, changed = cell.items(), False
        assigned = self._assigner.windows(event_ms)
        for start, end in assigned:
            if self._assigner.merges:
                start, window = self._merged(group, key, windows, start, end)
            else:
                window = windows.get(start, TopWindow(end, []))
            if window.end - 1 <= watermark:
                continue
            changed = True
            windows[start] = TopWindow(window.end, self._first([*window.rows, one]))
            self._timers.set(group, key, window.end - 1)
        if changed:
            cell.set(windows)
        elif assigned:
            self._emit_late(row)
        return ()

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterator[Row]:
        """Emit the windows that end, and remove them."""
        cell = self._windows.of(group, key)
        windows = cell.items()
        ending = sorted(start for start, window in windows.items() if window.end - 1 == at_ms)
        for start in ending:
            window = windows.pop(start)
            for rank, one in enumerate(window.rows, start=1):
                yield {
                    **dict(zip(self._key, decode_key(key), strict=True)),
                    **dict(zip(WINDOW_BOUNDS, (start, window.end, window.end - 1), strict=True)),
                    self._top.rank: rank,
                    **shown(one.columns),
                }
        cell.set(windows)

    def _merged(
        self, group: int, key: bytes, windows: dict[int, TopWindow], start: int, end: int
    ) -> tuple[int, TopWindow]:
        """Take out the windows that overlap one; return the start of all of them together, and the whole."""
        met = [each for each, window in windows.items() if each < end and start < window.end]
        taken = [windows.pop(each) for each in met]
        whole = TopWindow(max([end, *(window.end for window in taken)]), [])
        whole.rows = [one for window in taken for one in window.rows]
        for window in taken:
            # Sessions of a key that have not become one do not overlap, so none of the others ends there.
            self._timers.delete(group, key, window.end - 1)
        return min([start, *met]), whole

    def _first(self, rows: list[TopRow]) -> list[TopRow]:
        """Return the first rows of some, in the order of their rank."""
        rows.sort(key=lambda one: _pack([*one.order, *one.columns.values()]))
        for place, order in self._passes:
            rows.sort(key=_value_at(place, order), reverse=order is Order.DESCENDING)
        return rows[: self._top.n]


def _value_at(place: int, order: Order) -> Callable[[TopRow], tuple[bool, int, Any]]:
    """Return the function from a row to what it is sorted by, so that nulls come last in the given direction."""
    descending = order is Order.DESCENDING

    def sorted_by(row: TopRow) -> tuple[bool, int, Any]:
        value = value_of(row.order[place])
        if value is None:
            return not descending, 0, 0
        kind = _kind_of(value)
        return descending, kind, 0 if kind == _NAN else value

    return sorted_by


_NAN = 2


def _kind_of(value: Scalar) -> int:
    """Return the place of a value's kind among those that do not compare with each other."""
    match value:
        case bool():
            return 0
        case float() if math.isnan(value):
            return _NAN
        case str():
            return 3
        case datetime():  # which is a date, too
            return 5
        case date():
            return 4
        case _:
            return 1
