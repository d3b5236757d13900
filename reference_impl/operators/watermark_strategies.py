"""How a source makes watermarks, from the event times of what it reads, split by split (EVT-1), and how far sources may
be apart (EVT-6)."""

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


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """Sources of one group read ahead of each other by so much event time at most (EVT-6).

    A split whose watermark is ahead of the smallest one of the group by more than the bound is not read until the
    others have come closer; the other splits of its subtask are. Splits that are idle or have ended hold back none. A
    batch that was begun is read whole, so a split can be ahead by the bound and the event time of one batch.
    """

    group: str
    """Sources of a job with the same group wait for each other; all of them must have the same bound and interval."""
    max_drift_ms: int
    """How far the watermark of a split may be ahead of the smallest one of the group and it still be read (ms)."""
    update_interval_ms: float = 1_000.0
    """How often each source subtask reports its watermark, and learns that of the group (ms of processing time)."""

    def __post_init__(self) -> None:
        if not self.group:
            raise JobUsageError("WatermarkAlignment: the group needs a name")
        if self.max_drift_ms < 0:
            raise JobUsageError(
                f"WatermarkAlignment: max_drift_ms must be 0 or more, not {self.max_drift_ms}"
            )
        if self.update_interval_ms <= 0:
            raise JobUsageError(
                f"WatermarkAlignment: update_interval_ms must be above 0, not {self.update_interval_ms}"
            )
