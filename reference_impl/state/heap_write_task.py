"""The asynchronous part of the heap backend's snapshots: serialises captured tables and writes them, or stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from threading import Lock

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import KeyGroupRange
from barrier_tck.reference_impl.protocol.messages import StateHandle
from barrier_tck.reference_impl.runtime_errors import SnapshotCancelled
from barrier_tck.reference_impl.state.backend import StateWriter, TwoFormatStateWriter
from barrier_tck.reference_impl.state.heap_files import CapturedState, Table, serialised
from barrier_tck.reference_impl.state.held import FrozenState

Release = Callable[[], None]
"""Unpins the tables of a snapshot; harmless when called twice."""


class Captured:
    """What one snapshot has captured: the tables of the store, and what an operator holds in a form of its own."""

    def __init__(self, tables: list[CapturedState], frozen: FrozenState) -> None:
        self.tables = tables
        self.frozen = frozen

    def whole(self) -> list[CapturedState]:
        """Return all of it as tables."""
        made: dict[str, dict[int, Table]] = {}
        for part in self.frozen.entries(None):
            table = made.setdefault(part.name, {}).setdefault(part.group, {})
            table.update(zip(part.keys, part.values, strict=True))
        return [*self.tables, *made.items()]


class WriteTask:
    """The asynchronous part of one snapshot: serialises what was captured and writes it."""

    def __init__(
        self,
        captured: Captured,
        writer: StateWriter,
        slices: Sequence[KeyGroupRange],
        compression: Compression,
        release: Release,
    ) -> None:
        self.captured = captured
        self.compression = compression
        self._writer = writer
        self._slices = slices
        self._release = release
        self._lock = Lock()
        self._started = False
        self._cancelled = False

    def run(self) -> tuple[StateHandle, ...]:
        """Write the files; whatever happens, the pinned version is released."""
        with self._lock:
            self._started = True
        try:
            return self.write()
        finally:
            self._end()

    def write(self) -> tuple[StateHandle, ...]:
        """Write a file per slice, and if the writer wants it the same state in another format beside each (LOC-7)."""
        writer = self._writer
        # Few writers have a second format; the question whether one is such a writer takes long.
        second = getattr(writer, "second_compression", None)
        if second is not None and isinstance(writer, TwoFormatStateWriter):
            return self._write_twice(writer, second)
        return self.write_full(writer.write)

    def _write_twice(self, writer: TwoFormatStateWriter, second: Compression) -> tuple[StateHandle, ...]:
        return tuple(
            writer.write_twice(name, self._chunks(part), self.cancellable(serialised(part, second)), groups)
            for name, part, groups in self._files()
        )

    def write_full(
        self, write: Callable[[str, Iterable[bytes], KeyGroupRange], StateHandle]
    ) -> tuple[StateHandle, ...]:
        """Write a full snapshot, a file per slice, with a method of a writer."""
        return tuple(write(name, self._chunks(part), groups) for name, part, groups in self._files())

    def _files(self) -> Iterator[tuple[str, list[CapturedState], KeyGroupRange]]:
        """Yield name, content and key groups of each file of a full snapshot."""
        whole = self.captured.whole()
        if len(self._slices) == 1:
            yield "state", whole, self._slices[0]
            return
        for number, groups in enumerate(self._slices):
            yield f"state-{number}", _part(whole, groups), groups

    def cancel(self) -> None:
        """Make a running write stop at its next chunk. One that has not started releases its version here."""
        with self._lock:
            self._cancelled = True
            started = self._started
        if not started:
            self._end()

    def _end(self) -> None:
        self.captured.frozen.release()
        self._release()

    def _chunks(self, captured: Sequence[CapturedState]) -> Iterator[bytes]:
        return self.cancellable(serialised(captured, self.compression))

    def cancellable(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield chunks until the snapshot is cancelled; raises SnapshotCancelled then."""
        for chunk in chunks:
            self._check_cancelled()
            yield chunk
        self._check_cancelled()

    def _check_cancelled(self) -> None:
        if self._cancelled:
            raise SnapshotCancelled("the asynchronous part of a heap snapshot was cancelled")


def slices_of(key_groups: KeyGroupRange, wanted: int) -> tuple[KeyGroupRange, ...]:
    """Cut a range into as many parts as are wanted, at least one, none of them empty."""
    count = max(1, min(wanted, len(key_groups)))
    cuts = [key_groups.start + len(key_groups) * number // count for number in range(count + 1)]
    return tuple(KeyGroupRange(start, end) for start, end in pairwise(cuts))


def _part(captured: Sequence[CapturedState], key_groups: KeyGroupRange) -> list[CapturedState]:
    return [(name, {g: table for g, table in tables.items() if g in key_groups}) for name, tables in captured]
