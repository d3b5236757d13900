"""An elastic job that loses an executor for good goes on with fewer subtasks, and its output is as without the loss."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from barrier_tck.conformance.plans import CALM, SINK, STATEFUL, crash_coordinator
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.faults.kinds.kill_executor import KillExecutor
from barrier_tck.faults.kinds.lose_executor import LoseExecutor
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    RestartPlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.operations import (
    AttemptRunning,
    AttemptStarted,
    FaultFired,
    JobFinished,
    JobStopped,
    Narrowed,
)
from barrier_tck.harness.system.job_view import Role
from barrier_tck.harness.system.role_aims import by_role
from barrier_tck.harness.system.system_under_test import Capability

pytestmark = [
    pytest.mark.needs(
        Capability.ELASTIC,
        Capability.EXECUTOR_LOSS,
        Capability.RESCALING,
        Capability.CHECKPOINTS,
        Capability.SNAPSHOT_INSPECTION,
        Capability.ATTEMPTS,
    ),
]

EXECUTORS, SLOTS = 3, 3
"""The executors of the suite's clusters, and the slots of each: nine slots in all."""
JOB = JobPlan("", {"source": 2, "totals": 5, "sink": 1})
"""Eight subtasks: two too many for two executors."""
LOSSES = {
    "while checkpoints are taken": After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2),
    "before the first checkpoint": After(ProtocolPoint.ATTEMPT_RUNNING, nth=1),
    "while a subtask takes its snapshot": After(ProtocolPoint.SNAPSHOT_TAKEN, STATEFUL, nth=2),
}


def _plan(
    *losses: After, mode: CheckpointingMode = "exactly_once", fixed: tuple[str, ...] = (), stop: bool = False
) -> TrialPlan:
    """Return a plan whose job has a slow sink, so that records queue up before it, and loses executors for good."""
    return msgspec.structs.replace(
        CALM,
        job=JOB,
        workload=msgspec.structs.replace(CALM.workload, keys=30, batches=40),
        checkpoints=CheckpointPlan(mode=mode, interval_ms=12, async_ms_max=3),
        deployment=DeploymentPlan(
            max_parallelism=6,
            executors=EXECUTORS,
            slots_per_executor=SLOTS,
            elastic_wait_ms=20,
            fixed_vertices=fixed,
            slow_vertex="sink",
            slow_batch_ms=2,
        ),
        restart=RestartPlan(attempts_max=20, delay_ms=5),
        savepoints=(SavepointPlan(after_checkpoints=4, stop=True),) if stop else (),
        faults=tuple(ScheduledFault(LoseExecutor(SINK), loss) for loss in losses),
    )


def _narrowed(trial: Trial) -> list[Narrowed]:
    """Return the reports of narrower attempts that reached the state running after an executor was lost."""
    ran = {line.operation.attempt for line in trial.history.of(AttemptRunning)}
    lost = [line.index for line in trial.history.of(FaultFired)]
    return [
        line.operation
        for line in trial.history.of(Narrowed)
        if line.operation.attempt in ran and any(index < line.index for index in lost)
    ]


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("RSC-1", "RSC-2", "RSC-3", "REC-1")
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_job_that_loses_an_executor_for_good_goes_on_narrower_with_the_same_output(
    trials: Trials, loss: After
) -> None:
    trial = trials.valid(_plan(loss))
    narrowed = _narrowed(trial)
    happened(narrowed, "an attempt ran on the slots that were left", trial)
    widths = narrowed[-1].widths
    happened(narrowed[-1].slots == 6, f"six slots were left, and not {narrowed[-1].slots}", trial)
    require(sum(widths.values()) == 6, f"the parallelism {widths} uses all six", trial)
    require(any(trial.history.of(JobFinished)), "the job finished", trial)
    for view in trial.history.checkpoints:
        owners = {(group, part.subtask) for part in view.state for group in part.groups.values()}
        twice = [group for group, n in Counter(group for group, _ in owners).items() if n > 1]
        require(not twice, f"each key group has one owner in checkpoint {view.checkpoint}", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.COORDINATOR_CRASH)
@pytest.mark.clause("RSC-2", "COO-6", "REC-1")
def test_a_coordinator_that_crashes_while_its_job_waits_for_slots_goes_on_narrower_all_the_same(
    trials: Trials,
) -> None:
    plan = _plan(LOSSES["while checkpoints are taken"])
    crash = crash_coordinator(After(ProtocolPoint.WAITING_FOR_SLOTS))
    trial = trials.valid(msgspec.structs.replace(plan, faults=(*plan.faults, crash)))
    loss, crashed = (line.index for line in trial.history.of(FaultFired))
    attempts = [line.index for line in trial.history.of(AttemptStarted)]
    happened(not any(loss < index < crashed for index in attempts), "no attempt had begun: it waited", trial)
    happened(_narrowed(trial), "an attempt ran on the slots that were left", trial)
    require(any(trial.history.of(JobFinished)), "the job finished", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("RSC-3", "UNA-1")
@pytest.mark.parametrize("mode", ["unaligned", "aligned_timeout"])
def test_records_in_flight_reach_the_subtasks_that_are_left(trials: Trials, mode: CheckpointingMode) -> None:
    def restored_in_flight(trial: Trial) -> bool:
        narrower = [narrowing.attempt for narrowing in _narrowed(trial)]
        restored = {
            line.operation.restored_checkpoint
            for line in trial.history.of(AttemptStarted)
            if line.operation.attempt in narrower
        }
        return any(view.in_flight for view in trial.history.checkpoints if view.checkpoint in restored)

    trials.valid_until(
        _plan(LOSSES["while checkpoints are taken"], mode=mode),
        restored_in_flight,
        "were records in flight in the checkpoint from which the job went on narrower",
    )


@pytest.mark.long_on_clusters
@pytest.mark.clause("RSC-2", "REC-5")
def test_a_job_that_loses_two_of_three_executors_goes_on_with_one_subtask_per_vertex(
    trials: Trials,
) -> None:
    completed = ProtocolPoint.CHECKPOINT_COMPLETED
    trial = trials.valid(_plan(After(completed, nth=2), After(completed, nth=5)))
    widths = [narrowing.widths for narrowing in _narrowed(trial)]
    happened(widths, "an attempt ran on the slots that were left", trial)
    require(set(widths[-1].values()) == {1}, f"the parallelism was {widths}", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.uses("on_unreadable")
@pytest.mark.clause("RSC-3", "SNK-1", "REC-5")
def test_pending_transactions_are_committed_although_the_sinks_become_fewer_twice(
    trials: Trials,
) -> None:
    """The last of four sinks is lost before it commits, and the sink that restored its transaction before it does, too.

    Only in virtual time are there enough executors for the number of sinks to fall by one at a time.
    """
    completed = ProtocolPoint.CHECKPOINT_COMPLETED
    plan = msgspec.structs.replace(
        _plan(),
        job=JobPlan("", {"source": 1, "totals": 1, "sink": 4}),
        deployment=DeploymentPlan(executors=6, slots_per_executor=1, elastic_wait_ms=5),
        on_unreadable="older",
        faults=(
            ScheduledFault(LoseExecutor("sink[3]"), After(completed, nth=3)),
            ScheduledFault(LoseExecutor("sink[0]"), After(completed, nth=4)),
        ),
    )
    trial = trials.valid(plan)
    widths = [narrowing.widths["sink"] for narrowing in _narrowed(trial)]
    require(widths == [3, 2], f"four sinks became {widths}", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY, Capability.EXECUTOR_KILL)
@pytest.mark.uses("deployment.replaced_after_ms")
@pytest.mark.clause("RSC-2")
def test_a_job_that_got_its_slots_in_time_waits_for_them_again(trials: Trials) -> None:
    """Two executors die one after the other, and each is replaced before the job has waited for long enough.

    Only in virtual time is it known when an executor is replaced.
    """
    completed, plan = ProtocolPoint.CHECKPOINT_COMPLETED, _plan()
    plan = msgspec.structs.replace(
        plan,
        deployment=msgspec.structs.replace(plan.deployment, elastic_wait_ms=30, replaced_after_ms=20),
        faults=tuple(ScheduledFault(KillExecutor(STATEFUL), After(completed, nth=nth)) for nth in (2, 4)),
    )
    trial = trials.valid(plan)
    require(not any(trial.history.of(Narrowed)), "no attempt was narrower", trial)
    require(len([*trial.history.of(AttemptRunning)]) == 3, "three attempts ran", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("RSC-2")
def test_a_fixed_vertex_keeps_its_parallelism(trials: Trials) -> None:
    """After the first of four sources is given up, the next subtask would be one of the three of ``totals``."""
    job = JobPlan("", {"source": 4, "totals": 3, "sink": 1})
    plan = msgspec.structs.replace(_plan(LOSSES["while checkpoints are taken"], fixed=("totals",)), job=job)
    trial = trials.valid(plan)
    narrowed = _narrowed(trial)
    happened(narrowed, "an attempt ran on the slots that were left", trial)
    widths = {"source": 2, "totals": 3, "sink": 1}
    require(
        all(narrowing.widths == widths for narrowing in narrowed),
        f"only sources were given up: {narrowed}",
        trial,
    )


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("RSC-2", "COO-3", "SNK-1")
def test_prepared_transactions_of_sinks_that_were_given_up_are_deleted(trials: Trials) -> None:
    """The executor is lost when the last of four sinks has prepared a transaction. Two sinks are left."""
    job = JobPlan("", {"source": 2, "totals": 2, "sink": 4})
    loss = After(ProtocolPoint.SNAPSHOT_TAKEN, by_role(Role.SINK, 3), nth=2)
    trial = trials.valid(msgspec.structs.replace(_plan(loss), job=job))
    narrowed = _narrowed(trial)
    happened(narrowed, "an attempt ran on the slots that were left", trial)
    require(
        all(narrowing.widths["sink"] == 2 for narrowing in narrowed),
        f"two sinks were left: {narrowed}",
        trial,
    )


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("RSC-2", "CHL-5")
@pytest.mark.needs(Capability.LOOPS)
def test_the_vertices_of_a_loop_keep_their_parallelism(trials: Trials) -> None:
    """In the loop ``head`` has the most subtasks of all vertices. Yet only vertices outside of it give up subtasks."""
    plan = msgspec.structs.replace(
        _plan(LOSSES["while checkpoints are taken"]),
        job=JobPlan("loop", {"read": 2, "head": 3, "again": 1, "out": 2}),
        workload=WorkloadPlan("rounds", batches=20, batch_records=3, keys=5, records_per_second=300),
        deployment=DeploymentPlan(executors=EXECUTORS, slots_per_executor=SLOTS, elastic_wait_ms=20),
        limits=LimitsPlan(virtual_ms=5_000),
    )
    trial = trials.valid(plan)
    narrowed = _narrowed(trial)
    happened(narrowed, "an attempt ran on the slots that were left", trial)
    widths = {"read": 1, "head": 3, "again": 1, "out": 1}
    require(
        all(narrowing.widths == widths for narrowing in narrowed),
        f"the loop stayed as it was: {narrowed}",
        trial,
    )


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("RSC-2", "COO-5")
@pytest.mark.needs(Capability.SAVEPOINTS)
def test_a_narrower_job_can_be_stopped_and_the_next_one_is_narrower_too(trials: Trials) -> None:
    trial = trials.valid(_plan(LOSSES["before the first checkpoint"], stop=True))
    stopped = [line.index for line in trial.history.of(JobStopped)]
    happened(stopped, "the job was stopped with a savepoint", trial)
    later = [line for line in trial.history.of(Narrowed) if line.index > stopped[0]]
    happened(later, "the job that started from it was narrower", trial)
