"""Candidates whose processes misbehave: a certifier must survive each of them and say what it did."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    SnapshotFuture,
    StateCapability,
    StateReader,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore, IncrementalHeapStore
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot, FinishedSnapshot

no_backend = 7
"""Not a backend at all."""


class RaisesWhenMade(HeapStateBackend):
    """Cannot be made."""

    def __init__(self) -> None:
        """Raise."""
        raise RuntimeError("no licence key found")


class ExitsWhenMade(HeapStateBackend):
    """Ends its process."""

    def __init__(self) -> None:
        """Exit."""
        sys.exit(7)


class HangsWhenOpened(HeapStateBackend):
    """Never returns."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Wait for what never comes."""
        threading.Event().wait()
        raise AssertionError("unreachable")


class EatsMemory(HeapStateBackend):
    """Asks for more than a process may have."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Take 64 GiB, in pieces."""
        eaten = [bytearray(1 << 26) for _ in range(1024)]
        raise AssertionError(f"got {len(eaten)} pieces")


class ForksAndPrints(HeapStateBackend):
    """Is right, but noisy, and a forked copy of it goes on as if it were the process itself."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Print, fork, and continue in both processes."""
        sys.stdout.write("opening " * 1000)
        sys.stdout.flush()
        os.write(1, b"\xff\x00 raw bytes on standard output")
        if os.fork() == 0:
            # The copy behaves like the process, but it has no connection any more.
            return HeapStateStore(scope)
        return super().open(scope, restore, reader)


class LeavesAProcess(HeapStateBackend):
    """Starts a helper in its own session, and never ends it."""

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Start the helper."""
        subprocess.Popen(
            [sys.executable, "-c", "import threading; threading.Event().wait()"], start_new_session=True
        )
        return super().open(scope, restore, reader)


class HasNoOpen:
    """Is no state backend."""

    name = "no-open"


class ExitsWhileWriting(HeapStateBackend):
    """Ends its process in the middle of a store's life."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        return _ExitingStore(scope)


class _ExitingStore(HeapStateStore):
    def delete(self, name: str, group: int, key: bytes) -> None:
        os._exit(0)


class HangsWhenMade(HeapStateBackend):
    """Never returns from being made."""

    def __init__(self) -> None:
        """Wait for what never comes."""
        threading.Event().wait()


class DeclaresNonsense(HeapStateBackend):
    """Declares something that is no capability."""

    capabilities = frozenset({"very fast"})  # type: ignore[arg-type]


# --- false declarations ---------------------------------------------------------------------------------------


class _Liar(HeapStateBackend):
    declared: frozenset[StateCapability]

    @property
    def capabilities(self) -> frozenset[StateCapability]:
        """Return what it declares."""
        return self.declared


class NotAsynchronous(_Liar):
    """Writes in the synchronous part."""

    declared = frozenset({StateCapability.ASYNCHRONOUS_SNAPSHOTS})

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that writes at once."""
        return _EagerStore(scope)


class _EagerStore(HeapStateStore):
    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        return FinishedSnapshot(super().snapshot(checkpoint, writer).run())


class SynchronousAndConcurrent(_Liar):
    """A right one: it writes in the synchronous part, and so may have any number of unfinished snapshots."""

    declared = frozenset({StateCapability.CONCURRENT_SNAPSHOTS})

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that writes at once."""
        return _EagerStore(scope)


class NotConcurrent(_Liar):
    """Forgets a snapshot that is not finished when the next one begins."""

    declared = frozenset({StateCapability.CONCURRENT_SNAPSHOTS})

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that does one thing at a time."""
        return _SingleStore(scope)


class _SingleStore(HeapStateStore):
    def __init__(self, scope: StateScope) -> None:
        super().__init__(scope)
        self._latest: SnapshotFuture[tuple[StateHandle, ...]] | None = None

    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        if self._latest is not None:
            self._latest.cancel()
        self._latest = super().snapshot(checkpoint, writer)
        return self._latest


class NotOrdered(_Liar):
    """Scans in the order of insertion."""

    declared = frozenset({StateCapability.ORDERED_SCAN})


class NotLocal(_Liar):
    """Keeps a file outside its working directory."""

    declared = frozenset({StateCapability.LOCAL_FILES})

    def open(self, scope: StateScope, restore: Sequence[StateHandle], reader: StateReader) -> KeyedStateStore:
        """Leave a file in the temporary directory."""
        descriptor, _ = tempfile.mkstemp()
        os.close(descriptor)
        return super().open(scope, restore, reader)


class NotDeterministic(_Liar):
    """Writes a number into its files that differs from run to run."""

    declared = frozenset({StateCapability.DETERMINISTIC_FILES})

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store with an additional state."""
        store = HeapStateStore(scope)
        store.put("opened", scope.key_groups.start, b"nonce", os.urandom(8))
        return store


class NotIncremental(_Liar):
    """Writes everything again in every snapshot."""

    declared = frozenset({StateCapability.INCREMENTAL_SNAPSHOTS})

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that knows nothing of increments."""
        return HeapStateStore(scope)


class BuildsOnTheUnconfirmed(_Liar):
    """Refers to the files of the newest snapshot, whatever became of it."""

    declared = frozenset({StateCapability.INCREMENTAL_SNAPSHOTS})

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that takes every stored snapshot for a confirmed one."""
        return _HastyStore(scope)


class _HastyStore(IncrementalHeapStore):
    def snapshot(
        self, checkpoint: CheckpointId, writer: StateWriter
    ) -> SnapshotFuture[tuple[StateHandle, ...]]:
        future = super().snapshot(checkpoint, writer)

        def run() -> tuple[StateHandle, ...]:
            handles = future.run()
            self.confirm(checkpoint)
            return handles

        return DeferredSnapshot(run, future.cancel)


class LosesTombstones(_Liar):
    """Leaves removed keys out of its increments."""

    declared = frozenset({StateCapability.INCREMENTAL_SNAPSHOTS})

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that notes no removal."""
        return _ForgetfulStore(scope)


class _ForgetfulStore(IncrementalHeapStore):
    def delete(self, name: str, group: int, key: bytes) -> None:
        HeapStateStore.delete(self, name, group, key)
