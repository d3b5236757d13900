"""Tells an exception that stands for a failure of the world from one that shows a bug."""

from __future__ import annotations

import traceback
from pathlib import Path

from barrier_tck.reference_impl.protocol.messages import Crash, Frame
from barrier_tck.reference_impl.runtime_errors import BehindLoop, RuntimeFailure

_OF_THE_WORLD = (RuntimeFailure, OSError, MemoryError)
_FRAMES_MAX = 30


def crash_of(error: BaseException) -> Crash | None:
    """Return what a process died of, and where it was raised; None if the world is to blame."""
    if isinstance(error, _OF_THE_WORLD):
        return None
    frames = [
        Frame(frame.f_globals.get("__name__", ""), Path(frame.f_code.co_filename).name.rstrip(">"), line)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    described = traceback.TracebackException(type(error), error, None)
    described.__notes__ = None  # a library's notes may have many lines, none of which names the exception
    last_line = list(described.format_exception_only())[-1].strip()
    loop = error.loop if isinstance(error, BehindLoop) else ""
    return Crash(last_line, tuple(reversed(frames[-_FRAMES_MAX:])), loop)
