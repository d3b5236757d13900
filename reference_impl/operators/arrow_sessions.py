"""The sessions of all keys as arrays, with an element for each session, and a list of its sessions for each key.

A snapshot shares the arrays. The first change behind it copies them (``Pins``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from barrier_tck.reference_impl.operators.arrow_keys import Ints
from barrier_tck.reference_impl.operators.arrow_window_slabs import FrozenSlab, Pins
from barrier_tck.reference_impl.operators.arrow_window_values import WindowValues

_FREE = -1
"""The slot of a place without a session, and the end of a list."""


class Sessions:
    """Sessions by place; those of a key, whose slot is given, are found by ``of_keys``."""

    def __init__(self, values: list[WindowValues], pins: Pins) -> None:
        """Take the values of no session, and the snapshots that may read the arrays."""
        self.values = values
        self.slots: Ints = np.empty(0, dtype=np.int64)
        """Of their keys; below 0 where there is no session."""
        self.starts: Ints = np.empty(0, dtype=np.int64)
        self.ends: Ints = np.empty(0, dtype=np.int64)
        self.firings: Ints = np.empty(0, dtype=np.int64)
        self.pending: Ints = np.empty(0, dtype=np.int64)
        self.waits: Any = np.empty(0, dtype=np.bool_)
        """Whether each session has yet to fire because of its end."""
        self.count = 0
        """How many sessions there are."""
        self._used = 0
        """Places from here on were never used."""
        self._free: Ints = np.empty(0, dtype=np.int64)
        self._heads: Ints = np.empty(0, dtype=np.int64)
        """Slot -> the place of the first session of its key."""
        self._following: Ints = np.empty(0, dtype=np.int64)
        """Place -> that of the key's next session."""
        self._pins = pins
        self._born = pins.next

    def make_own(self) -> None:
        """Copy the arrays if a snapshot reads them; ahead of every change."""
        if self._pins.newest >= self._born:
            self.slots, self.starts, self.ends = self.slots.copy(), self.starts.copy(), self.ends.copy()
            self.firings, self.pending = self.firings.copy(), self.pending.copy()
            self.waits = self.waits.copy()
            self.values = [values.copy() for values in self.values]
            self._born = self._pins.next

    def cover(self, slots: int) -> None:
        """Make room for so many keys."""
        room = len(self._heads)
        if slots > room:
            more = np.full(max(2 * room, slots) - room, _FREE, dtype=np.int64)
            self._heads = np.concatenate([self._heads, more])

    def of_keys(self, slots: Ints) -> Ints:
        """Return the places of all sessions of keys, each of which is given once."""
        found = []
        places = self._heads[slots]
        while len(places := places[places != _FREE]):
            found.append(places)
            places = self._following[places]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def link(self, slots: Ints, places: Ints) -> None:
        """Let keys, each given once, have the sessions at these places and no others."""
        self._heads[slots] = _FREE
        ordered = places[np.argsort(self.slots[places], kind="stable")]
        if len(ordered):
            of_key = self.slots[ordered]
            begins = np.concatenate([[True], of_key[1:] != of_key[:-1]])
            self._heads[of_key[begins]] = ordered[begins]
            self._following[ordered] = np.append(np.where(begins[1:], _FREE, ordered[1:]), _FREE)

    def make(self, count: int) -> Ints:
        """Return the places of so many new sessions, in which nothing is."""
        again = self._free[len(self._free) - min(count, len(self._free)) :]
        self._free = self._free[: len(self._free) - len(again)]
        more = count - len(again)
        places = np.concatenate([again, np.arange(self._used, self._used + more)])
        self._used += more
        self.count += count
        self._grow()
        self.firings[places] = self.pending[places] = 0
        for values in self.values:
            values.clear(again)
        return places

    def free(self, places: Ints) -> None:
        """Give up sessions; they are still linked."""
        self.slots[places] = _FREE
        self._free = np.concatenate([self._free, places])
        self.count -= len(places)

    def live(self) -> Ints:
        """Return the places of all sessions."""
        return np.flatnonzero(self.slots[: self._used] != _FREE)

    def move(self, new_slots: Ints, slots: int) -> None:
        """Let the keys have other slots: those of all sessions are given by their former ones."""
        self.make_own()
        places = self.live()
        self.slots[places] = new_slots[self.slots[places]]
        self._heads = np.full(slots, _FREE, dtype=np.int64)
        self.link(np.unique(self.slots[places]), places)

    def frozen(self) -> Callable[[], list[FrozenSlab]]:
        """Return what gives the sessions as they are now."""
        slots, starts, ends = self.slots[: self._used], self.starts, self.ends
        firings, pending, waits, values = self.firings, self.pending, self.waits, self.values
        return lambda: _frozen(slots, starts, ends, firings, pending, waits, values)

    def _grow(self) -> None:
        room = len(self.slots)
        if self._used > room:
            more = max(2 * room, self._used, 64) - room
            self.slots = np.concatenate([self.slots, np.full(more, _FREE, dtype=np.int64)])
            zeros = np.zeros(more, dtype=np.int64)
            self.starts, self.ends = np.concatenate([self.starts, zeros]), np.concatenate([self.ends, zeros])
            self.firings = np.concatenate([self.firings, zeros])
            self.pending = np.concatenate([self.pending, zeros])
            self.waits = np.concatenate([self.waits, np.zeros(more, dtype=np.bool_)])
            self._following = np.concatenate([self._following, zeros])
        for values in self.values:
            values.grow(self._used)


def _frozen(
    slots: Ints,
    starts: Ints,
    ends: Ints,
    firings: Ints,
    pending: Ints,
    waits: Any,
    values: Sequence[WindowValues],
) -> list[FrozenSlab]:
    places = np.flatnonzero(slots != _FREE)
    places = places[np.argsort(starts[places], kind="stable")]
    return [
        FrozenSlab(
            starts[places],
            ends[places],
            slots[places],
            firings[places],
            pending[places],
            waits[places],
            places,
            values,
        )
    ]
