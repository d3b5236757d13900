"""How faults are drawn: what makes the choices, from which ranges, and by which names campaigns ask for faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from barrier_tck.faults.targets import COORDINATOR, Damage, Direction, Peers

Range = tuple[int, int]
"""Smallest and largest value, both included."""

_Option = TypeVar("_Option")


class Chooser(Protocol):
    """Makes the choices while faults are drawn."""

    def between(self, bounds: Range) -> int:
        """Choose a number from a range."""

    def one_of(self, options: Sequence[_Option]) -> _Option:
        """Choose one of several."""

    def chance(self, per_mille: int) -> bool:
        """Return True with this probability, in thousandths."""


class Plainest:
    """Always chooses the least, the first and no, so that the plainest fault is drawn."""

    def between(self, bounds: Range) -> int:
        """Return the smallest."""
        return bounds[0]

    def one_of(self, options: Sequence[_Option]) -> _Option:
        """Return the first."""
        return options[0]

    def chance(self, per_mille: int) -> bool:
        """Return False."""
        return False


@dataclass(frozen=True, slots=True)
class Aim:
    """What a drawn fault hits, and how hard it may hit. A fault uses what applies to it and ignores the rest."""

    subtask: str
    """The subtask that is hit; the sending end of a connection."""
    receivers: tuple[str, ...] = (COORDINATOR,)
    """The other ends of that subtask's connections."""
    peers: tuple[Peers, ...] = (Peers.COORDINATOR, Peers.EVERYONE)
    """The groups of processes from which its executor can be cut off."""
    directions: tuple[Direction, ...] = tuple(Direction)
    """The directions in which it can be cut off."""
    outlasts_heartbeat: bool = False
    """Whether the fault must last so long that the process it hits is replaced and comes back as a zombie (REC-2)."""
    duration_ms: Range = (1, 1)
    latency_ms: Range = (1, 1)
    bytes_per_second: tuple[int, ...] = (1,)
    lose_unsynced_per_mille: int = 0
    """Of 1,000 kills, how many also lose the unsynced writes of the host."""
    unreadable_per_mille: int = 0
    """Of 1,000 crashes of the coordinator, how many leave storage unreadable for a time."""
    returns_per_mille: int = 0
    """Of 1,000 lost hosts, how many come back under their own names, empty."""
    from_savepoint_per_mille: int = 0
    """Of 1,000 crashes of the coordinator, after how many the job is started again from its newest savepoint."""
    requests: Range = (1, 1)
    """For a fault that waits for a request to storage: which of the following ones it may hit, counted from 1."""
    checkpoints: int = 1
    """For a fault that waits for checkpoints: how many in a row it hits."""
    some_files_per_mille: int = 0
    """Of 1,000 full local disks, how many have no room for a few files only."""
    damages: tuple[Damage, ...] = (Damage.MISSING,)
    """The damage that the copies of the subtask's state can suffer; every copy can be missing."""


@dataclass(frozen=True, slots=True)
class DrawnAs:
    """A name under which campaigns draw a fault."""

    name: str
    """A key of ``[faults] kinds`` in campaign files; no two are equal."""
    package: str
    """A key of ``[faults] packages``: the faults that belong together."""
    weight: int = 0
    """Its weight in profiles that draw every fault; 0: it is drawn only if a campaign names it."""
    outlasts_heartbeat: bool = False
    """Whether it is drawn to last longer than the heartbeat timeout, see ``Aim``."""
