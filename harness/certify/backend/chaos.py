"""The level chaos: the reference runtime with the candidate as its backend, with kills, in the candidate's process."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.backend.pool import Candidate, CandidateDied, CandidateRaised, Pool
from barrier_tck.harness.certify.backend.stage import BackendProperty
from barrier_tck.harness.certify.engine.certificate import PropertyOutcome
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
from barrier_tck.harness.support.work_directories import work_prefix

_log = logging.getLogger(__name__)

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


def require_spark() -> None:
    """Raise EnvironmentProblem, which says what to install, if Spark cannot run."""
    from barrier_tck.harness.cluster.java import find_java

    try:
        find_java()
    except EnvironmentProblem as error:
        raise type(error)(
            f"the level chaos needs Spark. {error} Or give --no-spark: then at most the level crash can be reached."
        ) from error


def check_simulated(
    pool: Pool, seed: int, concurrent: bool, trials: int = SIMULATED_TRIALS
) -> tuple[PropertyOutcome, TrialPlan | None]:
    """Run drawn plans, with kills, in virtual time; with one checkpoint in flight unless ``concurrent``."""
    plans: Sequence[TrialPlan] = draw_plans(seed, trials, profile_named("heavy"))
    if not concurrent:
        plans = [_one_in_flight(plan) for plan in plans]
    return _check(CHAOS[0], "reference-simulated", pool, plans, seed)


def _one_in_flight(plan: TrialPlan) -> TrialPlan:
    checkpoints = msgspec.structs.replace(plan.checkpoints, max_concurrent=1)
    return msgspec.structs.replace(plan, checkpoints=checkpoints)


def check_on_spark(pool: Pool, seed: int) -> tuple[PropertyOutcome, TrialPlan | None]:
    """Run a few plans on a local cluster whose executors are killed."""
    roomy = Pool(
        pool.target, replace(pool.limits, memory_bytes=0, trial_s=SPARK_TRIAL_S), max(0.0, pool.remaining_s)
    )
    try:
        return _check(CHAOS[1], "reference-spark", roomy, _SPARK_PLANS, seed)
    finally:
        roomy.close()


def _check(
    one: BackendProperty, system: str, pool: Pool, plans: Sequence[TrialPlan], seed: int
) -> tuple[PropertyOutcome, TrialPlan | None]:
    began = time.monotonic()
    # A saved plan names the backend, so it can be replayed without the certifier.
    plans = [msgspec.structs.replace(plan, state_backend=pool.target) for plan in plans]
    ran = fired = 0
    shown: dict[str, int] = {}
    status, reason, failing = "passed", "", None
    violated = _OUTPUT
    candidate: Candidate | None = None
    try:
        candidate = pool.take()
        with (
            # If the process of a cluster was killed, the cluster's guard removes what it still writes there.
            tempfile.TemporaryDirectory(prefix=work_prefix("chaos"), ignore_cleanup_errors=True) as scratch,
            _closing_systems(candidate),  # first of all, because a cluster's directory lies in this one
        ):
            candidate.call(wire.ResetRequest(scratch, scratch))
            for number, plan in enumerate(plans):
                request = wire.TrialRequest(system, msgspec.json.encode(plan), f"{scratch}/trial-{number}")
                judged = msgspec.convert(candidate.call(request), wire.Judged)
                ran, fired = ran + 1, fired + judged.faults_fired
                for clause in judged.shown if judged.faults_fired else ():
                    shown[clause] = shown.get(clause, 0) + 1
                if judged.verdict != "valid":
                    violated = judged.broken or _OUTPUT
                    status = "failed" if judged.verdict == "invalid" else "unknown"
                    reason, failing = (
                        f"trial {number} is {judged.verdict}: " + "; ".join(judged.problems),
                        plan,
                    )
                    break
                if pool.remaining_s < 0:
                    status, reason = "unknown", "the total time was used up before all trials had run"
                    break
    except (CandidateDied, CandidateRaised) as error:
        # Too little time shows nothing: a busy machine may have used it up.
        status = "unknown" if isinstance(error, CandidateDied) and error.hung else "failed"
        reason = str(error)
        failing = plans[ran] if ran < len(plans) else None
    finally:
        if candidate is not None:
            pool.give_back(candidate)
    if status == "passed" and not fired:
        status, reason = "unknown", "no planned kill fired"
    elif status == "passed" and not shown.get(_OUTPUT):
        status, reason = "unknown", "no output was compared"
    outcome = PropertyOutcome(
        name=one.name,
        level=one.level,
        # Of what a trial judges, no more is claimed than was judged.
        clauses=tuple(clause for clause in _CLAUSES if status != "passed" or shown.get(clause)),
        text=one.text,
        status=status,
        reason=reason,
        examples=ran,
        calls=fired,
        processes=1,
        seconds=round(time.monotonic() - began, 2),
        seed=seed,
        shown={clause: shown[clause] for clause in _CLAUSES if clause in shown},
        violated=violated if status == "failed" else "",
    )
    return outcome, failing


@contextlib.contextmanager
def _closing_systems(candidate: Candidate) -> Iterator[None]:
    """Have the candidate's process close the systems that it opened, however its trials ended."""
    try:
        yield
    finally:
        try:
            candidate.call(wire.CloseSystemsRequest())
        except CandidateDied:
            # Nothing is left to close, because the guard of its cluster cleans up.
            _log.info("the candidate's process is gone")
        except CandidateRaised as error:
            _log.warning("the candidate's systems could not be closed: %s", error)
