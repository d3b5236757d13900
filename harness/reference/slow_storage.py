"""Slows down the asynchronous part of snapshots on a real cluster by delaying storage (SLOW_SNAPSHOTS). The simulator
does the same in virtual time. Here the thread that creates the first state file of a checkpoint sleeps before it does
so: this is whichever thread the runtime uses for the asynchronous part.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from barrier_tck.harness.reference.delegating_files import DelegatingFileSystem
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem

_CHECKPOINT = "/chk-"
_METADATA = "_metadata"


class SlowFiles(DelegatingFileSystem):
    """Waits before the first state file of each checkpoint."""

    def __init__(self, inner: FileSystem, seconds: float) -> None:
        super().__init__(inner)
        self._seconds = seconds
        self._begun: dict[str, None] = {}

    def check(self, path: str) -> None:
        """Wait if this is the first state file of its checkpoint. No file is refused."""
        job, found, rest = path.partition(_CHECKPOINT)
        directory, _, name = rest.partition("/")
        if found and not name.startswith(_METADATA) and f"{job}/{directory}" not in self._begun:
            self._begun[f"{job}/{directory}"] = None
            time.sleep(self._seconds)


@dataclass(frozen=True)
class SlowStorages:
    """Makes slow checkpoint storages; it is called with the same arguments as ``make``."""

    make: Callable[..., CheckpointStorage]
    seconds: float

    def __call__(self, files: FileSystem, *arguments: Any) -> CheckpointStorage:
        """Return a storage with slow files."""
        return self.make(SlowFiles(files, self.seconds), *arguments)


def slowed(components: Components, async_ms: int) -> Components:
    """Return the components with asynchronous parts that take at least this many milliseconds; 0: unchanged."""
    if not async_ms:
        return components
    slow = SlowStorages(components.checkpoint_storage, async_ms / 1000.0)
    return replace(components, checkpoint_storage=slow)
