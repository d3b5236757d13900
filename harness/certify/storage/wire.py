"""What the certifier and the process of a candidate storage send each other: names of properties, and answers as JSON.

Each is a line.
"""

from __future__ import annotations

import msgspec


class Answer(msgspec.Struct, frozen=True, tag_field="answer"):
    """Base of all answers."""


class Loaded(Answer, frozen=True, tag="loaded"):
    """The storage could be made."""

    name: str
    outlives_its_process: bool


class Refused(Answer, frozen=True, tag="refused"):
    """The target makes no checkpoint storage."""

    message: str


class Checked(Answer, frozen=True, tag="checked"):
    """What became of one property."""

    name: str
    passed: bool
    reason: str = ""
    violated: str = ""
    """The clause that is broken; empty if it raised something."""
    shown: dict[str, int] = {}
    processes: int = 0


AnyAnswer = Loaded | Refused | Checked


def encoded(answer: Answer) -> bytes:
    """Return an answer as a line."""
    return msgspec.json.encode(answer) + b"\n"


def decoded(line: bytes) -> AnyAnswer:
    """Return the answer of a line; raises msgspec.MsgspecError if it is none."""
    found: AnyAnswer = msgspec.json.decode(line, type=Loaded | Refused | Checked)
    return found
