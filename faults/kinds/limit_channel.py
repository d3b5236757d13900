"""Close a connection after a number of bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Self

from barrier_tck.faults.channel_fault import ChannelFault
from barrier_tck.faults.drawing import Aim, Chooser, DrawnAs
from barrier_tck.faults.fault import OnProgress
from barrier_tck.faults.fields import Bytes, Duration
from barrier_tck.faults.targets import Direction, Impairment, Loss, PassingMessage


@dataclass(frozen=True, kw_only=True)
class ByteLimit(Impairment):
    """Lets a number of bytes of each connection through, and then closes it."""

    bytes_max: int
    toxic: ClassVar[str] = "limit_data"

    def attributes(self) -> dict[str, int]:
        """Return the toxic's attributes."""
        return {"bytes": self.bytes_max}

    def fate(self, message: PassingMessage, draw: Callable[[], float]) -> float | Loss:
        """Let it pass if there is room for all of it: half a message is none."""
        fits = message.passed + message.size <= self.bytes_max
        return message.arrives_ms if fits else Loss.CLOSED


class LimitChannel(ChannelFault, frozen=True, tag="limit_channel"):
    """Let a connection, and each opened meanwhile, deliver at most ``bytes_max`` more bytes, and then close it.

    Contract: both ends notice, and the job recovers from the last completed checkpoint. What came before the end may
    break off in the middle of a message; a receiver does not take that for a whole one.
    """

    bytes_max: Bytes
    duration_ms: Duration
    direction: Direction = Direction.FORWARD

    label = "limit channel"
    colour = "#4f7f8f"
    drawn_as = (DrawnAs("limit", package="partition", weight=1),)
    on_progress = OnProgress.STOPS

    def impairment(self) -> ByteLimit:
        return ByteLimit(bytes_max=self.bytes_max, direction=self.direction)

    def description(self) -> str:
        most = f"{self.bytes_max} bytes"
        return f"limit {self.connection(self.direction)} to {most} for {self.duration_ms} ms"

    @classmethod
    def drawn(cls, choose: Chooser, aim: Aim) -> Self:
        """Draw which connection, for how long, how many bytes (what a narrow one lets through), and which way."""
        receiver, duration_ms = choose.one_of(aim.receivers), choose.between(aim.duration_ms)
        bytes_max = max(1, choose.one_of(aim.bytes_per_second) * duration_ms // 1_000)
        return cls(aim.subtask, receiver, bytes_max, duration_ms, choose.one_of(tuple(Direction)))
