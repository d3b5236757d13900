"""The life of every checkpoint, as the coordinator's own operations show it (COO-1 to COO-4, COO-6, REC-1, REC-2).

Nothing is assumed about how a coordinator works, only what it must never do: reuse an id, complete a checkpoint
without the acknowledgement of a subtask that has not finished (BAR-6), complete a checkpoint that it aborted or that an
older attempt left, give one up as subsumed when no newer one has completed, or as lost with an attempt that goes on, or
restore anything but the latest completed checkpoint. If a coordinator dies while it makes a checkpoint durable, the
checkpoint is undecided: if it has all acknowledgements, it may count as complete or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import coordinator_crashes
from barrier_tck.harness.oracle.evidence.life_preconditions import (
    ACKNOWLEDGED_WRONGLY,
    FAILED,
    LEFT_BEHIND,
    RESUMED_AFTER_A_CRASH,
)
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED, RECOVERED
from barrier_tck.harness.oracle.evidence.storage_damage import primaries_damaged
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import (
    Acknowledged,
    AttemptRunning,
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Committed,
    Finished,
    Operation,
    StartedFromSavepoint,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_OPEN, _COMPLETED, _ABORTED = "open", "completed", "aborted"
_LEFT = "left behind"
"""Complete, and newer than the savepoint from which the job was started then; another checker says who restores it."""


_UNACKNOWLEDGED = Sign("a checkpoint completes without an acknowledgement of some subtask", "COO-1")
_NEVER_TRIGGERED = Sign("a checkpoint completes that was never triggered", "COO-1")
_COMMITTED_EARLY = Sign("a sink commits for a checkpoint that is not known to be complete", "COO-1")
_NOT_DURABLE = Sign("after a crash that may lose what is not durable a complete checkpoint is gone", "COO-1")
_FORGOT = Sign("a new coordinator does not go on from the latest complete checkpoint", "COO-6")
_RESTORED_OLDER = Sign("an attempt starts from an older checkpoint than the latest complete one", "REC-1")
_RESTORED_INCOMPLETE = Sign("an attempt starts from a checkpoint that is not complete", "REC-1")
_STILL_PENDING = Sign("a checkpoint of a failed attempt is still pending while the next one runs", "REC-2")
_OF_OLD_ATTEMPT = Sign("a checkpoint of an older attempt completes in a newer one", "REC-2")
_FOR_OLD_ATTEMPT = Sign("a checkpoint is triggered for an attempt that is over", "REC-2")
_ATTEMPT_AGAIN = Sign("an attempt has a number that was given out before", "REC-2")
_ATTEMPT_AGAIN_AFTER_CRASH = Sign("a new coordinator gives out the number of an attempt again", "COO-4")
_ID_AGAIN = Sign("the id of a checkpoint is not above all ids before", "COO-4")
_NOT_SUBSUMED = Sign("an older checkpoint is acknowledged, and completes, after a newer one", "COO-4")
_SUBSUMED_BY_NONE = Sign("a checkpoint is subsumed although no newer one completed", "COO-4")
_ABORTED_WRONGLY = Sign("a checkpoint is aborted with its attempt, and the attempt goes on", "COO-2")
_ENDED_TWICE = Sign("a checkpoint completes after it was aborted, or is aborted after it completed", "COO-2")


class CheckpointLifeCycle(StandardChecker):
    """Follows all checkpoints and attempts through one history."""

    name = "checkpoint-life-cycle"
    requires = (
        "Checkpoints complete, fail and subsume each other only as allowed, and attempts restore the "
        "latest one."
    )
    judges = "systems with barriers"
    covers = {
        "COO-1": COMPLETED,
        "COO-2": FAILED,
        "COO-3": ACKNOWLEDGED_WRONGLY,
        "COO-4": COMPLETED,
        "COO-6": RESUMED_AFTER_A_CRASH,
        "REC-1": RECOVERED,
        "REC-2": LEFT_BEHIND,
    }
    needs = frozenset({Capability.CHECKPOINTS, Capability.BARRIERS})
    signs = (
        _UNACKNOWLEDGED,
        _NEVER_TRIGGERED,
        _COMMITTED_EARLY,
        _NOT_DURABLE,
        _FORGOT,
        _RESTORED_OLDER,
        _RESTORED_INCOMPLETE,
        _STILL_PENDING,
        _OF_OLD_ATTEMPT,
        _FOR_OLD_ATTEMPT,
        _ATTEMPT_AGAIN,
        _ATTEMPT_AGAIN_AFTER_CRASH,
        _ID_AGAIN,
        _NOT_SUBSUMED,
        _SUBSUMED_BY_NONE,
        _ABORTED_WRONGLY,
        _ENDED_TWICE,
    )
    directness = Directness.OPERATIONS
    rank = 110

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Judge the operations of one trial."""
        may_be_older = context.plan.on_unreadable == "older" and primaries_damaged(context) > 0
        first = context.plan.checkpoints.first_id
        given_out = first - 1 if first > 1 else None
        crashes, lost = coordinator_crashes(context), _lost_what_was_not_durable(context)
        acknowledges = any(True for _ in context.history.of(Acknowledged))
        story = _Story(_subtasks(context), crashes, may_be_older, given_out, lost, acknowledges)
        for line in context.history.operations:
            story.follow(line)
        states = [checkpoint.state for checkpoint in story.checkpoints.values()]
        counts = {
            "attempts": len(story.attempts),
            "completed": states.count(_COMPLETED) + states.count(_LEFT),
            "aborted": states.count(_ABORTED),
            "undecided": states.count(_OPEN),
            "violations": len(story.problems),
        }
        if story.problems:
            number = len(story.problems)
            summary = f"{number} violation{'s' * (number != 1)}; the first: {story.problems[0].sentence}"
            return self.broken(context, summary, counts, story.problems)
        if counts["completed"] and not acknowledges:
            summary = (
                "the history has no acknowledgement, so it is not known whether checkpoints were complete; note an "
                "Acknowledged (barrier_tck.harness) for each that arrives"
            )
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        if context.plan.checkpoints.enabled and not story.attempts:
            summary = "the history shows no attempt, so nothing can be said of its checkpoints"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        summary = (
            f"{counts['completed']} completed and {counts['aborted']} aborted checkpoints followed the rules"
        )
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)


def _lost_what_was_not_durable(context: TrialContext) -> bool:
    """Return whether a crash of the coordinator lost what was not synced, or the storage service was disturbed."""
    return any(
        (entry.fault.ends is Ends.COORDINATOR and entry.fault.loses_unsynced)
        or entry.fault.needs is TargetKind.OBJECT_STORE
        for entry in context.planned_faults
    )


def _subtasks(context: TrialContext) -> Callable[[int], frozenset[str]]:
    """Return a function that gives the subtasks of an attempt: a job that goes on from a savepoint may have others."""
    if not context.later_jobs:
        subtasks = frozenset(context.subtasks)
        return lambda attempt: subtasks
    return lambda attempt: frozenset(context.subtasks_of(attempt))


@dataclass(slots=True)
class _Checkpoint:
    """What the history has shown about one checkpoint so far."""

    number: int
    attempt: int
    since_ms: float
    """When its attempt started. On a real machine the report of a trigger may come after the death of the coordinator
    that triggered it, but not before its attempt; and a coordinator's death ends the attempt.
    """
    savepoint: bool = False
    """Whether it is a savepoint, which no newer checkpoint ends (COO-5)."""
    state: str = _OPEN
    acknowledged: set[str] = field(default_factory=set)
    last_acknowledged: int = -1
    """Index of the operation of the latest acknowledgement that counted; the same for the fields below."""
    completed: int | None = None


class _Story:
    """Reads operations in order and notes every broken rule."""

    def __init__(
        self,
        subtasks: Callable[[int], frozenset[str]],
        crashes: tuple[float, ...],
        may_be_older: bool = False,
        given_out: int | None = None,
        not_durable_lost: bool = False,
        acknowledges: bool = True,
    ) -> None:
        self.problems: list[Breach] = []
        self.checkpoints: dict[int, _Checkpoint] = {}
        self.attempts: list[int] = []
        self._subtasks = subtasks
        self._finished: dict[int, set[str]] = {}
        """Attempt -> its subtasks that have finished."""
        self._crashes = crashes
        self._not_durable_lost = not_durable_lost
        """Whether what was not durable may have been lost."""
        self._may_be_older = may_be_older
        """Whether an attempt may start from an older checkpoint: the latest was damaged and the plan allows it."""
        self._acknowledges = acknowledges
        """Whether acknowledgements are reported at all."""
        self._given_out = given_out
        """The newest id that was given out before the trial."""
        self._started_ms = 0.0
        """When the newest attempt started."""
        self._started_before_ms = 0.0
        """When the one before it started."""
        self._given_up: dict[int, int] = {}
        """Attempt -> a checkpoint that was aborted because the attempt had failed."""
        self._restored: int | None = None
        """The newest checkpoint from which an attempt has started: whoever completed it may have died unheard."""

    def follow(self, line: Recorded[Operation]) -> None:
        """Take the next operation."""
        step = self._STEPS.get(type(line.operation))
        if step is not None:
            step(self, line)

    def _attempt_started(self, line: Recorded[AttemptStarted]) -> None:
        attempt, restored = line.operation.attempt, line.operation.restored_checkpoint
        if self.attempts and attempt <= self.attempts[-1]:
            again = _ATTEMPT_AGAIN_AFTER_CRASH if self._crashes else _ATTEMPT_AGAIN
            text = f"attempt {attempt} started after attempt {self.attempts[-1]}"
            self._problem(line, again, text, attempt=attempt)
        self.attempts.append(attempt)
        self._started_before_ms, self._started_ms = self._started_ms, line.time_ms
        latest = max((c.number for c in self.checkpoints.values() if c.state == _COMPLETED), default=None)
        if restored is not None and restored != latest:
            what = self._why_not_restorable(restored)
            if what is not None:
                text = f"attempt {attempt} restored checkpoint {restored}, which {what}"
                self._problem(line, _RESTORED_INCOMPLETE, text, restored, attempt)
                return
        if restored is not None and latest is not None and restored < latest and self._may_be_older:
            return
        if latest is not None and (restored is None or restored < latest):
            start = "from the beginning" if restored is None else f"from checkpoint {restored}"
            text = f"attempt {attempt} started {start} although checkpoint {latest} had completed"
            crashed = self._crashed_between(self._started_before_ms, line.time_ms)
            gone = _NOT_DURABLE if self._not_durable_lost else _FORGOT
            self._problem(line, gone if crashed else _RESTORED_OLDER, text, latest, attempt)
        elif not self._may_be_older and (restored or 0) < (self._restored or 0):
            start = "from the beginning" if restored is None else f"from checkpoint {restored}"
            text = (
                f"attempt {attempt} started {start} although one before it had started from checkpoint "
                f"{self._restored}: that was not durable"
            )
            self._problem(line, _NOT_DURABLE, text, self._restored, attempt)
        elif restored is not None:
            self._restored = restored

    def _started_from(self, line: Recorded[StartedFromSavepoint]) -> None:
        """What is newer than the savepoint counts no more."""
        savepoint = line.operation.checkpoint
        for checkpoint in self.checkpoints.values():
            if checkpoint.state == _COMPLETED and checkpoint.number > savepoint:
                checkpoint.state = _LEFT
        self._restored = savepoint

    def _attempt_running(self, line: Recorded[AttemptRunning]) -> None:
        attempt = line.operation.attempt
        for checkpoint in self.checkpoints.values():
            left_open = checkpoint.state == _OPEN and checkpoint.attempt < attempt
            if left_open and not self._crashed_between(checkpoint.since_ms, line.time_ms):
                self._problem(
                    line,
                    _STILL_PENDING,
                    f"checkpoint {checkpoint.number} of attempt {checkpoint.attempt} is still pending while "
                    f"attempt {attempt} runs; it can never complete and should be aborted",
                    checkpoint.number,
                    attempt,
                )

    def _triggered(self, line: Recorded[CheckpointTriggered]) -> None:
        number, attempt = line.operation.checkpoint, line.operation.attempt
        newest = max(self.checkpoints, default=self._given_out)
        if newest is not None and number <= newest:
            self._problem(
                line, _ID_AGAIN, f"checkpoint id {number} was given out after id {newest}", number, attempt
            )
        if self.attempts and attempt != self.attempts[-1]:
            self._problem(
                line,
                _FOR_OLD_ATTEMPT,
                f"checkpoint {number} was triggered for attempt {attempt} while attempt {self.attempts[-1]} "
                "is the newest",
                number,
                attempt,
            )
        if attempt in self._given_up:
            self._problem(
                line,
                _ABORTED_WRONGLY,
                f"checkpoint {number} was triggered in attempt {attempt}, although checkpoint "
                f"{self._given_up[attempt]} had been aborted because that attempt had failed",
                number,
                attempt,
            )
        if number not in self.checkpoints:
            self.checkpoints[number] = _Checkpoint(
                number, attempt, self._started_ms, line.operation.savepoint is not None
            )

    def _acknowledged(self, line: Recorded[Acknowledged]) -> None:
        acknowledgement = line.operation
        checkpoint = self.checkpoints.get(acknowledgement.checkpoint)
        # Late, unknown, foreign and forged acknowledgements may arrive, but they do not count (COO-3).
        if (
            checkpoint is not None
            and checkpoint.attempt == acknowledgement.attempt
            and not acknowledgement.forged
        ):
            if acknowledgement.subtask not in checkpoint.acknowledged:
                checkpoint.last_acknowledged = line.index
            checkpoint.acknowledged.add(acknowledgement.subtask)

    def _subtask_finished(self, line: Recorded[Finished]) -> None:
        self._finished.setdefault(line.operation.attempt, set()).add(line.operation.subtask)

    def _completed(self, line: Recorded[CheckpointCompleted]) -> None:
        number, attempt = line.operation.checkpoint, line.operation.attempt
        checkpoint = self.checkpoints.get(number)
        if checkpoint is None:
            text = f"checkpoint {number} completed without ever being triggered"
            self._problem(line, _NEVER_TRIGGERED, text, number, attempt)
            newest = self.attempts[-1] if self.attempts else 0
            taken_by = newest if attempt is None else attempt
            self.checkpoints[number] = _Checkpoint(number, taken_by, self._started_ms, state=_COMPLETED)
            return
        if attempt is not None and attempt != checkpoint.attempt:
            text = f"checkpoint {number} of attempt {checkpoint.attempt} was completed by attempt {attempt}"
            self._problem(line, _OF_OLD_ATTEMPT, text, number, attempt)
        if self.attempts and checkpoint.attempt < self.attempts[-1]:
            text = (
                f"checkpoint {number} of attempt {checkpoint.attempt} completed after attempt "
                f"{self.attempts[-1]} had started"
            )
            self._problem(line, _OF_OLD_ATTEMPT, text, number, checkpoint.attempt)
        if checkpoint.state != _OPEN:
            text = f"checkpoint {number} completed after it had been {checkpoint.state}"
            self._problem(line, _ENDED_TWICE, text, number, attempt)
        missing = self._missing(checkpoint)
        if missing:
            text = f"checkpoint {number} completed without an acknowledgement of {', '.join(missing)}"
            self._problem(line, _UNACKNOWLEDGED, text, number, attempt)
        for newer in self.checkpoints.values() if not checkpoint.savepoint else ():
            late = newer.completed is not None and newer.completed < checkpoint.last_acknowledged
            if late and newer.number > number and newer.attempt == checkpoint.attempt:
                self._problem(
                    line,
                    _NOT_SUBSUMED,
                    f"checkpoint {number} was acknowledged, and completed, after the newer checkpoint "
                    f"{newer.number} had completed; that one should have ended it",
                    number,
                    attempt,
                )
        checkpoint.state, checkpoint.completed = _COMPLETED, line.index

    def _aborted(self, line: Recorded[CheckpointAborted]) -> None:
        checkpoint = self.checkpoints.get(line.operation.checkpoint)
        if checkpoint is None:
            return  # refused before it was triggered: nothing happened
        if checkpoint.state == _COMPLETED:
            text = f"checkpoint {checkpoint.number} was aborted after it had completed"
            self._problem(line, _ENDED_TWICE, text, checkpoint.number, checkpoint.attempt)
            return
        checkpoint.state = _ABORTED
        if line.operation.reason is Reason.ATTEMPT_FAILED:
            self._given_up.setdefault(checkpoint.attempt, checkpoint.number)
        if line.operation.reason is Reason.SUBSUMED and not any(
            newer.state == _COMPLETED and newer.number > checkpoint.number
            for newer in self.checkpoints.values()
        ):
            self._problem(
                line,
                _SUBSUMED_BY_NONE,
                f"checkpoint {checkpoint.number} was aborted as subsumed, and no newer one had completed",
                checkpoint.number,
                checkpoint.attempt,
            )

    def _committed(self, line: Recorded[Committed]) -> None:
        number = line.operation.checkpoint
        if number is None:
            return  # a system may commit without checkpoints
        what = self._why_not_restorable(number)
        checkpoint = self.checkpoints.get(number)
        if what is None and checkpoint is not None and checkpoint.state == _OPEN:
            # Only a coordinator that died at that moment may have known that it was complete without reporting it.
            crashed = self._crashed_between(checkpoint.since_ms, line.time_ms)
            what = None if crashed else "was not known to be complete and durable"
        if what is not None:
            subtask = line.operation.subtask
            text = f"{subtask} committed for checkpoint {number}, which {what}"
            self._problem(line, _COMMITTED_EARLY, text, number, line.operation.attempt)

    def _why_not_restorable(self, number: int) -> str | None:
        """Return why a checkpoint cannot count as complete, or None if it can."""
        checkpoint = self.checkpoints.get(number)
        if checkpoint is None:
            return "was never triggered"
        if checkpoint.state in (_COMPLETED, _LEFT):
            return None
        if checkpoint.state == _ABORTED:
            return "had been aborted"
        missing = self._missing(checkpoint)
        heard = checkpoint.acknowledged or self._finished.get(checkpoint.attempt) or not self._acknowledges
        if missing or not heard:
            return f"was not complete: no acknowledgement of {', '.join(missing) or 'any subtask'}"
        return None

    def _missing(self, checkpoint: _Checkpoint) -> list[str]:
        if not self._acknowledges:
            return []
        finished = self._finished.get(checkpoint.attempt, set())
        return sorted(self._subtasks(checkpoint.attempt) - checkpoint.acknowledged - finished)

    def _crashed_between(self, start_ms: float, end_ms: float) -> bool:
        return any(start_ms <= crash <= end_ms for crash in self._crashes)

    def _problem(
        self,
        line: Recorded[Operation],
        sign: Sign,
        text: str,
        checkpoint: int | None = None,
        attempt: int | None = None,
    ) -> None:
        sentence = f"at {line.time_ms:g} ms: {text} ({sign.clause})"
        self.problems.append(Breach(sign, sentence, line.index, line.process, checkpoint, attempt))

    _STEPS: ClassVar[dict[type[Operation], Callable[[_Story, Recorded[Any]], None]]] = {
        AttemptStarted: _attempt_started,
        AttemptRunning: _attempt_running,
        StartedFromSavepoint: _started_from,
        CheckpointTriggered: _triggered,
        CheckpointCompleted: _completed,
        CheckpointAborted: _aborted,
        Acknowledged: _acknowledged,
        Committed: _committed,
        Finished: _subtask_finished,
    }
