"""Temporary directories whose name contains their owner, and the removal of those whose owner was killed."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path

from barrier_tck.harness.support.owners import owner_in_short, process_identity

_PREFIX = "barrier-tck-work-"
SHARED_MEMORY = Path("/dev/shm")
"""Where Linux mounts a file system in memory."""
_FREE_BYTES = 1 << 30
"""How much must be free there: containers often have 64 MiB, in which Spark's or a user's own files may be."""
_NAME = re.compile(rf"{_PREFIX}[a-z]+-(\d+-[0-9a-f]+)-\w+")


def new_work_directory(kind: str) -> Path:
    """Make a directory whose name says what it is for, in small letters, and whose it is; remove orphaned ones."""
    remove_orphaned()
    return Path(tempfile.mkdtemp(prefix=work_prefix(kind)))


def temporary_work_directory(kind: str, *, in_memory: bool = False) -> tempfile.TemporaryDirectory[str]:
    """Make such a directory for a context manager, or for a caller that cleans it up.

    ``in_memory``: its files are small and need not outlive the process, so that a file system in memory may hold them.
    """
    return tempfile.TemporaryDirectory(prefix=work_prefix(kind), dir=_memory() if in_memory else None)


def work_prefix(kind: str) -> str:
    """Return the beginning of the name of such a directory; a process's first call removes orphaned ones."""
    return f"{_PREFIX}{kind}-{_owner(os.getpid())}-"


def remove_orphaned() -> list[Path]:
    """Remove the directories whose owner was killed, and return them; those of running processes stay."""
    removed = []
    for path in sorted(path for parent in work_parents() for path in parent.glob(f"{_PREFIX}*")):
        named = _NAME.fullmatch(path.name)
        owner = owner_in_short(named[1]) if named else None
        if owner is not None and not owner.running():
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


def is_temporary(path: Path) -> bool:
    """Return whether a path lies in such a directory, of whichever process."""
    return any(parent.name.startswith(_PREFIX) for parent in path.parents)


def work_parents() -> tuple[Path, ...]:
    """Return the directories in which there may be work directories."""
    return Path(tempfile.gettempdir()), SHARED_MEMORY


def _memory() -> Path | None:
    """Return the file system in memory; None, for the usual place, if the user named one or too little is free.

    A sync of a file on a disk takes milliseconds, and a trial with RocksDB makes hundreds.
    """
    named = any(os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    if named or not os.access(SHARED_MEMORY, os.W_OK | os.X_OK):
        return None
    return SHARED_MEMORY if shutil.disk_usage(SHARED_MEMORY).free >= _FREE_BYTES else None


@cache
def _owner(pid: int) -> str:
    """Return the identity of this process in short, by its pid: a process that it forks is another one."""
    remove_orphaned()
    return process_identity(pid).short
