"""When silence means loss: the one decision of failure detection, the same in every world.

A subtask that hangs, is stopped, or is cut off closes no connection; only its silence shows it. It may still run: it
is declared lost, its attempt is replaced, and whatever it does from then on is fenced off (REC-2).
"""

from __future__ import annotations


class FailureDetector:
    """Decides whether a subtask that has been silent for some time is lost."""

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms

    def is_lost(self, silent_ms: float) -> bool:
        """Return whether a subtask that has been silent for this long is lost."""
        return silent_ms > self.timeout_ms
