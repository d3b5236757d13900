"""Windows over Arrow batches, a batch at a time: what ``windows.WindowFunction`` does record by record.

Which of both runs is decided by ``takes_batches`` alone. Output, firings, late records and state are the same, and so
are the bytes' meaning in a snapshot: either goes on from a snapshot of the other. What fires because of one watermark
comes in the order of the ends of windows, in batches.

All windows are in memory (``arrow_window_table``), whatever the state backend. Entries for the store are made in the
asynchronous part of a snapshot, if the store can wait for them (``state.held``), and before it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext, Payload
from barrier_tck.reference_impl.operators.arrow_keys import Ints, as_int64, bounds_of, columns_of
from barrier_tck.reference_impl.operators.arrow_session_table import SessionWindows
from barrier_tck.reference_impl.operators.arrow_window_entries import FrozenWindows, stored_windows
from barrier_tck.reference_impl.operators.arrow_window_keys import WindowAggregates, WindowKeys
from barrier_tck.reference_impl.operators.arrow_window_slabs import FrozenSlab, Pins
from barrier_tck.reference_impl.operators.arrow_window_table import FixedWindows
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.keyed_process import StoredOperator
from barrier_tck.reference_impl.operators.windows import (
    LATE,
    WINDOWS,
    Session,
    Sliding,
    Tumbling,
    WindowDefinition,
    WindowState,
    not_an_event_time,
)
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.protocol.watermarks import BEGINNING_OF_TIME, GroupFloor, GroupWatermarks
from barrier_tck.reference_impl.runtime_errors import ProtocolError
from barrier_tck.reference_impl.state.backend import SnapshotFuture
from barrier_tck.reference_impl.state.held import FrozenState, HoldingStore

_TIME_MAX_MS = 1 << 61
"""No event time is further from the epoch (ms): so the bounds of windows have 64 bits."""


def takes_batches(definition: WindowDefinition) -> bool:
    """Return whether windows are vectorised on Arrow: the assigners that the runtime has, without a trigger."""
    return isinstance(definition.assigner, Tumbling | Sliding | Session) and definition.trigger is None


class WindowTable(Protocol):
    """The windows of a subtask."""

    def __len__(self) -> int:
        """Return 0 if there is no window."""

    def take(self, payload: Any, times: Ints) -> tuple[Any | None, Any | None]:
        """Add a batch of at least one row, with the event time of each (ms).

        Returns what fires because of it, and the rows that are late.
        """

    def fire(self, changes_since: int | None) -> Iterator[Any]:
        """Fire the windows that have ended and remove those whose time is over; yields what is emitted.

        ``changes_since``: a snapshot may be asked for what has changed since that version; None: it never is.
        """

    def restore(self, entries: Iterable[tuple[bytes, dict[int, WindowState], frozenset[int]]]) -> None:
        """Take restored windows: by key, the windows by start, and the times of its timers (ms)."""

    def frozen(self) -> Callable[[], list[FrozenSlab]]:
        """Return what gives the windows as they are now; the next change copies what it changes."""


class ArrowWindows(StoredOperator):
    """A ``MultiInputOperator`` with windows over whole batches; ``HeldState`` of its store."""

    def __init__(self, definition: WindowDefinition, plane: DataPlane) -> None:
        super().__init__(definition.uid, plane)
        self._definition = definition
        self._windows: WindowTable | None = None
        self._keys: WindowKeys | None = None
        self._aggregates = WindowAggregates(definition)
        self._pins = Pins()
        self._watermarks = GroupWatermarks()
        self._holding: HoldingStore | None = None
        self._written = 0
        """The version whose changes the store has, if it holds nothing."""
        self._write_through = False

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Open the store with the restored files, and take the windows from it (REC-1, EVT-1)."""
        self._open_store(context, restored)
        at_ms, floors = BEGINNING_OF_TIME, tuple[GroupFloor, ...]()
        if context.event_time is not None:
            at_ms, floors = context.event_time.at_ms, context.event_time.floors
        self._watermarks = GroupWatermarks(at_ms, floors)
        self._keys = WindowKeys(self._definition, self._watermarks, context.max_parallelism)
        make = SessionWindows if self._definition.assigner.merges else FixedWindows
        windows: WindowTable = make(self._definition, self._keys, self._aggregates, self._pins)
        store = self._opened()[1]
        windows.restore(stored_windows(store, context.key_groups))
        self._windows = windows
        self._write_through = context.write_through
        if isinstance(store, HoldingStore) and not context.write_through:
            self._holding = store
            store.hold(self, (WINDOWS, EVENT_TIMERS))

    def process(self, payload: Payload) -> Payload | None:
        """Add a batch to the windows; returns what fires because of it."""
        if not payload.num_rows:
            return None
        fired, late = self._with_windows().take(payload, self._times_of(payload))
        if late is not None:
            self._opened()[0].emit_aside(LATE, late)
        if self._write_through:
            self._write()
        return fired

    def process_input(self, payload: Payload, number: int) -> Payload | None:
        """Add a batch of the only input."""
        return self.process(payload)

    def advance_watermark(self, at_ms: int) -> Iterator[Payload]:
        self._watermarks.advance(at_ms)
        return self.fire_due()

    def raise_floor(self, key_groups: KeyGroupRange, at_ms: int) -> Iterator[Payload]:
        self._watermarks.raise_floor(key_groups, at_ms)
        return self.fire_due()

    def fire_due(self) -> Iterator[Payload]:
        """Fire the windows that have ended, and remove those whose allowed lateness is over."""
        since = self._written if self._holding is None else self._holding.changes_since
        yield from self._with_windows().fire(since)
        if self._write_through:
            self._write()

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotFuture[OperatorSnapshot]:
        """Do the store's synchronous part (SNP-1)."""
        if self._holding is None:
            self._write()
        return super().snapshot(checkpoint)

    def freeze(self, version: int) -> FrozenState:
        """Freeze the windows for a snapshot."""
        assert self._keys is not None, "it has been opened"
        pin, keys, windows = self._pins.take(), self._keys, self._with_windows()
        keys.version = version + 1
        return FrozenWindows(
            keys.slots,
            windows.frozen(),
            not len(windows),
            keys.share_changes(),
            self._aggregates.floating,
            self._definition.lateness_ms - 1,
            lambda: self._pins.release(pin),
        )

    def _write(self) -> None:
        """Write what has changed to the store."""
        store, since = self._opened()[1], self._written
        self._written = since + 1
        frozen = self.freeze(self._written)
        for part in frozen.entries(since):
            if part.keys:
                store.put_many(part.name, [part.group] * len(part.keys), part.keys, part.values)
            for key in part.removed:
                store.delete(part.name, part.group, key)
        frozen.release()

    def _times_of(self, payload: Any) -> Ints:
        """Return the event times of a batch (ms); raises JobUsageError if a record has none."""
        name = self._definition.time
        column = columns_of(payload, [name], self.uid)[0]
        integers = as_int64(column) if not column.null_count else None
        if integers is not None:
            times: Ints = integers.to_numpy()
            if max(map(abs, bounds_of(times))) <= _TIME_MAX_MS:
                return times
        values = column.to_pylist()
        found = next(one for one in values if type(one) is not int or abs(one) > _TIME_MAX_MS)
        raise not_an_event_time(self.uid, name, found)

    def _with_windows(self) -> WindowTable:
        if self._windows is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._windows
