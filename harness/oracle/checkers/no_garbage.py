"""No garbage: when a job has finished, durable storage holds everything that is needed, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.life_preconditions import STORED_IN_VAIN, STORED_LATE
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED
from barrier_tck.harness.oracle.evidence.storage_damage import primaries_damaged
from barrier_tck.harness.oracle.evidence.storage_outages import ANY, lasted_to_the_end
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import End, History, Recorded, StorageView
from barrier_tck.harness.record.operations import (
    Acknowledged,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    JobStopped,
    StartedFromSavepoint,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_ORPHAN = Sign("a file is left that nothing needs", "COO-3")
_ABORTED = Sign("a file of an aborted checkpoint is left, and nobody acknowledged it late", "COO-2")
_SUBSUMED = Sign("a file of a completed checkpoint is left after newer ones subsumed it", "COO-4")
_TOO_MANY = Sign("more checkpoints are retained than configured", "COO-4")
_TOO_FEW = Sign("a checkpoint is gone that should be retained", "COO-4")

_CHECKPOINT = re.compile(r"(?:^|/)chk-([0-9]+)/")


class NoGarbage(StandardChecker):
    """No file outlives its users: aborted, late and cancelled snapshots leave no files (COO-2, COO-3, SNP-2, SNP-5);
    completed ones that are not retained any more leave none (COO-4).

    And nothing is deleted too early: as many of the newest completed checkpoints are retained as configured (COO-4).

    A job that did not finish may have been cut off in the middle of cleaning up, and one that finished while no process
    could reach the storage may have tried in vain; what they left is not judged.
    """

    name = "no-garbage"
    requires = "A finished job leaves only what is needed in storage."
    judges = "systems whose checkpoints can be opened"
    covers = {"COO-3": STORED_LATE, "COO-4": COMPLETED, "SNP-2": STORED_IN_VAIN}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION})
    signs = (_ORPHAN, _ABORTED, _SUBSUMED, _TOO_MANY, _TOO_FEW)
    rank = 210

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(counts_retained="checkpoints.retained" not in trial.unused)

    def __init__(self, counts_retained: bool = True) -> None:
        """Say whether the system follows the plan in how many checkpoints it retains."""
        self._counts_retained = counts_retained
        if not counts_retained:
            self.clauses = tuple(clause for clause in self.covers if clause != "COO-4")

    def check(self, context: TrialContext) -> Finding:
        """Judge the storage that one trial left."""
        storage = context.history.storage
        if storage is None:
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, "the system did not show its storage")
        counts = {"retained": len(storage.retained), "orphans": len(storage.orphans)}
        if context.history.end is not End.FINISHED:
            summary = f"{context.history.end.sentence}; what it left is not judged"
            return Finding(self.name, (), Verdict.VALID, summary, counts)
        if lasted_to_the_end(context, ANY):
            summary = "no process could reach the storage when the job finished; what it left is not judged"
            return Finding(self.name, (), Verdict.VALID, summary, counts)
        bound = max(1, context.plan.checkpoints.retained)
        problems = [
            Breach(_orphan_of(path, context.history, storage.retained), f"orphan: {path}", place=path)
            for path in storage.orphans
        ]
        if self._counts_retained and len(storage.retained) > bound:
            many = f"{len(storage.retained)} checkpoints are retained, but the plan says {bound} (COO-4)"
            problems.append(Breach(_TOO_MANY, many, checkpoint=storage.retained[0]))
        if problems:
            summary = (
                f"{len(problems)} problems with what is left in storage; the first: {problems[0].sentence}"
            )
            return self.broken(context, summary, counts, problems)
        problems = list(_deleted_too_early(context, storage, bound)) if self._counts_retained else []
        if problems:
            summary = f"too little is retained: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        summary = f"{counts['retained']} retained checkpoints and nothing else are left"
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)


def _orphan_of(path: str, history: History, retained: Collection[int]) -> Sign:
    """Return what it means that a file is left: it is known of which checkpoint it is if its path says so."""
    named = _CHECKPOINT.search(path)
    number = int(named[1]) if named is not None else None
    completed = _last(history.of(CheckpointCompleted), number)
    over = _last(history.of(CheckpointAborted), number) if completed is None else completed
    # What was acknowledged when all was over came late, or twice.
    if over is None or (_last(history.of(Acknowledged), number) or 0) > over:
        return _ORPHAN
    if completed is None:
        return _ABORTED
    return _ORPHAN if number in retained else _SUBSUMED


def _last(lines: Iterable[Recorded[Any]], checkpoint: int | None) -> int | None:
    """Return the index of the last line about a checkpoint; None if there is none."""
    return max((line.index for line in lines if line.operation.checkpoint == checkpoint), default=None)


def _completed_since_the_last_start(history: History) -> list[int]:
    """Return the checkpoints, savepoints left out, that completed after the last start from a savepoint.

    Those from before it are superseded by the savepoint as soon as one has completed.
    """
    completed: list[int] = []
    savepoints: list[int] = []
    for line in history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=checkpoint, savepoint=savepoint) if savepoint is not None:
                savepoints.append(checkpoint)
            case CheckpointCompleted(checkpoint=checkpoint) if checkpoint not in savepoints:
                completed.append(checkpoint)
            case JobStopped() | StartedFromSavepoint():
                completed.clear()
    return completed


def _deleted_too_early(context: TrialContext, storage: StorageView, bound: int) -> Iterator[Breach]:
    """Yield which of the newest completed checkpoints are gone; those that were damaged on purpose may be."""
    if primaries_damaged(context):
        return
    reported = _completed_since_the_last_start(context.history)
    # A retained checkpoint is complete, too, even if the coordinator died before it could report it.
    completed = sorted(dict.fromkeys([*reported, *storage.retained]))
    for checkpoint in completed[-bound:]:
        if checkpoint not in storage.retained:
            gone = (
                f"checkpoint {checkpoint} had completed and is gone, although the newest {bound} must be kept "
                "(COO-4)"
            )
            yield Breach(_TOO_FEW, gone, checkpoint=checkpoint)
