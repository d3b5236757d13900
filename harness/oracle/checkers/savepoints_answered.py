"""Who asks for a savepoint is answered (COO-5).

A savepoint that was asked for is triggered or refused before the attempt ends in which it was asked for, and before the
job ends. A stop may wait until the checkpoints in flight are over, and then it must come. One that was triggered
completes or fails before the job has finished or stopped. Only a coordinator that dies may forget what it was asked
for, and a trial that ends the job proves nothing about what was still to come.
"""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import coordinator_crashes
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    JobFailed,
    JobFinished,
    JobStopped,
    SavepointRefused,
    SavepointRequested,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_FORGOTTEN = Sign("a savepoint is neither triggered nor refused", "COO-5")
_ABANDONED = Sign("the job ends while a savepoint is under way, which neither completes nor fails", "COO-5")


class SavepointsAnswered(StandardChecker):
    """Every savepoint that was asked for is triggered or refused, and every one that was triggered ends."""

    name = "savepoints-answered"
    requires = (
        "Every savepoint that was asked for is triggered or refused before the attempt ends, and completes or fails "
        "before the job has finished; only a coordinator that dies may forget one."
    )
    judges = "systems that take savepoints, if the plan asks for some"
    covers = {"COO-5": ALWAYS}
    needs = frozenset({Capability.SAVEPOINTS})
    signs = (_FORGOTTEN, _ABANDONED)
    rank = 320

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints and bool(trial.plan.savepoints)

    def check(self, context: TrialContext) -> Finding:
        """Judge every request of one trial."""
        asked = sum(isinstance(line.operation, SavepointRequested) for line in context.history.operations)
        problems = [*_unanswered(context), *_left_under_way(context)]
        counts = {"asked": asked, "violations": len(problems)}
        if problems:
            problems.sort(key=lambda problem: problem.operation or 0)
            first = problems[0].sentence
            summary = f"{len(problems)} of {asked} requests for savepoints were forgotten; the first: {first}"
            return self.broken(context, summary, counts, problems)
        summary = f"{asked} savepoints were asked for, and each was refused, or triggered and ended"
        covered = self.clauses if any(_unanswered(context, ignoring=True)) else ()
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


def _unanswered(context: TrialContext, ignoring: bool = False) -> Iterator[Breach]:
    """Yield the requests that were forgotten; ``ignoring`` answers, so that it is each that could have been."""
    crashes = coordinator_crashes(context)
    waiting: dict[str, tuple[float, bool]] = {}
    for line in context.history.operations:
        match line.operation:
            case SavepointRequested(savepoint=place, stops=stops):
                waiting[place] = line.time_ms, stops
            case CheckpointTriggered(savepoint=str(place)) | SavepointRefused(savepoint=place):
                if not ignoring:
                    waiting.pop(place, None)
            case AttemptEnded() | JobFinished() | JobStopped() | JobFailed():
                for place, (asked_ms, stops) in waiting.items():
                    if not any(asked_ms <= crash <= line.time_ms for crash in crashes):
                        what = "a stop with savepoint" if stops else "savepoint"
                        sentence = f"{what} {place} was asked for at {asked_ms:g} ms, and neither triggered nor refused"
                        yield Breach(_FORGOTTEN, sentence, line.index, place)
                waiting.clear()


def _left_under_way(context: TrialContext) -> Iterator[Breach]:
    """Yield the savepoints that were triggered and had not ended when the job finished or stopped."""
    crashes = coordinator_crashes(context)
    begun: dict[int, tuple[float, str]] = {}
    for line in context.history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=number, savepoint=str(place)):
                begun[number] = line.time_ms, place
            case CheckpointCompleted(checkpoint=number) | CheckpointAborted(checkpoint=number):
                begun.pop(number, None)
            case JobFinished() | JobStopped():
                for number, (since_ms, place) in begun.items():
                    if not any(since_ms <= crash <= line.time_ms for crash in crashes):
                        sentence = (
                            f"savepoint {place} was triggered at {since_ms:g} ms as checkpoint {number}, and the job "
                            f"ended at {line.time_ms:g} ms before it was complete or had failed"
                        )
                        yield Breach(_ABANDONED, sentence, line.index, place, number)
                begun.clear()
            case _:
                continue
