"""Each subtask takes its snapshots in the order of the checkpoints (BAR-2), so a checkpoint that a newer one
subsumed was begun by every subtask (BAR-3, BAR-6).

A lost barrier, or a trigger that was not sent, makes a checkpoint wait for ever. If a newer one completes meanwhile,
the older one is subsumed, and looks as if it had only been slow. But a subtask that took its snapshot for the newer one
must have begun the older one before: barriers do not overtake each other, and no subtask has learned of an abort yet,
because the older one was aborted only when the newer one was complete. With its report that it learned of the abort, a
subtask says whether it passed the checkpoint over.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import lives_of
from barrier_tck.harness.oracle.evidence.exactness import AT_LEAST_ONCE
from barrier_tck.harness.oracle.evidence.life_preconditions import ended_channels
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import AbortLearned, CheckpointAborted
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_PASSED_OVER = Sign(
    "a subtask takes its snapshot for a newer checkpoint and never begins an older one", "BAR-3"
)


class SnapshotOrder(StandardChecker):
    """No subtask passes over a checkpoint that a newer one subsumes."""

    name = "snapshot-order"
    requires = (
        "A checkpoint that a newer one subsumed was begun by every subtask that took part in the newer one."
    )
    judges = (
        "systems with barriers, except in at-least-once mode and with Chandy-Lamport, if they report which subtasks "
        "passed a checkpoint over"
    )
    covers = {"BAR-2": COMPLETED, "BAR-3": ALWAYS, "BAR-6": ALWAYS}
    needs = frozenset({Capability.CHECKPOINTS, Capability.BARRIERS})
    signs = (_PASSED_OVER,)
    directness = Directness.OPERATIONS
    rank = 170

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        checkpoints = trial.plan.checkpoints
        aligned = checkpoints.mode != AT_LEAST_ONCE and checkpoints.protocol == "barriers"
        return trial.takes_checkpoints and aligned

    def check(self, context: TrialContext) -> Finding:
        """Look at which subtasks learned of the end of each subsumed checkpoint of one trial."""
        subsumed = {
            (line.operation.checkpoint, line.operation.attempt)
            for line in context.history.of(CheckpointAborted)
            if line.operation.reason is Reason.SUBSUMED
        }
        learned = [
            line
            for line in context.history.of(AbortLearned)
            if (line.operation.checkpoint, line.operation.attempt) in subsumed
        ]
        problems = [
            Breach(
                _PASSED_OVER,
                f"{abort.subtask} of attempt {abort.attempt} learned at {line.time_ms:g} ms that checkpoint "
                f"{abort.checkpoint} was subsumed, had never begun its part of it, and had taken its snapshot for "
                f"checkpoint {abort.passed_over_for}",
                line.index,
                abort.subtask,
                abort.checkpoint,
                abort.attempt,
            )
            for line in learned
            if (abort := line.operation).passed_over_for is not None
        ]
        counts = {"subsumed": len(subsumed), "learned": len(learned), "violations": len(problems)}
        if problems:
            summary = f"{len(problems)} subtasks passed a subsumed checkpoint over; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        summary = f"{len(subsumed)} checkpoints were subsumed, and no subtask had passed them over"
        notified = {(line.operation.checkpoint, line.operation.attempt) for line in learned}
        after_an_end = any(
            ended_channels(attempt, life, context)
            for attempt in lives_of(context)
            for life in attempt.checkpoints
            if (life.number, attempt.number) in notified
        )
        covered = self.clauses if after_an_end else ("BAR-2", "BAR-3")
        return Finding(self.name, covered if learned else (), Verdict.VALID, summary, counts)
