"""The trace: the scheduler's steps, one line each, and a digest that two runs of one plan share.

A line has the columns time (virtual ms), actor, step, details. Lines are rendered late: a trial that is valid
pays for its digest only.
"""

from __future__ import annotations

import hashlib
from typing import Any


class Trace:
    """Collects steps."""

    def __init__(self) -> None:
        """Start empty."""
        self._steps: list[tuple[float, str, str, Any]] = []
        self.add = self._steps.append

    def lines(self) -> tuple[str, ...]:
        """Return every step as ``time actor step details``."""
        return tuple(
            f"{time:10.3f} {actor} {step}" + (f" {details}" if details is not None else "")
            for time, actor, step, details in self._steps
        )

    def digest(self) -> str:
        """Return a hash of all lines."""
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()[:32]
