"""The planted bugs of local recovery; see ``mutant_catalogue``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.kinds.damage_local_copy import DamageLocalCopy
from barrier_tck.faults.kinds.fail_local_writes import FailLocalWrites
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.targets import Damage
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.reference.mutants import local_recovery_bugs as local
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, SPARK, Mutant, interruption, kill
from barrier_tck.reference_impl.runtime.components import Components


def local_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs of local recovery: which copy is kept, trusted, or used."""
    plan = msgspec.structs.replace(
        SIMULATED,
        workload=WorkloadPlan(batches=30, records_per_second=600, keys=20),
        local_recovery=True,
        faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", nth=2),
    )

    def damaged(damage: Damage, *faults: ScheduledFault) -> TrialPlan:
        harm = ScheduledFault(DamageLocalCopy("totals[0]", damage), After(ProtocolPoint.ATTEMPT_FAILED))
        first = ScheduledFault(
            KillWorker("totals[0]"), After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", 2)
        )
        return msgspec.structs.replace(plan, faults=(first, harm, *faults))

    on_spark = msgspec.structs.replace(SPARK, job=JobPlan(shape="chained"), local_recovery=True)

    yield Mutant(
        "LO-01",
        "LOC-4",
        "Two stateful operators of one subtask share the directory of local copies.",
        "FLINK-12296",
        replace(product, local_state=local.SharesOneDirectory),
        msgspec.structs.replace(
            plan, job=JobPlan(shape="chained"), faults=damaged(Damage.MISSING).faults[:1]
        ),
        msgspec.structs.replace(on_spark, faults=damaged(Damage.MISSING).faults[:1]),
    )
    yield Mutant(
        "LO-03",
        "LOC-3",
        "Local files of a checkpoint that failed before its copy was registered are never removed.",
        "FLINK-28515, FLINK-8777",
        replace(product, local_state=local.ForgetsTheUnregistered),
        msgspec.structs.replace(
            plan,
            faults=(
                ScheduledFault(
                    FailPrimaryWrites("totals[0]"), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2)
                ),
            ),
        ),
    )
    yield Mutant(
        "LO-04",
        "LOC-4",
        "The abort of a checkpoint deletes every local file that it lists, also those that an older copy shares.",
        "FLINK-30863, FLINK-27693",
        replace(product, local_state=local.PrunesWhatOthersShare),
        msgspec.structs.replace(
            plan,
            checkpoints=CheckpointPlan(incremental=True, interval_ms=15, min_pause_ms=10),
            faults=(
                ScheduledFault(
                    FailPrimaryWrites("totals[1]"), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=4)
                ),
                ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=5)),
            ),
        ),
    )
    yield Mutant(
        "LO-05",
        "LOC-4",
        "Local state is trusted although nothing says that it belongs to the checkpoint that is restored.",
        "KAFKA-7192, KAFKA-10362",
        replace(product, local_state=local.TrustsWhateverIsThere),
        msgspec.structs.replace(
            plan, faults=kill(ProtocolPoint.SNAPSHOT_STORED, "totals[0]", nth=2, worker=True)
        ),
        msgspec.structs.replace(
            on_spark, faults=kill(ProtocolPoint.SNAPSHOT_STORED, "totals[0]", nth=2, worker=True)
        ),
    )
    yield Mutant(
        "LO-06",
        "LOC-4",
        "A local copy found damaged becomes valid again through an old marker.",
        "KAFKA-10664, KAFKA-10391",
        replace(product, local_state=local.BelievesOldMarkers),
        damaged(Damage.BIT_FLIPPED, *kill(ProtocolPoint.RESTORED, "totals[0]", worker=True)),
    )
    yield Mutant(
        "LO-07",
        "LOC-4",
        "A restore that was interrupted is noted as finished; the next one skips what is missing.",
        "KAFKA-16017, KAFKA-6711",
        replace(product, local_state=local.SealsUnfinishedRestores),
        # One interruption in thirty comes before its neighbour has begun to restore, so the plan has several.
        msgspec.structs.replace(
            damaged(Damage.MISSING, *(again for nth in range(1, 5) for again in interruption(nth))),
            network=NetworkPlan(latency_ms_max=10),
        ),
    )
    yield Mutant(
        "LO-08",
        "LOC-4",
        "A restore always reads the primary, and reports that the local copy served.",
        "planted here, no public report",
        replace(product, restore_reader=local.ClaimsTheLocalCopy),
        msgspec.structs.replace(plan, faults=damaged(Damage.MISSING).faults[:1]),
        msgspec.structs.replace(on_spark, faults=damaged(Damage.MISSING).faults[:1]),
    )
    yield Mutant(
        "LO-09",
        "LOC-4",
        "A local copy is compared with its own manifest only, so that another run's copy of the same name is taken.",
        "planted here, no public report",
        replace(product, local_state=local.TrustsItsOwnManifest),
        damaged(Damage.OTHER_LINEAGE),
    )
    yield Mutant(
        "LO-10",
        "LOC-4",
        "A local copy whose directory cannot be read counts as an empty one.",
        "planted here, no public report",
        replace(product, local_state=local.TakesTheUnreadableForEmpty),
        damaged(Damage.UNREADABLE),
    )
    yield Mutant(
        "LO-11",
        "LOC-4",
        "A local copy is taken whichever key groups it says that it holds.",
        "planted here, no public report",
        replace(product, local_state=local.IgnoresTheRange),
        damaged(Damage.OTHER_KEY_GROUPS),
    )
    yield Mutant(
        "LO-12",
        "LOC-4",
        "A restore takes the files of the local copy away; a second restore of the checkpoint finds none.",
        "planted here, no public report",
        replace(product, local_state=local.ConsumesTheCopy),
        msgspec.structs.replace(
            plan,
            faults=(
                *damaged(Damage.MISSING).faults[:1],
                *kill(ProtocolPoint.RESTORED, "totals[0]", worker=True),
            ),
        ),
    )
    yield Mutant(
        "LO-13",
        "LOC-2",
        "The first local copy for which the disk has no room fails its checkpoint.",
        "planted here, no public report",
        replace(product, local_state=local.FailsWithTheFullDisk),
        msgspec.structs.replace(
            plan,
            faults=(ScheduledFault(FailLocalWrites("totals[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED)),),
        ),
    )
    yield Mutant(
        "LO-14",
        "LOC-7",
        "The local copy has a format of its own, and lacks the last key group of each file.",
        "planted here, no public report",
        replace(product, state_backend=local.LeavesOutOfTheSecondFormat),
        msgspec.structs.replace(
            plan,
            checkpoints=msgspec.structs.replace(
                plan.checkpoints, compression="zstd", local_compression="none"
            ),
            faults=damaged(Damage.MISSING).faults[:1],
        ),
    )
    yield Mutant(
        "LO-15",
        "LOC-4",
        "If there is no room in memory for a copy, that of the newest complete checkpoint makes room.",
        "planted here, no public report",
        replace(product, local_state=local.MakesRoomForNewerCopies),
        msgspec.structs.replace(
            plan,
            checkpoints=msgspec.structs.replace(
                plan.checkpoints, local_copies="memory", local_memory_bytes=1_500
            ),
            faults=kill(ProtocolPoint.SNAPSHOT_STORED, "totals[0]", nth=4, worker=True),
        ),
    )
