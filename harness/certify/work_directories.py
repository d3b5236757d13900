"""Temporary directories of certifiers, and the removal of those whose certifier was killed."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from barrier_tck.harness.cluster.process_identity import ProcessIdentity, this_process

_PREFIX = "barrier-tck-certify-"
_NAME = re.compile(rf"{_PREFIX}[a-z]+-(\d+)-(\d+)-\w+")


def new_work_directory(kind: str) -> Path:
    """Make a directory whose name says what it is for, and whose it is; those of dead certifiers are removed first.

    ``kind`` has small letters only.
    """
    remove_orphaned()
    owner = this_process()
    prefix = f"{_PREFIX}{kind}-{owner.pid}-{int(owner.created)}-"
    return Path(tempfile.mkdtemp(prefix=prefix))


def remove_orphaned() -> list[Path]:
    """Remove the directories of certifiers that were killed, and return them; those of running ones stay."""
    removed = []
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")):
        named = _NAME.fullmatch(path.name)
        if named and not ProcessIdentity(int(named[1]), float(named[2])).running():
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
    return removed
