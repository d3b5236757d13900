"""Checkpoints go on: whatever became of the last one, the next one is triggered when it is due (REC-6).

Too early is judged by ``checkpoint-admission``, and what becomes of a checkpoint by other checkers. Here nothing may be
in flight: then interval and pause alone decide, and the first checkpoint of an attempt is due one interval after its
start. When all input has been consumed, the last checkpoint waits for neither, so the same bound holds for it. A job
that was stopped with a savepoint, or whose last checkpoint completed, owes nothing more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkpoint_lives import AttemptLife, CheckpointLife, end_of, lives_of
from barrier_tck.harness.oracle.examples import chosen
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

ROUNDING_MS = 1e-6
"""The largest rounding error when virtual times are added, in milliseconds."""
BUSY_MS = 5_000.0
"""On a real machine a coordinator may be this late (ms): it stands still while a fault strikes at its own point."""


class CheckpointsGoOn:
    """As long as an attempt runs, checkpoints are triggered when they are due."""

    name = "checkpoints-go-on"
    clauses = ("REC-6",)

    def check(self, context: TrialContext) -> Finding:
        """Judge every pause between two checkpoints of one trial, and the time after the last one of each attempt."""
        repeatable = Capability.DETERMINISTIC_REPLAY.name in context.capabilities
        slack_ms = ROUNDING_MS if repeatable else BUSY_MS
        over_ms, triggers = end_of(context.history), 0
        stops = {life.number for attempt in lives_of(context) for life in attempt.checkpoints if life.stops}
        problems: list[str] = []
        for attempt in lives_of(context):
            triggers += len(attempt.checkpoints)
            if attempt.running_ms is not None and attempt.restored not in stops:
                problems += _gaps(attempt, context.plan.checkpoints, over_ms, slack_ms)
        counts = {"triggers": triggers, "gaps": len(problems)}
        if problems:
            summary = f"{len(problems)} times no checkpoint was triggered when one was due; the first: {problems[0]}"
            return Finding(self.name, self.clauses, Verdict.INVALID, summary, counts, chosen(problems))
        summary = f"{triggers} checkpoints were triggered, and none was due earlier"
        return Finding(self.name, self.clauses if triggers else (), Verdict.VALID, summary, counts)


def _gaps(
    attempt: AttemptLife, checkpoints: CheckpointPlan, over_ms: float, slack_ms: float
) -> Iterator[str]:
    """Yield when nothing was in flight, a checkpoint was due, and none was triggered."""
    assert attempt.running_ms is not None
    before: list[CheckpointLife] = []
    for following in (*attempt.checkpoints, None):
        until_ms = following.triggered_ms if following is not None else min(attempt.ended_ms, over_ms)
        due_ms = _due_ms(attempt.running_ms, before, checkpoints)
        if due_ms is not None and until_ms > due_ms + slack_ms:
            then = (
                f"checkpoint {following.number} was triggered only at {until_ms:g} ms"
                if following is not None
                else f"no other was triggered until the end at {until_ms:g} ms"
            )
            yield (
                f"in attempt {attempt.number} nothing was in flight, a checkpoint was due at {due_ms:g} ms, and {then}"
            )
        if following is not None:
            before.append(following)


def _due_ms(running_ms: float, before: Sequence[CheckpointLife], checkpoints: CheckpointPlan) -> float | None:
    """Return when the next checkpoint is due after these; None if one is in flight, or if none needs to follow."""
    ordinary = [life for life in before if life.savepoint is None]
    begun_ms = ordinary[-1].triggered_ms if ordinary else running_ms
    due_ms = begun_ms + checkpoints.interval_ms
    for life in before:
        if life.ended_ms is None or (life.completed and (life.final or life.stops)):
            return None
        due_ms = max(due_ms, life.ended_ms + (checkpoints.min_pause_ms if life.savepoint is None else 0))
    return due_ms
