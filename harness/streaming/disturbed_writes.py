"""Writes to a query's checkpoint directory that faults disturb: what the harness tells a class of ours in Spark's JVMs.

``java/DisturbedWrites.java`` takes the place of Spark's file manager of checkpoints, in trials that plan such a fault.
It passes everything on, except for writes for which there is a token: a file in a directory that both know.
"""

from __future__ import annotations

import itertools
import threading
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from barrier_tck.faults.targets import TargetGone, WriteFault
from barrier_tck.harness.cluster.driver.peer import PeerGone, RemoteError
from barrier_tck.harness.cluster.installation import spark_home
from barrier_tck.harness.cluster.java_compiler import compiled_jar, java_compiler
from barrier_tck.harness.support.work_directories import temporary_work_directory

SOURCE = Path(__file__).parent / "java" / "DisturbedWrites.java"
CLASS = "barriertck.DisturbedWrites"
JARS = "spark.jars"
FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
"""Spark's setting of the class that reads and writes checkpoint files."""
_OLD_PLACE = "org.apache.spark.sql.execution.streaming.CheckpointFileManager"
_NEW_PLACE = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager"
_DIRECTORY = "barriertck.writes.directory"
_OTHER_CLASS = "barriertck.writes.otherClass"
_STRUCK = "struck"

TryWrite = Callable[[str], str]
"""Lets the query's driver write a file; returns what went wrong. Raises PeerGone if there is no driver."""


def jar_of_writes(directory: Path) -> Path | None:
    """Return the jar with the class, which is below the directory if it can be kept nowhere else; None: no compiler."""
    compiler = java_compiler()
    if compiler is None:
        return None
    with temporary_work_directory("writes") as copy:
        source = Path(copy) / SOURCE.name
        source.write_text(source_for(spark_home()))
        return compiled_jar(compiler, [source], "disturbed-writes", directory)


def source_for(spark: Path) -> str:
    """Return the class's source for an installed Spark: its file manager has moved to another package after 4.0."""
    (classes,) = spark.glob("jars/spark-sql_*.jar")
    with zipfile.ZipFile(classes) as archive:
        moved = f"{_NEW_PLACE.replace('.', '/')}.class" in archive.namelist()
    text = SOURCE.read_text()
    return text if moved else text.replace(_NEW_PLACE, _OLD_PLACE)


def settings_of_writes(directory: str, conf: Mapping[str, str]) -> dict[str, str | None]:
    """Return the settings of a query whose writes can be disturbed, or cannot (no directory); None: not set.

    ``conf`` is what its user sets: a file manager of theirs does the work.
    """
    own = conf.get(FILE_MANAGER)
    if not directory:
        return {FILE_MANAGER: own}
    return {FILE_MANAGER: CLASS, _DIRECTORY: directory, _OTHER_CLASS: own or ""}


class DisturbedWrites:
    """All writes to one checkpoint directory."""

    def __init__(self, directory: Path, try_write: TryWrite) -> None:
        self.directory = directory
        self._try_write = try_write
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._asked_before = 0
        self._proof = str(directory / "proof")
        directory.mkdir()

    def settings(self) -> dict[str, str]:
        """Return the settings of Hadoop for a JVM whose writes are to be disturbed."""
        settings = settings_of_writes(str(self.directory), {})
        return {name: value for name, value in settings.items() if value is not None}

    def of_one_fault(self) -> WritesOfOneFault:
        """Return the same writes for one fault, which tells nothing of what other faults of the trial disturb."""
        return WritesOfOneFault(self, self._proof, self._try_write)

    def disturb_next(self, trouble: WriteFault, times: int, latency_ms: int = 0) -> tuple[str, ...]:
        """Disturb so many of the next writes, whoever writes; return the names of their tokens."""
        names = []
        for _ in range(times):
            names.append(f"token-{next(self._numbers):04d}")
            (self.directory / f"{names[-1]}.{trouble}.{latency_ms}").touch()
        return tuple(names)

    def struck(self) -> tuple[str, ...]:
        """Return every write that was disturbed, as trouble and path, in their order."""
        return tuple(write for _, write in self.struck_by())

    def struck_by(self) -> tuple[tuple[str, str], ...]:
        """Return the same, each after the name of the token that it took."""
        log = self.directory / _STRUCK
        lines = log.read_text().splitlines() if log.is_file() else ()
        return tuple((token, write) for token, _, write in (line.partition(" ") for line in lines))

    def struck_since(self) -> bool:
        """Return whether a write was disturbed since this was asked last."""
        with self._lock:
            before, self._asked_before = self._asked_before, len(self.struck())
            return self._asked_before > before

    def stop(self, only: Collection[str] | None = None) -> None:
        """Disturb nothing more, or take only some tokens back, given by their names. Twice is harmless."""
        for token in self.directory.glob("token-*"):
            if only is None or token.name.partition(".")[0] in only:
                token.unlink(missing_ok=True)


class WritesOfOneFault:
    """The writes that one fault disturbs; implements ``barrier_tck.faults.targets.DisturbableWrites``."""

    description = "writes to the checkpoint directory"

    def __init__(self, writes: DisturbedWrites, proof: str, try_write: TryWrite) -> None:
        self._writes = writes
        self._proof = proof
        self._try_write = try_write
        self._tokens: frozenset[str] = frozenset()

    def disturb(self, trouble: WriteFault, times: int, latency_ms: int) -> None:
        """Disturb a write that the driver makes for us, which is the proof, and as many of the query as asked for.

        Raises TargetGone if there is no driver.
        """
        self._tokens = frozenset(self._writes.disturb_next(trouble, times + 1, latency_ms))
        try:
            self._try_write(self._proof)
        except (PeerGone, RemoteError) as error:
            self._writes.stop(self._tokens)
            raise TargetGone(f"there is no driver with a session ({error})") from error

    def is_struck(self) -> bool:
        """Return whether a write was disturbed."""
        return any(token in self._tokens for token, _ in self._writes.struck_by())

    def has_met(self) -> bool:
        """Return whether a write of the query was disturbed."""
        return any(
            token in self._tokens and write.partition(" ")[2] != self._proof
            for token, write in self._writes.struck_by()
        )
