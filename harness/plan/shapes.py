"""Builds the job graph of a named shape. A workload says which operators its vertices run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, Spread, VertexPlan

Parts = tuple[Sequence[VertexPlan], Sequence[EdgePlan]]
"""The vertices and the edges of a shape."""

Shapes = Mapping[str, Callable[[], Parts]]
"""Name of a shape -> the function that makes its parts; the first one is the usual one."""


def job_among(shapes: Shapes, shape: str, widths: Mapping[str, int]) -> JobPlan:
    """Return the job of one of several shapes, of the first if none is named.

    ``widths`` replaces the parallelism of the vertices it names. Raises ValueError for a shape that is not among them,
    and if ``widths`` names a vertex that the shape does not have.
    """
    name = shape or next(iter(shapes))
    if name not in shapes:
        raise ValueError(f"there is no shape {name!r}; known: {', '.join(shapes)}")
    vertices, edges = shapes[name]()
    return job_along(*edges, shape=name, vertices=vertices, widths=widths)


def job_along(
    *edges: EdgePlan, shape: str, vertices: Sequence[VertexPlan], widths: Mapping[str, int]
) -> JobPlan:
    """Return the job of these vertices and edges; ``widths`` replaces the parallelism of the vertices it names.

    A forward edge between vertices of different widths becomes a rebalance edge, and a rebalance edge between equal
    ones becomes forward, as a runtime would do. Raises ValueError if ``widths`` names a vertex that does not exist.
    """
    unknown = [name for name in widths if name not in [vertex.name for vertex in vertices]]
    if unknown:
        known = ", ".join(vertex.name for vertex in vertices)
        raise ValueError(f"the shape {shape!r} has no vertex {unknown[0]!r}; it has {known}")
    wide = tuple(
        msgspec.structs.replace(vertex, parallelism=widths.get(vertex.name, vertex.parallelism))
        for vertex in vertices
    )
    return JobPlan(shape=shape, vertices=wide, edges=tuple(without_key(edge, wide) for edge in edges))


def without_key(edge: EdgePlan, vertices: Sequence[VertexPlan]) -> EdgePlan:
    """Return an edge without a key as the widths of its ends require: forward if they are equal, else rebalance."""
    if edge.by not in (Spread.FORWARD, Spread.REBALANCE):
        return edge
    widths = {vertex.name: vertex.parallelism for vertex in vertices}
    equal = widths[edge.source] == widths[edge.target]
    return msgspec.structs.replace(edge, by=Spread.FORWARD if equal else Spread.REBALANCE)
