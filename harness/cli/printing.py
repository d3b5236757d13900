"""How commands print: text for people and, with ``--json``, one object on the last line of standard output."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.console import Console


def console_for(as_json: bool) -> Console:
    """Return the console for people: standard output, or standard error if standard output is for machines."""
    return Console(stderr=as_json, highlight=False, soft_wrap=True)


def emit(as_json: bool, value: dict[str, Any]) -> None:
    """Print the object for machines if ``--json`` was given."""
    if as_json:
        print(msgspec.json.encode(value).decode(), flush=True)


def printable(text: str) -> str:
    """Spell out control characters, so that a candidate's escape sequences do not reach the terminal."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )
