"""The codec: every message survives encoding and decoding, and nothing else can be decoded."""

from __future__ import annotations

import socket
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig, RestartConfig
from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol import messages
from barrier_tck.reference_impl.protocol.transactions import TransactionFile, TransactionHandle
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.spark import control_wire as wire
from barrier_tck.reference_impl.spark import link_messages

SUBTASK = SubtaskId("totals", 1)
ATTEMPT = AttemptNumber(2)
CHECKPOINT = CheckpointId(7)
SNAPSHOT = messages.SubtaskSnapshot(
    SUBTASK,
    ATTEMPT,
    (
        messages.OperatorSnapshot(
            "totals",
            positions=(messages.SplitPosition("part-0", 12),),
            handles=(messages.StateHandle("a/b", 10, "crc32:00000000", KeyGroupRange(0, 8)),),
            transactions=(TransactionHandle("t", CHECKPOINT, (TransactionFile("p", "c", 5, 1),), 1),),
            input_ended=True,
        ),
    ),
)
CONFIG = JobConfig(CheckpointConfig(500), RestartConfig(3, 10), write_through=True)
EXAMPLES: list[Any] = [
    messages.CheckpointBarrier(CHECKPOINT, 5),
    messages.EndOfInput(),
    messages.TriggerCheckpoint(CHECKPOINT, 5),
    messages.NotifyCheckpointComplete(CHECKPOINT),
    messages.NotifyCheckpointAborted(CHECKPOINT, "expired"),
    messages.FinishSubtask(),
    messages.CancelSubtask("over"),
    messages.SubtaskRunning(ATTEMPT, SUBTASK),
    messages.AcknowledgeCheckpoint(ATTEMPT, CHECKPOINT, SUBTASK, SNAPSHOT, messages.SnapshotMetrics(1.5, 3)),
    messages.AcknowledgeCheckpoint(
        ATTEMPT,
        CHECKPOINT,
        SUBTASK,
        SNAPSHOT,
        messages.SnapshotMetrics(
            local=messages.LocalCopyReport(False, "no space left", 4, (4, 5), "127.0.0.2")
        ),
    ),
    messages.StateRestored(
        ATTEMPT,
        SUBTASK,
        CHECKPOINT,
        (messages.RestoredFile("o", "p", KeyGroupRange(0, 4), messages.ServedBy.PRIMARY, "it is missing"),),
    ),
    messages.DeclineCheckpoint(ATTEMPT, CHECKPOINT, SUBTASK, "disk full"),
    messages.AbortNoted(ATTEMPT, SUBTASK, CHECKPOINT),
    messages.InputConsumed(ATTEMPT, SUBTASK),
    messages.EndOfChannel(),
    messages.ChannelsClosed(ATTEMPT, SUBTASK),
    messages.SubtaskFinished(ATTEMPT, SUBTASK, messages.SubtaskSnapshot(SUBTASK, ATTEMPT, (), finished=True)),
    messages.CountLoop("head", 3),
    messages.EndLoop("head"),
    messages.LoopInputEnded(ATTEMPT, SUBTASK, "head"),
    messages.LoopCounted(ATTEMPT, SUBTASK, "head", 3, 5, 4),
    messages.SourceWatermark(ATTEMPT, SUBTASK, 1_000, idle=True),
    messages.AllowWatermark(-5),
    messages.TransactionsCommitted(ATTEMPT, SUBTASK, CHECKPOINT),
    messages.SubtaskFailed(ATTEMPT, SUBTASK, "why"),
    messages.SubtaskFailed(ATTEMPT, SUBTASK, "why", CHECKPOINT),
    link_messages.SlotOffer(
        0, "127.0.0.2", 4000, 11, 10, "3", "127.0.0.2", (messages.LocalCopy(SUBTASK, CHECKPOINT, ATTEMPT),)
    ),
    link_messages.DeploySubtask(
        SubtaskDeployment("job", SUBTASK, ATTEMPT, CONFIG, SNAPSHOT, CHECKPOINT),
        (link_messages.ChannelAddress(ChannelId(SUBTASK, SubtaskId("sink", 0), 2), "127.0.0.3", 5),),
        (link_messages.WatchedPoint("snapshot_taken", None),),
        12.5,
    ),
    link_messages.Heartbeat(),
    link_messages.PointReached(1, "snapshot_taken", CHECKPOINT),
    link_messages.Resume(1),
    link_messages.FirstRecords(3.5),
    link_messages.SubtaskLeft(),
    link_messages.ChannelsRefused({"not_wanted": 2}),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_survives_encoding_and_decoding(message: Any) -> None:
    assert wire.decode(wire.encode(message)) == message


def test_every_kind_of_the_wire_has_an_example_here() -> None:
    assert {type(message).__name__ for message in EXAMPLES} == set(wire._inner)


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(wire.WireError, match="unknown kind 'Launch'"):
        wire.decode(msgspec.msgpack.encode(("Launch", {})))


@pytest.mark.parametrize(
    "body",
    [
        {"checkpoint": "seven", "timestamp_ms": 5},
        {"checkpoint": 7},
        {"checkpoint": 7, "timestamp_ms": None},
        [7, 5],
        None,
    ],
)
def test_a_body_that_does_not_fit_is_refused(body: Any) -> None:
    with pytest.raises(wire.WireError, match="CheckpointBarrier whose body does not fit"):
        wire.decode(msgspec.msgpack.encode(("CheckpointBarrier", body)))


def test_a_body_with_values_that_cannot_be_is_refused() -> None:
    body = msgspec.to_builtins(messages.InputConsumed(ATTEMPT, SUBTASK))
    body["subtask"]["index"] = -1
    with pytest.raises(wire.WireError, match="InputConsumed"):
        wire.decode(msgspec.msgpack.encode(("InputConsumed", body)))
    (example,) = [m for m in EXAMPLES if isinstance(m, link_messages.DeploySubtask)]
    deploy = msgspec.to_builtins(example)
    deploy["deployment"]["config"]["checkpoints"]["interval_ms"] = 0
    with pytest.raises(wire.WireError, match="DeploySubtask"):
        wire.decode(msgspec.msgpack.encode(("DeploySubtask", deploy)))


def test_a_value_that_is_no_message_cannot_be_encoded() -> None:
    with pytest.raises(wire.WireError, match="not a message of the wire"):
        wire.encode({"kind": "Heartbeat"})


def test_a_message_above_the_limit_cannot_be_encoded() -> None:
    with pytest.raises(wire.WireError, match="longer than"):
        wire.encode(messages.CancelSubtask("x" * (wire.MAX_MESSAGE_BYTES + 1)))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_give_a_message_or_a_wire_error(data: bytes) -> None:
    try:
        message = wire.decode(data)
    except wire.WireError:
        return
    assert type(message).__name__ in wire._inner


@given(st.integers(0, len(EXAMPLES) - 1), st.data())
def test_a_damaged_message_gives_a_message_or_a_wire_error(number: int, data: st.DataObject) -> None:
    encoded = bytearray(wire.encode(EXAMPLES[number]))
    position = data.draw(st.integers(0, len(encoded) - 1))
    encoded[position] = data.draw(st.integers(0, 255))
    try:
        message = wire.decode(encoded)
    except wire.WireError:
        return
    assert type(message).__name__ in wire._inner


def test_frames_keep_their_bounds_and_the_end_is_told_from_a_break() -> None:
    ours, theirs = socket.socketpair()
    wire.send_frame(ours, b"one")
    wire.send_frame(ours, b"")
    assert bytes(wire.receive_frame(theirs) or b"") == b"one"
    empty = wire.receive_frame(theirs)
    assert empty is not None
    assert len(empty) == 0
    ours.sendall(b"\0\0\0\x05ab")
    ours.close()
    with pytest.raises(wire.ConnectionLost, match="2 of 5 bytes"):
        wire.receive_frame(theirs)
    assert wire.receive_frame(theirs) is None
    theirs.close()


def test_a_frame_above_the_limit_is_refused_before_it_is_read() -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(b"\x7f\xff\xff\xff")
    with pytest.raises(wire.WireError, match="2147483647 bytes where 100 are allowed"):
        wire.receive_frame(theirs, limit=100)
    ours.close()
    theirs.close()
