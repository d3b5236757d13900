"""A query's checkpoint directory as storage that faults take away: while it is gone, nothing can be read or written."""

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
    """When it comes back; None if the successor of the driver has not started, or starts are counted."""


class CheckpointOutages:
    """The outages of one trial. Faults take directories away; the run of the query says when they may come back."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self._lock = threading.Lock()
        self._outages: list[_Outage] = []

    @property
    def is_away(self) -> bool:
        """Whether some part of it is gone."""
        with self._lock:
            return bool(self._outages)

    def writes(self, part: str = "") -> RefusedWrites:
        """Return all writes to the directory, or to a part of it, as a target."""
        return RefusedWrites(self, self._checkpoint / part)

    def take_away(self, path: Path, failures: int | None = None, duration_ms: float = 0.0) -> None:
        """Let a directory be gone until ``failures`` starts have failed, or until ``duration_ms`` after the next start.

        Raises TargetGone if it is not there.
        """
        with self._lock:
            if not path.is_dir():
                raise TargetGone(str(path.name))
            path.rename(path.with_name(path.name + _AWAY))
            self._outages.append(_Outage(path, failures, duration_ms))
            path.touch(exist_ok=False)

    def hide(self, duration_ms: float) -> None:
        """Let all of it be gone until this long after the driver's successor starts; nothing if it was never used."""
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
            self._bring_back([one for one in self._outages if one.failures_left == 0])

    def look(self, now_ms: float) -> None:
        """Bring back what is due."""
        with self._lock:
            self._bring_back(
                [one for one in self._outages if one.ends_ms is not None and one.ends_ms <= now_ms]
            )

    def restore(self) -> None:
        """Bring back everything. Twice is harmless."""
        with self._lock:
            self._bring_back(list(self._outages))

    def _bring_back(self, over: list[_Outage]) -> None:
        for outage in sorted(
            over, key=lambda one: len(one.path.parts)
        ):  # what contains another one comes first
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
        """Return what is hit."""
        return f"directory {self._path.name}"

    def refuse_writes(self, checkpoints: int) -> None:
        """Let the directory be gone until the query has failed this often; raises TargetGone if it is not there."""
        self._storage.take_away(self._path, failures=checkpoints)

    def refuses_writes(self) -> bool:
        """Return whether nothing could be written into the directory now."""
        return self._path.is_file() or self._path.parent.is_file()

    def damage(self, damage: Damage) -> None:
        """Raise TargetGone: Spark promises nothing about files of a checkpoint that somebody else changed."""
        raise TargetGone(f"{self.description} cannot be {damage.phrase}")

    def is_damaged(self) -> bool:
        """Return False: nothing is damaged."""
        return False
