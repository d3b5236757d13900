"""What functions in event time share that send late records aside, and know no processing time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barrier_tck.reference_impl.operators.event_time_process import EventTimers
from barrier_tck.reference_impl.operators.functions import Row, missing_column
from barrier_tck.reference_impl.operators.windows import LATE
from barrier_tck.reference_impl.runtime_errors import JobUsageError


class OnTimeFunction:
    """The common part of an ``EventTimeFunction``; ``open`` must set ``_timers``."""

    _timers: EventTimers

    def __init__(self, uid: str) -> None:
        """Take the operator's name, for messages."""
        self._uid = uid
        self._emit_aside: Callable[[str, Row], None] = lambda _output, _row: None

    def open_aside(self, emit: Callable[[str, Row], None]) -> None:
        self._emit_aside = emit

    def on_timer(self, group: int, key: bytes, at_ms: int) -> Iterable[Row]:
        """Return nothing: no timer in processing time is set."""
        return ()

    def _emit_late(self, row: Row) -> None:
        self._emit_aside(LATE, row)

    def _event_time_of(self, row: Row, column: str) -> int:
        """Return the event time of a row (ms); raises JobUsageError if it has none."""
        try:
            event_ms = row[column]
        except KeyError as error:
            raise missing_column(column, row, self._uid) from error
        if type(event_ms) is not int:
            raise no_event_time(self._uid, column, event_ms)
        return event_ms


def no_event_time(uid: str, column: str, found: object) -> JobUsageError:
    """Return the error for a row without an event time."""
    return JobUsageError(
        f"{uid!r} needs an event time in column {column!r}: a whole number of milliseconds of the "
        f"epoch, not {found!r}; filter out rows without one before"
    )
