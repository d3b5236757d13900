"""What a system says of the job that a plan would give: its subtasks, their roles, its links, and the points passed.

Faults are drawn, and checked before they run, from this view and from nothing else: a system that passes no point is
hit at times only, one without links has none to disturb. How names are made up is the system's affair; whoever wants to
know what a subtask does asks for its roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property

import msgspec

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.faults.vocabulary import COORDINATOR_POINTS, ProtocolPoint
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageError

Passes = Mapping[ProtocolPoint, int]
"""Point -> how often it is sure to be passed in a run without faults; 0: it may be passed, but that is not sure.

Nobody is ever stopped at a point that is not there. Points of a restore count for one restore. A recovery takes no
later passing away: what was not passed yet is passed after it.
"""


BY_ROLE = "@"
"""Begins what names a subtask by its role (``role_aims``); no subtask's own name begins with it."""


class Role(StrEnum):
    """What a subtask does; one may have several roles."""

    SOURCE = "source"
    """It reads input."""
    STATEFUL = "stateful"
    """It keeps state that a checkpoint holds."""
    STATELESS = "stateless"
    """It neither reads input nor keeps state nor makes output visible: it passes records on."""
    SINK = "sink"
    """It makes output visible."""


class SubtaskView(msgspec.Struct, frozen=True):
    """One subtask of a job."""

    name: str
    """Unique in the job."""
    roles: tuple[Role, ...] = ()
    passes: Passes = msgspec.field(default_factory=dict)
    vertex: str = ""
    """The vertex of the plan's job that it is a part of; empty if the system's subtasks do not follow that."""
    key_groups: tuple[int, int] | None = None
    """The first key group that it owns, and the first one beyond; None: it owns none, or the system does not say."""

    def is_like(self, other: SubtaskView) -> bool:
        """Tell whether two subtasks do the same: they are of one vertex or, without one, have the same roles."""
        return self.vertex == other.vertex and (bool(self.vertex) or self.roles == other.roles)


class JobView(msgspec.Struct, frozen=True, dict=True):
    """The job of one plan, as a system would run it."""

    subtasks: tuple[SubtaskView, ...]
    """Upstream first."""
    links: tuple[tuple[str, str], ...] = ()
    """(sender, receiver) of every connection between subtasks."""
    control_links: tuple[str, ...] = ()
    """Subtasks with a connection to the coordinator."""
    coordinator_passes: Passes = msgspec.field(default_factory=dict)
    """As ``SubtaskView.passes``, of the coordinator; empty for a system without one."""
    repeats: tuple[ProtocolPoint, ...] = ()
    """Points that are sure to be passed once more than ``passes`` says if whoever stands there is killed."""

    def __post_init__(self) -> None:
        """Refuse a view that contradicts itself: that is the system's mistake, and the sentence says which."""
        for problem in _problems(self):
            raise UsageError(f"the system's view of the job contradicts itself: {problem}")

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every subtask's name."""
        return tuple(subtask.name for subtask in self.subtasks)

    @cached_property
    def by_name(self) -> Mapping[str, SubtaskView]:
        """Name -> subtask."""
        return {subtask.name: subtask for subtask in self.subtasks}

    @cached_property
    def shows(self) -> tuple[ProtocolPoint, ...]:
        """Every point at which somebody may be stopped."""
        passed = [*self.coordinator_passes, *(point for subtask in self.subtasks for point in subtask.passes)]
        return tuple(point for point in ProtocolPoint if point in passed)

    def in_role(self, role: Role) -> tuple[str, ...]:
        """Return the subtasks that have a role."""
        return tuple(subtask.name for subtask in self.subtasks if role in subtask.roles)

    def like(self, name: str) -> tuple[str, ...]:
        """Return the subtasks that do the same as one of them, itself included."""
        one = self.by_name[name]
        return tuple(subtask.name for subtask in self.subtasks if subtask.is_like(one))

    def points_of(self, subtask: str | None) -> tuple[ProtocolPoint, ...]:
        """Return the points at which a subtask (None: the coordinator) may be stopped."""
        passes = self.coordinator_passes if subtask is None else self.by_name[subtask].passes
        return tuple(point for point in ProtocolPoint if point in passes)

    def times(self, point: ProtocolPoint, subtask: str | None) -> int:
        """Return how often a subtask (None: the coordinator) is sure to pass a point."""
        passes = self.coordinator_passes if subtask is None else self.by_name[subtask].passes
        return passes.get(point, 0)

    def passing(self, point: ProtocolPoint) -> tuple[str, ...]:
        """Return the subtasks that are sure to pass a point."""
        return tuple(subtask.name for subtask in self.subtasks if subtask.passes.get(point, 0) > 0)

    def ends_of(self, sender: str) -> tuple[str, ...]:
        """Return the other ends of a subtask's connections: subtasks to which it sends, then the coordinator."""
        return self._ends.get(sender, ())

    @cached_property
    def _ends(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for sender, receiver in self.connections:
            found[sender] = (*found.get(sender, ()), receiver)
        return {sender: tuple(dict.fromkeys(ends)) for sender, ends in found.items()}

    @cached_property
    def connections(self) -> tuple[tuple[str, str], ...]:
        """Every connection, those to the coordinator among them."""
        return (*self.links, *((subtask, COORDINATOR) for subtask in self.control_links))


ViewOf = Callable[[TrialPlan], JobView]
"""Tells what a plan's job would be; a system's ``job``."""


def _problems(view: JobView) -> Iterator[str]:
    """Say what contradicts what."""
    seen: dict[str, None] = {}
    for subtask in view.subtasks:
        if subtask.name in seen or subtask.name == COORDINATOR or subtask.name.startswith(BY_ROLE):
            yield f"the name {subtask.name!r} is not free for a subtask"
        seen[subtask.name] = None
        for point, times in subtask.passes.items():
            if point in COORDINATOR_POINTS:
                yield f"{subtask.name!r} passes {point.value}, which is a point of the coordinator"
            if times < 0:
                yield f"{subtask.name!r} passes {point.value} {times} times"
    for point in view.coordinator_passes:
        if point not in COORDINATOR_POINTS:
            yield f"the coordinator passes {point.value}, which is a point of subtasks"
    for name in [end for link in view.links for end in link] + list(view.control_links):
        if name not in seen:
            yield f"a connection has the end {name!r}, which is no subtask"
