"""The lines that the process of a candidate storage prints, one JSON value each."""

from __future__ import annotations

import msgspec


class StorageLine(msgspec.Struct, frozen=True, tag_field="said"):
    """Base of all lines."""


class Loaded(StorageLine, frozen=True, tag="loaded"):
    """The storage could be made."""

    name: str
    outlives_its_process: bool


class Refused(StorageLine, frozen=True, tag="refused"):
    """The target makes no checkpoint storage."""

    message: str


class ShownLine(StorageLine, frozen=True, tag="shown"):
    """What became of one property."""

    name: str
    passed: bool
    reason: str = ""
    violated: str = ""
    """The clause that is broken; empty if it raised something."""
    shown: dict[str, int] = {}
    processes: int = 0


AnyLine = Loaded | Refused | ShownLine


def told_by(line: StorageLine) -> bytes:
    """Return a value as a line."""
    return msgspec.json.encode(line) + b"\n"


def read_line(line: bytes) -> AnyLine:
    """Return the value of a line; raises msgspec.MsgspecError if it is none."""
    found: AnyLine = msgspec.json.decode(line, type=Loaded | Refused | ShownLine)
    return found
