"""The metadata file of a completed checkpoint (STA-3), and the frame that small durable files share.

A framed file is two lines of JSON. The first says what the second is::

    {"format": "checkpoint-metadata", "version": 6, "size": 412, "checksum": "crc32:89abcdef"}
    {"checkpoint": 7, "attempt": 2, ..., "snapshots": [{"subtask": {"vertex": "count", "index": 0}, ...}]}

``size`` (bytes) and ``checksum`` are those of the second line, its newline left out. The body of the metadata
is the ``CompletedCheckpoint`` itself, field by field in the order of declaration: each source's positions,
and for each state file its path, size and checksum. Equal checkpoints give equal bytes, in every process.

Version 2 added ``job``: the maximum parallelism, and of each vertex how parallel it was and which operators keep
state. Metadata of version 1 can still be read; a job is not started from it (``runtime.compatibility``). Version 3
added ``channels`` to the part of a subtask: the file of its records in flight, and how much of which channel it holds.
It also added ``savepoint``, to the checkpoint and to its handles. Version 4 added ``finished`` to the part of a subtask
(BAR-6); an older release would read such a part as that of a subtask that has yet to do everything. Version 5 added
``shared`` to handles (SNP-5); an older release would delete a file that later checkpoints use. Version 6 added
``writer`` to prepared transactions; an older release could give one to a sink whose neighbour deletes its file.
"""

from __future__ import annotations

import zlib
from typing import TypeVar

import msgspec

from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, StorageCause, StorageError

FORMAT = "checkpoint-metadata"
VERSION = 6

BodyT = TypeVar("BodyT")


class _Header(msgspec.Struct, frozen=True):
    """The first line."""

    format: str
    version: int
    size: int
    checksum: str


_decode_header = msgspec.json.Decoder(_Header).decode
_encode = msgspec.json.Encoder().encode


def checksum_text(crc: int) -> str:
    """Return a CRC-32 in the form that handles and headers carry: ``crc32:89abcdef``."""
    return f"crc32:{crc:08x}"


def checksum_of(content: bytes) -> str:
    """Return the checksum of some bytes, as handles carry it."""
    return checksum_text(zlib.crc32(content))


def encode(completed: CompletedCheckpoint) -> bytes:
    """Return the content of the metadata file."""
    return frame(FORMAT, VERSION, _encode(completed))


def decode(content: bytes, source: str = "the metadata") -> CompletedCheckpoint:
    """Read a metadata file; ``source`` names it in errors. One of version 1 has no ``job``.

    Raises CorruptStateError if the content is damaged, StorageError if a newer release wrote it.
    """
    return decode_body(unframe(FORMAT, VERSION, content, source), CompletedCheckpoint, source)


def frame(format_name: str, version: int, body: bytes) -> bytes:
    """Return the file of a body: the header line and the body, a newline after each."""
    header = _Header(format_name, version, len(body), checksum_text(zlib.crc32(body)))
    return b"%b\n%b\n" % (_encode(header), body)


def unframe(format_name: str, version: int, content: bytes, source: str) -> bytes:
    """Return the verified body of a framed file; raises like ``decode``."""
    first, newline, rest = content.partition(b"\n")
    try:
        header = _decode_header(first)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptStateError(f"{source} does not begin with a header line: {error}") from error
    if header.format != format_name:
        raise CorruptStateError(
            f"{source} is a {header.format!r} file, expected {format_name!r}", StorageCause.FOREIGN
        )
    if header.version > version:
        raise StorageError(
            f"{source} has format version {header.version}, written by a newer release; this one reads up to "
            f"version {version}. Resume with the release that wrote it, or a later one"
        )
    if header.version < 1:
        raise CorruptStateError(f"{source} has the format version {header.version}, which never existed")
    body = rest[:-1]
    if not newline or rest[-1:] != b"\n" or len(body) != header.size:
        raise CorruptStateError(
            f"{source} is cut off: {len(body)} bytes after the header, expected {header.size}",
            StorageCause.WRONG_SIZE,
        )
    found = checksum_text(zlib.crc32(body))
    if found != header.checksum:
        raise CorruptStateError(
            f"{source} is damaged: checksum {found}, expected {header.checksum}", StorageCause.WRONG_CHECKSUM
        )
    return body


def decode_body(body: bytes, body_type: type[BodyT], source: str) -> BodyT:
    """Read a JSON body as a type; raises CorruptStateError, naming the field, if it does not fit."""
    try:
        return msgspec.json.decode(body, type=body_type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptStateError(f"{source} does not hold what its header says: {error}") from error
