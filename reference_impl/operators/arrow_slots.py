"""What the tables of running aggregates over Arrow batches share: a slot for each key, and which of them changed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from barrier_tck.reference_impl.operators.api import LookUp
from barrier_tck.reference_impl.operators.arrow_keys import (
    GenericKeyIndex,
    IntKeyIndex,
    Ints,
    KeyIndex,
    key_columns,
    stable_order,
)
from barrier_tck.reference_impl.operators.arrow_values import Column
from barrier_tck.reference_impl.operators.encoding import INT64_MAX, INT64_MIN, Key, decode_key

_DIRTY, _CHANGED = np.uint8(1), np.uint8(2)


class KeySlots:
    """Gives keys their slots, in the order of first sight."""

    def __init__(self, key: Sequence[str], max_parallelism: int) -> None:
        self.key = tuple(key)
        self._max_parallelism = max_parallelism
        self._index: KeyIndex = IntKeyIndex() if len(self.key) == 1 else GenericKeyIndex(len(self.key))
        self._groups: Ints = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._index)

    def add_keys(self, encoded: Sequence[bytes]) -> Ints:
        """Give new keys the next slots, in order."""
        keys = [decode_key(each) for each in encoded]
        if isinstance(self._index, IntKeyIndex) and not all(_is_int_key(key) for key in keys):
            self._index = self._generic()
        first = len(self._index)
        self._index.add(keys)
        return np.arange(first, first + len(keys))

    def slots_of_columns(self, columns: Sequence[Column]) -> Ints:
        """Return the slot of each row of key columns, those of new keys included."""
        slots = self._index.slots(columns)
        if slots is None:
            self._index = self._generic()
            slots = self._index.slots(columns)
            assert slots is not None
        return slots

    def keys_of(self, slots: Ints) -> tuple[list[int], list[bytes]]:
        """Return the key groups and the keys of slots."""
        return self._index.groups(slots, self._max_parallelism), self._index.encoded(slots)

    def groups_of(self, slots: Ints) -> list[int]:
        """Return the key groups of slots."""
        return self._index.groups(slots, self._max_parallelism)

    def groups_upto(self, count: int) -> Ints:
        """Return the key groups of the first slots, which any thread may ask for; they are noted."""
        known = self._groups
        if len(known) < count:
            more = self._index.groups(np.arange(len(known), count), self._max_parallelism)
            self._groups = known = np.concatenate([known, np.array(more, dtype=np.int64)])
        return known[:count]

    def key_columns_of(self, slots: Ints) -> list[Column]:
        """Return the key columns of slots."""
        return self._index.columns(slots)

    def only(self, slots: Ints) -> KeySlots:
        """Return some of the keys, with new slots in the order of the given ones."""
        fewer = KeySlots(self.key, self._max_parallelism)
        fewer._index = self._index.only(slots)
        return fewer

    def _generic(self) -> GenericKeyIndex:
        """Return the index for any kind of key, with the present slots."""
        index = GenericKeyIndex(len(self.key))
        index.add(self._index.keys())
        return index


class ArrowSlots(KeySlots, ABC):
    """The keys of a table. A subclass keeps the values, and says what rows look like."""

    def __init__(self, key: Sequence[str], max_parallelism: int) -> None:
        super().__init__(key, max_parallelism)
        self._marks = np.zeros(1024, dtype=np.uint8)

    def add_keys(self, encoded: Sequence[bytes]) -> Ints:
        """Give new keys the next slots, in order; they are neither dirty nor changed."""
        slots = super().add_keys(encoded)
        self._grow_marks()
        return slots

    def slots_of(self, payload: Any) -> tuple[list[Column], Ints, Ints]:
        """Return a batch's key columns, each row's slot, and the slots that are new."""
        columns = key_columns(payload, self.key, "aggregate")
        known = len(self._index)
        slots = self.slots_of_columns(columns)
        self._grow_marks()
        return columns, slots, np.arange(known, len(self._index))

    def found_of(self, slots: Ints, look_up: LookUp) -> tuple[Ints, list[bytes]]:
        """Return the slots for whose keys there is an accumulator elsewhere, and these accumulators."""
        found = look_up(*self.keys_of(slots)) if len(slots) else ()
        where = slots[np.array([value is not None for value in found], dtype=np.bool_)]
        return where, [value for value in found if value is not None]

    def mark(self, slots: Ints) -> None:
        """Note that the values of slots changed."""
        self._marks[slots] = _DIRTY | _CHANGED

    def take_dirty_slots(self) -> Ints:
        """Return the slots marked since the last call."""
        return self._take(_DIRTY)

    def take_changed(self) -> tuple[list[int], list[bytes]]:
        return self.keys_of(self._take(_CHANGED))

    def take_changed_rows(self) -> Any | None:
        """Return one row per key changed since the last call (or restore), or None."""
        return self._rows(self._take(_CHANGED))

    def all_rows(self) -> Any | None:
        return self._rows(np.arange(len(self._index)))

    def clear(self) -> None:
        """Forget all keys; a table for any kind of key goes on as such, with the types last seen."""
        self._index = self._index.emptied()
        self._marks = np.zeros(1024, dtype=np.uint8)

    @abstractmethod
    def _rows(self, slots: Ints) -> Any | None:
        """Return one row for each slot, or None if there is none."""

    def _grow_marks(self) -> None:
        capacity = len(self._marks)
        if len(self._index) > capacity:
            more = max(2 * capacity, len(self._index)) - capacity
            self._marks = np.concatenate([self._marks, np.zeros(more, dtype=np.uint8)])

    def _take(self, mark: np.uint8) -> Ints:
        slots = np.flatnonzero(self._marks & mark)
        self._marks[slots] &= ~mark
        return slots


def ordered_by_slot(slots: Ints) -> tuple[Ints, Ints]:
    """Return the order that puts equal slots of at least one row together, stably, and where each slot begins in it."""
    order = stable_order(slots)
    ordered = slots[order]
    return order, np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))


def _is_int_key(key: Key) -> bool:
    value = key[0]
    return value is None or (type(value) is int and INT64_MIN <= value <= INT64_MAX)
