"""A job that is started from a savepoint goes on from there, whatever completed after that savepoint (COO-5).

Its own checkpoints that are newer than the savepoint are left behind: no attempt may start from one of them. The job
goes on from the savepoint, and later from checkpoints that it has taken since. What the sinks have committed in between
comes again; that is judged where output is.
"""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointTriggered,
    StartedFromSavepoint,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_FROM_ANOTHER = Sign(
    "after a start from a savepoint an attempt starts from a checkpoint that was complete before", "COO-5"
)
_FROM_THE_BEGINNING = Sign("after a start from a savepoint an attempt starts from the beginning", "COO-5")


class StartedFrom(StandardChecker):
    """Compares the checkpoints that attempts restore with the savepoint from which the job was started."""

    name = "started-from-savepoint"
    requires = (
        "A job that is started from a savepoint restores that savepoint, or a checkpoint that it took since, and none "
        "that was complete before."
    )
    judges = "systems whose job can be started again from a savepoint, if the plan asks for some"
    covers = {"COO-5": ALWAYS}
    needs = frozenset({Capability.SAVEPOINTS, Capability.FROM_SAVEPOINT})
    signs = (_FROM_ANOTHER, _FROM_THE_BEGINNING)
    directness = Directness.OPERATIONS
    rank = 325

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints and bool(trial.plan.savepoints)

    def check(self, context: TrialContext) -> Finding:
        """Judge the attempts of one trial that come after such a start."""
        problems = list(_restored_others(context))
        left_behind = sum(_left_behind(context))
        starts = sum(1 for _ in context.history.of(StartedFromSavepoint))
        counts = {"starts": starts, "left_behind": left_behind, "violations": len(problems)}
        if problems:
            summary = (
                f"{len(problems)} attempts left the savepoint from which the job was started; "
                f"{problems[0].sentence}"
            )
            return self.broken(context, summary, counts, problems)
        summary = f"the job was started from a savepoint {starts} times, and went on from there"
        return Finding(self.name, self.clauses if left_behind else (), Verdict.VALID, summary, counts)


def _left_behind(context: TrialContext) -> Iterator[bool]:
    """Yield for each start from a savepoint whether a newer checkpoint was complete."""
    completed = 0
    for line in context.history.operations:
        match line.operation:
            case CheckpointCompleted(checkpoint=number):
                completed = max(completed, number)
            case StartedFromSavepoint(checkpoint=number):
                yield completed > number
                completed = number


def _restored_others(context: TrialContext) -> Iterator[Breach]:
    """Yield the attempts that restored a checkpoint from before such a start that is newer than the savepoint."""
    origin: StartedFromSavepoint | None = None
    triggered: dict[int, None] = {}
    before: dict[int, None] = {}
    """The checkpoints that were triggered before the job was started from the savepoint."""
    for line in context.history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=number):
                triggered[number] = None
            case StartedFromSavepoint() as start:
                origin, before = start, dict(triggered)
            case AttemptStarted(attempt=attempt, restored_checkpoint=int(restored)) if origin is not None:
                if restored > origin.checkpoint and restored in before:
                    newer = (
                        f"attempt {attempt} started from checkpoint {restored}, which was complete before the job was "
                        f"started from the older savepoint {origin.savepoint} (checkpoint {origin.checkpoint})"
                    )
                    yield Breach(
                        _FROM_ANOTHER, newer, line.index, line.process, checkpoint=restored, attempt=attempt
                    )
            case AttemptStarted(attempt=attempt, restored_checkpoint=None) if origin is not None:
                none = (
                    f"attempt {attempt} started from the beginning, and the job was started from savepoint "
                    f"{origin.savepoint}"
                )
                yield Breach(_FROM_THE_BEGINNING, none, line.index, line.process, attempt=attempt)
