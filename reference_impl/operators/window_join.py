"""The join of two keyed inputs by windows in event time: inner, left, right or full.

All pairs of a left and a right row with equal keys in one window are emitted when the window ends: once the watermark
is ``end - 1`` or more. An outer join then emits the rows alone that have no partner in that window; so with sliding
windows, a row may be part of pairs in one window and alone in another.

There is no allowed lateness: a window that has ended never fires again. A record is late if all of its windows have
ended; it goes to the side output ``late`` as it came, with the columns of its input. One that comes between the ends of
its windows is in those that are left. A record that lies between windows (``slide_ms`` above ``size_ms``) is in no
output. Windows are tumbling or sliding; for rows that are near each other, wherever that is, use ``interval_join``.

A row is kept once, whatever the number of its windows, until the last of them ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

import msgspec

from barrier_tck.reference_impl.operators.chosen_columns import Kept
from barrier_tck.reference_impl.operators.encoding import decode_key
from barrier_tck.reference_impl.operators.event_time_process import EventTimeProcess, EventTimers
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.join_sides import SIDES, JoinedRows, JoinForm, JoinSide, Keys
from barrier_tck.reference_impl.operators.on_time import OnTimeFunction
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.operators.windows import LATE, WINDOW_COLUMNS, WindowAssigner
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.state.keyed import KeyedStates

WINDOW_BOUNDS = WINDOW_COLUMNS[:3]
"""The columns of a row behind those of both sides: the bounds of the window (ms), and ``end - 1`` as its event time."""


class WindowRow(msgspec.Struct, array_like=True):
    """A row whose windows have not all ended."""

    time: int
    """Its event time (ms)."""
    columns: dict[str, Kept]
    """What it gives to the output."""


def window_join(
    uid: str, keys: Keys, assigner: WindowAssigner, left: JoinSide, right: JoinSide, form: JoinForm
) -> EventTimeProcess:
    """Return the spec of a join by windows; input 0 is the left side, each input is partitioned by its key.

    Raises JobUsageError for session windows, if an output column is given twice, or if the keys do not fit.
    """
    if assigner.merges:
        raise JobUsageError(
            f"the join {uid!r} takes Tumbling or Sliding windows, not {assigner!r}, in which both inputs would decide "
            "where windows are; interval_join pairs rows that are near each other"
        )
    rows = JoinedRows(uid, keys, (left, right), form, WINDOW_BOUNDS)
    return EventTimeProcess(uid, keys, partial(WindowJoinFunction, uid, rows, assigner), (LATE,))


class WindowJoinFunction(OnTimeFunction):
    """An ``EventTimeFunction``: rows wait for the ends of their windows."""

    def __init__(self, uid: str, rows: JoinedRows, assigner: WindowAssigner) -> None:
        super().__init__(uid)
        self._rows = rows
        self._assigner = assigner

    def open(self, states: KeyedStates, timers: KeyedTimers, event_timers: EventTimers) -> None:
        self._kept = tuple(states.list(name, WindowRow) for name in SIDES)
        self._timers = event_timers

    def process(self, group: int, key: bytes, row: Row, number: int) -> Iterable[Row]:
        """Keep a row for its windows; return nothing, as none ends by that."""
        event_ms = self._event_time_of(row, self._rows.times[number])
        watermark = self._timers.watermark(group)
        windows = self._assigner.windows(event_ms)
        left = [end for _, end in windows if end - 1 > watermark]
        if windows and not left:
            self._emit_late(row)
            return ()
        kept = WindowRow(event_ms, self._rows.chosen(row, number))
        appears = self._rows.form.keeps(number) or not self._rows.has_null_key(row, number)
        if left and appears:
            self._kept[number].of(group, key).add(kept)
            for end in left:
                self._timers.set(group, key, end - 1)
        return ()

    def on_event_timer(self, group: int, key: bytes, at_ms: int) -> Iterator[Row]:
        """Emit the windows that end, and remove the rows for which that was the last one."""
        ending: dict[tuple[int, int], tuple[list[WindowRow], list[WindowRow]]] = {}
        for number, kept in enumerate(self._kept):
            cell = kept.of(group, key)
            rows, waiting = cell.get(), list[WindowRow]()
            for row in rows:
                windows = self._assigner.windows(row.time)
                for window in windows:
                    if window[1] - 1 == at_ms:
                        ending.setdefault(window, ([], []))[number].append(row)
                if any(end - 1 > at_ms for _, end in windows):
                    waiting.append(row)
            if len(waiting) < len(rows):
                cell.set(waiting)
        matches = None not in decode_key(key)
        for window in sorted(ending):
            for joined in self._joined(*ending[window], matches):
                yield {**joined, **dict(zip(WINDOW_BOUNDS, (*window, window[1] - 1), strict=True))}

    def _joined(self, left: list[WindowRow], right: list[WindowRow], matches: bool) -> Iterator[Row]:
        """Give the pairs of the rows of a window if their key matches any, and the rows that are alone."""
        if matches and left and right:
            yield from (self._rows.pair(one.columns, other.columns, 0) for one in left for other in right)
            return
        for number, rows in enumerate((left, right)):
            if self._rows.form.keeps(number):
                yield from (self._rows.alone(row.columns, number) for row in rows)
