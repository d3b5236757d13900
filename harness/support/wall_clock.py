"""A limit of wall time for code that may never return, such as code of third parties."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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

    Code that got less than half of a processor is given as long again if the machine is busy: if the code goes on all
    the same, or if its threads were ready half of the time and had to wait for a processor.

    It is raised between two steps of Python: code that stands still inside a library that never returns to Python is
    not reached. Only the main thread can be interrupted, and only one limit is in force at a time: elsewhere, and
    inside another limit, there is none.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    inside = True
    began = seen = process_time()
    kept = waited_for_a_processor_s()

    def interrupt(*_: object) -> None:
        nonlocal seen, kept
        last, seen = seen, process_time()
        before, kept = kept, waited_for_a_processor_s()
        is_busy = seen - last > _STANDS * seconds or is_kept_waiting(kept - before, seconds)
        if inside and seen - began < _BUSY * seconds and is_busy:
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


def waited_for_a_processor_s(pid: int | None = None) -> float:
    """Return how long the threads of a process have been ready without running, in seconds: all of them together.

    ``pid`` None means this process. It is 0 where the kernel does not tell, and for a process that has ended.
    """
    return sum(threads_waited_s(pid).values())


def threads_waited_s(pid: int | None = None) -> dict[int, float]:
    """Return how long each thread of a process has been ready without running since it was started, in seconds.

    ``pid`` None means this process. It is empty where the kernel does not tell, and for a process that has ended.
    """
    waited: dict[int, float] = {}
    tasks = f"/proc/{'self' if pid is None else pid}/task"
    try:
        threads = os.listdir(tasks)
    except OSError:
        return {}  # the process has ended, or there is no such directory here
    for thread in threads:
        try:
            waited[int(thread)] = int(Path(tasks, thread, "schedstat").read_text().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            continue  # the thread has just ended
    return waited


def disks_awaited_s(pressure: Path = Path("/proc/pressure/io")) -> float:
    """Return for how long at least one process of this machine has waited for a disk since it was started, in seconds.

    It is 0 where the kernel does not tell (https://docs.kernel.org/accounting/psi.html).
    """
    try:
        some = pressure.read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, IndexError):
        return 0.0


def is_kept_waiting(waited_s: float, seconds: float) -> bool:
    """Return whether code waited for a processor too long for a limit of so many seconds to say anything of it."""
    return waited_s > _BUSY * seconds
