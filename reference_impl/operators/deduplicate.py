"""The first record of each key within a horizon in event time; the others are duplicates, and dropped (EVT-5).

The first one is that which arrives first. A later record of its key is a duplicate if their event times differ by the
horizon or less. Any other record is a first one again, also if it comes before the former one is forgotten; so it does
not depend on when watermarks come what is a duplicate. The time of a first record is kept until the watermark is
``time + horizon`` or more: whatever is on time then is beyond its horizon.

A late record goes to the side output ``late``, since what it repeats may be forgotten. Keys with nulls are keys like
others: two nulls are equal, as in SQL's DISTINCT.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from barrier_tck.reference_impl.operators.event_time_process import EventTimeProcess, EventTimers
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.on_time import OnTimeFunction
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.operators.windows import LATE
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.keyed import KeyedStates

FIRST = "first"
"""The name of the state with the event times (ms) of the first records of a key, in the order of arrival."""


def deduplicate(uid: str, key: tuple[str, ...], time: str, horizon_ms: int) -> EventTimeProcess:
    """Return the spec of a step that passes on the first record of each key; ``time`` is the column with its time (ms).

    Raises JobUsageError if the horizon is negative.
    """
    if horizon_ms < 0:
        raise JobUsageError(
            f"{uid!r}: horizon_ms must be 0 or more, not {horizon_ms}; 0 drops records of the same time only"
        )
    return EventTimeProcess(uid, (key,), partial(DeduplicateFunction, uid, time, horizon_ms), (LATE,))


class DeduplicateFunction(OnTimeFunction):
    """An ``EventTimeFunction``: it passes on first records as they are."""

    def __init__(self, uid: str, time: str, horizon_ms: int) -> None:
        super().__init__(uid)
        self._time = time
        self._horizon_ms = horizon_ms

    def open(self, states: KeyedStates, timers: KeyedTimers, event_timers: EventTimers) -> None:
        self._first = states.list(FIRST, int)
        self._timers = event_timers

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Return the row if it is a first one."""
        event_ms = self._event_time_of(row, self._time)
        if event_ms <= self._timers.watermark(group):
            self._emit_late(row)
            return ()
        cell = self._first.of(group, key)
        first = cell.get()
        if any(abs(event_ms - one) <= self._horizon_ms for one in first):
            return ()
        cell.set([*first, event_ms])
        self._timers.set(group, key, self._removal_of(event_ms))
        return (row,)

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        """Forget the first records beyond whose horizon event time has come; return nothing."""
        cell = self._first.of(group, key)
        cell.set([one for one in cell.get() if self._removal_of(one) > at_ms])
        return ()

    def _removal_of(self, event_ms: int) -> int:
        """Return at which watermark a first record is forgotten (ms): at the end of time at the latest."""
        return min(event_ms + self._horizon_ms, END_OF_TIME)
