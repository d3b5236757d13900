"""The operator seam inside a subtask, and the data-plane seam under it.

A chain of operators runs in one subtask. Operators are written once; what depends on the form of a batch (rows
or Arrow) is behind ``DataPlane``, of which there are two implementations that must agree (a property test).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from barrier_tck.reference_impl.config import Compression
from barrier_tck.reference_impl.ids import AttemptNumber, CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.functions import Place
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot, SplitPosition
from barrier_tck.reference_impl.protocol.watermarks import EventTimeSnapshot
from barrier_tck.reference_impl.state.backend import (
    KeyedStateStore,
    SnapshotFuture,
    StateBackend,
    StateReader,
    StateScope,
    StateWriter,
)
from barrier_tck.reference_impl.storage.filesystem import FileSystem

Payload = Any
"""A batch of records, opaque to protocol and shell: an Arrow record batch on Spark, a list of rows simulated."""


class SnapshotWriterFactory(Protocol):
    """Makes the writer of one operator's files for one checkpoint."""

    def writer(self, checkpoint: CheckpointId, operator: str) -> StateWriter:
        """Return a writer into checkpoint storage, in the name of this subtask and attempt."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What an operator is given when it opens."""

    job: str
    subtask: SubtaskId
    parallelism: int
    attempt: AttemptNumber
    key_groups: KeyGroupRange
    max_parallelism: int
    state_backend: StateBackend
    reader: StateReader
    writers: SnapshotWriterFactory
    output_files: FileSystem
    """The file system that sinks write to (rooted at the file system's root, not at the sink's directory)."""
    write_through: bool = False
    """Keyed operators flush their accumulators to the store after every batch, not only at barriers."""
    cached_keys: int | None = None
    """Most keys whose accumulators a keyed aggregate has in memory; None: all (decision 0057)."""
    working_directory: Callable[[str], str | None] = lambda _uid: None
    """Makes an operator's local directory, if the state backend needs one."""
    defer_restored_commits: bool = False
    """Sinks commit what was prepared for a restored checkpoint only when the next one completes: until every subtask
    has its state, an older checkpoint may still be chosen instead (REC-4).
    """
    files_wanted: int = 1
    """How many files it is useful to split a snapshot of keyed state into."""
    compression: Compression = Compression.NONE
    """How snapshots of keyed state are compressed (SNP-6)."""
    incremental: bool = False
    """Whether checkpoints are incremental (SNP-5)."""
    now_ms: Callable[[], float] = lambda: 0.0
    """Returns the time now, in milliseconds of the epoch."""
    restored: CheckpointId | None = None
    """The checkpoint that is restored; None if there is none, or if state was redistributed."""
    own_threads: bool = True
    """Whether stores of keyed state may work in threads of their own."""
    event_time: EventTimeSnapshot | None = None
    """How far event time had come in the subtask in the checkpoint that is restored (EVT-1)."""
    emit_aside: Callable[[str, Payload], None] = lambda _output, _payload: None
    """Emits a batch to a side output of the vertex, by its name."""

    @property
    def place(self) -> Place:
        """Return what a user's function may know about where it runs."""
        return Place(self.job, self.subtask, self.parallelism, self.attempt)

    def open_store(self, uid: str, restored: OperatorSnapshot | None) -> KeyedStateStore:
        """Open the keyed state of one operator, with what a checkpoint holds for it (REC-1)."""
        handles = restored.handles if restored is not None else ()
        scope = StateScope(
            self.job,
            self.subtask.vertex,
            uid,
            self.subtask.index,
            self.attempt,
            self.key_groups,
            self.working_directory(uid),
            self.files_wanted,
            self.compression,
            self.incremental,
            None if any(handle.savepoint for handle in handles) else self.restored,
            self.own_threads,
        )
        return self.state_backend.open(scope, handles, self.reader)


class Operator(Protocol):
    """One operator of a chain. All calls come from the subtask's thread."""

    uid: str

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Get ready; ``restored`` is the operator's own part of the checkpoint that the attempt starts from."""

    def process(self, payload: Payload) -> Payload | None:
        """Process a batch and return what is passed on, or None."""

    def before_barrier(self, checkpoint: CheckpointId) -> Iterable[Payload]:
        """Return the batches that must be emitted ahead of the barrier, and so belong to this checkpoint.

        Each is made when it is taken, and all are.
        """

    def end_of_input(self) -> Iterable[Payload]:
        """No record follows; returns what is emitted last. Called once per attempt."""

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotFuture[OperatorSnapshot]:
        """Do the synchronous part of the snapshot."""

    def checkpoint_completed(self, checkpoint: CheckpointId) -> bool:
        """A checkpoint completed; return True if transactions were committed for it."""

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> None:
        """A checkpoint failed."""

    def close(self) -> None:
        """Release everything, committing nothing."""


class MultiInputOperator(Operator, Protocol):
    """An operator at the head of a vertex with several logical inputs; its ``process`` is never called."""

    def process_input(self, payload: Payload, number: int) -> Payload | None:
        """Process a batch that arrived on one input (``graph.Edge.input``) and return what is passed on, or None."""


@dataclass(frozen=True, slots=True)
class NothingYet:
    """What a source gives if it has no record now, and has not ended."""

    wait_ms: float
    """After how long to ask again."""


class SourceReader(Protocol):
    """Reads the splits of one source subtask, deterministically from a position (SRC-1)."""

    def restore(self, positions: Sequence[SplitPosition]) -> None:
        """Go to a position; called once, before the first ``poll``, and only on a restore."""

    def poll(self) -> Payload | NothingYet | None:
        """Return the next batch and advance, or that there is none yet, or None at the end of all splits."""

    @property
    def split(self) -> str:
        """Return the split of the last batch; asked only behind one."""

    @property
    def open_splits(self) -> Collection[str]:
        """Return the splits that have not ended, as far as this is known."""

    @property
    def quiet_splits(self) -> Collection[str]:
        """Return the splits that had no record when they were asked last."""

    def pause(self, splits: Collection[str]) -> None:
        """Read no more of these splits, and of all others again, from the next ``poll`` on (EVT-6).

        A paused split is not quiet: whether it has a record is not known.
        """

    def positions(self) -> tuple[SplitPosition, ...]:
        """Return the position of every assigned split, those not yet begun included (offset 0)."""

    @property
    def rate_limit(self) -> float | None:
        """Return the most records per second that the subtask may emit, or None."""

    def close(self) -> None:
        """Release files."""


class Source(Protocol):
    """A rewindable source; a value that is shipped to subtasks."""

    def open(self, subtask_index: int, parallelism: int, files: FileSystem, plane: DataPlane) -> SourceReader:
        """Return the reader of the subtask's share of the splits."""


LookUp = Callable[[Sequence[int], Sequence[bytes]], Sequence[bytes | None]]
"""Takes groups and keys, and gives the accumulators of those that have one."""


class AccumulatorTable(Protocol):
    """The running aggregates of one subtask's keys, vectorised or not, in front of a keyed state store.

    Keys and accumulators cross to the store as bytes, in one encoding that both planes share:
    ``operators.encoding``.
    """

    def load(self, entries: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Take (key group, key, accumulator) entries from a restored store."""

    def update(self, payload: Payload, emit_each: bool, look_up: LookUp | None = None) -> Payload | None:
        """Fold a batch in; with ``emit_each`` return one output row per input row (running aggregates).

        A key that the table does not have begins with what ``look_up`` gives for it, or else with nothing.
        """

    def take_dirty(self) -> tuple[Sequence[int], Sequence[bytes], Sequence[bytes]]:
        """Return groups, keys and accumulators changed since the last call, in a fixed order."""

    def take_changed(self) -> tuple[Sequence[int], Sequence[bytes]]:
        """Return groups and keys of what ``take_changed_rows`` would return, in its place."""

    def take_changed_rows(self) -> Payload | None:
        """Return one output row per key changed since the last call of this method, or None."""

    def all_rows(self) -> Payload | None:
        """Return one output row per key, or None if there is none."""

    def clear(self) -> None:
        """Forget all keys, also what is dirty or changed."""

    def __len__(self) -> int:
        """Return the number of keys."""


class RowEncoder(Protocol):
    """Writes payloads of one output file."""

    def write(self, payload: Payload) -> None:
        """Append the records of a batch."""

    def finish(self) -> None:
        """Write what the format needs at the end; the file's bytes are complete then (not yet durable)."""


class DataPlane(Protocol):
    """The operations on batches that exist once for rows and once for Arrow."""

    name: str

    def length(self, payload: Payload) -> int:
        """Return the number of records."""

    def largest(self, payload: Payload, column: str) -> int | None:
        """Return the largest integer in a column, None if it has none; raises JobUsageError if there is no column."""

    def from_rows(self, rows: Sequence[dict[str, Any]]) -> Payload:
        """Return rows (at least one, all with the same columns) as a batch."""

    def to_rows(self, payload: Payload) -> Sequence[dict[str, Any]]:
        """Return a batch as rows, which must not be changed."""

    def slices(self, payload: Payload, length: int) -> Sequence[Payload]:
        """Cut a batch into batches of at most so many records, in order."""

    def joined(self, payloads: Sequence[Payload]) -> Payload | None:
        """Return batches with the same columns as one; None if there is none."""

    def map(self, payload: Payload, function: Any) -> Payload:
        """Apply a row function (see ``operators.functions``) to every record."""

    def filter(self, payload: Payload, function: Any) -> Payload | None:
        """Keep the records for which a row predicate holds; None if none is left."""

    def flat_map(self, payload: Payload, function: Any) -> Payload | None:
        """Replace every record by zero or more; None if none is left."""

    def partition(
        self, payload: Payload, key: Sequence[str], parallelism: int, max_parallelism: int
    ) -> list[tuple[int, Payload]]:
        """Split a batch by the subtask that owns each record's key group; relative order is kept."""

    def combine(
        self, payload: Payload, key: Sequence[str], aggregates: Mapping[str, Any], max_parallelism: int
    ) -> Payload | None:
        """Return the aggregates of this batch alone, one row per key; None if the batch is empty."""

    def accumulators(
        self, key: Sequence[str], aggregates: Mapping[str, Any], carry: Sequence[str], max_parallelism: int
    ) -> AccumulatorTable:
        """Return an empty table; ``carry`` names input columns repeated in rows emitted per record."""

    def batched(self, definition: Any) -> Operator | None:
        """Return an operator that takes whole batches, for windows or for a join (by what its module calls definition).

        None if there is none: a function takes the records one by one then.
        """

    def encode(self, payload: Payload) -> bytes:
        """Return a batch as bytes, for channel state; raises JobUsageError for a value that has no such form."""

    def decode(self, data: bytes) -> Payload:
        """Return the batch of some bytes; raises CorruptStateError if they are not a batch."""

    def encoder(self, stream: Any) -> RowEncoder:
        """Return a writer of the plane's output format into a stream."""

    @property
    def file_suffix(self) -> str:
        """Return the suffix of the plane's output files, with the dot."""
