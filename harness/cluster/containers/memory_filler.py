"""Uses up memory until another process is gone.

A host runs this file by its name: ``python memory_filler.py PID MOST``, with the pid of that process, and how many
bytes to take at the most. It needs nothing but Python. The exit code is 0 when the process is gone, and 1 if that much
memory did not do it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

_STEP = 4 << 20
_ENDS_S = 30.0
"""How long a process may take to end, once the kernel has taken its memory away."""
_POLL_S = 0.005


def fill(pid: int, most: int) -> bool:
    """Take memory step by step, and look after each step; return whether the process is gone.

    On a busy machine a killed process may lose its memory long before it is gone. If this process went on to take the
    memory that became free, the kernel would kill it, too.
    """
    taken: list[bytes] = []
    held = _resident_pages(pid)
    while len(taken) * _STEP <= most and not is_gone(pid):
        if _resident_pages(pid) < held // 2:
            break
        taken.append(b"\1" * _STEP)  # written, or the kernel would only promise it
    return ends(pid) if _resident_pages(pid) < held // 2 else is_gone(pid)


def ends(pid: int) -> bool:
    """Wait for the end of a process that is being killed; return whether it came."""
    until = time.monotonic() + _ENDS_S
    while not is_gone(pid) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return is_gone(pid)


def is_gone(pid: int) -> bool:
    """Return whether there is no such process, or nothing but its exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def _resident_pages(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0


if __name__ == "__main__":
    sys.exit(0 if fill(int(sys.argv[1]), int(sys.argv[2])) else 1)
