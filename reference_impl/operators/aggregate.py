"""The keyed aggregate: running aggregates per key, kept in a keyed state store, on either data plane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, TypeVar, cast

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import AccumulatorTable, DataPlane, OperatorContext, Payload
from barrier_tck.reference_impl.operators.functions import Aggregate, Emission
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot, StateHandle
from barrier_tck.reference_impl.runtime_errors import ProtocolError
from barrier_tck.reference_impl.state.backend import KeyedStateStore, SnapshotFuture
from barrier_tck.reference_impl.state.snapshots import MappedSnapshot

AGGREGATE_STATE = "aggregate"
"""Name of the state in the store: encoded key to encoded accumulator (``operators.encoding``)."""
CHANGED_STATE = "aggregate-changed"
"""Name of the state whose keys are yet to be emitted and not in memory; it is empty whenever a snapshot is taken."""

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """Spec of a keyed aggregate; its input is partitioned by ``key``."""

    inputs: ClassVar[int] = 1
    keeps_state: ClassVar[bool] = True
    uid: str
    key: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    """Output column to aggregate, in the order of the accumulator's values."""
    emit: Emission
    carry: tuple[str, ...] = ()
    """Input columns repeated in the rows of ``Emission.EACH_RECORD``."""

    def build(self, plane: DataPlane) -> KeyedAggregate:
        return KeyedAggregate(self, plane)


def emits_at_the_end(spec: object) -> bool:
    """Return whether an operator emits its results when its input ends, for each key once."""
    return isinstance(spec, AggregateSpec) and spec.emit is Emission.FINAL


class KeyedAggregate:
    """An ``Operator``. Live values are in an accumulator table; the store is brought up to date from it.

    The table is written through to the store after every batch, or only ahead of a snapshot, as the context
    says. In both cases the store holds exactly the records before the barrier when its snapshot begins
    (ALN-2).

    The table has all keys, or a limited number (``OperatorContext.cached_keys``, decision 0057). With a limit it is
    written to the store and emptied whenever the next records could exceed it, and fetches what it lacks. Changed keys
    that have yet to be emitted then wait in the store too, under ``CHANGED_STATE``.
    """

    def __init__(self, spec: AggregateSpec, plane: DataPlane) -> None:
        self.uid = spec.uid
        self._spec = spec
        self._plane = plane
        self._context: OperatorContext | None = None
        self._store: KeyedStateStore | None = None
        self._table: AccumulatorTable | None = None
        self._input_ended = False
        self._write_through = False
        self._limit: int | None = None
        self._changes_stored = False
        """Whether changed keys may be in the store."""
        self._emits_each = spec.emit is Emission.EACH_RECORD
        self._emits_changes = spec.emit is Emission.CHANGES

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Open the store with the restored files, and fill the table from it if it is to have all keys (REC-1)."""
        spec = self._spec
        self._context = context
        self._write_through = context.write_through
        self._limit = context.cached_keys
        self._store = context.open_store(self.uid, restored)
        self._table = self._plane.accumulators(spec.key, spec.aggregates, spec.carry, context.max_parallelism)
        if self._limit is None:
            entries = list(self._stored_entries())
            if entries:
                self._table.load(entries)
        self._input_ended = restored is not None and restored.input_ended

    @property
    def keys_in_memory(self) -> int:
        """Return how many keys the table has."""
        return len(self._opened_table())

    def process(self, payload: Payload) -> Payload | None:
        """Fold a batch in; returns running aggregates with ``Emission.EACH_RECORD``."""
        table = self._opened_table()
        if self._limit is None:
            output = table.update(payload, self._emits_each)
        else:
            output = self._update_within(table, self._limit, payload)
        if self._write_through:
            self._flush(table)
        return output

    def _update_within(self, table: AccumulatorTable, limit: int, payload: Payload) -> Payload | None:
        outputs = []
        for part in self._plane.slices(payload, limit):
            if len(table) + self._plane.length(part) > limit:
                self.evict(table)
            outputs.append(table.update(part, self._emits_each, self.look_up))
        return self._plane.joined([output for output in outputs if output is not None])

    def look_up(self, groups: Sequence[int], keys: Sequence[bytes]) -> Sequence[bytes | None]:
        """Return what the store has for keys that are not in the table."""
        return self._opened_store().get_many(AGGREGATE_STATE, groups, keys)

    def evict(self, table: AccumulatorTable) -> None:
        """Write what changed to the store, and empty the table."""
        self._flush(table)
        if self._emits_changes:
            groups, keys = table.take_changed()
            if keys:
                self._changes_stored = True
                self._opened_store().put_many(CHANGED_STATE, groups, keys, [b""] * len(keys))
        table.clear()

    def before_barrier(self, checkpoint: CheckpointId) -> Iterable[Payload]:
        """Return the keys changed since the previous emission, with ``Emission.CHANGES``.

        This leaves no changed key behind whenever a snapshot is taken, so the set of changed keys is always
        empty in a checkpoint and need not be part of it. The rows belong to the checkpoint, as they precede
        its barrier.
        """
        return self._changed_rows() if self._emits_changes else ()

    def end_of_input(self) -> Iterable[Payload]:
        """Return what is still to be emitted, unless a restored checkpoint already contains that emission."""
        ended_before, self._input_ended = self._input_ended, True
        if ended_before:
            return ()
        if self._emits_changes:
            return self._changed_rows()
        if self._spec.emit is Emission.FINAL:
            return self._final_rows()
        return ()

    def _changed_rows(self) -> Iterator[Payload]:
        table, store = self._opened_table(), self._opened_store()
        if not self._changes_stored:
            rows = table.take_changed_rows()
            if rows is not None:
                yield rows
            return
        self.evict(table)
        for group in self._opened_context().key_groups:
            changed = [key for key, _ in store.scan(CHANGED_STATE, group)]
            for keys in _parts_of(iter(changed), self._limit):
                groups = [group] * len(keys)
                values = self.look_up(groups, keys)
                assert None not in values, "what changed is in the store"
                yield from self._rows_of(zip(groups, keys, cast("Sequence[bytes]", values), strict=True))
            for key in changed:
                store.delete(CHANGED_STATE, group, key)
        self._changes_stored = False

    def _final_rows(self) -> Iterator[Payload]:
        table = self._opened_table()
        if self._limit is None:
            rows = table.all_rows()
            if rows is not None:
                yield rows
            return
        self.evict(table)
        for entries in _parts_of(self._stored_entries(), self._limit):
            yield from self._rows_of(entries)

    def _rows_of(self, entries: Iterable[tuple[int, bytes, bytes]]) -> Iterator[Payload]:
        """Yield the rows of entries, no more than the limit, by way of the table, which is empty before and after."""
        table = self._opened_table()
        table.load(list(entries))
        rows = table.all_rows()
        table.clear()
        if rows is not None:
            yield rows

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotFuture[OperatorSnapshot]:
        """Flush the table and do the store's synchronous part (SNP-1)."""
        self._flush(self._opened_table())
        uid, input_ended = self.uid, self._input_ended
        writer = self._opened_context().writers.writer(checkpoint, uid)
        future = self._opened_store().snapshot(checkpoint, writer)

        def wrap(handles: tuple[StateHandle, ...]) -> OperatorSnapshot:
            return OperatorSnapshot(uid, handles=handles, input_ended=input_ended)

        return MappedSnapshot(future, wrap)

    def checkpoint_completed(self, checkpoint: CheckpointId) -> bool:
        """Tell the store; returns False, as nothing is committed here."""
        self._opened_store().confirm(checkpoint)
        return False

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> None:
        """Tell the store to release what it kept for the checkpoint (COO-2)."""
        self._opened_store().abort(checkpoint)

    def close(self) -> None:
        """Close the store; harmless before ``open`` and twice."""
        if self._store is not None:
            self._store.close()

    def _stored_entries(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield key group, key and accumulator of all that is in the store."""
        for group in self._opened_context().key_groups:
            for key, value in self._opened_store().scan(AGGREGATE_STATE, group):
                yield int(group), key, value

    def _flush(self, table: AccumulatorTable) -> None:
        groups, keys, values = table.take_dirty()
        if keys:
            self._opened_store().put_many(AGGREGATE_STATE, groups, keys, values)

    def _opened_table(self) -> AccumulatorTable:
        if self._table is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._table

    def _opened_store(self) -> KeyedStateStore:
        if self._store is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._store

    def _opened_context(self) -> OperatorContext:
        if self._context is None:
            raise ProtocolError(f"operator {self.uid!r} was used before it was opened")
        return self._context


def _parts_of(items: Iterator[ItemT], size: int | None) -> Iterator[list[ItemT]]:
    """Yield lists of at most so many items."""
    while part := list(islice(items, size)):
        yield part
