"""Processes of this machine that are stopped, and how many pauses hold each of them.

Signals do not count: a single SIGCONT lets a process go on, however often it was stopped. Pauses may overlap, for
instance that of a worker and that of its executor; the process goes on when the last of them is over.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from threading import Lock

import psutil

_lock = Lock()
_pauses: Counter[psutil.Process] = Counter()
"""Process -> how many pauses hold it. A pid that was given out again is another process."""


def stop(process: psutil.Process) -> None:
    """Send SIGSTOP, and hold the process until ``go_on`` was called as often; psutil.NoSuchProcess if it is dead."""
    with _lock:
        process.suspend()
        _pauses[process] += 1


def go_on(process: psutil.Process) -> None:
    """End one pause; SIGCONT is sent when none is left. Harmless if the process is dead."""
    with _lock:
        _pauses[process] -= 1
        if _pauses[process] > 0:
            return
        del _pauses[process]
        with contextlib.suppress(psutil.NoSuchProcess):
            process.resume()
