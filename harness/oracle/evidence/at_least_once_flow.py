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

from barrier_tck.harness.oracle.evidence.record_places import SeenCut
from barrier_tck.harness.plan.job_graph import SINK, SOURCE, JobPlan, Spread, VertexPlan
from barrier_tck.harness.workloads.dataflow_model import changed
from barrier_tck.harness.workloads.kind_catalogue import kind_named
from barrier_tck.harness.workloads.records import Bag, Record, union


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
    """The records that are read, sent or received in one attempt."""

    least: Bag
    """Those that certainly come before the barrier."""
    most: Bag
    """Those that come before the barrier or may come early."""
    ever: Bag
    """All those of the whole attempt."""

    @classmethod
    def certain(cls, bag: Bag, ever: Bag) -> Stretch:
        """Return a stretch for which it is known exactly what comes before the barrier."""
        return cls(bag, bag, ever)


def added_by_attempt(
    job: JobPlan, read: Mapping[str, Stretch], before: Mapping[str, Kept], now: Mapping[str, Kept] | None
) -> Iterator[tuple[str, Stretch]]:
    """Yield (stateful operator or sink, what the attempt added to it by its barrier), upstream first.

    ``read`` maps source vertices to what they read. ``before`` is what the stateful operators held at the beginning,
    ``now`` what they hold in the checkpoint; None if the job is over, so that they hold everything that ever reached
    them.
    """
    sent: dict[str, Stretch] = {}
    for vertex in job.vertices:
        if vertex.kind == SOURCE:
            inputs: Sequence[Stretch] = [read[vertex.name]]
        else:
            inputs = _received(job, vertex.name, sent)
        for operator in vertex.operators:
            if operator.kind == SINK:
                yield operator.name, _union(inputs)
            elif (state := kind_named(operator.kind).state) is not None:
                added = _each(inputs, partial(state.keeps, operator))
                yield operator.name, added
                held = None if now is None else now.get(operator.name, _NOTHING)
                emitted = partial(state.emitted, operator)
                inputs = [_emitted(emitted, before.get(operator.name, _NOTHING), held, added)]
            elif operator.kind != SOURCE:
                inputs = [_each(inputs, partial(changed, operator))]
        sent[vertex.name] = _union(inputs)


def _received(job: JobPlan, name: str, sent: Mapping[str, Stretch]) -> list[Stretch]:
    """Return what reaches each input of a vertex."""
    vertex = job.vertex(name)
    least, most, ever = (
        _arriving(job, vertex, {sender: part(stretch) for sender, stretch in sent.items()})
        for part in (_least, _most, _ever)
    )
    waits = job.channels_into(name) > 1
    return [Stretch(*bags) for bags in zip(least, ever if waits else most, ever, strict=True)]


def _arriving(job: JobPlan, vertex: VertexPlan, sent: Mapping[str, Bag]) -> list[Bag]:
    """Return the bag of each input of a vertex; a broadcast edge brings every record to every subtask."""
    edges = job.inputs_of(vertex.name)
    inputs: list[Bag] = [Counter() for _ in {edge.input for edge in edges}]
    for edge in edges:
        copies = vertex.parallelism if edge.by is Spread.BROADCAST else 1
        for record, times in sent.get(edge.source, Counter[Record]()).items():
            inputs[edge.input][record] += times * copies
    return inputs


def _emitted(emitted: Callable[[Bag], Bag], before: Kept, now: Kept | None, added: Stretch) -> Stretch:
    """Return what a stateful operator emitted in the attempt, derived from what it holds."""
    restored = emitted(before.passed_on)
    ever = emitted(before.all + added.ever) - restored
    by_barrier = ever if now is None else emitted(now.passed_on) - restored
    return Stretch.certain(by_barrier, by_barrier | ever)


def _each(inputs: Sequence[Stretch], function: Callable[[Sequence[Bag]], Bag]) -> Stretch:
    least = function([entry.least for entry in inputs])
    # Where nothing is uncertain, both are one bag.
    certain = all(entry.most is entry.least for entry in inputs)
    most = least if certain else function([entry.most for entry in inputs])
    return Stretch(least, most, function([entry.ever for entry in inputs]))


def _union(inputs: Sequence[Stretch]) -> Stretch:
    return inputs[0] if len(inputs) == 1 else _each(inputs, union)


def _least(stretch: Stretch) -> Bag:
    return stretch.least


def _most(stretch: Stretch) -> Bag:
    return stretch.most


def _ever(stretch: Stretch) -> Bag:
    return stretch.ever
