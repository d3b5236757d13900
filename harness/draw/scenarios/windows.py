"""Operators of the job hold records back until a timer goes off (STA-1, RSC-3)."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.job_graph import JobPlan, OperatorPlan, VertexPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.kind_catalogue import alike
from barrier_tck.harness.workloads.operator_kind import OperatorKind

OperatorT = TypeVar("OperatorT", VertexPlan, OperatorPlan)

_MORE_PER_MILLE = 300
"""How many of the other operators in 1,000 that keep records by key hold them back, too."""


def _possible(_: Profile, capabilities: frozenset[Capability]) -> bool:
    return Capability.OPERATOR_TIMERS in capabilities


def _last(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Let some operators that keep records by key hold them back for a while, if the job has any outside of loops."""
    draw, job = drawing.draw, plan.job
    looped = [name for loop in job.loops for name in loop]
    able = [name for vertex in job.vertices if vertex.name not in looped for name in _keeping(vertex)]
    if not able:
        return plan
    first = draw(st.sampled_from(able))
    names = [first, *(name for name in able if name != first and chance(draw, _MORE_PER_MILLE))]
    kinds = {operator.name: operator.kind for vertex in job.vertices for operator in vertex.operators}
    sizes = drawing.profile.job.window_ms
    windows = {
        name: (draw(st.sampled_from(_holding_back(kinds[name]))), draw(st.sampled_from(sizes)))
        for name in names
    }
    return msgspec.structs.replace(plan, job=_with_kinds(job, windows))


def _keeping(vertex: VertexPlan) -> list[str]:
    """Return the operators of a vertex in whose place others could hold records back."""
    return [operator.name for operator in vertex.operators if _holding_back(operator.kind)]


def _holding_back(name: str) -> list[OperatorKind]:
    """Return the kinds that emit what one emits, but later."""
    return [kind for kind in alike(name) if kind.holds_back is not None]


def _with_kinds(job: JobPlan, windows: dict[str, tuple[OperatorKind, int]]) -> JobPlan:
    def changed(operator: OperatorT) -> OperatorT:
        if operator.name not in windows:
            return operator
        kind, longest_ms = windows[operator.name]
        assert kind.holds_back is not None, "it holds records back"
        parameters = {**operator.parameters, kind.holds_back.parameter: longest_ms}
        return msgspec.structs.replace(operator, kind=kind.name, parameters=parameters)

    vertices = (
        msgspec.structs.replace(changed(vertex), then=tuple(map(changed, vertex.then)))
        for vertex in job.vertices
    )
    return msgspec.structs.replace(job, vertices=tuple(vertices))


SCENARIO = Scenario(settles=frozenset({Part.OPERATORS}), possible=_possible, last=_last)
