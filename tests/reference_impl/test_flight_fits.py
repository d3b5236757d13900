"""Records in flight that nobody could take over, or that belong to the receivers of before, are refused (RSC-3)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec
from barrier_tck.reference_impl.operators.functions import Emission, Sum
from barrier_tck.reference_impl.operators.graph import Edge, JobGraph, Partitioning, Vertex
from barrier_tck.reference_impl.operators.sources import CollectionSource
from barrier_tck.reference_impl.protocol.messages import (
    CHANNEL_STATE,
    ChannelContent,
    ChannelState,
    CompletedCheckpoint,
    OperatorSnapshot,
    StateHandle,
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
