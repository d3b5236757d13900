"""The fluent API: which vertices and edges a pipeline becomes, and how mistakes are told."""

from __future__ import annotations

from typing import Any

import pytest

from barrier_tck.reference_impl.errors import UsageError
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.functions import Count, Emission, Sum
from barrier_tck.reference_impl.operators.graph import Partitioning
from barrier_tck.reference_impl.operators.job import Stream, StreamJob
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.operators.stateless import Map


def begin(parallelism: int = 2) -> Stream:
    return StreamJob("flights", max_parallelism=16).source(
        CollectionSource((), 1), parallelism, name="flights"
    )


SINK: Any = Map("out", lambda row: row)


def shape(stream: Stream) -> list[tuple[str, int, list[str]]]:
    vertices = stream.build().vertices
    return [(v.name, v.parallelism, [operator.uid for operator in v.operators]) for v in vertices]


def test_a_pipeline_is_chained_up_to_its_key() -> None:
    graph = (
        begin()
        .map(dict)
        .filter(bool)
        .map(dict)
        .flat_map(list, uid="mine")
        .key_by("carrier", "origin")
        .aggregate({"n": Count()}, emit=Emission.EACH_RECORD, carry=("id",), parallelism=3, name="totals")
        .sink(SINK, parallelism=1)
    )
    assert shape(graph) == [
        ("flights", 2, ["map-1", "filter-1", "map-2", "mine"]),
        ("totals", 3, ["totals"]),
        ("sink", 1, ["out"]),
    ]
    edges = graph.build().edges
    assert [(e.source, e.target, e.partitioning, e.key) for e in edges] == [
        ("flights", "totals", Partitioning.HASH, ("carrier", "origin")),
        ("totals", "sink", Partitioning.REBALANCE, ()),
    ]
    assert graph.build().max_parallelism == 16


def test_a_sink_of_equal_width_is_chained_unless_told_otherwise() -> None:
    assert shape(begin().sink(SINK)) == [("flights", 2, ["out"])]
    assert shape(begin().sink(SINK, parallelism=2)) == [("flights", 2, ["out"])]
    apart = begin().sink(SINK, chain=False, name="files")
    assert shape(apart) == [("flights", 2, []), ("files", 2, ["out"])]
    assert apart.build().edges[0].partitioning is Partitioning.FORWARD


def test_a_name_or_another_width_begins_a_vertex() -> None:
    job = begin().map(dict, name="named").map(dict, parallelism=3).map(dict).sink(SINK)
    assert shape(job) == [
        ("flights", 2, []),
        ("named", 2, ["map-1"]),
        ("map-2", 3, ["map-2", "map-3", "out"]),
    ]
    assert [edge.partitioning for edge in job.build().edges] == [Partitioning.FORWARD, Partitioning.REBALANCE]


def test_combine_aggregates_before_the_shuffle_and_merges_after_it() -> None:
    graph = (
        begin()
        .key_by("k")
        .aggregate({"n": Count(), "s": Sum("v")}, combine=True, name="t")
        .sink(SINK)
        .build()
    )
    assert [operator.uid for operator in graph.vertices[0].operators] == ["t.combine"]
    merge = graph.vertices[1].operators[0]
    assert isinstance(merge, AggregateSpec)
    assert merge.aggregates == {"n": Sum("n"), "s": Sum("s")}


def test_streams_are_values() -> None:
    common = begin().map(dict)
    assert shape(common.sink(SINK)) == shape(common.sink(SINK))
    assert shape(common.filter(bool).sink(SINK)) != shape(common.sink(SINK))


def _keyed(**options: Any) -> Stream:
    return begin().key_by("k").aggregate({"n": Count()}, **options)


@pytest.mark.parametrize(
    ("mistake", "match"),
    [
        (lambda: begin().aggregate({"n": Count()}), "needs keys"),
        (lambda: begin().key_by(), "at least one column"),
        (lambda: begin().key_by("k", "k"), "'k' twice"),
        (lambda: begin().key_by("k").map(dict), "map cannot follow key_by"),
        (lambda: begin().key_by("n").aggregate({"n": Count()}), "'n' twice"),
        (lambda: begin().key_by("k").aggregate({}), "1 to 16"),
        (lambda: _keyed(carry=("id",)), "EACH_RECORD"),
        (lambda: _keyed(combine=True, emit=Emission.EACH_RECORD), "combine"),
        (lambda: begin().map(dict).build(), "no sink"),
        (lambda: begin().sink(SINK).map(dict), "follow a sink"),
        (lambda: begin().sink(SINK).key_by("k"), "follow a sink"),
        (lambda: begin().sink(SINK).sink(SINK), "follow a sink"),
        (lambda: begin().map(dict, uid="out").sink(SINK).build(), "'out' is used twice"),
        (lambda: begin(17).sink(SINK).build(), "parallelism 17"),
        (lambda: StreamJob(""), "name"),
        (lambda: StreamJob("x", max_parallelism=0), "not 0"),
    ],
)
def test_mistakes_are_told(mistake: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        mistake()
