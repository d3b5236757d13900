"""The handshake over socket pairs: who is admitted, who is not, and within which time and size limits."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from barrier_tck.reference_impl.spark.handshake import (
    Claim,
    HandshakeRefused,
    accept_peer,
    introduce,
    new_secret,
)
from tests.waiting import PATIENCE_S

SECRET = new_secret()
CLAIM = Claim("channel", 3, "source[0]->totals[1]")


class Server:
    """Runs one server's handshake on a thread."""

    def __init__(self, admit: Callable[[Claim], str] = lambda _: "", timeout_s: float = 5.0) -> None:
        self.end, self.client = socket.socketpair()
        self.claim: Claim | None = None
        self.refused = ""
        self._admit, self._timeout_s = admit, timeout_s
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.claim = accept_peer(self.end, SECRET, self._admit, self._timeout_s)
        except HandshakeRefused as error:
            self.refused = str(error)
            self.end.close()

    def join(self) -> Server:
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()
        return self


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.client.close()
    made.join()
    made.end.close()


def test_both_sides_accept_each_other_and_the_claim_arrives(server: Server) -> None:
    introduce(server.client, SECRET, CLAIM, PATIENCE_S)
    assert server.join().claim == CLAIM
    server.client.sendall(b"x")
    assert server.end.recv(1) == b"x"
    assert server.client.gettimeout() is None


def test_a_client_with_another_secret_is_refused_without_an_answer(server: Server) -> None:
    with pytest.raises(HandshakeRefused, match="without a reason"):
        introduce(server.client, new_secret(), CLAIM, PATIENCE_S)
    assert "wrong secret" in server.join().refused
    assert server.claim is None


def test_a_server_that_does_not_know_the_secret_is_refused() -> None:
    ours, theirs = socket.socketpair()

    def pretend() -> None:
        theirs.sendall(b"\0\0\0\x20" + bytes(32))
        theirs.recv(4096)
        answer = msgspec.msgpack.encode(("", bytes(32)))
        theirs.sendall(len(answer).to_bytes(4, "big") + answer)

    thread = threading.Thread(target=pretend)
    thread.start()
    with pytest.raises(HandshakeRefused, match="the server does not know the secret"):
        introduce(ours, SECRET, CLAIM, PATIENCE_S)
    thread.join()
    ours.close()
    theirs.close()


def test_a_proof_does_not_hold_for_another_claim() -> None:
    """A man in the middle takes a valid hello and puts another attempt into it."""
    server = Server()
    genuine, middle = socket.socketpair()

    def forge() -> None:
        middle.sendall(_frame(server.client))
        claim, nonce, proof = msgspec.msgpack.decode(_frame(middle)[4:])
        forged = msgspec.msgpack.encode(([claim[0], 4, *claim[2:]], nonce, proof))
        server.client.sendall(len(forged).to_bytes(4, "big") + forged)
        middle.close()

    thread = threading.Thread(target=forge)
    thread.start()
    with pytest.raises(HandshakeRefused):
        introduce(genuine, SECRET, CLAIM, PATIENCE_S)
    thread.join()
    assert "wrong secret" in server.join().refused
    server.client.close()
    genuine.close()


def _frame(connection: socket.socket) -> bytes:
    header = connection.recv(4, socket.MSG_WAITALL)
    return header + connection.recv(int.from_bytes(header, "big"), socket.MSG_WAITALL)


def test_a_proven_peer_that_is_not_wanted_learns_why() -> None:
    server = Server(lambda claim: f"attempt {claim.attempt} is over")
    with pytest.raises(HandshakeRefused, match="attempt 3 is over"):
        introduce(server.client, SECRET, CLAIM, PATIENCE_S)
    assert "attempt 3 is over" in server.join().refused
    server.client.close()


def test_a_server_that_ends_in_the_middle_of_a_handshake_refuses_the_peer() -> None:
    server: Server

    def end(_claim: Claim) -> str:
        server.end.close()
        return ""

    server = Server(end)
    with pytest.raises(HandshakeRefused):
        introduce(server.client, SECRET, CLAIM, PATIENCE_S)
    assert "this side closed the connection" in server.join().refused
    server.client.close()


def test_an_unproven_peer_is_never_asked_about() -> None:
    asked: list[Claim] = []

    def ask(claim: Claim) -> str:
        asked.append(claim)
        return ""

    server = Server(ask)
    with pytest.raises(HandshakeRefused):
        introduce(server.client, new_secret(), CLAIM, PATIENCE_S)
    server.join()
    server.client.close()
    assert asked == []


def test_a_silent_peer_is_dropped_in_time() -> None:
    server = Server(timeout_s=0.1)
    assert "no proof within 0.1 s" in server.join().refused
    server.client.close()


def test_a_peer_that_drips_bytes_is_dropped_in_time() -> None:
    server = Server(timeout_s=0.2)
    started = time.monotonic()
    server.client.sendall(b"\0\0\0\x40")
    while server.thread.is_alive() and time.monotonic() - started < PATIENCE_S:
        try:
            server.client.sendall(b"x")
        except OSError:
            break
        server.thread.join(0.02)
    assert "no proof within 0.2 s" in server.join().refused
    server.client.close()


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x02\xc1\xc1"])
def test_bytes_that_are_no_handshake_are_refused_at_once(server: Server, data: bytes) -> None:
    server.client.sendall(data)
    assert server.join().refused


def test_a_replayed_hello_is_refused() -> None:
    first = Server()
    genuine, middle = socket.socketpair()
    recorded: list[bytes] = []

    def record() -> None:
        middle.sendall(_frame(first.client))
        recorded.append(_frame(middle))
        first.client.sendall(recorded[0])
        middle.sendall(_frame(first.client))

    thread = threading.Thread(target=record)
    thread.start()
    introduce(genuine, SECRET, CLAIM, PATIENCE_S)
    thread.join()
    assert first.join().claim == CLAIM
    second = Server()
    _frame(second.client)
    second.client.sendall(recorded[0])
    assert "wrong secret" in second.join().refused
    for end in (genuine, middle, first.client, first.end, second.client):
        end.close()
