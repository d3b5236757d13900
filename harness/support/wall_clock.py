"""A limit of wall time for code that may never return, such as code of third parties."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import process_time

_AGAIN_S = 1.0
"""Code that catches the error is interrupted again after this many seconds."""
_BUSY = 0.5
"""Code that got less of a processor than this share may have been kept waiting by a busy machine."""
_STANDS = 0.01
"""Code that used less of a processor than this share is waiting for something else: it stands still."""


class TooLate(BaseException):
    """Code took too long. Not an Exception, so that this code does not catch it as one."""


@contextmanager
def limited(seconds: float, late: type[TooLate]) -> Iterator[None]:
    """Raise ``late`` in the middle of the code inside if that takes longer than this.

    Code that goes on, but got less than half of a processor, is on a busy machine, and is given as long again.

    It is raised between two steps of Python: code that stands still inside a library that never returns to Python is
    not reached. Only the main thread can be interrupted, and only one limit is in force at a time: elsewhere, and
    inside another limit, there is none.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    inside = True
    began = seen = process_time()

    def interrupt(*_: object) -> None:
        nonlocal seen
        last, seen = seen, process_time()
        if inside and seen - began < _BUSY * seconds and seen - last > _STANDS * seconds:
            signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
        elif inside:
            raise late

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
    try:
        yield
    finally:
        inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
