"""``changes``: the runtime's aggregates, emitted when they have changed, or at the end.

Where the sink is chained to the operator, each total is kept twice: as a sum, and by an aggregate that folds. Either is
shown as the total of some keys, so that a judge who knows nothing of the second one judges both.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from functools import partial
from typing import Any

from barrier_tck.harness.plan.job_graph import SINK, JobPlan
from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, Site
from barrier_tck.harness.workloads.changed_totals import KEY, is_combined
from barrier_tck.harness.workloads.kinds.changes import AT_THE_END, CHANGES
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.aggregate import AGGREGATE_STATE, AggregateSpec, KeyedAggregate
from barrier_tck.reference_impl.operators.api import DataPlane, Payload
from barrier_tck.reference_impl.operators.distinct_sketch import EXACT_UP_TO, DistinctValues
from barrier_tck.reference_impl.operators.encoding import decode_accumulator
from barrier_tck.reference_impl.operators.folds import (
    Average,
    DecimalSum,
    DistinctSketch,
    Max,
    Min,
    OwnAggregate,
)
from barrier_tck.reference_impl.operators.functions import (
    Aggregate,
    Count,
    CountIf,
    Emission,
    FloatSum,
    Row,
    Sum,
    merging_aggregates,
)
from barrier_tck.reference_impl.operators.graph import OperatorSpec

_SUMS: dict[str, Aggregate] = {
    "count": Count(),
    "sum": Sum("value"),
    "marked": CountIf("mark"),
    "parts": FloatSum("part"),
}


class _Marks:
    """A user's aggregate: how many values are true, in a list that is changed in place."""

    def create(self) -> list[int]:
        return [0]

    def add(self, accumulator: list[int], value: bool) -> list[int]:
        accumulator[0] += value
        return accumulator

    def merge(self, first: list[int], second: list[int]) -> list[int]:
        first[0] += second[0]
        return first

    def result(self, accumulator: list[int]) -> int:
        return accumulator[0]


_FOLDED: dict[str, Aggregate] = {
    "ids": DistinctSketch("id"),
    "exact": DecimalSum("value"),
    "own": OwnAggregate("mark", _Marks()),
    "mean": Average("part"),
    "first": Min("id"),
    "last": Max("id"),
}
"""The same totals otherwise: ids are unique, and a mean is kept as a sum and a number. First and last ids are apart."""


def totals_of(job: JobPlan) -> dict[str, Aggregate]:
    """Return what a job keeps for each key: every aggregate that the runtime has, or sums only."""
    chained = any(
        operator.kind == SINK for vertex in job.vertices if vertex.kind == CHANGES for operator in vertex.then
    )
    return {**_SUMS, **_FOLDED} if chained else dict(_SUMS)


def _make(site: Site) -> OperatorSpec:
    totals = totals_of(site.job)
    if is_combined(site.job):
        totals = merging_aggregates(totals)
    emission = Emission.FINAL if site.operator.parameters.get(AT_THE_END) else Emission.CHANGES
    spec = AggregateSpec if totals.keys() == _SUMS.keys() else _TwiceKeptSpec
    return spec(site.operator.name, site.key, totals, emission)


class _TwiceKeptSpec(AggregateSpec):
    """Spec of totals that are kept twice and shown once."""

    def build(self, plane: DataPlane) -> KeyedAggregate:
        return _TwiceKept(self, plane)


class _TwiceKept(KeyedAggregate):
    """The runtime's aggregate, with rows that have the columns of the workload."""

    def __init__(self, spec: AggregateSpec, plane: DataPlane) -> None:
        super().__init__(spec, plane)
        self._shown = partial(plane.map, function=_row_of)

    def before_barrier(self, checkpoint: CheckpointId) -> Iterable[Payload]:
        return map(self._shown, super().before_barrier(checkpoint))

    def end_of_input(self) -> Iterable[Payload]:
        return map(self._shown, super().end_of_input())


def _row_of(row: Row) -> Row:
    """Return the row that is emitted. The totals of about every other key come from the aggregates that fold."""
    shown = {column: row[column] for column in (*KEY, *_SUMS)}
    if row["first"] % 2 == 0:
        return shown
    count = row["ids"] if row["ids"] <= EXACT_UP_TO else row["count"]
    # The parts are quarters, so the mean of fewer than 2**50 of them gives their sum when it is rounded to quarters.
    parts = round(row["mean"] * row["count"] * 4) / 4
    return {**shown, "count": count, "sum": int(row["exact"]), "marked": row["own"], "parts": parts}


def _totals_in(entry: bytes) -> list[Any]:
    """Return the totals of a key, of the same keys as in ``_row_of`` those of the aggregates that fold.

    What else is kept comes behind the totals, where nobody judges it: it is what explains the size of a snapshot.
    """
    values = decode_accumulator(entry)
    sums, folded = values[: len(_SUMS)], values[len(_SUMS) :]
    if not folded:
        return list(sums)
    ids, exact, own, (parts, number), first, last = folded
    rest = [b64encode(ids).decode("ascii"), str(exact), *own, parts, number, first, last]
    if first % 2 == 0:
        return [*sums, *rest]
    distinct = DistinctValues(ids).estimate()
    count = distinct if last % 2 == 0 and distinct <= EXACT_UP_TO else number
    return [count, int(exact), own[0], parts, *rest]


KIND = ReferenceKind(_make, (KeptState(AGGREGATE_STATE, _totals_in),))
