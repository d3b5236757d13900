"""State that nobody could take over is refused: records in flight, and what an operator does not read any more."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.functions import Emission, PerSubtask, Sum
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, OperatorSpec, Partitioning, Vertex
from barrier_tck.reference_impl.operators.list_process import ListProcess
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.messages import (
    CHANNEL_STATE,
    ChannelContent,
    ChannelState,
    CompletedCheckpoint,
    OperatorSnapshot,
    StateHandle,
    StateList,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime.compatibility import require_fitting
from barrier_tck.reference_impl.runtime_errors import IncompatibleState

TOTALS = AggregateSpec("totals", ("key",), {"sum": Sum("value")}, Emission.EACH_RECORD)
FILE = StateHandle("job/chk-1/flight", 1, "crc32:00000000", KeyGroupRange(0, 0), CHANNEL_STATE)
SPREADS = st.sampled_from([Partitioning.HASH, Partitioning.REBALANCE, Partitioning.BROADCAST])
WIDTHS = st.integers(1, 4)


def job(read: int, totals: int, by: Partitioning) -> JobGraph:
    key = ("key",) if by is Partitioning.HASH else ()
    return JobGraph(
        "job",
        (Vertex("read", read, CollectionSource((), 1)), Vertex("totals", totals, None, (TOTALS,))),
        (Edge("read", "totals", by, key),),
        max_parallelism=8,
    )


def checkpoint(of: JobGraph, channel: ChannelId, at_receiver: bool) -> CompletedCheckpoint:
    """Return a checkpoint of a job that holds one batch in flight, at one end of a channel."""
    held = (ChannelContent(channel, 1, 1),)
    state = ChannelState(FILE, inputs=held) if at_receiver else ChannelState(FILE, outputs=held)
    holder = channel.receiver if at_receiver else channel.sender
    parts = tuple(
        SubtaskSnapshot(
            subtask,
            AttemptNumber(1),
            (OperatorSnapshot("totals"),) if subtask.vertex == "totals" else (),
            channels=state if subtask == holder else None,
        )
        for subtask in of.subtasks
    )
    return CompletedCheckpoint(CheckpointId(1), AttemptNumber(1), 0, 1, parts, of.shape)


@settings(max_examples=150, deadline=None)
@given(SPREADS, WIDTHS, WIDTHS, WIDTHS, WIDTHS, st.booleans())
def test_records_of_a_broadcast_stay_with_the_receivers_that_there_were_and_all_others_move(
    by: Partitioning, reads: int, totals: int, new_reads: int, new_totals: int, at_receiver: bool
) -> None:
    channel = ChannelId(SubtaskId("read", reads - 1), SubtaskId("totals", totals - 1))
    stored = checkpoint(job(reads, totals, by), channel, at_receiver)
    if by is Partitioning.BROADCAST and new_totals != totals:
        with pytest.raises(IncompatibleState, match="of a broadcast, and vertex 'totals' has parallelism"):
            require_fitting(job(new_reads, new_totals, by), [stored])
    else:
        require_fitting(job(new_reads, new_totals, by), [stored])


@pytest.mark.parametrize("at_receiver", [True, False])
def test_records_on_an_edge_that_is_gone_are_refused(at_receiver: bool) -> None:
    second = ChannelId(SubtaskId("read", 0), SubtaskId("totals", 0), 1)
    present = job(1, 1, Partitioning.REBALANCE)
    with pytest.raises(IncompatibleState, match="the job has no such channel"):
        require_fitting(present, [checkpoint(present, second, at_receiver)])


LISTED = OperatorSnapshot("totals", lists=(StateList("seen", (b"\x01",), False),))
KEYED = OperatorSnapshot("totals", handles=(StateHandle("f", 1, "crc32:00000000", KeyGroupRange(0, 7)),))
LISTS = ListProcess("totals", PerSubtask(lambda place: None))


def with_operator(spec: OperatorSpec) -> JobGraph:
    vertices = Vertex("read", 1, CollectionSource((), 1)), Vertex("totals", 1, None, (spec,))
    return JobGraph("job", vertices, (Edge("read", "totals", Partitioning.REBALANCE),), max_parallelism=8)


@pytest.mark.parametrize(
    ("held", "now", "refused"),
    [
        (LISTED, TOTALS, "operator 'totals' has lists without keys, and the operator keeps none now"),
        (KEYED, LISTS, "operator 'totals' has state by key, and the operator keeps lists without keys now"),
        (LISTED, LISTS, None),
        (KEYED, TOTALS, None),
        (OperatorSnapshot("totals", lists=()), TOTALS, None),
    ],
)
def test_state_of_a_form_that_the_operator_does_not_keep_any_more_is_refused_and_not_lost(
    held: OperatorSnapshot, now: OperatorSpec, refused: str | None
) -> None:
    graph = with_operator(now)
    parts = tuple(
        SubtaskSnapshot(subtask, AttemptNumber(1), (held,) if subtask.vertex == "totals" else ())
        for subtask in graph.subtasks
    )
    stored = CompletedCheckpoint(CheckpointId(1), AttemptNumber(1), 0, 1, parts, graph.shape)
    if refused is None:
        require_fitting(graph, [stored])
    else:
        with pytest.raises(IncompatibleState, match=refused):
            require_fitting(graph, [stored])
