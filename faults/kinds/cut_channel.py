"""Close a connection."""

from __future__ import annotations

from typing import Self

from barrier_tck.faults.channel_fault import ChannelFault
from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import OnProgress
from barrier_tck.faults.fields import Duration
from barrier_tck.faults.injectors.connections import Closure
from barrier_tck.faults.targets import Direction


class CutChannel(ChannelFault, frozen=True, tag="cut_channel"):
    """Close a connection, as a reset does; it cannot be opened again until ``duration_ms`` have passed.

    Contract: both ends notice; the job recovers from the last completed checkpoint.
    """

    duration_ms: Duration

    label = "cut channel"
    colour = "#c2185b"
    drawn_as = (DrawnAs("cut", package="partition", weight=1),)
    on_progress = OnProgress.STOPS

    def impairment(self) -> Closure:
        return Closure()

    def description(self) -> str:
        return f"cut {self.connection(Direction.BOTH)} for {self.duration_ms} ms"

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw which connection, and for how long."""
        return cls(aim.subtask, choose.one_of(aim.receivers), choose.between(aim.duration_ms))
