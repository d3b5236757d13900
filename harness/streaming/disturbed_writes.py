"""Writes to a query's checkpoint directory that faults disturb: what the harness tells a class of ours in Spark's JVMs.

``java/DisturbedWrites.java`` takes the place of Spark's file manager of checkpoints, in trials that plan such a fault.
It passes everything on, except for writes for which there is a token: a file in a directory that both know.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from barrier_tck.faults.targets import TargetGone, WriteTrouble
from barrier_tck.harness.cluster.driver.peer import PeerGone, RemoteError
from barrier_tck.harness.cluster.java_compiler import java_compiler, make_jar

SOURCE = Path(__file__).parent / "java" / "DisturbedWrites.java"
CLASS = "barriertck.DisturbedWrites"
JARS = "spark.jars"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""Spark's setting of the class that reads and writes checkpoint files."""
_DIRECTORY = "barriertck.writes.directory"
_OTHER_CLASS = "barriertck.writes.otherClass"
_STRUCK = "struck"

TryWrite = Callable[[str], str]
"""Lets the query's driver write a file; returns what went wrong. Raises PeerGone if there is no driver."""


def jar_of_writes(directory: Path) -> Path | None:
    """Make the jar with the class in a directory; None if there is no compiler."""
    compiler = java_compiler()
    if compiler is None:
        return None
    jar = directory / "disturbed-writes.jar"
    make_jar(compiler, [SOURCE], jar)
    return jar


def settings_of_writes(directory: str, conf: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings of a query whose writes can be disturbed, or cannot (no directory); None: not set.

    ``conf`` is what its user sets: a file manager of theirs does the work.
    """
    own = conf.get(FILE_MANAGER)
    if not directory:
        return {FILE_MANAGER: own}
    return {FILE_MANAGER: CLASS, _DIRECTORY: directory, _OTHER_CLASS: own or ""}


class DisturbedWrites:
    """All writes to one checkpoint directory; implements ``barrier_tck.faults.targets.DisturbableWrites``."""

    description = "writes to the checkpoint directory"

    def __init__(self, directory: Path, try_write: TryWrite) -> None:
        """Take a directory of our own, which is made, and what lets the driver write."""
        self.directory = directory
        self._try_write = try_write
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._struck_before = self._asked_before = 0
        self._proof = str(directory / "proof")
        directory.mkdir()

    def settings(self) -> dict[str, str]:
        """Return what Hadoop has to be told in a JVM whose writes are to be disturbed."""
        told = settings_of_writes(str(self.directory), {})
        return {name: value for name, value in told.items() if value is not None}

    def disturb(self, trouble: WriteTrouble, times: int, latency_ms: int) -> None:
        """Disturb a write that the driver makes for us, which is the proof, and as many of the query as asked for.

        Raises TargetGone if there is no driver.
        """
        with self._lock:
            self._struck_before = len(self.struck())
        self.disturb_next(trouble, times + 1, latency_ms)
        try:
            self._try_write(self._proof)
        except (PeerGone, RemoteError) as error:
            self.stop()
            raise TargetGone(f"there is no driver with a session ({error})") from error

    def disturb_next(self, trouble: WriteTrouble, times: int, latency_ms: int = 0) -> None:
        """Disturb so many of the next writes, whoever writes."""
        for _ in range(times):
            (self.directory / f"token-{next(self._numbers):04d}.{trouble}.{latency_ms}").touch()

    def is_struck(self) -> bool:
        """Tell whether a write was disturbed."""
        with self._lock:
            return len(self.struck()) > self._struck_before

    def has_met(self) -> bool:
        """Tell whether a write of the query was disturbed."""
        with self._lock:
            since = self.struck()[self._struck_before :]
        return any(line.partition(" ")[2] != self._proof for line in since)

    def struck(self) -> tuple[str, ...]:
        """Return every write that was disturbed, as trouble and path, in their order."""
        log = self.directory / _STRUCK
        return tuple(log.read_text().splitlines()) if log.is_file() else ()

    def struck_since(self) -> bool:
        """Tell whether a write was disturbed since this was asked last."""
        with self._lock:
            before, self._asked_before = self._asked_before, len(self.struck())
            return self._asked_before > before

    def stop(self) -> None:
        """Disturb nothing more. Twice is harmless."""
        for token in self.directory.glob("token-*"):
            token.unlink(missing_ok=True)
