"""Where connections go. The runtime connects to the addresses it is handed and does not care what listens there.

By default every address is the listener's own. A harness may put a proxy before any of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId

Address = tuple[str, int]
"""Host and port."""


@dataclass(frozen=True, slots=True)
class CoordinatorAddress:
    """Where slots reach the coordinator."""

    direct: Address
    """For every slot that is not listed."""
    detours: Mapping[tuple[str, int], Address]
    """(host of the executor, slot number) -> address."""

    def of_slot(self, host: str, slot: int) -> Address:
        """Return the address for a slot that runs on a host."""
        return self.detours.get((host, slot), self.direct)


@dataclass(frozen=True, slots=True)
class ChannelEnds:
    """A data channel of one attempt, and the hosts of its ends."""

    attempt: AttemptNumber
    channel: ChannelId
    sender_host: str
    receiver_host: str


class Routes(Protocol):
    """Hands out addresses; called on the coordinator's thread."""

    def to_coordinator(self, address: Address, slots: int) -> Mapping[tuple[str, int], Address]:
        """Return detours to the coordinator's address, as ``CoordinatorAddress`` has them. Asked at each attempt."""

    def to_channels(self, channels: Sequence[tuple[ChannelEnds, Address]]) -> Sequence[Address]:
        """Return the address that each channel's sender connects to, given the one where its receiver listens."""


class DirectRoutes:
    """Nothing stands in between."""

    def to_coordinator(self, address: Address, slots: int) -> Mapping[tuple[str, int], Address]:
        return {}

    def to_channels(self, channels: Sequence[tuple[ChannelEnds, Address]]) -> Sequence[Address]:
        """Return the receivers' own addresses."""
        return [address for _, address in channels]
