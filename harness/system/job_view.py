"""What a system says about the job that a plan would give: subtasks, their roles, links, and the points they pass.

Faults are drawn from this view, and checked against it before they run, and nothing else is asked. A system that
passes no point is hit only at given times; a system without links has none to disturb. The system chooses the names
of its subtasks, so what a subtask does is seen from its roles, never from its name.
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
"""Point -> how often it is sure to be passed in a run without faults; 0 if it may be passed, but this is not sure.

No process is ever stopped at a point that is not listed. Points of a restore are counted for one restore. A recovery
does not reduce the count: points that were not passed before it are passed after it."""


BY_ROLE = "@"
"""The first character of an aim by role (``role_aims``); no subtask's own name begins with it."""


class Role(StrEnum):
    """What a subtask does; one may have several roles."""

    SOURCE = "source"
    """It reads input."""
    STATEFUL = "stateful"
    """It keeps state that a checkpoint holds."""
    STATELESS = "stateless"
    """It only passes records on: it reads no input, keeps no state and makes no output visible."""
    SINK = "sink"
    """It makes output visible."""


class SubtaskView(msgspec.Struct, frozen=True):
    """One subtask of a job."""

    name: str
    """Unique in the job."""
    roles: tuple[Role, ...] = ()
    passes: Passes = msgspec.field(default_factory=dict)
    vertex: str = ""
    """The vertex of the plan's job to which it belongs; empty if the system's subtasks do not follow the plan's job."""
    key_groups: tuple[int, int] | None = None
    """The first key group that it owns, and the first one after its range; None if it owns none or this is not
    known."""

    @property
    def work(self) -> tuple[str, tuple[Role, ...]]:
        """What it does: two subtasks do the same if they belong to one vertex or, without a vertex, have the same
        roles."""
        return self.vertex, () if self.vertex else self.roles

    def is_like(self, other: SubtaskView) -> bool:
        """Return whether two subtasks do the same."""
        return self.work == other.work


class JobView(msgspec.Struct, frozen=True, dict=True):
    """The job of one plan, as a system would run it."""

    subtasks: tuple[SubtaskView, ...]
    """Upstream first."""
    links: tuple[tuple[str, str], ...] = ()
    """(sender, receiver) of every connection between subtasks."""
    control_links: tuple[str, ...] = ()
    """Subtasks with a connection to the coordinator."""
    whole_hosts: bool = False
    """Whether hosts can only be taken off the network as a whole: an executor is cut off from everyone, both ways."""
    coordinator_passes: Passes = msgspec.field(default_factory=dict)
    """The same as ``SubtaskView.passes``, for the coordinator; empty for a system without one."""
    repeats: tuple[ProtocolPoint, ...] = ()
    """Points that are sure to be passed once more than ``passes`` says if the process that stands there is killed."""
    silence_noticed_ms: float | None = None
    """Within how many milliseconds of the trial's clock a subtask of which nothing is heard ends its attempt; None if
    that cannot be promised, because time is real, or is not known."""

    def __post_init__(self) -> None:
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
        """Every point at which a process may be stopped."""
        passed = [*self.coordinator_passes, *(point for subtask in self.subtasks for point in subtask.passes)]
        return tuple(point for point in ProtocolPoint if point in passed)

    def in_role(self, role: Role) -> tuple[str, ...]:
        """Return the subtasks that have a role."""
        return tuple(subtask.name for subtask in self.subtasks if role in subtask.roles)

    def like(self, name: str) -> tuple[str, ...]:
        """Return the subtasks that do the same as one of them, itself included."""
        return self._at_work[self.by_name[name].work]

    @cached_property
    def _at_work(self) -> Mapping[tuple[str, tuple[Role, ...]], tuple[str, ...]]:
        """What subtasks do -> those that do it."""
        found: dict[tuple[str, tuple[Role, ...]], list[str]] = {}
        for subtask in self.subtasks:
            found.setdefault(subtask.work, []).append(subtask.name)
        return {work: tuple(names) for work, names in found.items()}

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
        """Return the other ends of a subtask's connections: the subtasks to which it sends, then the coordinator."""
        return self._ends.get(sender, ())

    @cached_property
    def _ends(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        for sender, receiver in self.connections:
            found[sender] = (*found.get(sender, ()), receiver)
        return {sender: tuple(dict.fromkeys(ends)) for sender, ends in found.items()}

    def connected_with(self, name: str) -> tuple[str, ...]:
        """Return the subtasks to which data can pass from one of them, in either direction and also through others,
        itself included.
        """
        return self._connected.get(name, ())

    @cached_property
    def _connected(self) -> Mapping[str, tuple[str, ...]]:
        groups: dict[str, tuple[str, ...]] = {name: (name,) for name in self.names}
        for sender, receiver in self.links:
            if groups[sender] is not groups[receiver]:
                joined = groups[sender] + groups[receiver]
                groups |= dict.fromkeys(joined, joined)
        return groups

    @cached_property
    def connections(self) -> tuple[tuple[str, str], ...]:
        """Every connection, including those to the coordinator."""
        return (*self.links, *((subtask, COORDINATOR) for subtask in self.control_links))


ViewOf = Callable[[TrialPlan], JobView]
"""Returns the job that a plan would give; a system's method ``job``."""


def _problems(view: JobView) -> Iterator[str]:
    """Yield a sentence for each contradiction."""
    seen: dict[str, None] = {}
    for subtask in view.subtasks:
        if subtask.name in seen or subtask.name == COORDINATOR or subtask.name.startswith(BY_ROLE):
            yield f"{subtask.name!r} cannot be the name of a subtask: it is taken or reserved"
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
