"""The history: everything an oracle may look at, as plain values, whichever system left it.

An operation ends ``ok`` (it happened), ``fail`` (it definitely did not) or ``info`` (nobody knows);
``invoke`` opens one. Nothing here assumes barriers: a system that cannot show its checkpoints leaves
``checkpoints`` empty and says so through its capabilities.

The vocabulary of operations. An adapter emits those that its system has; checkers pass over what they do not
know.

========== ======== ======== ===========================================================================
operation  process  outcome  value
========== ======== ======== ===========================================================================
attempt    c        invoke   ``attempt, restored_checkpoint`` (None: from the beginning)
attempt    c        ok       ``attempt``: every subtask runs
attempt    c        fail,    ``attempt, reason``: it ended without finishing the job
                    info
checkpoint c        invoke   ``checkpoint, attempt``: triggered
checkpoint c        ok       ``checkpoint, attempt``: complete and durable
checkpoint c        fail     ``checkpoint, attempt, reason``: aborted
ack        c        ok       ``checkpoint, attempt, subtask``: an acknowledgement arrived, accepted or not; with
                             local recovery ``local``: ``kept, problem, confirmed, held, host`` (LOC-2, LOC-3)
commit     c        ok       ``checkpoint, subtask``: a sink made visible what the checkpoint covers
placement  c        ok       ``attempt, hosts, slots, homes``: where each subtask goes, how many slots each host
                             offered, and which hosts hold a copy of what a subtask restores (LOC-9)
restore    subtask  ok       ``attempt, checkpoint, files``: which copy served each state file (LOC-4); a file is
                             ``operator, path, key_groups, served_by, reason, copy_of``
job        c        ok, fail ``reason``: the job finished, or gave up
job        c        info     ``reason``, and ``bound_ms`` if the trial's bound came before the job's end
fault      nemesis  all      ``fault`` (position in the plan's schedule), ``label``; ok: it fired
heal       nemesis  all      likewise; ok: a fault that lasts for a time was undone
========== ======== ======== ===========================================================================

Process ``c`` is ``coordinator``. Operations stand in order of time; those of one process in order of
happening.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

Row = dict[str, Any]
"""A record as a mapping from column name to value."""


class Outcome(StrEnum):
    """How an operation stands."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Operation(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a history."""

    index: int
    time_ms: float
    process: str
    """Who: ``coordinator``, ``nemesis``, or a subtask as ``vertex[index]``."""
    operation: str
    """What: for instance ``attempt``, ``checkpoint``, ``snapshot``, ``restore``, ``fault``, ``point``."""
    outcome: Outcome
    value: dict[str, Any] = {}
    """Facts, with JSON types only: attempt, checkpoint, point, reason, ..."""


class SnapshotView(msgspec.Struct, frozen=True):
    """A completed checkpoint, opened while it was retained: what the ALN-2 oracle folds against."""

    checkpoint: int
    attempt: int
    positions: dict[str, int]
    """Split name -> records before the barrier (S_n); splits not yet begun are there with 0."""
    state: dict[str, dict[str, list[Any]]]
    """Stateful operator -> key (JSON text of the list of key values) -> accumulator values, in order."""
    subtasks: tuple[str, ...] = ()
    """Every subtask that has a part in the checkpoint."""
    problem: str | None = None
    """Why it could not be opened, if it could not."""
    files: dict[str, tuple[str, ...]] = {}
    """Subtask -> the state files of its part; subtasks without any are left out."""


class Transaction(msgspec.Struct, frozen=True):
    """Something that a sink made visible in one step."""

    name: str
    checkpoint: int
    """The checkpoint that it was prepared for."""
    attempt: int
    """The attempt that prepared it."""


class StorageView(msgspec.Struct, frozen=True):
    """What durable storage held at the end of the trial."""

    retained: tuple[int, ...] = ()
    """Retained checkpoints, oldest first."""
    unreadable: tuple[str, ...] = ()
    """Files that a retained checkpoint refers to and that are missing or corrupt, with the reason."""
    orphans: tuple[str, ...] = ()
    """Files that no retained checkpoint and no committed output refers to."""
    transactions: tuple[Transaction, ...] = ()
    """What sinks had committed."""


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

    operations: tuple[Operation, ...]
    end: End
    end_reason: str
    output: tuple[Row, ...] | None
    """The committed output, read after the end; None if it is judged elsewhere (``output_query``)."""
    checkpoints: tuple[SnapshotView, ...] = ()
    storage: StorageView | None = None
    pending: tuple[str, ...] = ()
    """What a stuck job waits for."""
    output_query: dict[str, Any] | None = None
    """Result of the batch query over the same input (Spark world): counts of rows only on one side."""
