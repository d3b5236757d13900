"""Restored latest: every attempt starts from the newest checkpoint that completed before it (REC-1, REC-2).

This is for systems whose checkpoints do not have the life cycle of barriers: they are not acknowledged, or an attempt
continues what the previous one left open. For any such system three things must hold: no completed checkpoint is
forgotten, no aborted checkpoint is restored, and attempts follow one another. A checkpoint that was never reported as
complete may be restored: the process that completed it may have died before it could report it.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.examples import chosen
from barrier_tck.harness.oracle.evidence.life_preconditions import LEFT_BEHIND
from barrier_tck.harness.oracle.evidence.preconditions import RECOVERED
from barrier_tck.harness.oracle.evidence.storage_damage import primaries_damaged
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import AttemptStarted, CheckpointAborted, CheckpointCompleted
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability


class RestoredLatest(StandardChecker):
    """Compares the checkpoints from which attempts start with those that had completed by then."""

    name = "restored-latest"
    requires = "Every attempt starts from the newest checkpoint that completed before it."
    judges = "systems with checkpoints and without barriers"
    covers = {"REC-1": RECOVERED, "REC-2": LEFT_BEHIND}
    needs = frozenset({Capability.CHECKPOINTS})
    rank = 200

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints and Capability.BARRIERS not in trial.capabilities

    def check(self, context: TrialContext) -> Finding:
        """Judge the attempts of one trial."""
        may_be_older = context.plan.on_unreadable == "older" and primaries_damaged(context) > 0
        problems: list[str] = []
        attempts: list[int] = []
        completed: dict[int, None] = {}
        aborted: dict[int, None] = {}
        for line in context.history.operations:
            match line.operation:
                case CheckpointCompleted(checkpoint=checkpoint):
                    completed[checkpoint] = None
                case CheckpointAborted(checkpoint=checkpoint):
                    aborted[checkpoint] = None
                case AttemptStarted(attempt=attempt, restored_checkpoint=restored):
                    when = f"at {line.time_ms:g} ms: attempt {attempt}"
                    if attempts and attempt <= attempts[-1]:
                        problems.append(f"{when} started after attempt {attempts[-1]} (REC-2)")
                    attempts.append(attempt)
                    latest = max(completed, default=None)
                    start = "from the beginning" if restored is None else f"from checkpoint {restored}"
                    if restored is not None and restored in aborted and restored not in completed:
                        problems.append(f"{when} started {start}, which had been aborted (REC-1)")
                    elif latest is not None and (restored is None or restored < latest) and not may_be_older:
                        problems.append(
                            f"{when} started {start} although checkpoint {latest} had completed (REC-1)"
                        )
        counts = {"attempts": len(attempts), "completed": len(completed), "violations": len(problems)}
        if problems:
            summary = f"{len(problems)} violations; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        if not attempts:
            summary = "the history shows no attempt, so nothing can be said about what they restored"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        summary = f"each of {len(attempts)} attempts started from the newest completed checkpoint"
        return Finding(self.name, self.clauses, Verdict.VALID, summary, counts)
