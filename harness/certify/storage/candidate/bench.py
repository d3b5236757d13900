"""Fixtures for the checks of a checkpoint storage: instances of it, processes that are killed, and checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Sequence

from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    OperatorSnapshot,
    Savepoint,
    SplitPosition,
    StateHandle,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage

MakeStorage = Callable[[str, str], CheckpointStorage]
"""Makes a job's storage from its location (a directory, or the beginning of a URL) and the name of the job."""

Errors = type[Exception] | tuple[type[Exception], ...]

FILES, FAILS, ONCE, COMPLETE, COUNTERS, DELETED, SAVEPOINTS = (f"STO-{number}" for number in range(1, 8))

GROUPS = KeyGroupRange(0, 8)
COUNT = SubtaskId("count", 0)
ATTEMPT = AttemptNumber(1)
READY = "ready"
"""What a process that is to be killed prints when it begins."""
_KILLED_PROCESS = "barrier_tck.harness.certify.storage.candidate.killed_process"
_CHILD_S = 60.0


class Broken(Exception):
    """A storage violates a clause; the message says how."""

    def __init__(self, clause: str, message: str) -> None:
        super().__init__(message)
        self.clause = clause


class StorageBench:
    """The candidate's storage at a location that belongs to one property."""

    def __init__(self, make: MakeStorage, target: str, location: str) -> None:
        """Take the factory, the name by which other processes import it, and a location that was never used."""
        self._make = make
        self._target = target
        self._location = location
        self.shown: dict[str, int] = {}
        self.processes = 0

    def open(self, job: str = "job") -> CheckpointStorage:
        """Return a new instance, like that of a new process of the job."""
        return self._make(self._location, job)

    def require(self, clause: str, holds: bool, message: str) -> None:
        """Count a comparison that could have failed; raise Broken if it did."""
        if not holds:
            raise Broken(clause, message)
        self.shown[clause] = self.shown.get(clause, 0) + 1

    def refused(self, clause: str, errors: Errors, call: Callable[[], object], what: str) -> None:
        """Count a call that must raise one of ``errors``; raise Broken if it raised none."""
        try:
            call()
        except errors:
            self.shown[clause] = self.shown.get(clause, 0) + 1
            return
        raise Broken(clause, f"{what} was not refused")

    def run_until_killed(self, action: str, *given: str, after_s: float | None = None) -> None:
        """Run an action in another process, which kills itself or is killed ``after_s`` seconds after it began."""
        self.processes += 1
        command = [sys.executable, "-m", _KILLED_PROCESS, self._target, self._location, action, *given]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)}
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, text=True
        ) as child:
            try:
                assert child.stdout is not None
                line = child.stdout.readline().strip()
                if line != READY:
                    raise RuntimeError(f"{action} ended before it began: {line!r}")
                if after_s is not None:
                    time.sleep(after_s)
                    child.kill()
                code = child.wait(_CHILD_S)
            finally:
                child.kill()
        if code != -9 and after_s is None:
            raise RuntimeError(f"{action} was not killed, but ended with {code}")


def content_of(size: int, salt: int = 0) -> bytes:
    """Return ``size`` bytes, each of which is different with another salt."""
    block = bytes((each * 7 + salt * 13 + each // 256) % 251 for each in range(8192))
    return (block * (size // len(block) + 1))[:size]


def chunked(content: bytes, size: int) -> Iterable[bytes]:
    """Yield an empty piece, and then content in pieces of ``size`` bytes."""
    yield b""
    for start in range(0, len(content), size):
        yield content[start : start + size]


def write(
    storage: CheckpointStorage,
    checkpoint: int,
    content: bytes = b"state",
    name: str = "state",
    savepoint: str = "",
) -> StateHandle:
    """Write one state file."""
    writer = storage.writer(CheckpointId(checkpoint), ATTEMPT, COUNT, "aggregate", savepoint)
    return writer.write(name, [content], GROUPS)


def completed_of(
    checkpoint: int, handles: Sequence[StateHandle], splits: int = 1, savepoint: Savepoint | None = None
) -> CompletedCheckpoint:
    """Return a checkpoint of one source, whose metadata grows with its splits, and of one keyed subtask."""
    positions = tuple(SplitPosition(f"split-{number}", 3 * checkpoint) for number in range(splits))
    parts = (
        SubtaskSnapshot(SubtaskId("read", 0), ATTEMPT, (OperatorSnapshot("source", positions=positions),)),
        SubtaskSnapshot(COUNT, ATTEMPT, (OperatorSnapshot("aggregate", handles=tuple(handles)),)),
    )
    return CompletedCheckpoint(
        CheckpointId(checkpoint),
        ATTEMPT,
        100 * checkpoint,
        100 * checkpoint + 7,
        parts,
        savepoint=savepoint,
    )


def complete(
    storage: CheckpointStorage, checkpoint: int, files: int = 1, splits: int = 1
) -> CompletedCheckpoint:
    """Reserve an id, write files, and publish the checkpoint."""
    storage.reserve(CheckpointId(checkpoint), ATTEMPT)
    handles = [write(storage, checkpoint, content_of(64, number), f"f{number}") for number in range(files)]
    completed = completed_of(checkpoint, handles, splits)
    storage.publish(completed)
    return completed


def handles_of(completed: CompletedCheckpoint) -> tuple[StateHandle, ...]:
    """Return the state files of a checkpoint."""
    return tuple(handle for part in completed.snapshots for handle in part.handles())


def checksum(content: bytes) -> str:
    """Return the checksum that a handle must carry."""
    return f"crc32:{zlib.crc32(content):08x}"
