"""The job graph: vertices (chains of operators), edges, and the subtasks and channels that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Protocol

from barrier_tck.reference_impl.ids import ChannelId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.api import DataPlane, Operator, Source
from barrier_tck.reference_impl.operators.loops import Loop, leads_to, looped
from barrier_tck.reference_impl.operators.watermark_strategies import WatermarkAlignment, WatermarkStrategy
from barrier_tck.reference_impl.protocol.key_groups import key_group_range
from barrier_tck.reference_impl.protocol.messages import JobShape, VertexShape
from barrier_tck.reference_impl.runtime_errors import JobUsageError


class OperatorSpec(Protocol):
    """Describes one operator of a chain; a value that is shipped to subtasks, which build the operator."""

    @property
    def uid(self) -> str:
        """Return the operator's id, unique in the job and stable across attempts and versions."""

    @property
    def inputs(self) -> int:
        """Return how many logical inputs the operator tells apart.

        With more than 1 it heads its chain, and what it builds is an ``api.MultiInputOperator``.
        """

    @property
    def keeps_state(self) -> bool:
        """Whether a checkpoint holds anything of the operator: keyed state, or prepared transactions."""

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
    BROADCAST = "broadcast"
    """Every record to every receiver."""


@dataclass(frozen=True)
class Vertex:
    """A chain of operators that runs in one subtask, ``parallelism`` times."""

    name: str
    parallelism: int
    source: Source | None
    """Set on source vertices only."""
    operators: tuple[OperatorSpec, ...] = ()
    watermarks: WatermarkStrategy | None = None
    """How its source makes watermarks; None: it makes none (EVT-1)."""
    alignment: WatermarkAlignment | None = None
    """With which other sources its source keeps pace; None: with none (EVT-6)."""

    @property
    def side_outputs(self) -> tuple[str, ...]:
        """Return the names of the outputs on which its operators emit beside the main one."""
        return tuple(name for one in self.operators for name in getattr(one, "side_outputs", ()))

    @property
    def has_several_inputs(self) -> bool:
        """Whether the first operator of the chain tells several inputs apart."""
        return bool(self.operators) and self.operators[0].inputs > 1

    @property
    def source_uid(self) -> str:
        """Return the name under which a snapshot has the positions of the vertex's source."""
        return f"{self.name}.source"

    @property
    def stateful_uids(self) -> tuple[str, ...]:
        """Return the names under which checkpoints hold something of the vertex, upstream first."""
        source = (self.source_uid,) if self.source is not None else ()
        return (*source, *(operator.uid for operator in self.operators if operator.keeps_state))


@dataclass(frozen=True)
class Edge:
    """Connects two vertices. There may be several between the same two."""

    source: str
    target: str
    partitioning: Partitioning
    key: tuple[str, ...] = ()
    """Key columns of a HASH edge."""
    input: int = 0
    """Which logical input of the target it feeds. Edges into the same input are a union."""
    feedback: bool = False
    """Whether the edge closes a loop: its target leads to its source. Without such edges, a graph has no cycle."""
    output: str = ""
    """Which side output of the source vertex it carries; empty: the main output."""

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"

    @property
    def is_overtaken(self) -> bool:
        """Whether unaligned barriers may overtake records on it.

        Not on a broadcast: its receivers, which have read it to different points, would be restored with different
        parts of it applied (UNA-5). Not on a feedback edge either: it is read in line, so that loops need no buffers.
        """
        return not self.feedback and self.partitioning is not Partitioning.BROADCAST


@dataclass(frozen=True)
class JobGraph:
    """A whole dataflow. ``vertices`` are in topological order, upstream first, apart from feedback edges."""

    name: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    max_parallelism: int = 128

    def __post_init__(self) -> None:
        sources = [vertex.source_uid for vertex in self.vertices if vertex.source is not None]
        uids = [operator.uid for vertex in self.vertices for operator in vertex.operators]
        names = [vertex.name for vertex in self.vertices]
        for kind, values, option in (("vertex name", names, "name"), ("operator uid", uids + sources, "uid")):
            twice = sorted({value for value in values if values.count(value) > 1})
            if twice:
                raise JobUsageError(
                    f"the {kind} {twice[0]!r} is used twice in job {self.name!r}; give each its own, with {option}=..."
                )
        reserved = next((uid for uid in uids if uid.startswith("~")), None)
        if reserved is not None:
            raise JobUsageError(f"the operator uid {reserved!r} begins with '~', which is reserved")
        for edge in self.edges:
            self._check_edge(edge, names)
        for vertex in self.vertices:
            self._check_vertex(vertex)

    def _check_edge(self, edge: Edge, names: list[str]) -> None:
        if edge.source not in names or edge.target not in names:
            raise JobUsageError(f"the edge {edge} names a vertex that does not exist")
        if edge.feedback and not leads_to(self.edges, edge.target, edge.source):
            raise JobUsageError(
                f"the feedback edge {edge} closes no loop: nothing leads from {edge.target} to {edge.source}"
            )
        if not edge.feedback and names.index(edge.source) >= names.index(edge.target):
            raise JobUsageError(f"the edge {edge} goes backwards; only a feedback edge closes a loop")
        if edge.output and edge.output not in self.vertex(edge.source).side_outputs:
            known = ", ".join(self.vertex(edge.source).side_outputs) or "none"
            raise JobUsageError(
                f"the edge {edge} carries the side output {edge.output!r}, which {edge.source!r} does not have; it "
                f"has: {known}"
            )
        if (edge.partitioning is Partitioning.HASH) != bool(edge.key):
            wanted = "needs key columns" if not edge.key else "has key columns, which only a hash edge takes"
            raise JobUsageError(f"the {edge.partitioning.value} edge {edge} {wanted}")
        widths = self.vertex(edge.source).parallelism, self.vertex(edge.target).parallelism
        if edge.partitioning is Partitioning.FORWARD and widths[0] != widths[1]:
            raise JobUsageError(
                f"the forward edge {edge} needs equal parallelism, not {widths[0]} and {widths[1]}"
            )

    def _check_vertex(self, vertex: Vertex) -> None:
        if not 1 <= vertex.parallelism <= self.max_parallelism:
            raise JobUsageError(
                f"vertex {vertex.name!r} has parallelism {vertex.parallelism}; it must lie between 1 and the "
                f"job's maximum parallelism, {self.max_parallelism} (RSC-2)"
            )
        fed = sorted({edge.input for edge in self.edges if edge.target == vertex.name})
        fed_from_above = any(edge.target == vertex.name and not edge.feedback for edge in self.edges)
        if (vertex.source is None) != fed_from_above:
            raise JobUsageError(
                f"vertex {vertex.name!r} must have either a source or an input edge, apart from feedback edges"
            )
        if fed != list(range(len(fed))):
            raise JobUsageError(
                f"the inputs of vertex {vertex.name!r} must be numbered from 0 without a gap, not "
                f"{', '.join(map(str, fed))}"
            )
        if vertex.source is not None and len(fed) > 1:
            raise JobUsageError(
                f"vertex {vertex.name!r} has a source and several inputs; all that comes back to a source has input 0"
            )
        told_apart = [operator.inputs for operator in vertex.operators] or [1]
        if told_apart[0] != max(len(fed), 1):
            raise JobUsageError(
                f"vertex {vertex.name!r} has {max(len(fed), 1)} inputs, and its first operator takes "
                f"{told_apart[0]}; edges that form a union have the same input"
            )
        if any(inputs != 1 for inputs in told_apart[1:]):
            raise JobUsageError(
                f"vertex {vertex.name!r}: only the first operator of a chain has several inputs"
            )
        timed = next((one.uid for one in vertex.operators if getattr(one, "has_timers", False)), None)
        if timed is not None and leads_to(self.edges, vertex.name, vertex.name):
            raise JobUsageError(
                f"operator {timed!r} has timers and is in a loop; that ends when no record goes round, and what waits "
                "for a timer is not counted: take it out"
            )
        self._check_event_time(vertex)
        if not vertex.operators and not self.output_edges_of(vertex.name):
            raise JobUsageError(
                f"the records of vertex {vertex.name!r} go nowhere: it has neither an operator nor an output edge"
            )

    def _check_event_time(self, vertex: Vertex) -> None:
        if vertex.watermarks is not None and vertex.source is None:
            raise JobUsageError(
                f"vertex {vertex.name!r} makes watermarks and is no source: sources make them, and all others combine "
                "those of their inputs"
            )
        self._check_alignment(vertex)

    def _check_alignment(self, vertex: Vertex) -> None:
        own = vertex.alignment
        if own is None:
            return
        if vertex.watermarks is None or self.loop_of(vertex.name) is not None:
            raise JobUsageError(
                f"vertex {vertex.name!r} is aligned by watermark and makes none: it needs a source with watermarks, "
                "outside of loops"
            )
        for other in self.aligned_sources(own.group):
            if other.alignment != own:
                raise JobUsageError(
                    f"vertices {other.name!r} and {vertex.name!r} are in the group {own.group!r}, with "
                    f"{other.alignment} and {own}: all sources of a group need the same"
                )

    def aligned_sources(self, group: str) -> tuple[Vertex, ...]:
        """Return the source vertices of a group (EVT-6), in the job's order."""
        return tuple(
            one for one in self.vertices if one.alignment is not None and one.alignment.group == group
        )

    @cached_property
    def alignments(self) -> tuple[WatermarkAlignment, ...]:
        """How the sources of each group are aligned; empty if none are (EVT-6)."""
        return tuple(dict.fromkeys(one.alignment for one in self.vertices if one.alignment is not None))

    @cached_property
    def has_event_time(self) -> bool:
        """Whether event time matters in the job: a source makes watermarks, or an operator follows them."""
        return any(
            vertex.watermarks is not None
            or any(getattr(one, "follows_event_time", False) for one in vertex.operators)
            for vertex in self.vertices
        )

    def at_widths(self, widths: Mapping[str, int]) -> JobGraph:
        """Return the job with another parallelism of some vertices; raises JobUsageError if it cannot run so."""
        for name in widths:
            self.vertex(name)
        vertices = (
            replace(vertex, parallelism=widths.get(vertex.name, vertex.parallelism))
            for vertex in self.vertices
        )
        return replace(self, vertices=tuple(vertices))

    def vertex(self, name: str) -> Vertex:
        """Return a vertex by name; raises JobUsageError if there is none."""
        vertex = self._vertices.get(name)
        if vertex is None:
            raise JobUsageError(f"job {self.name!r} has no vertex {name!r}")
        return vertex

    @cached_property
    def _vertices(self) -> dict[str, Vertex]:
        return {vertex.name: vertex for vertex in self.vertices}

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
    def terminal_subtasks(self) -> tuple[SubtaskId, ...]:
        """The subtasks of terminal vertices: they say when all input is consumed and all output committed."""
        return tuple(subtask for subtask in self.subtasks if self.is_terminal(subtask.vertex))

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """The loops of the graph; vertices that reach each other are in the same one."""
        if not any(edge.feedback for edge in self.edges):
            return ()
        return tuple(
            self._loop(vertices) for vertices in looped([vertex.name for vertex in self.vertices], self.edges)
        )

    def _loop(self, vertices: tuple[str, ...]) -> Loop:
        fed = [
            name
            for name in vertices
            if self.vertex(name).source is not None
            or any(edge.target == name and edge.source not in vertices for edge in self.edges)
        ]
        members = [subtask for subtask in self.subtasks if subtask.vertex in vertices]
        return Loop(
            vertices[0],
            vertices,
            tuple(members),
            tuple(subtask for subtask in members if subtask.vertex in fed),
        )

    def loop_of(self, vertex: str) -> Loop | None:
        """Return the loop that a vertex is part of, or None."""
        return next((loop for loop in self.loops if vertex in loop.vertices), None)

    @cached_property
    def channels(self) -> tuple[ChannelId, ...]:
        """Every channel, in a fixed order: by edge, then sender, then receiver."""
        return tuple(self._edge_of)

    def edge_of(self, channel: ChannelId) -> Edge:
        """Return the edge that a channel belongs to."""
        return self._edge_of[channel]

    @cached_property
    def _edge_of(self) -> dict[ChannelId, Edge]:
        """Every channel, and the edge that it belongs to."""
        found: dict[ChannelId, Edge] = {}
        parallel: dict[tuple[str, str], int] = {}
        for edge in self.edges:
            ends = edge.source, edge.target
            number = parallel[ends] = parallel.get(ends, -1) + 1
            receivers = range(self.vertex(edge.target).parallelism)
            for sender in range(self.vertex(edge.source).parallelism):
                targets = (sender,) if edge.partitioning is Partitioning.FORWARD else receivers
                for receiver in targets:
                    ends_at = SubtaskId(edge.target, receiver)
                    found[ChannelId(SubtaskId(edge.source, sender), ends_at, number)] = edge
        return found

    def inputs_of(self, subtask: SubtaskId) -> tuple[ChannelId, ...]:
        """Return the subtask's input channels; their position is the channel number in its input gate."""
        return tuple([channel for channel, _ in self._inputs.get(subtask, ())])

    def input_numbers_of(self, subtask: SubtaskId) -> tuple[int, ...]:
        """Return for each of ``inputs_of`` which logical input of the vertex it feeds."""
        return tuple(number for _, number in self._inputs.get(subtask, ()))

    @cached_property
    def _inputs(self) -> dict[SubtaskId, list[tuple[ChannelId, int]]]:
        """Subtask -> the channels that it reads, each with the input to which it belongs."""
        found: dict[SubtaskId, list[tuple[ChannelId, int]]] = {}
        for channel, edge in self._edge_of.items():
            found.setdefault(channel.receiver, []).append((channel, edge.input))
        return found

    def outputs_of(self, subtask: SubtaskId) -> tuple[ChannelId, ...]:
        """Return the subtask's output channels; their position is the channel number of ``ChannelOutput``."""
        return tuple(self._outputs.get(subtask, ()))

    @cached_property
    def _outputs(self) -> dict[SubtaskId, list[ChannelId]]:
        """Subtask -> the channels on which it sends."""
        found: dict[SubtaskId, list[ChannelId]] = {}
        for channel in self.channels:
            found.setdefault(channel.sender, []).append(channel)
        return found

    def output_edges_of(self, vertex: str) -> tuple[Edge, ...]:
        """Return a vertex's output edges, in the order in which ``outputs_of`` lists their channels."""
        return tuple(self._output_edges.get(vertex, ()))

    @cached_property
    def _output_edges(self) -> dict[str, list[Edge]]:
        """Vertex -> the edges that leave it."""
        found: dict[str, list[Edge]] = {}
        for edge in self.edges:
            found.setdefault(edge.source, []).append(edge)
        return found

    def is_terminal(self, vertex: str) -> bool:
        """Return whether nothing is sent on from a vertex, except round a loop.

        Every record ends in such a vertex, so all input is consumed once they have all consumed theirs. A loop that
        leads to nowhere has one as well.
        """
        return all(edge.feedback for edge in self.output_edges_of(vertex))

    @cached_property
    def shape(self) -> JobShape:
        """What a checkpoint says about the job that took it."""
        return JobShape(
            self.max_parallelism,
            tuple(
                VertexShape(vertex.name, vertex.parallelism, vertex.stateful_uids) for vertex in self.vertices
            ),
        )

    def key_groups_of(self, subtask: SubtaskId) -> KeyGroupRange:
        """Return the key groups that a subtask owns."""
        return key_group_range(subtask.index, self.vertex(subtask.vertex).parallelism, self.max_parallelism)
