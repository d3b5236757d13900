"""Let nothing through a connection."""

from __future__ import annotations

from typing import Self

from barrier_tck.faults.channel_fault import ChannelFault
from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import OnProgress
from barrier_tck.faults.fields import Duration
from barrier_tck.faults.injectors.connections import BlackHole
from barrier_tck.faults.targets import COORDINATOR, Direction


class BlackHoleChannel(ChannelFault, frozen=True, tag="black_hole_channel"):
    """Keep a connection open and let nothing through, for a time; what was swallowed never arrives.

    Contract: once it heals, the connection is closed: a stream with a hole must not go on. The job recovers.
    """

    duration_ms: Duration
    direction: Direction = Direction.BOTH

    label = "black-hole channel"
    colour = "#5d2a5d"
    drawn_as = (DrawnAs("black-hole", package="partition", weight=1),)
    on_progress = OnProgress.STOPS

    @property
    def silences(self) -> tuple[str, ...]:
        return (self.sender,) if self.receiver == COORDINATOR and self.direction is Direction.BOTH else ()

    def impairment(self) -> BlackHole:
        return BlackHole(direction=self.direction)

    def description(self) -> str:
        return f"black-hole {self.connection(self.direction)} for {self.duration_ms} ms"

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw which connection, for how long, and which way."""
        return cls(
            aim.subtask,
            choose.one_of(aim.receivers),
            choose.between(aim.duration_ms),
            choose.one_of(tuple(Direction)),
        )
