"""Notes in a history for how long a busy machine has held a job up, so that bounds on it stand still meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barrier_tck.harness.record.operations import HeldUp

_NOTED_MS = 200.0
"""How much longer a job must have been held up until that is noted again: some processes always wait."""


class Waits(Protocol):
    """Measures for how long processes have waited, in milliseconds."""

    processor_ms: float
    disk_ms: float

    def look(self, now_ms: float) -> None:
        """Look if it is time to, by any clock in milliseconds."""


class HeldUpNotes:
    """Notes now and then for how long a job has been held up."""

    def __init__(self, waits: Waits, note: Callable[[HeldUp], None]) -> None:
        """Take what measures, and what takes each note into the history."""
        self._waits = waits
        self._note = note
        self._noted_ms = 0.0

    def look(self, now_ms: float, harness_ms: float = 0.0) -> None:
        """Look if it is time to; ``harness_ms``: for how long it has waited for the harness so far."""
        self._waits.look(now_ms)
        held = HeldUp(self._waits.processor_ms, self._waits.disk_ms, harness_ms)
        total_ms = held.processor_ms + held.disk_ms + held.harness_ms
        if total_ms >= self._noted_ms + _NOTED_MS:
            self._noted_ms = total_ms
            self._note(held)
