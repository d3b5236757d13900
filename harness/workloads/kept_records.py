"""The meaning of operators that keep every record that reaches them, and pass it on with a longer path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.operator_kind import BagState
from barrier_tck.harness.workloads.records import ID, Bag, visit


def _kept(_: OperatorPlan, inputs: Sequence[Bag]) -> Bag:
    return Counter(
        {(number, record): times for number, bag in enumerate(inputs) for record, times in bag.items()}
    )


def _passed_on(operator: OperatorPlan, kept: Bag) -> Bag:
    every = operator.parameters.get("every", 1)
    emits: Bag = Counter()
    for (_, record), times in kept.items():
        if record[ID] % every == 0:
            emits[visit(record, operator.name)] += times
    return emits


KEPT_RECORDS = BagState(_kept, _passed_on)
"""It keeps every record, by input, and emits those whose ids are divisible by the parameter ``every``; by default all.
"""
