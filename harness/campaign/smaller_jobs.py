"""Smaller job graphs: the proposals of shrinking that change a plan's dataflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, VertexPlan
from barrier_tck.harness.plan.shapes import without_key


def without_a_vertex(job: JobPlan) -> Iterator[JobPlan]:
    """Propose the job without each vertex in turn; its inputs are connected to its outputs, as its output edges say."""
    for vertex in job.vertices:
        kept = tuple(other for other in job.vertices if other is not vertex)
        bridges = [
            msgspec.structs.replace(after, source=before.source, feedback=before.feedback or after.feedback)
            for before in job.inputs_of(vertex.name)
            for after in job.outputs_of(vertex.name)
            if vertex.name not in (before.source, after.target)
        ]
        others = [edge for edge in job.edges if vertex.name not in (edge.source, edge.target)]
        yield from _valid(job, kept, _distinct([*others, *bridges]))


def without_an_operator(job: JobPlan) -> Iterator[JobPlan]:
    """Propose the job without each chained operator in turn."""
    for vertex in job.vertices:
        for operator in vertex.then:
            shorter = tuple(chained for chained in vertex.then if chained is not operator)
            yield from _valid(job, _with_vertex(job, vertex, then=shorter), job.edges)


def without_an_edge(job: JobPlan) -> Iterator[JobPlan]:
    """Propose the job without each edge in turn."""
    for edge in job.edges:
        yield from _valid(job, job.vertices, [other for other in job.edges if other is not edge])


def narrower(job: JobPlan, smaller_than: Mapping[int, Sequence[int]]) -> Iterator[JobPlan]:
    """Propose smaller parallelism, of all vertices at once, then of each; ``smaller_than``: width -> those to try."""
    for width in smaller_than.get(max(vertex.parallelism for vertex in job.vertices), ()):
        all_narrow = tuple(
            msgspec.structs.replace(vertex, parallelism=min(width, vertex.parallelism))
            for vertex in job.vertices
        )
        yield from _valid(job, all_narrow, job.edges)
    for vertex in job.vertices:
        for width in smaller_than.get(vertex.parallelism, ()):
            yield from _valid(job, _with_vertex(job, vertex, parallelism=width), job.edges)


def _with_vertex(job: JobPlan, vertex: VertexPlan, **fields: object) -> tuple[VertexPlan, ...]:
    changed = msgspec.structs.replace(vertex, **fields)
    return tuple(changed if other is vertex else other for other in job.vertices)


def _distinct(edges: Sequence[EdgePlan]) -> list[EdgePlan]:
    """Leave out repeated edges: two paths around a vertex may become one."""
    return list(dict.fromkeys(edges))


def _valid(job: JobPlan, vertices: tuple[VertexPlan, ...], edges: Sequence[EdgePlan]) -> Iterator[JobPlan]:
    """Yield the job of these parts, with its inputs numbered without gaps, if it is a valid job."""
    numbered = []
    for edge in edges:
        inputs = sorted({other.input for other in edges if other.target == edge.target})
        numbered.append(msgspec.structs.replace(edge, input=inputs.index(edge.input)))
    try:
        yield JobPlan(
            shape=job.shape,
            vertices=vertices,
            edges=tuple(without_key(edge, vertices) for edge in numbered),
        )
    except ValueError:
        return  # no dataflow without that part
