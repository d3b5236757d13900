"""Where the attempts of one history started: which checkpoints were restored, and what they held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.keys import key_of_text
from barrier_tck.harness.oracle.evidence.storage_damage import primaries_damaged
from barrier_tck.harness.oracle.evidence.trial_input import InputRecord, TrialInput
from barrier_tck.harness.record.history import History, SnapshotView
from barrier_tck.harness.record.operations import (
    AttemptRunning,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointTriggered,
    StartedFromSavepoint,
)
from barrier_tck.harness.workloads.sequential_model import Key, Totals
from barrier_tck.harness.workloads.workload import split_name


@dataclass(frozen=True, slots=True)
class Cut:
    """A checkpoint as the oracle computes with it."""

    checkpoint: int
    positions: Mapping[str, int]
    """Split -> number of records before the barrier (S_n)."""
    state: Totals
    """Key -> the totals that the checkpoint holds; null sums are 0."""
    fold: Totals
    """Key -> the totals of the records before the barriers."""

    def is_behind(self, record: InputRecord) -> bool:
        """Return whether a record lies at or after S_n: a restore of this checkpoint replays it."""
        return record.offset >= self.positions.get(record.split, 0)

    def surplus(self, key: Key, width: int) -> list[int]:
        """Return how much more the checkpoint holds for a key than the records before its barriers give."""
        zero = [0] * width
        held, due = self.state.get(key, zero), self.fold.get(key, zero)
        return [stored - expected for stored, expected in zip(held, due, strict=True)]


def restored_checkpoints(history: History) -> dict[int, int | None]:
    """Return attempt -> the checkpoint from which it was started (None: from the beginning), in order."""
    return {
        started.operation.attempt: started.operation.restored_checkpoint
        for started in history.of(AttemptStarted)
    }


def attempt_of(history: History, view: SnapshotView) -> int | None:
    """Return the attempt that took a checkpoint: the one that it names, or else the one in which it completed."""
    if view.attempt is not None:
        return view.attempt
    current: int | None = None
    for line in history.operations:
        match line.operation:
            case AttemptStarted(attempt=attempt):
                current = attempt
            case CheckpointCompleted(checkpoint=completed) if completed == view.checkpoint:
                return current
    return current


def ancestors(history: History, attempt: int | None) -> list[SnapshotView]:
    """Return the opened checkpoints from which an attempt descends, the one that it restored first."""
    opened = {view.checkpoint: view for view in history.checkpoints if view.problem is None}
    restored, found = restored_checkpoints(history), list[SnapshotView]()
    while attempt is not None:
        view = opened.get(restored.get(attempt) or -1)
        if view is None or view in found:
            break
        found.append(view)
        attempt = attempt_of(history, view)
    return found


def attempts_that_ran(history: History) -> frozenset[int]:
    """Return the attempts in which every subtask ran: no other attempt can have completed a checkpoint."""
    return frozenset(running.operation.attempt for running in history.of(AttemptRunning))


class GivenUp(NamedTuple):
    """A stretch of execution that was given up: checkpoints completed in it, but the job went on from an older one."""

    start: int | None
    """The checkpoint after which it began; None: the beginning of the input."""
    end: int
    """The newest checkpoint that completed in it."""


def given_up(context: TrialContext, attempt: int | None) -> tuple[GivenUp, ...]:
    """Return the stretches that were given up before an attempt, in order.

    A stretch is given up if primary copies were damaged (REC-4), or if the job was started from an older savepoint.
    Sinks may have committed its output, each record once.
    """
    if attempt is None or fell_back(context) is None:
        return ()
    restored, owners = restored_checkpoints(context.history), _owners(context.history)
    kept: dict[int, int] = {}
    """Attempt among the ancestors -> its checkpoint from which the job went on."""
    ancestor: int | None = attempt
    while ancestor is not None and (checkpoint := restored.get(ancestor)) is not None:
        ancestor = owners.get(checkpoint)
        if ancestor is None or ancestor in kept:
            break
        kept[ancestor] = checkpoint
    newest = {owner: checkpoint for checkpoint, owner in sorted(owners.items())}
    return tuple(
        GivenUp(start, newest[earlier])
        for earlier, origin in restored.items()
        if earlier < attempt and earlier in newest and (start := kept.get(earlier, origin)) != newest[earlier]
    )


def committed_again(context: TrialContext, trial_input: TrialInput) -> Counter[int] | None:
    """Return id -> how many more times than once the output may show a record, because checkpoints were given up.

    For each stretch that was given up, sinks may have committed once the records between its two checkpoints, and those
    in flight at the first one. None if a checkpoint of a stretch could not be opened or lacks positions.
    """
    attempt = max(restored_checkpoints(context.history), default=None)
    opened = {view.checkpoint: view for view in context.history.checkpoints}
    again: Counter[int] = Counter()
    for stretch in given_up(context, attempt):
        start = opened.get(stretch.start) if stretch.start is not None else None
        end = opened.get(stretch.end)
        if end is None or (start is None and stretch.start is not None):
            return None
        try:
            end_cut = cut_of(end, trial_input)
            start_cut = cut_of(start, trial_input) if start is not None else None
        except ValueError:
            return None
        again.update(
            identifier
            for identifier, record in trial_input.records.items()
            if (start_cut is None or start_cut.is_behind(record)) and not end_cut.is_behind(record)
        )
        for channel in start.in_flight if start is not None else ():
            again.update(
                row[trial_input.spec.id_column] for row in channel.rows if trial_input.spec.id_column in row
            )
    return again


def _owners(history: History) -> dict[int, int]:
    """Return completed checkpoint -> the attempt that took it, for those whose triggering was reported."""
    triggered: dict[int, int] = {}
    owners: dict[int, int] = {}
    for line in history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=checkpoint, attempt=attempt):
                triggered[checkpoint] = attempt
            # A coordinator that died may not have reported that a checkpoint was complete; its successor restores it.
            case (
                CheckpointCompleted(checkpoint=checkpoint)
                | AttemptStarted(restored_checkpoint=int(checkpoint))
            ) if checkpoint in triggered:
                owners[checkpoint] = triggered[checkpoint]
    return owners


def fell_back(context: TrialContext) -> str | None:
    """Describe the attempt that was right to go back behind the newest completed checkpoint: the plan allows it and a
    primary copy was damaged, or the job was started from an older savepoint.

    Then records in between come twice, in any mode, if a sink had committed them, perhaps without living long enough to
    report it: a transaction cannot be taken back (REC-4). Returns None if no attempt went back.
    """
    damaged = context.plan.on_unreadable == "older" and primaries_damaged(context) > 0
    completed: int | None = None
    origin: int | None = None
    for line in context.history.operations:
        match line.operation:
            case CheckpointCompleted(checkpoint=checkpoint):
                completed = checkpoint if completed is None else max(completed, checkpoint)
            case StartedFromSavepoint(checkpoint=checkpoint):
                origin = checkpoint
            case AttemptStarted(attempt=attempt, restored_checkpoint=restored):
                older = completed is not None and (restored is None or restored < completed)
                if older and (damaged or (restored is not None and restored == origin)):
                    where = "the beginning" if restored is None else f"checkpoint {restored}"
                    why = (
                        "whose state was damaged"
                        if damaged
                        else "and the job was started from that savepoint"
                    )
                    return (
                        f"attempt {attempt} went back to {where} although {completed} had completed, {why}; what that "
                        "checkpoint had committed comes twice"
                    )
                # A coordinator that died may not have reported that it was complete.
                completed = restored
    return None


def cut_of(view: SnapshotView, trial_input: TrialInput) -> Cut:
    """Return an opened checkpoint as a cut.

    Raises ValueError if it has no position of some split of the input or could not be opened.
    """
    if view.problem is not None:
        raise ValueError(f"checkpoint {view.checkpoint} could not be opened: {view.problem}")
    positions = {split_name(split): position for split, position in view.positions.items()}
    missing = [name for name in trial_input.extents if name not in positions]
    if missing:
        raise ValueError(f"checkpoint {view.checkpoint} has no position of split {missing[0]}")
    fold = trial_input.prefix.up_to(positions)
    return Cut(
        view.checkpoint,
        positions,
        state_of(view, trial_input),
        {key: list(values) for key, values in fold.items()},
    )


def state_of(view: SnapshotView, trial_input: TrialInput) -> Totals:
    """Return key -> the totals that a checkpoint holds, with nulls as 0."""
    return {
        key_of_text(text): [0 if value is None else value for value in values]
        for entries in view.state_by_operator(without=trial_input.witnesses).values()
        for text, values in entries.items()
    }
