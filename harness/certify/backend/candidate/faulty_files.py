"""Storage for a candidate backend: real files that fail or stop at a chosen operation."""

from __future__ import annotations

import threading

from barrier_tck.harness.certify.backend.wire import StorageFault
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.filesystem import LocalFileSystem, OutputStream

STAND_STILL_S_MAX = 120.0
"""After this many seconds an asynchronous part that is never let go on gives up."""


class FaultyFiles(LocalFileSystem):
    """The files of one snapshot. They count operations, and may fail at one or stop before one.

    Nothing is forced to disk, because only processes die here, never the machine.
    """

    def __init__(self, root: str, fault: StorageFault | None = None) -> None:
        super().__init__(root)
        self._fault = fault
        self._operations = 0
        self._stop_at: int | None = None
        self._go = threading.Event()
        self.standing = threading.Event()
        self.fault_fired = False
        self.written: dict[str, list[int]] = {}
        """Path -> the length that the file had after each write."""

    @property
    def operations(self) -> int:
        """Return how many operations were counted."""
        return self._operations

    def stand_still_at(self, operation: int) -> None:
        """Stop before an operation, counted from now (1 is the next one)."""
        self._stop_at = self._operations + operation

    def go_on(self) -> None:
        """Let a stopped operation continue, and never stop again."""
        self._stop_at = None
        self._go.set()

    def step(self, what: str) -> bool:
        """Count an operation; return True if this write must be short; raises StorageError."""
        self._operations += 1
        if self._operations == self._stop_at:
            self.standing.set()
            if not self._go.wait(STAND_STILL_S_MAX):
                raise StorageError("storage stood still for too long")
        fault = self._fault
        if fault is None or self.fault_fired or self._operations < fault.at:
            return False
        wanted = {"short": "write", "close": "close"}.get(fault.kind)
        if wanted is not None and what != wanted:
            return False
        self.fault_fired = True
        if fault.kind == "short":
            return True
        raise StorageError(f"injected: {what} failed (operation {self._operations} of the snapshot)")

    def create(self, path: str) -> OutputStream:
        """Create a file, unless storage fails."""
        self.step("create")
        self.written[path] = []
        return _FaultyStream(super().create(path), self, self.written[path])

    def sync_directory(self, path: str) -> None:
        """Count it."""
        self.step("sync_directory")


class _FaultyStream:
    """A stream that asks its file system before each operation."""

    def __init__(self, inner: OutputStream, files: FaultyFiles, lengths: list[int]) -> None:
        self._inner = inner
        self._files = files
        self._lengths = lengths

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def write(self, data: bytes) -> int:
        if self._files.step("write"):
            return self._inner.write(data[: len(data) // 2])
        self._lengths.append(len(data) + (self._lengths[-1] if self._lengths else 0))
        return self._inner.write(data)

    def flush(self) -> None:
        self._inner.flush()

    def sync(self) -> None:
        self._files.step("sync")
        self._inner.flush()

    def close(self) -> None:
        if self._inner.closed:
            return
        self._inner.close()
        self._files.step("close")
