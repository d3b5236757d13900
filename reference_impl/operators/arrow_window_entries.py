"""Windows on Arrow as the entries of a store, in the form in which ``windows.WindowFunction`` keeps them by key.

That is a map by start to ``WindowState``, and a list of times for the timers. Integers are written with all of their 64
bits, so that all keys with the same number of windows have as many bytes, and one array is made of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from barrier_tck.reference_impl.operators.arrow_keys import Ints
from barrier_tck.reference_impl.operators.arrow_slots import KeySlots
from barrier_tck.reference_impl.operators.arrow_window_slabs import FrozenSlab
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.windows import WINDOWS, WindowState
from barrier_tck.reference_impl.state.held import HeldEntries

KEYS_AT_ONCE = 4_096
"""Bytes are made for so many keys at a time: no other thread runs meanwhile."""
_INT, _FLOAT = 0xD3, 0xCB
_encode = msgspec.msgpack.Encoder().encode
_Bytes = Any
"""An array of bytes: a row for each key."""


class FrozenKeys(ABC):
    """The common part of a ``FrozenState`` of arrays: keys, which of them have changed, and their timers."""

    def __init__(
        self,
        keys: KeySlots,
        is_empty: bool,
        changed: Ints,
        names: Sequence[str],
        released: Callable[[], None],
    ) -> None:
        """Take the keys, whether nothing is there, and slot -> the version of the first snapshot with the last change.

        ``names`` are those of its states, ``released`` is called when nothing is read any more.
        """
        self.keys = keys
        self.is_empty = is_empty
        self._changed = changed
        self._names = names
        self._released = released

    def release(self) -> None:
        self._released()

    def count(self, since: int | None) -> int:
        """Return about how many entries have changed: at most one of each state for each key."""
        chosen = self._elements_of > 0 if since is None else self._changed > since
        return len(self._names) * int(np.count_nonzero(chosen))

    def entries(self, since: int | None) -> Iterator[HeldEntries]:
        """Yield the entries by key group."""
        wanted = None if since is None else self._changed > since
        for name, slots in self._elements().items():
            if len(slots):
                yield from self._made(name, self._ordered(slots, wanted))
            if wanted is not None:
                left = np.bincount(slots, minlength=len(self._changed))
                yield from self._gone(name, np.flatnonzero(wanted & (left == 0)))

    @abstractmethod
    def _elements(self) -> Mapping[str, Ints]:
        """Return by state the slot of each element; those of a key are in the order of the entry, if not in a row."""

    @abstractmethod
    def _made(self, name: str, order: Ints) -> Iterator[HeldEntries]:
        """Yield the entries of some elements of a state, of which those of a key group and key stand together."""

    def _gone(self, name: str, slots: Ints) -> Iterator[HeldEntries]:
        slots = slots[np.argsort(self._groups[slots], kind="stable")]
        for group, of_group in by_group(slots, self._groups):
            yield HeldEntries(name, group, (), (), self.keys.keys_of(of_group)[1])

    @cached_property
    def _elements_of(self) -> Ints:
        """Slot -> how many elements its key has in all states."""
        return np.bincount(np.concatenate([*self._elements().values()]), minlength=len(self._changed))

    @cached_property
    def _groups(self) -> Ints:
        return self.keys.groups_upto(len(self._changed))

    def _ordered(self, slots: Ints, wanted: Any | None) -> Ints:
        """Return the order by key group and key of those that are wanted; elements of a key stay in their order."""
        chosen = np.arange(len(slots)) if wanted is None else np.flatnonzero(wanted[slots])
        of_chosen = slots[chosen]
        by_key = np.argsort(self._groups[of_chosen] * len(self._changed) + of_chosen, kind="stable")
        return chosen[by_key]

    def _timers(self, slots: Ints, at_ms: Ints) -> Iterator[HeldEntries]:
        """Yield the entries of timers; those of a key stand together, in the order of their times, each once."""
        for group, of_key, rows in self._by_width(slots):
            made = packed_lists(at_ms[rows])
            yield HeldEntries(EVENT_TIMERS, group, self.keys.keys_of(of_key)[1], made)

    def _by_key(self, slots: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield key group, slots of keys, and where their elements begin, with the end of the last one behind them."""
        if not len(slots):
            return
        begins = np.flatnonzero(np.concatenate([[True], slots[1:] != slots[:-1]]))
        bounds = np.append(begins, len(slots))
        for group, which in by_group(np.arange(len(begins)), self._groups[slots[begins]]):
            yield group, slots[begins[which]], bounds[which[0] : which[-1] + 2]

    def _by_width(self, slots: Ints) -> Iterator[tuple[int, Ints, Ints]]:
        """Yield key group, slots of keys with equally many elements, and the places of these: a row for each key."""
        if not len(slots):
            return
        begins = np.flatnonzero(np.concatenate([[True], slots[1:] != slots[:-1]]))
        widths = np.diff(np.append(begins, len(slots)))
        for group, which in by_group(np.arange(len(begins)), self._groups[slots[begins]]):
            of_group = widths[which]
            for width in np.unique(of_group).tolist():
                first = begins[which[of_group == width]]
                yield group, slots[first], first[:, None] + np.arange(width)


class FrozenWindows(FrozenKeys):
    """``FrozenState`` of the windows of a subtask."""

    def __init__(
        self,
        keys: KeySlots,
        made: Callable[[], Sequence[FrozenSlab]],
        is_empty: bool,
        changed: Ints,
        floating: Sequence[bool | None],
        removed_after_ms: int,
        released: Callable[[], None],
    ) -> None:
        """Take what ``FrozenKeys`` takes, and what gives the windows, those of a key in the order of their starts.

        ``floating``: for each aggregate whether what is kept are floats; None: it is bytes. ``removed_after_ms``: how
        long after its end a window is removed.
        """
        super().__init__(keys, is_empty, changed, (WINDOWS, EVENT_TIMERS), released)
        self._slabs_made = made
        self._floating = floating
        self._removed_after_ms = removed_after_ms

    @cached_property
    def _slabs(self) -> Sequence[FrozenSlab]:
        return self._slabs_made()

    @cached_property
    def _due(self) -> tuple[Ints, Ints]:
        """Key by slot, and time, of each timer, in the order of the times; some are there twice."""
        ends = [_of_each(slab.ends, slab) for slab in self._slabs]
        slots = [slab.slots for slab in self._slabs]
        times = [of_slab + self._removed_after_ms for of_slab in ends]
        if self._removed_after_ms >= 0:
            slots += [slab.slots[slab.waits] for slab in self._slabs]
            times += [of_slab[slab.waits] - 1 for of_slab, slab in zip(ends, self._slabs, strict=True)]
        return ordered_times(np.concatenate([_NONE, *slots]), np.concatenate([_NONE, *times]))

    def _elements(self) -> Mapping[str, Ints]:
        windows = np.concatenate([_NONE, *(slab.slots for slab in self._slabs)])
        return {WINDOWS: windows, EVENT_TIMERS: self._due[0]}

    def _made(self, name: str, order: Ints) -> Iterator[HeldEntries]:
        if name == EVENT_TIMERS:
            slots, times = self._due
            yield from self._timers(*once(slots[order], times[order]))
            return
        slots = np.concatenate([slab.slots for slab in self._slabs])[order]
        starts = np.concatenate([_of_each(slab.starts, slab) for slab in self._slabs])[order]
        ends = np.concatenate([_of_each(slab.ends, slab) for slab in self._slabs])[order]
        firings = np.concatenate([slab.firings for slab in self._slabs])[order]
        pending = np.concatenate([slab.pending for slab in self._slabs])[order]
        stored = [_in_order(self._stored(place), order) for place in range(len(self._floating))]
        for group, of_key, rows in self._by_width(slots):
            columns = [starts[rows], ends[rows], firings[rows], pending[rows]]
            values = [column[rows] for column in stored]
            if None in self._floating:
                made = _encoded_maps(columns, values)
            else:
                made = packed_maps(columns, values, [bool(one) for one in self._floating])
            yield HeldEntries(WINDOWS, group, self.keys.keys_of(of_key)[1], made)

    def _stored(self, place: int) -> Any:
        """Return what is kept of an aggregate, slab by slab."""
        parts = [
            slab.values[place].stored(np.arange(len(slab.slots)) if slab.places is None else slab.places)
            for slab in self._slabs
        ]
        if self._floating[place] is not None:
            return np.concatenate(parts)
        return [value for part in parts for value in part]


_NONE: Ints = np.empty(0, dtype=np.int64)


def _of_each(times: Ints | int, slab: FrozenSlab) -> Ints:
    return np.full(len(slab.slots), times) if isinstance(times, int) else times


def by_group(numbers: Ints, groups: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield key group and numbers, which are in the order of their groups, not too many at once."""
    if not len(numbers):
        return
    of_number = groups[numbers]
    begins = np.flatnonzero(np.concatenate([[True], of_number[1:] != of_number[:-1]]))
    ends = np.append(begins[1:], len(numbers))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        for part in range(begin, end, KEYS_AT_ONCE):
            yield int(of_number[begin]), numbers[part : min(end, part + KEYS_AT_ONCE)]


def ordered_times(slots: Ints, at_ms: Ints) -> tuple[Ints, Ints]:
    """Return slots and times in the order of the times."""
    order = np.argsort(at_ms, kind="stable")
    return slots[order], at_ms[order]


def once(slots: Ints, at_ms: Ints) -> tuple[Ints, Ints]:
    """Return slots and times, of which equal ones stand together, each of them once."""
    if not len(slots):
        return slots, at_ms
    kept = np.concatenate([[True], (slots[1:] != slots[:-1]) | (at_ms[1:] != at_ms[:-1])])
    return slots[kept], at_ms[kept]


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


def packed_maps(columns: Sequence[Ints], values: Sequence[Any], floating: Sequence[bool]) -> list[bytes]:
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


def packed_lists(numbers: Ints) -> list[bytes]:
    """Return rows of numbers as lists."""
    return _as_list(np.concatenate([_head(0x90, 0xDC, numbers), _tagged(_INT, numbers)], axis=1))


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
