"""Windows over Arrow batches, a batch at a time: what ``windows.WindowFunction`` does record by record.

Which of both runs is decided by ``takes_batches`` alone. Output, firings, late records and state are the same, and so
are the bytes' meaning in a snapshot: either goes on from a snapshot of the other. What fires because of one watermark
comes in the order of the ends of windows, in batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext, Payload
from barrier_tck.reference_impl.operators.arrow_held import ArrowHolder, times_of
from barrier_tck.reference_impl.operators.arrow_keys import Ints
from barrier_tck.reference_impl.operators.arrow_session_table import SessionWindows
from barrier_tck.reference_impl.operators.arrow_stored_windows import StoredWindows, stored_windows
from barrier_tck.reference_impl.operators.arrow_window_entries import FrozenWindows
from barrier_tck.reference_impl.operators.arrow_window_keys import WindowAggregates
from barrier_tck.reference_impl.operators.arrow_window_slabs import FrozenSlab
from barrier_tck.reference_impl.operators.arrow_window_table import FixedWindows
from barrier_tck.reference_impl.operators.event_time_process import EVENT_TIMERS
from barrier_tck.reference_impl.operators.windows import (
    LATE,
    WINDOWS,
    Session,
    Sliding,
    Tumbling,
    WindowDefinition,
    not_an_event_time,
)
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.runtime_errors import ProtocolError
from barrier_tck.reference_impl.state.held import FrozenState


def takes_batches(definition: Any) -> bool:
    """Return whether windows are vectorised on Arrow: the assigners that the runtime has, without a trigger."""
    if not isinstance(definition, WindowDefinition):
        return False
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

    def restore(self, stored: StoredWindows) -> None:
        """Take restored windows."""

    def frozen(self) -> Callable[[], list[FrozenSlab]]:
        """Return what gives the windows as they are now; the next change copies what it changes."""


class ArrowWindows(ArrowHolder):
    """A ``MultiInputOperator`` with windows over whole batches."""

    def __init__(self, definition: WindowDefinition, plane: DataPlane) -> None:
        super().__init__(definition.uid, plane, (WINDOWS, EVENT_TIMERS))
        self._definition = definition
        self._windows: WindowTable | None = None
        self._aggregates = WindowAggregates(definition)

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Open the store with the restored files, and take the windows from it (REC-1, EVT-1)."""
        self._open_keys(context, restored, self._definition.key)
        make = SessionWindows if self._definition.assigner.merges else FixedWindows
        windows: WindowTable = make(self._definition, self._with_keys(), self._aggregates, self._pins)
        store, floating = self._opened()[1], self._aggregates.floating
        windows.restore(stored_windows(store, context.key_groups, floating))
        self._windows = windows
        self._hold()

    def process(self, payload: Payload) -> Payload | None:
        """Add a batch to the windows; returns what fires because of it."""
        if not payload.num_rows:
            return None
        times = times_of(payload, self._definition.time, self.uid, not_an_event_time)
        fired, late = self._with_windows().take(payload, times)
        if late is not None:
            self._opened()[0].emit_aside(LATE, late)
        self._written_through()
        return fired

    def process_input(self, payload: Payload, number: int) -> Payload | None:
        """Add a batch of the only input."""
        return self.process(payload)

    def fire_due(self) -> Iterator[Payload]:
        """Fire the windows that have ended, and remove those whose allowed lateness is over."""
        yield from self._with_windows().fire(self._changes_since())
        self._written_through()

    def freeze(self, version: int) -> FrozenState:
        """Freeze the windows for a snapshot."""
        keys, windows = self._with_keys(), self._with_windows()
        pin = self._pins.take()
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

    def _with_windows(self) -> WindowTable:
        if self._windows is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._windows
