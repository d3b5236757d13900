"""One vertex is slower than the others, every second time a sink: queues before it are full (UNA-1)."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from barrier_tck.harness.draw.choices import chance
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.job_graph import SOURCE, Spread
from barrier_tck.harness.plan.trial_plan import TrialPlan


def _load(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    draw, ranges = drawing.draw, drawing.profile.deployment
    receivers = [vertex.name for vertex in plan.job.vertices if vertex.kind != SOURCE]
    sinks = [vertex.name for vertex in plan.job.sinks]
    behind = _behind_early_ends(plan) if chance(draw, ranges.slow_behind_ends_per_mille) else []
    deployment = msgspec.structs.replace(
        plan.deployment,
        slow_vertex=draw(st.sampled_from(behind or (sinks if draw(st.booleans()) else receivers))),
        slow_batch_ms=draw(st.sampled_from(ranges.slow_batch_ms)),
    )
    return msgspec.structs.replace(plan, deployment=deployment)


def _behind_early_ends(plan: TrialPlan) -> list[str]:
    """Return the vertices of which some subtasks read nothing but what ends early: they get no barrier then."""
    if not plan.workload.early_ends:
        return []
    sources = [vertex.name for vertex in plan.job.sources]
    edges = [edge for edge in plan.job.edges if edge.source in sources and edge.by is Spread.FORWARD]
    return [edge.target for edge in edges]


SCENARIO = Scenario(settles=frozenset({Part.SLOW_VERTEX}), load=_load)
