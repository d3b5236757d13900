"""Peers out of reach: connecting again within a bound, silence at the slot's end, authentication through a proxy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barrier_tck.faults.toxiproxy.client import ToxiproxyClient
from barrier_tck.faults.toxiproxy.embedded import EmbeddedServer
from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, CheckpointId, SubtaskId
from barrier_tck.reference_impl.protocol.messages import DeclineCheckpoint
from barrier_tck.reference_impl.runtime_errors import JobUsageError
from barrier_tck.reference_impl.spark.connect import connect_with_retries
from barrier_tck.reference_impl.spark.control_link import ControlLink
from barrier_tck.reference_impl.spark.control_wire import ConnectionLost, encode, receive_frame, send_frame
from barrier_tck.reference_impl.spark.coordinator_service import CoordinatorService
from barrier_tck.reference_impl.spark.handshake import (
    Claim,
    HandshakeRefused,
    NotAdmitted,
    Unanswered,
    accept_peer,
    new_secret,
)
from barrier_tck.reference_impl.spark.link_messages import Heartbeat
from barrier_tck.reference_impl.spark.mailbox import Mailbox, SubtaskCancelled
from barrier_tck.reference_impl.spark.routes import CoordinatorAddress, DirectRoutes
from barrier_tck.reference_impl.spark.spark_options import SparkOptions
from barrier_tck.reference_impl.spark.transport import ChannelServer, OpenConnections, connect_channel
from tests.waiting import PATIENCE_S

SECRET = new_secret()
CHANNEL = ChannelId(SubtaskId("source", 0), SubtaskId("totals", 0))
ATTEMPT = AttemptNumber(1)


def never(_seconds: float) -> bool:
    return False


def test_a_peer_that_comes_into_reach_is_connected_to() -> None:
    tries: list[float] = []

    def connect(left_s: float) -> str:
        tries.append(left_s)
        if len(tries) < 3:
            raise ConnectionLost("nobody there")
        return "connected"

    assert connect_with_retries(connect, 60.0, never) == "connected"
    assert len(tries) == 3
    assert tries == sorted(tries, reverse=True), "each try gets the rest of the bound"


def test_at_the_bound_the_last_error_is_raised() -> None:
    def connect(_left_s: float) -> str:
        raise ConnectionLost("nobody there")

    with pytest.raises(ConnectionLost, match="nobody there"):
        connect_with_retries(connect, 0.25, threading.Event().wait)


@contextmanager
def unanswering() -> Iterator[tuple[str, int]]:
    """A server that takes proofs and closes the connection without an answer."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for _ in range(2):
            connection, _ = listener.accept()
            with connection:
                send_frame(connection, bytes(32))
                receive_frame(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()
    thread.join()
    listener.close()


def test_a_peer_that_may_have_been_admitted_tries_again_only_where_that_is_safe() -> None:
    pauses: list[float] = []
    with unanswering() as (host, port):

        def connect(_left_s: float) -> Any:
            return connect_channel(CHANNEL, host, port, ATTEMPT, SECRET, PATIENCE_S)

        def stop(seconds: float) -> bool:
            pauses.append(seconds)
            return True

        with pytest.raises(Unanswered):
            connect_with_retries(connect, 60.0, stop, (NotAdmitted, Unanswered))
        assert pauses == []
        with pytest.raises(Unanswered):
            connect_with_retries(connect, 60.0, stop)
        assert len(pauses) == 1


@pytest.mark.parametrize("stops", [True, False])
def test_a_peer_that_is_stopped_or_refused_with_a_reason_does_not_try_again(stops: bool) -> None:
    tries: list[float] = []

    def connect(left_s: float) -> str:
        tries.append(left_s)
        raise ConnectionLost("gone") if stops else NotAdmitted("attempt 1 is over")

    with pytest.raises((ConnectionLost, NotAdmitted)):
        connect_with_retries(connect, 60.0, lambda _seconds: True)
    assert len(tries) == 1


def test_a_cancelled_subtask_stops_trying() -> None:
    opened = OpenConnections()
    assert not opened.shut_within(0.0)
    opened.shut()
    assert opened.shut_within(0.0)


def test_a_slot_goes_the_way_that_is_listed_for_its_host_and_number() -> None:
    address = CoordinatorAddress(("c", 1), {("h", 2): ("p", 3)})
    assert address.of_slot("h", 2) == ("p", 3)
    assert address.of_slot("h", 1) == address.of_slot("g", 2) == ("c", 1)
    assert not DirectRoutes().to_coordinator(("c", 1), 5)


def test_a_subtask_may_not_end_before_it_is_given_up() -> None:
    with pytest.raises(JobUsageError, match="isolation_timeout_ms=4000"):
        SparkOptions(isolation_timeout_ms=4_000)


@contextmanager
def mute_coordinator(answers: int) -> Iterator[ControlLink]:
    """A coordinator that answers a given number of heartbeats, and then only keeps the connection open."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        accept_peer(connection, SECRET, lambda _claim: "")
        heard = 0
        while receive_frame(connection) is not None:
            heard += 1
            if heard <= answers:
                send_frame(connection, encode(Heartbeat()))
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    link = ControlLink.connect(
        listener.getsockname(), SECRET, Claim("slot", 1, "0"), 0.02, 5.0, silence_s=0.3
    )
    try:
        yield link
    finally:
        link.close()
        thread.join()
        listener.close()


def test_a_subtask_that_hears_nothing_of_the_coordinator_ends_itself() -> None:
    ends: list[str] = []
    with mute_coordinator(answers=3) as link:
        link.start_reading(lambda _message: None, ends.append)
        assert link.ends_within(PATIENCE_S)
        with pytest.raises(SubtaskCancelled):
            link.send(Heartbeat())
    assert ends == ["nothing was heard from the coordinator for more than 0.3 s"]


@pytest.mark.long
def test_answers_to_heartbeats_are_enough_to_go_on_and_no_message_for_the_subtask() -> None:
    heard: list[Any] = []
    with mute_coordinator(answers=1_000_000) as link:
        link.start_reading(heard.append, lambda _reason: None)
        assert not link.ends_within(1.0)
    assert heard == []


@pytest.mark.long
def test_a_blocked_send_does_not_hide_that_the_coordinator_is_silent() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[socket.socket] = []

    def serve() -> None:
        connection, _ = listener.accept()
        accept_peer(connection, SECRET, lambda _claim: "")
        accepted.append(connection)  # and never read from it

    thread = threading.Thread(target=serve)
    thread.start()
    link = ControlLink.connect(
        listener.getsockname(), SECRET, Claim("slot", 1, "0"), 0.02, 5.0, silence_s=0.3
    )
    thread.join()
    large = DeclineCheckpoint(ATTEMPT, CheckpointId(1), SubtaskId("totals", 0), "x" * (8 << 20))
    reasons: list[str] = []

    def send_for_ever() -> None:
        try:
            while True:
                link.send(large)
        except SubtaskCancelled as error:
            reasons.append(str(error))

    sender = threading.Thread(target=send_for_ever)
    sender.start()
    sender.join(PATIENCE_S)
    ended = list(reasons)
    link.close()
    accepted[0].close()
    listener.close()
    assert len(ended) == 1
    assert "the coordinator is gone" in ended[0]


@pytest.fixture(name="proxies")
def _proxies() -> Iterator[ToxiproxyClient]:
    server = EmbeddedServer()
    server.start()
    yield ToxiproxyClient(server.url)
    server.close()


@pytest.mark.parametrize("secret", [SECRET, new_secret()], ids=["right", "wrong"])
def test_a_data_channel_is_authenticated_through_a_proxy(proxies: ToxiproxyClient, secret: bytes) -> None:
    mailbox = Mailbox(1, 8)
    server = ChannelServer("127.0.0.1")
    server.start([CHANNEL], ATTEMPT, SECRET, mailbox)
    host, port = proxies.create("data", ("127.0.0.1", server.port))
    try:
        if secret == SECRET:
            connect_channel(CHANNEL, host, port, ATTEMPT, secret, PATIENCE_S).finish()
        else:
            with pytest.raises(HandshakeRefused, match="without a reason"):
                connect_channel(CHANNEL, host, port, ATTEMPT, secret, PATIENCE_S)
    finally:
        mailbox.fail(SubtaskCancelled("the test is over"))
        server.close()


class Nobody:
    """Notes every event; none may come."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def slot_offered(self, connection: Any) -> None:
        self.events.append("offered")

    def message_received(self, connection: Any, message: Any) -> None:
        self.events.append("message")

    def slot_lost(self, connection: Any, reason: str) -> None:
        self.events.append("lost")


def test_a_control_connection_with_a_wrong_or_no_secret_is_refused_through_a_proxy(
    proxies: ToxiproxyClient,
) -> None:
    nobody = Nobody()
    service = CoordinatorService("127.0.0.1", SECRET, lambda call: call(), nobody, 5_000)
    service.start()
    service.admit_attempt(1)
    address = proxies.create("control", ("127.0.0.1", service.port))
    try:
        with pytest.raises(HandshakeRefused, match="without a reason"):
            ControlLink.connect(address, new_secret(), Claim("slot", 1, "0"), 0.1, PATIENCE_S)
        with socket.create_connection(address, PATIENCE_S) as bare:
            bare.settimeout(PATIENCE_S)
            bare.sendall(b"\0\0\0\4junk")
            while bare.recv(64):
                pass
        ControlLink.connect(address, SECRET, Claim("slot", 1, "0"), 0.1, PATIENCE_S).close()
        assert "offered" not in nobody.events
    finally:
        service.close()
