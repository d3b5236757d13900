"""``join``: keeps the rows of two tables by the columns ``keys``, and emits each pair with equal keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from barrier_tck.harness.plan.job_graph import OperatorPlan
from barrier_tck.harness.workloads.operator_kind import BagState, Keeps, OperatorKind
from barrier_tck.harness.workloads.records import UNDER, Bag, table_record


def _kept(operator: OperatorPlan, inputs: Sequence[Bag]) -> Bag:
    """Keep, for each row, the columns that pairs need, under its key; a key with a null matches nothing."""
    keys, columns = operator.parameters["keys"], (operator.parameters["left"], operator.parameters["right"])
    keeps: Bag = Counter()
    for number, bag in enumerate(inputs):
        for record, times in bag.items():
            row = dict(record)
            key = tuple(row[column] for column in keys[number])
            if None not in key:
                chosen = {name: row[column] for name, column in columns[number].items()}
                keeps[(number, table_record({**chosen, UNDER: key}))] += times
    return keeps


def _paired(_: OperatorPlan, kept: Bag) -> Bag:
    """Emit each pair of a left and a right row with equal keys."""
    sides: list[dict[Any, Bag]] = [{}, {}]
    for (number, record), times in kept.items():
        row = dict(record)
        key = row.pop(UNDER)
        sides[number].setdefault(key, Counter())[table_record(row)] += times
    emits: Bag = Counter()
    for key, lefts in sides[0].items():
        for right, many in sides[1].get(key, Counter()).items():
            for left, times in lefts.items():
                emits[tuple(sorted((*left, *right)))] += times * many
    return emits


KIND = OperatorKind(name="join", state=BagState(_kept, _paired, emits_one_by_one=False), keeps=Keeps.BY_KEY)
