"""A connection on which everything is late: by a fault, or because the plan makes a channel slow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from barrier_tck.faults.targets import Impairment, PassingMessage


@dataclass(frozen=True, kw_only=True)
class Latency(Impairment):
    """Makes everything late."""

    latency_ms: int
    jitter_ms: int = 0
    toxic: ClassVar[str] = "latency"

    def attributes(self) -> dict[str, int]:
        """Return the toxic's attributes."""
        return {"latency": self.latency_ms, "jitter": self.jitter_ms}

    def fate(self, message: PassingMessage, draw: Callable[[], float]) -> float:
        """Let it arrive that much later."""
        return message.arrives_ms + self.latency_ms + (2.0 * draw() - 1.0) * self.jitter_ms
