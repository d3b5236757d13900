"""A job that failed is deployed again after the delay that its restart strategy demands, and is given up exactly when
the strategy allows no further attempt (REC-3).

A strategy counts failures, and a coordinator that starts anew has seen none. How long the other preparations of an
attempt take is not known, so a restart that comes a little later than it could is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from barrier_tck.faults.fault import Ends
from barrier_tck.faults.targets import TargetKind
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Directness, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker
from barrier_tck.harness.plan.trial_plan import RestartPlan, TrialPlan
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import (
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    FaultStarted,
    HeldUp,
    JobFailed,
    Operation,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.slow_machine import held_up_ms
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

ROUNDING_MS = 1e-6
"""The largest rounding error when virtual times are added, in milliseconds."""
CLOCK_MS = 100.0
"""On a real machine, what is reported of a failure is written down up to this much later than it was counted."""
BUSY_MS = 20_000.0
"""On a real machine it may take this long to end an attempt, beside the time for which it was held up."""
_REQUESTS = 20
"""A write of metadata, with what it tidies up if it fails, takes at most so many requests."""
GIVE_UP = None

_GIVEN_UP_EARLY = Sign("a job is given up that its restart strategy lets go on", "REC-3")
_NOT_GIVEN_UP = Sign("a job goes on that its restart strategy gives up", "REC-3")
_TOO_EARLY = Sign("an attempt begins before the delay of the restart strategy is over", "REC-3")
_TOO_LATE = Sign("an attempt begins long after the delay of the restart strategy is over", "REC-3")


class RestartStrategyKept(StandardChecker):
    """The restart strategy is kept."""

    name = "restart-strategy"
    requires = (
        "A job that failed is deployed again after the delay of its restart strategy, and given up "
        "exactly when the strategy says so."
    )
    judges = "systems with attempts and barriers, if they use the plan's restart strategy"
    covers = {"REC-3": ALWAYS}
    needs = frozenset({Capability.ATTEMPTS, Capability.BARRIERS})
    of_fields = frozenset({"restart.strategy"})
    signs = (_GIVEN_UP_EARLY, _NOT_GIVEN_UP, _TOO_EARLY, _TOO_LATE)
    directness = Directness.OPERATIONS
    rank = 360

    def check(self, context: TrialContext) -> Finding:
        """Count the failures of one trial, and look at what followed from each."""
        excused_ms = partial(held_up_ms, tuple(context.history.of(HeldUp)))
        course = _Course(
            context.plan, excused_ms, Capability.DETERMINISTIC_REPLAY.name in context.capabilities
        )
        for line in context.history.operations:
            course.follow(line)
        strategy = context.plan.restart.strategy
        counts = {"failures": course.failures, "judged": course.judged, "violations": len(course.problems)}
        if course.problems:
            summary = f"the restart strategy {strategy} was not kept: {course.problems[0].sentence} (REC-3)"
            return self.broken(context, summary, counts, course.problems)
        summary = f"{strategy} was kept after {course.judged} of {course.failures} failures"
        return Finding(self.name, self.clauses if course.judged else (), Verdict.VALID, summary, counts)


@dataclass
class _Counted:
    """What a strategy has counted, as far as it is known: where clocks are not exact, several numbers are possible."""

    failures: list[float] = field(default_factory=list)
    """When the attempts failed."""
    rows: tuple[int, ...] = (0,)
    """How many failures in a row there may have been."""


class _Course:
    """Follows the attempts of a trial."""

    def __init__(self, plan: TrialPlan, excused_ms: Callable[[float, float], float], exact: bool) -> None:
        self._excused_ms = excused_ms
        self._restart = plan.restart
        self._tolerance_ms = ROUNDING_MS if exact else CLOCK_MS
        self._late_ms = _preparations_ms(plan) if exact else BUSY_MS + (plan.deployment.elastic_wait_ms or 0)
        self._crashes = [
            number for number, planned in enumerate(plan.faults) if planned.fault.ends is Ends.COORDINATOR
        ]
        self._counted = _Counted()
        self._running_ms: float | None = None
        self._failed_ms = 0.0
        self._attempt: int | None = None
        """The newest attempt."""
        self._expected: tuple[float | None, ...] = ()
        """The delays that are right now; None among them: the job may be given up. Empty: nothing is expected."""
        self.failures = self.judged = 0
        self.problems: list[Breach] = []

    def follow(self, line: Recorded[Operation]) -> None:
        """Take the next operation of the history."""
        time_ms = line.time_ms
        match line.operation:
            case FaultStarted(fault=fault) if fault in self._crashes:
                self._counted, self._expected, self._running_ms = _Counted(), (), None
            case AttemptEnded(reason=Reason.STOPPED):
                # A second job is started from its savepoint, and has seen no failure.
                self._counted, self._expected, self._running_ms = _Counted(), (), None
            case AttemptRunning():
                self._running_ms = time_ms
            case AttemptEnded(reason=reason) if reason is not Reason.FINISHED:
                ran_ms = time_ms - self._running_ms if self._running_ms is not None else 0.0
                self._failed_ms, self._running_ms = time_ms, None
                self.failures += 1
                self._expected = tuple(dict.fromkeys(self._after_failure(time_ms, ran_ms)))
            case AttemptStarted(attempt=attempt):
                self._attempt = attempt
                self._judge_restart(attempt, line)
            case JobFailed(reason=Reason.RESTARTS_USED_UP) if self._expected:
                self.judged += 1
                if GIVE_UP not in self._expected:
                    self._problem(
                        line, _GIVEN_UP_EARLY, f"the job was given up after {self._so_far()}, which it allows"
                    )
                self._expected = ()

    def _judge_restart(self, attempt: int, line: Recorded[Operation]) -> None:
        expected, self._expected = self._expected, ()
        if not expected:
            return
        self.judged += 1
        delays = [delay_ms for delay_ms in expected if delay_ms is not None]
        took_ms = line.time_ms - self._failed_ms
        if not delays:
            text = f"attempt {attempt} began after {self._so_far()}, which it does not allow"
            self._problem(line, _NOT_GIVEN_UP, text)
        elif took_ms < min(delays) - self._tolerance_ms:
            self._problem(
                line,
                _TOO_EARLY,
                f"attempt {attempt} began {took_ms:g} ms after the failure, before the delay of {min(delays):g} ms "
                f"was over, after {self._so_far()}",
            )
        elif took_ms > max(delays) + self._late_ms + self._excused_ms(self._failed_ms, line.time_ms):
            self._problem(
                line,
                _TOO_LATE,
                f"attempt {attempt} began only {took_ms:g} ms after the failure, and the delay was "
                f"{max(delays):g} ms, after {self._so_far()}",
            )

    def _problem(self, line: Recorded[Operation], sign: Sign, sentence: str) -> None:
        self.problems.append(Breach(sign, sentence, line.index, line.process, attempt=self._attempt))

    def _so_far(self) -> str:
        number = len(self._counted.failures)
        return f"{number} {'failure' if number == 1 else 'failures'}"

    def _after_failure(self, failed_ms: float, ran_ms: float) -> tuple[float | None, ...]:
        """Count a failure and return what may follow."""
        restart, counted = self._restart, self._counted
        counted.failures.append(failed_ms)
        match restart.strategy:
            case "none":
                return (GIVE_UP,)
            case "fixed_delay":
                return (restart.delay_ms if len(counted.failures) <= restart.attempts_max else GIVE_UP,)
            case "failure_rate":
                return self._by_rate(failed_ms)
            case "exponential_delay":
                counted.rows = self._rows(ran_ms)
                return tuple(_delay_in_row(restart, row) for row in counted.rows)

    def _by_rate(self, failed_ms: float) -> tuple[float | None, ...]:
        restart = self._restart
        ages_ms = [failed_ms - earlier for earlier in self._counted.failures]
        least = sum(age_ms < restart.interval_ms - self._tolerance_ms for age_ms in ages_ms)
        most = sum(age_ms <= restart.interval_ms + self._tolerance_ms for age_ms in ages_ms)
        found: list[float | None] = [restart.delay_ms] if least <= restart.attempts_max else []
        return (*found, *([GIVE_UP] if most > restart.attempts_max else []))

    def _rows(self, ran_ms: float) -> tuple[int, ...]:
        """Return the number of failures in a row, this one included."""
        longer = tuple(row + 1 for row in self._counted.rows)
        least_ms = self._restart.reset_after_ms
        if ran_ms >= least_ms + self._tolerance_ms:
            return (1,)
        return longer if ran_ms < least_ms - self._tolerance_ms else tuple(dict.fromkeys((1, *longer)))


def _delay_in_row(restart: RestartPlan, failures: int) -> float | None:
    """Return the delay after so many failures in a row."""
    if failures > restart.attempts_max:
        return GIVE_UP
    longest_ms = max(restart.delay_ms, restart.delay_ms_max)
    delay_ms = restart.delay_ms
    for _ in range(failures - 1):
        if delay_ms >= longest_ms or restart.factor == 1:
            break
        delay_ms *= restart.factor
    return float(min(delay_ms, longest_ms))


def _preparations_ms(plan: TrialPlan) -> float:
    """Return how long the end of an attempt and the wait for slots take at most in virtual time. An attempt ends with
    a message and a write of metadata, which takes some requests to the service that holds the checkpoints.
    """
    services = [entry.fault for entry in plan.faults if entry.fault.needs is TargetKind.OBJECT_STORE]
    late_ms = _REQUESTS * sum(getattr(fault, "latency_ms", 0) for fault in services)
    lasting_ms = sum(planned.fault.heals_after_ms or 0 for planned in plan.faults)
    end_ms = 2.0 * plan.network.latency_ms_max + plan.checkpoints.async_ms_max + lasting_ms + late_ms + 1.0
    # An elastic job waits for slots that are missing, and looks at them ten times meanwhile.
    wait_ms = plan.deployment.elastic_wait_ms or 0
    return end_ms + wait_ms + max(1.0, wait_ms / 10)
