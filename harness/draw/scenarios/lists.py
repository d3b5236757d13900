"""Operators of the job keep lists without keys (STA-1, RSC-3)."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.drawn_graph import shapes_of, with_shape
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.generated_jobs import GENERATED
from barrier_tck.harness.workloads.kind_catalogue import alike
from barrier_tck.harness.workloads.workload_names import workload_named


def _possible(_: Profile, capabilities: frozenset[Capability]) -> bool:
    return Capability.OPERATOR_LISTS in capabilities


def _job(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let operators of a drawn graph keep what they pass on; else draw a shape whose operators do, if there is one."""
    if plan.job.shape == GENERATED:
        return _with_lists(drawing, plan)
    shapes = shapes_of(workload_named(plan.workload.name), drawing.profile.job, with_lists=True)
    return with_shape(drawing, plan, shapes) if shapes else plan


def _with_lists(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    vertices = tuple(
        msgspec.structs.replace(vertex, kind=drawing.draw(st.sampled_from((vertex.kind, *listing))))
        if (listing := _listing(vertex.kind))
        else vertex
        for vertex in plan.job.vertices
    )
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, vertices=vertices))


def _listing(name: str) -> list[str]:
    """Return the kinds that emit what one emits, and keep lists."""
    return [kind.name for kind in alike(name) if kind.keeps_lists]


SCENARIO = Scenario(possible=_possible, job=_job)
