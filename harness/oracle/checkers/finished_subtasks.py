"""Subtasks that finish before the job does, and checkpoints without them (BAR-6).

A subtask may say that it has finished when all that it did is committed, and everything before it has finished too.
Then checkpoints hold no state of it, and a restore must know that it had finished. What a finished subtask held is
judged by others: ``opened_checkpoints`` gives every checkpoint the state of its last own part, so a subtask that
finished too early shows in the checkpoints, and one that does something again shows in the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.cut_signs import restored_view
from barrier_tck.harness.oracle.evidence.moments import completed_at
from barrier_tck.harness.oracle.evidence.opened_checkpoints import positions_of
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.sometimes import Sightings, Sometimes
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import History, SnapshotView
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptStarted,
    CheckpointCompleted,
    CheckpointTriggered,
    Committed,
    ConsumedAll,
    Finished,
    InputRead,
)
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.job_view import JobView, Role
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.workload import split_name

DUE_MIN = 5
"""With fewer trials whose sources end early, a campaign need not have seen a checkpoint complete after that: profiles
that hardly ever draw such sources have one or two of them in 200 trials."""
AFTER_FINISH = "after_finish"
"""What counts the checkpoints that completed after some of their subtasks, but not all, had finished."""
DUE = "early_ends"
"""What counts the source subtasks that the plan lets end early, so that there should be such checkpoints."""


@dataclass(slots=True)
class _Attempt:
    """What one attempt has shown so far."""

    before: frozenset[str] = frozenset()
    """The subtasks that had finished in the checkpoint that it restored."""
    completed: list[int] = field(default_factory=list)
    finished: dict[str, None] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    """Sink -> the newest checkpoint for which it committed."""
    prepared: dict[str, dict[int, int]] = field(default_factory=dict)
    """Subtask -> checkpoint -> records that it prepared."""
    acknowledged: dict[str, dict[int, None]] = field(default_factory=dict)
    """Subtask -> the checkpoints of which it had acknowledged its own part by the time that it finished."""


def _completed_after_finish(finding: Finding, _: TrialSummary) -> Sightings | None:
    """Return how many checkpoints completed so, if some sources of the trial were to end early."""
    return {"checkpoints": finding.counts.get(AFTER_FINISH, 0)} if finding.counts.get(DUE) else None


_TOO_EARLY = Sign("a subtask finishes when something of it can still be lost", "BAR-6")
_COUNTED = Sign("a checkpoint counts a subtask as finished that is not", "BAR-6")
_REPLACED = Sign("a checkpoint counts a subtask as finished that had acknowledged its part before", "BAR-6")
_SAVEPOINT_REPLACED = Sign(
    "a savepoint counts a subtask as finished that had acknowledged its part before", "COO-5"
)
_FORGOTTEN = Sign("a checkpoint has forgotten that a subtask had finished", "BAR-6")
_UNREAD = Sign("the readers of a split have finished before its end", "BAR-6")
_NO_POSITION = Sign("a split that was read has no position once its readers have finished", "STA-3")
_LAST_TOO_EARLY = Sign(
    "the checkpoint with which the job is to finish is not at the end of its input", "BAR-6"
)
_CONSUMED_BEFORE = Sign(
    "the last checkpoint is taken because a former attempt had said that its input was consumed", "REC-2"
)
_ENDED_LATER = Sign("a snapshot says that an input had ended whose end came behind the barrier", "SNP-1")
_NEVER_READ = Sign("a restored source finishes without having read a split at all", "SRC-1")


class FinishedSubtasks(StandardChecker):
    """A subtask that finishes has committed everything, after everything before it; and every restore remembers it."""

    name = "finished-subtasks"
    requires = (
        "Who finishes has committed everything, after everything before it; checkpoints and restores "
        "remember which subtasks had finished."
    )
    judges = "systems whose subtasks finish early and whose checkpoints can be opened"
    covers = {"BAR-6": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION, Capability.EARLY_FINISH})
    sometimes = (
        Sometimes(
            name="sometimes-after-finish",
            clauses=("BAR-6",),
            seen=_completed_after_finish,
            things={"checkpoints": "with_checkpoints"},
            shown=(
                "in {with_checkpoints} of {trials} trials with sources that end early, checkpoints completed after "
                "some of their subtasks had finished, {checkpoints} in all"
            ),
            not_shown=(
                "no checkpoint completed after some of its subtasks had finished, in none of the {trials} trials with "
                "sources that end early; run more trials, with more batches or shorter checkpoint intervals"
            ),
            trials_min=DUE_MIN,
        ),
    )
    signs = (
        _TOO_EARLY,
        _COUNTED,
        _REPLACED,
        _SAVEPOINT_REPLACED,
        _FORGOTTEN,
        _LAST_TOO_EARLY,
        _CONSUMED_BEFORE,
        _ENDED_LATER,
        _NEVER_READ,
        _NO_POSITION,
        _UNREAD,
    )
    directness = Directness.OPERATIONS
    rank = 290

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        return cls(trial.input)

    def __init__(self, trial_input: TrialInput) -> None:
        """Take the input, whose end a source must have reached."""
        self._input = trial_input

    def check(self, context: TrialContext) -> Finding:
        """Judge the operations and the checkpoints of one trial."""
        history = context.history
        views = {view.checkpoint: view for view in history.checkpoints if view.problem is None}
        attempts = _attempts(history, views, context)
        problems = [
            *self._too_early(history, views, context),
            *self._in_checkpoints(views, attempts, context),
            *self._last_too_early(views, context),
        ]
        partly = [view for view in views.values() if 0 < len(view.finished) < len(view.subtasks)]
        restored = [line.operation.restored_checkpoint for line in history.of(AttemptStarted)]
        counts = {
            "finished": sum(len(attempt.finished) for attempt in attempts.values()),
            AFTER_FINISH: len(partly),
            DUE: context.plan.workload.early_ends,
            "restored_after_finish": sum(view.checkpoint in restored for view in partly),
            "violations": len(problems),
        }
        if problems:
            summary = f"{len(problems)} things are wrong with subtasks that finished; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        summary = f"{len(partly)} checkpoints completed after some of their subtasks had finished"
        return Finding(self.name, self.clauses if partly else (), Verdict.VALID, summary, counts)

    def _too_early(
        self, history: History, views: dict[int, SnapshotView], context: TrialContext
    ) -> Iterator[Breach]:
        """Yield the subtasks that reported that they had finished when something of theirs could still be lost."""
        jobs = [job for job in (context.job, *context.later_jobs) if job is not None]
        sinks = [sink for job in jobs for sink in job.in_role(Role.SINK)]
        attempts: dict[int, _Attempt] = {}
        for line in history.operations:
            match line.operation:
                case AttemptStarted():
                    attempts[line.operation.attempt] = _started(line.operation, views, context)
                case CheckpointCompleted(checkpoint=checkpoint, attempt=number):
                    if number in attempts:
                        attempts[number].completed.append(checkpoint)
                case Acknowledged(attempt=number, subtask=subtask, checkpoint=checkpoint, prepared=records):
                    if number in attempts and records:
                        attempts[number].prepared.setdefault(subtask, {})[checkpoint] = records
                case Committed(attempt=number, subtask=subtask, checkpoint=int(checkpoint)):
                    if number in attempts:
                        newest = max(checkpoint, attempts[number].committed.get(subtask, 0))
                        attempts[number].committed[subtask] = newest
                case Finished(attempt=number, subtask=subtask) if number in attempts:
                    why = _why_too_early(attempts[number], subtask, subtask in sinks)
                    if why:
                        sentence = f"at {line.time_ms:g} ms {subtask} of attempt {number} finished, but {why}"
                        yield Breach(_TOO_EARLY, sentence, line.index, subtask, attempt=number)

    def _in_checkpoints(
        self, views: dict[int, SnapshotView], attempts: dict[int, _Attempt], context: TrialContext
    ) -> Iterator[Breach]:
        """Yield what is wrong with the subtasks that checkpoints count as finished."""
        for number, view in sorted(views.items()):
            job = context.job_of(view.attempt)
            links = job.links if job is not None else ()
            attempt = attempts.get(view.attempt or 0, _Attempt())
            found = [
                *(
                    f"{subtask}, which had never finished"
                    for subtask in view.finished
                    if subtask not in attempt.finished
                ),
                *(
                    f"{receiver}, although {sender} before it had not finished"
                    for sender, receiver in links
                    if receiver in view.finished and sender not in view.finished
                ),
            ]
            replaced = [
                entry
                for entry in view.finished
                if entry not in attempt.before and number in attempt.acknowledged.get(entry, {})
            ]
            forgotten = [entry for entry in sorted(attempt.before) if entry not in view.finished]
            sentences = [
                *((_COUNTED, f"checkpoint {number} counts as finished {what}") for what in found),
                *(
                    (
                        _REPLACED if view.savepoint is None else _SAVEPOINT_REPLACED,
                        f"checkpoint {number} counts as finished {entry}, which had acknowledged its own part before",
                    )
                    for entry in replaced
                ),
                *(
                    (
                        _FORGOTTEN,
                        f"checkpoint {number} has forgotten that {entry} had finished in the checkpoint before it",
                    )
                    for entry in forgotten
                ),
                *((sign, f"checkpoint {number}: {what}") for sign, what in self._unread(view, context)),
                *(
                    (_ENDED_LATER, f"checkpoint {number}: {what}")
                    for what in self._ended_later(view, context)
                ),
            ]
            at = completed_at(context, number)
            for sign, sentence in sentences:
                yield Breach(sign, sentence, at, checkpoint=number, attempt=view.attempt)

    def _last_too_early(self, views: dict[int, SnapshotView], context: TrialContext) -> Iterator[Breach]:
        """Yield the checkpoints that were to commit the last output although input was left, with what was left."""
        if self._input.workload.input_directory is not None:
            return
        for number in _completed_as_last(context.history):
            if (view := views.get(number)) is None:
                continue
            positions = positions_of(view)
            left = [split for split in self._input.splits if positions.get(split.name, 0) < len(split.rows)]
            for split in left[:1]:
                sentence = (
                    f"checkpoint {number} was to be the last one, and {split.name} is at "
                    f"{positions.get(split.name, 0)} of {len(split.rows)} in it"
                )
                former = _consumed_before(context, view)
                if former is not None:
                    subtask, attempt = former
                    sentence += (
                        f"; {subtask} has not said that its input was consumed, but had in attempt {attempt}"
                    )
                sign = _LAST_TOO_EARLY if former is None else _CONSUMED_BEFORE
                at = completed_at(context, number)
                yield Breach(sign, sentence, at, split.vertex, number, view.attempt)

    def _unread(self, view: SnapshotView, context: TrialContext) -> Iterator[tuple[Sign, str]]:
        """Yield the splits that are not at their end although all subtasks that read their vertex's input had
        finished."""
        job = context.job_of(view.attempt)
        if not view.finished or self._input.workload.input_directory is not None or job is None:
            return
        positions = positions_of(view)
        unfinished = {
            subtask.vertex
            for subtask in job.subtasks
            if Role.SOURCE in subtask.roles and subtask.name not in view.finished
        }
        for split in self._input.splits:
            if split.vertex not in unfinished and positions.get(split.name, 0) < len(split.rows):
                at = positions.get(split.name, 0)
                begun = any(
                    line.operation.attempt == view.attempt and split_name(line.operation.split) == split.name
                    for line in context.history.of(InputRead)
                )
                if begun and split.name not in positions:
                    yield _NO_POSITION, f"the readers of {split.name} had finished, and it has no position"
                    continue
                restored = restored_view(context, view.attempt) is not None
                sign = _NEVER_READ if restored and not begun else _UNREAD
                yield sign, f"the readers of {split.name} had finished, which is at {at} of {len(split.rows)}"

    def _ended_later(self, view: SnapshotView, context: TrialContext) -> Iterator[str]:
        """Yield the subtasks whose input had ended, as their snapshots say, although records of it came later.

        Ends follow barriers, so where each input waits for the barriers of the others, the last barrier comes before
        the end unless every source before the subtask was at its end. In at-least-once mode no input waits.
        """
        job = context.job_of(view.attempt)
        waits = context.plan.checkpoints.mode != "at_least_once"
        if not (waits and view.ended) or self._input.workload.input_directory is not None or job is None:
            return
        positions = positions_of(view)
        left = {
            split.vertex: split.name
            for split in self._input.splits
            if positions.get(split.name, 0) < len(split.rows)
        }
        for subtask in view.ended:
            before = _before(subtask, job)
            for vertex, split in sorted(left.items()):
                readers = [entry.name for entry in job.subtasks if entry.vertex == vertex]
                if readers and all(reader in before for reader in readers):
                    yield f"all input of {subtask} had ended in it, and {split} is at {positions.get(split, 0)}"
                    break


def _before(subtask: str, job: JobView) -> frozenset[str]:
    """Return the subtasks from which there is a way to one, and itself."""
    found, left = {subtask: None}, [subtask]
    while left:
        receiver = left.pop()
        new = [sender for sender, to in job.links if to == receiver and sender not in found]
        found |= dict.fromkeys(new)
        left += new
    return frozenset(found)


def _consumed_before(context: TrialContext, view: SnapshotView) -> tuple[str, int] | None:
    """Return a subtask that a last checkpoint should have waited for, and an older attempt in which it had consumed its
    input; None unless all for which it should have waited had, in older attempts.

    A last checkpoint waits for each subtask at the end of the job that has not finished.
    """
    job = context.job_of(view.attempt)
    if job is None or view.attempt is None:
        return None
    said: dict[str, int] = {}
    for line in context.history.of(ConsumedAll):
        said[line.operation.subtask] = max(line.operation.attempt, said.get(line.operation.subtask, 0))
    senders = {sender for sender, _ in job.links}
    waited_for = [
        name
        for name in job.names
        if name not in senders and name not in view.finished and said.get(name) != view.attempt
    ]
    if not waited_for or not all(name in said for name in waited_for):
        return None
    return waited_for[0], said[waited_for[0]]


def _completed_as_last(history: History) -> Iterator[int]:
    """Yield the checkpoints that completed after they were triggered as the last ones; a number may be given twice."""
    final: dict[int, bool] = {}
    for line in history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=number):
                final[number] = line.operation.final
            case CheckpointCompleted(checkpoint=number) if final.pop(number, False):
                yield number
            case _:
                pass


def _started(started: AttemptStarted, views: dict[int, SnapshotView], context: TrialContext) -> _Attempt:
    view = views.get(started.restored_checkpoint or 0)
    if view is None:
        return _Attempt(before=frozenset())
    before, now = context.job_of(view.attempt), context.job_of(started.attempt)
    if before is None or now is None or before.names == now.names:
        return _Attempt(before=frozenset(view.finished))
    # Of a vertex that was rescaled, all subtasks have finished if all had.
    left = {entry.vertex for entry in before.subtasks if entry.name not in view.finished}
    widths = [Counter(subtask.vertex for subtask in job.subtasks) for job in (before, now)]
    same = [name for name in widths[1] if widths[0][name] == widths[1][name]]
    return _Attempt(
        before=frozenset(
            subtask.name
            for subtask in now.subtasks
            if (subtask.name in view.finished if subtask.vertex in same else subtask.vertex not in left)
        )
    )


def _attempts(history: History, views: dict[int, SnapshotView], context: TrialContext) -> dict[int, _Attempt]:
    """Return what each attempt has shown at the end of the trial."""
    attempts = {
        line.operation.attempt: _started(line.operation, views, context)
        for line in history.of(AttemptStarted)
    }
    for line in history.operations:
        match line.operation:
            case Finished(attempt=number, subtask=subtask) if number in attempts:
                attempts[number].finished[subtask] = None
            case Acknowledged(attempt=number, subtask=subtask, checkpoint=checkpoint, forged=False):
                if number in attempts and subtask not in attempts[number].finished:
                    attempts[number].acknowledged.setdefault(subtask, {})[checkpoint] = None
            case _:
                continue
    return attempts


def _why_too_early(attempt: _Attempt, subtask: str, is_sink: bool) -> str:
    if subtask in attempt.before:
        return ""
    if not attempt.completed:
        return "no checkpoint of the attempt was complete that could hold what it did"
    committed = attempt.committed.get(subtask, 0)
    if is_sink and not committed:
        return "it had not committed anything"
    left = [n for n in attempt.prepared.get(subtask, {}) if n > committed] if is_sink else []
    return f"what it had prepared for checkpoint {left[0]} was not committed" if left else ""
