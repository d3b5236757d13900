"""What certifier and candidate process say to each other: frames of MessagePack over a socket of their own.

A frame is a length of four bytes (big-endian) and that many bytes. One request, one reply, in turn. Nothing is
pickled: a candidate can send rubbish, and rubbish is all that the certifier then gets.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

import msgspec

FRAME_BYTES_MAX = 256 * 1024 * 1024
"""No frame may be longer; a longer one is not ours."""
CHECKPOINTS = "checkpoints"
"""Where in a storage directory the paths of handles begin."""
DAMAGED_HOW = {
    "empty": "is empty",
    "half": "ends in the middle",
    "last_byte": "lacks its last byte",
    "noise": "has another content of the same length",
    "text": "is of another format",
}
"""What is done to a file before it is restored, and how that is told."""
DAMAGES = tuple(DAMAGED_HOW)
ADDED, CHANGED = b"added while a scan was read", b"changed while a scan was read"
"""Values that are written while a scan is read."""
STORE_PREFIX = "store-"
"""What the names of the stores' own working directories begin with."""
_LENGTH = struct.Struct(">I")


class Handle(msgspec.Struct, frozen=True):
    """One file of a snapshot, its state handle packed: the certifier passes it on and looks at no more."""

    path: str
    size: int
    start: int
    """The first key group that it names."""
    end: int
    """The first key group behind those that it names."""
    packed: bytes


class StorageTrouble(msgspec.Struct, frozen=True):
    """Storage fails during one snapshot: at its ``at``-th operation (1 is the first), in one of three ways."""

    at: int
    kind: str = "error"
    """``error``; ``short``: a write takes half of the bytes and says so; ``close``: closing the file fails."""


class Request(msgspec.Struct, frozen=True, tag_field="ask"):
    """Base of all requests."""


class LoadRequest(Request, frozen=True, tag="load"):
    """Import the target, make the backend; replies with name and capabilities."""

    target: str


class ResetRequest(Request, frozen=True, tag="reset"):
    """Close all stores; then use these directories: durable storage, and a working directory (also TMPDIR)."""

    storage: str
    work: str


class OpenRequest(Request, frozen=True, tag="open"):
    """Open a store under a number."""

    store: int
    start: int
    end: int
    subtask: int
    attempt: int
    restore: tuple[Handle, ...] = ()
    files_wanted: int = 1
    storage: str = ""
    """Where the files of ``restore`` are, if not in the storage that was set."""


class GetRequest(Request, frozen=True, tag="get"):
    """Read a value."""

    store: int
    name: str
    group: int
    key: bytes


class PutRequest(Request, frozen=True, tag="put"):
    """Write a value."""

    store: int
    name: str
    group: int
    key: bytes
    value: bytes


class DeleteRequest(Request, frozen=True, tag="delete"):
    """Delete a value."""

    store: int
    name: str
    group: int
    key: bytes


class ScanRequest(Request, frozen=True, tag="scan"):
    """Read all entries of one state in one key group."""

    store: int
    name: str
    group: int


class DisturbedScanRequest(Request, frozen=True, tag="disturbed_scan"):
    """Begin a scan, then write, then read the scan to its end: the reply is what it gave."""

    store: int
    name: str
    group: int
    added: bytes
    changed: bytes
    deleted: bytes


class ReadAllRequest(Request, frozen=True, tag="read_all"):
    """Read one state in every form: each of these keys by ``get_many``, ``singles`` of them by ``get``, and scans.

    Replies with a `Readings`.
    """

    store: int
    name: str
    scanned: tuple[int, ...]
    """The key groups to scan."""
    groups: tuple[int, ...]
    keys: tuple[bytes, ...]
    singles: int
    scan_first: bool


class GetManyRequest(Request, frozen=True, tag="get_many"):
    """Read many values."""

    store: int
    name: str
    groups: tuple[int, ...]
    keys: tuple[bytes, ...]


class PutManyRequest(Request, frozen=True, tag="put_many"):
    """Write many values."""

    store: int
    name: str
    groups: tuple[int, ...]
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]


class SnapshotRequest(Request, frozen=True, tag="snapshot"):
    """Do the synchronous part; replies ``done``, and the storage ``operations`` that were made in it."""

    store: int
    checkpoint: int
    fault: StorageTrouble | None = None


class RunRequest(Request, frozen=True, tag="run"):
    """Do the asynchronous part on another thread and wait for it; replies with handles."""

    store: int
    checkpoint: int


class StartRequest(Request, frozen=True, tag="start"):
    """Start the asynchronous part; it stands still before its ``stop_at``-th storage operation.

    Replies True if it stands there, False if it ended before.
    """

    store: int
    checkpoint: int
    stop_at: int


class RaceRequest(Request, frozen=True, tag="race"):
    """Do the asynchronous part on another thread, and write without a pause until it ends.

    Replies with a `Raced`. What is written is what ``free_writes.free_write`` says.
    """

    store: int
    checkpoint: int
    name: str
    groups: tuple[int, ...]


class FinishRequest(Request, frozen=True, tag="finish"):
    """Let a started asynchronous part go on, and wait for it; replies with handles."""

    store: int
    checkpoint: int


class DigestRequest(Request, frozen=True, tag="digest"):
    """Read a file of a snapshot; replies with its length and checksum, as text."""

    handle: Handle


class DamageRequest(Request, frozen=True, tag="damage"):
    """Damage a file of a snapshot in this storage directory; replies with the packed handle that fits it then."""

    handle: Handle
    damage: str
    storage: str


class NotifyRequest(Request, frozen=True, tag="notify"):
    """Call ``cancel`` of the future, or ``confirm`` or ``abort`` of the store."""

    store: int
    checkpoint: int
    what: str


class DiscardRequest(Request, frozen=True, tag="discard"):
    """Delete the files of a checkpoint of one store, as a runtime does that learns of its failure."""

    store: int
    checkpoint: int


class CloseRequest(Request, frozen=True, tag="close"):
    """Close a store; ``times`` can be 2, for closing twice is harmless."""

    store: int
    times: int = 1


class ResourcesRequest(Request, frozen=True, tag="resources"):
    """Count what the process holds: descriptors, threads, child processes, memory, files."""

    settle: bool = True
    """Wait for threads that are about to end."""


class TrialRequest(Request, frozen=True, tag="trial"):
    """Run a trial of the reference runtime with the candidate as its backend; replies with a judged summary."""

    system: str
    plan: bytes
    """A trial plan as JSON."""
    directory: str


class CloseSystemsRequest(Request, frozen=True, tag="close_systems"):
    """Stop what trials have started: a cluster is to end in order, before its process is killed."""


AnyRequest = (
    LoadRequest
    | ResetRequest
    | OpenRequest
    | GetRequest
    | PutRequest
    | DeleteRequest
    | ScanRequest
    | DisturbedScanRequest
    | ReadAllRequest
    | GetManyRequest
    | PutManyRequest
    | SnapshotRequest
    | RunRequest
    | StartRequest
    | RaceRequest
    | FinishRequest
    | NotifyRequest
    | DigestRequest
    | DamageRequest
    | DiscardRequest
    | CloseRequest
    | ResourcesRequest
    | TrialRequest
    | CloseSystemsRequest
)
"""Any request."""


class Ran(msgspec.Struct, frozen=True):
    """What an asynchronous part gave."""

    handles: tuple[Handle, ...]
    fault_fired: bool = False


class Raced(msgspec.Struct, frozen=True):
    """A snapshot that was stored while the store was written."""

    handles: tuple[Handle, ...]
    writes: int
    """How many writes were made from the start of the asynchronous part."""
    meanwhile: int
    """How many of them ended before it did."""


class Readings(msgspec.Struct, frozen=True):
    """What one state gave, form by form."""

    scans: list[list[tuple[bytes, bytes]]]
    """Entries by scanned key group."""
    many: list[bytes | None]
    singles: list[bytes | None]
    """Of the keys whose numbers `sampled` gives."""


def sampled(count: int, wanted: int) -> range:
    """Return the numbers of at most so many of ``count`` things, evenly spread."""
    return range(0, count, max(1, -(-count // max(1, wanted))))


class Held(msgspec.Struct, frozen=True):
    """What a process holds at a moment."""

    descriptors: tuple[str, ...]
    """What each open descriptor leads to."""
    threads: int
    children: int
    memory_bytes: int
    """Resident memory of its own: pages of mapped files do not count."""
    work_files: tuple[str, ...]
    storage_files: tuple[str, ...]
    outside_files: tuple[str, ...] = ()
    """Files that it wrote outside of its directories, and that are still there."""


class Judged(msgspec.Struct, frozen=True):
    """A trial in short."""

    verdict: str
    faults_fired: int
    recoveries: int
    problems: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    """Clauses for which a checker spoke and found nothing."""


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request: a value, or an error by kind."""

    value: Any = None
    error: str | None = None
    """``storage``, ``cancelled``, ``corrupt``, ``usage``, ``import``, ``no-backend``, or ``other``."""
    message: str = ""
    fault_fired: bool = False


encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(AnyRequest).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


class Disconnected(Exception):
    """The other side is gone, or sent what is no frame."""


def send(link: socket.socket, message: msgspec.Struct) -> None:
    """Send one frame; raises Disconnected, and TimeoutError as the socket's timeout says."""
    body = encode(message)
    try:
        link.sendall(_LENGTH.pack(len(body)) + body)
    except TimeoutError:
        raise
    except OSError as error:
        raise Disconnected(str(error)) from error


def receive(link: socket.socket) -> bytes:
    """Receive one frame; raises Disconnected, and TimeoutError as the socket's timeout says."""
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    if length > FRAME_BYTES_MAX:
        raise Disconnected(f"a frame of {length} bytes was announced")
    return _exactly(link, length)


def _exactly(link: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            part = link.recv(min(count - len(parts), 1 << 20))
        except TimeoutError:
            raise
        except OSError as error:
            raise Disconnected(str(error)) from error
        if not part:
            raise Disconnected("the connection was closed")
        parts += part
    return bytes(parts)
