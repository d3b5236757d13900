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
_NAME = re.compile(rf"{_PREFIX}[a-z]+-(\d+-[0-9a-f]+)-\w+")


def new_work_directory(kind: str) -> Path:
    """Make a directory whose name says what it is for, in small letters, and whose it is; remove orphaned ones."""
    remove_orphaned()
    return Path(tempfile.mkdtemp(prefix=work_prefix(kind)))


def temporary_work_directory(kind: str) -> tempfile.TemporaryDirectory[str]:
    """Make such a directory for a context manager, or for a caller that cleans it up."""
    return tempfile.TemporaryDirectory(prefix=work_prefix(kind))


def work_prefix(kind: str) -> str:
    """Return the beginning of the name of such a directory; a process's first call removes orphaned ones."""
    return f"{_PREFIX}{kind}-{_owner(os.getpid())}-"


def remove_orphaned() -> list[Path]:
    """Remove the directories whose owner was killed, and return them; those of running processes stay."""
    removed = []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        named = _NAME.fullmatch(path.name)
        owner = owner_in_short(named[1]) if named else None
        if owner is not None and not owner.running():
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed


@cache
def _owner(pid: int) -> str:
    """Return the identity of this process in short, by its pid: a process that it forks is another one."""
    remove_orphaned()
    return process_identity(pid).short
