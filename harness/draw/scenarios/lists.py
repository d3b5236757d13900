"""Operators of the job keep lists without keys (STA-1, RSC-3)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_graph import keeps_lists, shapes_of, with_shape
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.plan.job_graph import VertexPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.generated_jobs import GENERATED
from barrier_tck.harness.workloads.kind_catalogue import alike
from barrier_tck.harness.workloads.workload_names import workload_named


def _possible(profile: Profile, capabilities: frozenset[Capability]) -> bool:
    return Capability.OPERATOR_LISTS in capabilities and bool(_keeping(profile))


def _keeping(profile: Profile) -> tuple[str, ...]:
    """Return the workloads of a profile that have a shape whose operators keep lists."""
    return tuple(
        name
        for name in profile.workload.names
        if shapes_of(workload_named(name), profile.job, with_lists=True)
    )


def _profile(_: st.DrawFn, profile: Profile) -> Profile:
    """Let the workload be one that can keep lists, unless another scenario has chosen one that cannot."""
    names = _keeping(profile) or profile.workload.names
    return replace(profile, workload=replace(profile.workload, names=names))


def _job(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let operators of a drawn graph keep what they pass on; else draw a shape whose operators do, if there is one."""
    listed = _with_lists(drawing, plan) if plan.job.shape == GENERATED else plan
    shapes = shapes_of(workload_named(plan.workload.name), drawing.profile.job, with_lists=True)
    return listed if keeps_lists(listed.job) or not shapes else with_shape(drawing, plan, shapes)


def _with_lists(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let one of the operators that pass records on keep them in a list, and perhaps others, if there is any."""
    draw = drawing.draw
    able = [vertex.name for vertex in plan.job.vertices if _listing(vertex.kind)]
    if not able:
        return plan
    sure = draw(st.sampled_from(able))

    def changed(vertex: VertexPlan) -> VertexPlan:
        if vertex.name not in able:
            return vertex
        kinds = _listing(vertex.kind)
        kept = draw(st.sampled_from(kinds if vertex.name == sure else (vertex.kind, *kinds)))
        return msgspec.structs.replace(vertex, kind=kept)

    vertices = tuple(map(changed, plan.job.vertices))
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, vertices=vertices))


def _listing(name: str) -> list[str]:
    """Return the kinds that emit what one emits, and keep lists."""
    return [kind.name for kind in alike(name) if kind.keeps_lists]


SCENARIO = Scenario(possible=_possible, profile=_profile, job=_job)
