"""Draws which operators of a job graph hold records back until a timer goes off (STA-1, RSC-3)."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import chance
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.job_graph import JobPlan, VertexPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.meaning import WINDOW


def with_windows(draw: st.DrawFn, profile: Profile, plan: TrialPlan) -> TrialPlan:
    """Let some operators that keep records by key hold them back for a while, if the job has any outside of loops."""
    job = plan.job
    looped = [name for loop in job.loops for name in loop]
    free = [vertex for vertex in job.vertices if vertex.name not in looped and _keeping(vertex)]
    if not free or not chance(draw, profile.windows_per_mille):
        return plan
    first = draw(st.sampled_from([operator for vertex in free for operator in _keeping(vertex)]))
    names = [
        first,
        *(name for vertex in free for name in _keeping(vertex) if name != first and chance(draw, 300)),
    ]
    windows = {name: draw(st.sampled_from(profile.window_ms)) for name in names}
    return msgspec.structs.replace(plan, job=_with_kinds(job, windows))


def _keeping(vertex: VertexPlan) -> list[str]:
    """Return the operators of a vertex that keep records by key."""
    return [operator.name for operator in vertex.operators if operator.kind == "keep"]


def _with_kinds(job: JobPlan, windows: dict[str, int]) -> JobPlan:
    vertices = []
    for vertex in job.vertices:
        if vertex.name in windows:
            parameters = {**vertex.parameters, "size_ms": windows[vertex.name]}
            vertex = msgspec.structs.replace(vertex, kind=WINDOW, parameters=parameters)
        then = tuple(
            msgspec.structs.replace(
                one, kind=WINDOW, parameters={**one.parameters, "size_ms": windows[one.name]}
            )
            if one.name in windows
            else one
            for one in vertex.then
        )
        vertices.append(msgspec.structs.replace(vertex, then=then))
    return msgspec.structs.replace(job, vertices=tuple(vertices))
