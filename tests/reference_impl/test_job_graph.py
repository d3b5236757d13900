"""The job graph as a value: what it refuses, which channels its edges give, and where batches go."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from barrier_tck.reference_impl.ids import ChannelId, SubtaskId
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, Partitioning, Vertex
from barrier_tck.reference_impl.operators.keyed_process import KeyedCoProcess
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.operators.stateless import CoFlatMap, Map
from barrier_tck.reference_impl.protocol.messages import EndOfInput
from barrier_tck.reference_impl.runtime.routing import Router
from barrier_tck.reference_impl.runtime_errors import JobUsageError

HASH, FORWARD, REBALANCE, BROADCAST = (
    Partitioning.HASH,
    Partitioning.FORWARD,
    Partitioning.REBALANCE,
    Partitioning.BROADCAST,
)
SOURCE = CollectionSource((), 1)


def source(name: str, parallelism: int = 1) -> Vertex:
    return Vertex(name, parallelism, SOURCE)


def steps(name: str, parallelism: int = 1, inputs: int = 1) -> Vertex:
    head = Map(name, dict) if inputs == 1 else CoFlatMap(name, inputs, lambda row, number: [row])
    return Vertex(name, parallelism, None, (head,))


def graph(*parts: Vertex | Edge, groups: int = 16) -> JobGraph:
    vertices = tuple(part for part in parts if isinstance(part, Vertex))
    edges = tuple(part for part in parts if isinstance(part, Edge))
    return JobGraph("job", vertices, edges, groups)


def test_vertices_that_reach_each_other_are_one_loop() -> None:
    looped = graph(
        source("a"),
        *(steps("b", 2), steps("c"), steps("d"), steps("e"), steps("f")),
        *(Edge("a", "b", REBALANCE), Edge("b", "c", REBALANCE), Edge("c", "d", FORWARD)),
        Edge("c", "b", REBALANCE, feedback=True),
        Edge("d", "c", FORWARD, feedback=True),
        *(Edge("d", "e", FORWARD), Edge("e", "f", FORWARD)),
        Edge("e", "e", FORWARD, feedback=True),
    )
    first, second = looped.loops
    assert first.name == "b"
    assert first.vertices == ("b", "c", "d")
    assert [str(one) for one in first.members] == ["b[0]", "b[1]", "c[0]", "d[0]"]
    assert [str(one) for one in first.fed] == ["b[0]", "b[1]"]
    assert (second.vertices, [str(one) for one in second.fed]) == (("e",), ["e[0]"])
    assert looped.loop_of("a") is None
    assert looped.loop_of("e") is second
    assert [str(one) for one in looped.inputs_of(SubtaskId("e", 0))] == ["d[0]->e[0]", "e[0]->e[0]"]


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ([source("a"), source("a")], "vertex name 'a' is used twice"),
        (
            [source("a"), Vertex("b", 1, None, (Map("a.source", dict),)), Edge("a", "b", FORWARD)],
            "operator uid 'a.source' is used twice",
        ),
        (
            [source("a"), steps("b"), Edge("a", "b", FORWARD, feedback=True)],
            "a -> b closes no loop: nothing leads from b to a",
        ),
        ([source("a"), steps("b"), Edge("a", "c", FORWARD)], "a -> c names a vertex that does not exist"),
        ([steps("b"), source("a"), Edge("a", "b", FORWARD)], "a -> b goes backwards"),
        (
            [source("a"), steps("b"), Edge("a", "b", FORWARD), Edge("b", "b", FORWARD)],
            "b -> b goes backwards",
        ),
        (
            [
                *(source("a"), steps("b"), Edge("a", "b", FORWARD)),
                *(Edge("b", "a", FORWARD, feedback=True), Edge("b", "a", FORWARD, input=1, feedback=True)),
            ],
            "all that comes back to a source has input 0",
        ),
        (
            [
                source("a"),
                *(steps("b"), steps("c")),
                *(Edge("a", "b", FORWARD), Edge("b", "c", FORWARD, feedback=True), Edge("c", "b", FORWARD)),
            ],
            "closes no loop|goes backwards",
        ),
        ([source("a"), steps("b"), Edge("a", "b", HASH)], "hash edge a -> b needs key columns"),
        (
            [source("a"), steps("b"), Edge("a", "b", BROADCAST, ("k",))],
            "broadcast edge a -> b has key columns, which only a hash edge takes",
        ),
        ([source("a"), steps("b", 2), Edge("a", "b", FORWARD)], "needs equal parallelism, not 1 and 2"),
        ([source("a", 17), steps("b"), Edge("a", "b", REBALANCE)], "'a' has parallelism 17"),
        ([source("a"), steps("b", 0), Edge("a", "b", REBALANCE)], "'b' has parallelism 0"),
        ([steps("b")], "'b' must have either a source or an input edge"),
        ([source("a"), source("b"), Edge("a", "b", FORWARD)], "'b' must have either a source or an input"),
        ([source("a"), steps("b"), Edge("a", "b", FORWARD, input=1)], "'b' must be numbered from 0 .* not 1"),
        (
            [source("a"), steps("b", inputs=2), Edge("a", "b", FORWARD), Edge("a", "b", FORWARD, input=2)],
            "numbered from 0 without a gap, not 0, 2",
        ),
        (
            [source("a"), steps("b"), Edge("a", "b", FORWARD), Edge("a", "b", FORWARD, input=1)],
            "'b' has 2 inputs, and its first operator takes 1",
        ),
        (
            [source("a"), steps("b", inputs=2), Edge("a", "b", FORWARD)],
            "'b' has 1 inputs, and its first operator takes 2",
        ),
        (
            [
                source("a"),
                Vertex("b", 1, None, (Map("m", dict), CoFlatMap("c", 2, dict))),
                Edge("a", "b", FORWARD),
            ],
            "only the first operator of a chain has several inputs",
        ),
        ([source("a")], "the records of vertex 'a' go nowhere"),
        ([source("a"), steps("b"), source("c"), Edge("a", "b", FORWARD)], "of vertex 'c' go nowhere"),
    ],
)
def test_what_cannot_run_is_refused_by_name(parts: list[Any], match: str) -> None:
    with pytest.raises(JobUsageError, match=match):
        graph(*parts)


def test_keys_that_cannot_meet_are_refused() -> None:
    for keys, match in (((("a",),), "two inputs or more, not of 1"), ((("a",), ("b", "c")), "equally many")):
        with pytest.raises(JobUsageError, match=match):
            KeyedCoProcess("joined", keys, lambda: None)  # type: ignore[arg-type, return-value]


# --- channels -----------------------------------------------------------------------------------------------


def test_channels_of_parallel_edges_are_told_apart_and_numbered_across_all_edges() -> None:
    job = graph(
        source("a", 2),
        source("b"),
        steps("c", 2, inputs=2),
        Edge("a", "c", FORWARD),
        Edge("b", "c", BROADCAST, input=1),
        Edge("a", "c", HASH, ("k",), input=1),
    )
    first, second = SubtaskId("c", 0), SubtaskId("c", 1)
    assert [str(channel) for channel in job.inputs_of(first)] == [
        "a[0]->c[0]",
        "b[0]->c[0]",
        "a[0]->c[0]#1",
        "a[1]->c[0]#1",
    ]
    assert job.input_numbers_of(first) == (0, 1, 1, 1)
    assert str(job.inputs_of(second)[0]) == "a[1]->c[1]"
    assert [str(channel) for channel in job.outputs_of(SubtaskId("a", 1))] == [
        "a[1]->c[1]",
        "a[1]->c[0]#1",
        "a[1]->c[1]#1",
    ]
    assert len(set(job.channels)) == len(job.channels) == 2 + 2 + 4
    assert ChannelId(SubtaskId("a", 0), first) in job.channels, "the first edge needs no number"


def test_subtasks_past_ten_keep_the_order_of_their_numbers() -> None:
    job = graph(source("a", 12), steps("b", 12), Edge("a", "b", HASH, ("k",)))
    senders = [channel.sender.index for channel in job.inputs_of(SubtaskId("b", 11))]
    assert senders == list(range(12))
    assert [subtask.index for subtask in job.source_subtasks] == list(range(12))


# --- routing ------------------------------------------------------------------------------------------------


class Output:
    """Notes what is sent, and where."""

    def __init__(self) -> None:
        self.data: list[tuple[int, Any]] = []
        self.control: list[int] = []

    def send_data(self, channel: int, payload: Any) -> None:
        self.data.append((channel, payload))

    def send_control(self, channel: int, element: Any) -> None:
        self.control.append(channel)


def test_every_edge_spreads_a_batch_in_its_own_way_with_turns_of_its_own() -> None:
    job = graph(
        source("a", 2),
        steps("kept", 2),
        steps("by_key", 3),
        steps("all", 2),
        steps("turns", 3),
        steps("more_turns", 2),
        Edge("a", "kept", FORWARD),
        Edge("a", "by_key", HASH, ("k",)),
        Edge("a", "all", BROADCAST),
        Edge("a", "turns", REBALANCE),
        Edge("a", "more_turns", REBALANCE),
    )
    output = Output()
    subtask = SubtaskId("a", 1)
    router = Router(job, subtask, RowPlane(), output)
    receivers = [str(channel.receiver) for channel in job.outputs_of(subtask)]
    found: list[dict[str, list[Any]]] = []
    for number in range(3):
        output.data.clear()
        router.emit([{"k": key, "n": number} for key in range(30)])
        sent: dict[str, list[Any]] = {}
        for channel, rows in output.data:
            sent.setdefault(receivers[channel], []).extend(row["k"] for row in rows)
        found.append(sent)
    everything = list(range(30))
    for sent in found:
        assert sent["kept[1]"] == everything
        assert "kept[0]" not in sent
        assert sent["all[0]"] == sent["all[1]"] == everything
        keyed = [sent[f"by_key[{index}]"] for index in range(3)]
        assert sorted(chain.from_iterable(keyed)) == everything and all(keyed)
    in_turn = [
        [name for name in sent if name.startswith(vertex)] for vertex in ("turns", "more") for sent in found
    ]
    assert in_turn == [
        ["turns[1]"], ["turns[2]"], ["turns[0]"], ["more_turns[1]"], ["more_turns[0]"], ["more_turns[1]"]
    ]  # fmt: skip
    router.send_control(EndOfInput())
    assert output.control == list(range(len(receivers))), "barriers travel on every channel of every edge"
