"""What kinds of operators mean, as functions of bags of records: a graph's state and output at any cut, without a run.

The kinds below have one thing in common: what such an operator emits and keeps is a function of the *bag* of records
that reached it on each input, whatever their interleaving. So the right content of every vertex of any graph follows
from the records before a cut through the sources. One pass over the vertices computes it, or, if the graph has loops,
as many passes as the records go round, each with what the one before sent back.

For lineage, a record is a tuple ``(id, key, path)``, where ``path`` names the vertices that it passed. It does not name
their subtasks, which the runtime chooses on some edges. For a workload with tables, a record is any other tuple of
values. Bags are counters: they say how often a record occurs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
    loops_among,
)
from barrier_tck.harness.workloads.payments import payment

Record = tuple[Any, ...]
Bag = Counter[Record]
"""Records, each with the number of times it occurs."""

ID, KEY, PATH = 0, 1, 2
"""Positions in a lineage record."""


WINDOW = "window"
"""The kind of operator that holds records back until a timer of their key goes off; it has kept them from the start."""

WAITING, TIMERS = "window", "~timers"
"""The names of two states of such an operator: the records that it holds back, and when the timers of a key are due."""

AGAIN = "again"
"""The kind of operator that sends a record round a loop several times."""

ACCOUNT = "account"
"""The kind of operator that holds the balances of accounts, and sends payments on."""

Stateless = Callable[[OperatorPlan, Record], Sequence[Record]]
"""Maps an operator without state and one record to what it emits for this record; its inputs form a union."""


@dataclass(frozen=True, slots=True)
class Stateful:
    """What a stateful operator keeps, and what it has emitted when it keeps this.

    Both are functions of bags, so it does not matter in what order the records came. What is kept adds up: of two bags
    together it keeps what it keeps of each.
    """

    keeps: Callable[[OperatorPlan, Sequence[Bag]], Bag]
    """Turns the bag of each input into the content of the state: pairs of an input's number and a record."""
    emitted: Callable[[OperatorPlan, Bag], Bag]
    """Turns the content of the state into everything that was emitted until then."""
    emits_one_by_one: bool
    """Whether what is emitted adds up, too: it does not if records are emitted together, as pairs are."""


def visit(record: Record, name: str) -> Record:
    """Return a lineage record after it passed one more vertex or operator."""
    path = record[PATH]
    return (record[ID], record[KEY], f"{path}>{name}" if path else name)


def _passed(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    return (visit(record, operator.name),)


def _dropped(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    """Drop the records whose id leaves the unwanted remainder."""
    modulo, gone = operator.parameters["modulo"], operator.parameters["gone"]
    return () if record[ID] % modulo == gone else (visit(record, operator.name),)


def _again(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    """Send a record round a loop as often as its id says: up to ``turns`` times. The path shows its turns so far."""
    done = record[PATH].split(">").count(operator.name)
    return (visit(record, operator.name),) if done < record[ID] % (operator.parameters["turns"] + 1) else ()


def _forked(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    """Emit every record twice, told apart by their paths."""
    return tuple(visit(record, f"{operator.name}/{branch}") for branch in "ab")


def _rekeyed(operator: OperatorPlan, record: Record) -> Sequence[Record]:
    """Give every record a new key that depends on its id."""
    visited = visit(record, operator.name)
    return ((visited[ID], f"{record[KEY]}.{record[ID] % operator.parameters['by']}", visited[PATH]),)


def _kept(_: OperatorPlan, inputs: Sequence[Bag]) -> Bag:
    """Keep every record, by input."""
    return Counter(
        {(number, record): times for number, bag in enumerate(inputs) for record, times in bag.items()}
    )


def _kept_and_passed(operator: OperatorPlan, kept: Bag) -> Bag:
    """Emit the records whose ids are divisible by the parameter ``every``; by default all."""
    every = operator.parameters.get("every", 1)
    emits: Bag = Counter()
    for (_, record), times in kept.items():
        if record[ID] % every == 0:
            emits[visit(record, operator.name)] += times
    return emits


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


UNDER = "(key)"
"""In the state of a join, the column that holds the key under which a row is kept."""


def _waiting(operator: OperatorPlan, inputs: Sequence[Bag]) -> Bag:
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


STATELESS: dict[str, Stateless] = {
    "pass": _passed,
    "drop": _dropped,
    "fork": _forked,
    "rekey": _rekeyed,
    AGAIN: _again,
    "merge": _passed,
    "filter": _filtered,
}
"""Kind of operator without state -> what it means."""

STATEFUL: dict[str, Stateful] = {
    "keep": Stateful(_kept, _kept_and_passed, emits_one_by_one=True),
    "list": Stateful(_kept, _kept_and_passed, emits_one_by_one=True),
    "union": Stateful(_kept, _kept_and_passed, emits_one_by_one=True),
    WINDOW: Stateful(_kept, _kept_and_passed, emits_one_by_one=True),
    "join": Stateful(_waiting, _paired, emits_one_by_one=False),
}
"""Kind of operator with state -> what it means."""


LISTING = ("list", "union")
"""The kinds of operators that keep lists without keys: dealt out, or for all subtasks."""


def _paid_on(_: OperatorPlan, record: Record) -> Sequence[Record]:
    paid = payment(dict(record))
    return () if paid is None else (table_record(paid),)


JUDGED_APART: dict[str, Stateless] = {ACCOUNT: _paid_on}
"""Kind of operator whose state is no bag of records -> what it emits for each record.

A checker of its own judges what it keeps.
"""

ENDING_LOOPS = (AGAIN, ACCOUNT)
"""The kinds of operators that let no record go round a loop for ever; every loop must have one."""

_EMITTING = {**STATELESS, **JUDGED_APART}

KINDS = (*STATELESS, *STATEFUL)
"""Every kind of operator that has a meaning as a function of bags."""


def windows_of(job: JobPlan) -> tuple[str, ...]:
    """Return the operators of a job that hold records back."""
    return tuple(one.name for vertex in job.vertices for one in vertex.operators if one.kind == WINDOW)


def require_meaning(job: JobPlan) -> None:
    """Raise ValueError for an operator whose kind has no meaning here."""
    for vertex in job.vertices:
        for operator in vertex.operators:
            if operator.kind not in (SOURCE, SINK, *KINDS, *JUDGED_APART):
                raise ValueError(
                    f"the operator {operator.name!r} is of kind {operator.kind!r}, which has no meaning"
                )


def endless_loop(job: JobPlan) -> str | None:
    """Return a vertex of a loop round which records would go for ever, because no operator in it lets them leave."""
    goes_on = [
        vertex.name
        for vertex in job.vertices
        if not any(operator.kind in ENDING_LOOPS for operator in vertex.operators)
    ]
    among = [edge for edge in job.edges if edge.source in goes_on and edge.target in goes_on]
    return next((loop[0] for loop in loops_among(goes_on, among)), None)


OnEdges = Mapping[tuple[str, str, int], Bag]
"""(source, target, which of the edges between them) -> the records in flight on its channels."""


def changed(operator: OperatorPlan, inputs: Sequence[Bag]) -> Bag:
    """Return what an operator emits for what reached it, if its state has no part in that."""
    change, emits = _EMITTING[operator.kind], Counter[Record]()
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
            name: Counter({one: -times for one, times in bag.items()}) for name, bag in waiting.items()
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
        self._kept: dict[str, Bag] = {one.name: Counter() for one in operators if one.kind in STATEFUL}
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
        """Pass what is new through every vertex, from the first to the last; tell whether there was anything."""
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
            elif operator.kind in STATEFUL:
                inputs = [self._kept_and_emitted(operator, inputs)]
            elif operator.kind != SOURCE:
                inputs = [changed(operator, inputs)]
        return union(inputs)

    def _kept_and_emitted(self, operator: OperatorPlan, inputs: list[Bag]) -> Bag:
        meaning, kept = STATEFUL[operator.kind], self._kept[operator.name]
        new = meaning.keeps(operator, inputs)
        kept.update(new)
        if meaning.emits_one_by_one:
            released = self._released.get(operator.name)
            if released is not None:
                _add(new, 1, released, gone := Counter[Record]())
                new = gone
            return meaning.emitted(operator, new)
        before, self._emitted[operator.name] = self._emitted[operator.name], meaning.emitted(operator, kept)
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
    """Vertex -> the records that are in flight to it, and that nobody sent."""

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


def union(bags: Sequence[Bag]) -> Bag:
    """Return the union of all bags; a single bag is returned unchanged."""
    if len(bags) == 1:
        return bags[0]
    whole: Bag = Counter()
    for bag in bags:
        whole.update(bag)
    return whole
