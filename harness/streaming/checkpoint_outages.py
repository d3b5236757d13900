"""Outages of a query's checkpoint directory: during an outage nothing can be read from it or written to it."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.faults.targets import Damage, TargetGone

COMMITS = "commits"
"""The part of a checkpoint directory in which the driver notes that a micro-batch is committed."""
_AWAY = ".away"


@dataclass(slots=True)
class _Outage:
    """A directory that was moved away; a file stands in its place, so that no process can make the directory again."""

    path: Path
    failures_left: int | None = None
    """How many more starts of the query must fail until it comes back; None: it comes back at ``ends_ms``."""
    duration_ms: float = 0.0
    ends_ms: float | None = None
    """When it comes back; None before the next driver has started, and if failed starts are counted."""


class CheckpointOutages:
    """The outages of one trial. Faults take directories away; the run of the query says when they may come back."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self._outages: list[_Outage] = []

    @property
    def is_away(self) -> bool:
        """Whether a part of the directory is gone."""
        with self._lock:
            return bool(self._outages)

    def writes(self, part: str = "") -> RefusedWrites:
        """Return all writes to the directory, or to a part of it, as a target."""
        return RefusedWrites(self, self._checkpoint / part)

    def take_away(self, path: Path, failures: int | None = None, duration_ms: float = 0.0) -> None:
        """Let a directory be gone until ``failures`` starts have failed, or until ``duration_ms`` after the next start.

        Raises TargetGone if the directory does not exist.
        """
        with self._lock:
            if not path.is_dir():
                raise TargetGone(str(path.name))
            path.rename(path.with_name(path.name + _AWAY))
            self._outages.append(_Outage(path, failures, duration_ms))
            path.touch(exist_ok=False)

    def hide(self, duration_ms: float) -> None:
        """Let the whole directory be gone until ``duration_ms`` after the next driver starts, if it exists."""
        if self._checkpoint.is_dir():
            self.take_away(self._checkpoint, duration_ms=duration_ms)

    def started(self, now_ms: float) -> None:
        """A driver has started: the time of outages that have a duration begins."""
        with self._lock:
            for outage in self._outages:
                if outage.failures_left is None and outage.ends_ms is None:
                    outage.ends_ms = now_ms + outage.duration_ms

    def failed(self) -> None:
        """A start of the query has failed: a directory comes back if enough starts have failed."""
        with self._lock:
            for outage in self._outages:
                if outage.failures_left is not None:
                    outage.failures_left -= 1
            self._end([outage for outage in self._outages if outage.failures_left == 0])

    def end_due(self, now_ms: float) -> None:
        """End the outages whose time is over."""
        with self._lock:
            self._end(
                [
                    outage
                    for outage in self._outages
                    if outage.ends_ms is not None and outage.ends_ms <= now_ms
                ]
            )

    def restore(self) -> None:
        """End all outages; to be called any number of times."""
        with self._lock:
            self._end(list(self._outages))

    def _end(self, outages: list[_Outage]) -> None:
        # A directory comes back before those that it contains.
        for outage in sorted(outages, key=lambda outage: len(outage.path.parts)):
            self._outages.remove(outage)
            if outage.path.is_dir():
                shutil.rmtree(outage.path)
            else:
                outage.path.unlink(missing_ok=True)
            outage.path.with_name(outage.path.name + _AWAY).rename(outage.path)


class RefusedWrites:
    """Writes that can be made to fail; implements ``barrier_tck.faults.targets.CopiesTarget``."""

    files: tuple[str, ...] = ()

    def __init__(self, storage: CheckpointOutages, path: Path) -> None:
        self._storage = storage
        self._path = path

    @property
    def description(self) -> str:
        return f"directory {self._path.name}"

    def refuse_writes(self, checkpoints: int) -> None:
        """Let the directory be gone until the query has failed this often; raises TargetGone if it does not exist."""
        self._storage.take_away(self._path, failures=checkpoints)

    def refuses_writes(self) -> bool:
        """Return whether nothing could be written into the directory now."""
        return self._path.is_file() or self._path.parent.is_file()

    def damage(self, damage: Damage) -> None:
        """Raise TargetGone: Spark promises nothing about checkpoint files that another program changed."""
        raise TargetGone(f"{self.description} cannot be {damage.phrase}")

    def is_damaged(self) -> bool:
        """Return False: nothing is damaged."""
        return False
