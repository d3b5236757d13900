"""Draws which operators of a job graph keep lists without keys (STA-1, RSC-3)."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import chance
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.workloads.kind_catalogue import alike, kind_named
from barrier_tck.harness.workloads.meaning import windows_of
from barrier_tck.harness.workloads.workload import Workload


def with_lists(draw: st.DrawFn, profile: Profile, job: JobPlan) -> JobPlan:
    """Let operators of a drawn graph keep what they pass on, in lists of either form."""
    if not any(_listing(vertex.kind) for vertex in job.vertices) or not chance(draw, profile.lists_per_mille):
        return job
    vertices = tuple(
        msgspec.structs.replace(vertex, kind=draw(st.sampled_from((vertex.kind, *listing))))
        if (listing := _listing(vertex.kind))
        else vertex
        for vertex in job.vertices
    )
    return msgspec.structs.replace(job, vertices=vertices)


def _listing(name: str) -> list[str]:
    """Return the kinds that emit what one emits, and keep lists."""
    return [kind.name for kind in alike(name) if kind.keeps_lists]


def shapes_for(draw: st.DrawFn, profile: Profile, workload: Workload) -> list[str]:
    """Return the shapes of a workload of which one is drawn: either those that keep lists, or the others."""
    jobs = {
        shape: workload.job(shape, {}) for shape in workload.shapes if shape not in profile.shapes_left_out
    }
    allowed = [shape for shape, job in jobs.items() if not windows_of(job)]  # those are drawn for any shape
    listing = [shape for shape in allowed if keeps_lists(jobs[shape])]
    others = [shape for shape in allowed if shape not in listing]
    return listing if listing and chance(draw, profile.lists_per_mille) else others


def keeps_lists(job: JobPlan) -> bool:
    """Tell whether an operator of a job keeps a list without keys."""
    return any(
        kind_named(operator.kind).keeps_lists for vertex in job.vertices for operator in vertex.operators
    )
