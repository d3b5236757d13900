"""Savepoints are the user's: whole, self-contained, and still there at the end (COO-5).

What a savepoint held when it completed was shown by the system. At the end the judge reads each savepoint's directory
by itself, without looking anywhere else. It must hold a part of every subtask, the same positions and the same state
files as then, with the bytes that the metadata names, and nothing else. Only a failure ends a savepoint: no newer
checkpoint subsumes it, and retention does not delete it. One that failed leaves nothing that looks complete, unless the
service that holds it refused all requests from then until the job ended.

A savepoint that the next job claims is that job's: it stays until a newer checkpoint is complete, and is deleted then.
Checkpoints never refer to the files of one that was not claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import CheckpointLife, lives_of
from barrier_tck.harness.oracle.evidence.moments import completed_at
from barrier_tck.harness.oracle.evidence.storage_damage import damaged_files
from barrier_tck.harness.oracle.evidence.storage_outages import REFUSES, lasted_to_the_end
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import End, History, SnapshotView
from barrier_tck.harness.record.operations import CheckpointCompleted, CheckpointTriggered, JobStopped
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.stored import StoredSavepoint
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_SUBSUMED = Sign("a newer checkpoint ends a savepoint", "COO-5")
_FAILED_LEFT = Sign("a savepoint that failed looks complete", "COO-5")
_CLAIMED_LEFT = Sign("a claimed savepoint is left although its job has newer checkpoints", "COO-5")
_GONE = Sign("a complete savepoint is gone", "COO-5")
_DAMAGED = Sign("the directory of a savepoint lacks a part of it, or holds something else", "COO-5")
_CHANGED = Sign("a savepoint is not what it was when it completed", "COO-5")
_REFERRED = Sign("a checkpoint refers to a file of a savepoint that is the user's", "COO-5")


class Savepoints(StandardChecker):
    """Every completed savepoint is kept as it was, and can be used without anything outside its directory."""

    name = "savepoints"
    requires = (
        "Completed savepoints are whole and self-contained, and still there at the end, as read from "
        "their directories alone. One that the next job claimed stays until a newer checkpoint is "
        "complete, and is deleted then. No checkpoint refers to files of one that was not claimed."
    )
    judges = "systems that take savepoints and whose checkpoints can be opened, if the plan asks for some"
    covers = {"COO-5": ALWAYS}
    needs = frozenset({Capability.SAVEPOINTS, Capability.SNAPSHOT_INSPECTION})
    signs = (_SUBSUMED, _FAILED_LEFT, _CLAIMED_LEFT, _GONE, _DAMAGED, _CHANGED, _REFERRED)
    rank = 330

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints and bool(trial.plan.savepoints)

    def check(self, context: TrialContext) -> Finding:
        """Judge the savepoints of one trial."""
        storage = context.history.storage
        lives = [
            life
            for attempt in lives_of(context)
            for life in attempt.checkpoints
            if life.savepoint is not None
        ]
        if storage is None:
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, "the system did not show its storage")
        found = {stored.directory: stored for stored in storage.savepoints}
        views = {view.savepoint: view for view in context.history.checkpoints if view.savepoint is not None}
        claimed = _claimed(context.history)
        problems: list[Breach] = []
        for life in lives:
            place = life.savepoint or ""
            due = claimed.get(life.number, _Due.KEPT)
            problems += _problems(life, due, found.get(place), views.get(place), context)
            if life.number not in claimed:
                problems += _referred(life, context)
        completed = sum(life.completed for life in lives)
        judged = any(life.completed and claimed.get(life.number) is not _Due.EITHER for life in lives)
        counts = {
            "savepoints": len(lives),
            "completed": completed,
            "claimed": len(claimed),
            "deleted": sum(due is _Due.DELETED for due in claimed.values()),
            "violations": len(problems),
        }
        if problems:
            summary = f"{len(problems)} problems with savepoints; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        summary = f"{completed} of {len(lives)} savepoints completed; each is whole, self-contained and kept"
        return Finding(self.name, self.clauses if judged else (), Verdict.VALID, summary, counts)


class _Due(Enum):
    """What must have become of a complete savepoint."""

    KEPT = "kept"
    DELETED = "deleted"
    EITHER = "either"


def _claimed(history: History) -> dict[int, _Due]:
    """Return what is due for each savepoint that the next job claimed.

    It goes when that job, or one after it, has completed a checkpoint that is no savepoint. When a job finishes, all
    has been tidied up. One that was cut off or has failed may have been in the middle of it.
    """
    savepoints = [
        line.operation.checkpoint for line in history.of(CheckpointTriggered) if line.operation.savepoint
    ]
    due: dict[int, _Due] = {}
    for line in history.operations:
        match line.operation:
            case JobStopped(checkpoint=int(number), claimed=True):
                due[number] = _Due.KEPT
            case CheckpointTriggered(savepoint=None):
                # Its metadata may be durable although it could not be reported.
                due |= {number: _Due.EITHER for number, entry in due.items() if entry is _Due.KEPT}
            case CheckpointCompleted(checkpoint=checkpoint) if (
                checkpoint not in savepoints and history.end is End.FINISHED
            ):
                due = dict.fromkeys(due, _Due.DELETED)
            case _:
                continue
    return due


def _breach(
    sign: Sign, problem: str, life: CheckpointLife, operation: int | None = None, place: str = ""
) -> Breach:
    sentence = f"{_named(life)}: {problem}"
    return Breach(sign, sentence, operation, place or life.savepoint or "", life.number, life.attempt)


def _named(life: CheckpointLife) -> str:
    return f"savepoint {life.savepoint} (checkpoint {life.number})"


def _referred(life: CheckpointLife, context: TrialContext) -> Iterator[Breach]:
    """Yield the checkpoints that refer to files of a savepoint."""
    for view in context.history.checkpoints:
        mine = [
            (subtask, file.path)
            for subtask, files in view.files.items()
            for file in files
            if file.path.startswith(f"{life.savepoint}/")
        ]
        if view.savepoint is None and mine:
            subtask, path = mine[0]
            sentence = (
                f"{_named(life)}: checkpoint {view.checkpoint} refers to its {path}, which is the user's"
            )
            at = completed_at(context, view.checkpoint)
            yield Breach(_REFERRED, sentence, at, subtask, view.checkpoint, view.attempt)


def _could_not_be_taken_back(life: CheckpointLife, context: TrialContext) -> bool:
    """Return whether the service that holds it refused requests from its failure until the job ended."""
    return life.ended_ms is not None and lasted_to_the_end(context, REFUSES, begun_by_ms=life.ended_ms)


def _problems(
    life: CheckpointLife,
    due: _Due,
    stored: StoredSavepoint | None,
    view: SnapshotView | None,
    context: TrialContext,
) -> Iterator[Breach]:
    if life.failed is Reason.SUBSUMED:
        subsumed = "a newer checkpoint ended it, although savepoints are not subsumed"
        yield _breach(_SUBSUMED, subsumed, life, life.ended_at)
    if life.failed is not None and stored is not None and not _could_not_be_taken_back(life, context):
        yield _breach(_FAILED_LEFT, "it failed, and its directory looks complete", life)
    if not life.completed:
        return
    if due is _Due.DELETED and stored is not None:
        left = "the next job claimed it and has newer checkpoints, and it is still there"
        yield _breach(_CLAIMED_LEFT, left, life)
    if stored is None and due is _Due.KEPT:
        yield _breach(_GONE, "it had completed, and is not there any more", life)
    if stored is None or due is not _Due.KEPT:
        return
    subtasks = context.subtasks_of(view.attempt if view is not None else None)
    for place, problem in _damages(life, stored, subtasks, damaged_files(context)):
        yield _breach(_DAMAGED, problem, life, place=place)
    if stored.contents.problem is None and view is not None and view.problem is None:
        for problem in _differences(stored, view):
            yield _breach(_CHANGED, problem, life)


def _damages(
    life: CheckpointLife, stored: StoredSavepoint, subtasks: Sequence[str], damaged: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield what is wrong in the directory of a savepoint, with the subtask or file if it is that of one.

    ``damaged`` are the files that the trial damaged.
    """
    contents = stored.contents
    if contents.problem is not None:
        yield "", f"its metadata is {contents.problem.value}: {contents.detail}"
        return
    if contents.checkpoint != life.number:
        yield "", f"its metadata is that of checkpoint {contents.checkpoint}"
    yield from ((path, f"it names {path}, outside its directory") for path in stored.outside)
    yield from ((path, f"{path} is in its directory, but nothing names it") for path in stored.unnamed)
    parts = [part.subtask for part in contents.parts]
    yield from ((subtask, f"it has no part of {subtask}") for subtask in subtasks if subtask not in parts)
    for part in contents.parts:
        for file in part.files:
            if f"{stored.directory}/{file.path}" in damaged:
                continue
            if file.found_size is None:
                yield part.subtask, f"{file.path} cannot be read"
            elif (file.found_size, file.found_checksum) != (file.size, file.checksum):
                yield part.subtask, f"{file.path} is not what the metadata says"


def _differences(stored: StoredSavepoint, view: SnapshotView) -> Iterator[str]:
    """Yield how a savepoint differs from what it was when it completed."""
    positions = dict(position for part in stored.contents.parts for position in part.positions)
    if positions != dict(view.positions):
        yield f"its positions are {positions} now, and were {dict(view.positions)} when it completed"
    now = {
        (f"{stored.directory}/{file.path}", file.checksum)
        for part in stored.contents.parts
        for file in part.files
    }
    then = {(file.path, file.checksum) for files in view.files.values() for file in files}
    for path, _ in sorted(then - now):
        yield f"{path} was among its files when it completed"
    for path, _ in sorted(now - then):
        yield f"{path} was not among its files when it completed"
