"""The planted bugs by id: what each is, which clause it breaks, and plans that give it a chance to show.

Ids are those of the catalogue of real bugs (``docs/mutants.md``). A plan names its mutant, so a saved plan
replays with it. A mutant is caught when a checker says INVALID for one of its plans; the product itself must
pass the same plans.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from faults.vocabulary import (
    After,
    CrashCoordinator,
    Damage,
    DamageLocalCopy,
    FailPrimaryWrites,
    Fault,
    KillExecutor,
    KillWorker,
    PauseWorker,
    ProtocolPoint,
    ScheduledFault,
)
from harness.errors import UsageProblem
from harness.plan import (
    CheckpointPlan,
    LimitsPlan,
    NetworkPlan,
    RestartPlan,
    TopologyPlan,
    TrialPlan,
    WorkloadPlan,
)
from harness.suts.backends import require_state_backend
from harness.suts.mutants import data, local, protocol, storage
from reference_impl.runtime.components import Components

TRIES = 40
"""Plans per mutant and world; each catalogued bug shows within a few of them."""


@dataclass(frozen=True)
class Mutant:
    """One planted bug."""

    id: str
    clause: str
    """The clause that it breaks first and foremost."""
    description: str
    source: str
    """The real bug that it re-expresses."""
    components: Components
    plan: TrialPlan
    """A simulated plan that gives it a chance; ``plans`` varies the seed."""
    spark_plan: TrialPlan | None = None
    """A plan for the Spark world, if the bug is looked for there too."""

    @property
    def worlds(self) -> tuple[str, ...]:
        """Return the worlds in which the bug is looked for."""
        return ("simulated",) if self.spark_plan is None else ("simulated", "spark")

    def plans(self, world: str) -> Iterator[TrialPlan]:
        """Yield plans for a world, ``TRIES`` at most; none if the bug is not looked for there."""
        base = self.plan if world == "simulated" else self.spark_plan
        if base is None:
            return
        for seed in range(TRIES if world == "simulated" else 4):
            yield msgspec.structs.replace(base, seed=seed, mutant=self.id)


def _kill(
    point: ProtocolPoint, subtask: str, nth: int = 1, worker: bool = False
) -> tuple[ScheduledFault, ...]:
    fault: Fault = KillWorker(subtask) if worker else KillExecutor(subtask)
    return (ScheduledFault(fault, After(point, subtask, nth)),)


def _interruption(nth: int) -> tuple[ScheduledFault, ...]:
    return _kill(ProtocolPoint.RESTORE_STARTED, "source[1]", nth, worker=True)


def _pause(subtask: str, duration_ms: int, point: ProtocolPoint, nth: int = 1) -> tuple[ScheduledFault, ...]:
    return (ScheduledFault(PauseWorker(subtask, duration_ms), After(point, subtask, nth)),)


_SIMULATED = TrialPlan(limits=LimitsPlan(virtual_ms=5_000), note="a plan for planted bugs")
_WITH_KILL = msgspec.structs.replace(
    _SIMULATED, faults=_kill(ProtocolPoint.COMPLETION_NOTIFIED, "totals[0]", worker=True)
)

_WITH_ZOMBIE = msgspec.structs.replace(_SIMULATED, workload=WorkloadPlan(batches=200, records_per_second=600))
"""Goes on for long enough that a subtask which was replaced while it stood still comes back to its successor."""

_AT_LEAST_ONCE = msgspec.structs.replace(
    _SIMULATED,
    workload=WorkloadPlan(batches=40, records_per_second=600),
    checkpoints=CheckpointPlan(mode="at_least_once", interval_ms=8, max_concurrent=3, async_ms_max=20),
    network=NetworkPlan(slow_channel=0, slow_factor=6),
)
"""One of two channels into a keyed subtask is slow, and several checkpoints are in flight."""

_SPARK = TrialPlan(
    workload=WorkloadPlan("keyed-totals", batches=60, batch_records=200, keys=40, records_per_second=4_000),
    topology=TopologyPlan(executors=3),
    checkpoints=CheckpointPlan(interval_ms=500, timeout_ms=20_000, retained=3),
    restart=RestartPlan(attempts_max=4, delay_ms=50),
    limits=LimitsPlan(wall_s=60),
    note="a plan for planted bugs, on Spark",
)


def _spark(*faults: ScheduledFault) -> TrialPlan:
    return msgspec.structs.replace(_SPARK, faults=faults)


def _mutants() -> Iterator[Mutant]:
    product = Components()
    yield Mutant(
        "AL-01",
        "BAR-1",
        "The source goes on emitting while its own checkpoint is being drawn.",
        "FLINK-2098",
        replace(product, subtask_driver=protocol.EmitsWhileDrawingCheckpoint),
        _SIMULATED,
        _spark(),
    )
    yield Mutant(
        "UC-03",
        "ALN-1",
        "Records behind the barrier are processed before the snapshot is taken.",
        "FLINK-17568",
        replace(product, subtask_driver=protocol.ReadsBehindTheBarrier),
        msgspec.structs.replace(
            _SIMULATED,
            workload=WorkloadPlan(batches=40, records_per_second=1_000),
            network=NetworkPlan(slow_channel=0, slow_factor=6),
        ),
    )
    yield Mutant(
        "SI-04",
        "SNK-1",
        "The snapshot succeeds while records are still in the sink's buffer.",
        "FLINK-7637, FLINK-6996, FLINK-11046",
        replace(product, build_operator=data.leaves_records_in_the_buffer),
        _WITH_KILL,
        # Two batches of a Parquet source fill the buffer exactly, so barriers must come after one: one source, and
        # less than the half second from batch to batch between checkpoints.
        msgspec.structs.replace(
            _SPARK,
            topology=TopologyPlan(sources=1, executors=3),
            checkpoints=CheckpointPlan(interval_ms=250, timeout_ms=20_000, retained=3),
            faults=tuple(
                kill
                for nth in (1, 2, 3)
                for kill in _kill(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", nth, worker=True)
            ),
        ),
    )
    yield Mutant(
        "CO-01",
        "COO-3",
        "State of late acknowledgements is never deleted.",
        "FLINK-5063",
        replace(product, coordinator_machine=protocol.KeepsLateState),
        msgspec.structs.replace(
            _SIMULATED,
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
            _SIMULATED,
            checkpoints=CheckpointPlan(timeout_ms=600_000),
            faults=_kill(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]"),
        ),
    )
    yield Mutant(
        "CO-08",
        "COO-1",
        "A failed worker is counted as having delivered its part; the checkpoint completes without it.",
        "risingwave #22384",
        replace(product, coordinator_machine=protocol.CountsTheDeadAsDone),
        msgspec.structs.replace(
            _SIMULATED,
            checkpoints=CheckpointPlan(async_ms_max=60),
            faults=_kill(ProtocolPoint.SNAPSHOT_STORED, "totals[0]", worker=True),
            network=NetworkPlan(latency_ms_max=2),
        ),
    )
    yield Mutant(
        "SO-01",
        "SRC-1",
        "A restored offset of 0 is taken for no state at all; the split is never read.",
        "bytewax b14ef037, FLINK-5969",
        replace(product, wrap_reader=data.TakesZeroForNothing),
        # The first checkpoint comes early, and input slowly: a second split is not begun yet, if there is one.
        msgspec.structs.replace(
            _WITH_KILL,
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
        _WITH_KILL,
        _spark(*_kill(ProtocolPoint.COMPLETION_NOTIFIED, "totals[0]", nth=2)),
    )
    yield Mutant(
        "SI-02",
        "SNK-1",
        "Recovery fails on a transaction that was committed already.",
        "FLINK-8086",
        replace(product, build_operator=data.refuses_to_commit_twice),
        msgspec.structs.replace(
            _SIMULATED, faults=_kill(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", worker=True)
        ),
        _spark(*_kill(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", nth=2)),
    )
    yield Mutant(
        "BE-01",
        "SNP-1",
        "The asynchronous part of a snapshot reads the live tables.",
        "FLINK-9269, FLINK-8699, bytewax f21f0f40",
        replace(product, state_backend=data.SnapshotsLiveTables),
        _SIMULATED,
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
        # The other source's channel is slow, so that both barriers of the first are there before its second.
        msgspec.structs.replace(
            _AT_LEAST_ONCE,
            topology=TopologyPlan(keyed=1),
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
            _SIMULATED,
            workload=WorkloadPlan(batches=40, records_per_second=600),
            checkpoints=CheckpointPlan(interval_ms=6, max_concurrent=3, async_ms_max=30),
            faults=_kill(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]", nth=2, worker=True),
        ),
    )
    yield Mutant(
        "AO-01",
        "ALO-1",
        "At-least-once mode snapshots at the first barrier and does not wait for the other channels.",
        "planted here, no public report",
        replace(product, subtask_machine=protocol.SnapshotsAtTheFirstBarrier),
        _AT_LEAST_ONCE,
    )
    yield from _of_faults(product)
    yield from _local_mutants(product)


def _of_faults(product: Components) -> Iterator[Mutant]:
    """Yield the bugs that only a fault shows, and those that show in storage alone."""
    yield Mutant(
        "SO-03",
        "SRC-1",
        "Opening a source erases what was just restored into it; it reads its splits from the beginning.",
        "FLINK-4000",
        replace(product, wrap_reader=data.ForgetsOnOpening),
        _WITH_KILL,
        _spark(*_kill(ProtocolPoint.COMPLETION_NOTIFIED, "totals[0]", nth=2)),
    )
    yield Mutant(
        "CO-06",
        "COO-6",
        "A checkpoint that cannot be read while the coordinator starts again is taken for broken and deleted.",
        "FLINK-7783",
        replace(product, checkpoint_storage=storage.DeletesTheUnreadable),
        msgspec.structs.replace(
            _SIMULATED,
            faults=(
                ScheduledFault(
                    CrashCoordinator(unreadable_ms=30), After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]")
                ),
            ),
        ),
    )
    yield Mutant(
        "SK-01",
        "SNK-1",
        "The sink commits at the barrier and does not wait for the completion of the checkpoint.",
        "planted here, no public report",
        replace(product, build_operator=data.commits_at_the_barrier),
        msgspec.structs.replace(
            _SIMULATED, faults=_kill(ProtocolPoint.SNAPSHOT_STORED, "sink[0]", nth=2, worker=True)
        ),
        _spark(*_kill(ProtocolPoint.SNAPSHOT_STORED, "sink[0]", nth=2, worker=True)),
    )
    yield Mutant(
        "AO-02",
        "ALO-2",
        "In at-least-once mode the sink commits at the barrier, for duplicates are allowed there.",
        "planted here, no public report",
        replace(product, build_operator=data.commits_at_the_barrier),
        msgspec.structs.replace(
            _AT_LEAST_ONCE, faults=_kill(ProtocolPoint.SNAPSHOT_STORED, "sink[0]", worker=True)
        ),
    )
    yield Mutant(
        "MD-01",
        "COO-1",
        "The metadata of a checkpoint is published without a sync; it goes with the coordinator's host.",
        "planted here, no public report",
        replace(product, checkpoint_storage=storage.PublishesUnsynced),
        msgspec.structs.replace(
            _SIMULATED,
            faults=(
                ScheduledFault(
                    CrashCoordinator(lose_unsynced=True),
                    After(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]"),
                ),
            ),
        ),
    )
    yield Mutant(
        "FE-01",
        "REC-2",
        "A late acknowledgement of an old attempt is accepted; it completes a checkpoint that was aborted.",
        "planted here, no public report",
        replace(product, coordinator_machine=protocol.AcceptsLateAcknowledgements),
        msgspec.structs.replace(
            _WITH_ZOMBIE, faults=_pause("sink[0]", 230, ProtocolPoint.SNAPSHOT_STORED, nth=2)
        ),
    )
    yield Mutant(
        "FE-02",
        "SNK-1",
        "A sink of an old attempt that goes on deletes its successor's prepared files as left over.",
        "planted here, no public report",
        replace(product, build_operator=data.sweeps_successors),
        msgspec.structs.replace(
            _WITH_ZOMBIE,
            checkpoints=CheckpointPlan(async_ms_max=30),
            faults=_pause("sink[0]", 230, ProtocolPoint.COMPLETION_NOTIFIED),
        ),
    )
    yield Mutant(
        "HB-01",
        "REC-6",
        "Heartbeats are ignored; a subtask that is silent is never declared lost.",
        "planted here, no public report",
        replace(product, failure_detector=protocol.WaitsForTheSilent),
        # The pause outlasts the trial: only heartbeats tell.
        msgspec.structs.replace(_SIMULATED, faults=_pause("totals[0]", 10_000, ProtocolPoint.SNAPSHOT_TAKEN)),
        msgspec.structs.replace(
            _spark(*_pause("totals[0]", 120_000, ProtocolPoint.SNAPSHOT_TAKEN, nth=2)),
            limits=LimitsPlan(wall_s=40),
        ),
    )
    yield Mutant(
        "RT-01",
        "STA-3",
        "Retention deletes the files of one checkpoint too many; its metadata stays.",
        "planted here, no public report",
        replace(product, coordinator_machine=protocol.DeletesOneTooMany),
        _SIMULATED,
        _spark(),
    )
    yield Mutant(
        "ID-01",
        "COO-4",
        "A restarted coordinator gives out ids again that were used before its crash.",
        "SeaTunnel #4716",
        replace(product, coordinator_machine=protocol.GivesIdsOutAgain),
        msgspec.structs.replace(
            _SIMULATED,
            faults=(ScheduledFault(CrashCoordinator(), After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]", 2)),),
        ),
    )


def _local_mutants(product: Components) -> Iterator[Mutant]:
    plan = msgspec.structs.replace(
        _SIMULATED,
        workload=WorkloadPlan(batches=30, records_per_second=600, keys=20),
        local_recovery=True,
        faults=_kill(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", nth=2),
    )

    def damaged(damage: Damage, *faults: ScheduledFault) -> TrialPlan:
        harm = ScheduledFault(DamageLocalCopy("totals[0]", damage), After(ProtocolPoint.ATTEMPT_FAILED))
        kill = ScheduledFault(KillWorker("totals[0]"), After(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", 2))
        return msgspec.structs.replace(plan, faults=(kill, harm, *faults))

    yield Mutant(
        "LO-01",
        "LOC-4",
        "Two stateful operators of one subtask share the directory of local copies.",
        "FLINK-12296",
        replace(product, local_state=local.SharesOneDirectory),
        msgspec.structs.replace(
            plan, topology=TopologyPlan(stateful_operators=2), faults=damaged(Damage.MISSING).faults[:1]
        ),
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
        "LO-05",
        "LOC-4",
        "Local state is trusted although nothing says that it is of the checkpoint that is restored.",
        "KAFKA-7192, KAFKA-10362",
        replace(product, local_state=local.TrustsWhateverIsThere),
        msgspec.structs.replace(
            plan, faults=_kill(ProtocolPoint.SNAPSHOT_STORED, "totals[0]", nth=2, worker=True)
        ),
    )
    yield Mutant(
        "LO-06",
        "LOC-4",
        "A local copy found damaged becomes valid again through an old marker.",
        "KAFKA-10664, KAFKA-10391",
        replace(product, local_state=local.BelievesOldMarkers),
        damaged(Damage.BIT_FLIPPED, *_kill(ProtocolPoint.RESTORED, "totals[0]", worker=True)),
    )
    yield Mutant(
        "LO-07",
        "LOC-4",
        "A restore that was interrupted is noted as finished; the next one skips what is missing.",
        "KAFKA-16017, KAFKA-6711",
        replace(product, local_state=local.SealsUnfinishedRestores),
        # One interruption in thirty comes before its neighbour has begun to restore: there are several.
        msgspec.structs.replace(
            damaged(Damage.MISSING, *(kill for nth in range(1, 5) for kill in _interruption(nth))),
            network=NetworkPlan(latency_ms_max=10),
        ),
    )


MUTANTS: dict[str, Mutant] = {mutant.id: mutant for mutant in _mutants()}
"""Every planted bug, by id."""


def components_of(plan: TrialPlan) -> Components:
    """Return the parts that a plan's runtime is built of.

    Raises UsageProblem if its mutant or its state backend is unknown, or if the mutant is itself a backend and
    the plan asks for another one.
    """
    if plan.mutant is None:
        components = Components()
    elif plan.mutant in MUTANTS:
        components = MUTANTS[plan.mutant].components
    else:
        raise UsageProblem(f"mutant {plan.mutant!r} is not known; known are {', '.join(MUTANTS)}")
    if plan.state_backend == TrialPlan().state_backend:
        return components
    if components.state_backend is not Components().state_backend:
        raise UsageProblem(f"mutant {plan.mutant!r} is a broken heap backend; leave state_backend at 'heap'")
    return replace(components, state_backend=require_state_backend(plan.state_backend))
