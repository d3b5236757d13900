"""What a graph of operators means at any cut, as a function of bags of records: its state and output, without a run.

The kinds of operators (``kinds/``) have one thing in common: what such an operator emits and keeps is a function of the
*bag* of records that reached it on each input, whatever their interleaving. So the right content of every vertex of any
graph follows from the records before a cut through the sources. One pass over the vertices computes it, or, if the
graph has loops, as many passes as the records go round, each with what the one before sent back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
    loops_among,
)
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.operator_kind import BagState
from barrier_tck.harness.workloads.records import Bag, Record, union


def windows_of(job: JobPlan) -> tuple[str, ...]:
    """Return the operators of a job that hold records back."""
    operators = [operator for vertex in job.vertices for operator in vertex.operators]
    return tuple(entry.name for entry in operators if kind_named(entry.kind).holds_back is not None)


def require_meaning(job: JobPlan) -> None:
    """Raise ValueError for an operator whose kind has no meaning here."""
    for vertex in job.vertices:
        for operator in vertex.operators:
            kind = kind_named(operator.kind)
            if operator.kind not in (SOURCE, SINK) and not (kind.has_meaning or kind.judged_apart):
                raise ValueError(
                    f"the operator {operator.name!r} is of kind {operator.kind!r}, which has no meaning"
                )


def endless_loop(job: JobPlan) -> str | None:
    """Return a vertex of a loop round which records would go for ever, because no operator in it lets them leave."""
    goes_on = [
        vertex.name
        for vertex in job.vertices
        if not any(kind_named(operator.kind).ends_loops for operator in vertex.operators)
    ]
    among = [edge for edge in job.edges if edge.source in goes_on and edge.target in goes_on]
    return next((loop[0] for loop in loops_among(goes_on, among)), None)


OnEdges = Mapping[tuple[str, str, int], Bag]
"""(source, target, which of the edges between them) -> the records in flight on its channels."""


def changed(operator: OperatorPlan, inputs: Sequence[Bag]) -> Bag:
    """Return what an operator emits for what reached it, if its state has no part in that."""
    change, emits = kind_named(operator.kind).emits, Counter[Record]()
    assert change is not None, f"what {operator.name} emits does not depend on what it keeps"
    for bag in inputs:
        for record, times in bag.items():
            for emitted in change(operator, record):
                emits[emitted] += times
    return emits


class DataflowModel:
    """The right content of a graph at any cut."""

    def __init__(self, job: JobPlan) -> None:
        """Take a job whose operators all have a meaning here.

        Raises ValueError for one that has none, and for a loop without end.
        """
        require_meaning(job)
        endless = endless_loop(job)
        if endless is not None:
            raise ValueError(f"records would go round the loop of {endless!r} for ever")
        self._job = job

    def at(
        self,
        read: Mapping[str, Bag],
        in_flight: OnEdges | None = None,
        waiting: Mapping[str, Bag] | None = None,
    ) -> Content:
        """Return the content of the graph after each source vertex emitted the given bag and all of it arrived.

        All, but the records in flight: these were sent and did not arrive (UNA-1). What is ``waiting`` in an operator,
        with the number of its input, arrived there and was not passed on.
        """
        flow = _Flow(self._job, in_flight or {}, waiting or {})
        for vertex in self._job.sources:
            flow.arrive(vertex.name, 0, read[vertex.name])
        while flow.pass_on():
            pass
        return flow.content()


class _Flow:
    """What has passed a graph so far. Each round passes on only what is new, so every record costs its own turns."""

    def __init__(self, job: JobPlan, in_flight: OnEdges, waiting: Mapping[str, Bag]) -> None:
        self._job = job
        self._released = {
            name: Counter({entry: -times for entry, times in bag.items()}) for name, bag in waiting.items()
        }
        """Operator -> what it kept, without what waits in it; below 0 if that was not kept."""
        self._outputs: dict[str, list[tuple[str, int, int]]] = {vertex.name: [] for vertex in job.vertices}
        """Vertex -> the vertex, the input and the number of copies for each of its edges."""
        self._arrived: dict[str, list[Bag]] = {}
        """Vertex -> of each input, what was sent to it without what is in flight; below 0 if that was not sent."""
        self._new: dict[str, list[Bag]] = {}
        """Vertex -> of each input, what has arrived and is not dealt with."""
        for vertex in job.vertices:
            self._connect(vertex, in_flight)
        operators = [operator for vertex in job.vertices for operator in vertex.operators]
        self._kept: dict[str, Bag] = {
            item.name: Counter() for item in operators if kind_named(item.kind).state is not None
        }
        self._emitted: dict[str, Bag] = {name: Counter() for name in self._kept}
        self._sunk: dict[str, Bag] = {vertex.name: Counter() for vertex in job.sinks}

    def _connect(self, vertex: VertexPlan, in_flight: OnEdges) -> None:
        edges, numbers = self._job.inputs_of(vertex.name), Counter[str]()
        # What comes back to a source joins what it reads.
        inputs = [0 if vertex.kind == SOURCE else edge.input for edge in edges]
        arrived = [Counter[Record]() for _ in range(max(inputs, default=0) + 1)]
        for edge, number in zip(edges, inputs, strict=True):
            copies = vertex.parallelism if edge.by is Spread.BROADCAST else 1
            self._outputs[edge.source].append((vertex.name, number, copies))
            arrived[number].subtract(in_flight.get((edge.source, vertex.name, numbers[edge.source]), {}))
            numbers[edge.source] += 1
        self._arrived[vertex.name] = arrived
        self._new[vertex.name] = [Counter() for _ in arrived]

    def arrive(self, vertex: str, number: int, bag: Bag, copies: int = 1) -> None:
        """Take what was sent to an input of a vertex; what is in flight there does not arrive."""
        _add(bag, copies, self._arrived[vertex][number], self._new[vertex][number])

    def pass_on(self) -> bool:
        """Pass what is new through every vertex, from the first to the last; return whether there was anything."""
        moved = False
        for vertex in self._job.vertices:
            inputs = self._new[vertex.name]
            if any(inputs):
                moved = True
                self._new[vertex.name] = [Counter() for _ in inputs]
                emitted = self._through(vertex, inputs)
                for target, number, copies in self._outputs[vertex.name]:
                    self.arrive(target, number, emitted, copies)
        return moved

    def _through(self, vertex: VertexPlan, inputs: list[Bag]) -> Bag:
        """Return what a vertex emits because of what is new on its inputs."""
        for operator in vertex.operators:
            if operator.kind == SINK:
                self._sunk[vertex.name].update(union(inputs))
            elif (state := kind_named(operator.kind).state) is not None:
                inputs = [self._kept_and_emitted(operator, state, inputs)]
            elif operator.kind != SOURCE:
                inputs = [changed(operator, inputs)]
        return union(inputs)

    def _kept_and_emitted(self, operator: OperatorPlan, state: BagState, inputs: list[Bag]) -> Bag:
        kept = self._kept[operator.name]
        new = state.keeps(operator, inputs)
        kept.update(new)
        if state.emits_one_by_one:
            released = self._released.get(operator.name)
            if released is not None:
                _add(new, 1, released, gone := Counter[Record]())
                new = gone
            return state.emitted(operator, new)
        before, self._emitted[operator.name] = self._emitted[operator.name], state.emitted(operator, kept)
        return self._emitted[operator.name] - before

    def content(self) -> Content:
        """Return what the graph holds now."""
        unsent = {
            name: sum((-bag for bag in bags), Counter[Record]()) for name, bags in self._arrived.items()
        }
        return Content(self._kept, self._sunk, {name: bag for name, bag in unsent.items() if bag})


@dataclass(frozen=True, slots=True)
class Content:
    """What a graph holds at a cut."""

    kept: dict[str, Bag]
    """Stateful operator -> what its state holds, over all subtasks."""
    reached_sinks: dict[str, Bag]
    """Sink vertex -> the records that reached it."""
    unsent: dict[str, Bag] = field(default_factory=dict)
    """Vertex -> the records that are in flight to it, and that were not sent."""

    @property
    def held(self) -> dict[str, Bag]:
        """Return stateful operator or sink vertex -> what it holds."""
        return {**self.kept, **self.reached_sinks}


def _add(bag: Bag, copies: int, balance: Bag, beyond: Bag) -> None:
    """Add copies of a bag to a balance, and to another bag what of it is more than is owed there."""
    for record, times in bag.items():
        before = balance.get(record, 0)
        balance[record] = now = before + times * copies
        if now > 0:
            beyond[record] = beyond.get(record, 0) + now - max(before, 0)
