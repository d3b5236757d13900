"""How a source makes watermarks: from the event times of what it reads, split by split (EVT-1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from barrier_tck.reference_impl.runtime_errors import JobUsageError


class WatermarkStrategy(Protocol):
    """Makes the watermarks of one split; a value that is shipped to subtasks.

    It keeps nothing: all that a split knows of event time is its watermark, which is part of every snapshot with the
    split's position, and moves with it (EVT-1).
    """

    @property
    def column(self) -> str:
        """Return the column with the event time of a record, in milliseconds of the epoch."""

    @property
    def idle_after_ms(self) -> float | None:
        """Return for how long a split must have no record to count as idle (ms); None: it never does."""

    def after(self, watermark_ms: int, largest_ms: int) -> int:
        """Return the watermark (ms) behind a batch, from the one ahead of it and the largest event time in it.

        One that would go back is ignored.
        """


@dataclass(frozen=True, slots=True)
class BoundedOutOfOrder:
    """Records of a split come at most so much out of order; one that is further behind is late."""

    column: str
    """The column with the event time, in milliseconds of the epoch."""
    bound_ms: int = 0
    """The largest event time so far, less this and 1 ms, is the watermark."""
    idle_after_ms: float | None = None
    """For how long a split must have no record to count as idle (ms); None: it never does."""

    def __post_init__(self) -> None:
        if self.bound_ms < 0:
            raise JobUsageError(f"BoundedOutOfOrder: bound_ms must be 0 or more, not {self.bound_ms}")
        if self.idle_after_ms is not None and self.idle_after_ms <= 0:
            raise JobUsageError(f"BoundedOutOfOrder: idle_after_ms must be above 0, not {self.idle_after_ms}")

    def after(self, watermark_ms: int, largest_ms: int) -> int:
        return max(watermark_ms, largest_ms - self.bound_ms - 1)
