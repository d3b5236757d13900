"""Named shapes: functions that return a job graph. A workload says which operators stand at their vertices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, Spread, VertexPlan


def along(*edges: EdgePlan, shape: str, vertices: Sequence[VertexPlan], widths: Mapping[str, int]) -> JobPlan:
    """Return the job of these vertices and edges, with other widths where they are given.

    A forward edge between vertices that are not equally wide becomes one that rebalances, and the other way round:
    that is what a runtime makes of an edge without a key. Raises ValueError for a width of a vertex that is not there.
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
    """Return an edge without key as its ends' widths ask: forward between equal ones, else rebalance."""
    if edge.by not in (Spread.FORWARD, Spread.REBALANCE):
        return edge
    widths = {vertex.name: vertex.parallelism for vertex in vertices}
    equal = widths[edge.source] == widths[edge.target]
    return msgspec.structs.replace(edge, by=Spread.FORWARD if equal else Spread.REBALANCE)
