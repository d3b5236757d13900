"""Reads the entries of windows back into arrays: those that were made of arrays as a whole, others one by one.

Entries of equal length, made of arrays, differ in the bytes of their numbers alone. Which bytes these are is seen from
two entries whose numbers have no bit in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from barrier_tck.reference_impl.operators.arrow_keys import Ints
from barrier_tck.reference_impl.operators.arrow_window_entries import packed_lists, packed_maps
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.windows import WINDOWS, WindowState
from barrier_tck.reference_impl.state.backend import KeyedStateStore
from barrier_tck.reference_impl.state.keyed import Codec

_NUMBERS = 4
"""Of a window: start, end, firings and pending."""


@dataclass(frozen=True, slots=True)
class StoredWindows:
    """All windows of a store."""

    keys: list[bytes]
    slots: Ints
    """The place in ``keys`` of the key of each window, as what follows."""
    starts: Ints
    ends: Ints
    firings: Ints
    pending: Ints
    waits: Any
    """Whether each has yet to fire because of its end: whether there is a timer for it."""
    values: list[Any]
    """By aggregate what is kept: an array of numbers, or a list of bytes."""

    def __len__(self) -> int:
        return len(self.slots)


def stored_windows(
    store: KeyedStateStore, groups: Iterable[int], floating: Sequence[bool | None]
) -> StoredWindows:
    """Return the windows of some key groups; ``floating``: by aggregate whether floats are kept, None: bytes."""
    keys, maps, lists = list[bytes](), list[bytes](), list[bytes]()
    for group in groups:
        timers = dict(store.scan(EVENT_TIMERS, group))
        for key, data in store.scan(WINDOWS, group):
            keys.append(key)
            maps.append(data)
            lists.append(timers.get(key, b"\x90"))
    slots, numbers, values = _windows(maps, floating)
    starts, ends, firings, pending = numbers
    waits = _among(slots, ends - 1, *_times(lists))
    return StoredWindows(keys, slots, starts, ends, firings, pending, waits, values)


def _windows(maps: Sequence[bytes], floating: Sequence[bool | None]) -> tuple[Ints, Ints, list[Any]]:
    """Return the place of each window's map, its numbers, and what its aggregates keep."""
    codec: Codec[dict[int, WindowState]] = Codec(WINDOWS, dict[int, WindowState])
    as_floats = [bool(one) for one in floating]
    places: list[Ints] = [_NONE]
    numbers: list[Ints] = [np.empty((_NUMBERS, 0), dtype=np.int64)]
    values: list[list[Any]] = [[] for _ in floating]
    for where in _by_length(maps):
        found = None
        if None not in floating:
            found = _unpacked(
                [maps[place] for place in where.tolist()],
                lambda width, fill: packed_maps(
                    [np.full((1, width), fill)] * _NUMBERS,
                    [
                        np.full((1, width), fill).view(np.float64 if is_float else np.int64)
                        for is_float in as_floats
                    ],
                    as_floats,
                ),
            )
        if found is not None:
            of_map = found.reshape(len(where), -1, _NUMBERS + len(floating))
            places.append(np.repeat(where, of_map.shape[1]))
            columns = of_map.reshape(-1, of_map.shape[2]).T
            numbers.append(columns[:_NUMBERS].astype(np.int64))
            for number, is_float in enumerate(as_floats):
                column = np.ascontiguousarray(columns[_NUMBERS + number])
                values[number].append(
                    column.view(">f8").astype(np.float64) if is_float else column.astype(np.int64)
                )
            continue
        for place in where.tolist():
            windows = codec.decode(maps[place])
            states = [*windows.values()]
            places.append(np.full(len(states), place))
            rows = [
                [*windows],
                *([getattr(one, name) for one in states] for name in ("end", "firings", "pending")),
            ]
            numbers.append(np.array(rows, dtype=np.int64).reshape(_NUMBERS, -1))
            for of_aggregate, kept_of in zip(
                values, zip(*(one.values for one in states), strict=True), strict=True
            ):
                of_aggregate.append(kept_of)
    kept = [
        [value for part in parts for value in part]
        if is_float is None
        else np.concatenate([np.empty(0, np.float64 if is_float else np.int64), *map(np.asarray, parts)])
        for parts, is_float in zip(values, floating, strict=True)
    ]
    return np.concatenate(places), np.concatenate(numbers, axis=1), kept


def _times(lists: Sequence[bytes]) -> tuple[Ints, Ints]:
    """Return the place of the list of each timer, and its time (ms)."""
    codec: Codec[list[int]] = Codec(EVENT_TIMERS, list[int])
    places: list[Ints] = [_NONE]
    times: list[Ints] = [_NONE]
    for where in _by_length(lists):
        of_length = [lists[place] for place in where.tolist()]
        found = _unpacked(of_length, lambda width, fill: packed_lists(np.full((1, width), fill)))
        if found is not None:
            places.append(np.repeat(where, found.shape[1]))
            times.append(found.astype(np.int64).ravel())
            continue
        for place, data in zip(where.tolist(), of_length, strict=True):
            of_list = codec.decode(data)
            places.append(np.full(len(of_list), place))
            times.append(np.array(of_list, dtype=np.int64))
    return np.concatenate(places), np.concatenate(times)


def _by_length(entries: Sequence[bytes]) -> Iterable[Ints]:
    """Yield the places of entries that are equally long."""
    lengths = np.fromiter(map(len, entries), dtype=np.int64, count=len(entries))
    for length in np.unique(lengths).tolist():
        yield np.flatnonzero(lengths == length)


def _unpacked(entries: Sequence[bytes], packed: Callable[[int, int], list[bytes]]) -> Any | None:
    """Return the numbers in entries of one length, a row for each; None if they were not made of arrays.

    ``packed`` makes an entry of so many elements, all of whose numbers have a value.
    """
    length = len(entries[0])
    head, step = (len(packed(width, 0)[0]) for width in (1, 2))
    step -= head
    width = max(1, (length - head) // step + 1)
    if len(packed(width, 0)[0]) != length:
        width -= 1  # the head of many elements is longer
        if width < 1 or len(packed(width, 0)[0]) != length:
            return None
    zeros, ones = (np.frombuffer(packed(width, fill)[0], dtype=np.uint8) for fill in (0, -1))
    of_numbers = zeros != ones
    found = np.frombuffer(b"".join(entries), dtype=np.uint8).reshape(len(entries), length)
    if not (found[:, ~of_numbers] == zeros[~of_numbers]).all():
        return None
    return np.ascontiguousarray(found[:, of_numbers]).view(">i8")


def _among(slots: Ints, times: Ints, of_slots: Ints, of_times: Ints) -> Any:
    """Return which pairs of slot and time are among others."""
    distinct = np.unique(of_times)
    if not len(distinct):
        return np.zeros(len(slots), dtype=np.bool_)
    ranks = np.minimum(np.searchsorted(distinct, times), len(distinct) - 1)
    width = len(distinct)
    others = of_slots * width + np.searchsorted(distinct, of_times)
    return (distinct[ranks] == times) & np.isin(slots * width + ranks, others)


_NONE: Ints = np.empty(0, dtype=np.int64)
