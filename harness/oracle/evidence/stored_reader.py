"""Reads retained checkpoints from the bytes in durable storage, by the documented format (docs/checkpoint-files.md).

It shares no code with the code that writes checkpoints or restores them, because a system's writer and reader cannot
find a mistake that they share. It only needs to list and read files.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from barrier_tck.harness.oracle.evidence.stored_channels import NotChannelState, amounts
from barrier_tck.harness.oracle.evidence.stored_heap import packing_of
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.stored import (
    StoredCheckpoint,
    StoredFile,
    StoredOperator,
    StoredPart,
    StoredSavepoint,
)

METADATA = "_metadata"
FORMAT, VERSIONS = "checkpoint-metadata", (1, 2, 3, 4, 5, 6)
_PLACE = re.compile(r"(?P<directory>.*)/chk-(?P<checkpoint>[0-9]+)/_metadata")


class _Unfit(Exception):
    """The metadata file is not what the format says."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def read_stored_checkpoints(
    names: Iterable[str], read: Callable[[str], bytes], root: str
) -> tuple[StoredCheckpoint, ...]:
    """Return every checkpoint that has a metadata file, oldest first, with all files that it names.

    ``names`` are the paths of all files of one job's checkpoints. ``root`` is the directory to which paths in the
    metadata are relative. ``read`` returns a file's content, and may raise any error for a file that it cannot read.
    """
    places = {int(found["checkpoint"]): found[0] for name in names if (found := _PLACE.fullmatch(name))}
    return tuple(_checkpoint(checkpoint, places[checkpoint], read, root) for checkpoint in sorted(places))


def read_stored_savepoints(
    names: Iterable[str], read: Callable[[str], bytes], root: str
) -> tuple[StoredSavepoint, ...]:
    """Return every savepoint below a directory that has a metadata file, as that directory alone describes it."""
    listed = list(names)
    ends = f"/{METADATA}"
    places = sorted(
        name.removesuffix(ends) for name in listed if name.startswith(f"{root}/") and name.endswith(ends)
    )
    return tuple(
        _savepoint(place, [name for name in listed if name.startswith(f"{place}/")], read) for place in places
    )


def _savepoint(place: str, names: Sequence[str], read: Callable[[str], bytes]) -> StoredSavepoint:
    contents = _checkpoint(None, f"{place}/{METADATA}", read, place)
    named = [file.path for part in contents.parts for file in part.files]
    known = dict.fromkeys([f"{place}/{METADATA}", *(f"{place}/{path}" for path in named)])
    return StoredSavepoint(
        place,
        contents,
        outside=tuple(path for path in named if "/" in path),
        unnamed=tuple(name for name in names if name not in known),
    )


def _checkpoint(expected: int | None, path: str, read: Callable[[str], bytes], root: str) -> StoredCheckpoint:
    """Read one metadata file; without an expected id, that of the metadata is taken."""
    checkpoint = expected or 0
    content = _content(path, read)
    if content is None:
        return StoredCheckpoint(checkpoint, problem=Reason.STORAGE_FAILED, detail=f"{path} cannot be read")
    try:
        body = _body(content)
        if expected is None:
            checkpoint = int(body["checkpoint"])
        elif body["checkpoint"] != checkpoint:
            raise _Unfit(Reason.FOREIGN, f"it is the metadata of checkpoint {body['checkpoint']}")
        parts = tuple(_part(part, read, root) for part in body["snapshots"])
        vertices = (body.get("job") or {}).get("vertices", ())
        widths = {str(vertex["name"]): int(vertex["parallelism"]) for vertex in vertices}
        times = body.get("triggered_at_ms"), body.get("completed_at_ms")
        triggered_ms, completed_ms = (None if time_ms is None else float(time_ms) for time_ms in times)
    except _Unfit as unfit:
        return StoredCheckpoint(checkpoint, problem=unfit.reason, detail=f"{path}: {unfit}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"{path} does not have the documented form: {type(error).__name__}: {error}"
        return StoredCheckpoint(checkpoint, problem=Reason.MALFORMED, detail=detail)
    return StoredCheckpoint(
        checkpoint, parts, widths, triggered_at_ms=triggered_ms, completed_at_ms=completed_ms
    )


def _body(content: bytes) -> dict[str, Any]:
    """Return the body of a metadata file, after checking it against the header."""
    lines = content.split(b"\n")
    if len(lines) != 3 or lines[2]:
        raise _Unfit(Reason.MALFORMED, f"it has {len(lines)} parts between newlines, not two lines")
    header = json.loads(lines[0])
    if header["format"] != FORMAT:
        raise _Unfit(Reason.FOREIGN, f"it is a {header['format']!r} file")
    if header["version"] not in VERSIONS:
        raise _Unfit(Reason.MALFORMED, f"it has version {header['version']}, which is not documented")
    if header["size"] != len(lines[1]):
        raise _Unfit(
            Reason.WRONG_SIZE, f"its header says {header['size']} bytes, but there are {len(lines[1])}"
        )
    if header["checksum"] != _checksum(lines[1]):
        raise _Unfit(
            Reason.WRONG_CHECKSUM, f"its header says {header['checksum']}, not {_checksum(lines[1])}"
        )
    body: dict[str, Any] = json.loads(lines[1])
    return body


def _part(part: dict[str, Any], read: Callable[[str], bytes], root: str) -> StoredPart:
    subtask = f"{part['subtask']['vertex']}[{part['subtask']['index']}]"
    operators = (
        StoredOperator(
            operator["operator"],
            {position["split"]: int(position["offset"]) for position in operator["positions"]},
            tuple(_file(handle, read, root) for handle in operator["handles"]),
        )
        for operator in part["operators"]
    )
    channels = part.get("channels")
    return StoredPart(
        subtask,
        tuple(operators),
        None if channels is None else _file(channels["file"], read, root),
        bool(part.get("finished", False)),
        () if channels is None else tuple(_miscounted(channels, read, root)),
    )


def _miscounted(channels: dict[str, Any], read: Callable[[str], bytes], root: str) -> Iterator[str]:
    """Yield the channels that hold something else than the metadata says; nothing if the file cannot be read."""
    handle = channels["file"]
    content = _content(_place(handle, root), read)
    if content is None or _checksum(content) != handle["checksum"]:
        return
    try:
        found = amounts(content)
    except NotChannelState:
        return  # who reads the records says so
    recorded = {
        (direction, *_ends(one["channel"])): (int(one["buffers"]), int(one["size"]))
        for direction, name in (("input", "inputs"), ("output", "outputs"))
        for one in channels[name]
    }
    for place in dict.fromkeys((*recorded, *found)):
        holds, says = found.get(place, (0, 0)), recorded.get(place, (0, 0))
        if holds != says:
            direction, sender, receiver, _ = place
            yield (
                f"the {direction} channel {sender}->{receiver} holds {holds[0]} buffers of {holds[1]} bytes, and the "
                f"metadata says {says[0]} of {says[1]}"
            )


def _ends(channel: dict[str, Any]) -> tuple[str, str, int]:
    sender, receiver = (
        f"{channel[end]['vertex']}[{channel[end]['index']}]" for end in ("sender", "receiver")
    )
    return sender, receiver, int(channel["edge"])


def _file(handle: dict[str, Any], read: Callable[[str], bytes], root: str) -> StoredFile:
    path, size, checksum = str(handle["path"]), int(handle["size"]), str(handle["checksum"])
    if handle.get("savepoint"):
        path = f"{handle['savepoint']}/{path}"
    content = _content(_place(handle, root), read)
    if content is None:
        return StoredFile(path, size, checksum)
    found = _checksum(content)
    # Damage shows in size and checksum, and is not taken apart.
    packing = packing_of(content) if found == checksum else ("", "")
    return StoredFile(path, size, checksum, len(content), found, *packing)


def _place(handle: dict[str, Any], root: str) -> str:
    """Return where the file of a handle is: below the root or, if it is a savepoint's, below that one's directory."""
    return f"{handle.get('savepoint') or root}/{handle['path']}".removeprefix("/")


def _checksum(content: bytes) -> str:
    return f"crc32:{zlib.crc32(content) & 0xFFFFFFFF:08x}"


def _content(path: str, read: Callable[[str], bytes]) -> bytes | None:
    try:
        return bytes(read(path))
    except Exception:  # noqa: BLE001 - whatever storage raises, the fact is that the file cannot be read
        return None
