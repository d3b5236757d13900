"""The number of checkpoints in flight, the interval and the pause between two of them are as configured (BAR-4).

All are judged at every trigger. The checkpoint after the end of all input need not wait for interval and pause, because
waiting would gain nothing. But it must be the last checkpoint that completes in its attempt; otherwise it was wrongly
reported as the last one. On a real machine a trigger is reported only when storage and nemesis have let the
coordinator go on, so there the interval is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import AttemptLife, CheckpointLife, lives_of
from barrier_tck.harness.oracle.evidence.moments import line_at
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

ROUNDING_MS = 1e-6
"""The largest rounding error when virtual times are added, in milliseconds."""
REPORT_DELAY_MS = 5.0
"""On a real machine, an end or a trigger is reported up to this many milliseconds after it was decided."""

_TOO_MANY = Sign("a checkpoint is triggered while too many are in flight", "BAR-4")
_NO_PAUSE = Sign("a checkpoint is triggered before the pause after the last one is over", "BAR-4")
_AFTER_THE_LAST = Sign("a checkpoint is triggered after the one that ends its job", "BAR-4")
_TOO_SOON = Sign("a checkpoint is triggered before the interval since the last trigger is over", "BAR-4")


class AdmittedTriggers(StandardChecker):
    """No checkpoint is triggered while too many are in flight, or too soon after the last one began or ended."""

    name = "checkpoint-admission"
    requires = (
        "No checkpoint is triggered while too many are in flight, or too soon after the last one began or "
        "ended."
    )
    judges = "systems with barriers"
    covers = {"BAR-4": ALWAYS}
    needs = frozenset({Capability.CHECKPOINTS, Capability.BARRIERS})
    signs = (_TOO_MANY, _NO_PAUSE, _AFTER_THE_LAST, _TOO_SOON)
    directness = Directness.OPERATIONS
    rank = 120

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Judge every trigger of one trial."""
        checkpoints = context.plan.checkpoints
        repeatable = Capability.DETERMINISTIC_REPLAY.name in context.capabilities
        slack_ms = ROUNDING_MS if repeatable else REPORT_DELAY_MS + 0.05 * checkpoints.min_pause_ms
        problems: list[Breach] = []
        triggers = most = 0
        for attempt in lives_of(context):
            triggers += len(attempt.checkpoints)
            most = max([most, *(len(before.in_flight) for _, before in _triggers(attempt))])
            problems += _problems(attempt, checkpoints, slack_ms)
            if repeatable:
                problems += _too_soon(attempt, checkpoints.interval_ms, context)
        counts = {"triggers": triggers, "in_flight_max": most, "violations": len(problems)}
        if problems:
            summary = (
                f"{len(problems)} checkpoints were triggered too early; the first: {problems[0].sentence}"
            )
            return self.broken(context, summary, counts, problems)
        summary = f"{triggers} triggers; at most {most} of {checkpoints.max_concurrent} were in flight"
        return Finding(self.name, self.clauses if triggers else (), Verdict.VALID, summary, counts)


def _problems(attempt: AttemptLife, checkpoints: CheckpointPlan, slack_ms: float) -> Iterator[Breach]:
    for life, before in _triggers(attempt):
        at = f"at {life.triggered_ms:g} ms checkpoint {life.number} was triggered"
        if len(before.in_flight) > checkpoints.max_concurrent:
            numbers = ", ".join(str(pending.number) for pending in before.in_flight)
            many = f"{at} while {numbers} were in flight; at most {checkpoints.max_concurrent} may be (BAR-4)"
            yield _breach(_TOO_MANY, many, life)
        last_ms = before.last_end_ms
        pause_ms = checkpoints.min_pause_ms if last_ms is None else life.triggered_ms - last_ms
        if pause_ms < checkpoints.min_pause_ms - slack_ms and not life.final:
            soon = f"{at} {pause_ms:g} ms after the last end, but the least pause is {checkpoints.min_pause_ms} (BAR-4)"
            yield _breach(_NO_PAUSE, soon, life)
        for last in before.over:
            late = f"{at} after checkpoint {last.number}, which should have been the last one, had completed (BAR-4)"
            yield _breach(_AFTER_THE_LAST, late, life)


def _too_soon(attempt: AttemptLife, interval_ms: int, context: TrialContext) -> Iterator[Breach]:
    """Yield the triggers before the interval was over. The start of an attempt counts as a trigger.

    If a number is given out to a second attempt, what the first one triggered comes before that start, which shows it.
    """
    last_ms = attempt.running_ms
    for life in [checkpoint for checkpoint in attempt.checkpoints if checkpoint.savepoint is None]:
        if last_ms is not None and life.triggered_ms < last_ms + interval_ms - ROUNDING_MS and not life.final:
            sentence = (
                f"at {life.triggered_ms:g} ms checkpoint {life.number} was triggered "
                f"{life.triggered_ms - last_ms:g} ms after the last trigger, but the interval is {interval_ms} (BAR-4)"
            )
            yield _breach(_TOO_SOON, sentence, life, line_at(context, last_ms))
        last_ms = life.triggered_ms


def _breach(sign: Sign, sentence: str, life: CheckpointLife, since: int | None = None) -> Breach:
    """Return what is wrong with a trigger; ``since``: a line without which it would not be wrong."""
    at = max(life.triggered_at, since or 0)
    return Breach(sign, sentence, at, COORDINATOR, life.number, life.attempt)


@dataclass(frozen=True, slots=True)
class _Before:
    """What is known of checkpoints when one is triggered."""

    in_flight: list[CheckpointLife]
    """Those in flight, that one included."""
    last_end_ms: float | None
    """When the last of those ended that had ended; None if there is none."""
    over: list[CheckpointLife]
    """Those that should have been the last ones and had completed."""


def _triggers(attempt: AttemptLife) -> Iterator[tuple[CheckpointLife, _Before]]:
    """Yield each checkpoint with those before it.

    Savepoints are taken when a user asks for them; they wait for nothing, and no checkpoint waits for them.
    """
    in_flight: list[CheckpointLife] = []
    over: list[CheckpointLife] = []
    last_end_ms: float | None = None
    for life in [checkpoint for checkpoint in attempt.checkpoints if checkpoint.savepoint is None]:
        ended = [entry for entry in in_flight if entry.ended_before(life)]
        in_flight = [*(pending for pending in in_flight if not pending.ended_before(life)), life]
        over = [*over, *(entry for entry in ended if entry.final and entry.completed)]
        ends_ms = [entry.ended_ms or 0.0 for entry in ended]
        last_end_ms = max(ends_ms if last_end_ms is None else [last_end_ms, *ends_ms], default=None)
        yield life, _Before(in_flight, last_end_ms, over)
