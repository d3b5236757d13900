"""Rounds: lineage on graphs with loops. Each record goes round as often as its id says, and its path shows it."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    EdgePlan,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
)
from barrier_tck.harness.plan.shapes import Parts, Shapes, without_key
from barrier_tck.harness.workloads.generated_jobs import SUBTASKS_MAX, drawn_operator
from barrier_tck.harness.workloads.kinds.again import KIND as AGAIN
from barrier_tck.harness.workloads.lineage import Lineage, hashed, source
from barrier_tck.harness.workloads.operator_kind import Between, Place


class Rounds(Lineage):
    """The input of ``lineage``, on graphs with feedback edges."""

    name = "rounds"
    description = (
        "As lineage, on graphs with loops: an operator in each loop sends a record round it again, as often as the "
        "record's id says. Every turn shows in the record's path, so that state, output and what is under way hold "
        "each record once per turn. The job ends when nothing is under way in any loop."
    )
    shapes = ("loop", "mesh", "nested", "two-loops", "ring", "exchange")

    def shapes_made(self) -> Shapes:
        """Return what makes the parts of each shape."""
        return _SHAPES

    def draw_job(self, between: Between, subtasks_max: int = SUBTASKS_MAX) -> JobPlan:
        """Draw a graph of one to four layers, and lead one or two of its vertices back to an earlier one."""
        job = super().draw_job(between, subtasks_max)
        for number in range(between(1, 2)):
            job = _with_loop(between, job, f"back{number}")
        return job


def _with_loop(between: Between, job: JobPlan, name: str) -> JobPlan:
    """Return a job with one loop more: a drawn vertex leads back to itself or to a vertex above it, through a new
    one."""
    inner = [vertex for vertex in job.vertices if vertex.kind not in (SOURCE, SINK)]
    head = inner[between(0, len(inner) - 1)]
    reached = [head.name]
    for at in reached:  # grows while it is walked
        onward = [edge.target for edge in job.outputs_of(at) if job.vertex(edge.target) in inner]
        reached += [target for target in dict.fromkeys(onward) if target not in reached]
    tail = reached[between(0, len(reached) - 1)]
    width, (operator, _) = between(1, 2), drawn_operator(between, name, Place.LEADING_BACK)
    again = VertexPlan(name, operator.kind, width, operator.parameters)
    entered = job.inputs_of(head.name)[0]
    place = next(number for number, vertex in enumerate(job.vertices) if vertex.kind == SINK)
    vertices = (*job.vertices[:place], again, *job.vertices[place:])
    edges = (
        *job.edges,
        EdgePlan(tail, name, Spread.REBALANCE),
        # It comes back as the records from outside come in, by key for instance.
        msgspec.structs.replace(entered, source=name, feedback=True),
    )
    return JobPlan(
        shape=job.shape,
        vertices=vertices,
        edges=tuple(without_key(edge, vertices) for edge in edges),
    )


# --- shapes -------------------------------------------------------------------------------------------------


def _back(start: str, end: str) -> EdgePlan:
    return EdgePlan(start, end, Spread.HASH, ("key",), feedback=True)


def _again(name: str, turns: int, parallelism: int = 2) -> VertexPlan:
    return VertexPlan(name, AGAIN.name, parallelism, {"turns": turns})


def _loop() -> Parts:
    """Every turn reaches the sink."""
    vertices = (source("read"), VertexPlan("head", "keep", 3), _again("again", 3), VertexPlan("out", SINK, 1))
    return vertices, (
        hashed("read", "head"),
        EdgePlan("head", "again", Spread.REBALANCE),
        _back("again", "head"),
        EdgePlan("head", "out", Spread.REBALANCE),
    )


def _mesh() -> Parts:
    """Processes that all send to each other, and to themselves: a record goes to another one each time."""
    chain = (
        OperatorPlan("hub.rekey", "rekey", {"by": 3}),
        OperatorPlan("hub.again", AGAIN.name, {"turns": 3}),
    )
    vertices = (source("read"), VertexPlan("hub", "keep", 3, then=chain), VertexPlan("out", SINK, 1))
    return vertices, (
        hashed("read", "hub"),
        _back("hub", "hub"),
        EdgePlan("hub", "out", Spread.REBALANCE),
    )


def _nested() -> Parts:
    """A loop inside another one."""
    vertices = (
        source("read"),
        VertexPlan("outer", "keep", 2),
        VertexPlan("inner", "keep", 2),
        _again("short", 1, 1),
        _again("long", 2),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        hashed("read", "outer"),
        hashed("outer", "inner"),
        EdgePlan("inner", "short", Spread.REBALANCE),
        _back("short", "inner"),
        EdgePlan("inner", "long", Spread.FORWARD),
        _back("long", "outer"),
        EdgePlan("inner", "out", Spread.REBALANCE),
    )


def _two_loops() -> Parts:
    """Two loops one after the other; the second one is fed until the first one has ended."""
    vertices = (
        source("read"),
        VertexPlan("first", "keep", 2),
        _again("first.again", 2),
        VertexPlan("second", "keep", 3),
        _again("second.again", 1),
        VertexPlan("out", SINK, 2),
    )
    return vertices, (
        hashed("read", "first"),
        EdgePlan("first", "first.again", Spread.FORWARD),
        _back("first.again", "first"),
        hashed("first", "second"),
        EdgePlan("second", "second.again", Spread.REBALANCE),
        _back("second.again", "second"),
        EdgePlan("second", "out", Spread.REBALANCE),
    )


def _ring() -> Parts:
    """Stations that pass tokens on, many times round; only the first one remembers them."""
    vertices = (
        source("read", 1),
        VertexPlan("first", "keep", 1),
        VertexPlan("second", "pass", 1),
        VertexPlan("third", "pass", 1),
        _again("last", 23, 1),
        VertexPlan("out", SINK, 1),
    )
    return vertices, (
        hashed("read", "first"),
        EdgePlan("first", "second", Spread.FORWARD),
        EdgePlan("second", "third", Spread.FORWARD),
        EdgePlan("third", "last", Spread.FORWARD),
        _back("last", "first"),
        EdgePlan("third", "out", Spread.FORWARD),
    )


def _exchange() -> Parts:
    """Processes that all reach each other, sources among them, so that any one of them may initiate a snapshot."""
    chain = (
        OperatorPlan("hub.rekey", "rekey", {"by": 2}),
        OperatorPlan("hub.again", AGAIN.name, {"turns": 2}),
    )
    vertices = (source("read"), VertexPlan("hub", "keep", 3, then=chain), VertexPlan("out", SINK, 1))
    return vertices, (
        hashed("read", "hub"),
        _back("hub", "hub"),
        EdgePlan("hub", "read", Spread.REBALANCE, feedback=True),
        EdgePlan("hub", "out", Spread.REBALANCE),
    )


_SHAPES: Shapes = {
    "loop": _loop,
    "mesh": _mesh,
    "nested": _nested,
    "two-loops": _two_loops,
    "ring": _ring,
    "exchange": _exchange,
}
