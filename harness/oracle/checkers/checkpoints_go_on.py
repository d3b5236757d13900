"""Checkpoints go on: whatever became of the last one, the next one is triggered when it is due (REC-6, BAR-4).

Too early is judged by ``checkpoint-admission``, and what becomes of a checkpoint by other checkers. A checkpoint is due
when interval and pause are over and fewer are in flight than may be; the first one of an attempt is due one interval
after its start. When all input has been consumed, the last checkpoint waits for neither, but until nothing is in
flight. The history does not say when the input was consumed. So if the last checkpoint follows, or none, one is due
only when nothing is in flight. A job that was stopped with a savepoint, or whose last checkpoint completed, owes
nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.checkpoint_lives import AttemptLife, CheckpointLife, end_of, lives_of
from barrier_tck.harness.oracle.evidence.moments import line_at
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import CheckpointPlan
from barrier_tck.harness.record.operations import FaultFired, FaultHealed, HeldUp
from barrier_tck.harness.record.slow_machine import held_up_ms
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

ROUNDING_MS = 1e-6
"""The largest rounding error when virtual times are added, in milliseconds."""
BUSY_MS = 5_000.0
"""On a real machine a coordinator may be this late (ms): it stands still while a fault strikes at its own point. Beside
that it is given the time for which it was held up."""

STORAGE_MS = 15_000.0
"""On a real machine a client goes on asking a service that does not answer for a while (ms), and the coordinator waits
for it before it triggers a checkpoint."""


_STOPPED = Sign("nothing is in flight, and no checkpoint is triggered when it is due", "REC-6")
_ALONE = Sign("fewer checkpoints are in flight than may be, and none is triggered when it is due", "BAR-4")


class CheckpointsGoOn(StandardChecker):
    """As long as an attempt runs, checkpoints are triggered when they are due."""

    name = "checkpoints-go-on"
    requires = (
        "Whatever became of the last checkpoint, the next one is triggered when it is due, beside others "
        "in flight as far as configured."
    )
    judges = "systems with barriers"
    covers = {"REC-6": ALWAYS, "BAR-4": ALWAYS}
    needs = frozenset({Capability.CHECKPOINTS, Capability.BARRIERS})
    signs = (_STOPPED, _ALONE)
    directness = Directness.ABSENCE
    rank = 130

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        return trial.takes_checkpoints

    def check(self, context: TrialContext) -> Finding:
        """Judge every pause between two checkpoints of one trial, and the time after the last one of each attempt."""
        repeatable = Capability.DETERMINISTIC_REPLAY.name in context.capabilities
        slack_ms = ROUNDING_MS if repeatable else BUSY_MS + _waits_for_storage_ms(context)
        excused_ms = partial(held_up_ms, tuple(context.history.of(HeldUp)))
        over_ms, triggers = end_of(context.history), 0
        stops = {life.number for attempt in lives_of(context) for life in attempt.checkpoints if life.stops}
        problems: list[Breach] = []
        for attempt in lives_of(context):
            triggers += len(attempt.checkpoints)
            if attempt.running_ms is not None and attempt.restored not in stops:
                problems += [
                    Breach(sign, sentence, line_at(context, until_ms), "coordinator", attempt=attempt.number)
                    for sign, until_ms, sentence in _gaps(
                        attempt, context.plan.checkpoints, over_ms, slack_ms, excused_ms
                    )
                ]
        counts = {"triggers": triggers, "gaps": len(problems)}
        if problems:
            first = problems[0].sentence
            summary = (
                f"{len(problems)} times no checkpoint was triggered when one was due; the first: {first}"
            )
            return self.broken(context, summary, counts, problems)
        summary = f"{triggers} checkpoints were triggered, and none was due earlier"
        covered = self.clauses if context.plan.checkpoints.max_concurrent > 1 else self.clauses[:1]
        return Finding(self.name, covered if triggers else (), Verdict.VALID, summary, counts)


def _waits_for_storage_ms(context: TrialContext) -> float:
    """Return how long a coordinator may wait for the service that holds the checkpoints, because of faults."""
    history = context.history
    fired = {
        line.operation.fault: line.time_ms
        for line in history.of(FaultFired)
        if context.planned_faults[line.operation.fault].fault.needs is TargetKind.OBJECT_STORE
    }
    healed = {line.operation.fault: line.time_ms for line in history.of(FaultHealed)}
    lasted = [healed[fault] - fired_ms for fault, fired_ms in fired.items() if fault in healed]
    return sum(lasted) + STORAGE_MS if fired else 0.0


def _gaps(
    attempt: AttemptLife,
    checkpoints: CheckpointPlan,
    over_ms: float,
    slack_ms: float,
    excused_ms: Callable[[float, float], float],
) -> Iterator[tuple[Sign, float, str]]:
    """Yield when a checkpoint was due, and none was triggered: of which kind that is, until when, and a sentence.

    A trigger counts from when the coordinator began to reserve its id, which it makes durable first.
    """
    assert attempt.running_ms is not None
    before = _Before(attempt.running_ms)
    for following in (*attempt.checkpoints, None):
        if before.over:
            return
        until_ms = following.begun_ms if following is not None else min(attempt.ended_ms, over_ms)
        ordinary = following is not None and following.savepoint is None and not following.final
        at_once = checkpoints.max_concurrent if ordinary else 1
        counted = [
            life
            for life in before.lives
            if life.savepoint is None or _is_alone(life, checkpoints) or not ordinary
        ]
        due_ms = _due_ms(before, counted, until_ms, at_once, checkpoints)
        if due_ms is not None and until_ms > due_ms + slack_ms + excused_ms(due_ms, until_ms):
            in_flight = "nothing was in flight" if at_once == 1 else f"fewer than {at_once} were in flight"
            then = (
                f"checkpoint {following.number} was triggered only at {until_ms:g} ms"
                if following is not None
                else f"no other was triggered until the end at {until_ms:g} ms"
            )
            sentence = (
                f"in attempt {attempt.number} {in_flight}, a checkpoint was due at {due_ms:g} ms, and {then}"
            )
            yield _STOPPED if at_once == 1 else _ALONE, until_ms, sentence
        if following is not None:
            before.add(following)


class _Before:
    """The checkpoints of an attempt that were triggered before some moment.

    Those that had ended when the last one but savepoints was triggered are left out: only their ends still count.
    """

    def __init__(self, running_ms: float) -> None:
        self.running_ms = running_ms
        self.begun_ms = running_ms
        """When the last one but savepoints was triggered, or else when the attempt ran."""
        self.ended_ms: float | None = None
        """When the last of those ended, but for savepoints, that are left out."""
        self.lives: list[CheckpointLife] = []
        self.over = False
        """Whether nothing more is due: the last checkpoint completed, or the savepoint that stops the job."""

    def add(self, life: CheckpointLife) -> None:
        """Go on to the next one."""
        self.over |= life.completed and (life.final or life.stops)
        self.lives.append(life)
        if life.savepoint is not None:
            return
        self.begun_ms = life.triggered_ms
        left: list[CheckpointLife] = []
        for one in self.lives:
            if one.ended_ms is None or one.ended_ms > self.begun_ms:
                left.append(one)
            elif one.savepoint is None:
                self.ended_ms = max(one.ended_ms, self.ended_ms or one.ended_ms)
        self.lives = left


def _is_alone(life: CheckpointLife, checkpoints: CheckpointPlan) -> bool:
    """Return whether no checkpoint is triggered beside this one.

    No ordinary checkpoint waits for a savepoint, unless the job is to stop with it, or the plan names initiators: then
    markers of a newer checkpoint may cross those of the savepoint, which would be given up.
    """
    return life.savepoint is not None and (life.stops or bool(checkpoints.initiators))


def _due_ms(
    before: _Before,
    counted: Sequence[CheckpointLife],
    until_ms: float,
    at_once: int,
    checkpoints: CheckpointPlan,
) -> float | None:
    """Return when the next checkpoint was due; None if too many were in flight all the time.

    ``counted`` are those before it that count for it.
    """
    ordinary = [life for life in counted if life.savepoint is None]
    since_ms = max([before.begun_ms, *(life.triggered_ms for life in counted[-1:])])
    ends = sorted(life.ended_ms for life in counted if life.ended_ms is not None and life.ended_ms < until_ms)
    moments = [since_ms, *(end_ms for end_ms in ends if end_ms > since_ms)]
    for moment_ms, next_ms in pairwise([*moments, until_ms]):
        if len(counted) - sum(end_ms <= moment_ms for end_ms in ends) >= at_once:
            continue
        under_way = [life for life in counted if life.ended_ms is None or life.ended_ms > moment_ms]
        if any(_is_alone(life, checkpoints) for life in under_way):
            continue
        pauses = [] if before.ended_ms is None else [before.ended_ms]
        pauses += [
            life.ended_ms for life in ordinary if life.ended_ms is not None and life.ended_ms <= moment_ms
        ]
        paused_ms = max(pauses) + checkpoints.min_pause_ms if pauses else before.running_ms
        due_ms = max(moment_ms, before.begun_ms + checkpoints.interval_ms, paused_ms)
        # If another one ends at that very moment, its end may come first, and a new pause begins.
        if due_ms < next_ms - ROUNDING_MS:
            return due_ms
    return None
