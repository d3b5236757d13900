"""When the next checkpoint may be triggered (BAR-4): interval, pause, and the number in flight."""

from __future__ import annotations

import msgspec

from barrier_tck.reference_impl.config import CheckpointConfig


class Admit(msgspec.Struct, frozen=True):
    """Trigger now."""


class WaitUntil(msgspec.Struct, frozen=True):
    """Ask again at this time (ms)."""

    at_ms: float


class WaitForSlot(msgspec.Struct, frozen=True):
    """Ask again when a checkpoint in flight has ended."""


Admission = Admit | WaitUntil | WaitForSlot


class CheckpointAdmission:
    """Decides on triggers. Holds no timer: it is asked, with the time."""

    def __init__(self, config: CheckpointConfig) -> None:
        self._config = config

    def decide(
        self,
        now_ms: float,
        in_flight: int,
        last_trigger_ms: float | None,
        last_end_ms: float | None,
        final: bool,
    ) -> Admission:
        """Decide whether a checkpoint may be triggered now.

        ``final`` marks the checkpoint that follows the end of all input: it waits for no interval and no pause, as
        waiting would gain nothing, and it is taken alone, so that it commits everything.
        """
        if in_flight >= (1 if final else self._config.max_concurrent):
            return WaitForSlot()
        if final:
            return Admit()
        due = 0.0
        if last_trigger_ms is not None:
            due = last_trigger_ms + self._config.interval_ms
        if last_end_ms is not None:
            due = max(due, last_end_ms + self._config.min_pause_ms)
        return Admit() if now_ms >= due else WaitUntil(due)
