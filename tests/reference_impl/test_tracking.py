"""Barrier tracking: the table, without any I/O, and every interleaving (ALO-1, BAR-2, BAR-4)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment import AlignmentCommands
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier, NotifyCheckpointAborted
from barrier_tck.reference_impl.protocol.subtask_commands import (
    NoteAlignmentStarted,
    SendDecline,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import BarrierArrived
from barrier_tck.reference_impl.protocol.tracking import TRACKED_MAX, BarrierTracker
from barrier_tck.reference_impl.runtime_errors import ProtocolError


def barrier(checkpoint: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint), timestamp_ms=0)


def started(checkpoint: int) -> NoteAlignmentStarted:
    return NoteAlignmentStarted(CheckpointId(checkpoint))


def due(checkpoint: int) -> TakeSnapshot:
    return TakeSnapshot(barrier(checkpoint))


def arrive(tracker: BarrierTracker, channel: int, checkpoint: int) -> AlignmentCommands:
    return tracker.handle(BarrierArrived(channel, barrier(checkpoint)))


def abort(tracker: BarrierTracker, checkpoint: int) -> AlignmentCommands:
    return tracker.handle(NotifyCheckpointAborted(CheckpointId(checkpoint), "expired"))


def test_no_channel_is_held_back_and_the_snapshot_is_due_with_the_last_barrier() -> None:
    tracker = BarrierTracker(2)
    assert arrive(tracker, 0, 1) == (started(1),)
    assert tracker.blocked == [False, False]
    assert arrive(tracker, 1, 1) == (due(1),)
    assert tracker.blocked == [False, False]
    assert tracker.tracked == ()


def test_one_channel_completes_at_once() -> None:
    assert arrive(BarrierTracker(1), 0, 4) == (due(4),)


def test_several_checkpoints_are_counted_at_once() -> None:
    tracker = BarrierTracker(2)
    for checkpoint in (1, 2, 3):
        assert arrive(tracker, 0, checkpoint) == (started(checkpoint),)
    assert tracker.tracked == (1, 2, 3)
    for checkpoint in (1, 2, 3):
        assert arrive(tracker, 1, checkpoint) == (due(checkpoint),)
    assert not tracker.tracked


def test_a_newer_checkpoint_that_completes_gives_up_the_older_ones_that_a_channel_skipped() -> None:
    tracker = BarrierTracker(2)
    arrive(tracker, 0, 1)
    arrive(tracker, 0, 2)
    abandoned, completed = arrive(tracker, 1, 2)
    assert isinstance(abandoned, SendDecline) and abandoned.checkpoint == 1
    assert completed == due(2)
    assert arrive(tracker, 1, 1) == (), "it comes too late and is ignored"


def test_a_newer_barrier_alone_gives_nothing_up() -> None:
    tracker = BarrierTracker(3)
    arrive(tracker, 0, 1)
    assert arrive(tracker, 1, 2) == (started(2),)
    assert tracker.tracked == (1, 2)


def test_barriers_of_an_aborted_checkpoint_are_ignored_before_and_after_they_came() -> None:
    tracker = BarrierTracker(2)
    abort(tracker, 1)
    assert arrive(tracker, 0, 1) == ()
    arrive(tracker, 0, 2)
    abort(tracker, 2)
    assert tracker.tracked == ()
    assert arrive(tracker, 1, 2) == ()
    assert arrive(tracker, 0, 3) == (started(3),)


def test_the_same_barrier_twice_on_a_channel_raises_and_changes_nothing() -> None:
    tracker = BarrierTracker(2)
    arrive(tracker, 0, 1)
    with pytest.raises(ProtocolError, match="channel 0 delivered barrier 1 twice"):
        arrive(tracker, 0, 1)
    assert arrive(tracker, 1, 1) == (due(1),)


def test_memory_is_bounded_and_what_is_given_up_is_said() -> None:
    tracker = BarrierTracker(2)
    for checkpoint in range(1, TRACKED_MAX + 1):
        arrive(tracker, 0, checkpoint)
    outcomes = arrive(tracker, 0, TRACKED_MAX + 1)
    assert [o.checkpoint for o in outcomes if isinstance(o, SendDecline)] == [1]
    assert len(tracker.tracked) == TRACKED_MAX
    assert tracker.is_obsolete(CheckpointId(1)) and not tracker.is_obsolete(CheckpointId(2))


def test_remembered_aborts_are_bounded_and_old_ones_stay_obsolete() -> None:
    tracker = BarrierTracker(2)
    for checkpoint in range(1, 3 * TRACKED_MAX):
        abort(tracker, checkpoint)
    assert all(tracker.is_obsolete(CheckpointId(n)) for n in range(1, 3 * TRACKED_MAX))
    assert not tracker.is_obsolete(CheckpointId(3 * TRACKED_MAX))


def test_no_channel_at_all_is_refused() -> None:
    with pytest.raises(ProtocolError, match="at least one"):
        BarrierTracker(0)


@given(
    st.integers(1, 4),
    st.lists(st.integers(1, 9), max_size=6, unique=True).map(sorted),
    st.randoms(use_true_random=False),
)
def test_every_interleaving_of_fifo_channels_completes_every_checkpoint_once_in_order(
    channels: int, ids: list[int], order: random.Random
) -> None:
    queues = [list(ids) for _ in range(channels)]
    tracker = BarrierTracker(channels)
    completed: list[int] = []
    while any(queues):
        channel = order.choice([c for c in range(channels) if queues[c]])
        for outcome in arrive(tracker, channel, queues[channel].pop(0)):
            assert not isinstance(outcome, SendDecline)
            if isinstance(outcome, TakeSnapshot):
                completed.append(outcome.barrier.checkpoint)
        assert not any(tracker.blocked)
    assert completed == ids
    assert tracker.tracked == ()


@given(
    st.integers(1, 3),
    st.integers(1, 6),
    st.sets(st.tuples(st.integers(0, 2), st.integers(1, 6)), max_size=6),
    st.lists(st.integers(1, 6), max_size=3),
    st.randoms(use_true_random=False),
)
def test_a_snapshot_is_due_only_after_every_channel_delivered_and_nothing_aborted_ever_is(
    channels: int,
    checkpoints: int,
    skipped: frozenset[tuple[int, int]],
    aborted: list[int],
    order: random.Random,
) -> None:
    queues = [
        [n for n in range(1, checkpoints + 1) if (channel, n) not in skipped] for channel in range(channels)
    ]
    tracker = BarrierTracker(channels)
    delivered: list[tuple[int, int]] = []
    ended: list[int] = []
    aborts, gone = list(aborted), []
    while any(queues) or aborts:
        if aborts and (order.random() < 0.3 or not any(queues)):
            gone.append(aborts.pop())
            abort(tracker, gone[-1])
            continue
        channel = order.choice([c for c in range(channels) if queues[c]])
        checkpoint = queues[channel].pop(0)
        delivered.append((channel, checkpoint))
        for outcome in arrive(tracker, channel, checkpoint):
            if isinstance(outcome, TakeSnapshot):
                assert checkpoint not in gone
                assert all((c, checkpoint) in delivered for c in range(channels))
                assert not ended or checkpoint > max(ended)
                ended.append(checkpoint)
            elif isinstance(outcome, SendDecline):
                assert outcome.checkpoint < checkpoint
                assert outcome.checkpoint not in ended
    everywhere = [n for n in range(1, checkpoints + 1) if all((c, n) not in skipped for c in range(channels))]
    assert [n for n in everywhere if n not in aborted] == [n for n in ended if n not in aborted]
