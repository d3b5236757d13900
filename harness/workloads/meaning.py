"""What kinds of operators mean, as functions of bags of records: a graph's state and output at any cut, without a run.

The kinds below have one thing in common: what such an operator emits and keeps is a function of the *bag* of records
that reached it on each input, whatever their interleaving. So the right content of every vertex of any acyclic graph
follows from the records before a cut through the sources. One pass over the vertices computes it.

For lineage, a record is a tuple ``(id, key, path)``, where ``path`` names the vertices that it passed. It does not name
their subtasks, which the runtime chooses on some edges. For a workload with tables, a record is any other tuple of
values. Bags are counters: they say how often a record occurs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan, OperatorPlan, Spread

Record = tuple[Any, ...]
Bag = Counter[Record]
"""Records, each with the number of times it occurs."""

ID, KEY, PATH = 0, 1, 2
"""Positions in a lineage record."""


@dataclass(frozen=True, slots=True)
class Operating:
    """What an operator emits and keeps, given the records that reached it."""

    emits: Bag
    keeps: Bag | None = None
    """What a stateful operator's state holds: pairs of an input's number and a record. None: it has no state."""


Meaning = Callable[[OperatorPlan, Sequence[Bag]], Operating]
"""Maps an operator and the bag of each of its inputs to what it emits and keeps."""


def visit(record: Record, name: str) -> Record:
    """Return a lineage record after it passed one more vertex or operator."""
    path = record[PATH]
    return (record[ID], record[KEY], f"{path}>{name}" if path else name)


def _each(change: Callable[[OperatorPlan, Record], Sequence[Record]]) -> Meaning:
    """Return the meaning of a stateless operator that changes each record by itself; its inputs form a union."""

    def meaning(operator: OperatorPlan, inputs: Sequence[Bag]) -> Operating:
        emits: Bag = Counter()
        for bag in inputs:
            for record, times in bag.items():
                for changed in change(operator, record):
                    emits[changed] += times
        return Operating(emits)

    return meaning


def _passed(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    return (visit(record, operator.name),)


def _dropped(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    """Drop the records whose id leaves the unwanted remainder."""
    modulo, gone = operator.parameters["modulo"], operator.parameters["gone"]
    return () if record[ID] % modulo == gone else (visit(record, operator.name),)


def _forked(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    """Emit every record twice, told apart by their paths."""
    return tuple(visit(record, f"{operator.name}/{branch}") for branch in "ab")


def _rekeyed(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    """Give every record a new key that depends on its id."""
    visited = visit(record, operator.name)
    return ((visited[ID], f"{record[KEY]}.{record[ID] % operator.parameters['by']}", visited[PATH]),)


def _kept(operator: OperatorPlan, inputs: Sequence[Bag]) -> Operating:
    """Keep every record, by input. Emit those whose ids are divisible by the parameter ``every``; by default all."""
    every = operator.parameters.get("every", 1)
    emits: Bag = Counter()
    keeps: Bag = Counter()
    for number, bag in enumerate(inputs):
        for record, times in bag.items():
            keeps[(number, record)] += times
            if record[ID] % every == 0:
                emits[visit(record, operator.name)] += times
    return Operating(emits, keeps)


# --- kinds over tables: a record is the tuple of its (column, value) pairs, in the order of their names -------


def table_record(row: Mapping[str, Any]) -> Record:
    """Return a row of a table as a record."""
    return tuple(sorted(row.items()))


def _filtered(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    """Keep the rows whose value in a column is at least, or below, a bound; a null is neither."""
    value = dict(record)[operator.parameters["column"]]
    if value is None:
        return ()
    least, below = operator.parameters.get("at_least"), operator.parameters.get("below")
    return (record,) if (least is None or value >= least) and (below is None or value < below) else ()


def _joined(operator: OperatorPlan, inputs: Sequence[Bag]) -> Operating:
    """Emit each pair of a left and a right row with equal keys; keep the columns of the rows that pairs need."""
    keys, columns = operator.parameters["keys"], (operator.parameters["left"], operator.parameters["right"])
    keeps: Bag = Counter()
    sides: list[dict[Record, Bag]] = [{}, {}]
    for number, bag in enumerate(inputs):
        for record, times in bag.items():
            row = dict(record)
            key = tuple(row[column] for column in keys[number])
            if None in key:
                continue
            chosen = table_record({name: row[column] for name, column in columns[number].items()})
            keeps[(number, chosen)] += times
            sides[number].setdefault(key, Counter())[chosen] += times
    emits: Bag = Counter()
    for key, lefts in sides[0].items():
        for right, many in sides[1].get(key, Counter()).items():
            for left, times in lefts.items():
                emits[tuple(sorted((*left, *right)))] += times * many
    return Operating(emits, keeps)


MEANINGS: dict[str, Meaning] = {
    "pass": _each(_passed),
    "drop": _each(_dropped),
    "fork": _each(_forked),
    "rekey": _each(_rekeyed),
    "merge": _each(_passed),
    "keep": _kept,
    "filter": _each(_filtered),
    "join": _joined,
}
"""Kind of operator -> what it means."""


class DataflowModel:
    """The right content of a graph at any cut."""

    def __init__(self, job: JobPlan) -> None:
        """Take a job whose operators all have a meaning here; raises ValueError for one that has none."""
        for vertex in job.vertices:
            for operator in vertex.operators:
                if operator.kind not in (SOURCE, SINK, *MEANINGS):
                    raise ValueError(
                        f"the operator {operator.name!r} is of kind {operator.kind!r}, which has no meaning"
                    )
        self._job = job

    def at(self, read: Mapping[str, Bag]) -> Content:
        """Return the content of the graph after each source vertex emitted the given bag and all of it arrived."""
        emitted: dict[str, Bag] = {}
        content = Content({}, {})
        for vertex in self._job.vertices:
            edges = self._job.inputs_of(vertex.name)
            inputs: list[Bag] = [Counter() for _ in {edge.input for edge in edges}]
            for edge in edges:
                copies = vertex.parallelism if edge.by is Spread.BROADCAST else 1
                for record, times in emitted[edge.source].items():
                    inputs[edge.input][record] += times * copies
            current = [read[vertex.name]] if vertex.kind == SOURCE else inputs
            for operator in vertex.operators:
                if operator.kind == SINK:
                    content.reached_sinks[vertex.name] = _union(current)
                elif operator.kind != SOURCE:
                    done = MEANINGS[operator.kind](operator, current)
                    if done.keeps is not None:
                        content.kept[operator.name] = done.keeps
                    current = [done.emits]
            emitted[vertex.name] = _union(current)
        return content


@dataclass(frozen=True, slots=True)
class Content:
    """What a graph holds at a cut."""

    kept: dict[str, Bag]
    """Stateful operator -> what its state holds, over all subtasks."""
    reached_sinks: dict[str, Bag]
    """Sink vertex -> the records that reached it."""

    @property
    def at_sinks(self) -> Bag:
        """Return the records that reached any sink."""
        return _union(list(self.reached_sinks.values()))


def _union(bags: Sequence[Bag]) -> Bag:
    if len(bags) == 1:
        return bags[0]
    whole: Bag = Counter()
    for bag in bags:
        whole.update(bag)
    return whole
