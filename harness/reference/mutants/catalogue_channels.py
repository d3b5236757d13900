"""The planted bugs of records in flight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.reference.mutants import channel_bugs as channels
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant, spark
from barrier_tck.harness.workloads.staged_jobs import MEETS_BROADCAST
from barrier_tck.harness.workloads.workload_names import job_of
from barrier_tck.reference_impl.runtime.components import Components

_SLOW = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan("lineage", batches=15, records_per_second=600),
    job=job_of("lineage", JobPlan(shape="joined")),
    deployment=DeploymentPlan(slow_vertex="met", slow_batch_ms=4),
    checkpoints=CheckpointPlan(
        mode="unaligned", interval_ms=12, max_concurrent=3, retained=2, async_ms_max=4
    ),
    network=NetworkPlan(channel_capacity=4),
    limits=LimitsPlan(virtual_ms=10_000),
)
"""A slow vertex with two inputs, before which records queue up."""


def _with(plan: TrialPlan, *faults: ScheduledFault, **checkpoints: Any) -> TrialPlan:
    changed = msgspec.structs.replace(plan.checkpoints, **checkpoints)
    return msgspec.structs.replace(plan, checkpoints=changed, faults=faults)


_ABORTING = msgspec.structs.replace(
    _with(_SLOW, interval_ms=8, timeout_ms=30, async_ms_max=34),
    network=NetworkPlan(channel_capacity=4, slow_channel=0, slow_factor=8),
)
"""Checkpoints expire while others are under way, and one channel is slow."""
_CROWDED = msgspec.structs.replace(
    _with(_SLOW, mode="aligned_timeout", interval_ms=6, max_concurrent=4, alignment_timeout_ms=15),
    job=job_of("lineage", JobPlan(shape="shuffles")),
    deployment=DeploymentPlan(slow_vertex="out", slow_batch_ms=4),
    network=NetworkPlan(channel_capacity=1),
)
"""Every channel is full, and several barriers wait in it, some of which go ahead."""
_KILLED = msgspec.structs.replace(
    _with(_SLOW, ScheduledFault(KillWorker("met[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, None, 3))),
    job=MEETS_BROADCAST,
)
"""A slow vertex with a keyed and a broadcast input is killed; the next checkpoint starts soon after the restore."""


def channel_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs that need records in flight to show."""
    yield Mutant(
        "UC-01",
        "UNA-1",
        "Only the channels of a vertex's first input are asked for records in flight.",
        "FLINK-18139",
        replace(product, subtask_driver=channels.AsksTheFirstInputOnly),
        _SLOW,
    )
    yield Mutant(
        "UC-13",
        "UNA-1",
        "Between the first barrier and the snapshot two more batches are processed, also from behind the barrier.",
        "FLINK-17568",
        replace(product, subtask_driver=channels.ReadsOnBeforeTheSnapshot),
        _SLOW,
    )
    yield Mutant(
        "UC-04",
        "UNA-1",
        "The late barrier of an aborted checkpoint ends the recording of its channel for a newer checkpoint.",
        "FLINK-20645",
        replace(product, subtask_machine=channels.ClosesForAnOldBarrier),
        _ABORTING,
    )
    yield Mutant(
        "UC-14",
        "SNP-2",
        "What was recorded of channels for a snapshot stays in memory when the snapshot is given up.",
        "planted by others into version 0.1.0",
        replace(product, subtask_driver=channels.KeepsWhatWasRecorded),
        _ABORTING,
        spark(
            ScheduledFault(
                FailPrimaryWrites("totals[0]", 2), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2)
            )
        ),
    )
    yield Mutant(
        "UC-15",
        "UNA-1",
        "A barrier that goes ahead takes older ones along in the output buffer; nobody records what these overtake.",
        "planted by others into version 0.1.0",
        replace(product, subtask_machine=channels.LeavesOlderBarriersBehind),
        _CROWDED,
    )
    yield Mutant(
        "UC-05",
        "UNA-4",
        "A snapshot leaves out the restored records that are not processed yet.",
        "FLINK-20654",
        replace(product, subtask_driver=channels.ForgetsWhatWasRestored),
        _KILLED,
    )
    yield Mutant(
        "UR-01",
        "UNA-4",
        "A snapshot that a broadcast barrier completes leaves out the rest of a keyed channel's restored records.",
        "FLINK-38544",
        replace(product, subtask_driver=channels.LosesTheRaceOfRecovery),
        _KILLED,
    )
    yield Mutant(
        "UR-02",
        "UNA-4",
        "Barriers that come while restored records are not processed yet are answered by nobody.",
        "review of Flink's pull request 28554",
        replace(product, subtask_driver=channels.LeavesRecoveryTooEarly),
        _with(_KILLED, *_KILLED.faults, timeout_ms=1_500),
    )
    yield Mutant(
        "UR-03",
        "UNA-4",
        "While restored records are not processed yet, an aligned barrier is neither taken nor declined.",
        "FLINK-40518",
        replace(product, subtask_driver=channels.IgnoresAlignedBarriersInRecovery),
        _with(_KILLED, *_KILLED.faults, mode="aligned_timeout", alignment_timeout_ms=6, timeout_ms=1_500),
    )
    yield Mutant(
        "UR-04",
        "UNA-5",
        "Barriers overtake the records of broadcast edges.",
        "FLINK-22815",
        replace(product, subtask_driver=channels.OvertakesBroadcasts),
        _KILLED,
    )
