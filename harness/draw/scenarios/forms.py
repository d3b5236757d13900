"""Operators of the job keep records in maps and sums, and not in lists by key (STA-1)."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.draw.choices import chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.kinds.forms import KIND as FORMS

_EACH_PER_MILLE = 700
"""How many operators in 1,000 do that, where any does."""


def _possible(_: Profile, capabilities: frozenset[Capability]) -> bool:
    return Capability.STATE_FORMS in capabilities


def _last(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    vertices = tuple(
        msgspec.structs.replace(vertex, kind=FORMS.name)
        if vertex.kind in FORMS.stands_for and chance(drawing.draw, _EACH_PER_MILLE)
        else vertex
        for vertex in plan.job.vertices
    )
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(plan.job, vertices=vertices))


SCENARIO = Scenario(settles=frozenset({Part.OPERATORS}), per_mille=60, possible=_possible, last=_last)
