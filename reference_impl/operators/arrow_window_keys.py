"""What tables of windows on Arrow share: the keys, how far event time has come for them, and which have changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from barrier_tck.reference_impl.operators.arrow_keys import Ints, key_columns
from barrier_tck.reference_impl.operators.arrow_slots import KeySlots
from barrier_tck.reference_impl.operators.arrow_values import Column
from barrier_tck.reference_impl.operators.arrow_window_rows import FiredRows
from barrier_tck.reference_impl.operators.arrow_window_values import Source, WindowedAggregate, WindowValues
from barrier_tck.reference_impl.operators.windows import WindowDefinition
from barrier_tck.reference_impl.protocol.watermarks import GroupWatermarks

ROWS_OF_A_BATCH = 16_384
"""What fires because of one watermark is passed on in batches of at most so many rows."""
COMPACT_FLOOR = 1 << 16
"""With fewer keys than that, those without a window are not looked for."""

Marks = Any
"""The watermark (ms) of all keys, or an array with that of each row."""


class WindowKeys:
    """The keys of windows, by slot."""

    def __init__(self, key: tuple[str, ...], watermarks: GroupWatermarks, max_parallelism: int) -> None:
        self._columns = key
        self.watermarks = watermarks
        self.slots = KeySlots(key, max_parallelism)
        self.version = 1
        """The version of the next snapshot."""
        self._changed: Ints = np.zeros(1024, dtype=np.int64)
        """Slot -> the version of the first snapshot that has the last change of its key."""
        self._changed_is_shared = False
        self._windows_of: Ints = np.zeros(1024, dtype=np.int64)
        """Slot -> how many windows its key has."""

    def __len__(self) -> int:
        return len(self.slots)

    def of(self, payload: Any) -> Ints:
        """Return the slot of each row of a batch."""
        return self.of_columns(key_columns(payload, self._columns, "window"))

    def of_columns(self, columns: list[Column]) -> Ints:
        """Return the slot of each row of key columns."""
        slots = self.slots.slots_of_columns(columns)
        self._cover()
        return slots

    def add(self, encoded: list[bytes]) -> None:
        """Take restored keys, which get the first slots."""
        self.slots.add_keys(encoded)
        self._cover()

    def marks_of(self, slots: Ints) -> Marks:
        """Return how far event time has come for keys."""
        if not self.watermarks.floors:
            return self.watermarks.at_ms
        return np.array([self.watermarks.of(group) for group in self.slots.groups_of(slots)], dtype=np.int64)

    def note(self, slots: Ints) -> None:
        """Note that the windows of keys change."""
        if self._changed_is_shared:
            self._changed, self._changed_is_shared = self._changed.copy(), False
        self._changed[slots] = self.version

    def share_changes(self) -> Ints:
        """Return slot -> the version of the first snapshot that has the last change of its key, as of now."""
        self._changed_is_shared = True
        return self._changed[: len(self)]

    def more_windows(self, slots: Ints) -> None:
        """Note that keys have a window more, for each time that their slot is there."""
        np.add.at(self._windows_of, slots, 1)

    def fewer_windows(self, slots: Ints) -> None:
        """Note that keys have a window less, for each time that their slot is there."""
        np.subtract.at(self._windows_of, slots, 1)

    def compacted(self, changes_since: int | None) -> Ints | None:
        """Forget keys without a window, if most are; return former slot -> slot, below 0 for those that are gone.

        None if that is not worth it. A key stays if a snapshot may have to say that it has no window any more, since
        it has changed after the version ``changes_since``.
        """
        count = len(self)
        if count < COMPACT_FLOOR:
            return None
        kept = self._windows_of[:count] > 0
        if changes_since is not None:
            kept |= self._changed[:count] > changes_since
        slots = np.flatnonzero(kept)
        if 4 * len(slots) > count:
            return None
        self.slots = self.slots.only(slots)
        self._changed, self._changed_is_shared = self._changed[slots], False
        self._windows_of = self._windows_of[slots]
        moved = np.full(count, -1, dtype=np.int64)
        moved[slots] = np.arange(len(slots))
        return moved

    def _cover(self) -> None:
        """Make room for all slots."""
        count, room = len(self), len(self._windows_of)
        if count > room:
            more = np.zeros(max(2 * room, count) - room, dtype=np.int64)
            self._windows_of = np.concatenate([self._windows_of, more])
            self._changed = np.concatenate([self._changed, more])
            self._changed_is_shared = False


class WindowAggregates:
    """The aggregates of windows, and the rows that these fire."""

    def __init__(self, definition: WindowDefinition) -> None:
        self._each = [WindowedAggregate(one) for one in definition.aggregates.values()]
        self._columns = (*definition.key, *definition.columns)

    def empty(self) -> list[WindowValues]:
        """Return the values of no window."""
        return [one.empty() for one in self._each]

    def sources(self, payload: Any) -> list[Source]:
        """Return what the rows of a batch give to each aggregate."""
        return [one.source(payload) for one in self._each]

    def depend_on_order(self, sources: list[Source]) -> bool:
        """Return whether results depend on the order in which rows are added."""
        return any(one.depends_on_order(source) for one, source in zip(self._each, sources, strict=True))

    @property
    def floating(self) -> list[bool | None]:
        """For each aggregate whether what is kept of it are floats; None: it is bytes."""
        return [one.floating for one in self._each]

    def batch(self, fired: FiredRows, keys: KeySlots) -> Any:
        """Return windows that fire as a batch."""
        slots, windows, results = fired.columns()
        columns = keys.key_columns_of(slots)
        columns += map(pa.array, windows)
        columns += [one.column(parts) for one, parts in zip(self._each, results, strict=True)]
        return pa.RecordBatch.from_arrays(columns, self._columns)
