"""The messages between the certifier and a candidate's process: frames of MessagePack over their own socket.

A frame is a length of four bytes (big-endian), followed by that many bytes. Requests are answered in order, each
with one reply. Nothing is pickled, so no bytes that a candidate sends can run code in the certifier.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

FRAME_BYTES_MAX = 256 * 1024 * 1024
"""The largest length of a frame in bytes; a longer frame is refused."""
CHECKPOINTS = "checkpoints"
"""The directory, within a storage directory, from which the paths of handles start."""
DAMAGED_HOW = {
    "empty": "is empty",
    "half": "ends in the middle",
    "last_byte": "lacks its last byte",
    "noise": "has different content of the same length",
    "text": "has a different format",
}
"""Damage that is done to a file before a restore -> its description."""
DAMAGES = tuple(DAMAGED_HOW)
ADDED, CHANGED = b"added while a scan was read", b"changed while a scan was read"
"""Values that are written while a scan is read."""
SECOND = "-second"
"""The end of the name of a directory beside a storage directory, with the second copies of its files."""
STORE_PREFIX = "store-"
"""The beginning of the names of the stores' own working directories."""
_LENGTH = struct.Struct(">I")


class Handle(msgspec.Struct, frozen=True):
    """One file of a snapshot, with its packed state handle, which the certifier passes on without looking into it."""

    path: str
    size: int
    start: int
    """The first key group in it."""
    end: int
    """The first key group behind those in it."""
    packed: bytes


class StorageFault(msgspec.Struct, frozen=True):
    """A failure of storage during one snapshot, at its ``at``-th storage operation, counted from 1."""

    at: int
    kind: str = "error"
    """``error``: the operation fails; ``short``: a write takes only half of its bytes; ``close``: closing fails."""


class Request(msgspec.Struct, frozen=True, tag_field="ask"):
    """Base of all requests."""


class LoadRequest(Request, frozen=True, tag="load"):
    """Import the target and make the backend; the reply has its name and capabilities."""

    target: str


class ResetRequest(Request, frozen=True, tag="reset"):
    """Close all stores; then use these directories for durable storage and as working directory and TMPDIR."""

    storage: str
    work: str


class OpenRequest(Request, frozen=True, tag="open"):
    """Open a store; later requests name it by the number ``store``."""

    store: int
    start: int
    end: int
    subtask: int
    attempt: int
    restore: tuple[Handle, ...] = ()
    files_wanted: int = 1
    incremental: bool = False
    """Whether its snapshots may be increments (SNP-5)."""
    restored: int = 0
    """The checkpoint in which a store with the same key groups wrote ``restore``; 0: other stores wrote these files."""
    storage: str = ""
    """The directory with the files of ``restore``, if it is not the storage directory that was set."""
    compression: str = "none"
    """A hint how to compress snapshots."""
    own_threads: bool = True
    """Whether the store may work in threads of its own between calls."""
    read_only: bool = False
    """A hint that the store will only be read."""
    job: str = ""
    vertex: str = ""
    operator: str = ""
    """The job, the vertex and the operator that the store belongs to; empty: the default names."""


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
    """Begin three scans; read no entry of the first, one of the second, two of the third. Begin one of each place in
    ``beside``, and read one entry. Write; begin one more scan of the first place; read all of them on to their ends.

    The ends are read in turns, one entry of each scan. The reply has the entries of each scan, in the order in which
    they began.
    """

    store: int
    name: str
    group: int
    added: bytes
    changed: bytes
    deleted: bytes
    beside: tuple[tuple[str, int], ...] = ()
    """States and key groups."""


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


class DeleteManyRequest(Request, frozen=True, tag="delete_many"):
    """Delete many values, one after the other."""

    store: int
    name: str
    groups: tuple[int, ...]
    keys: tuple[bytes, ...]


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
    """Run the synchronous part of a snapshot.

    The reply has ``done``: whether no asynchronous part is left; and ``operations``: how many it made on storage.
    """

    store: int
    checkpoint: int
    fault: StorageFault | None = None
    reuse_from: int = 0
    """The oldest confirmed checkpoint whose files it may use (SNP-5); 0: it is a full snapshot."""
    second: str = ""
    """The compression of a second copy of its files (LOC-7); empty: there is none."""


class RunRequest(Request, frozen=True, tag="run"):
    """Run the asynchronous part of a snapshot on another thread and wait for it; the reply has the handles."""

    store: int
    checkpoint: int
    here: bool = False
    """Run it on the thread that calls the store."""


class StartRequest(Request, frozen=True, tag="start"):
    """Start the asynchronous part; it stops before its ``stop_at``-th storage operation.

    The reply is True if it stopped there, False if it ended earlier.
    """

    store: int
    checkpoint: int
    stop_at: int


class RaceRequest(Request, frozen=True, tag="race"):
    """Run the asynchronous part on another thread, and write without a pause until it ends.

    Replies with a `Raced`. ``free_writes.free_write`` determines what is written.
    """

    store: int
    checkpoint: int
    name: str
    groups: tuple[int, ...]
    cancel_after: int = -1
    """The number of writes after which a third thread cancels it; negative: it is not cancelled."""


class FinishRequest(Request, frozen=True, tag="finish"):
    """Let a started asynchronous part continue, and wait for it; the reply has the handles."""

    store: int
    checkpoint: int


class CloseAmidRequest(Request, frozen=True, tag="close_amid"):
    """Close a store of which an asynchronous part was started and waits; that goes on at the latest when the store is
    closed. Replies as to `FinishRequest`.
    """

    store: int
    checkpoint: int


class DigestRequest(Request, frozen=True, tag="digest"):
    """Read a file of a snapshot; the reply has its length and checksum, as text."""

    handle: Handle


class DamageRequest(Request, frozen=True, tag="damage"):
    """Damage a file of a snapshot in this storage directory; replies with a packed handle that fits the new file."""

    handle: Handle
    damage: str
    storage: str


class LengthsRequest(Request, frozen=True, tag="lengths"):
    """Choose lengths to which a file of a completed snapshot can be cut, longest first; replies with a list of them."""

    store: int
    checkpoint: int
    handle: Handle
    at_most: int


class CutRequest(Request, frozen=True, tag="cut"):
    """Cut a file of a snapshot in this storage directory to a length; replies as to `DamageRequest`."""

    handle: Handle
    length: int
    storage: str


class NotifyRequest(Request, frozen=True, tag="notify"):
    """Call ``cancel`` of the future, or ``confirm`` or ``abort`` of the store."""

    store: int
    checkpoint: int
    what: str
    elsewhere: bool = False
    """Call ``cancel`` from a thread of its own."""


class DiscardRequest(Request, frozen=True, tag="discard"):
    """Delete the files of a checkpoint of one store, as a runtime does when the checkpoint has failed."""

    store: int
    checkpoint: int
    subtask: int | None = None
    """The subtask that wrote the files; None: that of the store, which is open."""


class CloseRequest(Request, frozen=True, tag="close"):
    """Close a store; ``times`` can be 2, because closing twice must be harmless."""

    store: int
    times: int = 1
    keep: bool = False
    """Keep the closed store and its snapshots, so that they can still be called."""


class ResourcesRequest(Request, frozen=True, tag="resources"):
    """Ask what the process holds: descriptors, threads, child processes, memory, files."""

    settle: bool = True
    """Wait for threads that are about to end."""


class TrialRequest(Request, frozen=True, tag="trial"):
    """Run a trial of the reference runtime with the candidate as its backend; replies with a summary of the result."""

    system: str
    plan: bytes
    """A trial plan as JSON."""
    directory: str


class CloseSystemsRequest(Request, frozen=True, tag="close_systems"):
    """Stop the systems that trials started, so that a cluster ends in good order before its process is killed."""


AnyRequest = (
    LoadRequest
    | ResetRequest
    | OpenRequest
    | GetRequest
    | PutRequest
    | DeleteRequest
    | DeleteManyRequest
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
    | CloseAmidRequest
    | NotifyRequest
    | DigestRequest
    | DamageRequest
    | LengthsRequest
    | CutRequest
    | DiscardRequest
    | CloseRequest
    | ResourcesRequest
    | TrialRequest
    | CloseSystemsRequest
)


EndingRequest = RunRequest | FinishRequest | CloseAmidRequest
"""Any request with which an asynchronous part comes to its end."""


class Ran(msgspec.Struct, frozen=True):
    """The result of an asynchronous part."""

    handles: tuple[Handle, ...]
    fault_fired: bool = False
    operations: int = 0
    """How often storage was called for the snapshot, its synchronous part included."""
    second: tuple[Handle, ...] = ()
    """The second copies of its files, if some have another format; they are in `second_storage`."""


class Raced(msgspec.Struct, frozen=True):
    """The result of a race: a snapshot that was stored while entries were written."""

    handles: tuple[Handle, ...]
    writes: int
    """How many writes were made from the start of the asynchronous part."""
    meanwhile: int
    """How many of them ended before the asynchronous part did."""
    cancelled: bool = False
    """Whether it was cancelled in time; then there are no handles."""


class Readings(msgspec.Struct, frozen=True):
    """What the reads of one state returned: by scans, by ``get_many``, and by ``get``."""

    scans: list[list[tuple[bytes, bytes]]]
    """Entries by scanned key group."""
    many: list[bytes | None]
    singles: list[bytes | None]
    """The values of those keys whose positions `sampled` returns."""


def second_storage(storage: Path) -> Path:
    """Return the directory with the second copies of the files of a storage directory."""
    return storage.with_name(storage.name + SECOND)


def sampled(count: int, wanted: int) -> range:
    """Return at most ``wanted`` of the numbers below ``count``, evenly spread."""
    return range(0, count, max(1, -(-count // max(1, wanted))))


class Held(msgspec.Struct, frozen=True):
    """The resources of a process at one moment."""

    descriptors: tuple[str, ...]
    """For each open descriptor, what it refers to."""
    threads: int
    children: int
    memory_bytes: int
    """Resident private memory; pages of mapped files do not count."""
    work_files: tuple[str, ...]
    storage_files: tuple[str, ...]
    outside_files: tuple[str, ...] = ()
    """Files that it wrote outside its directories and that still exist."""


class Judged(msgspec.Struct, frozen=True):
    """The result of a trial in short."""

    verdict: str
    faults_fired: int
    recoveries: int
    problems: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    """Clauses that a checker judged, without finding a violation."""
    broken: str = ""
    """The clause that was broken first, if one was: the backend's own promise, where it was seen to be broken."""


class Reply(msgspec.Struct, frozen=True):
    """The answer to a request: a value, or a kind of error."""

    value: Any = None
    error: str | None = None
    """``storage``, ``cancelled``, ``corrupt``, ``usage``, ``import``, ``no-backend``, or ``other``."""
    message: str = ""
    fault_fired: bool = False


encode = msgspec.msgpack.Encoder().encode
_NEAR_THE_START, _NEAR_THE_END = 64, 24
"""So many of the shortest and longest lengths are chosen, each of them: headers and marks of the end are there."""


def lengths_to_cut_to(size: int, ends: Sequence[int], at_most: int) -> list[int]:
    """Return lengths below ``size``, longest first: the shortest and longest ones, some of ``ends``, where writes of
    the file ended, and others in equal distances. If there are no more than ``at_most``, all are returned.
    """
    if size <= at_most:
        return list(range(size - 1, -1, -1))
    near = [*range(_NEAR_THE_START), *range(size - _NEAR_THE_END, size)]
    inner = [end for end in ends if 0 < end < size]
    some = (
        [inner[number] for number in sampled(len(inner), max(1, (at_most - len(near)) // 2))] if inner else []
    )
    left = max(1, at_most - len(near) - len(some))
    return sorted({*near, *some, *(size * number // left for number in range(left))}, reverse=True)


decode_request = msgspec.msgpack.Decoder(AnyRequest).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode


class Disconnected(Exception):
    """The other side is gone, or sent something that is not a frame."""


def send(link: socket.socket, message: msgspec.Struct) -> None:
    """Send one frame; raises Disconnected, or TimeoutError after the socket's timeout."""
    body = encode(message)
    try:
        link.sendall(_LENGTH.pack(len(body)) + body)
    except TimeoutError:
        raise
    except OSError as error:
        raise Disconnected(str(error)) from error


def receive(link: socket.socket) -> bytes:
    """Receive one frame; raises Disconnected, or TimeoutError after the socket's timeout."""
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    if length > FRAME_BYTES_MAX:
        raise Disconnected(
            f"a frame of {length:,} bytes was announced; at most {FRAME_BYTES_MAX:,} are allowed"
        )
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
