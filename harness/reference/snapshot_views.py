"""Opens completed checkpoints and durable storage of the reference runtime as neutral views for the oracle."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from barrier_tck.harness.oracle.evidence.stored_channels import records_in_flight
from barrier_tck.harness.oracle.evidence.stored_reader import read_stored_checkpoints, read_stored_savepoints
from barrier_tck.harness.record.history import (
    CheckpointProblem,
    EventTimeView,
    InFlight,
    NamedFile,
    Row,
    SnapshotView,
    StateView,
    StorageView,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.reference.operator_kind import KeptState
from barrier_tck.harness.reference.operators import reference_kinds
from barrier_tck.harness.reference.sink_files import ReadRows, is_committed, rows_at_sinks, transaction_of
from barrier_tck.harness.reference.state_fingerprints import fingerprint_of
from barrier_tck.harness.reference.translated_reasons import reason_of_error
from barrier_tck.harness.support.raised_by import OF_THE_WORLD, raised_by_harness
from barrier_tck.reference_impl.ids import CheckpointId, KeyGroupRange, SubtaskId
from barrier_tck.reference_impl.operators.encoding import decode_key
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.paths import join
from barrier_tck.reference_impl.protocol.messages import (
    CompletedCheckpoint,
    OperatorSnapshot,
    StateHandle,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.protocol.watermarks import BEGINNING_OF_TIME
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure, StorageError
from barrier_tck.reference_impl.state.backend import KeyedStateStore, StateReader, StateScope
from barrier_tck.reference_impl.state.working_directory import WorkingDirectory
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage
from barrier_tck.reference_impl.storage.filesystem import FileSystem

_key_text = msgspec.json.Encoder().encode
_exactly = msgspec.msgpack.Encoder().encode
"""Encodes values so that equal ones of other types differ."""


class _NotingReader:
    """Reads state files for a backend, and remembers which one it could not read; implements ``StateReader``."""

    def __init__(self, storage: StateReader) -> None:
        self._storage = storage
        self.failed: str | None = None

    def read(self, handle: StateHandle) -> bytes:
        try:
            return self._storage.read(handle)
        except Exception:
            self.failed = handle.name
            raise


@dataclass(frozen=True)
class CheckpointOpener:
    """Opens completed checkpoints of one job."""

    graph: JobGraph
    """The job as it was started first; later ones may differ in their parallelism."""
    kinds: Mapping[str, str]
    """Operator -> its kind, as the plan names it."""
    components: Components
    files: Callable[[], FileSystem]
    """Returns the file system that holds checkpoints and output, in its present state."""
    root: str
    """Directory of checkpoint storage."""
    output: str
    """Directory of the output."""
    read_rows: ReadRows | None = None
    """Decodes a file of output rows; None if what sinks hold is not to be read."""
    two_formats: bool = False
    """Whether local copies have another format, so that they must be compared by their state (LOC-7)."""
    working_root: str | None = None
    """Directory below which backends open what they restore; None: the system's temporary directory."""
    _last_read: dict[tuple[str, str, str, bytes], tuple[bytes, list[Any]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """(operator, subtask, state, key) -> the bytes that the checkpoint that was opened last held there, and what they
    say: most of them are in the next checkpoint, too."""
    _texts: dict[bytes, str] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Key -> its text."""
    _decoded: dict[bytes, Sequence[Row]] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The content of a file of output -> its rows."""

    @property
    def storage(self) -> CheckpointStorage:
        """Return the job's checkpoint storage, to read from it as the job itself would."""
        return self.components.checkpoint_storage(self.files(), self.graph.name, self.root)

    def open(self, completed: CompletedCheckpoint, job: JobGraph) -> SnapshotView:
        """Restore every stateful operator of a completed checkpoint into fresh stores and read them out.

        ``job`` is the job that took it, not one of another parallelism that starts from it: it says which key groups
        a part holds. Which job that is must be known from the attempt, because a checkpoint can be wrong about it.
        A checkpoint that cannot be opened is a finding, not an error: the view says why in ``problem``.
        """
        checkpoint = int(completed.checkpoint)
        positions = {
            position.split: position.offset
            for part in completed.snapshots
            for operator in part.operators
            for position in operator.positions
        }
        state: list[StateView] = []
        rows, problem, reader = None, None, _NotingReader(self.storage)
        in_flight: tuple[InFlight, ...] = ()
        writers: tuple[str, ...] = ()
        try:
            for part in completed.snapshots:
                for spec in () if part.finished else job.vertex(part.subtask.vertex).operators:
                    states = reference_kinds()[self.kinds[spec.uid]].states
                    if not states:
                        continue
                    snapshot = next((o for o in part.operators if o.operator == spec.uid), None)
                    if snapshot is None:
                        missing = f"{part.subtask} has no snapshot of operator {spec.uid}"
                        problem = CheckpointProblem(checkpoint, Reason.INCOMPLETE, detail=missing)
                        continue
                    groups = job.key_groups_of(part.subtask)
                    state += self._states_of(part.subtask, groups, states, snapshot, reader)
            state += [view for part in completed.snapshots for view in self._lists_of(part)]
            in_flight = self._in_flight(completed)
            if self.read_rows is not None:
                rows, writers = rows_at_sinks(completed, self.files(), self.output, self._rows_in)
        except Exception as error:
            # A backend that raises something forbidden is a finding, too; a mistake of the harness is none.
            if not isinstance(error, (RuntimeFailure, ValueError, *OF_THE_WORLD)) and raised_by_harness(
                error
            ):
                raise
            problem = problem_of(checkpoint, error, reader.failed)
        return SnapshotView(
            checkpoint=checkpoint,
            attempt=int(completed.attempt),
            positions=positions,
            state=tuple(state),
            subtasks=tuple(str(part.subtask) for part in completed.snapshots),
            problem=problem,
            files={
                str(part.subtask): tuple(self._named(handle) for handle in part.handles())
                for part in completed.snapshots
                if part.handles()
            },
            reached_sinks=rows,
            reached_by=writers,
            in_flight=in_flight,
            event_time=tuple(_event_time_of(completed)),
            savepoint=completed.savepoint.directory if completed.savepoint is not None else None,
            finished=tuple(str(subtask) for subtask in completed.finished),
            ended=tuple(
                str(part.subtask)
                for part in completed.snapshots
                if not part.finished and any(operator.input_ended for operator in part.operators)
            ),
        )

    def _rows_in(self, content: bytes) -> Sequence[Row]:
        """Decode a file of output rows, once: it is part of every later checkpoint, too."""
        if content not in self._decoded and self.read_rows is not None:
            self._decoded[content] = self.read_rows(content)
        return self._decoded[content]

    def _lists_of(self, part: SubtaskSnapshot) -> Iterator[StateView]:
        """Yield the lists that operators of a subtask keep without keys; one that has finished has them still."""
        for operator in part.operators:
            kind = reference_kinds().get(self.kinds.get(operator.operator, ""))
            if kind is None or kind.read_listed is None:
                continue
            for kept in operator.lists or ():
                entries: dict[str, list[Any]] = {}
                for entry in kept.entries:
                    key, value = kind.read_listed(entry)
                    entries.setdefault(_key_text([key]).decode(), []).append(value)
                yield StateView(operator.operator, str(part.subtask), kept.name, entries, keyed=False)

    def _named(self, handle: StateHandle) -> NamedFile:
        """Return a state file as the checkpoint names it; one that cannot be read has no state to compare."""
        state = ""
        if self.two_formats:
            with contextlib.suppress(RuntimeFailure):
                state = fingerprint_of(self.storage.read(handle))
        return NamedFile(handle.name, handle.size, handle.checksum, state, bool(handle.shared))

    def _in_flight(self, completed: CompletedCheckpoint) -> tuple[InFlight, ...]:
        """Return the records in flight, read from their bytes and not with the system's code."""
        parts = [part for part in completed.snapshots if part.channels is not None]
        if not parts:
            return ()
        files = self.files()
        handles = {str(part.subtask): part.channels.file for part in parts if part.channels is not None}
        return records_in_flight(
            {
                subtask: files.read(join(handle.savepoint or self.root, handle.path))
                for subtask, handle in handles.items()
            }
        )

    def retained(
        self, views: Sequence[SnapshotView]
    ) -> tuple[tuple[int, ...] | None, tuple[CheckpointProblem, ...]]:
        """Return the complete checkpoints that are in storage now, and which files of those among ``views`` are gone.

        Storage that cannot be reached shows nothing; what it holds at the end is judged in any case.
        """
        try:
            files = self.files()
            # Before the checkpoints: what is retained after that had all of its files until then.
            there = dict.fromkeys(files.list_files(self.root))
            retained = dict.fromkeys(self.storage.completed())
            lacking = tuple(
                CheckpointProblem(view.checkpoint, Reason.MISSING, path, "it is gone")
                for view in views
                if CheckpointId(view.checkpoint) in retained and view.savepoint is None
                for path in dict.fromkeys(file.path for named in view.files.values() for file in named)
                # A store that lists late is asked once more.
                if join(self.root, path) not in there and not files.exists(join(self.root, path))
            )
        except StorageError:
            return None, ()
        return tuple(int(checkpoint) for checkpoint in retained), lacking

    def open_restored(self, checkpoint: int, job_of: Callable[[int], JobGraph]) -> SnapshotView:
        """Open a checkpoint by its number; one whose metadata cannot be read is a view with a ``problem``.

        ``job_of`` returns the job of an attempt.
        """
        try:
            completed = self.storage.load(CheckpointId(checkpoint))
        except RuntimeFailure as error:
            return SnapshotView(checkpoint, None, {}, problem=problem_of(checkpoint, error, None))
        return self.open(completed, job_of(int(completed.attempt)))

    def _states_of(
        self,
        subtask: SubtaskId,
        groups: KeyGroupRange,
        states: Sequence[KeptState],
        snapshot: OperatorSnapshot,
        reader: StateReader,
    ) -> list[StateView]:
        """Read one operator's states through the backend, as a restore would (ALN-2).

        The restore is one for all key groups of the job: so it shows entries of groups that others own, too (RSC-1).
        """
        uid = snapshot.operator
        backend = self.components.state_backend()
        every = KeyGroupRange(0, self.graph.max_parallelism)
        working = WorkingDirectory(backend, self.working_root)
        try:
            scope = StateScope(
                *(self.graph.name, subtask.vertex, uid, subtask.index, 0, every, working.of_operator(uid)),
                own_threads=False,
                read_only=True,
            )
            store = backend.open(scope, snapshot.handles, reader)
            try:
                return [self._view_of(store, uid, str(subtask), groups, every, kept) for kept in states]
            finally:
                store.close()
        finally:
            working.close()

    def _view_of(
        self,
        store: KeyedStateStore,
        uid: str,
        subtask: str,
        own: KeyGroupRange,
        every: KeyGroupRange,
        kept: KeptState,
    ) -> StateView:
        """Scan one state of an open store."""
        entries: dict[str, list[Any]] = {}
        owners: dict[str, int] = {}
        foreign: dict[str, int] = {}
        for group in every:
            for key, value in store.scan(kept.name, group):
                text = self._texts.get(key)
                if text is None:
                    text = self._texts[key] = _key_text(list(decode_key(key))).decode()
                if group not in own:
                    foreign[text] = int(group)
                    continue
                place = (uid, subtask, kept.name, key)
                last = self._last_read.get(place)
                if last is None or last[0] != value:
                    last = bytes(value), _sharing([] if last is None else last[1], kept.read(value))
                    self._last_read[place] = last
                entries[text], owners[text] = last[1], int(group)
        return StateView(uid, subtask, kept.name, entries, owners, foreign=foreign)


def _sharing(before: list[Any], now: list[Any]) -> list[Any]:
    """Return what was read now, made of what was read before as far as that is the same.

    Lists grow from checkpoint to checkpoint, so that otherwise a trial with 400 checkpoints would hold each entry 400
    times. What is equal and of another type, as 1 and 1.0 are, is not the same.
    """
    same = min(len(before), len(now))
    first, now_first = before[:same], now[:same]
    alike = first == now_first and _exactly(first) == _exactly(now_first)
    return first + now[same:] if alike else now


def _event_time_of(completed: CompletedCheckpoint) -> Iterator[EventTimeView]:
    """Yield how far event time has come in each subtask that knows of it."""
    for part in completed.snapshots:
        known = part.event_time
        if isinstance(known, msgspec.UnsetType):
            continue
        inputs = {
            f"{one.sender}->{part.subtask}#{one.edge}": (one.at_ms, one.idle, one.ended)
            for one in known.inputs
        }
        for position in (position for operator in part.operators for position in operator.positions):
            at_ms = (
                BEGINNING_OF_TIME if position.watermark_ms is msgspec.UNSET else int(position.watermark_ms)
            )
            inputs[position.split] = (at_ms, position.idle is True, False)
        ahead: dict[int, int] = {}
        for floor in known.floors:
            for group in floor.key_groups if floor.at_ms > known.at_ms else ():
                ahead[group] = max(floor.at_ms, ahead.get(group, BEGINNING_OF_TIME))
        yield EventTimeView(str(part.subtask), known.at_ms, known.idle, inputs, ahead)


def problem_of(checkpoint: int, error: Exception, file: str | None) -> CheckpointProblem:
    """Return why a checkpoint, or a file of it, could not be read, as a typed fact."""
    detail = str(error) if isinstance(error, RuntimeFailure) else f"{type(error).__name__}: {error}"
    return CheckpointProblem(checkpoint, reason_of_error(error), file, detail)


def view_storage(
    storage: CheckpointStorage, files: FileSystem, root: str, output: str, savepoints: str
) -> StorageView:
    """Compare what durable storage holds with what its retained checkpoints need.

    ``storage`` reads as the system does; the judge's own reader looks at the bytes too. ``root`` is the directory of
    checkpoint storage, ``output`` that of the committed output, ``savepoints`` that of all savepoints. Orphans are
    files that nothing refers to: files of checkpoint storage, files of savepoints that are not complete, and files of
    transactions that will never be committed.
    """
    unreadable: list[CheckpointProblem] = []
    needed: list[str] = []
    retained = storage.completed()
    for checkpoint in retained:
        needed += [f"/chk-{checkpoint}/_metadata", f"/chk-{checkpoint}/_savepoint"]
        try:
            completed = storage.load(checkpoint)
        except RuntimeFailure as error:
            unreadable.append(problem_of(checkpoint, error, None))
            continue
        for handle in [handle for part in completed.snapshots for handle in part.handles()]:
            needed.append(join(handle.savepoint or root, handle.path))
            try:
                storage.read(handle)
            except RuntimeFailure as error:
                unreadable.append(problem_of(checkpoint, error, handle.name))
    orphans = [path for path in storage.files() if not _is_needed(path, needed)]
    written = files.list_files(output)
    orphans.extend(path for path in written if not is_committed(path, output))
    kept = files.list_files(savepoints)
    complete = read_stored_savepoints(kept, files.read, savepoints)
    places = tuple(f"{savepoint.directory}/" for savepoint in complete)
    orphans.extend(path for path in kept if not path.startswith(places))
    return StorageView(
        tuple(int(checkpoint) for checkpoint in retained),
        tuple(unreadable),
        tuple(orphans),
        tuple(transaction_of(path) for path in written if is_committed(path, output)),
        read_stored_checkpoints(files.list_files(root), files.read, root),
        complete,
    )


def _is_needed(path: str, needed: Sequence[str]) -> bool:
    return path.endswith(("/counters", *needed))
