"""Windows on Arrow as the entries of a store, in the form in which ``windows.WindowFunction`` keeps them by key.

That is a map by start to ``WindowState``, and a list of times for the timers. Integers are written with all of their 64
bits, so that all keys with the same number of windows have as many bytes, and one array is made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from barrier_tck.reference_impl.operators.arrow_keys import Ints
from barrier_tck.reference_impl.operators.arrow_slots import KeySlots
from barrier_tck.reference_impl.operators.arrow_window_slabs import FrozenSlab
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.windows import WINDOWS, WindowState
from barrier_tck.reference_impl.state.backend import KeyedStateStore
from barrier_tck.reference_impl.state.held import HeldEntries
from barrier_tck.reference_impl.state.keyed import Codec

KEYS_AT_ONCE = 4_096
"""Bytes are made for so many keys at a time: no other thread runs meanwhile."""
_INT, _FLOAT = 0xD3, 0xCB
_encode = msgspec.msgpack.Encoder().encode
_Bytes = Any
"""An array of bytes: a row for each key."""


@dataclass
class FrozenWindows:
    """``FrozenState`` of the windows of a subtask."""

    keys: KeySlots
    made: Callable[[], Sequence[FrozenSlab]]
    """Gives the windows, those of a key in the order of their starts; called in the asynchronous part."""
    is_empty: bool
    changed: Ints
    """Slot -> the version of the first snapshot that has the last change of its key."""
    floating: Sequence[bool | None]
    """For each aggregate whether what is kept are floats; None: it is bytes."""
    removed_after_ms: int
    """How long after its end a window is removed."""
    released: Callable[[], None]

    def release(self) -> None:
        self.released()

    def count(self, since: int | None) -> int:
        """Return how many entries have changed: two for each key that has windows, and for each that has none."""
        if since is None:
            return 2 * int(np.count_nonzero(self._windows_of))
        return 2 * int(np.count_nonzero(self.changed > since))

    def entries(self, since: int | None) -> Iterator[HeldEntries]:
        """Yield the entries by key group."""
        wanted = None if since is None else self.changed > since
        yield from self._windows(wanted)
        yield from self._timers(wanted)
        if wanted is not None:
            gone = np.flatnonzero(wanted & (self._windows_of == 0))
            gone = gone[np.argsort(self._groups[gone], kind="stable")]
            for group, slots in _by_group(gone, self._groups):
                encoded = self.keys.keys_of(slots)[1]
                for name in (WINDOWS, EVENT_TIMERS):
                    yield HeldEntries(name, group, (), (), encoded)

    @cached_property
    def _windows_of(self) -> Ints:
        """Slot -> how many windows its key has."""
        return np.bincount(self._slots, minlength=len(self.changed))

    @cached_property
    def _slabs(self) -> Sequence[FrozenSlab]:
        return self.made()

    @cached_property
    def _slots(self) -> Ints:
        return np.concatenate([_NONE, *(slab.slots for slab in self._slabs)])

    @cached_property
    def _groups(self) -> Ints:
        return self.keys.groups_upto(len(self.changed))

    def _windows(self, wanted: Any | None) -> Iterator[HeldEntries]:
        if not self._slabs:
            return
        order = self._ordered(self._slots, wanted)
        starts = np.concatenate([_of_each(slab.starts, slab) for slab in self._slabs])[order]
        ends = np.concatenate([_of_each(slab.ends, slab) for slab in self._slabs])[order]
        firings = np.concatenate([slab.firings for slab in self._slabs])[order]
        pending = np.concatenate([slab.pending for slab in self._slabs])[order]
        stored = [_in_order(self._stored(place), order) for place in range(len(self.floating))]
        for group, slots, rows in self._by_width(self._slots[order]):
            columns = [starts[rows], ends[rows], firings[rows], pending[rows]]
            values = [column[rows] for column in stored]
            if None in self.floating:
                made = _encoded_maps(columns, values)
            else:
                made = _packed_maps(columns, values, [bool(one) for one in self.floating])
            yield HeldEntries(WINDOWS, group, self.keys.keys_of(slots)[1], made)

    def _stored(self, place: int) -> Any:
        """Return what is kept of an aggregate, slab by slab."""
        parts = [slab.values[place].stored(slab.places) for slab in self._slabs]
        if self.floating[place] is not None:
            return np.concatenate(parts)
        return [value for part in parts for value in part]

    def _timers(self, wanted: Any | None) -> Iterator[HeldEntries]:
        if not self._slabs:
            return
        ends = [_of_each(slab.ends, slab) for slab in self._slabs]
        slots = [self._slots]
        times = [of_slab + self.removed_after_ms for of_slab in ends]
        if self.removed_after_ms >= 0:
            slots += [slab.slots[slab.waits] for slab in self._slabs]
            times += [of_slab[slab.waits] - 1 for of_slab, slab in zip(ends, self._slabs, strict=True)]
        of_key, at_ms = np.concatenate(slots), np.concatenate(times)
        first = np.argsort(at_ms, kind="stable")
        of_key, at_ms = of_key[first], at_ms[first]
        order = self._ordered(of_key, wanted)
        of_key, at_ms = of_key[order], at_ms[order]
        if self.removed_after_ms >= 0 and len(of_key):
            once = np.concatenate([[True], (of_key[1:] != of_key[:-1]) | (at_ms[1:] != at_ms[:-1])])
            of_key, at_ms = of_key[once], at_ms[once]
        for group, slots_, rows in self._by_width(of_key):
            made = _as_list(np.concatenate([_head(0x90, 0xDC, rows), _tagged(_INT, at_ms[rows])], axis=1))
            yield HeldEntries(EVENT_TIMERS, group, self.keys.keys_of(slots_)[1], made)

    def _ordered(self, slots: Ints, wanted: Any | None) -> Ints:
        """Return the order by key group and key of those that are wanted; elements of a key stay in their order."""
        chosen = np.arange(len(slots)) if wanted is None else np.flatnonzero(wanted[slots])
        of_chosen = slots[chosen]
        return chosen[np.argsort(self._groups[of_chosen] * len(self.changed) + of_chosen, kind="stable")]

    def _by_width(self, slots: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield key group, slots of keys with equally many elements, and the places of these: a row for each key."""
        if not len(slots):
            return
        begins = np.flatnonzero(np.concatenate([[True], slots[1:] != slots[:-1]]))
        widths = np.diff(np.append(begins, len(slots)))
        for group, which in _by_group(np.arange(len(begins)), self._groups[slots[begins]]):
            of_group = widths[which]
            for width in np.unique(of_group).tolist():
                first = begins[which[of_group == width]]
                yield group, slots[first], first[:, None] + np.arange(width)


_NONE: Ints = np.empty(0, dtype=np.int64)


def _of_each(times: Ints | int, slab: FrozenSlab) -> Ints:
    return np.full(len(slab.slots), times) if isinstance(times, int) else times


def _by_group(numbers: Ints, groups: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield key group and numbers, which are in the order of their groups, not too many at once."""
    if not len(numbers):
        return
    of_number = groups[numbers]
    begins = np.flatnonzero(np.concatenate([[True], of_number[1:] != of_number[:-1]]))
    ends = np.append(begins[1:], len(numbers))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        for part in range(begin, end, KEYS_AT_ONCE):
            yield int(of_number[begin]), numbers[part : min(end, part + KEYS_AT_ONCE)]


def _in_order(values: Any, order: Ints) -> Any:
    if isinstance(values, np.ndarray):
        return values[order]
    found = np.empty(len(order), dtype=object)
    for place, number in enumerate(order.tolist()):
        found[place] = values[number]
    return found


def _encoded_maps(columns: Sequence[Ints], values: Sequence[Any]) -> list[bytes]:
    """Return the maps of keys with equally many windows, some of whose values are bytes."""
    made = []
    of_keys = zip(*(column.tolist() for column in (*columns, *values)), strict=True)
    for starts, ends, firings, pending, *of_aggregates in of_keys:
        windows = map(WindowState, ends, firings, pending, map(list, zip(*of_aggregates, strict=True)))
        made.append(_encode(dict(zip(starts, windows, strict=True))))
    return made


def _packed_maps(columns: Sequence[Ints], values: Sequence[Any], floating: Sequence[bool]) -> list[bytes]:
    """Return the maps of keys with equally many windows; all values are numbers."""
    start, *numbers = columns
    rows, width = start.shape
    parts = [_tagged(_INT, start[..., None]), np.full((rows, width, 1), 0x94, dtype=np.uint8)]
    parts += [_tagged(_INT, column[..., None]) for column in numbers]
    count = len(values)
    parts.append(np.broadcast_to(_array_head(count), (rows, width, 1 if count < 16 else 3)))
    parts += [
        _tagged(_FLOAT if is_float else _INT, column[..., None])
        for column, is_float in zip(values, floating, strict=True)
    ]
    body = np.concatenate(parts, axis=2).reshape(rows, -1)
    return _as_list(np.concatenate([_head(0x80, 0xDE, start), body], axis=1))


def _array_head(count: int) -> _Bytes:
    return np.frombuffer(
        bytes([0x90 | count]) if count < 16 else b"\xdc" + count.to_bytes(2, "big"), np.uint8
    )


def _head(short: int, long: int, elements: Any) -> _Bytes:
    """Return the first bytes of maps or lists, for rows of elements."""
    rows, width = elements.shape
    head = bytes([short | width]) if width < 16 else bytes([long]) + width.to_bytes(2, "big")
    return np.broadcast_to(np.frombuffer(head, dtype=np.uint8), (rows, len(head)))


def _tagged(tag: int, numbers: Any) -> _Bytes:
    """Return numbers of 64 bits as MessagePack has them; those of the last axis side by side."""
    *outer, width = numbers.shape
    tagged = np.empty((*outer, width, 9), dtype=np.uint8)
    tagged[..., 0] = tag
    wanted = ">f8" if tag == _FLOAT else ">i8"
    tagged[..., 1:] = np.ascontiguousarray(numbers, dtype=wanted).view(np.uint8).reshape(*outer, width, 8)
    return tagged.reshape(*outer, width * 9)


def _as_list(packed: _Bytes) -> list[bytes]:
    """Return each row as bytes."""
    contiguous = np.ascontiguousarray(packed)
    found: list[bytes] = contiguous.view(f"V{contiguous.shape[1]}").ravel().tolist()
    return found


def stored_windows(
    store: KeyedStateStore, groups: Iterable[int]
) -> Iterator[tuple[bytes, dict[int, WindowState], frozenset[int]]]:
    """Yield the key, the windows by start, and the times of timers, of all keys that a store has."""
    windows: Codec[dict[int, WindowState]] = Codec(WINDOWS, dict[int, WindowState])
    timers: Codec[list[int]] = Codec(EVENT_TIMERS, list[int])
    for group in groups:
        times = dict(store.scan(EVENT_TIMERS, group))
        for key, data in store.scan(WINDOWS, group):
            of_key = timers.decode(times[key]) if key in times else ()
            yield key, windows.decode(data), frozenset(of_key)
