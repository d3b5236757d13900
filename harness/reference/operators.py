"""Operators of the reference runtime for the kinds that a plan's vertices name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from barrier_tck.harness.plan.job_graph import SINK, JobPlan, OperatorPlan, VertexPlan
from barrier_tck.harness.reference.lineage_operators import keeping, listing, marking, merging, windowing
from barrier_tck.harness.reference.loop_operators import Account, Node, both_ends
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.workloads.meaning import WINDOW
from barrier_tck.harness.workloads.workload import Workload
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.functions import Count, Emission, Row, Sum
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.join import Join
from barrier_tck.reference_impl.operators.keyed_process import KeyedProcess
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.stateless import Filter, FlatMap, Map
from barrier_tck.reference_impl.state.keyed import KeyedStates, NamedState, ValueCell

OUTPUT = "output"
"""Directory of the committed output, below the trial's file system root."""


@dataclass(frozen=True, slots=True)
class _Site:
    """Where an operator stands: its plan, how the inputs of its vertex are keyed, and for which workload."""

    operator: OperatorPlan
    keys: tuple[tuple[str, ...], ...]
    """The key columns of each input of the vertex."""
    workload: Workload

    @property
    def key(self) -> tuple[str, ...]:
        """Return the key columns of the first input."""
        return self.keys[0]


def operator_spec(
    job: JobPlan, vertex: VertexPlan, operator: OperatorPlan, workload: Workload
) -> OperatorSpec:
    """Return the runtime's operator for one in a vertex's chain; raises UsageProblem for a kind that does not
    exist."""
    make = MAKERS.get(operator.kind)
    if make is None:
        raise UsageProblem(
            f"the operator {operator.name!r} is of kind {operator.kind!r}, which the reference runtime does not "
            f"have{nearest(operator.kind, MAKERS)}"
        )
    keys = {edge.input: edge.key for edge in job.inputs_of(vertex.name)}
    # An operator chained behind another one has a single input: what the one before it emits.
    heads = operator.name == vertex.name
    inputs = tuple(keys[number] for number in sorted(keys)) if heads else (keys.get(0, ()),)
    return make(_Site(operator, inputs, workload))


def _totals(site: _Site) -> OperatorSpec:
    spec = site.workload.spec
    assert spec is not None, "only a workload with a sequential model can have running totals"
    aggregates = {one.name: Count() if one.column is None else Sum(one.column) for one in spec.aggregates}
    return AggregateSpec(site.operator.name, site.key, aggregates, Emission.EACH_RECORD, (spec.id_column,))


@dataclass(frozen=True, slots=True)
class TableFilter:
    """A row predicate: a column's value is not null, at least a lower bound, and below an upper bound."""

    column: str
    at_least: float | None = None
    below: float | None = None

    def __call__(self, row: Row) -> bool:
        """Tell whether a row is kept."""
        value = row[self.column]
        if value is None or (self.at_least is not None and value < self.at_least):
            return False
        return self.below is None or bool(value < self.below)


def _join(site: _Site) -> OperatorSpec:
    parameters = site.operator.parameters
    left, right = (tuple(key) for key in parameters["keys"])
    return Join(site.operator.name, left, right, parameters["left"], parameters["right"])


MAKERS: dict[str, Callable[[_Site], OperatorSpec]] = {
    SINK: lambda site: FileSink(OUTPUT, uid=site.operator.name),
    "totals": _totals,
    "witness": lambda site: KeyedProcess(
        site.operator.name, site.key, partial(Witness, site.operator.parameters["count"])
    ),
    "twice": lambda site: FlatMap(site.operator.name, _twice),
    "unmarked": lambda site: Filter(site.operator.name, _is_unmarked),
    "filter": lambda site: Filter(site.operator.name, TableFilter(**site.operator.parameters)),
    "join": _join,
    "again": lambda site: marking(site.operator),
    "pass": lambda site: marking(site.operator),
    "drop": lambda site: marking(site.operator),
    "rekey": lambda site: marking(site.operator),
    "fork": lambda site: marking(site.operator),
    "merge": lambda site: merging(site.operator, len(site.keys)),
    "keep": lambda site: keeping(site.operator, site.keys),
    WINDOW: lambda site: windowing(site.operator, site.keys),
    "list": lambda site: listing(site.operator, len(site.keys)),
    "union": lambda site: listing(site.operator, len(site.keys)),
    "both_ends": lambda site: FlatMap(site.operator.name, both_ends),
    "node": lambda site: KeyedProcess(site.operator.name, site.key, Node),
    "relay": lambda site: Map(site.operator.name, dict),
    "account": lambda site: KeyedProcess(site.operator.name, site.key, Account),
    "output_row": lambda site: Map(site.operator.name, _as_output_row),
}
"""Kind of operator -> the function that makes it."""


class Witness:
    """A second stateful operator in the chain: it also counts the records of each key, and raises on a wrong count."""

    def __init__(self, column: str) -> None:
        """Take the column that holds the count of the operator before it."""
        self._column = column
        self._count: NamedState[ValueCell[int]] | None = None

    def open(self, states: KeyedStates) -> None:
        """Get the state by its name."""
        self._count = states.value("seen", int)

    def process(self, group: int, key: bytes, row: Row) -> tuple[Row]:
        """Pass the record on; raises ValueError if the two operators do not agree."""
        assert self._count is not None, "open comes first"
        cell = self._count.of(group, key)
        seen = (cell.get() or 0) + 1
        if row[self._column] != seen:
            raise ValueError(f"{row} is record {seen} of its key according to the state of the next operator")
        cell.set(seen)
        return (row,)


def _twice(row: Row) -> tuple[Row, Row]:
    return {**row, "marked": False}, {**row, "marked": True}


def _is_unmarked(row: Row) -> bool:
    return not row["marked"]


def _as_output_row(row: Row) -> Row:
    return {"id": row["id"], "count": 1, "sum": row["value"] or 0}
