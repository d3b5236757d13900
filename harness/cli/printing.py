"""Where commands print: for people, and with ``--json`` one object for machines as the last line of standard output."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Console


def console_for(as_json: bool) -> Console:
    """Return where people read: standard output, or standard error if machines read that."""
    return Console(stderr=as_json, highlight=False, soft_wrap=True)


def emit(as_json: bool, value: dict[str, Any]) -> None:
    """Print the one object for machines, if they read."""
    if as_json:
        print(msgspec.json.encode(value).decode(), flush=True)


def printable(text: str) -> str:
    """Spell out control characters: an escape sequence of a candidate must not reach a terminal."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )
