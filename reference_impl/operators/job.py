"""What a user writes: a pipeline, step by step, which becomes a ``JobGraph``.

>>> job = (
...     StreamJob("flights")
...     .source(flights, parallelism=2, name="flights")
...     .filter(lambda row: row["origin"] is not None)
...     .key_by("carrier", "origin")
...     .aggregate({"flights": Count()}, emit=Emission.CHANGES, parallelism=2, name="totals")
...     .sink(FileSink("totals"), parallelism=1)
...     .build()
... )  # doctest: +SKIP

Every step returns a new value, so a pipeline may be continued in two ways from a common beginning. Steps of
equal parallelism are chained into one vertex; a key, another parallelism or a name of its own begins a new
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from barrier_tck.reference_impl.errors import UsageError
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.api import Source
from barrier_tck.reference_impl.operators.encoding import AGGREGATES_MAX
from barrier_tck.reference_impl.operators.functions import Aggregate, Emission, merging_aggregates
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, OperatorSpec, Partitioning, Vertex
from barrier_tck.reference_impl.operators.keyed_process import KeyedFunction, KeyedProcess
from barrier_tck.reference_impl.operators.stateless import Combine, Filter, FlatMap, Map


@dataclass(frozen=True, slots=True)
class StreamJob:
    """The beginning of a pipeline."""

    name: str
    max_parallelism: int = 128
    """Number of key groups; it never changes for a job (RSC-1)."""

    def __post_init__(self) -> None:
        """Refuse an empty name and a maximum parallelism below 1."""
        if not self.name:
            raise UsageError("a job needs a name")
        if self.max_parallelism < 1:
            raise UsageError(f"the maximum parallelism must be 1 or more, not {self.max_parallelism}")

    def source(self, source: Source, parallelism: int = 1, name: str = "source") -> Stream:
        """Begin with a source."""
        return Stream(self, (Vertex(name, parallelism, source),), ())


@dataclass(frozen=True, slots=True)
class Stream:
    """A pipeline so far; its last vertex can still be extended."""

    job: StreamJob
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    has_sink: bool = False

    def map(
        self, function: Any, name: str | None = None, parallelism: int | None = None, uid: str | None = None
    ) -> Stream:
        """Replace every record: ``function`` takes and returns a row (or is ``Vectorized``)."""
        return _then(self, Map(uid or _free_uid(self, "map"), function), name, parallelism)

    def filter(
        self, function: Any, name: str | None = None, parallelism: int | None = None, uid: str | None = None
    ) -> Stream:
        """Keep the records for which ``function`` holds."""
        return _then(self, Filter(uid or _free_uid(self, "filter"), function), name, parallelism)

    def flat_map(
        self, function: Any, name: str | None = None, parallelism: int | None = None, uid: str | None = None
    ) -> Stream:
        """Replace every record by the rows that ``function`` returns."""
        return _then(self, FlatMap(uid or _free_uid(self, "flat_map"), function), name, parallelism)

    def then(self, operator: OperatorSpec) -> Stream:
        """Chain any operator to the last vertex. A keyed one sees the keys of the partitioning that it has."""
        return _chained(self, operator)

    def key_by(self, *columns: str) -> KeyedStream:
        """Partition by the values of columns; ``aggregate`` follows."""
        if not columns:
            raise UsageError("key_by needs at least one column")
        _require_distinct("key_by", columns)
        _require_open(self)
        return KeyedStream(self, columns)

    def aggregate(self, *arguments: Any, **options: Any) -> Stream:
        """Refuse: only a keyed stream can be aggregated."""
        raise UsageError("aggregate needs keys: write .key_by(column, ...).aggregate(...)")

    def sink(
        self, sink: OperatorSpec, parallelism: int | None = None, name: str | None = None, chain: bool = True
    ) -> Stream:
        """End in a sink: any spec of an operator.

        It joins the last vertex if it is equally wide and ``chain`` holds; otherwise it gets a vertex of
        its own, called ``name`` ("sink" if not given).
        """
        width = self.vertices[-1].parallelism if parallelism is None else parallelism
        if chain and width == self.vertices[-1].parallelism:
            extended = _chained(self, sink)
        else:
            extended = _separate(self, sink, name or "sink", width)
        return replace(extended, has_sink=True)

    def build(self) -> JobGraph:
        """Return the graph; raises UsageError if the pipeline has no sink or JobGraph refuses it."""
        if not self.has_sink:
            raise UsageError(f"job {self.job.name!r} has no sink; end it with .sink(...)")
        return JobGraph(self.job.name, self.vertices, self.edges, self.job.max_parallelism)


@dataclass(frozen=True, slots=True)
class KeyedStream:
    """A stream with keys; ``aggregate`` or ``process`` makes it a stream again."""

    stream: Stream
    key: tuple[str, ...]

    def aggregate(
        self,
        aggregates: Mapping[str, Aggregate],
        emit: Emission = Emission.CHANGES,
        carry: tuple[str, ...] = (),
        parallelism: int | None = None,
        name: str = "aggregate",
        combine: bool = False,
    ) -> Stream:
        """Keep running aggregates per key: output column -> aggregate.

        ``name`` is the vertex's and the operator's; state is found under it after a restart. ``carry``
        names input columns to repeat in each row (EACH_RECORD only). ``combine`` aggregates each batch
        before the shuffle, which pays when a batch holds many records per key; it cannot be had with
        EACH_RECORD.
        """
        if not 1 <= len(aggregates) <= AGGREGATES_MAX:
            raise UsageError(f"aggregate takes 1 to {AGGREGATES_MAX} aggregates, not {len(aggregates)}")
        _require_distinct("the output of aggregate", (*carry, *self.key, *aggregates))
        if carry and emit is not Emission.EACH_RECORD:
            raise UsageError(
                f"carry={carry!r} needs emit=Emission.EACH_RECORD: other rows stand for many records"
            )
        if combine and emit is Emission.EACH_RECORD:
            raise UsageError(
                "combine merges records before they are counted, so it excludes Emission.EACH_RECORD"
            )
        upstream, kept = self.stream, dict(aggregates)
        if combine:
            partial = Combine(f"{name}.combine", self.key, kept, upstream.job.max_parallelism)
            upstream, kept = _chained(upstream, partial), merging_aggregates(kept)
        width = upstream.vertices[-1].parallelism if parallelism is None else parallelism
        merge = AggregateSpec(name, self.key, kept, emit, carry)
        return _separate(upstream, merge, name, width, self.key)

    def process(
        self,
        function: Callable[[], KeyedFunction],
        parallelism: int | None = None,
        name: str = "process",
        chain: bool = False,
    ) -> Stream:
        """Give every record to a function with states of its own per key; ``function`` makes one per subtask.

        ``name`` is the vertex's and the operator's; state is found under it after a restart. With ``chain`` it
        joins the vertex before it, whose input must have the same keys: operators in between must leave the
        key's columns as they are.
        """
        operator = KeyedProcess(name, self.key, function)
        last = self.stream.vertices[-1]
        width = last.parallelism if parallelism is None else parallelism
        if not chain:
            return _separate(self.stream, operator, name, width, self.key)
        keyed = [edge for edge in self.stream.edges if edge.target == last.name and edge.key == self.key]
        if not keyed or width != last.parallelism:
            raise UsageError(
                f"{name!r} cannot be chained to {last.name!r}: that has {last.parallelism} subtasks and is not "
                f"partitioned by {self.key!r} into {width}; leave out chain=True"
            )
        return _chained(self.stream, operator)

    def __getattr__(self, step: str) -> Any:
        """Refuse other steps with a sentence."""
        if step.startswith("_"):
            raise AttributeError(step)
        raise UsageError(f"{step} cannot follow key_by; aggregate or process comes first")


def _require_distinct(where: str, columns: tuple[str, ...]) -> None:
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise UsageError(f"{where} has the column {twice[0]!r} twice")


def _require_open(stream: Stream) -> None:
    if stream.has_sink:
        raise UsageError("nothing can follow a sink; continue from the stream before it")


def _free_uid(stream: Stream, kind: str) -> str:
    """Return ``kind-n``, counting the steps of that kind: stable as long as the pipeline is."""
    uids = [operator.uid for vertex in stream.vertices for operator in vertex.operators]
    return f"{kind}-{1 + sum(uid.rpartition('-')[0] == kind for uid in uids)}"


def _then(stream: Stream, operator: OperatorSpec, name: str | None, parallelism: int | None) -> Stream:
    """Append an operator: to the last vertex, or as a vertex of its own if a name or a width asks for one."""
    last = stream.vertices[-1]
    width = last.parallelism if parallelism is None else parallelism
    if name is None and width == last.parallelism:
        return _chained(stream, operator)
    return _separate(stream, operator, name or operator.uid, width)


def _chained(stream: Stream, operator: OperatorSpec) -> Stream:
    _require_open(stream)
    last = stream.vertices[-1]
    longer = replace(last, operators=(*last.operators, operator))
    return replace(stream, vertices=(*stream.vertices[:-1], longer))


def _separate(
    stream: Stream, operator: OperatorSpec, name: str, parallelism: int, key: tuple[str, ...] = ()
) -> Stream:
    _require_open(stream)
    last = stream.vertices[-1]
    partitioning = Partitioning.REBALANCE
    if key:
        partitioning = Partitioning.HASH
    elif parallelism == last.parallelism:
        partitioning = Partitioning.FORWARD
    edge = Edge(last.name, name, partitioning, key)
    vertex = Vertex(name, parallelism, None, (operator,))
    return replace(stream, vertices=(*stream.vertices, vertex), edges=(*stream.edges, edge))
