"""All windows with the same bounds, over the keys that have one: arrays with an element for each of them.

Windows of a fixed size share their bounds, so they begin, fire and end together: a slab is fired, removed and handed to
a snapshot as a whole. A snapshot shares the arrays: the first change behind it is made in a copy (``Pins``).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from barrier_tck.reference_impl.operators.arrow_keys import Ints, distinct
from barrier_tck.reference_impl.operators.arrow_slots import ordered_by_slot
from barrier_tck.reference_impl.operators.arrow_window_values import Results, Source, WindowValues

DENSE_FLOOR = 1 << 16
SPARSE_TIMES = 16
"""A slab has an array over all keys as long as these are not so many times as many as its own."""


class Pins:
    """Which snapshots still read arrays of windows. They are numbered from 1, and released by whoever writes them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._reading: dict[int, None] = {}
        self.next = 1
        """The number of the next snapshot."""

    def take(self) -> int:
        """Let a snapshot read what there is; return its number."""
        with self._lock:
            number, self.next = self.next, self.next + 1
            self._reading[number] = None
        return number

    def release(self, number: int) -> None:
        """Take that a snapshot reads nothing any more; twice is harmless."""
        with self._lock:
            self._reading.pop(number, None)

    @property
    def newest(self) -> int:
        """The newest snapshot that reads; 0: none does."""
        with self._lock:
            return max(self._reading, default=0)


class KeyPlaces:
    """The place of each key of a slab, by the key's slot: an array over all slots, or a dictionary of its own ones.

    The array is faster. It is taken if it is not many times as long as the slab has windows.
    """

    def __init__(self) -> None:
        self._count = 0
        self._dense: Ints | None = np.empty(0, dtype=np.int64)
        self._sparse: dict[int, int] = {}

    def find(self, slots: Ints, slots_max: int) -> tuple[Ints, Ints]:
        """Return the place of each slot, and the slots that are new: they get the next places.

        ``slots_max`` is the number of all slots.
        """
        if self._dense is None or len(self._dense) < slots_max:
            self._choose(slots_max, self._count + len(slots))
        if self._dense is None:
            return self._find_in_dictionary(slots)
        fresh, found = _NONE, self._dense.take(slots)
        if int(found.min()) < 0:
            fresh = distinct(slots[found < 0])
            self._dense[fresh] = np.arange(self._count, self._count + len(fresh), dtype=np.int64)
            self._count += len(fresh)
            found = self._dense.take(slots)
        return found, fresh

    def _find_in_dictionary(self, slots: Ints) -> tuple[Ints, Ints]:
        coded = pa.array(slots).dictionary_encode()
        found = coded.dictionary.to_pylist()
        sparse, fresh = self._sparse, list[int]()
        for slot in found:
            if slot not in sparse:
                sparse[slot] = self._count + len(fresh)
                fresh.append(slot)
        self._count += len(fresh)
        places = np.fromiter(map(sparse.__getitem__, found), dtype=np.int64, count=len(found))
        return places.take(coded.indices.to_numpy()), np.array(fresh, dtype=np.int64)

    def _choose(self, slots_max: int, count: int) -> None:
        """Take the form that fits a slab of so many windows."""
        known = self._dense
        wanted = slots_max + slots_max // 2
        if wanted <= max(DENSE_FLOOR, SPARSE_TIMES * count):
            self._dense = np.full(wanted, -1, dtype=np.int64)
            if known is not None:
                self._dense[: len(known)] = known
            else:
                slots = np.fromiter(self._sparse, dtype=np.int64, count=len(self._sparse))
                self._dense[slots] = np.fromiter(self._sparse.values(), dtype=np.int64, count=len(slots))
                self._sparse = {}
        elif known is not None:
            slots = np.flatnonzero(known >= 0)
            self._sparse = dict(zip(slots.tolist(), known[slots].tolist(), strict=True))
            self._dense = None


_NONE: Ints = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class FrozenSlab:
    """Windows as they were when a snapshot was taken."""

    starts: Ints | int
    """The start (ms) of each, or of all."""
    ends: Ints | int
    slots: Ints
    """Of their keys."""
    firings: Ints
    pending: Ints
    waits: Any
    """Whether each window has yet to fire because of its end."""
    places: Ints | None
    """Of their values; None: from 0 on."""
    values: Sequence[WindowValues]


class WindowSlab:
    """The windows of one start and end."""

    def __init__(self, start: int, end: int, values: list[WindowValues], pins: Pins) -> None:
        """Take the bounds (ms), the values of no window, and the snapshots that may read them."""
        self.start, self.end = start, end
        self.count = 0
        self.values = values
        self._places = KeyPlaces()
        self._slots = np.empty(64, dtype=np.int64)
        self._firings = np.zeros(64, dtype=np.int64)
        self._pending = np.zeros(64, dtype=np.int64)
        self._waits = np.zeros(64, dtype=np.bool_)
        self._pins = pins
        self._born = pins.next
        """The first snapshot that may read the arrays."""

    @property
    def slots(self) -> Ints:
        """The slots of its keys, by place."""
        return self._slots[: self.count]

    @property
    def waits(self) -> Any:
        """Whether each window has yet to fire because of its end."""
        return self._waits[: self.count]

    def places_of(self, slots: Ints, slots_max: int, waits: bool) -> tuple[Ints, Ints]:
        """Return the place of each slot (at least one), and the slots that have no window so far and get one now.

        ``waits``: whether the new ones have yet to fire because of their end.
        """
        places, fresh = self._places.find(slots, slots_max)
        if len(fresh):
            before, self.count = self.count, self.count + len(fresh)
            self._grow()
            self._slots[before : self.count] = fresh
            self._waits[before : self.count] = waits
        return places, fresh

    def add(self, places: Ints, sources: Sequence[Source]) -> None:
        """Add rows to windows that have not ended."""
        np.add.at(self._pending, places, 1)
        for values, source in zip(self.values, sources, strict=True):
            values.add(places, source)

    def update(self, places: Ints, sources: Sequence[Source]) -> tuple[Ints, list[Results]]:
        """Add rows to windows that have ended, each of which fires; return numbers of firings, and results."""
        order, starts = ordered_by_slot(places)
        counts = np.diff(np.append(starts, len(order)))
        firings = np.empty(len(places), dtype=np.int64)
        firings[order] = np.arange(len(order)) - np.repeat(starts, counts)
        firings += self._firings[places]
        np.add.at(self._firings, places, 1)
        self._pending[places] = 0
        return firings, [
            values.running(places, source) for values, source in zip(self.values, sources, strict=True)
        ]

    def fire(self, places: Ints) -> tuple[Ints, list[Results]]:
        """Fire windows because of their end; return how often they had fired before, and results."""
        firings = self._firings[places]
        self._firings[places] += 1
        self._pending[places] = 0
        self._waits[places] = False
        return firings, [values.results(places) for values in self.values]

    def put(self, slots: Ints, firings: Ints, pending: Ints, waits: Any, stored: Sequence[Any]) -> None:
        """Take restored windows of keys that have none."""
        places, _ = self.places_of(slots, int(slots.max()) + 1, False)
        self._firings[places], self._pending[places], self._waits[places] = firings, pending, waits
        for values, column in zip(self.values, stored, strict=True):
            values.set(places, column)

    def frozen(self) -> FrozenSlab:
        """Return what it has now, for a snapshot."""
        count = self.count
        return FrozenSlab(
            self.start,
            self.end,
            self._slots[:count],
            self._firings[:count],
            self._pending[:count],
            self._waits[:count],
            None,
            self.values,
        )

    def own(self) -> WindowSlab:
        """Return the same windows, to be changed: itself, or a copy if a snapshot reads it, which is not used again."""
        if self._pins.newest < self._born:
            return self
        mine = copy(self)
        mine.share_nothing()
        return mine

    def share_nothing(self) -> None:
        """Copy the arrays that change. The slots do not: new ones come behind those that a snapshot reads."""
        self._firings, self._pending = self._firings.copy(), self._pending.copy()
        self._waits = self._waits.copy()
        self.values = [values.copy() for values in self.values]
        self._born = self._pins.next

    def moved(self, new_slots: Ints, empty: list[WindowValues]) -> WindowSlab:
        """Return the same windows for keys with other slots; those whose new slot is below 0 are left out."""
        moved = WindowSlab(self.start, self.end, empty, self._pins)
        slots = new_slots[self.slots]
        kept = np.flatnonzero(slots >= 0)
        if len(kept):
            stored = [values.stored(kept) for values in self.values]
            moved.put(slots[kept], self._firings[kept], self._pending[kept], self._waits[kept], stored)
        return moved

    def _grow(self) -> None:
        capacity = len(self._slots)
        if self.count > capacity:
            more = max(2 * capacity, self.count) - capacity
            self._slots = np.concatenate([self._slots, np.zeros(more, dtype=np.int64)])
            self._firings = np.concatenate([self._firings, np.zeros(more, dtype=np.int64)])
            self._pending = np.concatenate([self._pending, np.zeros(more, dtype=np.int64)])
            self._waits = np.concatenate([self._waits, np.zeros(more, dtype=np.bool_)])
        for values in self.values:
            values.grow(self.count)
