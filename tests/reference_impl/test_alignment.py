"""Barrier alignment: the table, without any I/O (ALN-1, BAR-2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import AlignmentCommands, BarrierAligner
from barrier_tck.reference_impl.protocol.alignment_states import AlignmentState
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier, NotifyCheckpointAborted
from barrier_tck.reference_impl.protocol.subtask_commands import (
    NoteAlignmentStarted,
    SendDecline,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import BarrierArrived, SnapshotTaken
from barrier_tck.reference_impl.runtime_errors import ProtocolError


def barrier(checkpoint: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint), timestamp_ms=0)


def started(checkpoint: int) -> NoteAlignmentStarted:
    return NoteAlignmentStarted(CheckpointId(checkpoint))


def due(checkpoint: int) -> TakeSnapshot:
    return TakeSnapshot(barrier(checkpoint))


def arrive(aligner: BarrierAligner, channel: int, checkpoint: int) -> AlignmentCommands:
    return aligner.handle(BarrierArrived(channel, barrier(checkpoint)))


def abort(aligner: BarrierAligner, checkpoint: int) -> AlignmentCommands:
    return aligner.handle(NotifyCheckpointAborted(CheckpointId(checkpoint), "expired"))


def test_a_barrier_blocks_its_channel_until_the_snapshot_is_taken() -> None:
    aligner = BarrierAligner(2)
    assert arrive(aligner, 0, 1) == (started(1),)
    assert aligner.blocked == [True, False]
    assert arrive(aligner, 1, 1) == (due(1),)
    assert aligner.blocked == [True, True], "it is released only after the synchronous part"
    aligner.handle(SnapshotTaken(barrier(1)))
    assert aligner.blocked == [False, False]


def test_one_channel_aligns_at_once() -> None:
    assert arrive(BarrierAligner(1), 0, 4) == (due(4),)


def test_a_newer_barrier_gives_up_the_alignment_that_it_skipped() -> None:
    aligner = BarrierAligner(3)
    arrive(aligner, 0, 1)
    abandoned, begun = arrive(aligner, 1, 2)
    assert isinstance(abandoned, SendDecline) and abandoned.checkpoint == 1
    assert begun == started(2)
    assert aligner.blocked == [False, True, False]


def test_barriers_of_an_aborted_checkpoint_are_ignored_before_and_after_they_came() -> None:
    aligner = BarrierAligner(2)
    abort(aligner, 1)
    assert arrive(aligner, 0, 1) == ()
    assert aligner.blocked == [False, False]
    arrive(aligner, 0, 2)
    abort(aligner, 2)
    assert aligner.state is AlignmentState.IDLE and aligner.blocked == [False, False]
    assert arrive(aligner, 1, 2) == ()


def test_an_abort_of_a_later_checkpoint_leaves_the_current_alignment_alone() -> None:
    aligner = BarrierAligner(2)
    arrive(aligner, 0, 1)
    abort(aligner, 2)
    assert aligner.current == 1
    assert arrive(aligner, 1, 1) == (due(1),)
    aligner.handle(SnapshotTaken(barrier(1)))
    assert arrive(aligner, 0, 2) == ()


def test_the_same_barrier_twice_on_a_channel_raises_and_changes_nothing() -> None:
    aligner = BarrierAligner(2)
    arrive(aligner, 0, 1)
    with pytest.raises(ProtocolError, match="channel 0 delivered barrier 1 twice"):
        arrive(aligner, 0, 1)
    assert arrive(aligner, 1, 1) == (due(1),)


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
        for outcome in arrive(aligner, channel, queues[channel].pop(0)):
            if isinstance(outcome, TakeSnapshot):
                completed.append(outcome.barrier.checkpoint)
                aligner.handle(SnapshotTaken(outcome.barrier))
            else:
                assert isinstance(outcome, NoteAlignmentStarted)
    assert completed == ids
    assert not any(aligner.blocked)
