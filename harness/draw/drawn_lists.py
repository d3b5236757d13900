"""Draws which operators of a job graph keep lists without keys (STA-1, RSC-3)."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import chance
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.workloads.meaning import LISTING
from barrier_tck.harness.workloads.workload import Workload

_ALIKE = ("pass", "merge")
"""Kinds of operators that emit what those that keep lists emit."""


def with_lists(draw: st.DrawFn, profile: Profile, job: JobPlan) -> JobPlan:
    """Let operators of a drawn graph keep what they pass on, in lists of either form."""
    if not any(vertex.kind in _ALIKE for vertex in job.vertices) or not chance(draw, profile.lists_per_mille):
        return job
    vertices = tuple(
        msgspec.structs.replace(vertex, kind=draw(st.sampled_from((vertex.kind, *LISTING))))
        if vertex.kind in _ALIKE
        else vertex
        for vertex in job.vertices
    )
    return msgspec.structs.replace(job, vertices=vertices)


def shapes_for(draw: st.DrawFn, profile: Profile, workload: Workload) -> list[str]:
    """Return the shapes of a workload of which one is drawn: either those that keep lists, or the others."""
    left_out = (*profile.shapes_left_out, "windows")  # windows are drawn for any shape (``drawn_windows``)
    allowed = [shape for shape in workload.shapes if shape not in left_out]
    listing = [shape for shape in allowed if keeps_lists(workload.job(shape, {}))]
    others = [shape for shape in allowed if shape not in listing]
    return listing if listing and chance(draw, profile.lists_per_mille) else others


def keeps_lists(job: JobPlan) -> bool:
    """Tell whether an operator of a job keeps a list without keys."""
    return any(operator.kind in LISTING for vertex in job.vertices for operator in vertex.operators)
