"""Some source subtasks, but not all, end long before the others: checkpoints complete without them (BAR-6)."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.draw.choices import numbers
from barrier_tck.harness.draw.constraints import Drawing
from barrier_tck.harness.draw.scenario import Part, Scenario
from barrier_tck.harness.plan.trial_plan import TrialPlan


def with_early_ends(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
    """Return the plan with sources that have hardly any input, if it has several."""
    sources = sum(vertex.parallelism for vertex in plan.job.sources)
    if sources < 2:
        return plan
    workload = msgspec.structs.replace(plan.workload, early_ends=drawing.draw(numbers(1, sources - 1)))
    return msgspec.structs.replace(plan, workload=workload)


def ended_early(plan: TrialPlan) -> list[str]:
    """Return the source subtasks that have hardly any input."""
    return [name for vertex in plan.job.sources for name in vertex.subtasks][: plan.workload.early_ends]


SCENARIO = Scenario(settles=frozenset({Part.INPUT}), load=with_early_ends)
