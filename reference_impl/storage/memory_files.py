"""Checkpoint storage in the memory of the driver: for small state, and for as long as the driver lives (STA-2)."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable

from barrier_tck.reference_impl.runtime_errors import JobUsageError, StorageCause, StorageError
from barrier_tck.reference_impl.storage.checkpoint_storage import MediumCheckpointStorage

DEFAULT_LIMIT_BYTES = 16 * 1024 * 1024
"""How much the driver keeps unless configured otherwise: more would be felt by everything else that it does."""


class MemoryFiles:
    """Whole files in the memory of one process, up to a limit. Threads of the process share it."""

    def __init__(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        """Take the most that all files together may have, in bytes."""
        if limit_bytes < 1:
            raise JobUsageError(
                f"the driver's memory for checkpoints is {limit_bytes} bytes; give at least 1"
            )
        self._limit = limit_bytes
        self._contents: dict[str, bytes] = {}
        self._used = 0
        self._lock = threading.Lock()

    @property
    def limit_bytes(self) -> int:
        """Return how many bytes all files together may have."""
        return self._limit

    @property
    def used_bytes(self) -> int:
        """Return how many bytes all files have together."""
        return self._used

    def read(self, path: str) -> bytes:
        try:
            return self._contents[path]
        except KeyError:
            raise StorageError(f"{path} is not in the driver's memory", StorageCause.MISSING) from None

    def list_files(self, directory: str) -> list[str]:
        prefix = f"{directory}/" if directory else ""
        with self._lock:
            return sorted(path for path in self._contents if path.startswith(prefix))

    def exists(self, path: str) -> bool:
        return path in self._contents

    def delete(self, path: str) -> None:
        with self._lock:
            self._used -= len(self._contents.pop(path, b""))

    def delete_tree(self, directory: str) -> None:
        for path in self.list_files(directory):
            self.delete(path)

    def write(self, path: str, chunks: Iterable[bytes]) -> tuple[int, int]:
        """Keep a new file; raises StorageError, and keeps nothing of it, as soon as it passes the limit."""
        collected = bytearray()
        for chunk in chunks:
            collected += chunk
            self._require_room(path, len(collected))
        content = bytes(collected)
        self.put(path, content)
        return len(content), zlib.crc32(content)

    def put(self, path: str, content: bytes) -> None:
        """Keep a small file in place of what was there; raises StorageError if it passes the limit."""
        with self._lock:
            self._keep(path, content)

    def put_new(self, path: str, content: bytes) -> bool:
        """Keep a small file where there is none."""
        with self._lock:
            if path in self._contents:
                return False
            self._keep(path, content)
            return True

    def sync_directory(self, path: str) -> None:
        """Do nothing: what is here lives exactly as long as the process."""

    def _keep(self, path: str, content: bytes) -> None:
        self._require_room(path, len(content))
        self._used += len(content) - len(self._contents.get(path, b""))
        self._contents[path] = content

    def _require_room(self, path: str, size: int) -> None:
        others = self._used - len(self._contents.get(path, b""))
        if others + size > self._limit:
            raise StorageError(
                f"the driver's memory for checkpoints is full: {path} has {size} bytes or more, others have {others}, "
                f"and the limit is {self._limit}. Raise the limit, keep fewer checkpoints, or use files, S3 or HDFS"
            )


class MemoryCheckpointStorage(MediumCheckpointStorage):
    """Checkpoint storage of one job in the memory of its driver (STA-2).

    Durable means: as long as the process of the driver lives. With it all checkpoints are lost, also savepoints, and
    the job starts anew. So it is for tests, and for jobs that may do that. Subtasks must run in the driver's process.
    """

    outlives_its_process = False

    def __init__(self, files: MemoryFiles, job: str, root: str = "checkpoints") -> None:
        super().__init__(files, job, root)
        self._memory = files

    @property
    def limit_bytes(self) -> int:
        """Return the most bytes that all jobs with the same files may keep."""
        return self._memory.limit_bytes

    @property
    def held_bytes(self) -> int:
        """Return how many bytes they keep now."""
        return self._memory.used_bytes


_KEPT: dict[str, MemoryFiles] = {}
"""Location -> what is kept there, in this process."""


def memory_storage(location: str, job: str) -> MemoryCheckpointStorage:
    """Return the checkpoint storage of a job in this process; those with the same location share it and its limit."""
    return MemoryCheckpointStorage(_KEPT.setdefault(location, MemoryFiles()), job)
