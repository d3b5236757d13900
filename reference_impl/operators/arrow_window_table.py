"""The windows of fixed size of a subtask, on Arrow batches: a slab for each start, over the slots of all keys.

A batch is cut by the windows of its rows, and each part is added to a slab at once. When a watermark ends windows,
whole slabs fire and are removed. What all of this means is what ``windows.WindowFunction`` says.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from barrier_tck.reference_impl.operators.arrow_keys import Ints, bounds_of, stable_order
from barrier_tck.reference_impl.operators.arrow_stored_windows import StoredWindows
from barrier_tck.reference_impl.operators.arrow_window_keys import (
    ROWS_OF_A_BATCH,
    Marks,
    WindowAggregates,
    WindowKeys,
)
from barrier_tck.reference_impl.operators.arrow_window_rows import FiredRows, UpdatedRows
from barrier_tck.reference_impl.operators.arrow_window_slabs import FrozenSlab, Pins, WindowSlab
from barrier_tck.reference_impl.operators.arrow_window_values import Source, rows_of
from barrier_tck.reference_impl.operators.windows import Sliding, Tumbling, WindowDefinition
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME
from barrier_tck.reference_impl.runtime_errors import JobUsageError

_Rows = Ints | None
"""Numbers of rows, ascending; None: all."""


class FixedWindows:
    """The windows of all keys, a ``WindowTable``; their size is fixed."""

    def __init__(
        self, definition: WindowDefinition, keys: WindowKeys, aggregates: WindowAggregates, pins: Pins
    ) -> None:
        assigner = definition.assigner
        assert isinstance(assigner, Tumbling | Sliding), "windows that merge are no slabs"
        self._uid = definition.uid
        self._size_ms = assigner.size_ms
        self._slide_ms = assigner.slide_ms if isinstance(assigner, Sliding) else assigner.size_ms
        self._offset_ms = assigner.offset_ms
        self._removed_after_ms = definition.lateness_ms - 1
        self._keys = keys
        self._aggregates = aggregates
        self._pins = pins
        self._slabs: dict[int, WindowSlab] = {}
        """By start."""
        self._slabs_are_shared = False
        self._open: list[int] = []
        """The starts of the slabs whose end is yet to come for some key: a heap."""
        self._ended: dict[int, None] = {}
        """The starts of the others."""
        self._next_ms = END_OF_TIME + 1
        """Before that, no window fires or is removed because of its end."""

    # --- records --------------------------------------------------------------------------------------------

    def take(self, payload: Any, times: Ints) -> tuple[Any | None, Any | None]:
        """Add a batch of at least one row, with the event time of each (ms).

        Returns what fires because of it, and the rows that are late.
        """
        slots, sources = self._keys.of(payload), self._aggregates.sources(payload)
        marks = self._keys.marks_of(slots)
        last = times - (times - self._offset_ms) % self._slide_ms
        late = last + (self._size_ms + self._removed_after_ms) <= marks
        wanted = ~late
        if self._slide_ms > self._size_ms:
            between = last <= times - self._size_ms  # in no window, and so not late
            late &= ~between
            wanted &= ~between
        rows = None if wanted.all() else np.flatnonzero(wanted)
        updates = UpdatedRows()
        if rows is None or len(rows):
            self._keys.note(slots if rows is None else slots[rows])
            for start, part in self._by_window(last, times, rows):
                self._add(start, part, slots, marks, sources, updates)
        fired = updates.batch(self._batch) if updates.parts.rows else None
        return fired, payload.filter(pa.array(late)) if late.any() else None

    def _by_window(self, last: Ints, times: Ints, rows: _Rows) -> Iterator[tuple[int, _Rows]]:
        """Yield the start of each window of rows (at least one), and which rows lie in it, in their order.

        ``last``: the start of the latest window of each row.
        """
        chosen = last if rows is None else last[rows]
        low, high = bounds_of(chosen)
        if low == high and self._slide_ms >= self._size_ms:
            yield low, rows
            return
        panes = (chosen - low) // self._slide_ms
        order = stable_order(panes)
        panes = panes[order]
        if rows is not None:
            order = rows[order]
        at_once = -(-self._size_ms // self._slide_ms)
        begins = np.flatnonzero(np.concatenate([[True], panes[1:] != panes[:-1]]))
        firsts = panes[begins]
        ends = np.append(begins[1:], len(order))
        # A window has its own pane and some behind it: those between two of the firsts have the same rows, or none.
        numbers = np.unique((firsts[:, None] - np.arange(at_once)).ravel())
        of_first = np.searchsorted(firsts, numbers)
        of_last = np.searchsorted(firsts, numbers + at_once) - 1
        for number, first, final in zip(numbers.tolist(), of_first.tolist(), of_last.tolist(), strict=True):
            part = order[begins[first] : ends[final]]
            start = low + number * self._slide_ms
            if self._size_ms % self._slide_ms and at_once > 1:
                part = part[times[part] < start + self._size_ms]
            if len(part):
                yield start, part if first == final else np.sort(part)

    def _add(
        self,
        start: int,
        rows: _Rows,
        slots: Ints,
        marks: Marks,
        sources: Sequence[Source],
        updates: UpdatedRows,
    ) -> None:
        """Add rows to a window of their keys."""
        end = start + self._size_ms
        for waits, part in self._by_progress(end, marks, rows):
            of_part, from_part = slots, sources
            if part is not None:
                of_part, from_part = slots[part], [rows_of(source, part) for source in sources]
            slab = self._slab(start)
            places, fresh = slab.places_of(of_part, len(self._keys), waits)
            self._keys.more_windows(fresh)
            if waits:
                slab.add(places, from_part)
                self._next_ms = min(self._next_ms, end - 1)
            else:
                numbers = np.arange(len(slots)) if part is None else part
                updates.add(numbers, start, end, of_part, *slab.update(places, from_part))
                self._next_ms = min(self._next_ms, end + self._removed_after_ms)

    def _by_progress(self, end: int, marks: Marks, rows: _Rows) -> Iterator[tuple[bool, _Rows]]:
        """Yield which rows a window takes: those for whose key it has not ended, and those for whose key it has."""
        if isinstance(marks, int):
            if end + self._removed_after_ms > marks:
                yield end - 1 > marks, rows
            return
        rows = np.arange(len(marks)) if rows is None else rows
        waiting = end - 1 > marks[rows]
        staying = ~waiting & (end + self._removed_after_ms > marks[rows])
        for waits, wanted in ((True, waiting), (False, staying)):
            if wanted.any():
                yield waits, rows[wanted]

    # --- watermarks -----------------------------------------------------------------------------------------

    def fire(self, changes_since: int | None) -> Iterator[Any]:
        """Fire the windows that have ended and remove those whose time is over; yields what is emitted.

        ``changes_since``: a snapshot may be asked for what has changed since that version; None: it never is.
        """
        at_ms, floors = self._keys.watermarks.at_ms, self._keys.watermarks.floors
        if at_ms < self._next_ms and not floors:
            return
        fired, removed = FiredRows(), False
        for start in self._reached(max([at_ms, *(floor.at_ms for floor in floors)])):
            slab = self._slabs[start]
            marks = self._keys.marks_of(slab.slots)
            due = np.flatnonzero(slab.waits & (slab.end - 1 <= marks))
            if len(due):
                slab = self._slab(start)
                self._keys.note(slab.slots[due])
            for begin in range(0, len(due), ROWS_OF_A_BATCH):
                places = due[begin : begin + ROWS_OF_A_BATCH]
                if fired.rows + len(places) > ROWS_OF_A_BATCH:
                    yield self._batch(fired)
                    fired = FiredRows()
                fired.add(slab.slots[places], start, slab.end, *slab.fire(places))
            removed |= self._remove_over(slab, marks)
            if start in self._slabs and slab.waits.any():  # for some key groups it has not ended
                heapq.heappush(self._open, start)
            elif start in self._slabs:
                self._ended[start] = None
        if fired.rows:
            yield self._batch(fired)
        ends = [start + self._size_ms + self._removed_after_ms for start in self._ended]
        ends += [start + self._size_ms - 1 for start in self._open[:1]]
        self._next_ms = min(ends, default=END_OF_TIME + 1)
        moved = self._keys.compacted(changes_since) if removed else None
        if moved is not None:
            self._slabs = {start: self._moved(slab, moved) for start, slab in self._slabs.items()}
            self._slabs_are_shared = False

    def _reached(self, until_ms: int) -> list[int]:
        """Return the starts of the windows whose end event time has reached for some key, in their order."""
        starts, self._ended = self._ended, {}
        while self._open and self._open[0] + self._size_ms - 1 <= until_ms:
            starts[heapq.heappop(self._open)] = None
        return [start for start in sorted(starts) if start in self._slabs]

    def _remove_over(self, slab: WindowSlab, marks: Marks) -> bool:
        """Remove the windows of a slab whose allowed lateness is over; return whether there are any."""
        over = slab.end + self._removed_after_ms <= marks
        if over is True:
            over = np.ones(slab.count, dtype=np.bool_)
        elif over is False or not over.any():
            return False
        gone = slab.slots[over]
        self._keys.note(gone)
        self._keys.fewer_windows(gone)
        if len(gone) == slab.count:
            self._make_own()
            del self._slabs[slab.start]
        else:
            left = np.arange(len(self._keys))
            left[gone] = -1
            self._put(self._moved(slab, left))
        return True

    def _batch(self, fired: FiredRows) -> Any:
        return self._aggregates.batch(fired, self._keys.slots)

    # --- state ----------------------------------------------------------------------------------------------

    def restore(self, stored: StoredWindows) -> None:
        """Take restored windows."""
        self._keys.add(stored.keys)
        lengths = stored.ends - stored.starts
        if (lengths != self._size_ms).any():
            raise JobUsageError(
                f"the windows {self._uid!r} are {self._size_ms} ms long, and one in the checkpoint is "
                f"{lengths[lengths != self._size_ms][0]} ms long; give the operator another name"
            )
        order = np.argsort(stored.starts, kind="stable")
        starts = stored.starts[order]
        begins = (
            np.flatnonzero(np.concatenate([[True], starts[1:] != starts[:-1]])) if len(starts) else starts
        )
        for part in np.split(order, begins[1:]):
            if len(part):
                self._slab(int(stored.starts[part[0]])).put(
                    stored.slots[part],
                    stored.firings[part],
                    stored.pending[part],
                    stored.waits[part],
                    [
                        column[part]
                        if isinstance(column, np.ndarray)
                        else [column[place] for place in part.tolist()]
                        for column in stored.values
                    ],
                )
        self._keys.more_windows(stored.slots)
        if len(stored):
            self._next_ms = int(stored.ends.min()) - 1

    def frozen(self) -> Callable[[], list[FrozenSlab]]:
        """Return what gives the windows as they are now; the next change copies what it changes."""
        slabs, self._slabs_are_shared = self._slabs, True
        return lambda: [slabs[start].frozen() for start in sorted(slabs)]

    def __len__(self) -> int:
        return len(self._slabs)

    def _moved(self, slab: WindowSlab, new_slots: Ints) -> WindowSlab:
        return slab.moved(new_slots, self._aggregates.empty())

    def _slab(self, start: int) -> WindowSlab:
        """Return the slab of a start, which may be changed."""
        known = self._slabs.get(start)
        if known is None:
            slab = WindowSlab(start, start + self._size_ms, self._aggregates.empty(), self._pins)
            heapq.heappush(self._open, start)
        else:
            slab = known.own()
        if slab is not known:
            self._put(slab)
        return slab

    def _put(self, slab: WindowSlab) -> None:
        self._make_own()
        self._slabs[slab.start] = slab

    def _make_own(self) -> None:
        """Copy which slabs there are, if a snapshot reads that; ahead of every change."""
        if self._slabs_are_shared:
            self._slabs, self._slabs_are_shared = self._slabs.copy(), False
