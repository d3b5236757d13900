"""How parallel an elastic job is with fewer slots than it wants: a pure decision, and when it is taken (RSC-2)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from barrier_tck.reference_impl.config import CheckpointConfig, CheckpointMode, ElasticConfig, JobConfig
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.functions import Emission, Sum
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, Partitioning, Vertex
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    OperatorSnapshot,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.protocol.narrowing import narrowed
from barrier_tck.reference_impl.runtime.elasticity import Elasticity
from barrier_tck.reference_impl.runtime_errors import JobUsageError

NAMES = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("wanted", "joined", "fixed", "slots", "expected"),
    [
        ((2, 4, 1), (), (), 6, (2, 3, 1)),
        ((2, 4, 1), (), (), 5, (2, 2, 1)),
        ((2, 4, 1), (), (), 3, (1, 1, 1)),
        ((2, 4, 1), (), (), 2, None),
        ((3, 3, 3), (), (), 8, (3, 3, 2)),
        ((2, 4, 1), (), ("b",), 6, (1, 4, 1)),
        ((2, 4, 1), (), ("b",), 5, None),
        ((4, 4, 1), (("a", "b"),), (), 8, (3, 3, 1)),
        ((4, 4, 3), (("a", "b"),), (), 9, (3, 3, 3)),
        ((4, 4, 4), (("a", "b"),), ("b",), 9, (4, 4, 1)),
        ((3, 3, 3, 1), (("a", "b"),), (), 8, (2, 2, 3, 1)),  # the pair frees a slot more than was missing
        ((2, 4, 1), (), (), 9, (2, 4, 1)),
    ],
    ids=str,
)
def test_the_widest_vertices_give_up_first_and_nobody_what_is_not_theirs_to_give(
    wanted: tuple[int, ...],
    joined: tuple[tuple[str, str], ...],
    fixed: tuple[str, ...],
    slots: int,
    expected: tuple[int, ...] | None,
) -> None:
    found = narrowed(dict(zip(NAMES, wanted, strict=False)), joined, fixed, slots)
    assert (tuple(found.values()) if found is not None else None) == expected


@pytest.mark.long
@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.lists(st.sampled_from([(0, 1), (1, 2), (2, 3), (0, 3)]), max_size=2),
    st.lists(st.integers(0, 3), max_size=1),
    st.integers(0, 24),
)
def test_what_is_chosen_has_room_and_leaves_no_slot_that_a_vertex_could_use(
    widths: list[int], pairs: list[tuple[int, int]], kept: list[int], slots: int
) -> None:
    names = NAMES[: len(widths)]
    joined = [(NAMES[a], NAMES[b]) for a, b in pairs if a < b < len(widths)]
    wanted = dict(zip(names, widths, strict=True))
    for a, b in joined * 2:
        wanted[a] = wanted[b] = min(wanted[a], wanted[b])
    fixed = [NAMES[number] for number in kept if number < len(widths)]
    found = narrowed(wanted, joined, fixed, slots)
    least = narrowed(wanted, joined, fixed, 0 if found is None else sum(found.values()))
    if found is None:
        assert least is None
        return
    assert least == found, "with just the slots that it takes it takes them all"
    assert sum(found.values()) <= max(slots, 0) and list(found) == list(wanted)
    assert all(1 <= found[name] <= wanted[name] for name in names)
    assert all(found[a] == found[b] for a, b in joined)
    assert all(found[name] == wanted[name] for name in fixed)
    spare = slots - sum(found.values())
    for name in names:
        group = {name}
        for pair in joined * len(names):
            group |= set(pair) if group & set(pair) else set()
        if found[name] < wanted[name]:
            assert len(group) > spare, f"{sorted(group)} could have one subtask more: {spare} slots are left"


# --- when it is decided -------------------------------------------------------------------------------------

TOTALS = AggregateSpec("totals", ("key",), {"sum": Sum("value")}, Emission.FINAL)
JOB = JobGraph(
    "job",
    (
        Vertex("read", 2, CollectionSource((), 1)),
        Vertex("totals", 3, None, (TOTALS,)),
    ),
    (Edge("read", "totals", Partitioning.HASH, ("key",)),),
    max_parallelism=8,
)


def elasticity(wait_ms: int = 10, fixed: tuple[str, ...] = ()) -> Elasticity:
    return Elasticity(JOB, ElasticConfig(wait_ms, fixed))


def widths(graph: JobGraph | None) -> tuple[int, ...] | None:
    return tuple(vertex.parallelism for vertex in graph.vertices) if graph is not None else None


def half_ended(graph: JobGraph = JOB) -> CompletedCheckpoint:
    """Return a checkpoint in which one of the keyed subtasks had emitted its results, and the others had not."""
    parts = tuple(
        SubtaskSnapshot(
            subtask,
            AttemptNumber(1),
            (OperatorSnapshot("totals", input_ended=subtask.index == 0),)
            if subtask.vertex == "totals"
            else (),
        )
        for subtask in graph.subtasks
    )
    return CompletedCheckpoint(CheckpointId(1), AttemptNumber(1), 0, 1, parts, graph.shape)


def test_a_job_waits_for_slots_as_long_as_configured_and_then_goes_on_narrower() -> None:
    elastic = elasticity()
    assert elastic.job_for(5, 0.0, ()) is JOB and elastic.job_for(None, 1.0, ()) is JOB
    assert [elastic.job_for(4, now, ()) for now in (2.0, 7.0, 11.9)] == [None, None, None]
    assert widths(elastic.job_for(4, 12.0, ())) == (2, 2)
    # Each attempt waits anew, and takes what it finds.
    assert elastic.job_for(3, 20.0, ()) is None
    assert elastic.job_for(5, 21.0, ()) is JOB
    assert elastic.job_for(3, 40.0, ()) is None
    assert widths(elastic.job_for(3, 50.0, ())) == (2, 1)


def test_a_job_without_room_at_any_parallelism_is_deployed_as_it_was_and_waits_for_its_slots() -> None:
    elastic = elasticity(wait_ms=0)
    assert widths(elastic.job_for(3, 0.0, ())) == (2, 1)
    assert widths(elastic.job_for(1, 1.0, ())) == (2, 1)


def test_a_job_whose_checkpoint_allows_no_other_parallelism_keeps_it() -> None:
    elastic = elasticity(wait_ms=0)
    assert elastic.job_at_start((half_ended(),)) is JOB
    assert elastic.job_for(4, 0.0, (half_ended(),)) is JOB, "no narrower job may start from this"
    narrow = JOB.at_widths({"totals": 2})
    again = elasticity(wait_ms=0)
    assert again.job_at_start((half_ended(narrow),)).shape == narrow.shape, "nor the job as it is meant to be"
    found = again.job_for(5, 0.0, (half_ended(narrow),))
    assert found is not None and found.shape == narrow.shape


def test_what_a_job_starts_with_is_decided_by_the_newest_checkpoint() -> None:
    """It went on narrower after the older one, and some subtasks of that job have ended."""
    narrow = JOB.at_widths({"totals": 2})
    older = CompletedCheckpoint(CheckpointId(1), AttemptNumber(1), 0, 1, (), JOB.shape)
    newer = replace(half_ended(narrow), checkpoint=CheckpointId(2))
    for completed in ((older, newer), (newer, older)):
        elastic = elasticity(wait_ms=0)
        assert elastic.job_at_start(completed).shape == narrow.shape
        found = elastic.job_for(5, 0.0, completed)
        assert found is not None and found.shape == narrow.shape


LOOP = JobGraph(
    "loop",
    (
        Vertex("read", 3, CollectionSource((), 1)),
        Vertex("head", 4, None, (TOTALS,)),
        Vertex("again", 2, None, (AggregateSpec("again", ("key",), {"sum": Sum("value")}, Emission.FINAL),)),
        Vertex("last", 2, None, (AggregateSpec("last", ("key",), {"sum": Sum("value")}, Emission.FINAL),)),
    ),
    (
        Edge("read", "head", Partitioning.HASH, ("key",)),
        Edge("head", "again", Partitioning.HASH, ("key",)),
        Edge("again", "head", Partitioning.HASH, ("key",), feedback=True),
        Edge("head", "last", Partitioning.HASH, ("key",)),
    ),
    max_parallelism=8,
)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 12))
def test_the_vertices_of_a_loop_stay_as_they_are_whatever_is_missing(slots: int) -> None:
    narrow = Elasticity(LOOP, ElasticConfig(0)).job_for(slots, 0.0, ())
    assert narrow is not None
    found = {vertex.name: vertex.parallelism for vertex in narrow.vertices}
    assert (found["head"], found["again"]) == (4, 2)
    room = (
        8 <= slots < 11
    )  # with fewer the job would have none, and is deployed as it was, to wait for its slots
    assert sum(found.values()) == (slots if room else 11)


def test_vertices_by_names_that_do_not_exist_and_a_protocol_with_named_subtasks_are_refused() -> None:
    with pytest.raises(JobUsageError, match="no vertex 'count'"):
        elasticity(fixed=("count",))
    with pytest.raises(JobUsageError, match="chandy_lamport"):
        JobConfig(CheckpointConfig(10, CheckpointMode.CHANDY_LAMPORT), elastic=ElasticConfig(0))
    with pytest.raises(JobUsageError, match="-1 ms"):
        ElasticConfig(-1)


def test_a_graph_at_other_widths_has_its_subtasks_and_refuses_what_cannot_run() -> None:
    narrow = JOB.at_widths({"totals": 1})
    assert narrow.subtasks == (SubtaskId("read", 0), SubtaskId("read", 1), SubtaskId("totals", 0))
    assert narrow.terminal_subtasks == (SubtaskId("totals", 0),) and len(JOB.terminal_subtasks) == 3
    for wrong, words in (({"nobody": 1}, "nobody"), ({"totals": 9}, "parallelism 9")):
        with pytest.raises(JobUsageError, match=words):
            JOB.at_widths(wrong)
