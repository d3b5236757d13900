"""The transactional file sink: exactly-once output as files that any Spark job can read (SNK-1).

One transaction per checkpoint interval, one file per transaction::

    <path>/_pending/count-0-a2-5.parquet              being written, or prepared (pre-committed)
    <path>/part-count-0-chk7-a2-5.parquet             committed

The barrier of checkpoint n ends the transaction; what comes after it belongs to the next one. The asynchronous part of
the snapshot prepares it: its bytes and its name become durable, and the snapshot lists it. When n is known to be
complete, a rename commits it. If the attempt ends in between, the next one, restored from n, finishes the commit.
Spark ignores names that begin with ``_``, so it reads committed files only.

Each sink of a job needs a directory of its own.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.api import DataPlane, OperatorContext, Payload, RowEncoder
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.protocol.transactions import TransactionFile, TransactionHandle, owner_of
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError, StorageError
from barrier_tck.reference_impl.state.backend import SnapshotFuture
from barrier_tck.reference_impl.state.snapshots import DeferredSnapshot, FinishedSnapshot
from barrier_tck.reference_impl.storage.directory_sync import DirectorySync
from barrier_tck.reference_impl.storage.filesystem import FileSystem, OutputStream

_PENDING = "_pending"
_DEFAULT_BUFFER_RECORDS = 4096
_NO_CHECKPOINT = CheckpointId(0)
"""Takes the place of the checkpoint's id in the names of files that are committed without a checkpoint."""


@dataclass(frozen=True, slots=True)
class FileSink:
    """Describes a transactional file sink; ``path`` is a directory on the output file system."""

    inputs: ClassVar[int] = 1
    keeps_state: ClassVar[bool] = True
    path: str
    uid: str = "sink"
    buffer_records: int = _DEFAULT_BUFFER_RECORDS
    """Records that are gathered before they are written to the file."""

    def __post_init__(self) -> None:
        if not self.path.strip("/") or self.path != self.path.strip("/"):
            raise JobUsageError(
                f"a file sink needs a relative directory without slashes around it, not {self.path!r}"
            )
        if self.buffer_records < 1:
            raise JobUsageError(f"a file sink buffers 1 record or more, not {self.buffer_records}")

    def build(self, plane: DataPlane) -> TransactionalFileSink:
        return TransactionalFileSink(self, plane)


@dataclass(slots=True)
class _OpenTransaction:
    """The transaction that records go to: its file, not yet complete."""

    name: str
    path: str
    stream: OutputStream
    encoder: RowEncoder
    records: int = 0


@dataclass(frozen=True, slots=True)
class _EndedTransaction:
    """A transaction that gets no more records, and whose file is not complete yet."""

    checkpoint: CheckpointId
    """The one whose barrier ended it."""
    open: _OpenTransaction


class TransactionalFileSink:
    """Two-phase commit over files. Each step is a small method of its own, so that a variant can replace one.

    ``_flush_buffer`` and ``_end_transaction`` on the barrier, ``_prepare`` in the asynchronous part, ``commit`` on
    completion, ``_recover_and_commit`` and ``_discard_leftovers`` when an attempt opens the sink. A failed write ends
    the sink: records that may not have reached the file must not be covered by a later checkpoint (SI-04), so every
    later call raises, too.

    Only ``_prepare`` may run in another thread than the rest. If a snapshot is cancelled before it ran, the next one
    prepares what was ended for it, too.
    """

    def __init__(self, spec: FileSink, plane: DataPlane) -> None:
        self.uid = spec.uid
        self._spec = spec
        self._plane = plane
        self._directory = spec.path
        self._pending_directory = f"{spec.path}/{_PENDING}"
        self._buffer: list[Payload] = []
        self._buffered_records = 0
        self._current: _OpenTransaction | None = None
        self._sequence = 0
        self._ended: list[_EndedTransaction] = []
        """Those that are not prepared yet, oldest first."""
        self._preparing: _EndedTransaction | None = None
        """That whose file is being completed."""
        self._lock = threading.Lock()
        """Held to read or change which transactions are ended and which are prepared."""
        self._one_by_one = threading.Lock()
        """Held while files are completed: the snapshot of a later checkpoint waits for those of earlier ones."""
        self._prepared: list[TransactionHandle] = []
        self._input_ended = False
        self._failure: Exception | None = None
        self._swept = False
        """Whether leftovers were looked for a second time, when the older attempt must have ended."""
        self._files: FileSystem
        self._syncs: DirectorySync
        self._vertex: str
        self._index: int
        self._parallelism: int
        self._subtask_name: str
        self._attempt: int

    @property
    def prepared(self) -> tuple[TransactionHandle, ...]:
        """Return the transactions that are prepared and not committed, oldest first."""
        with self._lock:
            return tuple(self._prepared)

    def open(self, context: OperatorContext, restored: OperatorSnapshot | None) -> None:
        """Finish the commits of the restored checkpoint, or keep them for the next; remove what older attempts left."""
        self._files = context.output_files
        self._syncs = DirectorySync(context.output_files)
        self._vertex, self._index = quote(context.subtask.vertex, safe=""), context.subtask.index
        self._parallelism = context.parallelism
        self._subtask_name = f"{self._vertex}-{self._index}"
        self._attempt = context.attempt
        transactions = restored.transactions if restored is not None else ()
        self._input_ended = restored is not None and restored.input_ended
        if context.defer_restored_commits:
            self._prepared = list(transactions)
        else:
            self._recover_and_commit(transactions)
        self._discard_leftovers(transactions)

    def process(self, payload: Payload) -> None:
        """Buffer a batch. Nothing is passed on: a sink is the end of its chain."""
        records = self._plane.length(payload)
        if not records:
            return
        self._require_no_failure()
        self._buffer.append(payload)
        self._buffered_records += records
        if self._buffered_records >= self._spec.buffer_records:
            with self._ending_on_failure():
                self._flush_buffer()

    def before_barrier(self, checkpoint: CheckpointId) -> Iterable[Payload]:
        return ()

    def end_of_input(self) -> Iterable[Payload]:
        """Remember it; the last checkpoint commits the last output."""
        self._input_ended = True
        return ()

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotFuture[OperatorSnapshot]:
        """End the current transaction; the asynchronous part prepares it, and lists all that are not committed."""
        with self._ending_on_failure():
            self._flush_buffer()
            self._end_transaction(checkpoint)
        input_ended = self._input_ended
        if not self._ended:
            return FinishedSnapshot(self._listed(checkpoint, input_ended))
        return DeferredSnapshot(lambda: self._prepared_for(checkpoint, input_ended))

    def checkpoint_completed(self, checkpoint: CheckpointId) -> bool:
        """Commit all that was prepared up to this checkpoint, oldest first, and say so.

        Notifications may be lost or overtake each other (SI-01): this one stands for all before it, and there
        may be nothing left to do. The answer is True either way, since the coordinator waits for it.
        """
        self.commit([transaction for transaction in self.prepared if transaction.checkpoint <= checkpoint])
        with self._lock:
            self._prepared = [
                transaction for transaction in self._prepared if transaction.checkpoint > checkpoint
            ]
        if not self._swept:
            # A process of the older attempt may have prepared a file after this attempt opened.
            self._discard_leftovers(self.prepared)
            self._swept = True
        return True

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> None:
        """Do nothing: what was prepared for it is committed with the next checkpoint that completes."""

    def commit_without_checkpoints(self) -> None:
        """Commit all output at once: for the end of a job that takes no checkpoints (COO-7)."""
        with self._ending_on_failure():
            self._flush_buffer()
            self._end_transaction(_NO_CHECKPOINT)
        # Also what was ended for a savepoint that was given up.
        self._prepare(None)
        self.commit(self.prepared)
        with self._lock:
            self._prepared = []

    def close(self) -> None:
        """Abandon what is not prepared. Prepared ones stay: the next restore decides what becomes of them.

        One that is being prepared in another thread stays, too. It is in no snapshot unless that thread ends in time.
        """
        self._buffer = []
        self._buffered_records = 0
        current, self._current = self._current, None
        with self._lock:
            ended, self._ended = self._ended, []
            left = [one.open for one in ended if one is not self._preparing]
            if left:
                # A snapshot whose asynchronous part comes behind this must not go without them.
                self._failure = StorageError("it was closed before its output was prepared")
        if current is not None:
            left.append(current)
        del current, ended
        while left:
            path, stream = left[-1].path, left[-1].stream
            # The encoder goes before its stream is closed: some write their footer when they are dropped.
            left.pop()
            # The file is thrown away. If the disk refuses even that, the next attempt's _discard_leftovers is
            # there.
            with contextlib.suppress(StorageError):
                stream.close()
            with contextlib.suppress(StorageError):
                self._files.delete(path)

    def abandon_prepared(self, is_needed: Callable[[TransactionHandle], bool]) -> None:
        """Delete the prepared files that no restore will ever commit, now that a newer attempt has taken over.

        That attempt looked for leftovers when it opened, and once more; these may be younger. Raises StorageError.
        """
        for transaction in self.prepared:
            if not is_needed(transaction):
                for file in transaction.files:
                    self._files.delete(file.pending)
                with self._lock:
                    self._prepared.remove(transaction)

    # --- the steps ----------------------------------------------------------------------------------------

    def _flush_buffer(self) -> None:
        """Write the buffered records to the current transaction, which begins with its first record."""
        if not self._buffer:
            return
        if self._current is None:
            self._current = self._begin()
        for payload in self._buffer:
            self._current.encoder.write(payload)
        self._current.records += self._buffered_records
        self._buffer = []
        self._buffered_records = 0

    def _end_transaction(self, checkpoint: CheckpointId) -> None:
        """End the current transaction; none: do nothing."""
        current, self._current = self._current, None
        if current is not None:
            with self._lock:
                self._ended.append(_EndedTransaction(checkpoint, current))

    def _prepared_for(self, checkpoint: CheckpointId, input_ended: bool) -> OperatorSnapshot:
        self._prepare(checkpoint)
        return self._listed(checkpoint, input_ended)

    def _listed(self, checkpoint: CheckpointId, input_ended: bool) -> OperatorSnapshot:
        """Return a snapshot with what is prepared for its checkpoint or an earlier one, and not committed."""
        listed = tuple(one for one in self.prepared if one.checkpoint <= checkpoint)
        return OperatorSnapshot(self.uid, transactions=listed, input_ended=input_ended)

    def _prepare(self, checkpoint: CheckpointId | None) -> None:
        """Prepare all that was ended for a checkpoint or an earlier one (None: all), oldest first.

        Raises StorageError, also if preparing failed before.
        """
        with self._one_by_one, self._ending_on_failure():
            while (one := self._next_to_prepare(checkpoint)) is not None:
                try:
                    prepared = self._pre_commit(one.checkpoint, one.open)
                except BaseException:
                    self._not_prepared(one)
                    raise
                with self._lock:
                    self._prepared.append(prepared)
                    self._ended = [other for other in self._ended if other is not one]
                    self._preparing = None

    def _next_to_prepare(self, checkpoint: CheckpointId | None) -> _EndedTransaction | None:
        with self._lock:
            due = (one for one in self._ended if checkpoint is None or one.checkpoint <= checkpoint)
            self._preparing = next(due, None)
            return self._preparing

    def _not_prepared(self, one: _EndedTransaction) -> None:
        """Leave one that could not be prepared to ``close``, or close its file if that has come already."""
        with self._lock:
            self._preparing = None
            closed = not any(other is one for other in self._ended)
        if closed:
            with contextlib.suppress(StorageError):
                one.open.stream.close()

    def _pre_commit(self, checkpoint: CheckpointId, ended: _OpenTransaction) -> TransactionHandle:
        """Make a transaction's file complete and durable, name included."""
        ended.encoder.finish()
        ended.stream.sync()
        ended.stream.close()
        self._syncs.sync_directory(self._pending_directory)
        file_name = ended.path.rpartition("/")[2].removeprefix(f"{self._subtask_name}-")
        committed = f"{self._directory}/part-{self._subtask_name}-chk{checkpoint}-{file_name}"
        file = TransactionFile(ended.path, committed, self._files.size(ended.path), ended.records)
        return TransactionHandle(ended.name, checkpoint, (file,), self._index)

    def commit(self, transactions: Sequence[TransactionHandle]) -> None:
        """Make prepared transactions visible, in this order, and their names durable; idempotent (SI-02).

        Raises StorageError if a file is neither prepared nor committed: that is loss, and never passed over.
        """
        for transaction in transactions:
            for file in transaction.files:
                self._commit_file(transaction, file)
        if transactions:
            # Needed even if every file was in place: the process that moved them may have died before this sync.
            self._syncs.sync_directory(self._directory)

    def _recover_and_commit(self, transactions: Sequence[TransactionHandle]) -> None:
        """Finish the commits of the checkpoint that the attempt starts from, as often as it is restored."""
        self.commit(transactions)

    def _discard_leftovers(self, kept: Sequence[TransactionHandle]) -> None:
        """Delete what older attempts left pending, apart from the files of ``kept``.

        They are the older attempts of this subtask, and of those that the vertex has not any more and whose
        transactions are this one's now (``owner_of``).
        """
        keep = {file.pending for transaction in kept for file in transaction.files}
        prefix, suffix = f"{self._pending_directory}/{self._vertex}-", self._plane.file_suffix
        own = re.compile(re.escape(prefix) + "([0-9]+)-a([0-9]+)-[0-9]+" + re.escape(suffix))
        for path in self._files.list_files(self._pending_directory):
            match = own.fullmatch(path)
            if match is None or path in keep:
                continue
            writer, attempt = map(int, match.groups())
            # Only older ones: this may itself be the older attempt, running late, and must not touch its successor's
            # files.
            if owner_of(writer, self._parallelism) == self._index and attempt < self._attempt:
                self._files.delete(path)

    # --- helpers ------------------------------------------------------------------------------------------

    def _begin(self) -> _OpenTransaction:
        name = f"{self._subtask_name}-a{self._attempt}-{self._sequence}"
        self._sequence += 1
        path = f"{self._pending_directory}/{name}{self._plane.file_suffix}"
        stream = self._files.create(path)
        return _OpenTransaction(name, path, stream, self._plane.encoder(stream))

    def _commit_file(self, transaction: TransactionHandle, file: TransactionFile) -> None:
        if not self._files.exists(file.pending):
            if not self._is_committed(file):
                raise StorageError(
                    f"transaction {transaction.transaction} of checkpoint {transaction.checkpoint} is lost: "
                    f"neither {file.pending} nor {file.committed} exists "
                    f"with {file.size} bytes and {file.records} records"
                )
            return
        found = self._files.size(file.pending)
        if found != file.size:
            raise CorruptStateError(f"{file.pending} has {found} bytes, but {file.size} were prepared")
        try:
            self._files.rename(file.pending, file.committed)
        except StorageError:
            # A process of the older attempt may have committed it a moment ago.
            if self._files.exists(file.pending) or not self._is_committed(file):
                raise

    def _is_committed(self, file: TransactionFile) -> bool:
        return self._files.exists(file.committed) and self._files.size(file.committed) == file.size

    def _require_no_failure(self) -> None:
        if self._failure is not None:
            raise StorageError(
                f"sink {self.uid} of {self._subtask_name} failed before ({self._failure}) and may have lost "
                "records; restart from the last completed checkpoint"
            )

    @contextlib.contextmanager
    def _ending_on_failure(self) -> Iterator[None]:
        """Refuse to go on after a failure: records of the failed call may be missing from the file."""
        self._require_no_failure()
        try:
            yield
        except Exception as error:
            self._failure = error
            raise
