"""What one attempt can have added to every operator and sink of a graph if nothing is aligned (ALO-1, ALO-2).

An attempt starts with the restored state of checkpoint m, and reads every source from S_m on. It sends each record
along each edge once. So for each record it is known how much more a checkpoint n of this attempt may hold than m:

* a record that was sent before barrier n arrives before it on its channel, so n holds *at least* these records;
* a record that was sent after barrier n may have come early, on a channel that delivered the barrier before the others
  did: *at most*, these are all records that the attempt ever sends. Only a subtask that reads several channels waits
  for others (ALO-3).

What a stateful operator had emitted before its barrier follows from what it holds in m and in n, including early
records. So the bounds for the operators behind it are exact again. At the end of a job nothing is uncertain any more:
then it is known exactly which records the last attempt added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from barrier_tck.harness.oracle.evidence.record_places import SeenCut
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan, OperatorPlan, Spread, VertexPlan
from barrier_tck.harness.workloads.dataflow_model import changed
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.records import Bag, union

SentT = TypeVar("SentT")
"""What a vertex sent: a bag, or a stretch of them."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What a stateful operator holds."""

    all: Bag
    passed_on: Bag
    """That of it which does not wait for a timer."""

    @classmethod
    def at(cls, cut: SeenCut, operator: str) -> Kept:
        """Return what an operator holds at a cut."""
        return cls(cut.holds(operator), cut.passed_on(operator))


_NOTHING = Kept(Counter(), Counter())


@dataclass(frozen=True, slots=True)
class Stretch:
    """The records that are read, sent or received in one attempt until a barrier."""

    least: Bag
    """Those that certainly come before the barrier."""
    most: Bag
    """Those that come before the barrier or may come early; the same object as ``least`` if nothing is uncertain."""


class AttemptFlow:
    """What one attempt adds to every stateful operator and sink: at all, and by each of its barriers.

    What it adds at all is computed once.
    """

    def __init__(self, job: JobPlan, rest: Mapping[str, Bag], before: Mapping[str, Kept]) -> None:
        """Take the job, what is left to read of each source vertex, and what each operator held at the beginning."""
        self._job = job
        self.before = before
        self.ever: dict[str, Bag] = {}
        """Stateful operator or sink -> all records that the attempt adds to it."""
        self._restored: dict[str, Bag] = {}
        """Stateful operator -> what it had emitted before the attempt."""
        self._received: dict[str, Sequence[Bag]] = {}
        """Vertex -> what it ever receives at each of its inputs."""
        self._behind: dict[str, Sequence[Bag]] = {}
        """Operator -> what it ever emits."""
        sent: dict[str, Bag] = {}
        for vertex in job.vertices:
            inputs: Sequence[Bag] = (
                [rest[vertex.name]]
                if vertex.kind == SOURCE
                else _arriving(job, vertex, sent, lambda bag: bag)
            )
            self._received[vertex.name] = inputs
            for operator in vertex.operators:
                inputs = self._behind[operator.name] = self._ever_behind(operator, inputs)
            sent[vertex.name] = union(inputs)

    def _ever_behind(self, operator: OperatorPlan, inputs: Sequence[Bag]) -> Sequence[Bag]:
        if operator.kind == SINK:
            self.ever[operator.name] = union(inputs)
        elif (state := kind_named(operator.kind).state) is not None:
            before = self.before.get(operator.name, _NOTHING)
            added = self.ever[operator.name] = state.keeps(operator, inputs)
            restored = self._restored[operator.name] = state.emitted(operator, before.passed_on)
            return [state.emitted(operator, before.all + added) - restored]
        elif operator.kind != SOURCE:
            return [changed(operator, inputs)]
        return inputs

    def by_barrier(self, read: Mapping[str, Bag], now: Mapping[str, Kept]) -> Iterator[tuple[str, Stretch]]:
        """Yield (stateful operator or sink, what the attempt added to it by a barrier), upstream first.

        ``read`` maps source vertices to what they had read, ``now`` stateful operators to what they hold then.
        """
        sent: dict[str, Stretch] = {}
        for vertex in self._job.vertices:
            ever = self._received[vertex.name]
            if vertex.kind == SOURCE:
                inputs = [Stretch(read[vertex.name], read[vertex.name])]
            else:
                inputs = self._receives(vertex, sent)
            for operator in vertex.operators:
                behind = self._behind[operator.name]
                if operator.kind == SINK:
                    yield operator.name, _each(inputs, union, ever, self.ever[operator.name])
                elif (state := kind_named(operator.kind).state) is not None:
                    keeps = partial(state.keeps, operator)
                    yield operator.name, _each(inputs, keeps, ever, self.ever[operator.name])
                    emitted = state.emitted(operator, now.get(operator.name, _NOTHING).passed_on)
                    emitted = emitted - self._restored[operator.name]
                    inputs = [Stretch(emitted, emitted)]
                elif operator.kind != SOURCE:
                    inputs = [_each(inputs, partial(changed, operator), ever, behind[0])]
                ever = behind
            sent[vertex.name] = _each(inputs, union, ever, union(ever))

    def _receives(self, vertex: VertexPlan, sent: Mapping[str, Stretch]) -> list[Stretch]:
        """Return what reaches each input of a vertex."""
        least = _arriving(self._job, vertex, sent, lambda stretch: stretch.least)
        senders = [sent[edge.source] for edge in self._job.inputs_of(vertex.name)]
        if self._job.channels_into(vertex.name) > 1:
            most = self._received[vertex.name]
        elif all(stretch.most is stretch.least for stretch in senders):
            most = least
        else:
            most = _arriving(self._job, vertex, sent, lambda stretch: stretch.most)
        return [Stretch(*bags) for bags in zip(least, most, strict=True)]


def _arriving(
    job: JobPlan, vertex: VertexPlan, sent: Mapping[str, SentT], part: Callable[[SentT], Bag]
) -> list[Bag]:
    """Return the bag of each input of a vertex; a broadcast edge brings every record to every subtask."""
    edges = job.inputs_of(vertex.name)
    inputs: list[Bag] = [Counter() for _ in {edge.input for edge in edges}]
    for edge in edges:
        copies = vertex.parallelism if edge.by is Spread.BROADCAST else 1
        for record, times in part(sent[edge.source]).items():
            inputs[edge.input][record] += times * copies
    return inputs


def _each(
    inputs: Sequence[Stretch], function: Callable[[Sequence[Bag]], Bag], ever: Sequence[Bag], all_of_it: Bag
) -> Stretch:
    """Return what a function makes of inputs; of all that they ever bring it makes ``all_of_it``."""
    least = function([entry.least for entry in inputs])
    if all(entry.most is entry.least for entry in inputs):
        return Stretch(least, least)
    if all(entry.most is bag for entry, bag in zip(inputs, ever, strict=True)):
        return Stretch(least, all_of_it)
    return Stretch(least, function([entry.most for entry in inputs]))
