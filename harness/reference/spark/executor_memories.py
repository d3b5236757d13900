"""Local copies in the memory of executors, as fault targets of one job.

The memory has no name. It is reached through the daemon that owns it: the kernel shows the open files of a process to
with what permissions. What is found there is the runtime's own file system, so the same code damages both, disks and
memory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

from barrier_tck.faults.targets import TargetGone
from barrier_tck.harness.reference.copy_targets import LocalCopies
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.spark.executor_memory import ExecutorMemory
from barrier_tck.reference_impl.spark.spark_observer import SubtaskProcess
from barrier_tck.reference_impl.storage.copy_memory import NAME, MemoryFileSystem, SharedMemory
from barrier_tck.reference_impl.storage.local_copies import INCOMING, directory_of, local_root

_UNLIMITED = 2**62


class ExecutorMemories:
    """Where one job keeps its local copies in the memory of each executor."""

    def __init__(self, processes: Callable[[], Iterable[SubtaskProcess]], job: str, files_root: Path) -> None:
        self._processes = processes
        self._root = str(local_root("", job, str(files_root)))
        self._opened: dict[tuple[int, float], ExecutorMemory] = {}
        """(pid, time of its start) of a daemon -> its memory."""

    def wipe_all(self) -> None:
        """Remove the local copies that a job left: a failed job keeps them for a next attempt that never comes."""
        for files in self._files().values():
            with contextlib.suppress(StorageError):
                files.delete_tree("")
        for own in self._opened.values():
            os.close(own.memory.descriptor)
        self._opened.clear()

    def files(self) -> tuple[str, ...]:
        """Return every file of the job that is in the memory of an executor that lives."""
        return tuple(
            f"{place}:{path}" for place, files in self._files().items() for path in files.list_files("")
        )

    def copies_of(self, subtask: str) -> LocalCopies:
        """Return the local copies of a subtask.

        To leave no room for further copies, a file takes the name of the directory in which they are begun.
        """
        parsed = SubtaskId.parse(subtask)
        files = self._files()
        obstacle = f"{directory_of(parsed)}/{INCOMING}"

        def refuse() -> None:
            if not files:
                raise TargetGone("no executor has memory for local copies yet")
            for host in files.values():
                host.delete_tree(obstacle)
                host.create(obstacle).close()

        def refuses() -> bool:
            return all(host.exists(obstacle) for host in files.values())

        def obstruct(host: str, directory: str) -> Callable[[], bool]:
            raise TargetGone(f"memory has no directories, so {directory} cannot become unreadable on {host}")

        return LocalCopies(parsed, dict(files), refuse, refuses, obstruct)

    def _files(self) -> dict[str, MemoryFileSystem]:
        """Return place -> the job's files there, for every executor that lives."""
        hosts = {process.executor_pid: process.host for process in self._processes() if process.executor_pid}
        return {
            own.place(host): MemoryFileSystem(own.memory, self._root, _UNLIMITED)
            for pid, host in sorted(hosts.items())
            for own in self._memories_of(pid)
        }

    def _memories_of(self, executor: int) -> Iterator[ExecutorMemory]:
        """Yield the memory that the daemon of an executor owns, if it is there."""
        try:
            children = [(child.pid, child.create_time()) for child in psutil.Process(executor).children()]
        except psutil.Error:
            return
        for child in children:
            if child not in self._opened:
                descriptor = _open(child[0])
                if descriptor is None:
                    continue
                self._opened[child] = ExecutorMemory(child[0], SharedMemory(descriptor))
            yield self._opened[child]


def _open(pid: int) -> int | None:
    """Open the memory for copies that a process has open; None if it has none, or is gone."""
    try:
        for entry in sorted(Path(f"/proc/{pid}/fd").iterdir()):
            if os.readlink(entry).startswith(f"/memfd:{NAME}"):
                return os.open(entry, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    return None
