"""The planted bugs of savepoints and of stops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.kinds.repeat_messages import RepeatMessages
from barrier_tck.faults.targets import Direction
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    NetworkPlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.reference.mutants import savepoint_bugs as bugs
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant, kill, pause
from barrier_tck.harness.workloads.staged_jobs import short_cut
from barrier_tck.harness.workloads.workload_names import job_of
from barrier_tck.reference_impl.runtime.components import Components

OURS = "planted here, no public report"
LONG = WorkloadPlan(batches=60, records_per_second=600)
SELDOM = CheckpointPlan(interval_ms=50, retained=2)
OFTEN = CheckpointPlan(interval_ms=6, max_concurrent=2, async_ms_max=30)
STOP = SavepointPlan(after_checkpoints=1, stop=True)
OVERTAKEN_STOP = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan("lineage", batches=40, records_per_second=2_000),
    job=short_cut(readers=2),
    deployment=DeploymentPlan(slow_vertex="met", slow_batch_ms=3),
    checkpoints=CheckpointPlan(mode="unaligned", interval_ms=20, async_ms_max=4),
    network=NetworkPlan(latency_ms_max=2, channel_capacity=2),
    savepoints=(STOP,),
)
"""A stop whose barrier overtakes records on one way, and waits for records on another one, where a broadcast is."""

STOP_AFTER_AN_ABORT = msgspec.structs.replace(
    SIMULATED,
    workload=LONG,
    checkpoints=CheckpointPlan(interval_ms=16, timeout_ms=14, async_ms_max=14, retained=2),
    network=NetworkPlan(latency_ms_max=2),
    savepoints=(SavepointPlan(after_checkpoints=0, delay_ms=20, stop=True),),
    faults=(
        ScheduledFault(
            RepeatMessages("source[0]", direction=Direction.BACKWARD, late_ms=6, duration_ms=1_000),
            After(ProtocolPoint.ATTEMPT_RUNNING),
        ),
    ),
)
"""Checkpoints expire, and a source hears of each abort twice, the second time when it has stopped already."""


STOPS_THAT_EXPIRE = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan("lineage", batches=60, batch_records=3, records_per_second=300, early_ends=1),
    job=job_of("lineage", JobPlan("joined")),
    checkpoints=CheckpointPlan(
        mode="aligned_timeout", interval_ms=15, timeout_ms=32, async_ms_max=30, alignment_timeout_ms=20
    ),
    network=NetworkPlan(latency_ms_max=6, slow_channel=1, slow_factor=4),
    savepoints=tuple(SavepointPlan(after_checkpoints=number, stop=True) for number in range(4)),
)
"""Some stops expire, and the job goes on; one source has come to its end by then."""


def _expires(delay_ms: int, slow_channel: int, latency_ms_max: int) -> TrialPlan:
    """Return a stop that expires, as do checkpoints before it: one channel is slow, and messages pass each other."""
    return msgspec.structs.replace(
        SIMULATED,
        workload=WorkloadPlan("keyed-totals", batches=60, batch_records=3, keys=8, records_per_second=600),
        deployment=DeploymentPlan(slow_vertex="totals", slow_batch_ms=3),
        checkpoints=CheckpointPlan(mode="unaligned", interval_ms=12, timeout_ms=90, max_concurrent=3),
        network=NetworkPlan(latency_ms_max=latency_ms_max, slow_channel=slow_channel, slow_factor=20),
        savepoints=(SavepointPlan(after_checkpoints=0, delay_ms=delay_ms, stop=True),),
    )


def savepoint_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs that show with savepoints, and those of sinks that were reported together with them."""
    at_least_once = msgspec.structs.replace(SELDOM, mode="at_least_once")
    yield Mutant(
        "AL-04",
        "COO-5",
        "In at-least-once mode, nobody stops at the barrier of the savepoint with which the job is stopped.",
        "hazelcast-jet #1069",
        replace(product, subtask_machine=bugs.GoesOnBehindTheLastBarrier),
        _plan(STOP, checkpoints=at_least_once),
    )
    yield Mutant(
        "AL-14",
        "COO-5",
        "Only sources stop at that barrier, and only after one more batch; other subtasks read on behind it.",
        "hazelcast-jet #1073",
        replace(product, subtask_machine=bugs.StopsSourcesOnly, subtask_driver=bugs.EmitsOneMoreBatch),
        _plan(STOP),
    )
    yield Mutant(
        "CO-05",
        "REC-1",
        "Sinks commit for a savepoint, but a recovery goes back to the checkpoint before it.",
        "FLINK-10354, FLINK-14145",
        replace(product, coordinator_machine=bugs.RecoversFromCheckpointsOnly),
        _plan(
            SavepointPlan(after_checkpoints=1),
            faults=kill(ProtocolPoint.TRANSACTIONS_COMMITTED, "sink[0]", nth=2, worker=True),
        ),
    )
    yield Mutant(
        "CO-09",
        "COO-5",
        "The checkpoint that was in flight when the stop was asked for is taken for the last savepoint.",
        "arroyo 2090cb97, arroyo #400",
        replace(product, coordinator_machine=bugs.TakesAnyForTheLast),
        _plan(STOP, checkpoints=OFTEN),
    )
    yield Mutant(
        "SI-01",
        "SNK-1",
        "The sink commits exactly the transaction of the checkpoint that it is told of, and forgets earlier ones.",
        "FLINK-10377",
        replace(product, build_operator=bugs.commits_exactly_this_one),
        _plan(SavepointPlan(after_checkpoints=1), SavepointPlan(after_checkpoints=3), checkpoints=OFTEN),
    )
    yield Mutant(
        "SI-03",
        "COO-3",
        "Transactions that were opened after the last checkpoint are left open by the next attempt.",
        "FLINK-23854",
        replace(product, build_operator=bugs.leaves_what_it_does_not_know),
        msgspec.structs.replace(
            SIMULATED, workload=LONG, faults=kill(ProtocolPoint.SNAPSHOT_TAKEN, "sink[0]", nth=2, worker=True)
        ),
    )
    yield Mutant(
        "SV-01",
        "COO-5",
        "A newer checkpoint ends a pending savepoint.",
        OURS,
        replace(product, coordinator_machine=bugs.SubsumesSavepoints),
        _plan(*(SavepointPlan(after_checkpoints=n) for n in (1, 2, 3)), checkpoints=OFTEN),
    )
    yield Mutant(
        "SV-02",
        "COO-5",
        "Retention deletes a savepoint when a newer checkpoint completes.",
        OURS,
        replace(product, checkpoint_storage=bugs.DeletesSavepoints),
        _plan(SavepointPlan(after_checkpoints=1)),
    )
    yield Mutant(
        "SV-03",
        "COO-5",
        "The state files of a savepoint lie among those of the checkpoints.",
        OURS,
        replace(product, checkpoint_storage=bugs.SharesFiles),
        _plan(SavepointPlan(after_checkpoints=1)),
    )
    yield Mutant(
        "SV-04",
        "COO-5",
        "An attempt that has only the commits of a stopped job to finish reads its input on meanwhile.",
        OURS,
        replace(product, subtask_driver=bugs.ReadsOnWhenItShouldCommit),
        _plan(STOP, faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "sink[0]", nth=2, worker=True)),
    )
    yield Mutant(
        "SV-05",
        "BAR-3",
        "A subtask that has stopped takes in no more than it has room for; its senders never reach their own barrier.",
        "planted by others into version 0.1.0",
        replace(product, subtask_driver=bugs.MakesNoRoom),
        OVERTAKEN_STOP,
    )
    yield Mutant(
        "SV-06",
        "COO-5",
        "A subtask that has stopped goes on when it learns late that an earlier checkpoint was aborted.",
        "planted by others into version 0.1.0",
        replace(product, subtask_machine=bugs.ReleasesAtAnyAbort),
        STOP_AFTER_AN_ABORT,
    )
    yield Mutant(
        "SV-07",
        "REC-6",
        "A subtask that has stopped fails when a newer barrier comes before the news that the savepoint was aborted.",
        OURS,
        replace(product, subtask_machine=bugs.WaitsForTheNotice),
        _expires(40, 1, 10),
    )
    yield Mutant(
        "SV-08",
        "REC-6",
        "A subtask that has stopped reads on when it gives an older checkpoint up.",
        OURS,
        replace(product, subtask_machine=bugs.ForgetsThatItStopped),
        _expires(25, 2, 6),
    )
    yield Mutant(
        "SV-10",
        "UNA-1",
        "A subtask that was released remembers what had held it; each newer barrier releases its channels again.",
        "planted by others into version 0.1.0",
        replace(product, subtask_machine=bugs.KeepsWhatHeldIt),
        STOPS_THAT_EXPIRE,
    )
    yield Mutant(
        "SV-11",
        "REC-6",
        "A source that had read everything when it was stopped is read again when the savepoint fails.",
        "planted by others into version 0.1.0",
        replace(product, subtask_driver=bugs.ReadsAnEndedSourceAgain),
        STOPS_THAT_EXPIRE,
    )
    yield Mutant(
        "SV-12",
        "STA-3",
        "A job that starts from a savepoint takes a repeated acknowledgement of an older, complete checkpoint for a "
        "late one, and deletes its files.",
        OURS,
        replace(product, coordinator_machine=bugs.RemovesWhatIsSuperseded),
        _plan(
            SavepointPlan(after_checkpoints=2, stop=True),
            checkpoints=CheckpointPlan(interval_ms=25, retained=3),
            faults=(
                ScheduledFault(
                    RepeatMessages("totals[0]", direction=Direction.FORWARD, late_ms=45, duration_ms=1_000),
                    After(ProtocolPoint.ATTEMPT_RUNNING),
                ),
            ),
        ),
    )
    yield Mutant(
        "SV-09",
        "COO-5",
        "When a savepoint fails, a stop that was asked for meanwhile is forgotten with it.",
        "planted by others into version 0.1.0",
        replace(product, coordinator_machine=bugs.ForgetsTheStop),
        _plan(
            *(
                SavepointPlan(after_checkpoints=0, delay_ms=delay_ms, stop=delay_ms > 20)
                for delay_ms in (20, 25)
            ),
            checkpoints=CheckpointPlan(interval_ms=50, timeout_ms=14, async_ms_max=14),
        ),
    )
    yield Mutant(
        "CO-12",
        "COO-5",
        "The job is over when every sink has committed something, be it for an earlier checkpoint.",
        "planted by others into version 0.1.0",
        replace(product, coordinator_machine=bugs.AnyCommitIsTheLast),
        _plan(
            STOP,
            faults=(
                ScheduledFault(
                    RepeatMessages("sink[0]", direction=Direction.FORWARD, late_ms=40, duration_ms=1_000),
                    After(ProtocolPoint.ATTEMPT_RUNNING),
                ),
                *pause("sink[0]", 100, ProtocolPoint.COMPLETION_NOTIFIED, nth=2),
            ),
        ),
    )
    yield Mutant(
        "CO-13",
        "REC-6",
        "When all input is consumed, the last checkpoint is taken though a savepoint is still in flight.",
        "planted by others into version 0.1.0",
        replace(product, coordinator_machine=bugs.LastBesideASavepoint),
        msgspec.structs.replace(
            SIMULATED,
            workload=WorkloadPlan(batches=12, records_per_second=600),
            checkpoints=CheckpointPlan(interval_ms=31, async_ms_max=60, max_concurrent=2),
            savepoints=tuple(
                SavepointPlan(after_checkpoints=0, delay_ms=20 + 6 * number) for number in range(8)
            ),
        ),
    )


def _plan(
    *savepoints: SavepointPlan,
    checkpoints: CheckpointPlan = SELDOM,
    faults: tuple[ScheduledFault, ...] = (),
) -> TrialPlan:
    return msgspec.structs.replace(
        SIMULATED, workload=LONG, checkpoints=checkpoints, savepoints=savepoints, faults=faults
    )
