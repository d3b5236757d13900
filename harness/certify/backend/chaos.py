"""The level chaos: the reference runtime with the candidate as its backend, with kills, in the candidate's process."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.backend.pool import Candidate, CandidateDied, CandidateRaised, Pool
from barrier_tck.harness.certify.backend.stage import BackendProperty
from barrier_tck.harness.certify.engine.certificate import PropertyOutcome, TrialShown
from barrier_tck.harness.certify.engine.property import Property
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    RestartPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.support.errors import EnvironmentProblem
from barrier_tck.harness.support.processor_time import processor_seconds
from barrier_tck.harness.support.work_directories import work_prefix

if TYPE_CHECKING:
    from barrier_tck.harness.cluster.java import Java

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShownTrials:
    """What trials have shown before an interruption, and where what they show is kept until the property has ended."""

    before: tuple[TrialShown, ...] = ()
    keep: Callable[[tuple[TrialShown, ...]], None] = lambda trials: None
    """Called after each trial with all that were valid so far."""


NONE_SHOWN = ShownTrials()
SIMULATED_TRIALS = 60
SPARK_TRIAL_S = 450.0
"""Time limit of one trial on Spark in seconds; the first trial starts the cluster."""
SIMULATED = "exactly-once-in-the-simulator"
SPARK = "exactly-once-on-spark"
_OUTPUT = "SNK-1"
_CLAUSES = (_OUTPUT, "ALN-2", "REC-1")
_SIMULATED_TEXT = (
    "The reference runtime on this backend gives exact output and exact snapshots while it is killed."
)
CHAOS: tuple[BackendProperty, ...] = (
    Property(SIMULATED, "chaos", _CLAUSES, _SIMULATED_TEXT),
    Property(SPARK, "chaos", _CLAUSES, "The same holds on a real Spark cluster whose executors are killed."),
)
"""The properties of the level chaos; they have no steps, but trials of the reference runtime."""
_SPARK_PLANS = tuple(
    TrialPlan(
        workload=WorkloadPlan(
            "keyed-totals", batches=40, batch_records=50, keys=40, records_per_second=2_000
        ),
        deployment=DeploymentPlan(executors=3),
        checkpoints=CheckpointPlan(interval_ms=300, timeout_ms=20_000, retained=3),
        restart=RestartPlan(attempts_max=4, delay_ms=50),
        faults=(ScheduledFault(KillExecutor("totals[0]"), After(point, "totals[0]", nth)),),
        note="certification of a state backend",
    )
    for point, nth in ((ProtocolPoint.SNAPSHOT_TAKEN, 2), (ProtocolPoint.COMPLETION_NOTIFIED, 1))
)


def require_spark() -> Java:
    """Return the Java for Spark; raises EnvironmentProblem, which says what to install, if Spark cannot run."""
    from barrier_tck.harness.cluster.java import find_java

    try:
        return find_java()
    except EnvironmentProblem as error:
        raise type(error)(
            f"the level chaos needs Spark. {error} Or give --no-spark: then at most the level crash can be reached."
        ) from error


def check_simulated(
    pool: Pool,
    seed: int,
    concurrent: bool,
    trials: int = SIMULATED_TRIALS,
    shown_trials: ShownTrials = NONE_SHOWN,
) -> tuple[PropertyOutcome, TrialPlan | None]:
    """Run drawn plans, with kills, in virtual time; with one checkpoint in flight unless ``concurrent``."""
    plans: Sequence[TrialPlan] = draw_plans(seed, trials, profile_named("heavy"))
    if not concurrent:
        plans = [_one_in_flight(plan) for plan in plans]
    return _check(CHAOS[0], "reference-simulated", pool, plans, seed, shown_trials)


def _one_in_flight(plan: TrialPlan) -> TrialPlan:
    checkpoints = msgspec.structs.replace(plan.checkpoints, max_concurrent=1)
    return msgspec.structs.replace(plan, checkpoints=checkpoints)


def check_on_spark(
    pool: Pool, seed: int, shown_trials: ShownTrials = NONE_SHOWN
) -> tuple[PropertyOutcome, TrialPlan | None]:
    """Run a few plans on a local cluster whose executors are killed."""
    roomy = Pool(
        pool.target, replace(pool.limits, memory_bytes=0, trial_s=SPARK_TRIAL_S), max(0.0, pool.remaining_s)
    )
    try:
        return _check(CHAOS[1], "reference-spark", roomy, _SPARK_PLANS, seed, shown_trials)
    finally:
        roomy.close()


def _check(
    one: BackendProperty,
    system: str,
    pool: Pool,
    plans: Sequence[TrialPlan],
    seed: int,
    shown_trials: ShownTrials,
) -> tuple[PropertyOutcome, TrialPlan | None]:
    began = time.monotonic()
    # A saved plan names the backend, so it can be replayed without the certifier.
    trials = _Trials(
        system,
        [msgspec.structs.replace(plan, state_backend=pool.target) for plan in plans],
        pool,
        shown_trials,
    )
    trials.run()
    status, reason = trials.status, trials.reason
    again: tuple[TrialShown, ...] = trials.valid if status == "unknown" else ()
    if status == "passed" and not trials.fired:
        status, reason = "unknown", "no planned kill fired"
    elif status == "passed" and not trials.shown[_OUTPUT]:
        status, reason = "unknown", "no output was compared"
    outcome = PropertyOutcome(
        name=one.name,
        level=one.level,
        # Of what a trial judges, no more is claimed than was judged.
        clauses=tuple(clause for clause in _CLAUSES if status != "passed" or trials.shown[clause]),
        text=one.text,
        status=status,
        reason=reason,
        examples=trials.ran,
        calls=trials.fired,
        processes=1,
        seconds=round(time.monotonic() - began + sum(trial.seconds for trial in trials.before), 2),
        # What was used now, the certification adds.
        processor_seconds=sum(trial.processor_seconds for trial in trials.before),
        seed=seed,
        shown={clause: trials.shown[clause] for clause in _CLAUSES if trials.shown[clause]},
        violated=trials.violated if status == "failed" else "",
        trials=again,
    )
    return outcome, trials.failing


class _Trials:
    """The trials of one property, one after the other, up to the first that is not valid."""

    def __init__(
        self, system: str, plans: Sequence[TrialPlan], pool: Pool, shown_trials: ShownTrials
    ) -> None:
        self._system = system
        self._plans = plans
        self._pool = pool
        self._keep = shown_trials.keep
        known = {trial.plan: trial for trial in shown_trials.before}
        self._before = {
            number: known[digest] for number, digest in enumerate(map(digest_of, plans)) if digest in known
        }
        self.status, self.reason = "passed", ""
        self.violated = _OUTPUT
        self.failing: TrialPlan | None = None
        self.valid: tuple[TrialShown, ...] = ()
        """Trials that were valid, before an interruption or now."""
        self.ran = self.fired = 0
        self.shown: Counter[str] = Counter()

    @property
    def before(self) -> tuple[TrialShown, ...]:
        """Trials that were valid before an interruption, of which one is not run again."""
        return tuple(self._before.values())

    def run(self) -> None:
        candidate: Candidate | None = None
        try:
            candidate = self._pool.take()
            with (
                # If the process of a cluster was killed, the cluster's guard removes what it still writes there.
                tempfile.TemporaryDirectory(
                    prefix=work_prefix("chaos"), ignore_cleanup_errors=True
                ) as scratch,
                _closing_systems(candidate),  # first of all, because a cluster's directory lies in this one
            ):
                candidate.call(wire.ResetRequest(scratch, scratch))
                for number in range(len(self._plans)):
                    if not self._goes_on_after(number, candidate, scratch):
                        break
        except (CandidateDied, CandidateRaised) as error:
            died = error if isinstance(error, CandidateDied) else None
            # Too little time shows nothing: a busy machine may have used it up. Nor does another program's signal.
            shows_nothing = died is not None and (died.hung or died.from_outside)
            self.status, self.reason = "unknown" if shows_nothing else "failed", str(error)
            self.failing = self._plans[self.ran] if self.ran < len(self._plans) else None
        finally:
            if candidate is not None:
                self._pool.give_back(candidate)

    def _goes_on_after(self, number: int, candidate: Candidate, scratch: str) -> bool:
        """Run a trial, unless it was valid before; return whether the next one is to be run."""
        if number in self._before:
            self._add(self._before[number])
            return True
        plan = self._plans[number]
        request = wire.TrialRequest(self._system, msgspec.json.encode(plan), f"{scratch}/trial-{number}")
        began, processor_began = time.monotonic(), processor_seconds()
        judged = msgspec.convert(candidate.call(request), wire.Judged)
        if judged.verdict != "valid":
            self.ran, self.fired = self.ran + 1, self.fired + judged.faults_fired
            self.violated = judged.broken or _OUTPUT
            self.status = "failed" if judged.verdict == "invalid" else "unknown"
            self.reason = f"trial {number} is {judged.verdict}: " + "; ".join(judged.problems)
            self.failing = plan
            return False
        self._add(
            TrialShown(
                digest_of(plan),
                judged.faults_fired,
                judged.shown,
                round(time.monotonic() - began, 2),
                round(processor_seconds() - processor_began, 2),
            )
        )
        self._keep(self.valid)
        if self._pool.remaining_s < 0 and number + 1 < len(self._plans):
            self.status, self.reason = "unknown", "the total time was used up before all trials had run"
        return self.status == "passed"

    def _add(self, trial: TrialShown) -> None:
        self.valid += (trial,)
        self.ran, self.fired = self.ran + 1, self.fired + trial.faults_fired
        if trial.faults_fired:
            self.shown.update(trial.shown)


def digest_of(plan: TrialPlan) -> str:
    """Return the SHA-256 of a plan, by which it is known again."""
    return hashlib.sha256(msgspec.json.encode(plan, order="deterministic")).hexdigest()


@contextlib.contextmanager
def _closing_systems(candidate: Candidate) -> Iterator[None]:
    """Have the candidate's process close the systems that it opened, however its trials ended.

    Not after Ctrl-C: then a trial is under way, whose reply would be waited for and taken for that of the closing. The
    process is killed, and the guard of its cluster cleans up.
    """
    try:
        yield
    except KeyboardInterrupt:
        candidate.kill()
        raise
    finally:
        try:
            candidate.call(wire.CloseSystemsRequest())
        except CandidateDied:
            # Nothing is left to close, because the guard of its cluster cleans up.
            _log.info("the candidate's process is gone")
        except CandidateRaised as error:
            _log.warning("the candidate's systems could not be closed: %s", error)
