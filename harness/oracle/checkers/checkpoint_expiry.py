"""A checkpoint is aborted when its timeout is over, and no checkpoint is aborted as expired before that (COO-2).

If every subtask acknowledged a checkpoint in time, only the coordinator's write of the metadata decides, and the
timeout does not apply to it. A checkpoint whose attempt is over, or whose coordinator died, is aborted for that
reason.
"""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.faults.targets import COORDINATOR
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import AttemptLife, CheckpointLife, end_of, lives_of
from barrier_tck.harness.oracle.evidence.life_preconditions import FAILED
from barrier_tck.harness.oracle.evidence.moments import line_at
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.record.operations import HeldUp
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.slow_machine import held_up_ms
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

ROUNDING_MS = 1e-6
"""The largest rounding error when virtual times are added, in milliseconds."""
BUSY_MS = 5_000.0
"""On a real machine a coordinator may be this late (ms): it waits while a fault is injected at one of its points.
Beside that it is given the time for which it was held up."""
REPORT_DELAY_SHARE = 0.1
"""On a real machine, a trigger may be reported this share of the timeout later than its id became durable."""

_TOO_EARLY = Sign("a checkpoint is aborted as expired before its time is over", "COO-2")
_OUTLASTED = Sign("a checkpoint that lacks acknowledgements stays in flight when its time is over", "COO-2")


class CheckpointExpiry(StandardChecker):
    """Compares the end of each checkpoint with its timeout."""

    name = "checkpoint-expiry"
    requires = "A checkpoint expires when its timeout is over, neither earlier nor later."
    judges = "systems with barriers"
    covers = {"COO-2": FAILED}
    needs = frozenset({Capability.CHECKPOINTS, Capability.BARRIERS})
    signs = (_TOO_EARLY, _OUTLASTED)
    directness = Directness.OPERATIONS
    rank = 140

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Judge how long each checkpoint of one trial took."""
        timeout_ms = float(context.plan.checkpoints.timeout_ms)
        repeatable = Capability.DETERMINISTIC_REPLAY.name in context.capabilities
        late_ms = ROUNDING_MS if repeatable else BUSY_MS
        early_ms = ROUNDING_MS if repeatable else REPORT_DELAY_SHARE * timeout_ms
        over_ms, held_up = end_of(context.history), tuple(context.history.of(HeldUp))
        checkpoints = expired = outlasted = 0
        problems: list[Breach] = []
        for attempt in lives_of(context):
            subtask_count = len(context.subtasks_of(attempt.number))
            for life in attempt.checkpoints:
                checkpoints += 1
                due_ms = life.begun_ms + timeout_ms
                expired += life.failed is Reason.EXPIRED
                problems += _too_early(life, due_ms, early_ms)
                ended_ms = _ended(life, attempt, over_ms)
                latest_ms = due_ms + late_ms + held_up_ms(held_up, due_ms, ended_ms)
                if ended_ms <= latest_ms:
                    continue
                outlasted += 1
                if not life.acknowledged_by(latest_ms, subtask_count):
                    in_time = sum(when_ms <= latest_ms for when_ms in life.acknowledged.values())
                    sentence = (
                        f"checkpoint {life.number}, triggered at {life.triggered_ms:g} ms, was in flight for more than "
                        f"its {timeout_ms:g} ms, and {in_time} of {subtask_count} acknowledgements had come (COO-2)"
                    )
                    problems.append(_breach(_OUTLASTED, sentence, line_at(context, latest_ms), life))
        counts = {
            "checkpoints": checkpoints,
            "expired": expired,
            "outlasted": outlasted,
            "violations": len(problems),
        }
        if problems:
            summary = f"{len(problems)} timeouts were not kept; the first: {problems[0].sentence}"
            return self.broken(context, summary, counts, problems)
        summary = f"{expired} of {checkpoints} checkpoints expired, each when its time was over"
        return Finding(self.name, self.clauses if expired else (), Verdict.VALID, summary, counts)


def _ended(life: CheckpointLife, attempt: AttemptLife, over_ms: float) -> float:
    return min(attempt.ended_ms, over_ms if life.ended_ms is None else life.ended_ms)


def _too_early(life: CheckpointLife, due_ms: float, early_ms: float) -> Iterator[Breach]:
    if life.failed is Reason.EXPIRED and life.ended_ms is not None and life.ended_ms < due_ms - early_ms:
        sentence = (
            f"checkpoint {life.number} was aborted as expired {life.ended_ms - life.triggered_ms:g} ms after its "
            f"trigger was reported, {due_ms - life.ended_ms:g} ms before its time was over (COO-2)"
        )
        yield _breach(_TOO_EARLY, sentence, life.ended_at, life)


def _breach(sign: Sign, sentence: str, operation: int | None, life: CheckpointLife) -> Breach:
    return Breach(sign, sentence, operation, COORDINATOR, life.number, life.attempt)
