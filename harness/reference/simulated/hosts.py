"""Simulated hosts: the disk that only a host's own processes see, and disks that refuse writes.

A killed executor comes back on its host and finds the disk as it was. In the place of a lost host there is another one,
or the same one again, with an empty disk. A backend that keeps real files gets a real directory as its host's disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from barrier_tck.faults.fault import CopyPlace
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.delegating_files import DelegatingFileSystem
from barrier_tck.harness.reference.simulated.file_system import SimulatedDisk, SimulatedFileSystem
from barrier_tck.reference_impl.config import CopyMedium, JobConfig
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.paths import safe_name
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.copy_memory import MemoryFileSystem, OwnMemory
from barrier_tck.reference_impl.storage.filesystem import FileSystem, LocalFileSystem, OutputStream

_METADATA = "_metadata"
"""What the name of a file begins with that makes a checkpoint complete."""


class LocalDisk(DelegatingFileSystem):
    """A host's own disk; a subtask for which it is full cannot write to it any more, and directories can be
    unreadable."""

    def __init__(self, inner: FileSystem) -> None:
        """Wrap a disk, which is not full."""
        super().__init__(inner)
        self.full_for: dict[str, None] = {}
        """Directories of the subtasks for which there is no room."""
        self.refused_next: dict[str, int] = {}
        """Directory of a subtask -> for how many of its next files there is no room."""
        self.unreadable: dict[str, None] = {}
        """Directories that cannot be read; they can still be listed and deleted."""

    def create(self, path: str) -> OutputStream:
        """Create a file; where there is no room, the disk is full in the middle of its first write."""
        stream = super().create(path)
        return _CutOff(stream, path) if self.is_full(path) or self._is_refused(path) else stream

    def read(self, path: str) -> bytes:
        """Return the whole content, unless its directory is unreadable."""
        if any(path.startswith(f"{directory}/") for directory in self.unreadable):
            raise StorageError(f"cannot read {path}: input/output error")
        return super().read(path)

    def is_full(self, path: str) -> bool:
        """Return whether there is no room for a file."""
        return path.partition("/")[0] in self.full_for

    def _is_refused(self, path: str) -> bool:
        """Return whether there is no room for this file, though there may be for the next one."""
        owner = path.partition("/")[0]
        left = self.refused_next.get(owner, 0)
        if left:
            self.refused_next[owner] = left - 1
        return left > 0

    def lose_unsynced(self) -> None:
        """Lose what was not synced; if the files are real, lose everything."""
        if isinstance(self.inner, SimulatedFileSystem):
            self.inner.lose_unsynced()
        else:
            self.inner.delete_tree("")


class _CutOff:
    """A file that is being written on a full disk: it takes half of the first write."""

    def __init__(self, stream: OutputStream, path: str) -> None:
        self._stream = stream
        self._path = path

    @property
    def closed(self) -> bool:
        return self._stream.closed

    def write(self, data: bytes) -> int:
        self._stream.write(data[: len(data) // 2])
        raise StorageError(f"cannot write to {self._path}: no space left on device")

    def flush(self) -> None:
        self._stream.flush()

    def sync(self) -> None:
        self._stream.sync()

    def close(self) -> None:
        self._stream.close()


class LinkingLocalDisk(LocalDisk):
    """A host's own disk of real files, which can be hard-linked (LOC-10)."""

    def __init__(self, inner: LocalFileSystem) -> None:
        """Wrap a real directory."""
        super().__init__(inner)
        self._real = inner

    def path_of(self, path: str) -> Path:
        """Return where a file is."""
        return self._real.path_of(path)

    def link(self, source: Path, target: str) -> None:
        """Link a file, if there is room for its name."""
        if self.is_full(target) or self._is_refused(target):
            raise StorageError(f"cannot link {target}: no space left on device")
        self._real.link(source, target)


@dataclass(slots=True)
class SimulatedHost:
    """A machine: its name, and the place for copies of state that only its own processes see. If that is an executor's
    memory, the name is of the memory."""

    name: str
    local: LocalDisk
    shared: SimulatedFileSystem
    """Its way to the disk that all hosts share. What it has not synced there can be lost with it."""


class SimulatedHosts:
    """All present hosts, by the position of their executors."""

    def __init__(
        self, count: int, disk: SimulatedDisk, real_directory: str | None, memory_bytes: int | None = None
    ) -> None:
        """Start ``count`` hosts with empty disks, below a real directory if one is given; with ``memory_bytes`` copies
        are in the memory of the executors, at most that many bytes in each.
        """
        self._disk = disk
        self._real_directory = real_directory
        self._memory_bytes = memory_bytes
        self._started = 0
        self.hosts = [self._new(disk.host()) for _ in range(count)]

    def executor_died(self, host: SimulatedHost) -> SimulatedHost:
        """Return the host on which the next executor is started: the same one, unless copies were in memory."""
        return host if self._memory_bytes is None else self._replaced(host, host.shared.of_next_process())

    def replace(self, host: SimulatedHost, returns: bool = False) -> SimulatedHost:
        """Lose a host and its disk; return the one that takes its place, under its name if it ``returns``."""
        return self._replaced(host, self._disk.host(), host.name if returns else None)

    def named(self, name: str) -> SimulatedHost | None:
        """Return the present host of a name, if there is one."""
        return next((host for host in self.hosts if host.name == name), None)

    def _replaced(
        self, host: SimulatedHost, shared: SimulatedFileSystem, name: str | None = None
    ) -> SimulatedHost:
        host.local.delete_tree("")
        fresh = self._new(shared, name)
        self.hosts[self.hosts.index(host)] = fresh
        return fresh

    def lose(self, host: SimulatedHost) -> None:
        """Lose a host and its disk for good."""
        host.local.delete_tree("")
        self.hosts.remove(host)

    def _new(self, shared: SimulatedFileSystem, name: str | None = None) -> SimulatedHost:
        if name is None:
            name = f"host-{self._started}"
            self._started += 1
        if self._memory_bytes is not None:
            return SimulatedHost(
                name, LocalDisk(MemoryFileSystem(OwnMemory(), "copies", self._memory_bytes)), shared
            )
        if self._real_directory is None:
            return SimulatedHost(name, LocalDisk(SimulatedDisk().host()), shared)
        return SimulatedHost(
            name, LinkingLocalDisk(LocalFileSystem(Path(self._real_directory) / name)), shared
        )


def memory_for_copies(config: JobConfig) -> int | None:
    """Return how many bytes local copies may take in an executor's memory; None if their place is a disk.

    The place is there without local recovery, too: whether it stays empty is looked at then (LOC-1).
    """
    return config.local_memory_bytes if config.local_copies is CopyMedium.MEMORY else None


@dataclass(slots=True)
class _Refusal:
    """Primaries of one subtask that cannot be written, for a number of its next checkpoints."""

    checkpoints_max: int
    spared: int
    """How many files of each checkpoint can still be written, because a disk seldom fails at the first one."""
    written: dict[str, int] = field(default_factory=dict)
    """Directory of a checkpoint -> files of it that could be written."""
    refused: set[str] = field(default_factory=set)
    """Directories of the checkpoints that failed."""

    def refuses(self, directory: str) -> bool:
        """Count a file of a checkpoint; return whether it cannot be written.

        A checkpoint that had no more files than are spared got through, as increments do. Then the next one is spared
        nothing.
        """
        if directory not in self.refused and len(self.refused) >= self.checkpoints_max:
            return False
        got_through = any(other != directory and other not in self.refused for other in self.written)
        if got_through or self.written.setdefault(directory, 0) >= self.spared:
            self.refused.add(directory)
            return True
        self.written[directory] += 1
        return False


class PrimaryDisk(DelegatingFileSystem):
    """Shared storage that refuses the state files of some subtasks for some checkpoints."""

    def __init__(self, inner: FileSystem, refusals: dict[str, _Refusal]) -> None:
        """Wrap one host's view; all hosts share the refusals."""
        super().__init__(inner)
        self._refusals = refusals

    def check(self, path: str) -> None:
        """Refuse a state file of a subtask that has refusals left."""
        directory, _, name = path.rpartition("/")
        for prefix, refusal in self._refusals.items():
            if name.startswith(prefix) and "/chk-" in path and refusal.refuses(directory):
                raise StorageError(f"cannot create {path}: input/output error")


class PrimaryFailures:
    """Decides which primaries cannot be written."""

    def __init__(self, spared: int) -> None:
        """Refuse nothing yet; ``spared`` files of each failing checkpoint can be written."""
        self._spared = spared
        self._refusals: dict[str, _Refusal] = {}

    def wrapped(self, files: FileSystem) -> FileSystem:
        """Return shared storage with these failures."""
        return PrimaryDisk(files, self._refusals)

    def refuse(self, subtask: str, checkpoints: int) -> None:
        """Make this number of a subtask's next checkpoints fail."""
        parsed = SubtaskId.parse(subtask)
        self._refusals[f"{safe_name(parsed.vertex)}-{parsed.index}-"] = _Refusal(checkpoints, self._spared)

    def refuses(self, subtask: str) -> bool:
        """Return whether a subtask has refusals left."""
        parsed = SubtaskId.parse(subtask)
        return f"{safe_name(parsed.vertex)}-{parsed.index}-" in self._refusals

    def refuse_metadata(self, checkpoints: int) -> None:
        """Make the metadata of this number of checkpoints fail."""
        self._refusals[_METADATA] = _Refusal(checkpoints, spared=0)

    def refuses_metadata(self) -> bool:
        """Return whether there are refusals of metadata."""
        return _METADATA in self._refusals


def planned_failures(plan: TrialPlan) -> PrimaryFailures | None:
    """Return what a plan's failing primaries need; None if it has none, because wrapping file systems costs time."""
    hits = [scheduled.fault.copies_hit for scheduled in plan.faults]
    metadata = any(scheduled.fault.fails_metadata for scheduled in plan.faults)
    if not metadata and not any(
        hit is not None and hit.place is CopyPlace.DURABLE and hit.damage is None for hit in hits
    ):
        return None
    # With local recovery a subtask's part has several files, of which the first one is spared.
    return PrimaryFailures(spared=int(bool(plan.local_recovery)))
