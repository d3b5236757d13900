"""Data channels over real sockets on loopback: order, backpressure, fencing, cancellation."""

from __future__ import annotations

import errno
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier, EndOfInput
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.spark.batch_serializer import BatchSerializer
from barrier_tck.reference_impl.spark.control_wire import ConnectionLost
from barrier_tck.reference_impl.spark.handshake import HandshakeRefused, new_secret
from barrier_tck.reference_impl.spark.mailbox import Arrivals, Mailbox, SubtaskCancelled
from barrier_tck.reference_impl.spark.output_buffers import BufferedOutput
from barrier_tck.reference_impl.spark.transport import ChannelSender, ChannelServer, connect_channel
from tests.waiting import PATIENCE_S, eventually

SECRET = new_secret()
CHANNELS = [ChannelId(SubtaskId("source", i), SubtaskId("totals", 0)) for i in range(2)]
ATTEMPT = AttemptNumber(3)


def batch(start: int, rows: int = 10) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + rows)), "s": pa.array([f"r{start}"] * rows)})


@contextmanager
def receiver(
    places: int = 8, channels: int = 1, arrivals: Arrivals | None = None
) -> Iterator[tuple[ChannelServer, Mailbox]]:
    mailbox = Mailbox(channels, places, arrivals)
    server = ChannelServer("127.0.0.1")
    server.start(CHANNELS[:channels], ATTEMPT, SECRET, mailbox)
    try:
        yield server, mailbox
    finally:
        mailbox.fail(SubtaskCancelled("the test is over"))
        server.close()


def connect(server: ChannelServer, number: int = 0, attempt: AttemptNumber = ATTEMPT) -> ChannelSender:
    return connect_channel(CHANNELS[number], "127.0.0.1", server.port, attempt, SECRET, PATIENCE_S)


@contextmanager
def sending(
    *senders: ChannelSender, batches: int = 4, most_bytes: int = 1 << 25, fragment_bytes: int = 1 << 22
) -> Iterator[tuple[BufferedOutput, list[RuntimeFailure]]]:
    failures: list[RuntimeFailure] = []
    output = BufferedOutput(
        senders, batches, most_bytes, fragment_bytes, lambda: None, lambda *_: None, failures.append
    )
    try:
        yield output, failures
    finally:
        output.close()


def element(mailbox: Mailbox, blocked: list[bool] | None = None) -> Any:
    taken = mailbox.take(blocked or [False], PATIENCE_S)
    assert isinstance(taken, tuple), taken
    return taken[1]


def test_channels_of_parallel_edges_between_two_subtasks_are_told_apart() -> None:
    first = CHANNELS[0]
    second = ChannelId(first.sender, first.receiver, 1)
    mailbox, server = Mailbox(2, 8), ChannelServer("127.0.0.1")
    server.start([first, second], ATTEMPT, SECRET, mailbox)
    try:
        senders = [
            connect_channel(channel, "127.0.0.1", server.port, ATTEMPT, SECRET, PATIENCE_S)
            for channel in (second, first)
        ]
        for sender, start in zip(senders, (20, 10), strict=True):
            sender.send_batch(batch(start))
        found = [mailbox.take([other, not other], PATIENCE_S) for other in (False, True)]
        assert [
            (taken[0], taken[1].column("n")[0].as_py()) for taken in found if isinstance(taken, tuple)
        ] == [
            (0, 10),
            (1, 20),
        ]
    finally:
        mailbox.fail(SubtaskCancelled("the test is over"))
        server.close()


def test_batches_and_control_elements_arrive_in_the_order_of_sending() -> None:
    with receiver(places=3) as (server, mailbox), sending(connect(server)) as (output, _):
        expected: list[Any] = [
            CheckpointBarrier(CheckpointId(i), i) if i % 7 == 3 else batch(i) for i in range(60)
        ]
        expected.append(EndOfInput())
        for item in expected:
            (output.send_data if isinstance(item, pa.RecordBatch) else output.send_control)(0, item)
        for item in expected:
            received = element(mailbox)
            assert received.equals(item) if isinstance(item, pa.RecordBatch) else received == item


def whole(mailbox: Mailbox) -> Any:
    """Take until a whole element was read: single fragments are taken without a result."""
    taken = None
    while taken is None:
        taken = mailbox.take([False], PATIENCE_S)
    assert isinstance(taken, tuple)
    return taken[1]


@pytest.mark.parametrize("fragment_bytes", [1 << 30, 100_000, 1 << 20])
def test_a_large_batch_survives_partial_sends_and_fragments(fragment_bytes: int) -> None:
    large = pa.record_batch({"n": pa.array(range(400_000)), "x": pa.array([0.5] * 400_000)})
    with (
        receiver(places=2) as (server, mailbox),
        sending(connect(server), fragment_bytes=fragment_bytes) as (output, _),
    ):
        for _ in range(4):
            output.send_data(0, large)
        assert all(whole(mailbox).equals(large) for _ in range(4))


def test_a_change_of_schema_between_batches_is_carried() -> None:
    other = pa.record_batch({"z": pa.array([None, 1.5])})
    with receiver() as (server, mailbox):
        sender = connect(server)
        for item in (batch(0), other, batch(1)):
            sender.send_batch(item)
        assert [element(mailbox).schema.names for _ in range(3)] == [["n", "s"], ["z"], ["n", "s"]]
        sender.shut()


_columns = st.lists(st.one_of(st.none(), st.integers(-5, 5)), min_size=1, max_size=40)


@given(_columns, st.data())
@settings(deadline=None, max_examples=60)
def test_any_slice_of_a_batch_is_serialized_without_loss(
    values: list[int | None], data: st.DataObject
) -> None:
    texts = pa.array([None if v is None else "t" * abs(v) for v in values])
    whole = pa.record_batch(
        {
            "i": pa.array(values, pa.int64()),
            "s": texts,
            "d": texts.dictionary_encode(),
            "b": pa.array([None if v is None else v > 0 for v in values]),
            "l": pa.array([None if v is None else [v] * abs(v) for v in values], pa.list_(pa.int64())),
        }
    )
    start = data.draw(st.integers(0, len(values)))
    part = whole.slice(start, data.draw(st.integers(0, len(values) - start)))
    serializer = BatchSerializer(whole)
    message = b"".join(bytes(item) for item in serializer.buffers(part))
    back = pa.ipc.read_record_batch(pa.ipc.read_message(message), serializer.schema)
    assert back.to_pylist() == part.to_pylist()


def test_sending_a_batch_copies_none_of_its_column_data() -> None:
    original = pa.record_batch({"n": pa.array(range(1000))})
    address = original.column(0).buffers()[1].address
    parts = BatchSerializer(original).buffers(original)
    assert address in [part.address for part in parts if isinstance(part, pa.Buffer)]


def test_a_receiver_that_does_not_read_stops_its_sender_which_goes_on_when_it_reads() -> None:
    with receiver(places=3) as (server, mailbox), sending(connect(server), batches=4) as (output, _):
        for start in range(7):
            assert not output.full
            output.send_data(0, batch(start))
            eventually("three batches go on the wire", lambda at=start: waiting(output) == max(0, at - 2))  # type: ignore[misc]
        assert output.full
        received = [element(mailbox).column("n")[0].as_py() for _ in range(3)]
        eventually("there is room again", lambda: not output.full)
        assert received + [element(mailbox).column("n")[0].as_py() for _ in range(4)] == list(range(7))


def waiting(output: BufferedOutput) -> int:
    """Return how many elements wait in the first buffer."""
    return len(output._buffers[0]._queue)


def test_a_blocked_channel_is_not_read_while_the_other_flows() -> None:
    with receiver(channels=2) as (server, mailbox):
        senders = [connect(server, 0), connect(server, 1)]
        senders[0].send_batch(batch(0))
        for i in range(5):
            senders[1].send_batch(batch(100 + i))
        for i in range(5):
            taken = mailbox.take([True, False], PATIENCE_S)
            assert isinstance(taken, tuple)
            assert (taken[0], taken[1].column(0)[0].as_py()) == (1, 100 + i)
        eventually(
            "the batch of the blocked channel arrives", lambda: mailbox.buffered_bytes([True, False]) > 0
        )
        assert mailbox.take([True, False], 0.0) is None
        assert mailbox.buffered_bytes([False, True]) == 0
        assert mailbox.take([False, False], PATIENCE_S) is not None
        for sender in senders:
            sender.shut()


def test_a_call_wakes_the_loop_and_overtakes_batches() -> None:
    mailbox = Mailbox(1, 8)
    called: list[str] = []
    mailbox.put(0, batch(0), 100)
    mailbox.post(lambda: called.append("message"))
    first = mailbox.take([False], 0.0)
    assert callable(first)
    first()
    assert called == ["message"]
    assert isinstance(mailbox.take([False], 0.0), tuple)
    threading.Timer(0.02, lambda: mailbox.post(lambda: None)).start()
    assert callable(mailbox.take([False], PATIENCE_S))


def test_the_sender_s_sudden_end_fails_the_receiver_and_an_orderly_end_does_not() -> None:
    with receiver(channels=2) as (server, mailbox):
        orderly, sudden = connect(server, 0), connect(server, 1)
        with sending(orderly) as (output, _):
            output.finish()
        assert mailbox.take([False, False], 0.1) is None
        sudden.shut()
        with pytest.raises(ConnectionLost, match=r"source\[1\]->totals\[0\]: the sender is gone"):
            mailbox.take([False, False], PATIENCE_S)


def test_an_older_attempt_is_refused_with_the_reason() -> None:
    with receiver() as (server, _), pytest.raises(HandshakeRefused, match="attempt 2 is not attempt 3"):
        connect(server, attempt=AttemptNumber(2))


def test_a_second_connection_for_the_same_channel_is_refused() -> None:
    with receiver() as (server, _):
        sender = connect(server)
        with pytest.raises(HandshakeRefused, match="connected already"):
            connect(server)
        sender.shut()


def test_a_channel_that_ends_elsewhere_is_refused() -> None:
    with receiver() as (server, _), pytest.raises(HandshakeRefused, match="does not end here"):
        connect(server, number=1)


def test_refused_channels_are_counted_by_kind_and_reported_once() -> None:
    with receiver() as (server, _):
        for number, attempt in ((0, 2), (1, ATTEMPT), (0, 2)):
            with pytest.raises(HandshakeRefused):
                connect(server, number, AttemptNumber(attempt))
        # A refusal is counted when its reason has been sent, so the refused peer may know it first.
        counted: Counter[str] = Counter()

        def all_counted() -> bool:
            counted.update(server.take_refused())
            return counted.total() >= 3

        eventually("three are counted", all_counted)
        assert counted == {"not_wanted": 3}
        assert server.take_refused() == {}


def test_a_cancelled_receiver_ends_its_reader_at_once_although_the_queue_is_full() -> None:
    mailbox = Mailbox(1, 1)
    server = ChannelServer("127.0.0.1")
    server.start(CHANNELS[:1], ATTEMPT, SECRET, mailbox)
    sender = connect(server)
    sender.send_batch(batch(0))
    element(mailbox)
    sender.send_batch(batch(1))
    mailbox.fail(SubtaskCancelled("cancelled"))
    server.close()
    assert not [
        thread for thread in threading.enumerate() if thread.name.startswith(f"channels-{server.port}")
    ]
    sender.shut()


def test_bytes_that_are_no_frame_fail_the_receiver() -> None:
    with receiver() as (server, mailbox):
        sender = connect(server)
        connection: socket.socket = sender._connection
        connection.sendall(b"\x63" + b"\xff" * 15)
        with pytest.raises(ConnectionLost, match="a frame of kind 99"):
            mailbox.take([False], PATIENCE_S)
        sender.shut()


def test_a_server_without_file_descriptors_for_a_moment_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    accept, failures = socket.socket.accept, iter([OSError(errno.EMFILE, "Too many open files")])

    def sometimes(listener: socket.socket) -> Any:
        for failure in failures:
            raise failure
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", sometimes)
    with receiver() as (server, mailbox):
        sender = connect(server)
        sender.send_batch(batch(0))
        assert element(mailbox).equals(batch(0))
        sender.shut()
    assert list(failures) == []
