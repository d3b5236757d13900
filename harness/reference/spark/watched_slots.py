"""A job on Spark that reports how many slots there are, so that it can be judged how long an elastic job waited for
them.

Slots are counted whenever the coordinator asks for them, and five times a second besides. What is counted is the
cluster, not what the job makes of it. All of this is on the coordinator's event loop: nothing changes between a look of
the coordinator's and what follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barrier_tck.harness.reference.spark.repeating_runner import RepeatingRunner
from barrier_tck.reference_impl.spark.slot_count import slots_of

_POLL_MS = 200.0


class SlotReportingRunner(RepeatingRunner):
    """Runs one job once, as its base does; of a job that is not elastic it reports no slots."""

    def __init__(self, *arguments: Any, report_slots: Callable[[int, float], None], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._report_slots = report_slots
        self._slots_reported: int | None = None

    def start(self) -> None:
        """Start, and count slots from now on."""
        super().start()
        if self._config.elastic is not None:
            self._loop.post(self._poll)

    def slots(self) -> int:
        """Deployer: ask Spark, and report what it says."""
        at_ms = self.now_ms()
        found = super().slots()
        self._report(found, at_ms)
        return found

    def _poll(self) -> None:
        at_ms = self.now_ms()
        self._report(slots_of(self._context), at_ms)
        self._loop.set_timer("slots-seen", self.now_ms() + _POLL_MS, self._poll)

    def _report(self, found: int, at_ms: float) -> None:
        if found != self._slots_reported:
            self._slots_reported = found
            self._report_slots(found, at_ms)
