"""Let the network of a host lose packets."""

from __future__ import annotations

import time
from typing import Self

from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import Fault, OnProgress, Wait
from barrier_tck.faults.fields import Duration, Subtask, Times
from barrier_tck.faults.injectors.connections import disturb
from barrier_tck.faults.injectors.injection import Injection, skipped
from barrier_tck.faults.packet_loss import PacketLoss, latest_ms
from barrier_tck.faults.targets import Peers, TargetKind, Targets

MOST_PER_MILLE = 900


class LosePackets(Fault, frozen=True, tag="lose_packets"):
    """Lose some of the packets that the host of a subtask sends, for a time: ``per_mille`` of 1,000, drawn one by one.

    Contract: what was lost is sent again, so order within each connection stays (BAR-2), and the output stays as
    promised. Processes of the host may be taken for lost meanwhile (REC-2).
    """

    subtask: Subtask
    per_mille: Times
    duration_ms: Duration

    label = "lose packets"
    colour = "#5f8a3c"
    needs = TargetKind.PACKETS
    drawn_as = (DrawnAs("lose-packets", package="packets", weight=1),)
    on_progress = OnProgress.STOPS
    shown_as = "losing packets"

    @property
    def lingers_ms(self) -> float:
        """Return how late what was sent last may arrive."""
        return latest_ms(self.duration_ms)

    def problem(self) -> str | None:
        """Refuse a network that loses next to everything: nothing would ever arrive."""
        if self.per_mille <= MOST_PER_MILLE:
            return None
        return (
            f"per_mille is {self.per_mille}; it must be {MOST_PER_MILLE} or less, or partition the executor"
        )

    def description(self) -> str:
        return (
            f"lose {self.per_mille} of 1,000 packets of the host of {self.subtask} for {self.duration_ms} ms"
        )

    def inject(self, targets: Targets, wait: Wait = time.sleep) -> Injection:
        """Let its network lose them, and prove that it does."""
        links = targets.links_of_executor(self.subtask, Peers.EVERYONE)
        if not links:
            return skipped(f"connections of the host of {self.subtask}")
        return disturb(links, PacketLoss(per_mille=self.per_mille, lasts_ms=self.duration_ms), wait)

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw how many are lost, and for how long."""
        return cls(aim.subtask, choose.between((10, 400)), choose.between(aim.duration_ms))
