"""One subtask with several checkpoints in flight: every interleaving, in both modes (BAR-4, ALN-2, ALO-1)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    NotifyCheckpointAborted,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import (
    CancelSnapshot,
    SendAcknowledge,
    SendDecline,
    StoreSnapshot,
    SubtaskCommand,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import (
    BarrierArrived,
    SnapshotStored,
    SnapshotTaken,
    SubtaskEvent,
)
from barrier_tck.reference_impl.runtime_errors import ProtocolError

EXACTLY_ONCE, AT_LEAST_ONCE = CheckpointMode.EXACTLY_ONCE, CheckpointMode.AT_LEAST_ONCE


def barrier(checkpoint: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint), timestamp_ms=0)


class Subtask:
    """A subtask that counts records: its state is the number of records processed from each channel."""

    def __init__(self, channels: int, mode: CheckpointMode) -> None:
        self.machine = SubtaskMachine("totals[0]", channels, mode)
        self.processed = [0] * channels
        self.snapshots: dict[int, list[int]] = {}
        self.storing: list[int] = []
        self.acknowledged: list[int] = []
        self.declined: list[int] = []

    def feed(self, event: SubtaskEvent) -> None:
        for command in self.machine.handle(event):
            self._carry_out(command)

    def _carry_out(self, command: SubtaskCommand) -> None:
        match command:
            case TakeSnapshot(barrier=taken):
                self.snapshots[taken.checkpoint] = list(self.processed)
                self.feed(SnapshotTaken(taken))
            case StoreSnapshot(checkpoint=checkpoint):
                self.storing.append(checkpoint)
            case CancelSnapshot(checkpoint=checkpoint):
                self.storing.remove(checkpoint)
            case SendAcknowledge(checkpoint=checkpoint):
                self.acknowledged.append(checkpoint)
            case SendDecline(checkpoint=checkpoint):
                self.declined.append(checkpoint)


Channels = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=3).map(
    lambda gaps: [channel[: min(len(other) for other in gaps)] for channel in gaps]
)
"""For each channel, how many records come before each of its barriers; every channel has all barriers."""


@pytest.mark.parametrize("mode", [EXACTLY_ONCE, AT_LEAST_ONCE])
@given(gaps=Channels, order=st.randoms(use_true_random=False))
def test_every_interleaving_gives_every_checkpoint_its_prefix_and_no_less(
    mode: CheckpointMode, gaps: list[list[int]], order: random.Random
) -> None:
    subtask = Subtask(len(gaps), mode)
    queues: list[list[int]] = [
        [item for number, gap in enumerate(channel, 1) for item in [0] * gap + [number]] for channel in gaps
    ]
    while any(queues) or subtask.storing:
        ready = [c for c in range(len(gaps)) if queues[c] and not subtask.machine.blocked[c]]
        assert ready or subtask.storing, "a checkpoint that waits for a held channel would never end"
        if subtask.storing and (not ready or order.random() < 0.3):
            done = subtask.storing.pop(order.randrange(len(subtask.storing)))
            subtask.feed(SnapshotStored(CheckpointId(done)))
            continue
        channel = order.choice(ready)
        item = queues[channel].pop(0)
        if item:
            subtask.feed(BarrierArrived(channel, barrier(item)))
        else:
            subtask.processed[channel] += 1
    numbers = list(range(1, len(gaps[0]) + 1))
    assert sorted(subtask.acknowledged) == numbers and subtask.declined == []
    for number in numbers:
        prefix = [sum(channel[:number]) for channel in gaps]
        held = subtask.snapshots[number]
        if mode is EXACTLY_ONCE:
            assert held == prefix
        else:
            assert all(mine >= due for mine, due in zip(held, prefix, strict=True))
            assert any(mine == due for mine, due in zip(held, prefix, strict=True)), (
                "the last channel is exact"
            )
    assert not any(subtask.machine.blocked)


@pytest.mark.parametrize("mode", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_stores_overlap_and_end_in_any_order(mode: CheckpointMode) -> None:
    subtask = Subtask(2, mode)
    for number in (1, 2, 3):
        for channel in (0, 1):
            subtask.feed(BarrierArrived(channel, barrier(number)))
    assert subtask.storing == [1, 2, 3]
    for number in (3, 1):
        subtask.feed(SnapshotStored(CheckpointId(number)))
    subtask.feed(NotifyCheckpointAborted(CheckpointId(2), "expired"))
    assert subtask.acknowledged == [3, 1] and 2 not in subtask.storing
    with pytest.raises(ProtocolError, match="snapshots being stored"):
        subtask.feed(SnapshotStored(CheckpointId(2)))


def test_at_least_once_mode_never_holds_a_channel_where_exactly_once_does() -> None:
    for mode, held in ((EXACTLY_ONCE, [True, False]), (AT_LEAST_ONCE, [False, False])):
        subtask = Subtask(2, mode)
        subtask.feed(BarrierArrived(0, barrier(1)))
        assert subtask.machine.blocked == held


@pytest.mark.parametrize("mode", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_checkpoint_that_a_channel_skipped_is_declined(mode: CheckpointMode) -> None:
    subtask = Subtask(2, mode)
    subtask.feed(BarrierArrived(0, barrier(1)))
    subtask.feed(BarrierArrived(1, barrier(2)))
    subtask.feed(BarrierArrived(0, barrier(2)))
    assert subtask.declined == [1] and subtask.storing == [2]


@pytest.mark.parametrize("mode", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_a_source_ignores_a_trigger_that_was_overtaken(mode: CheckpointMode) -> None:
    source = Subtask(0, mode)
    source.feed(TriggerCheckpoint(CheckpointId(2), 0))
    source.feed(TriggerCheckpoint(CheckpointId(1), 0))
    assert source.storing == [2]
