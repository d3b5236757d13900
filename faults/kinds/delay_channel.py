"""Make a connection late."""

from __future__ import annotations

from typing import Self

from barrier_tck.faults.channel_fault import ChannelFault
from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import OnProgress
from barrier_tck.faults.fields import Duration, MaybeDuration
from barrier_tck.faults.latency import Latency
from barrier_tck.faults.targets import Direction


class DelayChannel(ChannelFault, frozen=True, tag="delay_channel"):
    """Make everything on a connection late by ``latency_ms``, give or take up to ``jitter_ms``, for a time.

    Contract: order within the connection stays (BAR-2); the output stays as promised.
    """

    latency_ms: Duration
    duration_ms: Duration
    jitter_ms: MaybeDuration = 0
    direction: Direction = Direction.FORWARD

    label = "delay channel"
    colour = "#3b7a57"
    drawn_as = (DrawnAs("delay", package="delay", weight=1),)
    on_progress = OnProgress.SLOWS

    def impairment(self) -> Latency:
        return Latency(latency_ms=self.latency_ms, jitter_ms=self.jitter_ms, direction=self.direction)

    @property
    def lingers_ms(self) -> float:
        """Return how late what was sent last may arrive."""
        return float(self.latency_ms + self.jitter_ms)

    def problem(self) -> str | None:
        """Refuse a jitter that lets things arrive before they were sent."""
        if self.jitter_ms <= self.latency_ms:
            return None
        above = f"above latency_ms ({self.latency_ms})"
        return f"jitter_ms is {self.jitter_ms}, {above}: nothing arrives before it was sent"

    def description(self) -> str:
        spread = f" ± {self.jitter_ms}" if self.jitter_ms else ""
        late = f"{self.latency_ms}{spread} ms"
        return f"delay {self.connection(self.direction)} by {late} for {self.duration_ms} ms"

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw which connection, how late, for how long, and which way."""
        latency_ms = choose.between(aim.latency_ms)
        return cls(
            aim.subtask,
            choose.one_of(aim.receivers),
            latency_ms,
            choose.between(aim.duration_ms),
            choose.between((0, latency_ms)),
            choose.one_of(tuple(Direction)),
        )
