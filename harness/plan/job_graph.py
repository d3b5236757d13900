"""The job graph of a plan: vertices and edges as data, and the subtasks and channels that follow from them.

A *vertex* is a chain of operators that runs ``parallelism`` times; an *edge* says how the records of one vertex are
spread over the subtasks of another. The workload defines what a kind of operator means
(``harness.workloads.dataflow_model``); the adapter decides how it is built. Everything that needs a plan's shape
(drawing, checking, shrinking, the oracles and the adapters) asks the functions below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Annotated, Any

import msgspec

from barrier_tck.harness.support.bounds import Bounded

PARALLELISM_MAX = 128
"""The widest vertex that a plan may have."""
VERTICES_MAX = 64
"""The most vertices that a plan may have."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_.-]{0,39}$")]
"""The name of a vertex or an operator. It becomes part of file names."""
Width = Annotated[int, msgspec.Meta(ge=1, le=PARALLELISM_MAX)]
"""How many subtasks a vertex has."""
SOURCE = "source"
"""The kind of every vertex that reads input."""
SINK = "sink"
"""The kind of every vertex that commits output."""


class Spread(StrEnum):
    """How an edge spreads records over the receiver's subtasks."""

    FORWARD = "forward"
    """Subtask i sends to subtask i; both vertices are equally wide."""
    HASH = "hash"
    """Each record goes to the subtask that owns its key's key group."""
    BROADCAST = "broadcast"
    """Each record goes to every subtask."""
    REBALANCE = "rebalance"
    """Each batch goes to the next subtask, in turn."""


class OperatorPlan(Bounded, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An operator in a vertex's chain, behind the first one."""

    name: Name
    kind: str
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)

    def __hash__(self) -> int:
        """Hash by content: parameters are a dictionary."""
        return hash((self.name, self.kind, _text(self.parameters)))


class VertexPlan(Bounded, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """A chain of operators that runs in ``parallelism`` subtasks."""

    name: Name
    kind: str
    """What its first operator does; ``source`` and ``sink`` are the two ends of a job."""
    parallelism: Width
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    """Parameters of the kind; JSON values."""
    then: tuple[OperatorPlan, ...] = ()
    """Operators chained behind the first one, in the same subtask."""

    def __hash__(self) -> int:
        """Hash by content: parameters are a dictionary."""
        return hash((self.name, self.kind, self.parallelism, _text(self.parameters), self.then))

    @cached_property
    def operators(self) -> tuple[OperatorPlan, ...]:
        """The whole chain; the first operator has the vertex's name."""
        return (OperatorPlan(self.name, self.kind, self.parameters), *self.then)

    @property
    def ends_in_sink(self) -> bool:
        """Whether it commits output: it is a sink, or one is chained to it."""
        return SINK in (self.kind, self.operators[-1].kind)

    @cached_property
    def subtasks(self) -> tuple[str, ...]:
        """The subtasks, as ``vertex[index]``."""
        return tuple(f"{self.name}[{index}]" for index in range(self.parallelism))


class EdgePlan(
    Bounded,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"source": "from", "target": "to"},
):
    """Connects two vertices."""

    source: Name
    target: Name
    by: Spread
    key: tuple[str, ...] = ()
    """Key columns of a ``hash`` edge."""
    input: Annotated[int, msgspec.Meta(ge=0, le=15)] = 0
    """The number of the target's input that it leads to; edges to the same input form a union."""
    feedback: bool = False
    """Closes a loop: the target leads to the source. Without such edges, a job has no cycle."""
    output: str = ""
    """The side output of the source vertex that it carries, for instance late records; empty: the main output."""


class JobPlan(Bounded, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """A whole dataflow, or a request for one.

    Without vertices it is a request: for a shape that the workload knows, possibly with other widths.
    ``harness.workloads.workload_names.filled`` turns it into vertices and edges; every plan that is kept has those.
    """

    shape: str = ""
    """A shape of the workload; empty means its first one. In a filled job: the shape it was made from."""
    widths: dict[str, Width] = msgspec.field(default_factory=dict)
    """Vertex -> parallelism, where it differs from the shape's own. Empty in a filled job."""
    vertices: Annotated[tuple[VertexPlan, ...], msgspec.Meta(max_length=VERTICES_MAX)] = ()
    """The vertices, upstream first."""
    edges: tuple[EdgePlan, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a job that is not a dataflow; the message names the part that is wrong."""
        super().__post_init__()
        if self.vertices:
            for problem in graph_problems(self):
                raise ValueError(problem)

    def __hash__(self) -> int:
        """Hash by content: widths are a dictionary."""
        return self._content_hash

    @cached_property
    def _content_hash(self) -> int:
        return hash((self.shape, tuple(self.widths.items()), self.vertices, self.edges))

    def at_widths(self, widths: Mapping[str, int]) -> JobPlan:
        """Return the job with another parallelism of some vertices; raises ValueError if that is no dataflow."""
        return _at_widths(self, tuple(widths.items()))

    # --- what follows from the graph --------------------------------------------------------------------------

    def vertex(self, name: str) -> VertexPlan:
        """Return a vertex; raises KeyError if there is none of that name."""
        for vertex in self.vertices:
            if vertex.name == name:
                return vertex
        raise KeyError(name)

    @cached_property
    def sources(self) -> tuple[VertexPlan, ...]:
        """The vertices that read input."""
        return tuple(vertex for vertex in self.vertices if vertex.kind == SOURCE)

    @property
    def sinks(self) -> tuple[VertexPlan, ...]:
        """Return the vertices that commit output."""
        return tuple(vertex for vertex in self.vertices if vertex.ends_in_sink)

    def inputs_of(self, vertex: str) -> tuple[EdgePlan, ...]:
        """Return the edges into a vertex, in the order of the plan."""
        return tuple(edge for edge in self.edges if edge.target == vertex)

    def outputs_of(self, vertex: str) -> tuple[EdgePlan, ...]:
        """Return the edges out of a vertex, in the order of the plan."""
        return tuple(edge for edge in self.edges if edge.source == vertex)

    @cached_property
    def subtasks(self) -> tuple[str, ...]:
        """Every subtask, upstream vertices first."""
        return tuple(subtask for vertex in self.vertices for subtask in vertex.subtasks)

    def channels_of(self, edge: EdgePlan) -> tuple[tuple[str, str], ...]:
        """Return (sender, receiver) of every channel of an edge."""
        senders, receivers = self.vertex(edge.source).subtasks, self.vertex(edge.target).subtasks
        if edge.by is Spread.FORWARD:
            return tuple(zip(senders, receivers, strict=True))
        return tuple((sender, receiver) for sender in senders for receiver in receivers)

    @cached_property
    def channels(self) -> tuple[tuple[str, str], ...]:
        """(sender, receiver) of every channel: by edge, then sender, then receiver."""
        return tuple(channel for edge in self.edges for channel in self.channels_of(edge))

    def channels_into(self, vertex: str) -> int:
        """Return how many channels each subtask of a vertex reads."""
        return sum(
            1 if edge.by is Spread.FORWARD else self.vertex(edge.source).parallelism
            for edge in self.inputs_of(vertex)
        )

    @cached_property
    def loops(self) -> tuple[tuple[str, ...], ...]:
        """The loops: the vertices of each, upstream first. Vertices that reach each other are in the same loop."""
        return loops_among([vertex.name for vertex in self.vertices], self.edges)

    @cached_property
    def unreached(self) -> tuple[str, ...]:
        """The subtasks to which no channel leads: they initiate every snapshot."""
        into = {receiver for _, receiver in self.channels}
        return tuple(name for name in self.subtasks if name not in into)

    def unreached_by(self, initiators: Sequence[str]) -> str | None:
        """Say which subtask would never hear of a snapshot that some initiate.

        The sources that no channel leads to initiate each one, too. None if every subtask would hear of it (CHL-1), or
        if the job is not filled in.
        """
        reached = dict.fromkeys((*initiators, *self.unreached))
        waiting = list(reached)
        for name in waiting:  # grows while it is walked
            for sender, receiver in self.channels:
                if sender == name and receiver not in reached:
                    reached[receiver] = None
                    waiting.append(receiver)
        lost = [name for name in self.subtasks if name not in reached]
        return (
            f"no channel leads from {', '.join(initiators)} to {lost[0]}: it would never take part"
            if lost
            else None
        )

    @cached_property
    def depth(self) -> int:
        """The number of vertices on the longest path from a source to a sink that goes round no loop."""
        depths: dict[str, int] = {}
        for vertex in self.vertices:
            before = [depths.get(edge.source, 0) for edge in self.inputs_of(vertex.name) if not edge.feedback]
            depths[vertex.name] = 1 + max(before, default=0)
        return max(depths.values(), default=0)

    @cached_property
    def shuffles(self) -> bool:
        """Whether any subtask reads more than one channel; only then is there something to align."""
        return any(self.channels_into(vertex.name) > 1 for vertex in self.vertices)


# A plan with rescales asks for the same jobs each time that one of its other values is drawn.
@lru_cache(maxsize=256)
def _at_widths(job: JobPlan, widths: tuple[tuple[str, int], ...]) -> JobPlan:
    new = dict(widths)
    unknown = [name for name in new if name not in {vertex.name for vertex in job.vertices}]
    if unknown:
        raise ValueError(f"there is no vertex {unknown[0]!r} that could be rescaled")
    wider = tuple(
        msgspec.structs.replace(vertex, parallelism=new.get(vertex.name, vertex.parallelism))
        for vertex in job.vertices
    )
    return msgspec.structs.replace(job, vertices=wider)


def graph_problems(job: JobPlan) -> Iterable[str]:
    """Say why a job is not a dataflow, the most basic problem first."""
    names = [vertex.name for vertex in job.vertices]
    operators = [operator.name for vertex in job.vertices for operator in vertex.operators]
    for value in _twice(operators):
        yield f"the name {value!r} is used twice; give each operator its own"
    if job.widths:
        yield "a job with vertices takes no widths: each vertex has its own parallelism"
    for edge in job.edges:
        for end in (edge.source, edge.target):
            if end not in names:
                yield f"the edge {edge.source} -> {edge.target} names a vertex {end!r} that does not exist"
                return
        yield from _edge_problems(job, edge, names)
    for vertex in job.vertices:
        yield from _vertex_problems(job, vertex)
    yield from _unreachable(job)


def _edge_problems(job: JobPlan, edge: EdgePlan, names: Sequence[str]) -> Iterable[str]:
    title = f"the edge {edge.source} -> {edge.target}"
    if not edge.feedback and names.index(edge.source) >= names.index(edge.target):
        yield f"{title} goes backwards; list vertices upstream first, or mark the edge as feedback"
    if edge.feedback and not _leads(job.edges, edge.target, edge.source):
        yield f"{title} is marked as feedback but closes no loop: nothing leads from {edge.target} to {edge.source}"
    if (edge.by is Spread.HASH) != bool(edge.key):
        yield f"{title} must have key columns if it is a hash edge, and none otherwise"
    widths = job.vertex(edge.source).parallelism, job.vertex(edge.target).parallelism
    if edge.by is Spread.FORWARD and widths[0] != widths[1]:
        yield f"{title} is a forward edge and needs equal parallelism, not {widths[0]} and {widths[1]}"


def _vertex_problems(job: JobPlan, vertex: VertexPlan) -> Iterable[str]:
    inputs = sorted({edge.input for edge in job.inputs_of(vertex.name)})
    if (vertex.kind == SOURCE) == any(not edge.feedback for edge in job.inputs_of(vertex.name)):
        yield (
            f"the vertex {vertex.name!r} must be a source or have an input edge that is no feedback edge, but not both"
        )
    if vertex.kind == SOURCE and len(inputs) > 1:
        yield f"all that comes back to the source {vertex.name!r} must have the input 0"
    if inputs != list(range(len(inputs))):
        yield f"the inputs of {vertex.name!r} are {inputs}; number them from 0 without a gap"
    if vertex.ends_in_sink == bool(job.outputs_of(vertex.name)):
        yield f"the vertex {vertex.name!r} must be a sink or have an output edge, but not both"
    for operator in vertex.then:
        if operator.kind == SOURCE:
            yield f"the operator {operator.name!r} is a source, which cannot be chained behind another"
        if operator.kind == SINK and operator is not vertex.then[-1]:
            yield f"the operator {operator.name!r} is a sink, so no other one can be chained behind it"
    if vertex.kind == SINK and vertex.then:
        yield f"the vertex {vertex.name!r} is a sink, so no operator can be chained behind it"


def loops_among(names: Sequence[str], edges: Sequence[EdgePlan]) -> tuple[tuple[str, ...], ...]:
    """Return the loops among vertices, each in the order of ``names``."""
    found: list[tuple[str, ...]] = []
    for name in names:
        if not any(name in loop for loop in found) and _leads(edges, name, name):
            loop = [other for other in names if _leads(edges, name, other) and _leads(edges, other, name)]
            found.append(tuple(loop))
    return tuple(found)


def _leads(edges: Sequence[EdgePlan], start: str, end: str) -> bool:
    """Return whether edges lead from one vertex to another; a vertex leads to itself only round a loop."""
    reached = [start]
    for name in reached:  # grows while it is walked
        for edge in edges:
            if edge.source == name:
                if edge.target == end:
                    return True
                if edge.target not in reached:
                    reached.append(edge.target)
    return False


def _unreachable(job: JobPlan) -> Iterable[str]:
    """Say which vertices no source reaches."""
    reached = [vertex.name for vertex in job.sources]
    for name in reached:  # grows while it is walked
        reached += [edge.target for edge in job.outputs_of(name) if edge.target not in reached]
    yield from (
        f"no source reaches the vertex {vertex.name!r}"
        for vertex in job.vertices
        if vertex.name not in reached
    )


def _twice(values: Sequence[str]) -> list[str]:
    return sorted({value for value in values if values.count(value) > 1})


def _text(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
