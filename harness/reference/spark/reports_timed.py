"""Measures for how long the harness keeps a driver waiting that reports to it.

A driver goes on when its report was taken. Meanwhile the harness injects a fault, or opens a checkpoint before
retention may delete it, which takes long on a busy machine. The job is not to blame for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barrier_tck.harness.reference.spark.job_rpc import JobReports


class ReportsTimed:
    """Passes reports on. They come one after the other; another thread may ask for the time."""

    def __init__(self, reports: JobReports, now_ms: Callable[[], float]) -> None:
        """Take who is reported to, and any clock in milliseconds."""
        self._reports = reports
        self._now_ms = now_ms
        self._taken_ms = 0.0
        self._since_ms: float | None = None

    @property
    def total_ms(self) -> float:
        """For how long reports have been waiting until they were taken, with the one that waits now."""
        since_ms = self._since_ms
        return self._taken_ms + (self._now_ms() - since_ms if since_ms is not None else 0.0)

    def __getattr__(self, name: str) -> Any:
        report = getattr(self._reports, name)

        def pass_on(*values: Any) -> Any:
            self._since_ms = since_ms = self._now_ms()
            try:
                return report(*values)
            finally:
                self._since_ms = None
                self._taken_ms += self._now_ms() - since_ms

        return pass_on
