"""Strangers at both TCP servers of a job: honest peers are let in and stay, and every stranger is counted, not printed.

Grain: the servers over real sockets. Places for unproven peers are few here, so that few strangers fill them.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from barrier_tck.reference_impl.ids import AttemptNumber
from barrier_tck.reference_impl.protocol.messages import InputConsumed
from barrier_tck.reference_impl.spark import listener, subtask_process
from barrier_tck.reference_impl.spark.control_link import ControlLink
from barrier_tck.reference_impl.spark.control_wire import encode, send_frame
from barrier_tck.reference_impl.spark.handshake import Claim, HandshakeRefused, introduce
from barrier_tck.reference_impl.spark.link_messages import SlotOffer
from barrier_tck.reference_impl.spark.mailbox import Mailbox
from barrier_tck.reference_impl.spark.transport import ChannelSender, ChannelServer
from tests.reference_impl import test_spark_coordinator_service as control
from tests.reference_impl import test_spark_transport as data
from tests.waiting import PATIENCE_S, eventually

PLACES = 8
"""How many peers may be unproven at a time."""


@dataclass
class Server:
    """One of the servers, and what an honest peer says to it."""

    port: int
    secret: bytes
    claim: Claim
    refused: Callable[[], Counter[str]]
    """How many peers were refused so far, by kind."""
    hears: Callable[[socket.socket], bool]
    """Says something on an honest peer's connection, and tells whether the server hears it."""

    def opened(self) -> socket.socket:
        """Open a connection that says nothing yet."""
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)

    def prove(self, connection: socket.socket) -> None:
        """Prove that an honest peer is at the other end."""
        introduce(connection, self.secret, self.claim, PATIENCE_S)
        connection.settimeout(PATIENCE_S)


@contextlib.contextmanager
def coordinator() -> Iterator[Server]:
    """Run the coordinator's server for control connections."""
    driver = control.Driver()
    offered: list[socket.socket] = []

    def hears(connection: socket.socket) -> bool:
        if connection not in offered:
            offered.append(connection)
            send_frame(connection, encode(control.OFFER))
            return bool(driver.next()[0] == "offered")
        send_frame(connection, encode(InputConsumed(data.ATTEMPT, control.SUBTASK)))
        return bool(driver.next()[0] == "message")

    try:
        yield Server(
            driver.service.port,
            control.SECRET,
            Claim("slot", 1, "0"),
            lambda: Counter(driver.service.refused()),
            hears,
        )
    finally:
        driver.service.close()


@contextlib.contextmanager
def data_channels() -> Iterator[Server]:
    """Run a slot's server for data channels."""
    (channel,) = data.CHANNELS[:1]
    counted: Counter[str] = Counter()

    with data.receiver() as (server, mailbox):

        def refused() -> Counter[str]:
            counted.update(server.take_refused())
            return Counter(counted)

        def hears(connection: socket.socket) -> bool:
            ChannelSender(connection, channel).send_batch(data.batch(0))
            return bool(data.element(mailbox).equals(data.batch(0)))

        claim = Claim("channel", data.ATTEMPT, str(channel))
        yield Server(server.port, data.SECRET, claim, refused, hears)


@pytest.fixture(params=[coordinator, data_channels], ids=lambda server: server.__name__)
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(listener, "_MOST_UNPROVEN_PEERS", PLACES)
    with request.param() as made:
        yield made


def strangers(server: Server, number: int, left: int) -> list[socket.socket]:
    """Let strangers come, until all are taken in: so many unproven peers have had to leave in all."""
    came = [server.opened() for _ in range(number)]
    eventually("the strangers are taken in", lambda: server.refused().total() >= left)
    return came


def test_an_honest_peer_is_let_in_and_stays_whoever_comes_before_during_and_after_its_handshake(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    before = strangers(server, PLACES + 5, left=5)
    honest = server.opened()
    # Fewer than there are places: as the newest of all, the honest peer has that much time.
    during = strangers(server, PLACES - 2, left=5 + 1 + PLACES - 2)
    server.prove(honest)
    assert server.hears(honest)
    # It has no unproven place any more, so all of them have to leave before it.
    after = strangers(server, 3 * PLACES, left=5 + 1 + PLACES - 2 + 3 * PLACES - 1)
    assert server.hears(honest)
    for connection in (*before, *during, *after):
        connection.close()
    number = len(before) + len(during) + len(after)
    eventually("all are counted", lambda: server.refused().total() >= number)
    assert server.refused() == {"crowded_out": number - PLACES, "no_handshake": PLACES}
    assert not caplog.records, "a stranger is counted, and needs no line in a log"
    honest.close()


def test_strangers_of_every_kind_are_counted_under_their_kind(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(HandshakeRefused), server.opened() as other:  # it is not told why
        introduce(other, b"another secret", server.claim, PATIENCE_S)
    with pytest.raises(HandshakeRefused, match="attempt"), server.opened() as late:
        introduce(late, server.secret, Claim(server.claim.role, 99, server.claim.subject), PATIENCE_S)
    older = Claim(server.claim.role, server.claim.attempt, server.claim.subject, "barrier-tck/0")
    with pytest.raises(HandshakeRefused, match="speaks 'barrier-tck/0'"), server.opened() as old:
        introduce(old, server.secret, older, PATIENCE_S)
    with server.opened() as web:
        web.sendall(b"GET / HTTP/1.1\r\n\r\n")
        expected = {"wrong_secret": 1, "not_wanted": 1, "other_version": 1, "no_handshake": 1}
        eventually("all are counted", lambda: server.refused() == expected)
    assert not caplog.records


def test_counts_outlast_attempts_and_the_server_itself() -> None:
    driver = control.Driver()
    for attempt in (1, 2, 3):
        driver.service.admit_attempt(AttemptNumber(attempt))
        with pytest.raises(HandshakeRefused, match=f"attempt {attempt + 7} is over"):
            driver.connect(attempt=attempt + 7)
        eventually("it is counted", lambda: driver.service.refused() == {"not_wanted": attempt})  # noqa: B023
    driver.service.close()
    assert driver.service.refused() == {"not_wanted": 3}


class _OneStranger:
    """Replaces the run of a subtask: a stranger comes and is refused just before the subtask ends."""

    def __init__(self, _program: Any, _deploy: Any, _link: Any, server: ChannelServer, _host: str) -> None:
        self._server = server

    def run(self) -> tuple[str, str]:
        self._server.start(data.CHANNELS[:1], data.ATTEMPT, data.SECRET, Mailbox(1, 1))
        with pytest.raises(HandshakeRefused, match="attempt 2 is not attempt 3"):
            data.connect(self._server, attempt=AttemptNumber(2))
        eventually("it is counted", lambda: self._server._refused)
        return ("finished", "")


def test_a_slot_says_before_it_leaves_whom_it_refused_since_its_last_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = control.Driver()

    def link(*_: Any) -> ControlLink:
        address = ("127.0.0.1", driver.service.port)
        return ControlLink.connect(address, control.SECRET, Claim("slot", 1, "0"), PATIENCE_S, PATIENCE_S)

    def await_deployment(self: ControlLink, offer: SlotOffer) -> Any:
        self.send(offer)
        return SimpleNamespace(deployment=SimpleNamespace(subtask=control.SUBTASK))

    monkeypatch.setattr(subtask_process, "_link_to_coordinator", link)
    monkeypatch.setattr(subtask_process, "_SubtaskRun", _OneStranger)
    monkeypatch.setattr(ControlLink, "await_deployment", await_deployment)
    program: Any = SimpleNamespace(local_files=lambda: None, place_of_copies=lambda host: host)
    executor = subtask_process.Executor(0, "0", "127.0.0.1")
    assert subtask_process.run_slot(program, 0, executor) == (0, "totals[0]", "finished", "")
    assert driver.next()[0] == "offered"
    assert driver.next()[0] == "lost", "everything that the slot said was read before"
    assert driver.service.refused() == {"data_channel_not_wanted": 1}
    driver.service.close()
