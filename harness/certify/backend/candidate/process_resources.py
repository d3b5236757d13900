"""What this process holds: descriptors, threads, files."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
import time
from pathlib import Path

import psutil

THREADS_END_S = 2.0
"""Threads that were asked to end may take this many seconds together before they count as left behind."""


def descriptors() -> tuple[str, ...]:
    """Return what each open descriptor refers to."""
    found = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # the descriptor of the listing itself, closed by now
    return tuple(sorted(path for path in found if not path.startswith("/proc/")))


def give_back_memory() -> None:
    """Collect garbage and return free memory to the operating system, so that only memory in use is counted."""
    gc.collect()
    # Only some C libraries have malloc_trim.
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def settled(process: psutil.Process) -> int:
    """Wait for threads that are about to end; return the number of threads that remain."""
    until = time.monotonic() + THREADS_END_S
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(max(0.0, until - time.monotonic()))
    return int(process.num_threads())


def files_below(directory: str) -> tuple[str, ...]:
    """Return the files below a directory, by their paths within it."""
    root = Path(directory)
    return tuple(sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()))
