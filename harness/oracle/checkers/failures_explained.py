"""A checkpoint that nothing disturbs does not fail: every barrier arrives, even after sources have ended (BAR-3,
BAR-6).

A lost barrier shows only as a checkpoint that expires, or that a subtask declines because a newer barrier came
instead. The next checkpoint may be fine. So each such failure must have a cause: a fault of the plan that can have
delayed the checkpoint, because it lasted, or had been healed shortly before; a fault that refused the files of a
subtask whose acknowledgement is missing; or parts and channels that are as slow as the plan made them.

Only in a world with virtual time is it known how slow a checkpoint may be. There a bound is computed: the
asynchronous part and, for each vertex, the latency of a message and the steps that may come before the barrier. If
records still flow, everything that the channels can hold may come before it, too. A channel that closes a loop can
hold anything: there the bound counts the batches that were seen to be read meanwhile.
"""

from __future__ import annotations

from typing import Self

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import CheckpointLife, lives_of
from barrier_tck.harness.oracle.evidence.checkpoint_obstacles import (
    BatchesRead,
    has_loop,
    longest_ms,
    obstacles,
)
from barrier_tck.harness.oracle.evidence.cut_preconditions import STILL_REPLAYED
from barrier_tck.harness.oracle.evidence.cut_signs import restored_view
from barrier_tck.harness.oracle.evidence.life_preconditions import ended_channels
from barrier_tck.harness.oracle.evidence.moments import line_at
from barrier_tck.harness.oracle.evidence.preconditions import REQUEST_FAILED
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import Acknowledged, Finished
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

FAILURES = (Reason.DECLINED, Reason.EXPIRED, Reason.STORAGE_FAILED)


_WHILE_REPLAYED = Sign("a checkpoint fails without a cause after records in flight were restored", "UNA-4")
_AFTER_AN_END = Sign(
    "a checkpoint fails without a cause when a subtask finishes or a channel has ended", "BAR-6"
)
_NOT_ASKED_AGAIN = Sign("a checkpoint fails although only one request to its storage got no answer", "STA-2")
_PART_REFUSED = Sign("an incremental checkpoint fails with a part that a subtask acknowledges", "SNP-5")
_NO_CAUSE = Sign("a checkpoint fails without a cause", "BAR-3")


class FailuresExplained(StandardChecker):
    """No checkpoint expires or is declined without a cause."""

    name = "failures-explained"
    requires = (
        "A checkpoint that nothing disturbs does not fail, so no barrier is lost, even after sources have "
        "ended."
    )
    judges = "systems with barriers; on a real machine it only counts"
    covers = {
        "BAR-3": ALWAYS,
        "BAR-6": ALWAYS,
        "UNA-4": STILL_REPLAYED,
        "STA-2": REQUEST_FAILED,
        "SNP-5": ALWAYS,
    }
    needs = frozenset({Capability.CHECKPOINTS, Capability.BARRIERS})
    signs = (_PART_REFUSED, _NOT_ASKED_AGAIN, _WHILE_REPLAYED, _AFTER_AN_END, _NO_CAUSE)
    directness = Directness.ABSENCE
    rank = 180

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints

    @classmethod
    def made_for(cls, trial: TrialToJudge) -> Self:
        checkpoints = trial.plan.checkpoints
        return cls(checkpoints.overtakes, checkpoints.incremental)

    def __init__(self, overtakes: bool = False, incremental: bool = False) -> None:
        more = (*(("UNA-4",) if overtakes else ()), "STA-2", *(("SNP-5",) if incremental else ()))
        self.clauses = ("BAR-3", "BAR-6", *more)

    def check(self, context: TrialContext) -> Finding:
        """Look for the cause of each failure in one trial."""
        plan = context.plan
        causes = obstacles(context)
        timeout_ms, loops = plan.checkpoints.timeout_ms, has_loop(plan)
        failed, completed, after_an_end, problems = 0, 0, 0, list[Breach]()
        for attempt in lives_of(context):
            batches = BatchesRead(context, attempt) if loops else None
            for life in attempt.checkpoints:
                completed += life.completed
                after_an_end += life.completed and ended_channels(attempt, life, context)
                if life.failed not in FAILURES or life.ended_ms is None:
                    continue
                failed += 1
                read = batches.during(life) if batches is not None else None
                longest = longest_ms(plan, life.final, read)
                slow = life.failed is Reason.EXPIRED and longest >= timeout_ms
                if not slow and not any(cause.explains(life) for cause in causes):
                    problems.append(_breach(life, context))
        repeatable = Capability.DETERMINISTIC_REPLAY.name in context.capabilities
        counts = {"failed": failed, "unexplained": len(problems)}
        if problems and repeatable:
            summary = f"{len(problems)} checkpoints failed without a cause; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        summary = f"{failed} checkpoints failed, {len(problems)} of them without a cause in the plan"
        # That no part was refused says little: other checkers look at the files themselves.
        unseen = ("SNP-5",) if after_an_end else ("SNP-5", "BAR-6")
        shown = [clause for clause in self.clauses if clause not in unseen]
        covered = tuple(shown) if completed and repeatable else ()
        return Finding(self.name, covered, Verdict.VALID, summary, counts)


def _breach(life: CheckpointLife, context: TrialContext) -> Breach:
    missing = next((name for name in context.subtasks_of(life.attempt) if name not in life.acknowledged), "")
    at = line_at(context, life.ended_ms)
    return Breach(_sign_of(life, context), _described(life, context), at, missing, life.number, life.attempt)


def _sign_of(life: CheckpointLife, context: TrialContext) -> Sign:
    """Return which clause is broken, by what came just before."""
    if context.plan.checkpoints.incremental and _failed_with_an_acknowledgement(life, context):
        return _PART_REFUSED
    if life.failed is not Reason.EXPIRED and REQUEST_FAILED.holds(context):
        return _NOT_ASKED_AGAIN
    before = restored_view(context, life.attempt)
    if context.plan.checkpoints.overtakes and before is not None and before.in_flight:
        return _WHILE_REPLAYED
    ended_ms = life.ended_ms or 0.0
    finished = any(
        line.operation.attempt == life.attempt and line.time_ms <= ended_ms
        for line in context.history.of(Finished)
    )
    return _AFTER_AN_END if life.final or finished else _NO_CAUSE


def _failed_with_an_acknowledgement(life: CheckpointLife, context: TrialContext) -> bool:
    """Return whether a subtask acknowledged the checkpoint in the same moment: its part cannot be used."""
    if life.failed is not Reason.DECLINED or not life.ended_at:
        return False
    before = context.history.operations[life.ended_at - 1]
    match before.operation:
        case Acknowledged(checkpoint=life.number, attempt=life.attempt):
            return before.time_ms == life.ended_ms
    return False


def _described(life: CheckpointLife, context: TrialContext) -> str:
    missing = [name for name in context.subtasks_of(life.attempt) if name not in life.acknowledged]
    how = "expired" if life.failed is Reason.EXPIRED else "was declined or could not be written"
    after = " after the end of all input" if life.final else ""
    what = "checkpoint" if life.savepoint is None else "savepoint"
    return (
        f"{what} {life.number}, triggered{after} at {life.triggered_ms:g} ms, {how} at {life.ended_ms:g} ms, and "
        f"nothing had disturbed it; no acknowledgement of {', '.join(missing) or 'no subtask'}"
    )
