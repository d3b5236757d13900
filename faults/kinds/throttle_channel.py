"""Make a connection narrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

from barrier_tck.faults.channel_fault import ChannelFault
from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import OnProgress
from barrier_tck.faults.fields import Bytes, Duration
from barrier_tck.faults.targets import Direction, Impairment, PassingMessage

_BYTES_PER_RATE = 1_000
"""Toxiproxy counts rates in units of this many bytes per second."""


@dataclass(frozen=True, kw_only=True)
class RateLimit(Impairment):
    """Lets at most a number of bytes per second through."""

    bytes_per_second: int
    toxic: ClassVar[str] = "bandwidth"

    def attributes(self) -> dict[str, int]:
        """Return the toxic's attributes: at least one unit, since a rate of 0 would be a hole."""
        return {"rate": max(1, self.bytes_per_second // _BYTES_PER_RATE)}

    def fate(self, message: PassingMessage, draw: Callable[[], float]) -> float:
        """Let it arrive once the line had time to carry it."""
        begins_ms = max(message.sent_ms, message.line_free_ms)
        return max(message.arrives_ms, begins_ms + message.size / (self.bytes_per_second / 1000.0))


class ThrottleChannel(ChannelFault, frozen=True, tag="throttle_channel"):
    """Let at most ``bytes_per_second`` bytes per second through a connection, for a time.

    Contract: order within the connection stays (BAR-2); backpressure, not loss.
    """

    bytes_per_second: Bytes
    duration_ms: Duration
    direction: Direction = Direction.FORWARD

    label = "throttle channel"
    colour = "#8a7a1f"
    drawn_as = (DrawnAs("throttle", package="throttle", weight=1),)
    on_progress = OnProgress.STOPS

    def impairment(self) -> RateLimit:
        return RateLimit(bytes_per_second=self.bytes_per_second, direction=self.direction)

    def description(self) -> str:
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
