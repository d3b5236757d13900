"""The planted bugs of admission, timeouts and control messages, which general checkers and faults must find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.forge_acknowledgement import ForgeAcknowledgement
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.partition_halves import PartitionHalves
from barrier_tck.faults.kinds.repeat_messages import RepeatMessages
from barrier_tck.faults.targets import Direction, Forgery
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    NetworkPlan,
    RestartPlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.reference.mutants import control_bugs as control
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, SPARK, WITH_ZOMBIE, Mutant, kill
from barrier_tck.reference_impl.runtime.components import Components

OURS = "planted here, no public report"
HELD_OUT = "planted by others into version 0.1.0"


def control_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs in the messages between subtasks and the coordinator, and in their times."""
    several = _with(CheckpointPlan(interval_ms=6, max_concurrent=2, async_ms_max=30))
    late = _with(CheckpointPlan(timeout_ms=25, async_ms_max=80))
    twice = _twice(several, Direction.FORWARD)
    yield Mutant(
        "SR-01",
        "COO-1",
        "Acknowledgements are counted, not attributed; two of one subtask complete a checkpoint.",
        HELD_OUT,
        replace(product, coordinator_machine=control.CountsAcknowledgements),
        twice,
    )
    yield Mutant(
        "SR-02",
        "COO-2",
        "Timeouts of checkpoints are never enforced.",
        HELD_OUT,
        replace(product, coordinator_machine=control.NeverExpires),
        late,
    )
    yield Mutant(
        "SR-03",
        "BAR-4",
        "One checkpoint too many is in flight.",
        HELD_OUT,
        replace(product, coordinator_machine=control.AdmitsOneMore),
        several,
    )
    yield Mutant(
        "SR-04",
        "BAR-6",
        "One barrier is lost when a source ends.",
        HELD_OUT,
        replace(product, subtask_driver=control.LosesABarrierAtTheEnd),
        SIMULATED,
    )
    yield Mutant(
        "SR-05",
        "BAR-4",
        "The minimum pause between checkpoints is ignored.",
        HELD_OUT,
        replace(product, coordinator_machine=control.KeepsNoPause),
        _with(CheckpointPlan(interval_ms=6, min_pause_ms=20)),
    )
    yield Mutant(
        "SR-06",
        "BAR-3",
        "A source ignores triggers until the checkpoint before is over; a newer checkpoint covers it up.",
        OURS,
        replace(product, subtask_machine=control.ObeysOneTriggerAtATime),
        # In one line of subtasks, none aligns, so none declines what another one skipped.
        msgspec.structs.replace(several, job=JobPlan(widths={"source": 1, "totals": 1})),
    )
    yield Mutant(
        "DU-01",
        "STA-3",
        "An acknowledgement that comes twice is taken for a late one, and its files are deleted.",
        OURS,
        replace(product, coordinator_machine=control.DeletesWhatCameTwice),
        twice,
    )
    yield Mutant(
        "FA-01",
        "COO-3",
        "An acknowledgement for a checkpoint that was never triggered is ignored, and its file is kept.",
        OURS,
        replace(product, coordinator_machine=control.KeepsWhatIsUnknown),
        _forged(several, Forgery.UNTRIGGERED),
    )
    yield Mutant(
        "FA-02",
        "STA-3",
        "An acknowledgement of a subtask that does not exist counts as that of the first one of its vertex.",
        OURS,
        replace(product, coordinator_machine=control.CountsStrangers),
        _forged(several, Forgery.NOBODY),
        _forged(SPARK, Forgery.NOBODY),
    )
    yield Mutant(
        "TF-01",
        "COO-2",
        "One failure in a row more than configured is tolerated.",
        OURS,
        replace(product, coordinator_machine=control.ToleratesOneMore),
        msgspec.structs.replace(
            late,
            checkpoints=CheckpointPlan(timeout_ms=60, async_ms_max=80, tolerated_failures=1),
            restart=RestartPlan(attempts_max=200),
        ),
    )
    yield Mutant(
        "TF-02",
        "COO-2",
        "A decline that comes twice counts as two failures.",
        HELD_OUT,
        replace(product, coordinator_machine=control.CountsDeclinesTwice),
        _failing(
            1, ScheduledFault(RepeatMessages("totals[0]", 0, 500), After(ProtocolPoint.ATTEMPT_RUNNING))
        ),
    )
    yield Mutant(
        "TF-03",
        "COO-2",
        "A checkpoint whose metadata cannot be written does not count as failed.",
        HELD_OUT,
        replace(product, coordinator_machine=control.ForgivesStorage),
        _failing(0, metadata=True),
    )
    expiring = CheckpointPlan(timeout_ms=60, async_ms_max=80, tolerated_failures=1)
    yield Mutant(
        "TF-04",
        "COO-2",
        "A savepoint that completes ends a row of failed checkpoints.",
        OURS,
        replace(product, coordinator_machine=control.EndsTheRowWithASavepoint),
        msgspec.structs.replace(
            _with(expiring),
            savepoints=tuple(SavepointPlan(delay_ms=delay_ms) for delay_ms in range(20, 260, 40)),
            restart=RestartPlan(attempts_max=200),
        ),
    )
    yield Mutant(
        "TF-05",
        "COO-2",
        "A checkpoint that a newer one subsumed counts as failed.",
        OURS,
        replace(product, coordinator_machine=control.CountsTheSubsumed),
        msgspec.structs.replace(
            _with(msgspec.structs.replace(expiring, interval_ms=6, max_concurrent=3)),
            restart=RestartPlan(attempts_max=200),
        ),
    )
    yield Mutant(
        "AB-01",
        "COO-2",
        "The asynchronous part of an aborted snapshot is not cancelled, and is acknowledged at its end.",
        OURS,
        replace(product, subtask_machine=control.StoresOnAfterAnAbort),
        late,
    )
    yield Mutant(
        "AB-02",
        "COO-2",
        "A subtask ignores that a checkpoint was aborted, and goes on with its part.",
        OURS,
        replace(product, subtask_machine=control.IgnoresAborts),
        late,
    )
    yield Mutant(
        "AD-01",
        "BAR-4",
        "The interval between checkpoints is ignored.",
        OURS,
        replace(product, coordinator_machine=control.KeepsNoInterval),
        several,
    )
    yield Mutant(
        "AD-02",
        "BAR-4",
        "No checkpoint is triggered as long as one is in flight, although several may be.",
        OURS,
        replace(product, coordinator_machine=control.TakesOneAtATime),
        several,
    )
    yield Mutant(
        "CA-01",
        "COO-2",
        "A checkpoint that expires is booked as lost with its attempt, so its failure is not counted.",
        OURS,
        replace(product, coordinator_machine=control.BooksExpiryAsALoss),
        late,
    )
    yield Mutant(
        "CA-02",
        "COO-4",
        "An acknowledgement of a subtask that does not exist ends its checkpoint, as if a newer one were complete.",
        OURS,
        replace(product, coordinator_machine=control.GivesUpForAStranger),
        _forged(several, Forgery.NOBODY),
    )
    yield Mutant(
        "MD-04",
        "COO-1",
        "A checkpoint whose metadata could not be written is taken for complete.",
        OURS,
        replace(product, coordinator_machine=control.TakesFailedMetadataForWritten),
        msgspec.structs.replace(
            several,
            faults=(
                ScheduledFault(
                    FailPrimaryWrites("totals[0]", metadata=True),
                    After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2),
                ),
            ),
        ),
    )
    yield Mutant(
        "ID-02",
        "REC-1",
        "The latest checkpoint is taken to be the last one by its name, so 9 comes after 10.",
        OURS,
        replace(product, coordinator_machine=control.ComparesIdsAsText),
        msgspec.structs.replace(
            _with(CheckpointPlan(first_id=9)),
            faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", nth=2, worker=True),
        ),
    )
    yield Mutant(
        "ID-03",
        "REC-6",
        "Attempts are compared by their names, so what attempt 9 sends late still counts in attempt 10.",
        OURS,
        replace(product, coordinator_machine=control.ComparesAttemptsAsText),
        _with_late_news(CheckpointPlan(first_id=8)),
    )
    yield from _restart_mutants(product)


def _restart_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs in restart strategies."""
    yield Mutant(
        "RK-01",
        "REC-3",
        "The failure rate counts failures that lie longer ago than its interval.",
        OURS,
        replace(product, coordinator_machine=control.CountsOldFailures),
        _restarting(RestartPlan("failure_rate", attempts_max=1, interval_ms=30), 1, 6),
    )
    yield Mutant(
        "RK-02",
        "REC-3",
        "The delay after a failure does not grow.",
        OURS,
        replace(product, coordinator_machine=control.NeverWaitsLonger),
        _restarting(RestartPlan("exponential_delay"), 1, 2),
    )
    yield Mutant(
        "RK-03",
        "REC-3",
        "The delay after failures grows on, although the job ran well for a long time.",
        OURS,
        replace(product, coordinator_machine=control.NeverResetsTheDelay),
        _restarting(
            RestartPlan("exponential_delay", delay_ms=40, factor=8, delay_ms_max=1_000, reset_after_ms=30),
            1,
            6,
        ),
    )
    yield Mutant(
        "RK-04",
        "REC-3",
        "Restarts in a row are counted on, although the job ran well for a long time; it is given up too early.",
        "planted by others into version 0.1.0",
        replace(product, coordinator_machine=control.NeverResetsTheRow),
        _restarting(RestartPlan("exponential_delay", attempts_max=1, reset_after_ms=30), 1, 6),
    )


def _restarting(restart: RestartPlan, *completions: int) -> TrialPlan:
    """Return a plan in which a subtask is killed after some completed checkpoints."""
    faults = [
        ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth))
        for nth in completions
    ]
    return msgspec.structs.replace(WITH_ZOMBIE, restart=restart, faults=tuple(faults))


def _with(checkpoints: CheckpointPlan) -> TrialPlan:
    workload = WorkloadPlan(batches=40, records_per_second=600)
    return msgspec.structs.replace(SIMULATED, workload=workload, checkpoints=checkpoints)


def _with_late_news(checkpoints: CheckpointPlan) -> TrialPlan:
    """Return a plan in which a subtask tells that its attempt failed when the next one may have begun."""
    cut_off = PartitionHalves(("totals[0]",), 44)
    return msgspec.structs.replace(
        WITH_ZOMBIE,
        checkpoints=checkpoints,
        deployment=DeploymentPlan(executors=2),
        network=NetworkPlan(latency_ms_max=20),
        restart=RestartPlan(delay_ms=5),
        faults=(ScheduledFault(cut_off, After(ProtocolPoint.SNAPSHOT_STORED, "totals[0]")),),
    )


def _failing(tolerated: int, *faults: ScheduledFault, metadata: bool = False) -> TrialPlan:
    """Return a plan in which one checkpoint cannot be written, and so many failures in a row are tolerated."""
    refused = FailPrimaryWrites("totals[0]", metadata=metadata)
    return msgspec.structs.replace(
        _with(CheckpointPlan(interval_ms=12, tolerated_failures=tolerated)),
        faults=(*faults, ScheduledFault(refused, After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2))),
    )


def _forged(plan: TrialPlan, forgery: Forgery) -> TrialPlan:
    """Return the plan with one forged acknowledgement, which comes while a checkpoint is pending."""
    fault = ForgeAcknowledgement("totals[0]", forgery)
    return msgspec.structs.replace(
        plan, faults=(ScheduledFault(fault, After(ProtocolPoint.CHECKPOINT_TRIGGERED)),)
    )


def _twice(plan: TrialPlan, direction: Direction) -> TrialPlan:
    """Return the plan with a fault that repeats the messages of one subtask, almost from the beginning."""
    fault = RepeatMessages("totals[0]", 1, 200, direction)
    return msgspec.structs.replace(
        plan, faults=(ScheduledFault(fault, After(ProtocolPoint.CHECKPOINT_TRIGGERED)),)
    )
