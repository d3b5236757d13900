"""The history: everything that an oracle may look at, as typed values, whichever system produced it.

Nothing here assumes barriers: a system that cannot show its checkpoints leaves ``checkpoints`` empty and says so
through its capabilities. ``operations`` are ordered by time; those of one process are in the order in which they
happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, Generic, TypeVar, cast

import msgspec

from barrier_tck.harness.record.elements import SubtaskElements
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.record.query_times import LateInput, Reference, RowsDue, WatermarkComparison
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.stored import StoredCheckpoint, StoredSavepoint
from barrier_tck.harness.support.first_line import first_line

Row = dict[str, Any]
"""A record as a mapping from column name to value."""

OperationT = TypeVar("OperationT", covariant=True)
KindT = TypeVar("KindT")


class Recorded(msgspec.Struct, Generic[OperationT], frozen=True):
    """One line of a history: an operation, with the time and the process that reported it."""

    index: int
    """Position in the history, from 0."""
    time_ms: float
    """Milliseconds on the trial's own clock."""
    process: str
    """Who reports it: ``coordinator``, ``nemesis``, a subtask as ``vertex[index]``, or whatever a system has."""
    operation: OperationT


class CheckpointProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a checkpoint, or a file of it, cannot be read."""

    checkpoint: int
    reason: Reason
    file: str | None = None
    """The file, by the name that the checkpoint uses; None if no single file is to blame."""
    detail: str = ""

    def __str__(self) -> str:
        """Return the file and the reason, for readers who know which checkpoint is meant."""
        return ": ".join(part for part in (self.file, self.detail or self.reason.value) if part)


class StateView(msgspec.Struct, frozen=True):
    """What one operator of one subtask keeps under one name."""

    operator: str
    subtask: str
    name: str
    """The name of the state, for operators that keep several."""
    entries: dict[str, list[Any]]
    """Key, the JSON text of the list of key values, for instance ``'["k0"]'`` -> the list of what is kept: the values
    of the aggregates, in the order of the model, or the elements."""
    groups: dict[str, int] = {}
    """Key -> the key group in which it lies; empty if the system has no key groups or does not report them."""
    keyed: bool = True
    """Whether it is keyed state. Other state stays in checkpoints even after its subtask has finished (BAR-6)."""
    foreign: dict[str, int] = {}
    """Key -> its key group, for keys whose groups the subtask does not own (RSC-1). None of them is in ``entries``."""


class NamedFile(msgspec.Struct, frozen=True):
    """A state file as a checkpoint names it."""

    path: str
    size: int
    """Bytes."""
    checksum: str
    state: str = ""
    """A digest of the state in the file, whatever its format; empty if local copies have the same bytes (LOC-7)."""
    shared: bool = False
    """Whether later checkpoints may name it, too (SNP-5)."""


class WatermarkInFlight(msgspec.Struct, frozen=True, omit_defaults=True):
    """A watermark of a checkpoint that was on a channel, in its place among the records (EVT-1)."""

    behind: int
    """How many of the channel's rows are older."""
    at_ms: int
    idle: bool = False
    origin: str = ""
    """The channels on which it was before the job was rescaled, the first one first, with ``|`` between them."""


class InFlight(msgspec.Struct, frozen=True):
    """The records of a checkpoint that were on one channel: sent, and not yet in the receiver's state (UNA-1)."""

    sender: str
    receiver: str
    edge: int
    """Which of the edges between the two vertices the channel belongs to, counted from 0 in the order of the job."""
    rows: tuple[Row, ...]
    """Oldest first."""
    at_receiver: int = 0
    """How many buffers the receiver held."""
    at_sender: int = 0
    """How many the sender held, which are newer."""
    problem: str = ""
    """What is wrong with them, if anything."""
    watermarks: tuple[WatermarkInFlight, ...] = ()
    """The watermarks among them, oldest first."""

    @property
    def elements(self) -> list[Row | WatermarkInFlight]:
        """Return rows and watermarks in their order."""
        found: list[Row | WatermarkInFlight] = list(self.rows)
        for number, one in enumerate(self.watermarks):
            found.insert(one.behind + number, one)
        return found


class EventTimeView(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far event time has come in one subtask, as its snapshot says."""

    subtask: str
    at_ms: int
    idle: bool = False
    inputs: dict[str, tuple[int, bool, bool]] = {}
    """Input channel, as ``sender#edge``, or split -> watermark (ms), whether it is idle, whether it has ended."""
    ahead: dict[int, int] = {}
    """Key group -> its watermark (ms), of those that are further than their subtask."""


class SnapshotView(msgspec.Struct, frozen=True):
    """A completed checkpoint, opened while it was retained: the ALN-2 oracle compares it with a fold of the input."""

    checkpoint: int
    attempt: int | None
    positions: dict[str, int]
    """Split name -> number of records before the barrier (S_n); splits not yet begun are listed with 0."""
    state: tuple[StateView, ...] = ()
    """What every stateful operator of every subtask holds; those that hold nothing may be left out."""
    subtasks: tuple[str, ...] = ()
    """Every subtask that has a snapshot in the checkpoint."""
    problem: CheckpointProblem | None = None
    """Why it could not be opened, if it could not."""
    files: dict[str, tuple[NamedFile, ...]] = {}
    """Subtask -> the state files of its part; subtasks without any are left out."""
    reached_sinks: tuple[Row, ...] | None = None
    """Every row that sinks had committed up to this checkpoint or prepared in it; None if this was not read.

    The rows of one subtask stand in the order in which it wrote them.
    """
    reached_by: tuple[str, ...] = ()
    """The sink subtask of each of these rows, in the same order; empty if the system does not report it."""
    in_flight: tuple[InFlight, ...] = ()
    """The channels on which records were in flight; empty for aligned barriers, and if the system reports none."""
    savepoint: str | None = None
    """The directory of the savepoint that it is; None for a checkpoint."""
    finished: tuple[str, ...] = ()
    """The subtasks that had finished before it (BAR-6): it holds positions of theirs, and no state."""
    ended: tuple[str, ...] = ()
    """The other subtasks with an operator whose input had ended by then; empty if the system reports none."""
    lacking: tuple[CheckpointProblem, ...] = ()
    """Files that were missing when this one was opened, of all checkpoints that were retained then."""
    event_time: tuple[EventTimeView, ...] = ()
    """How far event time has come in each subtask; empty in a job that knows none."""
    retained: tuple[int, ...] | None = None
    """The checkpoints that were in storage and complete when this one had become complete, before it made any other
    superfluous; None if storage was not listed."""

    def state_by_operator(self, without: Collection[str] = ()) -> Mapping[str, Mapping[str, list[Any]]]:
        """Return operator -> key -> accumulator values over all subtasks.

        Operators without any key are left out, and so are those named in ``without``.
        """
        merged: dict[str, dict[str, list[Any]]] = {}
        for part in self.state:
            if part.entries and part.operator not in without:
                merged.setdefault(part.operator, {}).update(part.entries)
        return merged


class Transaction(msgspec.Struct, frozen=True):
    """Something that a sink made visible in one step."""

    name: str
    checkpoint: int | None
    """The checkpoint for which it was prepared; None if what is visible does not say it, which breaks SNK-1."""
    attempt: int | None
    """The attempt that prepared it; None if this is not known: then any completed checkpoint covers it."""


class StorageView(msgspec.Struct, frozen=True):
    """What durable storage held at the end of the trial."""

    retained: tuple[int, ...] = ()
    """Retained checkpoints, oldest first."""
    unreadable: tuple[CheckpointProblem, ...] = ()
    """Files that a retained checkpoint refers to and that are missing or corrupt."""
    orphans: tuple[str, ...] = ()
    """Files that no retained checkpoint and no committed output refers to."""
    transactions: tuple[Transaction, ...] = ()
    """What sinks had committed."""
    stored: tuple[StoredCheckpoint, ...] | None = None
    """The retained checkpoints as read from storage by the harness, not the system; None if they were not read."""
    savepoints: tuple[StoredSavepoint, ...] = ()
    """The complete savepoints, read in the same way."""


class OutputCounts(msgspec.Struct, frozen=True):
    """How committed output compares with the input, with the counts of the checker ``exactly-once-output``."""

    expected: int
    committed: int
    lost: int
    duplicated: int
    unexpected: int
    wrong_key: int
    wrong_count: int
    wrong_sum: int

    @property
    def any_wrong(self) -> bool:
        """Whether anything but the two totals was counted."""
        totals = ("expected", "committed")
        return any(getattr(self, name) for name in self.__struct_fields__ if name not in totals)


class InputRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A row of a query's input."""

    file: str
    number: int
    """Its place in the file, from 1."""
    row: str
    """Its values, for readers."""
    micro_batch: int | None = None
    """The micro-batch that took the file, by the checkpoint directory; None if that does not say."""


class WrongRow(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A row of a query's output that is there too often, or not often enough."""

    kind: str
    """``lost``, ``duplicated`` or ``unexpected``."""
    row: str
    """Its values, for readers; if another row was committed in its place, those that it should have."""
    expected: int
    """How often the batch gives it."""
    committed: int
    """How often it is in the output."""
    micro_batches: tuple[int, ...] = ()
    """The micro-batch of each copy in the output; empty if the sink does not keep it."""
    instead: str = ""
    """The values of the row that was committed in its place; empty if there is none."""
    difference: str = ""
    """How that row differs, in words."""
    update: bool = False
    """Whether it is an update of a changelog that one micro-batch wrote more than once."""
    found_by: tuple[str, ...] = ()
    """The columns by which ``input`` was found; without one, and without ``within``, the input is not known."""
    within: str = ""
    """The column of the input whose times lie in the row's window; empty if it has none."""
    input: tuple[InputRow, ...] = ()
    """The first rows of the input that have the same values there."""
    input_rows: int = 0
    """How many there are."""
    read_by: tuple[int, ...] = ()
    """The micro-batches that took the files with these rows, by the checkpoint directory."""

    @property
    def sentence(self) -> str:
        """What is wrong with it, in words."""
        found, expected = in_times(self.committed), in_times(self.expected)
        if self.update:
            return f"one micro-batch wrote the update {self.row} {found}"
        if self.instead:
            return f"{self.instead} is in the output in place of {self.row}: {self.difference}"
        if not self.expected:
            return f"{self.row} is in the output {found}, and the query run as a batch gives no such row"
        if not self.committed:
            return f"{self.row} is not in the output" + f", and expected {expected}" * (self.expected > 1)
        return f"{self.row} is in the output {found}, and expected {expected}"

    @property
    def writers(self) -> str:
        """The micro-batches that wrote it, in words; empty if the sink does not keep them."""
        copies = Counter(self.micro_batches)
        named = [
            f"{batch}" + f" ({in_times(copies[batch])})" * (copies[batch] > 1) for batch in sorted(copies)
        ]
        return f"micro-batch{'es' * (len(named) > 1)} {' and '.join(named)}" if named else ""


def in_times(number: int) -> str:
    """Return ``no times``, ``once``, ``2 times`` and so on."""
    return {0: "no times", 1: "once"}.get(number, f"{number} times")


class OutputComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """How committed output compares with the input according to a query, for when there are too many rows to read."""

    counts: OutputCounts | None
    """None if they could not be compared."""
    examples: tuple[str, ...] = ()
    problem: str = ""
    """Why they could not be compared, in words."""
    checks: dict[str, dict[str, int]] = {}
    """For reports: check -> side of the comparison -> number of rows that only this side has."""
    ran_again: int = 0
    """Micro-batches that ran more than once, as a whole or in one of their tasks."""
    replayed: int = 0
    """Those of which the sink had been given rows before: only here could a sink that is not idempotent go wrong."""
    added_again: int = 0
    """Rows that are lost, and in whose place the output has one that is unexpected, because a sink has added to it more
    often than once: all numbers that differ are the same number of times as great, or they differ by what one
    micro-batch adds that ran more than once."""
    wrong: tuple[WrongRow, ...] = ()
    """The first rows that are wrong, of a query; empty in histories of versions before 0.2."""
    run_again: tuple[int, ...] = ()
    """The micro-batches that ran more than once, by their numbers; empty in histories of versions before 0.2."""
    against: Reference = Reference.BATCH
    """What it was compared with."""
    rows_due: RowsDue | None = None
    """Of what kinds the rows are that must be there; None if the query gives all of them at once."""
    late: LateInput | None = None
    """None if no row of the input was late."""
    watermarks: WatermarkComparison | None = None
    """None in histories of versions before 0.2, and if the query could not be run."""


class StateComparison(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """How the state that a query left after each micro-batch compares with the rows until then."""

    batches: int = 0
    """The micro-batches after which it was read."""
    entries: int = 0
    """The entries that were found, summed over these micro-batches."""
    missing: int = 0
    unexpected: int = 0
    examples: tuple[str, ...] = ()
    problem: str = ""
    """Why it could not be compared, in words; empty if it was."""


class End(StrEnum):
    """How a deployment ended."""

    FINISHED = "finished"
    """All input was consumed and all output committed."""
    FAILED = "failed"
    """The job gave up (for instance the restart strategy allows no more restarts)."""
    STUCK = "stuck"
    """No end within the bound; ``pending`` says what it waits for."""
    ERROR = "error"
    """The harness could not run it."""

    @property
    def sentence(self) -> str:
        """What is said of a job that ended in this way."""
        return _SENTENCES[self]


_SENTENCES = {
    End.FINISHED: "the job finished",
    End.FAILED: "the job failed",
    End.STUCK: "the job got stuck",
    End.ERROR: "the job could not be run",
}


class History(msgspec.Struct, frozen=True, dict=True):
    """Everything that one trial left for judgement."""

    operations: tuple[Recorded[Operation], ...]
    end: End
    reason: Reason
    """Why it ended like that."""
    detail: str
    """The same in words."""
    output: tuple[Row, ...] | None
    """The committed output, read after the end; None if it is judged elsewhere (``output_query``).

    The rows of one sink subtask stand in the order in which it wrote them.
    """
    checkpoints: tuple[SnapshotView, ...] = ()
    storage: StorageView | None = None
    pending: tuple[str, ...] = ()
    """What a stuck job waits for."""
    output_query: OutputComparison | None = None
    """Result of the batch query over the same input (Spark world): counts of rows only on one side."""
    state_query: StateComparison | None = None
    """The same for the state after each micro-batch, in a system that shows no snapshots."""
    output_by: tuple[str, ...] = ()
    """The sink subtask of each row of the output, in the same order; empty if the system does not report it."""

    local_files: tuple[str, ...] | None = None
    """Files found where hosts keep local copies, in a trial without local recovery; None if no host was inspected."""
    elements: tuple[SubtaskElements, ...] | None = None
    """What each subtask took and sent, by attempt and subtask; None in a trial without event time."""
    batch: tuple[Row, ...] | None = None
    """What the workload's batch query gives in Spark SQL, over the input without the records that came late; None if it
    was not asked."""
    epoch_ms: float = 0.0
    """The time on the clock of the system's timers when the trial started; ``time_ms`` counts from there."""

    def of(self, kind: type[KindT]) -> Iterator[Recorded[KindT]]:
        """Yield the operations of one kind, in order."""
        return iter(cast("list[Recorded[KindT]]", self._by_kind.get(kind, [])))

    @cached_property
    def _by_kind(self) -> dict[type, list[Recorded[Operation]]]:
        """The operations by kind, because a dozen checkers ask for theirs many times."""
        found: dict[type, list[Recorded[Operation]]] = {}
        for line in self.operations:
            found.setdefault(type(line.operation), []).append(line)
        return found

    @property
    def explanation(self) -> str:
        """Return why it ended like that, for people: in one line, whatever stack ``detail`` has."""
        return first_line(self.detail) or self.reason.value
