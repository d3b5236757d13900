"""The memory of an executor for local copies of state. It outlives attempts and Python workers, not the executor.

Every executor has one Python daemon, which forks its workers and dies with it. The daemon makes the memory before it
forks; each worker inherits it (decision 0063). Where another daemon is configured, there is none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.copy_memory import SharedMemory


@dataclass(frozen=True, slots=True)
class ExecutorMemory:
    """What the workers of one daemon share."""

    owner_pid: int
    """The daemon's process."""
    memory: SharedMemory

    def place(self, host: str) -> str:
        """Return a name that no other executor's memory has: who finds it again finds the copies, too."""
        return f"{host}/daemon-{self.owner_pid}"


_OWN: list[ExecutorMemory] = []
"""The memory that this process owns or has inherited, if any."""


def reserve() -> None:
    """Make the memory of this process and of those that it will fork; none where the operating system cannot."""
    try:
        memory = SharedMemory.create()
    except StorageError:
        return  # a slot without memory for copies says so when it is asked for some
    _OWN[:] = [ExecutorMemory(os.getpid(), memory)]


def executor_memory() -> ExecutorMemory | None:
    """Return the memory that this process shares with its executor's other workers; None if it has none."""
    return _OWN[0] if _OWN else None
