"""Files that a candidate writes outside the directories it was given. No handle names them."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_KEPT_MAX = 10_000
_NO_STATE = ("/dev/null", "/dev/tty", "/dev/pts/", "/proc/", "/sys/")
"""Nothing can be kept there."""


class OutsideFiles:
    """Notes which files this process opens for writing: from Python's audit events, and from open descriptors."""

    def __init__(self) -> None:
        # Libraries keep their caches here.
        self._allowed = [os.path.expanduser("~/.cache") + os.sep]
        self._seen: dict[str, None] = {}
        sys.addaudithook(self._hear)

    def allow(self, *directories: str) -> None:
        """Allow files below these directories."""
        for directory in directories:
            if directory + os.sep not in self._allowed:
                self._allowed.append(directory + os.sep)

    def files(self) -> tuple[str, ...]:
        """Return the files written outside that still exist."""
        for path in _written_by_descriptors():
            self._note(path)
        return tuple(sorted(path for path in self._seen if self._counts(path)))

    def _counts(self, path: str) -> bool:
        return not path.startswith(tuple(self._allowed)) and os.path.isfile(path)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(flags, int) and flags & _WRITES and isinstance(path, str | bytes | os.PathLike):
                self._note(os.fsdecode(path))
        elif event in ("os.rename", "os.link"):
            target = arguments[1]
            if isinstance(target, str | bytes | os.PathLike):
                self._note(os.fsdecode(target))

    def _note(self, path: str) -> None:
        # The working directory may change later; bytecode files are not state.
        path = os.path.abspath(path)
        if not path.startswith(_NO_STATE) and "__pycache__" not in path and len(self._seen) < _KEPT_MAX:
            self._seen[path] = None


def _written_by_descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        # The descriptor of the listing itself is closed by now.
        with contextlib.suppress(OSError, StopIteration):
            lines = Path("/proc/self/fdinfo", name).read_text().splitlines()
            flags = next(int(line.split()[1], 8) for line in lines if line.startswith("flags:"))
            path = os.readlink(f"/proc/self/fd/{name}")
            if flags & (os.O_WRONLY | os.O_RDWR) and path.startswith("/"):
                found.append(path)
    return found
