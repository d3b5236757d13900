"""A network that loses packets: what was lost is sent again, so it comes late and not never."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barrier_tck.faults.targets import Impairment, PassingMessage

RETRANSMITTED_MS = 20.0
"""After this time a message is sent again whose packet was lost, and each further time after twice as long (virtual
ms; TCP begins with 200)."""


@dataclass(frozen=True, kw_only=True)
class PacketLoss(Impairment):
    """Loses some of the packets that a host sends."""

    per_mille: int
    """How many of 1,000."""
    lasts_ms: int
    """For how long. What is sent again after that is not lost."""

    def fate(self, message: PassingMessage, draw: Callable[[], float]) -> float:
        """Let it arrive when no packet of it is lost any more."""
        late_ms, wait_ms = 0.0, RETRANSMITTED_MS
        while late_ms < self.lasts_ms and draw() * 1_000 < self.per_mille:
            late_ms += wait_ms
            wait_ms *= 2
        return message.arrives_ms + late_ms


def latest_ms(lasts_ms: int) -> float:
    """Return how many milliseconds late a message arrives at most, if packets are lost for so long."""
    return 2 * lasts_ms + RETRANSMITTED_MS
