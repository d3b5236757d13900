"""A lock for which all processes of a user on one host wait, wherever their temporary directories are."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path

_DIRECTORY = Path("/tmp")
"""Not TMPDIR, which a resource manager may set to another directory for each of several processes on a host."""


def host_lock() -> Path:
    """Return the file that is locked. It is empty and stays: whoever removed it would free it for a second process."""
    directory = _DIRECTORY if _DIRECTORY.is_dir() else Path(tempfile.gettempdir())
    return directory / f"barrier-tck-trials-{os.getuid()}.lock"


def opened_lock(path: Path) -> int:
    """Open the file to lock, and return its descriptor; raises OSError if another user put something in its place."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(descriptor).st_uid != os.geteuid():
        # Whoever owns a file that all may open could hold its lock for ever.
        os.close(descriptor)
        raise OSError(errno.EPERM, "it belongs to another user")
    return descriptor


def wait_for_lock(descriptor: int) -> None:
    """Return when this process holds the lock: until every copy of the descriptor is closed, however that happens.

    Raises OSError if there are no locks, for instance on some file systems of a network.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX)
