"""Where the harness keeps what it makes once and reuses: prepared inputs and archives of Spark's classes."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

DATA_VARIABLE = "BARRIER_TCK_DATA"
"""Environment variable that names the directory."""


def data_directory() -> Path:
    """Return BARRIER_TCK_DATA, or else a directory in the user's cache. It need not exist yet."""
    data = os.environ.get(DATA_VARIABLE)
    if data:
        return Path(data).absolute()  # Spark's processes work in other directories
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "barrier-tck"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that other processes respect: one process makes something, and the others wait for it.

    ``path`` is the lock file; it is not removed. Raises OSError if it cannot be written.
    """
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def lock_if_free(path: Path) -> TextIO | None:
    """Take the same lock if no process holds it, else return None. It is held until every copy of the file is closed.

    Raises OSError if it cannot be written.
    """
    file = open(path, "w")  # noqa: SIM115 - who takes the lock closes it
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file
