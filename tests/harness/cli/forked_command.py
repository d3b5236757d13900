"""Runs the command in a process forked from this one, which is quick because everything is imported already."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from barrier_tck.harness.cli.main import main

Stream = int | None
"""A descriptor, or None for a stream that the caller closed."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def forked(
    arguments: Sequence[str],
    *,
    out: Stream = -1,
    err: Stream = -1,
    encoding: str = "utf-8",
    call: Callable[[Sequence[str]], object] = main,
    variables: Mapping[str, str] | None = None,
) -> Ended:
    """Run the command as its entry point does; standard output and error are kept, unless they are given."""
    with tempfile.TemporaryFile() as kept_out, tempfile.TemporaryFile() as kept_err:
        child = os.fork()
        if child == 0:
            faulthandler.disable()
            code = 99
            try:
                _redirect(1, kept_out.fileno() if out == -1 else out, encoding)
                _redirect(2, kept_err.fileno() if err == -1 else err, encoding)
                os.environ.update(variables or {})
                call(arguments)
            except SystemExit as stop:
                code = int(stop.code or 0)
            except BaseException:  # noqa: BLE001 - a test's process must not run the rest of pytest
                traceback.print_exc()
            finally:
                for stream in (sys.stdout, sys.stderr):
                    with contextlib.suppress(OSError, AttributeError):  # nobody reads it, or it was closed
                        stream.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        return Ended(os.waitstatus_to_exitcode(status), _read(kept_out, encoding), _read(kept_err, encoding))


def _redirect(descriptor: int, target: Stream, encoding: str) -> None:
    stream = None
    if target is None:
        os.close(descriptor)
    else:
        os.dup2(target, descriptor)
        stream = open(descriptor, "w", encoding=encoding, closefd=False)  # noqa: SIM115 - until the process ends
    setattr(sys, {1: "stdout", 2: "stderr"}[descriptor], stream)


def _read(file: IO[bytes], encoding: str) -> str:
    file.seek(0)
    return file.read().decode(encoding)
