"""Windows in event time: tumbling, sliding and session windows over the records of a key (EVT-2).

A window of [start, end) fires once the watermark is ``end - 1`` or more: a row with the aggregates of its records goes
on. With an allowed lateness it is kept for so long after that. Each late record that belongs to it fires it again, with
the record in it; then it is removed. A record all of whose windows were removed, or would have been, is late: it goes
to the side output ``late``, if anything reads that.

A session grows with its records, and those that overlap become one: records whose distance is less than the gap belong
together. A record exactly one gap behind the last one begins another session, since that one may have fired before it
came, and what sessions there are must not depend on the watermark. If one that has fired grows, it fires again.

What a window holds, how often it fired and when it is due lie in the state of its key, so each firing happens once in
the committed output, whatever number of restores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from barrier_tck.reference_impl.operators.encoding import decode_accumulator, decode_key, encode_accumulator
from barrier_tck.reference_impl.operators.event_time_process import BatchedProcess, EventTimers
from barrier_tck.reference_impl.operators.functions import Additive, Aggregate, Folded, Row, missing_column
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.keyed import KeyedStates

LATE = "late"
"""The name of the side output with the late records."""
WINDOWS = "windows"
"""The name of the state with the windows of a key: start (ms) to ``WindowState``."""
WINDOW_COLUMNS = ("window_start", "window_end", "window_time", "firing")
"""The columns of a row that a window fires, behind the key: its bounds (ms), ``end - 1`` as the event time of the row,
and how often it had fired before.
"""


class WindowAssigner(Protocol):
    """Says to which windows a record belongs."""

    @property
    def merges(self) -> bool:
        """Whether windows that overlap become one."""

    def windows(self, event_ms: int) -> Sequence[tuple[int, int]]:
        """Return start and end (ms) of each window of a record with an event time."""


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one length, side by side."""

    size_ms: int
    offset_ms: int = 0
    """Where the first window begins, counted from the epoch."""

    def __post_init__(self) -> None:
        _require_positive("Tumbling", size_ms=self.size_ms)

    @property
    def merges(self) -> bool:
        return False

    def windows(self, event_ms: int) -> Sequence[tuple[int, int]]:
        start = event_ms - (event_ms - self.offset_ms) % self.size_ms
        return ((start, start + self.size_ms),)


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one length, of which one begins every ``slide_ms``."""

    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    """Where a window begins, counted from the epoch."""

    def __post_init__(self) -> None:
        _require_positive("Sliding", size_ms=self.size_ms, slide_ms=self.slide_ms)

    @property
    def merges(self) -> bool:
        return False

    def windows(self, event_ms: int) -> Sequence[tuple[int, int]]:
        last = event_ms - (event_ms - self.offset_ms) % self.slide_ms
        return [
            (start, start + self.size_ms) for start in range(last, event_ms - self.size_ms, -self.slide_ms)
        ]


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that end when no record has come for a time."""

    gap_ms: int

    def __post_init__(self) -> None:
        _require_positive("Session", gap_ms=self.gap_ms)

    @property
    def merges(self) -> bool:
        return True

    def windows(self, event_ms: int) -> Sequence[tuple[int, int]]:
        return ((event_ms, event_ms + self.gap_ms),)


def _require_positive(name: str, **values: int) -> None:
    for field, value in values.items():
        if value <= 0:
            raise JobUsageError(f"{name}: {field} must be above 0, not {value}")


class WindowState(msgspec.Struct, array_like=True):
    """What the state of a key holds for one window."""

    end: int
    """Its end (ms)."""
    firings: int
    """How often it has fired."""
    pending: int
    """How many records came since it fired last."""
    values: list[int | float | bytes]
    """Its aggregates: sums, and what other aggregates keep as bytes."""


class Trigger(Protocol):
    """Fires a window early, beside its end; a value that is shipped to subtasks. It keeps nothing of its own."""

    def fires(self, row: Row, pending: int) -> bool:
        """Return whether a window fires now: behind a record, with so many since it fired last, this one included."""


@dataclass(frozen=True, slots=True)
class EveryRecords:
    """Fires a window early whenever so many records have come to it."""

    count: int

    def __post_init__(self) -> None:
        _require_positive("EveryRecords", count=self.count)

    def fires(self, row: Row, pending: int) -> bool:
        return pending >= self.count


def window_aggregate(
    uid: str,
    key: tuple[str, ...],
    assigner: WindowAssigner,
    time: str,
    aggregates: Mapping[str, Aggregate],
    lateness_ms: int = 0,
    trigger: Trigger | None = None,
) -> BatchedProcess:
    """Return the spec of windows over a keyed input; ``time`` is the column with the event time (ms).

    Raises JobUsageError if columns of the output have the same name, or the allowed lateness is negative.
    """
    definition = WindowDefinition(uid, key, assigner, time, dict(aggregates), lateness_ms, trigger)
    return BatchedProcess(uid, (key,), definition.function, (LATE,), definition)


@dataclass(frozen=True, slots=True)
class WindowDefinition:
    """What is to be computed by windows."""

    uid: str
    """The name of the operator, for messages."""
    key: tuple[str, ...]
    assigner: WindowAssigner
    time: str
    """The column with the event time (ms)."""
    aggregates: dict[str, Aggregate]
    """By output column."""
    lateness_ms: int
    trigger: Trigger | None

    def __post_init__(self) -> None:
        if self.lateness_ms < 0:
            raise JobUsageError(
                f"the windows {self.uid!r}: lateness_ms must be 0 or more, not {self.lateness_ms}"
            )
        columns = (*self.key, *self.columns)
        twice = sorted({column for column in columns if columns.count(column) > 1})
        if twice:
            raise JobUsageError(
                f"the windows {self.uid!r} give the column {twice[0]!r} twice; rename an aggregate or a key"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a row that a window fires, behind the key."""
        return *WINDOW_COLUMNS, *self.aggregates

    def function(self) -> WindowFunction:
        """Return the function that takes the records one by one."""
        return WindowFunction(
            self.uid,
            self.key,
            self.assigner,
            self.time,
            self.aggregates,
            self.lateness_ms,
            self.trigger,
        )


class WindowFunction:
    """An ``EventTimeFunction``: the windows of each key."""

    def __init__(
        self,
        uid: str,
        key: tuple[str, ...],
        assigner: WindowAssigner,
        time: str,
        aggregates: dict[str, Aggregate],
        lateness_ms: int,
        trigger: Trigger | None,
    ) -> None:
        self._uid = uid
        self._key = key
        self._assigner = assigner
        self._time = time
        self._aggregates = aggregates
        self._lateness_ms = lateness_ms
        self._trigger = trigger
        self._emit_late: Callable[[str, Row], None] = lambda _output, _row: None

    def open_aside(self, emit: Callable[[str, Row], None]) -> None:
        self._emit_late = emit

    def open(self, states: KeyedStates, timers: KeyedTimers, event_timers: EventTimers) -> None:
        self._windows = states.map(WINDOWS, int, WindowState)
        self._timers = event_timers

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Add a record to its windows; return what fires because of it."""
        event_ms = self._event_time_of(row)
        watermark = self._timers.watermark(group)
        cell = self._windows.of(group, key)
        windows = cell.items()
        emitted: list[Row] = []
        assigned = self._assigner.windows(event_ms)
        belongs = not assigned  # a record between two windows is not late
        for start, end in assigned:
            if self._assigner.merges:
                start, end = self._merged(group, key, windows, start, end)
            if self._removal_of(end) <= watermark:
                continue
            belongs = True
            window = windows.get(start)
            if window is None:
                window = windows[start] = WindowState(end, 0, 0, self._zeros())
            self._add(window, row)
            if end - 1 > watermark:
                self._timers.set(group, key, end - 1)
            self._timers.set(group, key, self._removal_of(end))
            is_early = self._trigger is not None and self._trigger.fires(row, window.pending)
            if end - 1 <= watermark or is_early:
                emitted.append(self._fire(key, start, window))
        if belongs:
            cell.set(windows)
        else:
            self._emit_late(LATE, row)
        return emitted

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        """Return nothing: windows know no processing time."""
        return ()

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterator[Row]:
        """Fire the windows that end, and remove those whose allowed lateness is over."""
        cell = self._windows.of(group, key)
        windows = cell.items()
        for start in sorted(windows):
            window = windows[start]
            if window.end - 1 == at_ms:
                yield self._fire(key, start, window)
            if self._removal_of(window.end) == at_ms:
                del windows[start]
        cell.set(windows)

    def _merged(
        self, group: int, key: bytes, windows: dict[int, WindowState], start: int, end: int
    ) -> tuple[int, int]:
        """Merge the windows that overlap one; return the bounds of all of them together.

        The earliest comes first, whichever grew last: rounded sums and aggregates of a user depend on the order.
        """
        met = sorted(each for each, window in windows.items() if each < end and start < window.end)
        if not met:
            return start, end
        whole = WindowState(end, 0, 0, self._zeros())
        for each in met:
            window = windows.pop(each)
            whole.end = max(whole.end, window.end)
            whole.firings = max(whole.firings, window.firings)
            whole.pending += window.pending
            whole.values = [
                _merged_values(aggregate, one, other)
                for aggregate, one, other in zip(
                    self._aggregates.values(), whole.values, window.values, strict=True
                )
            ]
            self._forget_times(group, key, windows, window.end)
        start = min(start, *met)
        windows[start] = whole
        return start, whole.end

    def _forget_times(self, group: int, key: bytes, windows: Mapping[int, WindowState], end: int) -> None:
        """Delete the timers of a window that is no more, unless another window of the key needs them."""
        needed = [time for one in windows.values() for time in (one.end - 1, self._removal_of(one.end))]
        for time in (end - 1, self._removal_of(end)):
            if time not in needed:
                self._timers.delete(group, key, time)

    def _removal_of(self, end: int) -> int:
        """Return at which watermark a window is removed (ms)."""
        return end - 1 + self._lateness_ms

    def _zeros(self) -> list[int | float | bytes]:
        return [_zero(aggregate) for aggregate in self._aggregates.values()]

    def _add(self, window: WindowState, row: Row) -> None:
        window.pending += 1
        try:
            for place, aggregate in enumerate(self._aggregates.values()):
                window.values[place] = _added(aggregate, window.values[place], row)
        except KeyError as error:
            raise missing_column(error.args[0], row, self._uid) from error

    def _fire(self, key: bytes, start: int, window: WindowState) -> Row:
        columns = [start, window.end, window.end - 1, window.firings]
        window.firings += 1
        window.pending = 0
        return {
            **dict(zip(self._key, decode_key(key), strict=True)),
            **dict(zip(WINDOW_COLUMNS, columns, strict=True)),
            **{
                name: _result(aggregate, value)
                for (name, aggregate), value in zip(self._aggregates.items(), window.values, strict=True)
            },
        }

    def _event_time_of(self, row: Row) -> int:
        try:
            event_ms = row[self._time]
        except KeyError as error:
            raise missing_column(self._time, row, self._uid) from error
        if type(event_ms) is not int:
            raise not_an_event_time(self._uid, self._time, event_ms)
        return event_ms


def not_an_event_time(uid: str, column: str, found: object) -> JobUsageError:
    """Return the error for a record without an event time."""
    return JobUsageError(
        f"the windows {uid!r} need an event time in column {column!r}: a whole number of "
        f"milliseconds of the epoch, not {found!r}"
    )


_Value = int | float | bytes


def _zero(aggregate: Aggregate) -> _Value:
    if isinstance(aggregate, Additive):
        return 0.0 if aggregate.floating else 0
    return encode_accumulator((aggregate.stored(aggregate.create()),))


def _added(aggregate: Aggregate, value: Any, row: Row) -> _Value:
    if isinstance(aggregate, Additive):
        added: _Value = value + aggregate.contribution(row)
        return added
    accumulator = aggregate.add(_accumulator(aggregate, value), row[aggregate.column])
    return encode_accumulator((aggregate.stored(accumulator),))


def _merged_values(aggregate: Aggregate, one: Any, other: Any) -> _Value:
    if isinstance(aggregate, Additive):
        whole: _Value = one + other
        return whole
    merged = aggregate.merge(_accumulator(aggregate, one), _accumulator(aggregate, other))
    return encode_accumulator((aggregate.stored(merged),))


def _result(aggregate: Aggregate, value: Any) -> Any:
    return value if isinstance(aggregate, Additive) else aggregate.result(_accumulator(aggregate, value))


def _accumulator(aggregate: Folded, value: bytes) -> Any:
    return aggregate.restored(decode_accumulator(value)[0])
