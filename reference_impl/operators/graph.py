"""The job graph: vertices (chains of operators), edges, and the subtasks and channels that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Protocol

from barrier_tck.reference_impl.errors import UsageError
from barrier_tck.reference_impl.ids import ChannelId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane, Operator, Source


class OperatorSpec(Protocol):
    """Describes one operator of a chain; a value that is shipped to subtasks, which build the operator."""

    @property
    def uid(self) -> str:
        """Return the operator's id, unique in the job and stable across attempts and versions."""

    def build(self, plane: DataPlane) -> Operator:
        """Return a new operator for one subtask."""


class Partitioning(Enum):
    """How an edge spreads records over the receiver's subtasks."""

    HASH = "hash"
    """By key group: each record goes to the subtask that owns its key's group."""
    FORWARD = "forward"
    """Subtask i sends to subtask i; both vertices are equally wide."""
    REBALANCE = "rebalance"
    """Batch by batch, to each receiver in turn."""


@dataclass(frozen=True)
class Vertex:
    """A chain of operators that runs in one subtask, ``parallelism`` times."""

    name: str
    parallelism: int
    source: Source | None
    """Set on source vertices only."""
    operators: tuple[OperatorSpec, ...] = ()


@dataclass(frozen=True)
class Edge:
    """Connects two vertices."""

    source: str
    target: str
    partitioning: Partitioning
    key: tuple[str, ...] = ()
    """Key columns of a HASH edge."""


def key_group_range(index: int, parallelism: int, max_parallelism: int) -> KeyGroupRange:
    """Return the key groups that subtask ``index`` owns: contiguous, each owned exactly once (RSC-1)."""
    return KeyGroupRange(
        (index * max_parallelism + parallelism - 1) // parallelism,
        ((index + 1) * max_parallelism + parallelism - 1) // parallelism,
    )


def owner_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """Return the index of the subtask that owns a key group; the inverse of ``key_group_range``."""
    return group * parallelism // max_parallelism


@dataclass(frozen=True)
class JobGraph:
    """A whole dataflow. ``vertices`` are in topological order, upstream first."""

    name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    max_parallelism: int = 128

    def __post_init__(self) -> None:
        """Refuse what cannot run, naming the part that is wrong."""
        names = [vertex.name for vertex in self.vertices]
        uids = [operator.uid for vertex in self.vertices for operator in vertex.operators]
        for kind, values in (("vertex name", names), ("operator uid", uids)):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise UsageError(
                    f"the {kind} {twice[0]!r} is used twice in job {self.name!r}; give each its own"
                )
        for vertex in self.vertices:
            if not 1 <= vertex.parallelism <= self.max_parallelism:
                raise UsageError(
                    f"vertex {vertex.name!r} has parallelism {vertex.parallelism}; it must lie between 1 and the "
                    f"job's maximum parallelism, {self.max_parallelism} (RSC-2)"
                )
            if (vertex.source is None) == (not any(edge.target == vertex.name for edge in self.edges)):
                raise UsageError(f"vertex {vertex.name!r} must have either a source or an input edge")
        for edge in self.edges:
            if edge.source not in names or edge.target not in names:
                raise UsageError(
                    f"the edge {edge.source} -> {edge.target} names a vertex that does not exist"
                )
            if names.index(edge.source) >= names.index(edge.target):
                raise UsageError(
                    f"the edge {edge.source} -> {edge.target} goes backwards; cycles are not supported"
                )
            widths = self.vertex(edge.source).parallelism, self.vertex(edge.target).parallelism
            if edge.partitioning is Partitioning.FORWARD and widths[0] != widths[1]:
                raise UsageError(f"the forward edge {edge.source} -> {edge.target} needs equal parallelism")

    def vertex(self, name: str) -> Vertex:
        """Return a vertex by name; raises UsageError if there is none."""
        for vertex in self.vertices:
            if vertex.name == name:
                return vertex
        raise UsageError(f"job {self.name!r} has no vertex {name!r}")

    @cached_property
    def subtasks(self) -> tuple[SubtaskId, ...]:
        """Every subtask, upstream vertices first."""
        return tuple(SubtaskId(vertex.name, i) for vertex in self.vertices for i in range(vertex.parallelism))

    @cached_property
    def source_subtasks(self) -> tuple[SubtaskId, ...]:
        """The subtasks of source vertices."""
        return tuple(
            SubtaskId(vertex.name, i)
            for vertex in self.vertices
            if vertex.source
            for i in range(vertex.parallelism)
        )

    @cached_property
    def channels(self) -> tuple[ChannelId, ...]:
        """Every channel, in a fixed order: by edge, then sender, then receiver."""
        found: list[ChannelId] = []
        for edge in self.edges:
            senders = self.vertex(edge.source).parallelism
            receivers = self.vertex(edge.target).parallelism
            for sender in range(senders):
                targets = [sender] if edge.partitioning is Partitioning.FORWARD else range(receivers)
                found.extend(
                    ChannelId(SubtaskId(edge.source, sender), SubtaskId(edge.target, receiver))
                    for receiver in targets
                )
        return tuple(found)

    def inputs_of(self, subtask: SubtaskId) -> tuple[ChannelId, ...]:
        """Return the subtask's input channels; their position is the channel number in its input gate."""
        return tuple(channel for channel in self.channels if channel.receiver == subtask)

    def outputs_of(self, subtask: SubtaskId) -> tuple[ChannelId, ...]:
        """Return the subtask's output channels; their position is the channel number of ``ChannelOutput``."""
        return tuple(channel for channel in self.channels if channel.sender == subtask)

    def output_edges_of(self, vertex: str) -> tuple[Edge, ...]:
        """Return a vertex's output edges, in the order in which ``outputs_of`` lists their channels."""
        return tuple(edge for edge in self.edges if edge.source == vertex)

    def key_groups_of(self, subtask: SubtaskId) -> KeyGroupRange:
        """Return the key groups that a subtask owns."""
        return key_group_range(subtask.index, self.vertex(subtask.vertex).parallelism, self.max_parallelism)
