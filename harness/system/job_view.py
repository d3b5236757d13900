"""What a system says of the job that a plan would give: its subtasks, their roles, its links, and the points passed.

Faults are drawn, and checked before they run, from this view and from nothing else: a system that passes no point is
hit at times only, one without links has none to disturb.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

import msgspec

from barrier_tck.faults.vocabulary import ProtocolPoint


class Role(StrEnum):
    """What a subtask does; one may have several roles."""

    SOURCE = "source"
    """It reads input."""
    STATEFUL = "stateful"
    """It keeps state that a checkpoint holds."""
    SINK = "sink"
    """It makes output visible."""


class SubtaskView(msgspec.Struct, frozen=True):
    """One subtask of a job."""

    name: str
    """Unique in the job; how it is made up is the system's affair."""
    roles: tuple[Role, ...] = ()
    passes: Mapping[ProtocolPoint, int] = msgspec.field(default_factory=dict)
    """Point -> how often the subtask is sure to pass it in a run without faults; others are not there.

    Points of a restore count for one restore.
    """


class JobView(msgspec.Struct, frozen=True, dict=True):
    """The job of one plan, as a system would run it."""

    subtasks: tuple[SubtaskView, ...]
    """Upstream first."""
    links: tuple[tuple[str, str], ...] = ()
    """(sender, receiver) of every channel between subtasks."""
    shows: tuple[ProtocolPoint, ...] = ()
    """Every point that the system can be stopped at; an aim at another one is refused."""
    coordinator_passes: Mapping[ProtocolPoint, int] = msgspec.field(default_factory=dict)
    """As ``SubtaskView.passes``, of the coordinator; empty for a system without one."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every subtask's name."""
        return tuple(subtask.name for subtask in self.subtasks)

    def in_role(self, role: Role) -> tuple[str, ...]:
        """Return the subtasks that have a role."""
        return tuple(subtask.name for subtask in self.subtasks if role in subtask.roles)

    def times(self, point: ProtocolPoint, subtask: str | None) -> int:
        """Return how often a subtask (None: the coordinator) is sure to pass a point."""
        if subtask is None:
            return self.coordinator_passes.get(point, 0)
        return next((one.passes.get(point, 0) for one in self.subtasks if one.name == subtask), 0)

    def passing(self, point: ProtocolPoint) -> tuple[str, ...]:
        """Return the subtasks that are sure to pass a point."""
        return tuple(subtask.name for subtask in self.subtasks if subtask.passes.get(point, 0) > 0)

    def receivers(self, sender: str) -> tuple[str, ...]:
        """Return the subtasks to which a subtask has links."""
        return tuple(dict.fromkeys(receiver for one, receiver in self.links if one == sender))
