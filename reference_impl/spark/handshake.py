"""Who is there: a mutual challenge and response before anything else on a connection.

Both sides prove that they know the job's secret, which Spark ships with the job and which never crosses this
connection. The proofs (HMAC-SHA256) cover both sides' fresh nonces and the *claim*: the role, the attempt and
the channel or slot that the connection is for. So a proof can be neither replayed nor used for another
channel or another attempt (REC-2).

    server -> client   nonce
    client -> server   claim, nonce, proof
    server -> client   accepted or refused with a reason, proof

A client that proves nothing learns nothing: the connection is closed without a word. What follows a handshake
is neither signed nor encrypted; a network that can be tampered with needs a tunnel underneath.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import time
from collections.abc import Callable
from enum import StrEnum

import msgspec

from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.spark.control_wire import ConnectionLost, WireError, send_frame

SECRET_BYTES = 32
HANDSHAKE_TIMEOUT_S = 10.0
"""A whole handshake takes no longer, however slowly the peer drips bytes."""

_NONCE_BYTES = 32
_MAX_FRAME = 2048
_VERSION = "barrier-tck/1"


class Claim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a connection is for."""

    role: str
    """``slot`` for a control connection, ``channel`` for a data channel."""
    attempt: int
    subject: str
    """The slot's number, or the channel as ``sender->receiver``."""
    version: str = _VERSION


class _Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    claim: Claim
    nonce: bytes
    proof: bytes


class _Answer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    refusal: str
    """Empty: accepted."""
    proof: bytes


class Refusal(StrEnum):
    """Why a server did not let a peer in, for counting; the message of the error is for people."""

    CROWDED_OUT = "crowded_out"
    """It had not proven itself, and was the oldest of too many such peers."""
    NO_PROOF = "no_proof"
    """It sent nothing, or too little, within the time limit."""
    NO_HANDSHAKE = "no_handshake"
    """It left, or sent something else."""
    WRONG_SECRET = "wrong_secret"
    OTHER_VERSION = "other_version"
    NOT_WANTED = "not_wanted"
    """It proved itself, but belongs to another attempt or port, or is connected already (REC-2)."""
    GONE = "gone"
    """It proved itself, but was gone before the answer."""


class HandshakeRefused(RuntimeFailure):
    """The peer is not who it should be, or is not wanted; the message names its address and the reason."""

    def __init__(self, message: str, kind: Refusal = Refusal.NO_HANDSHAKE) -> None:
        super().__init__(message)
        self.kind = kind


class NotAdmitted(HandshakeRefused):
    """The peer proved itself and gave a reason: asking again would not help."""


class Unanswered(HandshakeRefused):
    """The proof was sent and no answer came: the peer may have let this side in, and may hold the connection open."""


def new_secret() -> bytes:
    """Return a fresh secret for one job."""
    return secrets.token_bytes(SECRET_BYTES)


def _proof(secret: bytes, side: str, *parts: object) -> bytes:
    return hmac.new(secret, msgspec.msgpack.encode((_VERSION, side, *parts)), hashlib.sha256).digest()


class _Bounded:
    """A connection during the handshake: every frame small, all of them together within a deadline."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + timeout_s

    def _tick(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._set_timeout(left)

    def end(self) -> None:
        """Remove the bound from the connection."""
        self._set_timeout(None)

    def _set_timeout(self, seconds: float | None) -> None:
        try:
            self._connection.settimeout(seconds)
        except OSError as error:
            raise ConnectionLost(f"this side closed the connection: {error}") from error

    def send(self, data: bytes) -> None:
        self._tick()
        send_frame(self._connection, data)

    def receive(self) -> bytes:
        """Return one frame. Reads byte ranges one by one, because the deadline covers all of them together."""
        header = self._read(4)
        length = int.from_bytes(header, "big")
        if length > _MAX_FRAME:
            raise WireError(f"a frame of {length} bytes in the handshake, where {_MAX_FRAME} are allowed")
        return self._read(length)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            self._tick()
            try:
                more = self._connection.recv(count - len(data))
            except TimeoutError:
                raise
            except OSError as error:
                raise ConnectionLost(f"the connection broke: {error}") from error
            if not more:
                raise ConnectionLost("the peer closed the connection during the handshake")
            data += more
        return data


def accept_peer(
    connection: socket.socket,
    secret: bytes,
    admit: Callable[[Claim], str],
    timeout_s: float = HANDSHAKE_TIMEOUT_S,
) -> Claim:
    """Do the server's side and return the proven claim.

    ``admit`` is asked only about proven claims; it returns a reason to refuse, or an empty string. Raises
    HandshakeRefused in every other case; the caller logs it and closes the connection.
    """
    peer = describe_peer(connection)
    bounded = _Bounded(connection, timeout_s)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    try:
        bounded.send(nonce)
        hello = msgspec.msgpack.decode(bounded.receive(), type=_Hello)
    except TimeoutError as error:
        raise HandshakeRefused(f"{peer}: no proof within {timeout_s:g} s", Refusal.NO_PROOF) from error
    except (RuntimeFailure, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HandshakeRefused(f"{peer}: no handshake: {error}") from error
    if not hmac.compare_digest(hello.proof, _proof(secret, "client", hello.claim, nonce, hello.nonce)):
        raise HandshakeRefused(f"{peer}: wrong secret", Refusal.WRONG_SECRET)
    if hello.claim.version != _VERSION:
        refusal, kind = f"speaks {hello.claim.version!r}, not {_VERSION!r}", Refusal.OTHER_VERSION
    else:
        refusal, kind = admit(hello.claim), Refusal.NOT_WANTED
    answer = _Answer(refusal, _proof(secret, "server", hello.claim, nonce, hello.nonce, refusal))
    try:
        bounded.send(msgspec.msgpack.encode(answer))
        bounded.end()
    except (RuntimeFailure, TimeoutError) as error:
        raise HandshakeRefused(f"{peer}: gone before the answer: {error}", Refusal.GONE) from error
    if refusal:
        raise HandshakeRefused(f"{peer}: {hello.claim.role} {hello.claim.subject}: {refusal}", kind)
    return hello.claim


def introduce(
    connection: socket.socket, secret: bytes, claim: Claim, timeout_s: float = HANDSHAKE_TIMEOUT_S
) -> None:
    """Do the client's side; raises HandshakeRefused if either side does not accept the other.

    Its subclass Unanswered is raised if this side proved itself and cannot tell whether it was let in.
    """
    peer = describe_peer(connection)
    bounded = _Bounded(connection, timeout_s)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    try:
        challenge = bounded.receive()
    except TimeoutError as error:
        raise HandshakeRefused(f"{peer}: no challenge within {timeout_s:g} s") from error
    except RuntimeFailure as error:
        raise HandshakeRefused(f"{peer}: no handshake: {error}") from error
    proof = _proof(secret, "client", claim, challenge, nonce)
    try:
        bounded.send(msgspec.msgpack.encode(_Hello(claim, nonce, proof)))
        answer = msgspec.msgpack.decode(bounded.receive(), type=_Answer)
    except TimeoutError as error:
        raise Unanswered(f"{peer}: no answer within {timeout_s:g} s") from error
    except (RuntimeFailure, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unanswered(f"{peer}: refused without a reason (another secret?): {error}") from error
    wanted = _proof(secret, "server", claim, challenge, nonce, answer.refusal)
    if not hmac.compare_digest(answer.proof, wanted):
        raise HandshakeRefused(f"{peer}: the server does not know the secret")
    if answer.refusal:
        raise NotAdmitted(f"{peer}: {answer.refusal}")
    connection.settimeout(None)


def describe_peer(connection: socket.socket) -> str:
    """Return the peer's address for logs, or ``unknown peer`` if it is gone."""
    try:
        name = connection.getpeername()
    except OSError:
        return "unknown peer"
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) and len(name) >= 2 else "unknown peer"
