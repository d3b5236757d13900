"""Barriers that overtake, over real sockets: what they pass by, what arrives behind them, fragments, hostile peers."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, CheckpointId, SubtaskId
from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.protocol.messages import CheckpointBarrier, EndOfInput
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.spark.control_wire import ConnectionLost, WireError
from barrier_tck.reference_impl.spark.fragments import Joiner, cut
from barrier_tck.reference_impl.spark.handshake import new_secret
from barrier_tck.reference_impl.spark.mailbox import Arrivals, Mailbox, SubtaskCancelled
from barrier_tck.reference_impl.spark.output_buffers import BufferedOutput
from barrier_tck.reference_impl.spark.transport import ChannelSender, ChannelServer, connect_channel
from barrier_tck.reference_impl.storage.channel_state import Fragment
from tests.waiting import PATIENCE_S, eventually

SECRET = new_secret()
CHANNEL = ChannelId(SubtaskId("source", 0), SubtaskId("totals", 0))
ATTEMPT = AttemptNumber(1)
PLACES = 3
_CREDIT = 6
_HEADER = struct.Struct("<BB2xIQ")


def stored(buffer: pa.RecordBatch | Fragment) -> list[Fragment]:
    """Return what channel state holds of a buffer."""
    return [buffer] if isinstance(buffer, Fragment) else cut(buffer, 1 << 30)


def decoded(buffer: pa.RecordBatch | Fragment) -> Any:
    return ArrowPlane().decode(buffer.data) if isinstance(buffer, Fragment) else buffer


def barrier(number: int) -> CheckpointBarrier:
    return CheckpointBarrier(CheckpointId(number), 1000 + number)


def batch(start: int, rows: int = 10) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(start, start + rows))})


class Line:
    """One channel with a buffer at one end and a mailbox at the other, and what the mailbox told."""

    def __init__(self, fragment_bytes: int = 1 << 20) -> None:
        self.told: list[Any] = []
        self.sent: list[int] = []
        self.recorded = False
        self.failures: list[RuntimeFailure] = []
        self.room = threading.Event()
        arrivals = Arrivals(
            lambda _channel, one: self.told.append(one),
            lambda _channel, one: self.told.append(one),
            lambda _channel: self.recorded,
        )
        self.mailbox = Mailbox(1, PLACES, arrivals)
        self.server = ChannelServer("127.0.0.1")
        self.server.start([CHANNEL], ATTEMPT, SECRET, self.mailbox)
        self.sender: ChannelSender = connect_channel(
            CHANNEL, "127.0.0.1", self.server.port, ATTEMPT, SECRET, 5.0
        )
        self.output = BufferedOutput(
            [self.sender], 4, 1 << 25, fragment_bytes, self.room.set, self._sent, self.failures.append
        )

    def _sent(self, channel: int, checkpoint: CheckpointId) -> None:
        self.sent.append(checkpoint)

    def close(self) -> None:
        self.output.close()
        self.mailbox.fail(SubtaskCancelled("the test is over"))
        self.server.close()

    def fill(self, batches: int) -> None:
        """Send batches 0, 1, ... and wait until as many as may arrive did; none of them is read."""
        for number in range(batches):
            self.output.send_data(0, batch(number))
        self.arrive(min(batches, PLACES))

    def arrive(self, count: int) -> None:
        """Tell of what arrived, without reading anything, until so many elements lie in the queue."""
        eventually(
            "the elements arrive", lambda: self._pump() and len(self.mailbox._channels[0].queue) >= count
        )

    def _pump(self) -> bool:
        call = self.mailbox.take([True], 0.0)
        while callable(call):
            call()
            call = self.mailbox.take([True], 0.0)
        return True

    def next(self) -> Any:
        """Read the next element in line."""
        taken: Any = None
        deadline = time.monotonic() + PATIENCE_S
        while not isinstance(taken, tuple):
            assert time.monotonic() < deadline, "nothing can be read"
            taken = self.mailbox.take([False], 0.05)
            if callable(taken):
                taken()
        return taken[1]


@contextmanager
def line(fragment_bytes: int = 1 << 20) -> Iterator[Line]:
    made = Line(fragment_bytes)
    try:
        yield made
    finally:
        made.close()


def starts(elements: Any) -> list[int]:
    return [one.column("n")[0].as_py() for one in elements]


def test_a_barrier_passes_by_what_waits_at_both_ends_of_a_channel_that_nobody_reads() -> None:
    with line() as here:
        here.fill(7)
        assert starts(here.output.send_ahead(0, barrier(1))) == [3, 4, 5, 6]
        here.arrive(PLACES + 1)
        assert here.told == [barrier(1)], "it arrived although the receiver has no room for data"
        assert starts(here.mailbox.overtake(0, CheckpointId(1))) == [0, 1, 2]
        assert starts(here.next() for _ in range(7)) == [0, 1, 2, 3, 4, 5, 6], "the data stays in order"
        assert here.mailbox.take([False], 0.0) is None, "the barrier was taken out"


def test_a_barrier_in_line_passes_by_nothing_and_is_read_at_its_place() -> None:
    with line() as here:
        here.output.send_data(0, batch(0))
        here.output.send_control(0, barrier(1))
        here.output.send_data(0, batch(1))
        assert starts([here.next()]) == [0]
        assert here.next() == barrier(1)
        assert here.mailbox.overtake(0, CheckpointId(1)) == (), "what is left came behind it"
        assert starts([here.next()]) == [1]
        assert here.told == [barrier(1)]
        assert here.sent == [1]


def test_what_lies_behind_the_barrier_in_the_queue_is_not_overtaken() -> None:
    with line() as here:
        here.output.send_data(0, batch(0))
        here.output.send_control(0, barrier(1))
        here.output.send_data(0, batch(1))
        here.arrive(3)
        assert starts(here.mailbox.overtake(0, CheckpointId(1))) == [0]
        assert starts(here.mailbox.overtake(0, CheckpointId(2))) == [0, 1]


def test_a_barrier_that_waits_in_line_can_still_be_put_ahead_and_one_on_the_wire_cannot() -> None:
    with line() as here:
        here.fill(5)
        here.output.send_control(0, barrier(1))
        here.output.send_data(0, batch(5))
        assert here.output.holds(0, CheckpointId(1))
        assert starts(here.output.send_ahead(0, barrier(1))) == [3, 4], "5 lies behind it"
        here.arrive(PLACES + 1)
        assert not here.output.holds(0, CheckpointId(1))
        assert here.output.send_ahead(0, barrier(1)) == ()
        assert here.told == [barrier(1)]
        assert here.sent == [], "it did not leave in line"
        assert [starts([here.next()]) for _ in range(3)] == [[0], [1], [2]]
        assert here.next() == barrier(1)
        assert starts(here.next() for _ in range(3)) == [3, 4, 5]


def test_barriers_that_overtake_stay_in_order() -> None:
    with line() as here:
        here.fill(5)
        for number in (1, 2, 3):
            assert starts(here.output.send_ahead(0, barrier(number))) == [3, 4]
        here.arrive(PLACES + 3)
        assert here.told == [barrier(1), barrier(2), barrier(3)]


def test_an_older_barrier_that_waits_in_line_goes_along() -> None:
    with line() as here:
        here.fill(4)
        here.output.send_control(0, barrier(1))
        here.output.send_data(0, batch(4))
        assert starts(here.output.send_ahead(0, barrier(2))) == [3, 4]
        here.arrive(PLACES + 2)
        assert here.told == [barrier(1), barrier(2)]


def test_the_end_of_input_may_be_overtaken_and_is_no_data() -> None:
    with line() as here:
        here.fill(4)
        here.output.send_control(0, EndOfInput())
        assert starts(here.output.send_ahead(0, barrier(1))) == [3]
        assert starts(here.next() for _ in range(3)) == [0, 1, 2]
        assert here.next() == barrier(1)
        assert starts([here.next()]) == [3]
        assert here.next() == EndOfInput()


def test_arrivals_are_told_of_while_a_channel_is_recorded_and_announced_in_their_order() -> None:
    with line() as here:
        here.fill(1)
        here.recorded = True
        assert starts(here.mailbox.overtake(0, CheckpointId(1))) == [0]
        here.output.send_data(0, batch(1))
        here.output.send_control(0, barrier(1))
        here.output.send_data(0, batch(2))
        here.arrive(4)
        assert [one if isinstance(one, CheckpointBarrier) else starts([one]) for one in here.told] == [
            [1],
            barrier(1),
            [2],
        ]


def test_while_output_waits_barriers_are_read_and_data_is_not() -> None:
    with line() as here:
        here.output.send_control(0, barrier(1))
        here.output.send_data(0, batch(0))
        here.output.send_control(0, EndOfInput())
        here.mailbox.reads_data = False
        assert here.next() == barrier(1)
        here.arrive(2)
        assert here.mailbox.take([False], 0.0) is None
        here.mailbox.reads_data = True
        assert starts([here.next()]) == [0]
        here.mailbox.reads_data = False
        assert here.mailbox.take([False], 0.0) is None, "the end of input makes operators emit"
        here.mailbox.reads_data = True
        assert here.next() == EndOfInput()


def test_a_channel_that_closes_a_loop_takes_any_number_and_is_read_first_when_it_is_crowded() -> None:
    mailbox = Mailbox(2, PLACES, feedback=[1])
    granted: list[int] = []
    mailbox.opened(1, granted.append)
    assert granted[0] > 1000 * PLACES
    mailbox.put(0, batch(100), 1)
    for number in range(PLACES + 2):
        mailbox.put(1, batch(number), 1)
    order = []
    while (taken := mailbox.take([False, False], 0.0)) is not None:
        assert isinstance(taken, tuple)
        order += starts([taken[1]])
    assert order[:3] == [0, 1, 2], "over its places, nothing else is read"
    assert sorted(order) == [0, 1, 2, 3, 4, 100]


def test_a_full_buffer_says_when_it_has_room() -> None:
    with line() as here:
        here.fill(PLACES + 4)
        assert here.output.full
        assert not here.room.is_set()
        for _ in range(2):
            here.next()
        assert here.room.wait(PATIENCE_S)
        assert not here.output.full


def test_a_barrier_passes_between_two_fragments_of_one_batch_which_is_whole_again_after_a_restore() -> None:
    large = pa.record_batch({"n": pa.array(range(1000))})
    pieces = cut(large, 1000)
    with line(fragment_bytes=1000) as here:
        here.output.send_data(0, large)
        here.output.send_data(0, batch(7))
        here.arrive(PLACES)
        behind = here.output.send_ahead(0, barrier(1))
        here.arrive(PLACES + 1)
        assert here.mailbox.take([False], 0.0) is None, "the first fragment alone cannot be processed"
        before = here.mailbox.overtake(0, CheckpointId(1))
        assert list(before) == pieces[:3], "a fragment that was read is unread data"
        assert list(behind[:-1]) == pieces[3:]
        assert here.next().equals(large), "the batch is processed all the same"
    with line(fragment_bytes=1000) as later:
        later.output.recover(0, [piece for one in behind for piece in stored(one)])
        later.mailbox.recover(0, before)
        later.output.send_data(0, batch(8))
        assert later.next().equals(large)
        assert starts(later.next() for _ in range(2)) == [7, 8]


def test_a_barrier_between_two_fragments_that_is_read_in_line_has_the_first_of_them_ahead() -> None:
    large = pa.record_batch({"n": pa.array(range(1000))})
    with line(fragment_bytes=1000) as here:
        here.output.send_data(0, large)
        here.arrive(PLACES)
        here.output.send_ahead(0, barrier(1))
        here.arrive(PLACES + 1)
        assert here.next() == barrier(1)
        assert list(here.mailbox.overtake(0, CheckpointId(1))) == cut(large, 1000)[:PLACES]
        assert here.next().equals(large)


def test_recovered_elements_come_before_newer_ones_and_take_no_place() -> None:
    with line() as here:
        here.mailbox.recover(0, [piece for number in range(6) for piece in stored(batch(number))])
        here.output.recover(0, [*stored(batch(6)), *stored(batch(7))])
        here.output.send_data(0, batch(8))
        here.arrive(6 + PLACES)
        again = here.mailbox.overtake(0, CheckpointId(1))
        assert starts(decoded(one) for one in again) == list(range(9)), "they are recorded again"
        assert starts(here.next() for _ in range(9)) == list(range(9))


def test_a_reader_that_comes_to_an_end_does_not_fail_and_one_that_breaks_does() -> None:
    with line() as here:
        here.output.finish()
        assert here.mailbox.take([False], 0.05) is None
        assert here.failures == []
    with line() as here:
        here.fill(PLACES + 2)
        here.server.close()
        eventually("the sender fails", lambda: bool(here.failures))
        assert isinstance(here.failures[0], ConnectionLost)
        assert str(CHANNEL) in str(here.failures[0])


def test_a_sender_that_ends_wakes_up_although_it_waits_for_credits() -> None:
    here = Line()
    here.fill(PLACES + 2)
    here.close()
    assert not [one for one in threading.enumerate() if one.name == f"output-{CHANNEL}"]
    assert here.failures == []


# --- hostile peers ----------------------------------------------------------------------------------------------


def test_a_sender_that_sends_without_a_credit_fails_its_receiver() -> None:
    with line() as here:
        for number in range(PLACES + 1):
            here.sender.send_batch(batch(number))
        with pytest.raises(ConnectionLost, match="a batch without a credit: there is room for 3"):
            wait_for_failure(here.mailbox)


def test_a_flood_of_barriers_fails_the_receiver() -> None:
    with line() as here:
        for number in range(4096):
            here.sender.send_control(barrier(number))
        here.arrive(4096)
        here.sender.send_control(barrier(4096))
        with pytest.raises(ConnectionLost, match="more than 4096 control elements"):
            wait_for_failure(here.mailbox)


def wait_for_failure(mailbox: Mailbox) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        mailbox.take([True], 0.05)


@pytest.mark.parametrize(
    "frame",
    [
        _HEADER.pack(_CREDIT, 0, 0, 0),
        _HEADER.pack(_CREDIT, 0, (1 << 20) + 1, 0),
        _HEADER.pack(_CREDIT, 0, 1, 8) + b"x" * 8,
        _HEADER.pack(2, 0, 1, 0),
        b"\xff" * _HEADER.size,
    ],
    ids=["no credit", "too many", "a body", "a batch", "noise"],
)
def test_a_receiver_that_grants_nonsense_fails_its_sender(frame: bytes) -> None:
    near, far = socket.socketpair(socket.AF_UNIX)
    with _buffered(near) as failures, far:
        far.sendall(frame)
        eventually("the sender fails", lambda: bool(failures))
        assert isinstance(failures[0], WireError)


@contextmanager
def _buffered(connection: socket.socket) -> Iterator[list[RuntimeFailure]]:
    failures: list[RuntimeFailure] = []
    sender = ChannelSender.__new__(ChannelSender)
    sender._connection, sender.channel, sender._serializer = connection, CHANNEL, None
    output = BufferedOutput([sender], 4, 1 << 20, 1 << 20, lambda: None, lambda *_: None, failures.append)
    try:
        yield failures
    finally:
        output.close()


@pytest.mark.parametrize(
    ("pieces", "problem"),
    [
        ([Fragment(b"x" * 60, True), Fragment(b"y" * 60)], "a batch of more than 100 bytes"),
        ([Fragment(b"no batch at all")], "15 bytes of fragments that are not a batch"),
        ([Fragment(b"")], "0 bytes of fragments that are not a batch"),
        ([Fragment(b"torn", True), Fragment(b"")], "4 bytes of fragments that are not a batch"),
    ],
)
def test_fragments_that_do_not_fit_are_refused(pieces: list[Fragment], problem: str) -> None:
    joiner = Joiner(100)
    for piece in pieces[:-1]:
        joiner.add(piece)
    with pytest.raises(WireError, match=problem):
        joiner.add(pieces[-1])


def test_a_batch_between_fragments_is_refused() -> None:
    with line() as here:
        here.sender.send_fragment(Fragment(b"x", True))
        here.sender.send_batch(batch(0))
        here.arrive(2)
        assert here.mailbox.take([False], 0.0) is None
        with pytest.raises(WireError, match="another element after 1 fragments"):
            here.next()


@given(st.integers(1, 3000), st.integers(0, 200))
@settings(deadline=None, max_examples=50)
def test_a_batch_survives_any_cut(most_bytes: int, rows: int) -> None:
    original = pa.record_batch({"n": pa.array(range(rows), pa.int64()), "s": pa.array(["x" * 3] * rows)})
    pieces = cut(original, most_bytes)
    assert all(0 < len(piece.data) <= most_bytes for piece in pieces)
    assert [piece.more for piece in pieces] == [True] * (len(pieces) - 1) + [False]
    joiner = Joiner(1 << 20)
    results = [joiner.add(piece) for piece in pieces]
    assert results[:-1] == [None] * (len(pieces) - 1)
    joined = results[-1]
    assert isinstance(joined, pa.RecordBatch)
    assert joined.equals(original)
