"""A network that loses packets: what was lost is sent again, so it comes late and not never."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from barrier_tck.faults.targets import Impairment, PassingMessage

RETRANSMITTED_MS = 20.0
"""After this time a message is sent again whose packet was lost, and each further time after twice as long (virtual
ms; TCP begins with 200)."""
_TIMES_MAX = 6


@dataclass(frozen=True, kw_only=True)
class PacketLoss(Impairment):
    """Loses some of the packets that a host sends."""

    per_mille: int
    """How many of 1,000."""

    def fate(self, message: PassingMessage, draw: Callable[[], float]) -> float:
        """Let it arrive when no packet of it is lost any more."""
        arrives_ms, waited_ms = message.arrives_ms, RETRANSMITTED_MS
        for _ in range(_TIMES_MAX):
            if draw() * 1_000 >= self.per_mille:
                break
            arrives_ms += waited_ms
            waited_ms *= 2
        return arrives_ms
