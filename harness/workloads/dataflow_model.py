"""What a graph of operators means at any cut, as a function of bags of records: its state and output, without a run.

The kinds of operators (``kinds/``) have one thing in common: what such an operator emits and keeps is a function of the
*bag* of records that reached it on each input, whatever their interleaving. So the right content of every vertex of any
graph follows from the records before a cut through the sources. One pass over the vertices computes it, or, if the
graph has loops, as many passes as the records go round, each with what the one before sent back.

All of this adds up, so the content at one cut follows from that at another and from what lies between them: ``Flow`` is
told what changed, and passes only that on. So the cost of a trial's cuts is that of its records, not of records times
cuts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

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
        flow = self.flow()
        flow.change(read, in_flight or {}, waiting or {})
        return flow.content()

    def flow(self) -> Flow:
        """Return the content of the graph before anything was read, to be changed from cut to cut."""
        return Flow(self._job)


class Flow:
    """What has passed a graph up to a cut. A change passes on only what is new, or no longer there."""

    def __init__(self, job: JobPlan) -> None:
        self._job = job
        operators = [operator for vertex in job.vertices for operator in vertex.operators]
        self._released = {name: Counter[Record]() for name in windows_of(job)}
        """Operator -> what it kept, without what waits in it; below 0 if that was not kept."""
        self._waiting: dict[str, Bag] = {}
        """Operator -> how what waits in it changes."""
        self._outputs: dict[str, list[tuple[str, int, int]]] = {vertex.name: [] for vertex in job.vertices}
        """Vertex -> the vertex, the input and the number of copies for each of its edges."""
        self._inputs: dict[tuple[str, str, int], int] = {}
        """(source, target, which of the edges between them) -> the number of the input."""
        self._arrived: dict[str, list[Bag]] = {}
        """Vertex -> of each input, what was sent to it without what is in flight; below 0 if that was not sent."""
        self._new: dict[str, list[Bag]] = {}
        """Vertex -> of each input, what has arrived and is not dealt with; below 0 if it is no longer there."""
        for vertex in job.vertices:
            self._connect(vertex)
        self._unsent: dict[str, Bag] = {vertex.name: Counter() for vertex in job.vertices}
        self._kept: dict[str, Bag] = {
            item.name: Counter() for item in operators if kind_named(item.kind).state is not None
        }
        self._emitted: dict[str, Bag] = {name: Counter() for name in self._kept}
        self._sunk: dict[str, Bag] = {vertex.name: Counter() for vertex in job.sinks}
        self._changes: dict[str, Bag] = {}

    def _connect(self, vertex: VertexPlan) -> None:
        edges, numbers = self._job.inputs_of(vertex.name), Counter[str]()
        # What comes back to a source joins what it reads.
        inputs = [0 if vertex.kind == SOURCE else edge.input for edge in edges]
        for edge, number in zip(edges, inputs, strict=True):
            copies = vertex.parallelism if edge.by is Spread.BROADCAST else 1
            self._outputs[edge.source].append((vertex.name, number, copies))
            self._inputs[edge.source, vertex.name, numbers[edge.source]] = number
            numbers[edge.source] += 1
        self._arrived[vertex.name] = [Counter() for _ in range(max(inputs, default=0) + 1)]
        self._new[vertex.name] = [Counter() for _ in self._arrived[vertex.name]]

    def change(
        self, read: Mapping[str, Bag], in_flight: OnEdges, waiting: Mapping[str, Bag]
    ) -> Mapping[str, Bag]:
        """Pass on what changed: what sources read, what is in flight, and what waits in operators.

        All three are differences, negative for what is no longer there. Returns by how much what stateful operators
        and sinks hold has changed.
        """
        self._changes = {}
        self._waiting = {name: bag for name, bag in waiting.items() if bag and name in self._released}
        for edge, bag in in_flight.items():
            if edge in self._inputs:
                self._arrive(edge[1], self._inputs[edge], bag, -1)
        for name, bag in read.items():
            self._arrive(name, 0, bag)
        while self._pass_on():
            pass
        return self._changes

    def _arrive(self, vertex: str, number: int, bag: Bag, copies: int = 1) -> None:
        """Take what was sent to an input of a vertex; what is in flight there does not arrive."""
        beyond, below = self._new[vertex][number], self._unsent[vertex]
        _add(bag, copies, self._arrived[vertex][number], beyond, below)

    def _pass_on(self) -> bool:
        """Pass what is new through every vertex, from the first to the last; return whether there was anything."""
        moved = False
        for vertex in self._job.vertices:
            inputs = self._new[vertex.name]
            waits = self._waiting and any(operator.name in self._waiting for operator in vertex.operators)
            if waits or any(inputs):
                moved = True
                self._new[vertex.name] = [Counter() for _ in inputs]
                emitted = self._through(vertex, inputs)
                for target, number, copies in self._outputs[vertex.name]:
                    self._arrive(target, number, emitted, copies)
        return moved

    def _through(self, vertex: VertexPlan, inputs: list[Bag]) -> Bag:
        """Return what a vertex emits because of what is new on its inputs."""
        for operator in vertex.operators:
            if operator.kind == SINK:
                self._note(vertex.name, self._sunk[vertex.name], union(inputs))
            elif (state := kind_named(operator.kind).state) is not None:
                inputs = [self._kept_and_emitted(operator, state, inputs)]
            elif operator.kind != SOURCE:
                inputs = [changed(operator, inputs)]
        return union(inputs)

    def _note(self, name: str, held: Bag, new: Bag) -> None:
        held.update(new)
        self._changes.setdefault(name, Counter()).update(new)

    def _kept_and_emitted(self, operator: OperatorPlan, state: BagState, inputs: list[Bag]) -> Bag:
        new = _by_sign(partial(state.keeps, operator), inputs)
        self._note(operator.name, self._kept[operator.name], new)
        if state.emits_one_by_one:
            if operator.name in self._released:
                gone, balance = Counter[Record](), self._released[operator.name]
                _add(new, 1, balance, gone)
                _add(self._waiting.pop(operator.name, Counter()), -1, balance, gone)
                new = gone
            return _by_sign(lambda bags: state.emitted(operator, bags[0]), [new])
        before = self._emitted[operator.name]
        self._emitted[operator.name] = now = state.emitted(operator, +self._kept[operator.name])
        difference = Counter(now)
        difference.subtract(before)
        return difference

    @property
    def stateful(self) -> Collection[str]:
        """Return the operators whose state is known."""
        return self._kept.keys()

    @property
    def sinks(self) -> Collection[str]:
        """Return the sinks."""
        return self._sunk.keys()

    @property
    def unsent(self) -> dict[str, Bag]:
        """Return vertex -> the records that are in flight to it, and that were not sent."""
        return {name: bag for name, bag in self._unsent.items() if bag}

    @property
    def reached(self) -> dict[str, int]:
        """Return vertex -> how many records have reached it on all its inputs."""
        return {name: sum(bag.total() for bag in inputs) for name, inputs in self._arrived.items()}

    def content(self) -> Content:
        """Return what the graph holds now."""
        return Content(self._kept, self._sunk, self.unsent)


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


def _by_sign(function: Callable[[Sequence[Bag]], Bag], bags: Sequence[Bag]) -> Bag:
    """Apply a function of bags that adds up to what is new and to what is no longer there."""
    if all(times > 0 for bag in bags for times in bag.values()):
        return function(bags)
    found = Counter(function([+bag for bag in bags]))
    found.subtract(function([-bag for bag in bags]))
    return found


def _add(bag: Bag, copies: int, balance: Bag, beyond: Bag, below: Bag | None = None) -> None:
    """Add copies of a bag to a balance, and to other bags by how much what is above 0 there, and below, has grown."""
    for record, times in bag.items():
        before = balance.get(record, 0)
        balance[record] = now = before + times * copies
        _grow(beyond, record, max(now, 0) - max(before, 0))
        if below is not None and min(before, now) < 0:
            _grow(below, record, max(-now, 0) - max(-before, 0))


def _grow(bag: Bag, record: Record, times: int) -> None:
    """Add to what a bag has of a record, and leave out what it has none of."""
    if times:
        now = bag.get(record, 0) + times
        if now:
            bag[record] = now
        else:
            del bag[record]
