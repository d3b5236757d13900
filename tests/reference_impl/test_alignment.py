"""Barrier alignment: the table, without any I/O (ALN-1, BAR-2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import (
    AlignmentAbandoned,
    AlignmentCompleted,
    AlignmentPhase,
    AlignmentStarted,
    BarrierAligner,
)
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier
from barrier_tck.reference_impl.runtime_errors import ProtocolError


def barrier(checkpoint: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint), timestamp_ms=0)


def test_a_barrier_blocks_its_channel_until_the_snapshot_is_taken() -> None:
    aligner = BarrierAligner(2)
    assert aligner.barrier_arrived(0, barrier(1)) == (AlignmentStarted(barrier(1)),)
    assert aligner.blocked == [True, False]
    assert aligner.barrier_arrived(1, barrier(1)) == (AlignmentCompleted(barrier(1)),)
    assert aligner.blocked == [True, True], "released only when the synchronous part has ended"
    aligner.release()
    assert aligner.blocked == [False, False]


def test_one_channel_aligns_at_once() -> None:
    assert BarrierAligner(1).barrier_arrived(0, barrier(4)) == (AlignmentCompleted(barrier(4)),)


def test_a_newer_barrier_gives_up_the_alignment_that_it_skipped() -> None:
    aligner = BarrierAligner(3)
    aligner.barrier_arrived(0, barrier(1))
    abandoned, started = aligner.barrier_arrived(1, barrier(2))
    assert isinstance(abandoned, AlignmentAbandoned) and abandoned.checkpoint == 1
    assert started == AlignmentStarted(barrier(2))
    assert aligner.blocked == [False, True, False]


def test_barriers_of_an_aborted_checkpoint_are_ignored_before_and_after_they_came() -> None:
    aligner = BarrierAligner(2)
    aligner.checkpoint_aborted(CheckpointId(1))
    assert aligner.barrier_arrived(0, barrier(1)) == ()
    assert aligner.blocked == [False, False]
    aligner.barrier_arrived(0, barrier(2))
    aligner.checkpoint_aborted(CheckpointId(2))
    assert aligner.phase is AlignmentPhase.IDLE and aligner.blocked == [False, False]
    assert aligner.barrier_arrived(1, barrier(2)) == ()


def test_an_abort_of_a_later_checkpoint_leaves_the_current_alignment_alone() -> None:
    aligner = BarrierAligner(2)
    aligner.barrier_arrived(0, barrier(1))
    aligner.checkpoint_aborted(CheckpointId(2))
    assert aligner.current == 1
    assert aligner.barrier_arrived(1, barrier(1)) == (AlignmentCompleted(barrier(1)),)
    aligner.release()
    assert aligner.barrier_arrived(0, barrier(2)) == ()


def test_the_same_barrier_twice_on_a_channel_raises_and_changes_nothing() -> None:
    aligner = BarrierAligner(2)
    aligner.barrier_arrived(0, barrier(1))
    with pytest.raises(ProtocolError, match="channel 0 delivered barrier 1 twice"):
        aligner.barrier_arrived(0, barrier(1))
    assert aligner.barrier_arrived(1, barrier(1)) == (AlignmentCompleted(barrier(1)),)


@given(
    st.integers(1, 4), st.lists(st.integers(1, 6), max_size=6, unique=True), st.randoms(use_true_random=False)
)
def test_every_interleaving_of_fifo_channels_aligns_every_checkpoint_once_in_order(
    channels: int, ids: list[int], random: object
) -> None:
    ids = sorted(ids)
    queues = [list(ids) for _ in range(channels)]
    aligner = BarrierAligner(channels)
    completed: list[int] = []
    while any(queues):
        ready = [c for c in range(channels) if queues[c] and not aligner.blocked[c]]
        assert ready, "an alignment that waits for a held channel would never end"
        channel = random.choice(ready)  # type: ignore[attr-defined]
        for outcome in aligner.barrier_arrived(channel, barrier(queues[channel].pop(0))):
            if isinstance(outcome, AlignmentCompleted):
                completed.append(outcome.barrier.checkpoint)
                aligner.release()
            else:
                assert isinstance(outcome, AlignmentStarted)
    assert completed == ids
    assert not any(aligner.blocked)
