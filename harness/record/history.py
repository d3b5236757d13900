"""The history: everything an oracle may look at, as typed values, whichever system left it.

Nothing here assumes barriers: a system that cannot show its checkpoints leaves ``checkpoints`` empty and says so
through its capabilities. ``operations`` stand in order of time; those of one process in order of happening.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

import msgspec

from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.stored import StoredCheckpoint

Row = dict[str, Any]
"""A record as a mapping from column name to value."""

OperationT = TypeVar("OperationT", covariant=True)
KindT = TypeVar("KindT")


class Recorded(msgspec.Struct, Generic[OperationT], frozen=True):
    """One line of a history: an operation, with when and by whom."""

    index: int
    """Position in the history, from 0."""
    time_ms: float
    """Milliseconds on the trial's own clock."""
    process: str
    """Who tells: ``coordinator``, ``nemesis``, a subtask as ``vertex[index]``, or whatever a system has."""
    operation: OperationT


class CheckpointProblem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a checkpoint, or a file of it, cannot be read."""

    checkpoint: int
    reason: Reason
    file: str | None = None
    """The file, by the name that the checkpoint has for it; None if no single file is to blame."""
    detail: str = ""

    def __str__(self) -> str:
        """Return file and reason, for people who know which checkpoint is spoken of."""
        return ": ".join(part for part in (self.file, self.detail or self.reason.value) if part)


class StateView(msgspec.Struct, frozen=True):
    """What one operator of one subtask keeps under one name."""

    operator: str
    subtask: str
    name: str
    """The name of the state, for operators that keep several."""
    entries: dict[str, list[Any]]
    """Key (JSON text of the list of key values) -> what is kept: accumulator values, in order, or a list."""
    groups: dict[str, int] = {}
    """Key -> the key group under which it lies; empty if the system has none, or does not tell."""


class NamedFile(msgspec.Struct, frozen=True):
    """A state file as a checkpoint names it."""

    path: str
    size: int
    """Bytes."""
    checksum: str


class SnapshotView(msgspec.Struct, frozen=True):
    """A completed checkpoint, opened while it was retained: what the ALN-2 oracle folds against."""

    checkpoint: int
    attempt: int | None
    positions: dict[str, int]
    """Split name -> records before the barrier (S_n); splits not yet begun are there with 0."""
    state: tuple[StateView, ...] = ()
    """What every stateful operator of every subtask holds; those that hold nothing may be left out."""
    subtasks: tuple[str, ...] = ()
    """Every subtask that has a part in the checkpoint."""
    problem: CheckpointProblem | None = None
    """Why it could not be opened, if it could not."""
    files: dict[str, tuple[NamedFile, ...]] = {}
    """Subtask -> the state files of its part; subtasks without any are left out."""
    reached_sinks: tuple[Row, ...] | None = None
    """Every row that sinks had committed up to this checkpoint, or prepared in it; None if that was not read."""

    def state_by_operator(self, without: Collection[str] = ()) -> Mapping[str, Mapping[str, list[Any]]]:
        """Return operator -> key -> accumulator values over all subtasks; operators without any key are left out.

        So are those named by ``without``.
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
    """The checkpoint that it was prepared for; None: it does not tell."""
    attempt: int | None
    """The attempt that prepared it; None: it does not tell."""


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
    """The retained checkpoints as somebody else than the system read them off storage; None: nobody did."""


class OutputCounts(msgspec.Struct, frozen=True):
    """How committed output compares with the input; the words are those of the checker ``exactly-once-output``."""

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
        """Tell whether anything but the two totals was counted."""
        totals = ("expected", "committed")
        return any(getattr(self, name) for name in self.__struct_fields__ if name not in totals)


class OutputComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a query over output and input says, where the rows are too many to be read one by one."""

    counts: OutputCounts | None
    """None if they could not be compared."""
    examples: tuple[str, ...] = ()
    problem: str = ""
    """Why they could not, in words."""
    checks: dict[str, dict[str, int]] = {}
    """For people: each check, with the number of rows on one side only."""


class End(StrEnum):
    """How a deployment ended."""

    FINISHED = "finished"
    """All input was consumed and all output committed."""
    FAILED = "failed"
    """The job gave up (for instance the restart strategy said no)."""
    STUCK = "stuck"
    """No end within the bound; ``pending`` says what it waits for."""
    ERROR = "error"
    """The harness could not run it."""


class History(msgspec.Struct, frozen=True):
    """All that one trial left for judgement."""

    operations: tuple[Recorded[Operation], ...]
    end: End
    reason: Reason
    """Why it ended so."""
    detail: str
    """The same in words."""
    output: tuple[Row, ...] | None
    """The committed output, read after the end; None if it is judged elsewhere (``output_query``)."""
    checkpoints: tuple[SnapshotView, ...] = ()
    storage: StorageView | None = None
    pending: tuple[str, ...] = ()
    """What a stuck job waits for."""
    output_query: OutputComparison | None = None
    """Result of the batch query over the same input (Spark world): counts of rows only on one side."""

    def of(self, kind: type[KindT]) -> Iterator[Recorded[KindT]]:
        """Yield the operations of one kind, in order."""
        for line in self.operations:
            if isinstance(line.operation, kind):
                yield cast("Recorded[KindT]", line)

    @property
    def explanation(self) -> str:
        """Return why it ended so, for people."""
        return self.detail or self.reason.value
