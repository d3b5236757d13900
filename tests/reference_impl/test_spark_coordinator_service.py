"""The driver's side of control connections, over real sockets: registration, fencing, silence, and their ends."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barrier_tck.reference_impl.ids import AttemptNumber, SubtaskId
from barrier_tck.reference_impl.protocol.messages import CancelSubtask, FinishSubtask, InputConsumed
from barrier_tck.reference_impl.runtime.ports import RuntimePoint
from barrier_tck.reference_impl.spark.control_link import ControlLink, SlotProbe
from barrier_tck.reference_impl.spark.control_wire import encode, receive_frame, send_frame
from barrier_tck.reference_impl.spark.coordinator_service import CoordinatorService, SlotConnection
from barrier_tck.reference_impl.spark.event_loop import MonotonicClock
from barrier_tck.reference_impl.spark.handshake import Claim, HandshakeRefused, introduce, new_secret
from barrier_tck.reference_impl.spark.link_messages import (
    FirstRecords,
    Heartbeat,
    PointReached,
    Resume,
    SlotOffer,
    SubtaskLeft,
)
from barrier_tck.reference_impl.spark.mailbox import SubtaskCancelled
from tests.waiting import PATIENCE_S, eventually

SECRET = new_secret()
OFFER = SlotOffer(0, "127.0.0.1", 1, 2, 3, "0", "127.0.0.1")
SUBTASK = SubtaskId("totals", 0)


class Driver:
    """Replaces the event loop and its owner: calls are made when the test asks for the next event."""

    def __init__(self, heartbeat_timeout_ms: int = 5000) -> None:
        self.calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.events: list[tuple[Any, ...]] = []
        self.service = CoordinatorService("127.0.0.1", SECRET, self.calls.put, self, heartbeat_timeout_ms)
        self.service.start()
        self.service.admit_attempt(1)

    def slot_offered(self, connection: SlotConnection) -> None:
        self.events.append(("offered", connection))

    def message_received(self, connection: SlotConnection, message: Any) -> None:
        self.events.append(("message", connection, message))

    def slot_lost(self, connection: SlotConnection, reason: str) -> None:
        self.events.append(("lost", connection, reason))

    def next(self) -> tuple[Any, ...]:
        before = len(self.events)
        while len(self.events) == before:
            self.calls.get(timeout=PATIENCE_S)()
        return self.events[-1]

    def drain(self) -> None:
        while not self.calls.empty():
            self.calls.get()()

    def connect(self, attempt: int = 1, slot: int = 0, secret: bytes = SECRET) -> ControlLink:
        claim = Claim("slot", attempt, str(slot))
        return ControlLink.connect(("127.0.0.1", self.service.port), secret, claim, 0.02, PATIENCE_S)


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.service.close()


def registered(driver: Driver) -> socket.socket:
    """Return a bare connection of slot 0 that was admitted."""
    raw = socket.create_connection(("127.0.0.1", driver.service.port), PATIENCE_S)
    introduce(raw, SECRET, Claim("slot", 1, "0"))
    raw.settimeout(PATIENCE_S)
    return raw


def deployed(driver: Driver, link: ControlLink) -> tuple[SlotConnection, list[Any], list[str]]:
    """Register a slot and start reading; return the driver's end, and what the slot's end receives."""
    link.send(OFFER)
    kind, connection = driver.next()
    assert (kind, connection.offer) == ("offered", OFFER)
    heard: list[Any] = []
    ends: list[str] = []
    link.start_reading(heard.append, ends.append)
    return connection, heard, ends


def _send_for_ever(link: ControlLink) -> None:
    while True:
        link.send(InputConsumed(AttemptNumber(1), SUBTASK))


def test_a_slot_registers_and_messages_pass_both_ways(driver: Driver) -> None:
    link = driver.connect()
    connection, heard, _ = deployed(driver, link)
    link.send(InputConsumed(AttemptNumber(1), SUBTASK))
    assert driver.next() == ("message", connection, InputConsumed(AttemptNumber(1), SUBTASK))
    connection.send(FinishSubtask())
    eventually("the driver has noticed", lambda: heard == [FinishSubtask()])
    link.close()


def test_a_slot_of_an_older_attempt_is_refused(driver: Driver) -> None:
    driver.service.admit_attempt(2)
    with pytest.raises(HandshakeRefused, match="attempt 1 is over, attempt 2 runs"):
        driver.connect(attempt=1)


def test_between_attempts_nobody_is_let_in(driver: Driver) -> None:
    driver.service.close_attempt()
    with pytest.raises(HandshakeRefused, match="no attempt runs"):
        driver.connect(attempt=1)


def test_a_slot_with_another_secret_is_refused(driver: Driver) -> None:
    with pytest.raises(HandshakeRefused):
        driver.connect(secret=new_secret())


def test_the_same_slot_cannot_register_twice(driver: Driver) -> None:
    link = driver.connect()
    deployed(driver, link)
    with pytest.raises(HandshakeRefused, match="slot 0 is registered already"):
        driver.connect()
    link.close()


def test_a_message_that_waits_when_its_attempt_ends_is_dropped(driver: Driver) -> None:
    link = driver.connect()
    deployed(driver, link)
    link.send(InputConsumed(AttemptNumber(1), SUBTASK))
    eventually("the driver has noticed", lambda: not driver.calls.empty())
    driver.service.admit_attempt(2)
    driver.drain()
    assert [event[0] for event in driver.events if event[0] == "message"] == []
    link.close()


def test_a_new_attempt_ends_the_subtasks_of_the_old_one_at_once(driver: Driver) -> None:
    link = driver.connect()
    _, _, ends = deployed(driver, link)
    driver.service.admit_attempt(2)
    eventually("the driver has noticed", lambda: ends)
    with pytest.raises(SubtaskCancelled, match="the coordinator is gone"):
        _send_for_ever(link)
    link.close()


def test_the_end_of_a_connection_is_reported_at_once(driver: Driver) -> None:
    link = driver.connect()
    connection, _, _ = deployed(driver, link)
    link.close()
    assert driver.next() == ("lost", connection, "its control connection ended")
    assert not connection.left


def test_an_announced_end_is_told_from_a_loss(driver: Driver) -> None:
    link = driver.connect()
    connection, _, _ = deployed(driver, link)
    link.send(SubtaskLeft())
    link.close()
    driver.next()
    assert connection.left


def test_silence_is_noticed_and_heartbeats_prevent_it() -> None:
    driver = Driver(heartbeat_timeout_ms=150)
    beating = driver.connect(slot=1)
    beating.send(SlotOffer(1, "127.0.0.1", 1, 2, 3, "0", "127.0.0.1"))
    driver.next()
    silent = registered(driver)
    send_frame(silent, encode(OFFER))
    eventually(
        "the driver has noticed",
        lambda: [connection.slot for connection in driver.service.timed_out()] == [0],
    )
    silent.close()
    beating.close()
    driver.service.close()


def test_silence_says_nothing_after_the_driver_itself_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = {"now": 100.0}
    monkeypatch.setattr(
        "barrier_tck.reference_impl.spark.coordinator_service.time.monotonic", lambda: clock["now"]
    )
    driver = Driver(heartbeat_timeout_ms=1000)
    raw = registered(driver)
    send_frame(raw, encode(OFFER))
    _, connection = driver.next()
    clock["now"] = 100.5
    assert driver.service.timed_out() == []
    clock["now"] = 101.0
    assert driver.service.timed_out() == []
    clock["now"] = 104.0
    assert driver.service.timed_out() == [], "its heartbeats may wait in the socket"
    clock["now"] = 104.5
    assert driver.service.timed_out() == [connection], "it had the time between two checks"
    raw.close()
    driver.service.close()


def test_a_slot_that_is_held_up_before_it_offers_itself_may_send_heartbeats(driver: Driver) -> None:
    raw = registered(driver)
    for message in (Heartbeat(), Heartbeat(), OFFER):
        send_frame(raw, encode(message))
    kind, connection = driver.next()
    assert (kind, connection.offer) == ("offered", OFFER)
    answers = [bytes(receive_frame(raw) or b""), bytes(receive_frame(raw) or b"")]
    assert answers == [encode(Heartbeat())] * 2, "silence would end the slot"
    raw.close()


def test_a_slot_begins_with_an_offer(driver: Driver) -> None:
    raw = registered(driver)
    send_frame(raw, encode(SubtaskLeft()))
    kind, _, reason = driver.next()
    assert kind == "lost"
    assert "a SubtaskLeft where only a SlotOffer may come" in reason
    raw.close()


def test_a_slot_that_did_not_learn_that_it_was_let_in_tries_again(driver: Driver) -> None:
    unaware = registered(driver)
    link = driver.connect()
    _, heard, _ = deployed(driver, link)
    assert receive_frame(unaware) is None, "its first connection ends"
    unaware.close()
    link.send(InputConsumed(AttemptNumber(1), SUBTASK))
    assert driver.next()[0] == "message"
    assert [event[0] for event in driver.events] == ["offered", "message"], (
        "the attempt does not fail because of it"
    )
    assert heard == []
    link.close()


def test_a_frame_that_is_no_message_costs_the_connection(driver: Driver) -> None:
    raw = registered(driver)
    send_frame(raw, b"\x92\xa4Evil\x80")
    kind, _, reason = driver.next()
    assert kind == "lost"
    assert "unknown kind 'Evil'" in reason
    raw.close()


def test_a_slot_that_is_cancelled_instead_of_deployed_learns_the_reason(driver: Driver) -> None:
    link = driver.connect()
    failures: list[str] = []

    def wait() -> None:
        try:
            link.await_deployment(OFFER)
        except SubtaskCancelled as error:
            failures.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    _, connection = driver.next()
    connection.send(CancelSubtask("attempt 1 failed"))
    thread.join(PATIENCE_S)
    assert failures == ["no deployment: attempt 1 failed"]
    link.close()


def test_a_subtask_stands_still_at_a_watched_point_until_it_is_resumed(driver: Driver) -> None:
    link = driver.connect()
    connection, _, _ = deployed(driver, link)
    probe = SlotProbe(link, MonotonicClock(0), frozenset({RuntimePoint.SNAPSHOT_TAKEN}))
    passed = threading.Event()

    def subtask() -> None:
        probe.reach(RuntimePoint.BARRIER_RECEIVED)
        probe.reach(RuntimePoint.RECORDS_PROCESSED)
        probe.reach(RuntimePoint.RECORDS_PROCESSED)
        probe.reach(RuntimePoint.SNAPSHOT_TAKEN)
        passed.set()

    thread = threading.Thread(target=subtask)
    thread.start()
    assert isinstance(driver.next()[2], FirstRecords)
    assert driver.next()[2] == PointReached(1, "snapshot_taken", None)
    assert not passed.wait(0.05)
    connection.send(Resume(1))
    assert passed.wait(PATIENCE_S)
    thread.join()
    link.close()


def test_a_subtask_at_a_watched_point_ends_with_its_attempt(driver: Driver) -> None:
    link = driver.connect()
    deployed(driver, link)
    probe = SlotProbe(link, MonotonicClock(0), frozenset({RuntimePoint.RESTORED}))
    ended: list[str] = []

    def subtask() -> None:
        try:
            probe.reach(RuntimePoint.RESTORED)
        except SubtaskCancelled as error:
            ended.append(str(error))

    thread = threading.Thread(target=subtask)
    thread.start()
    driver.next()
    driver.service.close_attempt()
    thread.join(PATIENCE_S)
    assert ended == ["the coordinator hung up"]
    link.close()


def test_connections_that_say_nothing_cannot_keep_a_slot_out(driver: Driver) -> None:
    """Each peer holds a place for ten seconds; a slot that is delayed for so long has lost its attempt."""
    idle = [socket.create_connection(("127.0.0.1", driver.service.port), PATIENCE_S) for _ in range(200)]
    eventually("the driver has noticed", lambda: sum(driver.service.refused().values()) >= 200 - 64)
    link = driver.connect()
    _, _, ends = deployed(driver, link)
    assert set(driver.service.refused()) == {"crowded_out"}
    assert not ends
    for connection in idle:
        connection.close()
    link.close()


def test_refused_connections_are_counted_by_kind(driver: Driver) -> None:
    for secret, attempt in ((new_secret(), 1), (SECRET, 7), (SECRET, 8)):
        with pytest.raises(HandshakeRefused):
            driver.connect(attempt=attempt, secret=secret)
    stranger = socket.create_connection(("127.0.0.1", driver.service.port), PATIENCE_S)
    stranger.sendall(b"\x00\x00\x00\x03GET")
    eventually("the driver has noticed", lambda: sum(driver.service.refused().values()) == 4)
    assert driver.service.refused() == {"no_handshake": 1, "wrong_secret": 1, "not_wanted": 2}
    stranger.close()


def test_data_channels_that_slots_refused_are_counted_beside_those_refused_here(driver: Driver) -> None:
    link = driver.connect()
    deployed(driver, link)
    news = iter([{"not_wanted": 2}, {"not_wanted": 1, "wrong_secret": 4}])
    link.report_refused(lambda: next(news, {}))
    expected = {"data_channel_wrong_secret": 4, "data_channel_not_wanted": 3}
    link.send_refused()
    link.send_refused()
    eventually("the driver has noticed", lambda: driver.service.refused() == expected)
    link.close()


def test_refused_data_channels_are_told_with_the_heartbeats(driver: Driver) -> None:
    link = driver.connect()
    deployed(driver, link)
    news = iter([{"no_proof": 1}])
    link.report_refused(lambda: next(news, {}))
    eventually("the driver has noticed", lambda: driver.service.refused() == {"data_channel_no_proof": 1})
    link.close()
