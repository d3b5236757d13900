"""Restored latest: every attempt starts from the newest checkpoint that completed before it (REC-1, REC-2, COO-4).

This is for systems whose checkpoints do not have the life cycle of barriers: they are not acknowledged, or an attempt
continues what the previous one left open. For any such system four things must hold: no completed checkpoint is
forgotten, no aborted checkpoint is restored, attempts follow one another, and so do the ids of checkpoints: only one
that never completed goes on under its id. A checkpoint that was never reported as
complete may be restored: the process that completed it may have died before it could report it.
"""

from __future__ import annotations

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.life_preconditions import LEFT_BEHIND
from barrier_tck.harness.oracle.evidence.preconditions import COMPLETED, RECOVERED
from barrier_tck.harness.oracle.evidence.storage_damage import primaries_damaged
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Operation,
)
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

_ATTEMPT_AGAIN = Sign("an attempt has a number that was given out before", "REC-2")
_RESTORED_ABORTED = Sign("an attempt starts from a checkpoint that was aborted", "REC-1")
_ID_AGAIN = Sign(
    "the id of a checkpoint is given out again after it had completed, or is below another one", "COO-4"
)
_RESTORED_OLDER = Sign("an attempt starts from an older checkpoint than the latest complete one", "REC-1")


class RestoredLatest(StandardChecker):
    """Compares the checkpoints from which attempts start with those that had completed by then."""

    name = "restored-latest"
    requires = "Every attempt starts from the newest checkpoint that completed before it."
    judges = "systems with checkpoints and without barriers"
    covers = {"REC-1": RECOVERED, "REC-2": LEFT_BEHIND, "COO-4": COMPLETED}
    needs = frozenset({Capability.CHECKPOINTS})
    signs = (_ATTEMPT_AGAIN, _RESTORED_ABORTED, _RESTORED_OLDER, _ID_AGAIN)
    directness = Directness.OPERATIONS
    rank = 200

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints and Capability.BARRIERS not in trial.capabilities

    def check(self, context: TrialContext) -> Finding:
        """Judge the attempts of one trial."""
        may_be_older = context.plan.on_unreadable == "older" and primaries_damaged(context) > 0
        problems: list[Breach] = []
        attempts: list[int] = []
        completed: dict[int, None] = {}
        aborted: dict[int, None] = {}
        newest, triggered = -1, 0  # no id is below the first
        for line in context.history.operations:
            match line.operation:
                case CheckpointTriggered(checkpoint=checkpoint, attempt=attempt):
                    if checkpoint in completed or checkpoint < newest:
                        after = "it had completed" if checkpoint in completed else f"checkpoint {newest}"
                        text = f"at {line.time_ms:g} ms: checkpoint {checkpoint} was triggered after {after} (COO-4)"
                        problems.append(_breach(_ID_AGAIN, text, line, attempt, checkpoint))
                    newest = max(newest, checkpoint)
                    triggered += 1
                case CheckpointCompleted(checkpoint=checkpoint):
                    completed[checkpoint] = None
                case CheckpointAborted(checkpoint=checkpoint):
                    aborted[checkpoint] = None
                case AttemptStarted(attempt=attempt, restored_checkpoint=restored):
                    when = f"at {line.time_ms:g} ms: attempt {attempt}"
                    if attempts and attempt <= attempts[-1]:
                        text = f"{when} started after attempt {attempts[-1]} (REC-2)"
                        problems.append(_breach(_ATTEMPT_AGAIN, text, line, attempt))
                    attempts.append(attempt)
                    latest = max(completed, default=None)
                    start = "from the beginning" if restored is None else f"from checkpoint {restored}"
                    if restored is not None and restored in aborted and restored not in completed:
                        text = f"{when} started {start}, which had been aborted (REC-1)"
                        problems.append(_breach(_RESTORED_ABORTED, text, line, attempt, restored))
                    elif latest is not None and (restored is None or restored < latest) and may_be_older:
                        # What is newer could not be read: it is taken once more.
                        newest = -1 if restored is None else restored
                        completed = {each: None for each in completed if each <= newest}
                    elif latest is not None and (restored is None or restored < latest):
                        text = f"{when} started {start} although checkpoint {latest} had completed (REC-1)"
                        problems.append(_breach(_RESTORED_OLDER, text, line, attempt, latest))
        counts = {"attempts": len(attempts), "completed": len(completed), "violations": len(problems)}
        if problems:
            summary = (
                f"{len(problems)} violation{'s' * (len(problems) != 1)}; the first: {problems[0].sentence}"
            )
            return self.broken(context, summary, counts, problems)
        if not attempts:
            summary = "the history shows no attempt, so nothing can be said about what they restored"
            return Finding(self.name, self.clauses, Verdict.UNKNOWN, summary, counts)
        summary = f"each of {len(attempts)} attempts started from the newest completed checkpoint"
        # Which id was given out when is known from the triggers.
        clauses = tuple(clause for clause in self.clauses if triggered or clause != "COO-4")
        return Finding(self.name, clauses, Verdict.VALID, summary, counts)


def _breach(
    sign: Sign, sentence: str, line: Recorded[Operation], attempt: int, checkpoint: int | None = None
) -> Breach:
    return Breach(sign, sentence, line.index, line.process, checkpoint, attempt)
