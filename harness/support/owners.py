"""Who owns a directory: the identity of a process, which a directory's name can contain."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

#: Two processes that read the start time of a third may see times that differ by the clock's adjustment.
_START_TIME_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies a process even if its pid is reused: the pid and the start time (seconds since the epoch)."""

    pid: int
    created: float

    @property
    def short(self) -> str:
        """The identity as a part of a file's name, for instance `4711-6a03f2c1`; `owner_in_short` reads it."""
        return f"{self.pid}-{int(self.created):x}"

    def running(self) -> bool:
        """Whether it still runs; a zombie does not."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < _START_TIME_TOLERANCE_S
            return bool(same and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False


def this_process() -> ProcessIdentity:
    """The identity of the calling process."""
    return process_identity(os.getpid())


def process_identity(pid: int) -> ProcessIdentity:
    """The identity of a process that runs."""
    return ProcessIdentity(pid, float(psutil.Process(pid).create_time()))


def owner_in_short(text: str) -> ProcessIdentity | None:
    """The owner that a part of a file's name contains; None if it contains none."""
    pid, _, created = text.partition("-")
    try:
        return ProcessIdentity(int(pid), float(int(created, 16)))
    except ValueError:
        return None
