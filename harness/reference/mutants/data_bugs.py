"""Planted bugs of sources, sinks and state backends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.aggregate import AggregateSpec, KeyedAggregate
from barrier_tck.reference_impl.operators.api import (
    AccumulatorTable,
    DataPlane,
    Operator,
    Payload,
    SourceReader,
)
from barrier_tck.reference_impl.operators.graph import OperatorSpec
from barrier_tck.reference_impl.operators.sinks import FileSink, TransactionalFileSink
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot, SplitPosition
from barrier_tck.reference_impl.protocol.transactions import TransactionHandle
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.state.backend import SnapshotFuture, StateScope
from barrier_tck.reference_impl.state.heap import HeapStateBackend, HeapStateStore
from barrier_tck.reference_impl.state.heap_files import CapturedState
from barrier_tck.reference_impl.state.snapshots import FinishedSnapshot


class _WrappedReader:
    """Passes everything on to another reader."""

    def __init__(self, inner: SourceReader) -> None:
        self.inner = inner

    def restore(self, positions: Sequence[SplitPosition]) -> None:
        self.inner.restore(positions)

    def poll(self) -> Payload | None:
        return self.inner.poll()

    def positions(self) -> tuple[SplitPosition, ...]:
        return self.inner.positions()

    @property
    def rate_limit(self) -> float | None:
        return self.inner.rate_limit

    def close(self) -> None:
        self.inner.close()


class NeverReads(_WrappedReader):
    """Skips splits that were forgotten."""

    def __init__(self, inner: SourceReader) -> None:
        """Wrap the product's reader."""
        super().__init__(inner)
        self.forgotten: tuple[str, ...] = ()
        """The splits that are never read."""

    def poll(self) -> Payload | None:
        """Skip the batches of forgotten splits."""
        while True:
            before = self.inner.positions()
            payload = self.inner.poll()
            moved = [new.split for old, new in zip(before, self.inner.positions(), strict=True) if old != new]
            if payload is None or not any(split in self.forgotten for split in moved):
                return payload


class TakesZeroForNothing(NeverReads):
    """SO-01: a split whose restored offset is 0 is treated like one without any state, and never read."""

    def restore(self, positions: Sequence[SplitPosition]) -> None:
        """Forget the splits whose offset is falsy."""
        self.forgotten = tuple(position.split for position in positions if not position.offset)
        super().restore(positions)

    def positions(self) -> tuple[SplitPosition, ...]:
        """Report forgotten splits as not yet begun."""
        return tuple(
            SplitPosition(position.split, 0) if position.split in self.forgotten else position
            for position in self.inner.positions()
        )


class ResumesAtTheLastRecord(_WrappedReader):
    """SO-02: reading resumes at the record that was read last, not at the one after it."""

    def restore(self, positions: Sequence[SplitPosition]) -> None:
        """Restore a position one record too early."""
        super().restore(
            tuple(SplitPosition(position.split, max(0, position.offset - 1)) for position in positions)
        )


class ForgetsOnOpening(_WrappedReader):
    """SO-03: opening the reader makes new containers after the state was restored into the old ones."""

    def __init__(self, inner: SourceReader) -> None:
        """Remember the positions of a reader that has read nothing."""
        super().__init__(inner)
        self._empty = inner.positions()

    def restore(self, positions: Sequence[SplitPosition]) -> None:
        """Restore, then open."""
        super().restore(positions)
        self.inner.restore(self._empty)


class ReadsAgainAndDrops(_WrappedReader):
    """RR-01: after a restore every split is read from its beginning, and what was read before is dropped."""

    def __init__(self, inner: SourceReader) -> None:
        """Start without anything to drop."""
        super().__init__(inner)
        self._until: dict[str, int] = {}

    def restore(self, positions: Sequence[SplitPosition]) -> None:
        """Only remember the positions."""
        self._until = {position.split: position.offset for position in positions}

    def poll(self) -> Payload | None:
        """Drop the batches before the position."""
        while True:
            before = self.inner.positions()
            payload = self.inner.poll()
            moved = [new for old, new in zip(before, self.inner.positions(), strict=True) if old != new]
            if payload is None or all(new.offset > self._until.get(new.split, -1) for new in moved):
                return payload

    def positions(self) -> tuple[SplitPosition, ...]:
        """Report the position at which reading really continues."""
        return tuple(
            SplitPosition(position.split, max(position.offset, self._until.get(position.split, 0)))
            for position in self.inner.positions()
        )


class LeavesRecordsInTheBuffer(TransactionalFileSink):
    """SI-04: the snapshot succeeds while records are still in the sink's buffer; they are flushed after it."""

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotFuture[OperatorSnapshot]:
        """Prepare only what was flushed before."""
        self.pre_commit(checkpoint)
        return FinishedSnapshot(OperatorSnapshot(self.uid, transactions=self.prepared))

    def end_of_input(self) -> Iterable[Payload]:
        """Flush, so that only a failure shows the loss."""
        last = super().end_of_input()
        self.flush_buffer()
        return last


class RefusesToCommitTwice(TransactionalFileSink):
    """SI-02: recovery fails on a transaction that was committed already."""

    def recover_and_commit(self, transactions: Sequence[TransactionHandle]) -> None:
        """Fail if anything was committed before."""
        for transaction in transactions:
            for file in transaction.files:
                if self._files.exists(file.committed):
                    raise StorageError(
                        f"transaction {transaction.transaction} is in an invalid state: committed"
                    )
        super().recover_and_commit(transactions)


class CommitsAtTheBarrier(TransactionalFileSink):
    """SK-01, AO-02: what is prepared at the barrier is committed at once, not when its checkpoint is complete."""

    def pre_commit(self, checkpoint: CheckpointId) -> None:
        """Prepare and commit in one go."""
        super().pre_commit(checkpoint)
        self.commit(self.prepared)


class CommitsWhenItIsStopped(TransactionalFileSink):
    """AO-03: a sink that is stopped commits what it has prepared, whether or not the checkpoint is complete."""

    def close(self) -> None:
        """Commit what is prepared."""
        self.commit(self.prepared)
        super().close()


class SweepsSuccessors(TransactionalFileSink):
    """FE-02: a sink takes every pending file that it does not know for a leftover, even its successor's files."""

    def discard_leftovers(self, kept: Sequence[TransactionHandle]) -> None:
        """Delete the subtask's files of every attempt but this one."""
        keep = {file.pending for transaction in kept for file in transaction.files}
        own = f"{self._subtask_name}-a{self._attempt}-"
        for path in self._files.list_files(self._pending_directory):
            name = path.rpartition("/")[2]
            of_subtask = name.startswith(f"{self._subtask_name}-a")
            if of_subtask and not name.startswith(own) and path not in keep:
                self._files.delete(path)


def with_sink(sink: type[TransactionalFileSink], spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build an operator; a file sink becomes the given variant."""
    return sink(spec, plane) if isinstance(spec, FileSink) else spec.build(plane)


def leaves_records_in_the_buffer(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build the chain with SI-04."""
    return with_sink(LeavesRecordsInTheBuffer, spec, plane)


def refuses_to_commit_twice(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build the chain with SI-02."""
    return with_sink(RefusesToCommitTwice, spec, plane)


def commits_at_the_barrier(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build the chain with SK-01."""
    return with_sink(CommitsAtTheBarrier, spec, plane)


def commits_when_it_is_stopped(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build the chain with AO-03."""
    return with_sink(CommitsWhenItIsStopped, spec, plane)


def sweeps_successors(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build the chain with FE-02."""
    return with_sink(SweepsSuccessors, spec, plane)


class ForgetsWhatItEvicts(KeyedAggregate):
    """EV-01: what makes room for other keys is never written back."""

    def evict(self, table: AccumulatorTable) -> None:
        """Drop what changed since it was last written."""
        table.take_dirty()
        super().evict(table)


def forgets_what_it_evicts(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build the chain with EV-01."""
    return ForgetsWhatItEvicts(spec, plane) if isinstance(spec, AggregateSpec) else spec.build(plane)


class FindsNothing(KeyedAggregate):
    """EV-02: a key that was evicted begins anew when it comes back."""

    def look_up(self, groups: Sequence[int], keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Find nothing."""
        return [None] * len(keys)


def finds_nothing(spec: OperatorSpec, plane: DataPlane) -> Operator:
    """Build the chain with EV-02."""
    return FindsNothing(spec, plane) if isinstance(spec, AggregateSpec) else spec.build(plane)


class _LiveStore(HeapStateStore):
    """BE-01: the asynchronous part reads the live tables."""

    def capture(self) -> list[CapturedState]:
        return [(name, dict(state.readable)) for name, state in self._states.items()]


class SnapshotsLiveTables(HeapStateBackend):
    """BE-01: the synchronous part copies only references, and writes continue in place."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store without copy-on-write."""
        return _LiveStore(scope)


class _HastyStore(HeapStateStore):
    """CW-01: what is shared with a snapshot is copied only after the first write."""

    def put(self, name: str, group: int, key: bytes, value: bytes) -> None:
        """Write to the table that a snapshot shares, and then to its copy."""
        before = self._states[name].readable.get(group)
        super().put(name, group, key, value)
        if before is not None:
            before[key] = value


class WritesBeforeItCopies(HeapStateBackend):
    """CW-01: the first change of a key group after a snapshot becomes part of the snapshot."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that copies too late."""
        return _HastyStore(scope)


class _OneStateStore(HeapStateStore):
    """CW-02: only the first state of an operator is marked as shared with a snapshot."""

    def capture(self) -> list[CapturedState]:
        """Note the tables; the other states are written in place as before."""
        captured = [(name, dict(state.readable)) for name, state in self._states.items()]
        for state in list(self._states.values())[:1]:
            state.writable.clear()
        return captured


class SharesTheFirstState(HeapStateBackend):
    """CW-02: writes to an operator's second state become part of the snapshot."""

    def new_store(self, scope: StateScope) -> HeapStateStore:
        """Return a store that copies on write in its first state only."""
        return _OneStateStore(scope)
