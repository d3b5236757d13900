"""Records in flight in a subtask's snapshots: whatever the policies and the interleaving, a cut is exact.

Grain: the machines, with channels of a few lines that stand for a world.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.config import CheckpointMode
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.alignment_states import ChannelPolicy
from barrier_tck.reference_impl.protocol.messages import (
    CheckpointBarrier,
    NotifyCheckpointAborted,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.protocol.recording import REMEMBERED_MAX, BarrierRecorder
from barrier_tck.reference_impl.protocol.subtask import SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import (
    CancelSnapshot,
    ForwardBarrier,
    NoteAlignmentStarted,
    NotifyOperatorsAborted,
    OvertakeOutputs,
    RecordInput,
    SendAcknowledge,
    SendDecline,
    StartAlignmentTimer,
    StoreChannelState,
    StoreSnapshot,
    SubtaskCommand,
    TakeSnapshot,
)
from barrier_tck.reference_impl.protocol.subtask_events import (
    AlignmentTimedOut,
    BarrierAnnounced,
    BarrierArrived,
    ChannelStateStored,
    OutputsPassed,
    SnapshotStored,
    SnapshotTaken,
    SubtaskEvent,
)
from barrier_tck.reference_impl.runtime_errors import ProtocolError

ALIGN, OVERTAKE, RECORD = ChannelPolicy
UNALIGNED, PATIENT = CheckpointMode.UNALIGNED, CheckpointMode.ALIGNED_TIMEOUT


def barrier(checkpoint: int, ahead: bool = False) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(checkpoint), 0, ahead)


def announced(channel: int, checkpoint: int, ahead: bool = False) -> BarrierAnnounced:
    return BarrierAnnounced(channel, barrier(checkpoint, ahead))


def reached(channel: int, checkpoint: int) -> BarrierArrived:
    return BarrierArrived(channel, barrier(checkpoint))


@dataclass
class Subtask:
    """A subtask whose state is the items that it processed, by channel. Items are distinct; barriers are negative."""

    policies: tuple[ChannelPolicy, ...]
    mode: CheckpointMode = UNALIGNED
    queues: list[list[int]] = field(default_factory=list)
    processed: list[list[int]] = field(default_factory=list)
    state: dict[int, list[list[int]]] = field(default_factory=dict)
    recorded: dict[int, list[list[int]]] = field(default_factory=dict)
    acknowledged: list[int] = field(default_factory=list)
    declined: list[int] = field(default_factory=list)
    timers: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = SubtaskMachine("totals[0]", len(self.policies), self.mode, self.policies)
        self.queues = [[] for _ in self.policies]
        self.processed = [[] for _ in self.policies]
        self.passed = [0 for _ in self.policies]

    def feed(self, event: SubtaskEvent) -> None:
        for command in self.machine.handle(event):
            self.carry_out(command)

    def carry_out(self, command: SubtaskCommand) -> None:
        match command:
            case TakeSnapshot(barrier=taken):
                self.state[taken.checkpoint] = [list(items) for items in self.processed]
                self.recorded[taken.checkpoint] = [[] for _ in self.policies]
                self.feed(SnapshotTaken(taken))
            case RecordInput(checkpoint=checkpoint, channel=channel):
                queue = self.queues[channel]
                if self.passed[channel] >= checkpoint:
                    return
                end = queue.index(-checkpoint) if -checkpoint in queue else len(queue)
                self.recorded[checkpoint][channel] += [item for item in queue[:end] if item > 0]
                queue[:] = [item for item in queue if item != -checkpoint]
            case ForwardBarrier(barrier=forwarded):
                if self.mode is PATIENT and not forwarded.ahead:
                    self.feed(OutputsPassed(forwarded.checkpoint))
            case StoreSnapshot(checkpoint=checkpoint):
                self.feed(SnapshotStored(checkpoint))
            case StoreChannelState(checkpoint=checkpoint):
                self.feed(ChannelStateStored(checkpoint))
            case SendAcknowledge(checkpoint=checkpoint):
                self.acknowledged.append(checkpoint)
            case SendDecline(checkpoint=checkpoint):
                self.declined.append(checkpoint)
            case StartAlignmentTimer(checkpoint=checkpoint):
                self.timers.append(checkpoint)

    def arrive(self, channel: int, item: int) -> None:
        self.queues[channel].append(item)
        assert self.machine.recorder is not None
        if self.policies[channel] is OVERTAKE:
            if item < 0:
                self.feed(announced(channel, -item))
            else:
                self.record(channel, item)

    def record(self, channel: int, item: int) -> None:
        assert self.machine.recorder is not None
        for checkpoint in self.machine.recorder.recorded_on(channel):
            self.recorded[checkpoint][channel].append(item)

    def read(self, channel: int) -> None:
        item = self.queues[channel].pop(0)
        if item < 0:
            self.passed[channel] = -item
            self.feed(reached(channel, -item))
            return
        if self.policies[channel] is RECORD:
            self.record(channel, item)
        self.processed[channel].append(item)


Policies = st.lists(st.sampled_from([ALIGN, OVERTAKE, RECORD]), min_size=1, max_size=4).map(tuple)
Gaps = st.lists(st.integers(0, 3), min_size=4, max_size=4)


@pytest.mark.long
@given(
    policies=Policies,
    gaps=st.lists(Gaps, min_size=4, max_size=4),
    checkpoints=st.integers(1, 4),
    mode=st.sampled_from([UNALIGNED, PATIENT]),
    order=st.randoms(use_true_random=False),
)
def test_state_and_records_in_flight_are_together_what_lies_before_the_barriers(
    policies: tuple[ChannelPolicy, ...],
    gaps: list[list[int]],
    checkpoints: int,
    mode: CheckpointMode,
    order: random.Random,
) -> None:
    subtask = Subtask(policies, mode)
    coming: list[list[int]] = []
    for channel in range(len(policies)):
        items: list[int] = []
        for checkpoint in range(1, checkpoints + 1):
            items += [len(items) + number + 1 for number in range(gaps[channel][checkpoint - 1])]
            items.append(-checkpoint)
        coming.append(items)
    sent = [list(items) for items in coming]
    while any(coming) or any(subtask.queues) or subtask.timers:
        ready = [c for c, queue in enumerate(subtask.queues) if queue and not subtask.machine.blocked[c]]
        arriving = [c for c, items in enumerate(coming) if items]
        choices = [("read", c) for c in ready] + [("arrive", c) for c in arriving]
        choices += [("time out", 0)] if subtask.timers and (not choices or order.random() < 0.1) else []
        assert choices, "a checkpoint that waits for a held channel would never end"
        what, channel = order.choice(choices)
        if what == "read":
            subtask.read(channel)
        elif what == "arrive":
            subtask.arrive(channel, coming[channel].pop(0))
        else:
            subtask.feed(AlignmentTimedOut(CheckpointId(subtask.timers.pop(0))))
    numbers = list(range(1, checkpoints + 1))
    assert sorted(subtask.acknowledged) == numbers and subtask.declined == []
    for number in numbers:
        for channel, items in enumerate(sent):
            before = [item for item in items[: items.index(-number)] if item > 0]
            state, in_flight = subtask.state[number][channel], subtask.recorded[number][channel]
            assert state + in_flight == before
            assert not in_flight or policies[channel] is not ALIGN
    for channel, items in enumerate(sent):
        assert subtask.processed[channel] == [item for item in items if item > 0], "recording changes nothing"
    assert not any(subtask.machine.recording) and not any(subtask.machine.blocked)


def test_an_announced_barrier_is_enough_for_a_snapshot_and_what_is_unread_is_recorded() -> None:
    subtask = Subtask((OVERTAKE, OVERTAKE))
    for item in (1, 2):
        subtask.arrive(0, item)
    subtask.arrive(1, 3)
    subtask.arrive(0, -1)
    assert subtask.state[1] == [[], []] and subtask.recorded[1] == [[1, 2], [3]]
    assert subtask.acknowledged == [] and subtask.machine.recording == [0, 1]
    subtask.arrive(1, 4)
    subtask.arrive(1, -1)
    assert subtask.recorded[1] == [[1, 2], [3, 4]] and subtask.acknowledged == [1]
    assert subtask.queues == [[1, 2], [3, 4, -1]], "the barrier that came late is read in line and ignored"


def test_the_snapshot_waits_for_a_broadcast_and_holds_no_record_of_it() -> None:
    subtask = Subtask((OVERTAKE, ALIGN))
    subtask.arrive(1, 1)
    subtask.arrive(0, 2)
    subtask.arrive(0, -1)
    assert subtask.state == {}
    subtask.arrive(1, -1)
    subtask.arrive(1, 3)
    subtask.read(1)
    assert subtask.state == {}
    subtask.read(1)
    assert subtask.state[1] == [[], [1]] and subtask.recorded[1] == [[2], []]
    assert subtask.acknowledged == [1]


def test_what_is_behind_a_barrier_that_was_reached_waits_for_the_snapshot() -> None:
    recorder = BarrierRecorder((OVERTAKE, ALIGN))
    assert recorder.handle(announced(0, 1)) == (NoteAlignmentStarted(CheckpointId(1)),)
    assert recorder.handle(reached(0, 1)) == ()
    assert recorder.blocked == [True, False]
    assert recorder.handle(reached(1, 1)) == (TakeSnapshot(barrier(1)),)
    assert recorder.handle(SnapshotTaken(barrier(1))) == (RecordInput(CheckpointId(1), 0),)
    assert recorder.blocked == [False, False] and recorder.recording == [0, 0]


def test_several_checkpoints_record_a_channel_at_once() -> None:
    subtask = Subtask((OVERTAKE, OVERTAKE))
    subtask.arrive(0, -1)
    subtask.arrive(1, 7)
    subtask.arrive(0, -2)
    subtask.arrive(1, 8)
    subtask.arrive(1, -1)
    subtask.arrive(1, 9)
    assert subtask.acknowledged == [1] and subtask.recorded[1] == [[], [7, 8]]
    subtask.arrive(1, -2)
    assert subtask.acknowledged == [1, 2] and subtask.recorded[2] == [[], [7, 8, 9]]


def test_an_old_barrier_that_comes_late_does_not_close_the_channel_of_a_newer_checkpoint() -> None:
    recorder = BarrierRecorder((OVERTAKE, OVERTAKE))
    recorder.handle(NotifyCheckpointAborted(CheckpointId(1), "expired"))
    assert recorder.handle(announced(0, 2)) == (TakeSnapshot(barrier(2)),)
    recorder.handle(SnapshotTaken(barrier(2)))
    assert recorder.handle(announced(1, 1)) == () and recorder.recording == [0, 1]
    recorder.handle(announced(1, 2))
    assert recorder.recording == [0, 0] and not recorder.is_recording(CheckpointId(2))


def test_an_aligned_checkpoint_overtakes_after_the_timeout_and_takes_older_ones_along() -> None:
    recorder = BarrierRecorder((OVERTAKE, OVERTAKE), patient=True)
    begun = (StartAlignmentTimer(CheckpointId(1)), NoteAlignmentStarted(CheckpointId(1)))
    assert recorder.handle(announced(0, 1)) == begun
    recorder.handle(announced(0, 2))
    assert recorder.handle(AlignmentTimedOut(CheckpointId(2))) == (TakeSnapshot(barrier(1)),)
    following = recorder.handle(SnapshotTaken(barrier(1)))
    assert following[-1] == TakeSnapshot(barrier(2)), "nothing else came between them"


def test_a_barrier_that_went_ahead_elsewhere_does_not_wait_here() -> None:
    recorder = BarrierRecorder((OVERTAKE, OVERTAKE), patient=True)
    commands = recorder.handle(announced(0, 1, ahead=True))
    assert commands == (StartAlignmentTimer(CheckpointId(1)), TakeSnapshot(barrier(1, ahead=True)))


def test_a_source_lets_a_barrier_that_waits_in_its_output_overtake_after_the_timeout() -> None:
    machine = SubtaskMachine("source[0]", 0, PATIENT)
    one = CheckpointId(1)
    assert machine.handle(TriggerCheckpoint(one, 0)) == (StartAlignmentTimer(one), TakeSnapshot(barrier(1)))
    assert machine.handle(SnapshotTaken(barrier(1))) == (ForwardBarrier(barrier(1)), StoreSnapshot(one))
    assert machine.handle(SnapshotStored(one)) == ()
    assert machine.handle(AlignmentTimedOut(one)) == (OvertakeOutputs(one),)
    assert machine.handle(OutputsPassed(one)) == (StoreChannelState(one),)
    assert machine.handle(ChannelStateStored(one)) == (SendAcknowledge(one),)


def test_an_unaligned_source_stores_what_its_barrier_overtook() -> None:
    machine = SubtaskMachine("source[0]", 0, UNALIGNED)
    one = CheckpointId(1)
    assert machine.handle(TriggerCheckpoint(one, 0)) == (TakeSnapshot(barrier(1)),)
    commands = machine.handle(SnapshotTaken(barrier(1)))
    assert commands == (ForwardBarrier(barrier(1, ahead=True)), StoreSnapshot(one), StoreChannelState(one))


def test_an_abort_ends_the_recording_and_what_comes_later_is_ignored() -> None:
    subtask = Subtask((OVERTAKE, OVERTAKE))
    subtask.arrive(0, -1)
    aborted = subtask.machine.handle(NotifyCheckpointAborted(CheckpointId(1), "expired"))
    assert aborted == (CancelSnapshot(CheckpointId(1)), NotifyOperatorsAborted(CheckpointId(1)))
    assert subtask.machine.recording == [0, 0]
    subtask.arrive(1, 5)
    subtask.arrive(1, -1)
    assert subtask.recorded[1] == [[], []] and subtask.acknowledged == []


def test_a_channel_that_skips_a_barrier_ends_the_recording_of_its_checkpoint() -> None:
    subtask = Subtask((OVERTAKE, OVERTAKE))
    subtask.arrive(0, -1)
    subtask.arrive(0, -2)
    subtask.arrive(1, 5)
    subtask.arrive(1, -2)
    assert subtask.declined == [1] and subtask.acknowledged == [2]
    assert subtask.recorded[2] == [[], [5]]


def test_with_recorded_channels_alone_anybody_initiates_and_snapshots_overlap() -> None:
    recorder = BarrierRecorder((RECORD, RECORD))
    assert recorder.handle(TriggerCheckpoint(CheckpointId(1), 0)) == (TakeSnapshot(barrier(1)),)
    recorder.handle(SnapshotTaken(barrier(1)))
    recorder.handle(reached(0, 1))
    assert recorder.handle(reached(0, 2)) == (TakeSnapshot(barrier(2)),)
    recorder.handle(SnapshotTaken(barrier(2)))
    assert recorder.recording == [0, 2], "channel 0 is empty in snapshot 2: its marker came first there"
    recorder.handle(reached(1, 1))
    assert recorder.recording == [0, 1] and recorder.recorded_on(1) == (2,)


def test_of_two_snapshots_whose_markers_cross_the_older_one_is_given_up() -> None:
    """A sink that prepared a transaction for 2 can prepare no earlier one for 1."""
    recorder = BarrierRecorder((RECORD, RECORD))
    recorder.handle(reached(0, 2))
    recorder.handle(SnapshotTaken(barrier(2)))
    assert (
        recorder.handle(reached(0, 1)) == () and recorder.handle(TriggerCheckpoint(CheckpointId(1), 0)) == ()
    )
    other = BarrierRecorder((RECORD, RECORD))
    other.handle(reached(0, 1))
    other.handle(SnapshotTaken(barrier(1)))
    why = "channel 1 skipped it and delivered barrier 2"
    assert other.handle(reached(1, 2)) == (SendDecline(CheckpointId(1), why), TakeSnapshot(barrier(2)))


def test_only_a_subtask_whose_channels_are_all_recorded_may_initiate() -> None:
    recorder = BarrierRecorder((RECORD, ALIGN))
    with pytest.raises(ProtocolError, match="its channels are record, align"):
        recorder.handle(TriggerCheckpoint(CheckpointId(1), 0))


@pytest.mark.parametrize("event", [announced, reached])
def test_a_channel_delivers_a_barrier_once(event: type[BarrierAnnounced]) -> None:
    recorder = BarrierRecorder((OVERTAKE, ALIGN))
    recorder.handle(event(0, 1))  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="channel 0 delivered barrier 1 twice"):
        recorder.handle(event(0, 1))  # type: ignore[arg-type]


def test_memory_is_bounded() -> None:
    recorder = BarrierRecorder((OVERTAKE, ALIGN))
    for checkpoint in range(1, REMEMBERED_MAX + 1):
        recorder.handle(announced(0, checkpoint))
    declined = recorder.handle(announced(0, REMEMBERED_MAX + 1))
    assert SendDecline(CheckpointId(1), f"more than {REMEMBERED_MAX} checkpoints were open") in declined
    assert recorder.handle(reached(1, 1)) == ()


def test_barriers_are_announced_only_to_a_subtask_that_records_channels() -> None:
    machine = SubtaskMachine("totals[0]", 2, CheckpointMode.EXACTLY_ONCE)
    with pytest.raises(ProtocolError, match="in mode exactly_once a barrier is not announced here"):
        machine.handle(announced(0, 1))
