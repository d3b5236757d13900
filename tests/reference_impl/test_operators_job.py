"""The fluent API: into which vertices and edges a pipeline turns, and how mistakes are reported."""

from __future__ import annotations

from typing import Any

import pytest

from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.functions import Count, Emission, Sum
from barrier_tck.reference_impl.operators.graph import JobGraph, Partitioning
from barrier_tck.reference_impl.operators.job import Stream, StreamJob
from barrier_tck.reference_impl.operators.join import Join
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.operators.stateless import Map
from barrier_tck.reference_impl.runtime_errors import JobUsageError


def begin(parallelism: int = 2) -> Stream:
    return StreamJob("flights", max_parallelism=16).source(
        CollectionSource((), 1), parallelism, name="flights"
    )


EMPTY = CollectionSource((), 1)
SINK: Any = Map("out", lambda row: row)


JOB = StreamJob("flights", max_parallelism=16)
ENDED = begin().sink(SINK)
KEYED: Any = begin().key_by("k")
FUNCTION: Any = list
FORKED = begin().map(dict)


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


def edges_of(graph: JobGraph) -> list[str]:
    return [
        f"{edge} {edge.partitioning.value}"
        + (f" by {','.join(edge.key)}" if edge.key else "")
        + (f" input {edge.input}" if edge.input else "")
        for edge in graph.edges
    ]


def chains(graph: JobGraph) -> list[str]:
    return [
        f"{vertex.name} {vertex.parallelism}: {' '.join(operator.uid for operator in vertex.operators)}"
        for vertex in graph.vertices
    ]


def test_a_union_is_one_input_with_several_edges() -> None:
    job = StreamJob("u", max_parallelism=16)
    first, second = job.source(EMPTY, 2, "first"), job.source(EMPTY, 3, "second").map(dict)
    united = first.union(second, job.source(EMPTY, 2, "third")).map(dict, parallelism=2, name="both")
    graph = united.key_by("k").aggregate({"n": Count()}, name="totals").sink(SINK, parallelism=1).build()
    assert chains(graph) == [
        "first 2: ",
        "second 3: map-1",
        "third 2: ",
        "both 2: map-2",
        "totals 2: totals",
        "sink 1: out",
    ]
    assert edges_of(graph) == [
        "first -> both forward",
        "second -> both rebalance",
        "third -> both forward",
        "both -> totals hash by k",
        "totals -> sink rebalance",
    ]


def test_a_union_may_be_keyed_and_combined_each_for_itself() -> None:
    job = StreamJob("u", max_parallelism=16)
    united = job.source(EMPTY, 2, "a").union(job.source(EMPTY, 1, "b"))
    graph = united.key_by("k").aggregate({"n": Count()}, combine=True, name="t").sink(SINK).build()
    assert chains(graph) == ["a 2: t.combine-1", "b 1: t.combine-2", "t 2: t out"]
    assert edges_of(graph) == ["a -> t hash by k", "b -> t hash by k"]


def test_a_diamond_goes_on_in_two_ways_and_comes_together_again() -> None:
    common = begin().map(dict)
    left = common.key_by("k").aggregate({"n": Count()}, emit=Emission.EACH_RECORD, name="counted")
    right = common.filter(bool)
    met = left.key_by("k").connect(right.key_by("id")).process(FUNCTION, parallelism=3, name="met")
    graph = met.sink(SINK).build()
    assert chains(graph) == [
        "flights 2: map-1",
        "counted 2: counted",
        "filter-1 2: filter-1",
        "met 3: met out",
    ]
    assert edges_of(graph) == [
        "flights -> counted hash by k",
        "flights -> filter-1 forward",
        "counted -> met hash by k",
        "filter-1 -> met hash by id input 1",
    ]


def test_a_stream_may_meet_itself_by_several_edges() -> None:
    common = begin()
    again = common.union(common).connect(common.broadcast(), common.rebalance()).process(FUNCTION, name="all")
    graph = again.sink(SINK).build()
    assert edges_of(graph) == [
        "flights -> all forward",
        "flights -> all forward",
        "flights -> all broadcast input 1",
        "flights -> all rebalance input 2",
    ]
    assert len(graph.inputs_of(graph.subtasks[-1])) == 1 + 1 + 2 + 2


def test_a_join_has_the_keys_of_both_sides() -> None:
    job = StreamJob("j", max_parallelism=16)
    flights, weather = job.source(EMPTY, 2, "flights"), job.source(EMPTY, 1, "weather")
    joined = flights.key_by("origin", "hour").join(
        weather.key_by("station", "at"), ["id"], {"degrees": "temp"}, parallelism=3
    )
    graph = joined.sink(SINK).build()
    assert edges_of(graph) == [
        "flights -> join hash by origin,hour",
        "weather -> join hash by station,at input 1",
    ]
    operator = graph.vertices[2].operators[0]
    assert isinstance(operator, Join)
    assert (operator.left, operator.right) == ({"id": "id"}, {"degrees": "temp"})


def test_pipelines_stand_side_by_side_and_a_stream_has_several_sinks() -> None:
    job = StreamJob("s", max_parallelism=16)
    other = job.source(EMPTY, 1, "other").map(dict).sink(Map("other_out", dict))
    main = job.source(EMPTY, 2, "main").map(dict)
    first, second = main.sink(Map("one", dict), name="one"), main.sink(Map("two", dict), 1, name="two")
    graph = job.build(other, first, second)
    assert chains(graph) == ["other 1: map-1 other_out", "main 2: map-2", "one 2: one", "two 1: two"]
    assert edges_of(graph) == ["main -> one forward", "main -> two rebalance"]
    assert chains(main.sink(SINK).build()) == ["main 2: map-1 out"], (
        "a stream that is not built is no part of the job"
    )


def test_where_records_go_can_be_said() -> None:
    graph = begin().broadcast().map(dict).forward().map(dict).rebalance().sink(SINK).build()
    assert edges_of(graph) == [
        "flights -> map-1 broadcast",
        "map-1 -> map-2 forward",
        "map-2 -> sink rebalance",
    ]


def test_a_uid_that_is_given_is_not_given_again() -> None:
    assert shape(begin().map(dict, uid="map-1").map(dict).map(dict, uid="map-3").map(dict).sink(SINK)) == [
        ("flights", 2, ["map-1", "map-2", "map-3", "map-4", "out"])
    ]


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
        (lambda: JOB.build(), "no sink; give build every stream"),
        (lambda: JOB.build(ENDED, begin()), "no sink"),
        (lambda: StreamJob("other").build(ENDED), "different jobs, .*'other'.*'flights'"),
        (lambda: begin().union(StreamJob("other").source(EMPTY)), "different jobs"),
        (lambda: KEYED.join(StreamJob("other").source(EMPTY).key_by("k"), ["a"], []), "different jobs"),
        (lambda: begin().union(KEYED), "union takes streams without keys here, not a KeyedStream"),
        (lambda: begin().connect(KEYED), "connect takes streams without keys here"),
        (lambda: KEYED.connect(begin()), "keyed streams here, not a Stream: write .key_by"),
        (lambda: KEYED.join(begin(), ["a"], ["b"]), "join takes keyed streams"),
        (lambda: KEYED.union(begin()), "union cannot follow key_by"),
        (lambda: begin().connect(begin()).map(dict), "map cannot follow connect; process comes first"),
        (
            lambda: KEYED.connect(KEYED).sink(SINK),
            "sink cannot follow connect; process, interval_join or window",
        ),
        (lambda: begin().connect().process(FUNCTION), "connect needs another stream"),
        (lambda: KEYED.connect().process(FUNCTION), "two inputs or more, not of 1"),
        (lambda: KEYED.connect(begin().key_by("a", "b")).process(FUNCTION), "equally many key columns"),
        (lambda: KEYED.join(KEYED, ["a"], ["a"]), "'a' from both sides"),
        (lambda: KEYED.join(KEYED, [], []), "no output columns"),
        (lambda: begin().union(ENDED), "follow a sink"),
        (lambda: ENDED.union(begin()), "follow a sink"),
        (lambda: ENDED.connect(begin()).process(FUNCTION), "follow a sink"),
        (lambda: ENDED.broadcast(), "follow a sink"),
        (lambda: begin().broadcast().rebalance(), r"broadcast\(\) comes before"),
        (lambda: begin().forward().key_by("k"), r"forward\(\) comes before"),
        (lambda: begin().forward().map(dict, parallelism=3).sink(SINK).build(), "equal parallelism"),
        (lambda: JOB.build(begin().sink(SINK), begin().sink(Map("b", dict))), "'flights' is used twice"),
        (
            lambda: JOB.build(FORKED.then(Map("a", dict)).sink(SINK), FORKED.sink(Map("b", dict))),
            "'a' cannot be chained to 'map', which goes on in 2 ways",
        ),
        (
            lambda: begin().union(begin()).then(Map("a", dict)).sink(SINK).build(),
            "'a' cannot be chained to 'flights', for a shuffle, a union",
        ),
        (
            lambda: (
                KEYED.connect(begin().key_by("j")).process(FUNCTION).key_by("k").process(FUNCTION, chain=True)
            ),
            "not partitioned by",
        ),
        (lambda: StreamJob("x", max_parallelism=0), "not 0"),
    ],
)
def test_mistakes_are_told(mistake: Any, match: str) -> None:
    with pytest.raises(JobUsageError, match=match):
        mistake()
