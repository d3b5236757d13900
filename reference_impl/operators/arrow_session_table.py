"""The sessions of a subtask, on Arrow batches.

Records of a batch that cannot be late, nor belong to a session that has ended, are merged with each other and with the
sessions that there are, all keys at once: sorted by key and time, a session begins where the one before has ended. What
comes of that does not depend on the order of the records. Where it does (a record is later than the gap, or a sum is
rounded on a detour), the records of that key are taken one by one, by ``windows.WindowFunction``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from barrier_tck.reference_impl.operators.arrow_keys import Ints, distinct
from barrier_tck.reference_impl.operators.arrow_sessions import Sessions
from barrier_tck.reference_impl.operators.arrow_stored_windows import StoredWindows
from barrier_tck.reference_impl.operators.arrow_values import array_of
from barrier_tck.reference_impl.operators.arrow_window_keys import (
    ROWS_OF_A_BATCH,
    WindowAggregates,
    WindowKeys,
)
from barrier_tck.reference_impl.operators.arrow_window_rows import FiredRows
from barrier_tck.reference_impl.operators.arrow_window_slabs import FrozenSlab, Pins
from barrier_tck.reference_impl.operators.arrow_window_values import Source, rows_of
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.windows import Session, WindowDefinition, WindowState
from barrier_tck.reference_impl.protocol.watermarks import END_OF_TIME

_PRODUCT_MAX = 1 << 62
TIME_LINE_MAX = 1 << 62
"""The length (ms) of the time line of all keys, one after the other, that numbers can be made for."""


@dataclass(frozen=True, slots=True)
class _Merged:
    """What sessions and records of some keys become: sessions, numbered by key and start."""

    keys: Ints
    """The slots of the keys."""
    places: Ints
    """Of the sessions that there were."""
    of_places: Ints
    """The number of what each of them becomes."""
    of_rows: Ints
    """The same of the records."""
    slots: Ints
    """By number, as what follows."""
    starts: Ints
    ends: Ints
    sessions: Ints
    """How many sessions there were in it."""
    rows: Ints
    """How many records there are in it."""


class SessionWindows:
    """The windows of all keys, a ``WindowTable``; those that overlap become one."""

    def __init__(
        self, definition: WindowDefinition, keys: WindowKeys, aggregates: WindowAggregates, pins: Pins
    ) -> None:
        assert isinstance(definition.assigner, Session), "other windows do not merge"
        self._gap_ms = definition.assigner.gap_ms
        self._removed_after_ms = definition.lateness_ms - 1
        self._keys = keys
        self._aggregates = aggregates
        self._sessions = Sessions(aggregates.empty(), pins)
        self._one_by_one = _OneByOne(definition, keys)
        self._next_ms = END_OF_TIME + 1
        """Before that, no session fires or is removed because of its end."""

    def __len__(self) -> int:
        return self._sessions.count

    # --- records --------------------------------------------------------------------------------------------

    def take(self, payload: Any, times: Ints) -> tuple[Any | None, Any | None]:
        """Add a batch of at least one row, with the event time of each (ms).

        Returns what fires because of it, and the rows that are late.
        """
        slots, sources = self._keys.of(payload), self._aggregates.sources(payload)
        self._sessions.cover(len(self._keys))
        self._sessions.make_own()
        old = times + (self._gap_ms - 1) <= self._keys.marks_of(slots)
        apart = np.isin(slots, slots[old]) if old.any() else old
        rows = np.flatnonzero(~apart)
        if len(rows):
            merged = self._merge(slots[rows], times[rows])
            if self._aggregates.depend_on_order(sources):
                by_detour = self._by_detour(merged, times[rows])
                if by_detour.any():
                    apart |= np.isin(slots, merged.slots[by_detour])
                    rows = np.flatnonzero(~apart)
                    merged = self._merge(slots[rows], times[rows]) if len(rows) else merged
            if len(rows):
                self._apply(merged, rows, sources)
                self._keys.note(merged.keys)
        if not apart.any():
            return None, None
        return self._take_one_by_one(payload, np.flatnonzero(apart), slots)

    def _merge(self, slots: Ints, times: Ints) -> _Merged:
        """Say what records, by the slots of their keys and their times, become with the sessions of these keys."""
        keys = distinct(slots)
        places = self._sessions.of_keys(keys)
        known = len(places)
        of_key = np.concatenate([self._sessions.slots[places], slots])
        starts = np.concatenate([self._sessions.starts[places], times])
        ends = np.concatenate([self._sessions.ends[places], times + self._gap_ms])
        from_ms, until_ms = _key_by_key(of_key, starts, ends)
        order = np.argsort(from_ms)
        of_key, starts, ends = of_key[order], starts[order], ends[order]
        before = np.maximum.accumulate(until_ms[order])[:-1]
        begins = np.concatenate([[0], 1 + np.flatnonzero(from_ms[order[1:]] >= before)])
        numbers = np.zeros(len(order), dtype=np.int64)
        numbers[begins] = 1
        of_element = np.empty(len(order), dtype=np.int64)
        of_element[order] = np.cumsum(numbers) - 1
        of_places, of_rows = of_element[:known], of_element[known:]
        return _Merged(
            keys,
            places,
            of_places,
            of_rows,
            of_key[begins],
            starts[begins],
            np.maximum.reduceat(ends, begins),
            np.bincount(of_places, minlength=len(begins)),
            np.bincount(of_rows, minlength=len(begins)),
        )

    def _apply(self, merged: _Merged, rows: Ints, sources: Sequence[Source]) -> None:
        """Let sessions and records become what they do; ``rows`` are the numbers of the records in their batch."""
        sessions = self._sessions
        by_start = np.lexsort((sessions.starts[merged.places], merged.of_places))
        places, of_places = merged.places[by_start], merged.of_places[by_start]
        targets = np.full(len(merged.slots), -1, dtype=np.int64)
        is_first = np.concatenate([[True], of_places[1:] != of_places[:-1]]) if len(places) else _NO_MASK
        targets[of_places[is_first]] = places[is_first]
        new = np.flatnonzero(targets < 0)
        targets[new] = sessions.make(len(new))
        others, of_others = places[~is_first], targets[of_places[~is_first]]
        grown = np.flatnonzero(merged.rows)
        where = targets[grown]
        sessions.slots[where], sessions.starts[where] = merged.slots[grown], merged.starts[grown]
        sessions.ends[where], sessions.waits[where] = merged.ends[grown], True
        if len(others):
            np.maximum.at(sessions.firings, of_others, sessions.firings[others])
            np.add.at(sessions.pending, of_others, sessions.pending[others])
            for values in sessions.values:
                values.merge(of_others, others)
            self._keys.fewer_windows(sessions.slots[others])
            sessions.free(others)
        of_rows = targets[merged.of_rows]
        sessions.pending[where] += merged.rows[grown]
        for values, source in zip(sessions.values, sources, strict=True):
            values.add(of_rows, rows_of(source, rows))
        sessions.link(merged.keys, targets)
        self._keys.more_windows(merged.slots[new])
        self._next_ms = min(self._next_ms, int(merged.ends[grown].min()) - 1)

    def _by_detour(self, merged: _Merged, times: Ints) -> Any:
        """Return what becomes one session only by way of several, if its records come one after the other.

        Then the sums of these are added up, which may be rounded in another way.
        """
        detour = merged.sessions > 1
        longest = int((merged.ends - merged.starts).max()) + 1
        if len(detour) > _PRODUCT_MAX // longest:
            return np.ones(len(detour), dtype=np.bool_)
        # In the order in which they come: the session that there is, then the records. Numbers rise and, by steps that
        # are longer than any session, so do the ends so far, and starts so far fall.
        number = np.concatenate([merged.of_places, merged.of_rows])
        starts = np.concatenate([self._sessions.starts[merged.places], times])
        ends = np.concatenate([self._sessions.ends[merged.places], times + self._gap_ms])
        order = np.argsort(number, kind="stable")
        number = number[order]
        starts, ends = (each[order] - merged.starts[number] for each in (starts, ends))
        end_so_far = np.maximum.accumulate(ends + number * longest)[:-1] - number[:-1] * longest
        start_so_far = np.minimum.accumulate(starts - number * longest)[:-1] + number[:-1] * longest
        same = number[1:] == number[:-1]
        meets = (starts[1:] < end_so_far) & (ends[1:] > start_so_far)
        detour[number[1:][same & ~meets]] = True
        return detour

    def _take_one_by_one(self, payload: Any, rows: Ints, slots: Ints) -> tuple[Any | None, Any | None]:
        """Give records to the function, in their order, with the sessions of their keys, and take these back."""
        sessions, of_rows = self._sessions, slots[rows]
        keys = np.unique(of_rows)
        places = sessions.of_keys(keys)
        held = {slot: _HeldKey(self._removed_after_ms) for slot in keys.tolist()}
        places = places[np.argsort(sessions.starts[places], kind="stable")]
        columns = (sessions.slots, sessions.starts, sessions.waits)
        numbers = zip(*(column[places].tolist() for column in columns), strict=True)
        for (slot, start, waits), state in zip(numbers, self._states(places), strict=True):
            held[slot].begin_with(start, state, waits)
        emitted, late = self._one_by_one.take(payload.take(pa.array(rows)), of_rows, held)
        self._keys.fewer_windows(sessions.slots[places])
        sessions.free(places)
        self._put(keys, [(slot, *session) for slot, key in held.items() for session in key.sessions()])
        self._keys.note(keys)
        fired = self._rows(emitted) if emitted else None
        return fired, payload.take(pa.array(rows[late])) if late else None

    def _states(self, places: Ints) -> list[WindowState]:
        """Return what sessions hold, as the function has it."""
        sessions = self._sessions
        numbers = (column[places].tolist() for column in (sessions.ends, sessions.firings, sessions.pending))
        stored = (_listed(values.stored(places)) for values in sessions.values)
        values = map(list, zip(*stored, strict=True))
        return list(map(WindowState, *numbers, values))

    def _put(self, keys: Ints, found: Sequence[tuple[int, int, WindowState, bool]]) -> None:
        """Take sessions, which are all that some keys have: slot, start, content, and whether each has yet to fire."""
        sessions = self._sessions
        places = sessions.make(len(found))
        if found:
            slots, starts, states, waits = zip(*found, strict=True)
            sessions.slots[places], sessions.starts[places] = slots, starts
            sessions.ends[places] = [state.end for state in states]
            sessions.firings[places] = [state.firings for state in states]
            sessions.pending[places] = [state.pending for state in states]
            sessions.waits[places] = waits
            stored = zip(*(state.values for state in states), strict=True)
            for values, column in zip(sessions.values, stored, strict=True):
                values.set(places, column)
            self._keys.more_windows(np.array(slots))
            due = (
                state.end + (-1 if is_open else self._removed_after_ms)
                for state, is_open in zip(states, waits, strict=True)
            )
            self._next_ms = min(self._next_ms, *due)
        sessions.link(keys, places)

    def _rows(self, rows: list[Row]) -> Any:
        return pa.RecordBatch.from_arrays(
            [array_of([row[name] for row in rows]) for name in rows[0]], [*rows[0]]
        )

    # --- watermarks -----------------------------------------------------------------------------------------

    def fire(self, changes_since: int | None) -> Iterator[Any]:
        """Fire the sessions that have ended and remove those whose time is over; yields what is emitted.

        ``changes_since``: a snapshot may be asked for what has changed since that version; None: it never is.
        """
        watermarks, sessions = self._keys.watermarks, self._sessions
        if watermarks.at_ms < self._next_ms and not watermarks.floors:
            return
        live = sessions.live()
        marks, ends = self._keys.marks_of(sessions.slots[live]), sessions.ends[live]
        due = live[sessions.waits[live] & (ends - 1 <= marks)]
        over = live[ends + self._removed_after_ms <= marks]
        if len(due) or len(over):
            sessions.make_own()
            self._keys.note(sessions.slots[due])
            self._keys.note(sessions.slots[over])
        due = due[np.argsort(sessions.ends[due], kind="stable")]
        for begin in range(0, len(due), ROWS_OF_A_BATCH):
            yield self._fired(due[begin : begin + ROWS_OF_A_BATCH])
        if len(over):
            self._remove(over)
        left = live[sessions.slots[live] >= 0]
        nexts = sessions.ends[left] + np.where(sessions.waits[left], -1, self._removed_after_ms)
        self._next_ms = int(nexts.min()) if len(left) else END_OF_TIME + 1
        moved = self._keys.compacted(changes_since) if len(over) else None
        if moved is not None:
            sessions.move(moved, len(self._keys))

    def _fired(self, places: Ints) -> Any:
        sessions, fired = self._sessions, FiredRows()
        fired.add(
            sessions.slots[places],
            sessions.starts[places],
            sessions.ends[places],
            sessions.firings[places],
            [values.results(places) for values in sessions.values],
        )
        sessions.firings[places] += 1
        sessions.pending[places] = 0
        sessions.waits[places] = False
        return self._aggregates.batch(fired, self._keys.slots)

    def _remove(self, places: Ints) -> None:
        sessions = self._sessions
        slots = sessions.slots[places]
        keys = distinct(slots)
        all_places = sessions.of_keys(keys)
        self._keys.fewer_windows(slots)
        sessions.free(places)
        sessions.link(keys, all_places[sessions.slots[all_places] >= 0])

    # --- state ----------------------------------------------------------------------------------------------

    def restore(self, stored: StoredWindows) -> None:
        """Take restored sessions."""
        self._keys.add(stored.keys)
        sessions = self._sessions
        sessions.cover(len(stored.keys))
        if not len(stored):
            return
        places = sessions.make(len(stored))
        sessions.slots[places], sessions.starts[places] = stored.slots, stored.starts
        sessions.ends[places], sessions.waits[places] = stored.ends, stored.waits
        sessions.firings[places], sessions.pending[places] = stored.firings, stored.pending
        for values, column in zip(sessions.values, stored.values, strict=True):
            values.set(places, column)
        self._keys.more_windows(stored.slots)
        sessions.link(np.arange(len(stored.keys)), places)
        due = stored.ends + np.where(stored.waits, -1, self._removed_after_ms)
        self._next_ms = int(due.min())

    def frozen(self) -> Callable[[], list[FrozenSlab]]:
        """Return what gives the sessions as they are now; the next change copies what it changes."""
        return self._sessions.frozen()


class _HeldKey:
    """The sessions of a key while its records are taken one by one: a cell of state, and its timers."""

    def __init__(self, removed_after_ms: int) -> None:
        self._removed_after_ms = removed_after_ms
        self._windows: dict[int, WindowState] = {}
        self.times: dict[int, None] = {}

    def begin_with(self, start: int, state: WindowState, waits: bool) -> None:
        """Take a session that there is."""
        self._windows[start] = state
        self.times[state.end + self._removed_after_ms] = None
        if waits:
            self.times[state.end - 1] = None

    def items(self) -> dict[int, WindowState]:
        return self._windows

    def set(self, windows: dict[int, WindowState]) -> None:
        self._windows = windows

    def sessions(self) -> Iterator[tuple[int, WindowState, bool]]:
        """Yield start, content, and whether it has yet to fire, of each."""
        for start, state in self._windows.items():
            yield start, state, state.end - 1 in self.times


class _OneByOne:
    """Gives records to the function for windows, which keeps no state here: stands for its states and its timers."""

    def __init__(self, definition: WindowDefinition, keys: WindowKeys) -> None:
        self._keys = keys
        self._key = _HeldKey(0)
        self._function = definition.function()
        self._late: list[int] = []
        self._number = 0
        self._function.open_aside(lambda _output, _row: self._late.append(self._number))
        stand_in: Any = self
        self._function.open(stand_in, stand_in, stand_in)

    def take(self, payload: Any, slots: Ints, held: dict[int, _HeldKey]) -> tuple[list[Row], list[int]]:
        """Take a batch, with the slot of each row; return what is emitted, and the numbers of late rows."""
        self._late, emitted = [], list[Row]()
        groups, encoded = self._keys.slots.keys_of(slots)
        rows = zip(payload.to_pylist(), slots.tolist(), groups, encoded, strict=True)
        for self._number, (row, slot, group, key) in enumerate(rows):
            self._key = held[slot]
            emitted += self._function.process(group, key, row, 0)
        return emitted, self._late

    # --- what the function calls ----------------------------------------------------------------------------

    def map(self, name: str, key_type: type, of_type: type) -> _OneByOne:
        return self

    def of(self, group: int, key: bytes) -> _HeldKey:
        return self._key

    def watermark(self, group: int) -> int:
        return self._keys.watermarks.of(group)

    def set(self, group: int, key: bytes, at_ms: int) -> None:
        self._key.times[at_ms] = None

    def delete(self, group: int, key: bytes, at_ms: int) -> None:
        self._key.times.pop(at_ms, None)


_NO_MASK: Any = np.empty(0, dtype=np.bool_)


def _key_by_key(slots: Ints, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return starts and ends on one time line, on which all that is of a key comes before all that is of the next."""
    first = int(starts.min())
    length = int(ends.max()) - first + 1
    if int(slots.max()) >= TIME_LINE_MAX // length:
        # Ranks are in the same order.
        ranks = np.unique(np.concatenate([starts, ends]), return_inverse=True)[1]
        starts, ends, first, length = ranks[: len(starts)], ranks[len(starts) :], 0, len(ranks)
    begin = slots * length - first
    return begin + starts, begin + ends


def _listed(values: Any) -> list[Any]:
    found: list[Any] = values.tolist() if isinstance(values, np.ndarray) else values
    return found
