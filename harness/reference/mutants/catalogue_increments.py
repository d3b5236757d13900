"""The planted bugs of incremental snapshots; see ``mutant_catalogue``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.kinds.lose_executor import LoseExecutor
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    RestartPlan,
    SavepointPlan,
    WorkloadPlan,
)
from barrier_tck.harness.reference.mutants import increment_bugs as bugs
from barrier_tck.harness.reference.mutants.backend_bugs import BuildsOnOtherRanges
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant, kill
from barrier_tck.reference_impl.runtime.components import Components

OURS = "planted here, no public report"
ONE_BY_ONE = CheckpointPlan(incremental=True, interval_ms=10)
SEVERAL = CheckpointPlan(incremental=True, interval_ms=6, max_concurrent=3, retained=1, async_ms_max=30)


def increment_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs of shared files."""
    plan = msgspec.structs.replace(
        SIMULATED,
        workload=WorkloadPlan(batches=60, records_per_second=300, keys=60),
        checkpoints=ONE_BY_ONE,
    )
    several = msgspec.structs.replace(plan, checkpoints=SEVERAL)
    claimed = msgspec.structs.replace(
        plan, savepoints=(SavepointPlan(after_checkpoints=2, stop=True, claim=True),)
    )
    killed = kill(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", nth=5, worker=True)

    yield Mutant(
        "IN-01",
        "SNP-5",
        "A new coordinator tidies up before it has registered the shared files of the checkpoints that it found.",
        "FLINK-6640, FLINK-6633, FLINK-6964",
        replace(product, coordinator_machine=bugs.ForgetsToRegister),
        msgspec.structs.replace(
            plan,
            faults=(ScheduledFault(CrashCoordinator(), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=3)),),
        ),
    )
    yield Mutant(
        "IN-02",
        "SNP-5",
        "Users of shared files are counted anew for a restart, and deletions from before it count down once more.",
        "FLINK-7268",
        replace(product, coordinator_machine=bugs.CountsDownAfterTheRestart),
        msgspec.structs.replace(
            plan, checkpoints=msgspec.structs.replace(ONE_BY_ONE, retained=1), faults=killed
        ),
    )
    yield Mutant(
        "IN-03",
        "SNP-5",
        "The end of an aborted checkpoint deletes every file that its parts name, also those that they reuse.",
        "FLINK-24611",
        replace(product, coordinator_machine=bugs.DiscardsAllOfTheAborted),
        several,
    )
    yield Mutant(
        "IN-05",
        "COO-5",
        "Once a newer checkpoint is complete, the files of the savepoint that the job was started from are deleted.",
        "FLINK-26985",
        replace(product, checkpoint_storage=bugs.OwnsWhatItStartedFrom),
        msgspec.structs.replace(plan, savepoints=(SavepointPlan(after_checkpoints=2, stop=True),)),
    )
    yield Mutant(
        "IN-10",
        "COO-5",
        "A savepoint that the job has claimed is never deleted.",
        OURS,
        replace(product, checkpoint_storage=bugs.LeavesWhatItClaimed),
        claimed,
    )
    yield Mutant(
        "IN-11",
        "STA-3",
        "A savepoint that the job has claimed is deleted when a newer checkpoint begins, before that is complete.",
        OURS,
        replace(product, checkpoint_storage=bugs.DeletesWhatItMayNeed),
        msgspec.structs.replace(
            claimed,
            checkpoints=CheckpointPlan(incremental=True, interval_ms=10, min_pause_ms=5),
            # The fourth, after two checkpoints and the savepoint: the first one of the job that has claimed it.
            faults=(
                ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=4)),
            ),
        ),
    )
    yield Mutant(
        "IN-12",
        "COO-5",
        "A state file that the savepoint already has, byte for byte, is not written again but referred to there.",
        OURS,
        replace(product, checkpoint_storage=bugs.UsesFilesOfTheUser),
        msgspec.structs.replace(
            plan,
            # A record of each source in 20 ms: some subtask sees none before the first checkpoint.
            workload=WorkloadPlan(batches=20, batch_records=1, records_per_second=50, keys=60),
            checkpoints=CheckpointPlan(interval_ms=10),
            savepoints=(SavepointPlan(after_checkpoints=2, stop=True),),
        ),
    )
    yield Mutant(
        "IN-13",
        "STA-3",
        "A new coordinator counts the shared files of the newest checkpoint only; older ones that stay lose theirs.",
        OURS,
        replace(product, coordinator_machine=bugs.CountsTheNewestOnly),
        msgspec.structs.replace(
            plan,
            checkpoints=msgspec.structs.replace(ONE_BY_ONE, retained=3),
            faults=(ScheduledFault(CrashCoordinator(), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=4)),),
        ),
    )
    yield Mutant(
        "IN-14",
        "SNP-6",
        "Increments are written as they are, whatever compression is configured; full snapshots have it.",
        OURS,
        replace(product, state_backend=bugs.LeavesIncrementsUnpacked),
        msgspec.structs.replace(plan, checkpoints=msgspec.structs.replace(ONE_BY_ONE, compression="zstd")),
    )
    yield Mutant(
        "IN-15",
        "STA-3",
        "Increments build on whatever was restored, also on what stores with other key groups wrote.",
        OURS,
        replace(product, state_backend=BuildsOnOtherRanges),
        msgspec.structs.replace(
            plan,
            job=JobPlan("", {"source": 1, "totals": 5, "sink": 1}),
            workload=WorkloadPlan(batches=250, batch_records=1, records_per_second=300, keys=80),
            checkpoints=CheckpointPlan(interval_ms=8, async_ms_max=2, incremental=True, retained=2),
            deployment=DeploymentPlan(
                max_parallelism=5, executors=7, slots_per_executor=1, elastic_wait_ms=5
            ),
            restart=RestartPlan(attempts_max=6, delay_ms=5),
            # Five, four, three, two: each time other key groups come together, or part.
            faults=tuple(
                ScheduledFault(LoseExecutor("sink[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth))
                for nth in (10, 15, 20)
            ),
        ),
    )
    yield Mutant(
        "IN-06",
        "STA-3",
        "A shared file is known by its subtask and its name in the backend, and the first one of a name wins.",
        "FLINK-29913",
        replace(product, checkpoint_storage=bugs.KnowsFilesByName),
        msgspec.structs.replace(several, faults=killed),
    )
    yield Mutant(
        "IN-07",
        "COO-3",
        "The shared files that a failed checkpoint has uploaded stay for ever.",
        "FLINK-30461",
        replace(product, checkpoint_storage=bugs.LeavesWhatWasUploaded),
        several,
    )
    yield Mutant(
        "IN-09",
        "SNP-5",
        "What a pending checkpoint may have chosen to reuse is deleted with the completed one that had it.",
        "SPARK-55892, risingwave #16260",
        replace(product, coordinator_machine=bugs.CollectsWhatIsChosen),
        several,
    )
