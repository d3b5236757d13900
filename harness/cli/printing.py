"""How commands print: text for people and, with ``--json``, one object on the last line of standard output.

A reader such as ``head`` may leave before the verdict, and a terminal may know no character but those of ASCII: neither
decides an exit code. Output that is lost otherwise, on a full disk for instance, is noted (``output_lost``), because
nobody has seen it.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import io
import json
import os
import sys
from typing import IO, Any

import msgspec
from rich.console import Console, RenderableType
from rich.status import Status

_IN_ASCII = {"✓": "+", "✗": "x", "–": "-", "×": "x", "…": "...", "→": "->", "·": "-"}
"""Our special characters -> what replaces them if they cannot be written. All others are spelled out."""
_ERRORS = "barrier-tck-in-ascii"
_WIDTH_OF_FILES = 1_000
"""Characters to a line where no terminal limits them; tables are as wide as what is in them."""


class VerdictConsole(Console):
    """A console that goes on silently if its output is no longer read, so that the verdict still decides the exit code.

    Names from elsewhere are printed as they are: neither markup nor emoji codes (``:b:``) mean anything.
    """

    def __init__(self, stderr: bool = False) -> None:
        """Print to standard output or to standard error."""
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)
        # ``is_terminal`` is not used, because a log that shows colours (FORCE_COLOR) claims to be a terminal.
        if not self.file.isatty():  # in a file nothing is cut off at the width of a terminal
            self.width = _WIDTH_OF_FILES

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; drop what cannot be written, for instance because the disk is full."""
        try:
            super().print(*objects, **options)
        except OSError as error:
            _note(error, self.file)
            self.on_broken_pipe()

    def status(self, status: RenderableType, **options: Any) -> Status:
        """Show what goes on, if this is a terminal: in a file or a pipe it would be noise, and might find no room."""
        if self.file.isatty():
            return super().status(status, **options)
        silent = VerdictConsole(stderr=True)
        silent.quiet = True
        return Status(status, console=silent)

    def on_broken_pipe(self) -> None:
        """Drop everything that is printed from now on; the default would exit with 1, which means a violation."""
        self.quiet = True
        drop_from_now_on(self.file)


def console_for(as_json: bool) -> VerdictConsole:
    """Return the console for people: standard output, or standard error if standard output is for machines."""
    return VerdictConsole(stderr=as_json)


def emit(as_json: bool, value: dict[str, Any]) -> None:
    """Print the object for machines if ``--json`` was given, in ASCII, which every reader can decode."""
    if not as_json:
        return
    line = json.dumps(msgspec.json.decode(msgspec.json.encode(value)))
    try:
        print(line, flush=True)
    except OSError as error:
        _note(error, sys.stdout)
        drop_from_now_on(sys.stdout)


_lost: list[OSError] = []
"""Why standard output could not be written, if anybody was there to read it."""


def _note(error: OSError, stream: IO[str]) -> None:
    if stream is sys.stdout and error.errno != errno.EPIPE:
        _lost.append(error)


def output_lost() -> str | None:
    """Write what is left in buffers; return why standard output was lost, or None if it was not, or its reader left."""
    stream: IO[str] | None = sys.stdout  # None if it was closed before Python started
    try:
        if stream is not None:
            stream.flush()
    except OSError as error:
        _note(error, sys.stdout)
        drop_from_now_on(sys.stdout)
    return _lost[0].strerror if _lost else None


def write_whatever_the_encoding() -> None:
    """Make standard output and error spell out characters that their encoding does not have, instead of failing."""
    codecs.register_error(_ERRORS, _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ERRORS)


def _in_ascii(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    left_out = error.object[error.start : error.end]
    spelled = (_IN_ASCII.get(c) or c.encode("ascii", "backslashreplace").decode() for c in left_out)
    return "".join(spelled), error.end


def drop_from_now_on(stream: IO[str]) -> None:
    """Redirect a stream's descriptor to /dev/null, together with the rest of its buffers."""
    with contextlib.suppress(
        OSError, ValueError
    ):  # a stream without a descriptor, as tests have, needs no more
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def printable(text: str) -> str:
    """Spell out control characters, so that a candidate's escape sequences do not reach the terminal."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )
