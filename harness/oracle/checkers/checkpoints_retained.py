"""As many of the newest completed checkpoints are kept as configured, while the job runs (COO-4).

What is left when a job has finished says little: by then later checkpoints have filled the gap. So storage is looked at
whenever a checkpoint or a savepoint has become complete, before it makes others superfluous. Savepoints are the user's
and do not count: they replace none of the job's own checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED
from barrier_tck.harness.oracle.evidence.storage_damage import primaries_damaged
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointTriggered,
    JobStopped,
    StartedFromSavepoint,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_GONE = Sign("a checkpoint that is to be retained is gone while the job runs", "COO-4")


class CheckpointsRetained(StandardChecker):
    """Compares what is in storage at each completion with the checkpoints that completed before."""

    name = "checkpoints-retained"
    requires = (
        "Whenever a checkpoint or savepoint becomes complete, the newest of the job's own checkpoints are still there, "
        "as many as configured."
    )
    judges = "systems that show what is in storage while the job runs"
    covers = {"COO-4": COMPLETED}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION, Capability.BARRIERS})
    of_fields = frozenset({"checkpoints.retained"})
    signs = (_GONE,)
    rank = 205

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.opens_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Judge each completion of one trial; none if the trial damaged checkpoints, which are given up then."""
        looks = [] if primaries_damaged(context) else list(_looks(context))
        problems = [problem for look in looks for problem in look.problems]
        judged = sum(bool(look.due) for look in looks)
        beside = sum(bool(look.due) and look.beside_savepoints for look in looks)
        counts = {"looks": judged, "beside_savepoints": beside, "violations": len(problems)}
        if problems:
            summary = (
                f"too few checkpoints were retained {len(problems)} times; the first: {problems[0].sentence}"
            )
            return self.broken(context, summary, counts, problems)
        summary = f"at {judged} completions every checkpoint was there that was to be retained"
        return Finding(self.name, self.clauses if judged else (), Verdict.VALID, summary, counts)


@dataclass(frozen=True)
class _Look:
    """What was due, and what was missing, when a checkpoint had become complete."""

    due: tuple[int, ...]
    beside_savepoints: bool
    """Whether a savepoint had completed since the newest of them."""
    problems: tuple[Breach, ...] = field(default=())


def _looks(context: TrialContext) -> Iterator[_Look]:
    """Yield each completion at which storage was looked at."""
    bound = max(1, context.plan.checkpoints.retained)
    views = {view.checkpoint: view.retained for view in context.history.checkpoints}
    taken_by: dict[int, int] = {}
    """Checkpoint -> the attempt that triggered it."""
    savepoints: dict[int, None] = {}
    own: dict[int, None] = {}
    """The job's own checkpoints that were reported as complete and that it may still go back to."""
    for line in context.history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=number, attempt=attempt, savepoint=savepoint):
                taken_by[number] = attempt
                if savepoint is not None:
                    savepoints[number] = None
            case JobStopped() | StartedFromSavepoint():
                own.clear()  # The savepoint supersedes them.
            case AttemptStarted(restored_checkpoint=restored):
                # Newer ones could not be read.
                own = {number: None for number in own if restored is not None and number <= restored}
            case CheckpointCompleted(checkpoint=number):
                there = views.get(number)
                if there is not None:
                    # Complete, and older, is also one whose coordinator died before it could report it.
                    unreported = [one for one in there if one < number and one not in savepoints]
                    due = tuple(sorted({**own, **dict.fromkeys(unreported)})[-bound:])
                    newest = max(due, default=0)
                    beside = any(newest < savepoint <= number for savepoint in savepoints)
                    gone = tuple(
                        Breach(
                            _GONE,
                            f"at {line.time_ms:g} ms, when checkpoint {number} became complete, checkpoint {one} was "
                            f"gone, although the newest {bound} must be kept (COO-4)",
                            line.index,
                            checkpoint=one,
                            attempt=taken_by.get(one),
                        )
                        for one in due
                        if one not in there
                    )
                    yield _Look(due, beside, gone)
                if number not in savepoints:
                    own[number] = None
            case _:
                continue
