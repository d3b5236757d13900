"""How faults are drawn: who chooses, from what, and under which names campaigns ask for them."""

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
        """Choose a number."""

    def one_of(self, options: Sequence[_Option]) -> _Option:
        """Choose one of several."""

    def chance(self, per_mille: int) -> bool:
        """Choose yes or no."""


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
    """Whom a drawn fault hits, and how hard it may hit. A fault uses what applies to it and ignores the rest."""

    subtask: str
    """The subtask that is hit; the sending end of a connection."""
    receivers: tuple[str, ...] = (COORDINATOR,)
    """The ends to which that subtask has connections."""
    peers: tuple[Peers, ...] = (Peers.COORDINATOR, Peers.EVERYONE)
    """From whom its executor can be cut off."""
    directions: tuple[Direction, ...] = tuple(Direction)
    """In which directions."""
    outlasts_heartbeat: bool = False
    """Whether it is to last so long that the process it hits is replaced and comes back as a zombie (REC-2)."""
    duration_ms: Range = (1, 1)
    latency_ms: Range = (1, 1)
    bytes_per_second: tuple[int, ...] = (1,)
    lose_unsynced_per_mille: int = 0
    """How many kills take the unsynced writes of their host with them."""
    unreadable_per_mille: int = 0
    """How many crashes leave storage unreadable for a time."""
    returns_per_mille: int = 0
    """How many hosts that are lost come back under their own names, empty."""
    from_savepoint_per_mille: int = 0
    """After how many crashes of the coordinator the job is started again from its newest savepoint."""
    requests: Range = (1, 1)
    """Which of the requests that follow may be hit, by a fault that waits for one."""
    checkpoints: int = 1
    """How many checkpoints in a row are hit, by a fault that waits for them."""
    some_files_per_mille: int = 0
    """How many refusals of local copies are for some files only."""
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
    """How often profiles that draw everything draw it; 0: only campaigns that name it do."""
    outlasts_heartbeat: bool = False
    """Whether it is drawn to last longer than the heartbeat timeout, see ``Aim``."""
