"""Draws which operators of a job graph hold records back until a timer goes off (STA-1, RSC-3)."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import chance
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.plan.job_graph import JobPlan, OperatorPlan, VertexPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.meaning import WINDOW

OperatorT = TypeVar("OperatorT", VertexPlan, OperatorPlan)


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
    def changed(one: OperatorT) -> OperatorT:
        if one.name not in windows:
            return one
        parameters = {**one.parameters, "size_ms": windows[one.name]}
        return msgspec.structs.replace(one, kind=WINDOW, parameters=parameters)

    vertices = (
        msgspec.structs.replace(changed(vertex), then=tuple(map(changed, vertex.then)))
        for vertex in job.vertices
    )
    return msgspec.structs.replace(job, vertices=tuple(vertices))
