"""Which conditions a trial reached, in their order, as its history shows: the links of chains.

A plan says what is to happen; only the trace says what did. Each condition has a name here and an operation at which it
is reached, so that a pair of conditions is one that came before another in the same trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import product

from barrier_tck.faults.fault import Ends
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import History, SnapshotView
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.workloads.operator_kind import TIMERS


class Condition(StrEnum):
    """What a later part of a trial may find."""

    FAILED = "a failure after a checkpoint"
    FAILED_AGAIN = "a failure again, before another checkpoint"
    FAILED_LATE = "a failure after a long good run"
    DELAY_GROWN = "a restart after a delay that has grown"
    COORDINATOR_LOST = "a crash of the coordinator"
    STOPPED = "a stop with a savepoint, and a job that goes on"
    NARROWER = "an attempt with fewer slots than the job wants"
    WIDE_AGAIN = "an attempt with all slots, after a narrower one"
    TIMERS_DUE = "a restore of timers for a time that has passed"
    LOCAL_COPIES = "a restore from copies on hosts"
    SECOND_INCREMENT = "a restore of a second increment after a restart"


_LONG = 4
"""A run is a long good one if it completed so many checkpoints."""
_GROWN = 1.5
"""A delay has grown if it is so many times as long as the first one of a row."""


def reached(plan: TrialPlan, history: History) -> tuple[Condition, ...]:
    """Return the conditions that a trial reached, in their order."""
    return tuple(_Reader(plan, history).conditions())


class _Reader:
    """Goes through the operations of one trial."""

    def __init__(self, plan: TrialPlan, history: History) -> None:
        self._plan, self._history = plan, history
        self._views = {view.checkpoint: view for view in history.checkpoints}
        self._attempts = 0
        self._completed = 0
        self._number_in_attempt: dict[int, tuple[int, int]] = {}
        """Checkpoint -> the number of the attempt that took it, and its number there."""
        self._narrowed: dict[int, None] = {}
        self._was_narrow = False
        self._failed_at_ms: float | None = None
        self._local: dict[int, None] = {}

    def conditions(self) -> Iterator[Condition]:
        for line in self._history.operations:
            match line.operation:
                case ops.Narrowed(attempt=attempt):
                    self._narrowed[attempt] = None
                case ops.AttemptStarted() as started:
                    yield from self._started(started, line.time_ms)
                case ops.CheckpointCompleted(checkpoint=checkpoint):
                    self._completed += 1
                    self._number_in_attempt[checkpoint] = (self._attempts, self._completed)
                case ops.AttemptEnded(reason=reason) if reason not in (Reason.FINISHED, Reason.STOPPED):
                    yield self._failure()
                    self._failed_at_ms = line.time_ms
                case ops.FaultFired(fault=fault) if self._plan.faults[fault].fault.ends is Ends.COORDINATOR:
                    yield Condition.COORDINATOR_LOST
                case ops.JobStopped():
                    yield Condition.STOPPED
                case ops.Restored(attempt=attempt, files=files) if attempt not in self._local:
                    if any(file.served_by is ops.ServedFrom.SECONDARY for file in files):
                        self._local[attempt] = None
                        yield Condition.LOCAL_COPIES

    def _failure(self) -> Condition:
        if self._completed >= _LONG:
            return Condition.FAILED_LATE
        return Condition.FAILED if self._completed else Condition.FAILED_AGAIN

    def _started(self, started: ops.AttemptStarted, time_ms: float) -> Iterator[Condition]:
        first_ms = self._plan.restart.delay_ms
        exponential = self._plan.restart.strategy == "exponential_delay"
        waited_ms = time_ms - self._failed_at_ms if self._failed_at_ms is not None else 0.0
        if exponential and first_ms and waited_ms >= _GROWN * first_ms:
            yield Condition.DELAY_GROWN
        self._failed_at_ms = None
        narrow = started.attempt in self._narrowed
        if narrow:
            yield Condition.NARROWER
        elif self._was_narrow:
            yield Condition.WIDE_AGAIN
        self._was_narrow = narrow
        restored = started.restored_checkpoint
        if restored is not None:
            view = self._views.get(restored)
            if view is not None and any(due <= time_ms for due in _due(view)):
                yield Condition.TIMERS_DUE
            attempt, number = self._number_in_attempt.get(restored, (0, 0))
            if self._plan.checkpoints.incremental and attempt > 1 and number > 1:
                yield Condition.SECOND_INCREMENT
        self._attempts += 1
        self._completed = 0


def _due(view: SnapshotView) -> Iterator[float]:
    """Yield when the timers in a checkpoint are due."""
    for part in view.state:
        if part.name == TIMERS:
            for times in part.entries.values():
                yield from times


class ReachedConditions:
    """Counts in how many trials each condition, and each pair in its order, was reached."""

    def __init__(self) -> None:
        self.trials = 0
        self.each: Counter[Condition] = Counter()
        self.pairs: Counter[tuple[Condition, Condition]] = Counter()

    def add(self, conditions: Iterable[Condition]) -> None:
        """Add one trial."""
        found = tuple(conditions)
        self.trials += 1
        self.each.update(list(dict.fromkeys(found)))
        pairs = ((before, after) for place, before in enumerate(found) for after in found[place + 1 :])
        self.pairs.update(list(dict.fromkeys(pairs)))

    @property
    def never(self) -> tuple[str, ...]:
        """Return the conditions and the pairs that no trial reached."""
        return (
            *(condition for condition in Condition if not self.each[condition]),
            *(
                f"{before}; then {after}"
                for before, after in product(Condition, repeat=2)
                if not self.pairs[before, after]
            ),
        )
