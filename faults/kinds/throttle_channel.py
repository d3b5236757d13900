"""Make a connection narrow."""

from __future__ import annotations

from typing import Self

from barrier_tck.faults.channel_fault import ChannelFault
from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import OnProgress
from barrier_tck.faults.fields import Bytes, Duration
from barrier_tck.faults.targets import Direction, Impairment, ImpairmentKind


class ThrottleChannel(ChannelFault, frozen=True, tag="throttle_channel"):
    """Let no more than so many bytes a second through a connection, for a time.

    Contract: order within the connection stays (BAR-2); backpressure, not loss.
    """

    bytes_per_second: Bytes
    duration_ms: Duration
    direction: Direction = Direction.FORWARD

    label = "throttle channel"
    colour = "#8a7a1f"
    drawn_as = (DrawnAs("throttle", package="throttle", weight=1),)
    on_progress = OnProgress.STOPS

    def impairment(self) -> Impairment:
        """Return what is done to the connection."""
        return Impairment(ImpairmentKind.THROTTLE, self.direction, bytes_per_second=self.bytes_per_second)

    def told(self) -> str:
        """Return the fault as a phrase."""
        rate = f"{self.bytes_per_second} bytes/s"
        return f"throttle {self.connection(self.direction)} to {rate} for {self.duration_ms} ms"

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw which connection, how narrow, for how long, and which way."""
        return cls(
            aim.subtask,
            choose.one_of(aim.receivers),
            choose.one_of(aim.bytes_per_second),
            choose.between(aim.duration_ms),
            choose.one_of(tuple(Direction)),
        )
