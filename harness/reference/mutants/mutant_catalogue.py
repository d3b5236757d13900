"""The planted bugs by id: what each one does, which clause it breaks, and plans in which it can show.

The ids are those of ``docs/mutants.md``. A plan names its mutant, so a saved plan replays with it. A mutant is caught
when a checker says INVALID for one of its plans; the product itself must pass the same plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
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
from barrier_tck.harness.reference.checkpoint_storages import storage_of
from barrier_tck.harness.reference.mutants import data_bugs as data
from barrier_tck.harness.reference.mutants import protocol_bugs as protocol
from barrier_tck.harness.reference.mutants import storage_bugs as storage
from barrier_tck.harness.reference.mutants.catalogue_channels import channel_mutants
from barrier_tck.harness.reference.mutants.catalogue_control import control_mutants
from barrier_tck.harness.reference.mutants.catalogue_elastic import elastic_mutants
from barrier_tck.harness.reference.mutants.catalogue_endings import ending_mutants
from barrier_tck.harness.reference.mutants.catalogue_graphs import graph_mutants
from barrier_tck.harness.reference.mutants.catalogue_hdfs import hdfs_mutants
from barrier_tck.harness.reference.mutants.catalogue_increments import increment_mutants
from barrier_tck.harness.reference.mutants.catalogue_local import local_mutants
from barrier_tck.harness.reference.mutants.catalogue_loops import loop_mutants
from barrier_tck.harness.reference.mutants.catalogue_recovery import recovery_mutants
from barrier_tck.harness.reference.mutants.catalogue_rescale import rescale_mutants
from barrier_tck.harness.reference.mutants.catalogue_savepoints import savepoint_mutants
from barrier_tck.harness.reference.mutants.catalogue_sources_and_sinks import source_and_sink_mutants
from barrier_tck.harness.reference.mutants.catalogue_suite import FLOW_BUGS
from barrier_tck.harness.reference.mutants.catalogue_timers import timer_mutants
from barrier_tck.harness.reference.mutants.mutant import (
    AT_LEAST_ONCE,
    SIMULATED,
    SPARK_AT_LEAST_ONCE,
    SPARK_GRAPH,
    WITH_KILL,
    WITH_ZOMBIE,
    Mutant,
    kill,
    pause,
    spark,
)
from barrier_tck.harness.reference.state_backends import require_state_backend
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.storage.checkpoint_storage import CheckpointStorage


def _mutants() -> Iterator[Mutant]:
    product = Components()
    yield Mutant(
        "AL-01",
        "BAR-1",
        "The source goes on emitting while its own checkpoint is being taken.",
        "FLINK-2098",
        replace(product, subtask_driver=protocol.EmitsWhileDrawingCheckpoint),
        SIMULATED,
        spark(),
    )
    yield Mutant(
        "UC-03",
        "ALN-1",
        "Records behind the barrier are processed before the snapshot is taken.",
        "FLINK-17568",
        replace(product, subtask_driver=protocol.ReadsBehindTheBarrier),
        msgspec.structs.replace(
            SIMULATED,
            workload=WorkloadPlan(batches=40, records_per_second=1_000),
            network=NetworkPlan(slow_channel=0, slow_factor=6),
        ),
        SPARK_GRAPH,
    )
    yield Mutant(
        "SI-04",
        "SNK-1",
        "The snapshot succeeds while records are still in the sink's buffer.",
        "FLINK-7637, FLINK-6996, FLINK-11046",
        replace(product, build_operator=data.leaves_records_in_the_buffer),
        WITH_KILL,
        msgspec.structs.replace(
            SPARK_GRAPH, faults=kill(ProtocolPoint.TRANSACTIONS_COMMITTED, "out[0]", nth=2, worker=True)
        ),
    )
    yield Mutant(
        "CO-01",
        "COO-3",
        "State of late acknowledgements is never deleted.",
        "FLINK-5063",
        replace(product, coordinator_machine=protocol.KeepsLateState),
        msgspec.structs.replace(
            SIMULATED,
            checkpoints=CheckpointPlan(timeout_ms=25, async_ms_max=80),
            workload=WorkloadPlan(batches=60),
        ),
    )
    yield Mutant(
        "CO-03",
        "REC-6",
        "A pending checkpoint waits for a task that has failed, and blocks the next ones.",
        "FLINK-7844",
        replace(product, coordinator_machine=protocol.WaitsForTheDead),
        msgspec.structs.replace(
            SIMULATED,
            checkpoints=CheckpointPlan(timeout_ms=600_000),
            faults=kill(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]"),
        ),
    )
    yield Mutant(
        "CO-08",
        "COO-1",
        "A failed worker is counted as having delivered its part; the checkpoint completes without it.",
        "risingwave #22384",
        replace(product, coordinator_machine=protocol.CountsTheDeadAsDone),
        msgspec.structs.replace(
            SIMULATED,
            checkpoints=CheckpointPlan(async_ms_max=60),
            faults=kill(ProtocolPoint.SNAPSHOT_STORED, "totals[0]", worker=True),
            network=NetworkPlan(latency_ms_max=2),
        ),
    )
    yield Mutant(
        "SO-01",
        "SRC-1",
        "A restored offset of 0 is taken for no state at all; the split is never read.",
        "bytewax b14ef037, FLINK-5969",
        replace(product, wrap_reader=data.TakesZeroForNothing),
        # The first checkpoint comes early and input comes slowly, so the second split, if there is one, is not begun
        # yet.
        msgspec.structs.replace(
            WITH_KILL,
            workload=WorkloadPlan(records_per_second=200),
            checkpoints=CheckpointPlan(interval_ms=4),
        ),
    )
    yield Mutant(
        "SO-02",
        "SRC-1",
        "Reading resumes at the last record, not at the next one.",
        "FLINK-4618, risingwave #5199",
        replace(product, wrap_reader=data.ResumesAtTheLastRecord),
        WITH_KILL,
        spark(*kill(ProtocolPoint.COMPLETION_NOTIFIED, "totals[0]", nth=2)),
    )
    yield Mutant(
        "SI-02",
        "SNK-1",
        "Recovery fails on a transaction that was committed already.",
        "FLINK-8086",
        replace(product, build_operator=data.refuses_to_commit_twice),
        msgspec.structs.replace(
            SIMULATED, faults=kill(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", worker=True)
        ),
        spark(*kill(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", nth=2)),
    )
    yield Mutant(
        "BE-01",
        "SNP-1",
        "The asynchronous part of a snapshot reads the live tables.",
        "FLINK-9269, FLINK-8699, bytewax f21f0f40",
        replace(product, state_backend=data.SnapshotsLiveTables),
        SIMULATED,
    )
    few = msgspec.structs.replace(
        SIMULATED,
        workload=WorkloadPlan(batches=20, keys=12),
        deployment=DeploymentPlan(write_through=False, cached_keys=3),
    )
    yield Mutant(
        "EV-01",
        "SNP-1",
        "Keys that make room for others in memory are not written to the state backend.",
        "planted here, no public report",
        replace(product, build_operator=data.forgets_what_it_evicts),
        few,
    )
    yield Mutant(
        "EV-02",
        "SNP-1",
        "A key that made room for others in memory begins anew when it comes back.",
        "planted here, no public report",
        replace(product, build_operator=data.finds_nothing),
        few,
    )
    yield Mutant(
        "AL-02",
        "BAR-2",
        "Triggers overtake each other on one source, and the one that was overtaken is carried out late.",
        "FLINK-2339, FLINK-17994",
        replace(
            product,
            subtask_driver=protocol.RunsTriggersInThreadsOfTheirOwn,
            subtask_machine=protocol.ExecutesOvertakenTriggers,
        ),
        # The other source's channel is slow, so that both barriers of the first source arrive before its own second
        # one.
        msgspec.structs.replace(
            AT_LEAST_ONCE,
            job=JobPlan(widths={"totals": 1}),
            network=NetworkPlan(slow_channel=1, slow_factor=10),
        ),
    )
    yield Mutant(
        "CO-10",
        "REC-1",
        "With several checkpoints in flight, recovery starts from the newest of them, which never completed.",
        "risingwave #5364",
        replace(product, coordinator_machine=protocol.RestoresTheUncommitted),
        msgspec.structs.replace(
            SIMULATED,
            workload=WorkloadPlan(batches=40, records_per_second=600),
            checkpoints=CheckpointPlan(interval_ms=6, max_concurrent=3, async_ms_max=30),
            faults=kill(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]", nth=2, worker=True),
        ),
    )
    yield Mutant(
        "OR-01",
        "BAR-2",
        "A keyed subtask puts a batch aside and processes the next one first.",
        "planted here, no public report",
        replace(product, subtask_driver=protocol.PutsBatchesAside),
        msgspec.structs.replace(SIMULATED, workload=WorkloadPlan(batches=40, records_per_second=600)),
    )
    yield Mutant(
        "SU-01",
        "COO-4",
        "A newer checkpoint does not end the older ones that are pending; they complete after it.",
        "planted here, no public report",
        replace(product, coordinator_machine=protocol.KeepsTheSubsumed),
        msgspec.structs.replace(
            SIMULATED,
            workload=WorkloadPlan(batches=40, records_per_second=600),
            checkpoints=CheckpointPlan(interval_ms=6, max_concurrent=3, async_ms_max=30),
        ),
    )
    yield Mutant(
        "MD-02",
        "COO-1",
        "Subtasks are told of a checkpoint's completion before its metadata is durable.",
        "planted here, no public report",
        replace(product, coordinator_machine=protocol.TellsBeforeItIsDurable),
        SIMULATED,
    )
    yield Mutant(
        "AO-01",
        "ALO-1",
        "At-least-once mode snapshots at the first barrier and does not wait for the other channels.",
        "planted here, no public report",
        replace(product, subtask_machine=protocol.SnapshotsAtTheFirstBarrier),
        AT_LEAST_ONCE,
        SPARK_AT_LEAST_ONCE,
    )
    yield from _of_faults(product)
    yield from local_mutants(product)
    yield from control_mutants(product)
    yield from recovery_mutants(product)
    yield from graph_mutants(product)
    yield from savepoint_mutants(product)
    yield from increment_mutants(product)
    yield from rescale_mutants(product)
    yield from elastic_mutants(product)
    yield from source_and_sink_mutants(product)
    yield from channel_mutants(product)
    yield from loop_mutants(product)
    yield from ending_mutants(product)
    yield from hdfs_mutants(product)
    yield from timer_mutants(product)


def _of_faults(product: Components) -> Iterator[Mutant]:
    """Yield the bugs that only show with a fault, and those that only show in storage."""
    yield Mutant(
        "SO-03",
        "SRC-1",
        "Opening a source erases what was just restored into it; it reads its splits from the beginning.",
        "FLINK-4000",
        replace(product, wrap_reader=data.ForgetsOnOpening),
        WITH_KILL,
        spark(*kill(ProtocolPoint.COMPLETION_NOTIFIED, "totals[0]", nth=2)),
    )
    yield Mutant(
        "RR-01",
        "REC-1",
        "After a restore every split is read from its beginning, and what was read before is dropped.",
        "planted here, no public report",
        replace(product, wrap_reader=data.ReadsAgainAndDrops),
        WITH_KILL,
    )
    yield Mutant(
        "CO-06",
        "COO-6",
        "A checkpoint that cannot be read while the coordinator restarts is taken for broken and deleted.",
        "FLINK-7783",
        replace(product, checkpoint_storage=storage.DeletesTheUnreadable),
        msgspec.structs.replace(
            SIMULATED,
            faults=(
                ScheduledFault(
                    CrashCoordinator(unreadable_ms=30), After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]")
                ),
            ),
        ),
        spark(
            ScheduledFault(
                CrashCoordinator(unreadable_ms=1_500), After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]")
            )
        ),
    )
    yield Mutant(
        "SK-01",
        "SNK-1",
        "The sink commits at the barrier and does not wait for the completion of the checkpoint.",
        "planted here, no public report",
        replace(product, build_operator=data.commits_at_the_barrier),
        msgspec.structs.replace(
            SIMULATED, faults=kill(ProtocolPoint.SNAPSHOT_STORED, "sink[0]", nth=2, worker=True)
        ),
        spark(*kill(ProtocolPoint.SNAPSHOT_STORED, "sink[0]", nth=2, worker=True)),
    )
    yield Mutant(
        "AO-05",
        "ALO-1",
        "At-least-once mode holds channels back until all barriers have come, as exactly-once mode does.",
        "planted here, no public report",
        replace(product, subtask_machine=protocol.AlignsInEveryMode),
        AT_LEAST_ONCE,
        SPARK_AT_LEAST_ONCE,
    )
    yield Mutant(
        "AO-02",
        "ALO-2",
        "In at-least-once mode the sink commits at the barrier, because duplicates are allowed there.",
        "planted here, no public report",
        replace(product, build_operator=data.commits_at_the_barrier),
        msgspec.structs.replace(
            AT_LEAST_ONCE, faults=kill(ProtocolPoint.SNAPSHOT_STORED, "sink[0]", worker=True)
        ),
    )
    yield Mutant(
        "AO-03",
        "SNK-1",
        "A sink that is stopped commits what it has prepared, because duplicates are allowed there.",
        "planted here, no public report",
        replace(product, build_operator=data.commits_when_it_is_stopped),
        msgspec.structs.replace(
            AT_LEAST_ONCE,
            job=JobPlan(widths={"sink": 2}),
            faults=(
                *kill(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]", nth=5, worker=True),
                *kill(ProtocolPoint.SNAPSHOT_TAKEN, "totals[1]", nth=10, worker=True),
            ),
        ),
    )
    yield Mutant(
        "MD-01",
        "COO-1",
        "The metadata of a checkpoint is published without a sync; it is lost with the coordinator's host.",
        "planted here, no public report",
        replace(product, checkpoint_storage=storage.PublishesUnsynced),
        msgspec.structs.replace(
            SIMULATED,
            faults=(
                ScheduledFault(
                    CrashCoordinator(lose_unsynced=True),
                    After(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]"),
                ),
            ),
        ),
        spark(
            ScheduledFault(
                CrashCoordinator(lose_unsynced=True), After(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]")
            )
        ),
    )
    yield Mutant(
        "MD-03",
        "STA-3",
        "The checksum of a state file covers its first bytes only; writer and reader agree on it.",
        "planted here, no public report",
        replace(product, checkpoint_storage=storage.ChecksTheBeginning),
        SIMULATED,
        spark(),
    )
    yield Mutant(
        "FE-01",
        "REC-2",
        "A late acknowledgement of an old attempt is accepted; it completes a checkpoint that was aborted.",
        "planted here, no public report",
        replace(product, coordinator_machine=protocol.AcceptsLateAcknowledgements),
        msgspec.structs.replace(
            WITH_ZOMBIE, faults=pause("sink[0]", 230, ProtocolPoint.SNAPSHOT_STORED, nth=2)
        ),
    )
    yield Mutant(
        "FE-02",
        "SNK-1",
        "A sink of an old attempt that goes on deletes its successor's prepared files as left over.",
        "planted here, no public report",
        replace(product, build_operator=data.sweeps_successors),
        msgspec.structs.replace(
            WITH_ZOMBIE,
            checkpoints=CheckpointPlan(async_ms_max=30),
            faults=pause("sink[0]", 230, ProtocolPoint.COMPLETION_NOTIFIED),
        ),
    )
    yield Mutant(
        "HB-01",
        "REC-6",
        "Heartbeats are ignored; a subtask that is silent is never declared lost.",
        "planted here, no public report",
        replace(product, failure_detector=protocol.WaitsForTheSilent),
        # The pause outlasts the trial, so only missing heartbeats show it.
        msgspec.structs.replace(SIMULATED, faults=pause("totals[0]", 10_000, ProtocolPoint.SNAPSHOT_TAKEN)),
        msgspec.structs.replace(
            spark(*pause("totals[0]", 120_000, ProtocolPoint.SNAPSHOT_TAKEN, nth=2)),
            limits=LimitsPlan(wall_s=40),
        ),
    )
    yield Mutant(
        "RT-01",
        "STA-3",
        "Retention deletes the files of one checkpoint too many; its metadata stays.",
        "planted here, no public report",
        replace(product, coordinator_machine=protocol.DeletesOneTooMany),
        SIMULATED,
        spark(),
    )
    yield Mutant(
        "ID-01",
        "COO-4",
        "A restarted coordinator reuses ids that were given out before its crash.",
        "SeaTunnel #4716",
        replace(product, coordinator_machine=protocol.GivesIdsOutAgain),
        msgspec.structs.replace(
            SIMULATED,
            faults=(ScheduledFault(CrashCoordinator(), After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]", 2)),),
        ),
        spark(ScheduledFault(CrashCoordinator(), After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]", 2))),
    )


MUTANTS: dict[str, Mutant] = {mutant.id: mutant for mutant in _mutants()}
"""Every planted bug, by id."""

_OWN_BACKEND = TrialPlan().state_backend
"""The default backend of a plan, which is that of the components themselves."""


def components_of(plan: TrialPlan, elsewhere: Callable[..., CheckpointStorage] | None = None) -> Components:
    """Return the parts from which a plan's runtime is built.

    Raises UsageProblem if its mutant or its state backend is unknown, or if the mutant is itself a backend and
    the plan asks for another one.
    """
    if plan.mutant is None:
        components = Components()
    elif plan.mutant in MUTANTS:
        components = MUTANTS[plan.mutant].components
    elif plan.mutant in FLOW_BUGS:
        components = FLOW_BUGS[plan.mutant].components
    else:
        raise UsageProblem(
            f"mutant {plan.mutant!r} is not known; known mutants: {', '.join((*MUTANTS, *FLOW_BUGS))}"
        )
    if plan.checkpoints.storage != "files":
        components = replace(components, checkpoint_storage=storage_of(plan, components, elsewhere))
    if plan.state_backend == _OWN_BACKEND:
        return components
    if components.state_backend is not Components().state_backend:
        raise UsageProblem(f"mutant {plan.mutant!r} is a broken heap backend; leave state_backend at 'heap'")
    return replace(components, state_backend=require_state_backend(plan.state_backend))
