"""Loops, and global snapshots of any graph by Chandy and Lamport's algorithm.

In a loop, what is under way on the feedback edge is part of every checkpoint, and the job ends when nothing is. Under
Chandy-Lamport any process may initiate a snapshot, every channel is recorded, and the application goes on.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from barrier_tck.conformance.plans import OTHER_STATEFUL, SINK, STATEFUL, kill_worker, varied, with_faults
from barrier_tck.conformance.replays import STILL_THERE, still_replayed
from barrier_tck.conformance.trials import Trial, Trials, exactly_one, happened, require
from barrier_tck.faults.kinds.black_hole_channel import BlackHoleChannel
from barrier_tck.faults.targets import COORDINATOR, Direction
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import SINK as SINK_KIND
from barrier_tck.harness.plan.job_graph import SOURCE as SOURCE_KIND
from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, OperatorPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    RestartPlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.operations import (
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    JobFinished,
    JobStopped,
    MessagesObserved,
)
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.staged_jobs import FORKED, ONE_RECORD

loops = pytest.mark.needs(Capability.LOOPS, Capability.SNAPSHOT_INSPECTION)
recovers = pytest.mark.needs(Capability.LOOPS, Capability.ATTEMPTS, Capability.SNAPSHOT_INSPECTION)
marked = pytest.mark.needs(Capability.CHANDY_LAMPORT, Capability.LOOPS, Capability.SNAPSHOT_INSPECTION)
observed = pytest.mark.needs(Capability.CHANDY_LAMPORT, Capability.LOOPS, Capability.MESSAGE_LOG)
ONCE_MORE = (pytest.mark.long, pytest.mark.nightly_on_clusters)
"""Marks of what simpler loops show already."""

LOOP: TrialPlan = varied(
    workload=WorkloadPlan("rounds", batches=20, batch_records=3, keys=5, records_per_second=300),
    job=JobPlan("loop"),
    checkpoints=CheckpointPlan(interval_ms=12, max_concurrent=2),
)
"""Records go up to three times round a loop of a vertex with state and one without."""

EXCHANGE: TrialPlan = msgspec.structs.replace(
    LOOP,
    job=JobPlan("exchange"),
    checkpoints=CheckpointPlan(
        protocol="chandy_lamport",
        initiators=(("hub[1]",), ("read[0]", "hub[0]")),
        interval_ms=12,
        max_concurrent=2,
    ),
)
"""Processes that all reach each other; they take turns at initiating a snapshot."""


def _killed_twice(plan: TrialPlan, second: int = 3) -> TrialPlan:
    """Return the plan with two kills: when a sink learns of the first complete checkpoint, and of the nth."""
    return with_faults(
        kill_worker(STATEFUL, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 1)),
        kill_worker(OTHER_STATEFUL, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, second)),
        plan=plan,
    )


def _often(plan: TrialPlan) -> TrialPlan:
    """Return the plan with many checkpoints: on a cluster, most come while nothing is under way in a loop."""
    return msgspec.structs.replace(plan, checkpoints=msgspec.structs.replace(plan.checkpoints, interval_ms=4))


def _in_flight(trial: Trial) -> int:
    return trial.finding("dataflow").counts["in_flight"]


NARROW = {
    "loop": {},
    "mesh": {},
    "nested": {"outer": 1},
    "two-loops": {"first": 1, "first.again": 1, "second": 2, "out": 1},
}
"""Shapes with the widths of some vertices: no job has more than nine subtasks, so that it fits a small cluster."""


@pytest.mark.long_on_clusters
@pytest.mark.long
@loops
@pytest.mark.clause("CHL-5")
@pytest.mark.parametrize(
    "shape",
    [
        "loop",
        *(pytest.param(shape, marks=ONCE_MORE) for shape in ("mesh", "nested", "two-loops")),
    ],
)
def test_what_is_under_way_in_a_loop_is_part_of_its_checkpoints(trials: Trials, shape: str) -> None:
    for trial in trials.all_valid(msgspec.structs.replace(_often(LOOP), job=JobPlan(shape, NARROW[shape]))):
        happened(trial.finding("dataflow").counts["checkpoints"] >= 1, "a checkpoint was judged", trial)
        happened(_in_flight(trial) > 0, "something was under way in a checkpoint", trial)


@pytest.mark.long_on_clusters
@pytest.mark.long
@recovers
@pytest.mark.clause("CHL-5", "REC-1")
def test_a_loop_is_recovered_exactly_once(trials: Trials) -> None:
    for trial in trials.all_valid(_killed_twice(_often(LOOP))):
        happened(trial.record.recoveries >= 1, "the job recovered", trial)
        happened(_in_flight(trial) > 0, "something was under way in a checkpoint", trial)


@pytest.mark.nightly_on_clusters
@loops
@pytest.mark.clause("CHL-5", "REC-6")
def test_a_loop_ends_when_nothing_is_under_way_in_it(trials: Trials) -> None:
    without = msgspec.structs.replace(LOOP, checkpoints=CheckpointPlan(enabled=False))
    for trial in trials.all_valid(without):
        happened(trial.finding("dataflow").counts["records"] > 50, "records went round", trial)
        require(trial.record.recoveries == 0, "no attempt failed", trial)


HIDDEN: TrialPlan = msgspec.structs.replace(
    LOOP, seed=15, workload=ONE_RECORD, job=FORKED, network=NetworkPlan(latency_ms_max=12)
)
"""A record goes round a loop 20 times, and each time a copy of it ends. One seed in ten lets a wave meet the moment."""


@loops
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("CHL-5", "REC-6")
def test_a_loop_does_not_end_because_a_copy_hides_the_record_that_is_under_way(trials: Trials) -> None:
    """Processes are asked at different moments. A copy may be counted where it is taken and not where it was sent: then
    the sums of one wave are equal, although the record goes on."""
    for trial in trials.all_valid(HIDDEN):
        require(trial.record.recoveries == 0, "no attempt failed", trial)
        require(any(trial.history.of(JobFinished)), "the job ended", trial)


@pytest.mark.long
@marked
@pytest.mark.clause("CHL-1", "CHL-2")
def test_any_process_initiates_and_every_snapshot_is_a_consistent_cut(trials: Trials) -> None:
    for trial in trials.all_valid(EXCHANGE):
        counts = trial.finding("dataflow").counts
        happened(counts["checkpoints"] >= 2 and counts["in_flight"] > 0, "snapshots with messages", trial)
        if trials.can(Capability.MESSAGE_LOG):
            cuts = trial.finding("consistent-cut").counts
            require(cuts["checkpoints"] == counts["checkpoints"], "every cut was judged", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.long
@marked
@pytest.mark.clause("CHL-2", "REC-1")
def test_a_restored_snapshot_replays_the_messages_of_its_channels_first(trials: Trials) -> None:
    for trial in trials.all_valid(_killed_twice(EXCHANGE)):
        happened(trial.record.recoveries >= 1, "the job recovered", trial)


QUEUED: TrialPlan = msgspec.structs.replace(
    LOOP,
    workload=msgspec.structs.replace(LOOP.workload, batches=12, records_per_second=1_200),
    deployment=DeploymentPlan(slow_vertex="head", slow_batch_ms=4),
    checkpoints=CheckpointPlan(interval_ms=6, max_concurrent=2),
)


def _queued(mode: CheckpointingMode) -> TrialPlan:
    return varied(
        QUEUED, checkpoints=msgspec.structs.replace(QUEUED.checkpoints, mode=mode, alignment_timeout_ms=2)
    )


REPLAYED: dict[str, TrialPlan] = {
    "exactly_once": _queued("exactly_once"),
    "unaligned": _queued("unaligned"),
    "aligned_timeout": _queued("aligned_timeout"),
    "chandy_lamport": varied(
        QUEUED, checkpoints=msgspec.structs.replace(QUEUED.checkpoints, protocol="chandy_lamport")
    ),
    "unaligned, batches in pieces": msgspec.structs.replace(
        QUEUED,
        checkpoints=msgspec.structs.replace(QUEUED.checkpoints, mode="unaligned"),
        network=NetworkPlan(buffer_bytes=40),
    ),
}
"""Records wait before a slow vertex, on channels whose records are part of checkpoints in each of the modes."""


@pytest.mark.needs(
    Capability.LOOPS,
    Capability.CHANDY_LAMPORT,
    Capability.ATTEMPTS,
    Capability.SNAPSHOT_INSPECTION,
)
@pytest.mark.clause("UNA-4", "CHL-5", "CHL-2")
@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(
            mode,
            marks=pytest.mark.nightly_on_clusters
            if mode == "unaligned"
            else pytest.mark.needs(Capability.DETERMINISTIC_REPLAY),
        )
        for mode in REPLAYED
    ],
)
def test_a_checkpoint_that_starts_while_restored_records_of_a_loop_wait_holds_what_is_left_of_them_once(
    trials: Trials, mode: str
) -> None:
    """Aligned barriers too: what is under way on a feedback edge is recorded in every mode.

    Where no barrier or marker overtakes, only in virtual time is it certain that one comes before the replay is over.
    """
    trials.valid_until(_killed_twice(REPLAYED[mode], second=2), still_replayed, STILL_THERE)


@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.needs(Capability.UNALIGNED_CHECKPOINTS)
@pytest.mark.clause("UNA-4", "CHL-5", "REC-6")
def test_what_waits_to_leave_a_loop_leaves_it_after_a_restore_and_the_loop_ends(trials: Trials) -> None:
    """What is restored in an output buffer to a vertex outside was not sent round the loop, where nobody takes it."""
    queued = _queued("unaligned")
    plan = msgspec.structs.replace(
        queued,
        workload=msgspec.structs.replace(queued.workload, batches=8),
        deployment=DeploymentPlan(slow_vertex="out", slow_batch_ms=6),
        network=NetworkPlan(channel_capacity=1),
        # In a loop that never ends, much happens in virtual time.
        limits=LimitsPlan(virtual_ms=6_000),
    )
    for trial in trials.all_valid(_killed_twice(plan, second=2)):
        restored = {line.operation.restored_checkpoint for line in trial.history.of(AttemptStarted)}
        leaving = [
            channel
            for view in trial.history.checkpoints
            if view.checkpoint in restored
            for channel in view.in_flight
            if channel.receiver.partition("[")[0] == "out"
        ]
        happened(any(channel.at_sender for channel in leaving), "records waited to leave the loop", trial)


STOPPED: dict[str, TrialPlan] = {
    name: msgspec.structs.replace(plan, savepoints=(SavepointPlan(after_checkpoints=1, stop=True),))
    for name, plan in (
        (
            "loop",
            msgspec.structs.replace(
                _queued("exactly_once"), deployment=DeploymentPlan(slow_vertex="again", slow_batch_ms=4)
            ),
        ),
        ("unaligned", _queued("unaligned")),
        ("chandy-lamport", REPLAYED["chandy_lamport"]),
        ("any initiator", EXCHANGE),
    )
}
"""Jobs in which records are under way on recorded channels when they are stopped."""


@pytest.mark.nightly_on_clusters
@pytest.mark.long
@pytest.mark.begun_first
@pytest.mark.needs(
    Capability.LOOPS, Capability.CHANDY_LAMPORT, Capability.SAVEPOINTS, Capability.SNAPSHOT_INSPECTION
)
@pytest.mark.clause("COO-5", "CHL-5", "CHL-2", "BAR-3")
@pytest.mark.parametrize(
    "where",
    [
        *(pytest.param(name, marks=pytest.mark.nightly_on_clusters) for name in ("loop", "chandy-lamport")),
        pytest.param("unaligned", marks=ONCE_MORE),
        pytest.param("any initiator", marks=pytest.mark.long),
    ],
)
def test_a_job_with_a_loop_or_with_markers_is_stopped_and_goes_on_with_what_was_under_way(
    trials: Trials, where: str
) -> None:
    """Behind its own barrier a subtask still reads what comes ahead of those of others, and does nothing with it."""
    under_way = 0
    for trial in trials.all_valid(STOPPED[where]):
        stops = [line.operation.checkpoint for line in trial.history.of(JobStopped)]
        stopped = exactly_one(stops, "the job was stopped once", trial)
        views = [view for view in trial.history.checkpoints if view.savepoint is not None]
        view = exactly_one(views, "one savepoint was taken", trial)
        require(stopped == view.checkpoint, f"it stopped with {view.checkpoint}, not {stopped}", trial)
        under_way += len(view.in_flight)
        finding = trial.finding("stop-with-savepoint")
        require(finding.verdict is Verdict.VALID and "COO-5" in finding.clauses, finding.summary, trial)
        restored = [line.operation.restored_checkpoint for line in trial.history.of(AttemptStarted)]
        require(stopped in restored, f"the second job started from it, and not {restored}", trial)
        require(any(trial.history.of(JobFinished)), "and finished", trial)
    happened(under_way, "something was under way in a savepoint")


@pytest.mark.nightly_on_clusters
@pytest.mark.long
@pytest.mark.needs(
    Capability.LOOPS,
    Capability.CHANDY_LAMPORT,
    Capability.SAVEPOINTS,
    Capability.SNAPSHOT_INSPECTION,
    Capability.SLOW_SNAPSHOTS,
    Capability.DETERMINISTIC_REPLAY,
)
@pytest.mark.clause("COO-5", "COO-2", "CHL-5", "SNK-1")
@pytest.mark.parametrize("where", ["loop", "chandy-lamport"])
def test_a_stop_that_fails_costs_nothing_of_what_came_meanwhile(trials: Trials, where: str) -> None:
    """What a stopped subtask has read on is processed when the job goes on.

    In real time checkpoints have seconds.
    """
    stop = STOPPED[where]
    plan = msgspec.structs.replace(
        stop,
        checkpoints=msgspec.structs.replace(
            stop.checkpoints, interval_ms=15, timeout_ms=32, async_ms_max=30, tolerated_failures=1_000
        ),
        savepoints=tuple(
            SavepointPlan(after_checkpoints=0, delay_ms=15 + 20 * number, stop=True) for number in range(4)
        ),
        limits=LimitsPlan(virtual_ms=5_000),
    )
    expired = 0
    for trial in trials.all_valid(plan):
        triggered = [line.operation for line in trial.history.of(CheckpointTriggered)]
        stops = [trigger.checkpoint for trigger in triggered if trigger.stops]
        expired += sum(line.operation.checkpoint in stops for line in trial.history.of(CheckpointAborted))
    happened(expired, "a stop expired")


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(
    Capability.LOOPS, Capability.CHANDY_LAMPORT, Capability.SAVEPOINTS, Capability.SNAPSHOT_INSPECTION
)
@pytest.mark.clause("COO-5", "CHL-1", "BAR-3")
def test_a_savepoint_is_not_given_up_for_a_checkpoint_that_others_initiate(trials: Trials) -> None:
    """Its markers and those of a newer checkpoint would cross, and a subtask takes its snapshots in order."""
    plan = msgspec.structs.replace(
        EXCHANGE,
        checkpoints=msgspec.structs.replace(
            EXCHANGE.checkpoints,
            interval_ms=8,
            min_pause_ms=3,
            max_concurrent=1,
            initiators=(("hub[0]",), ("read[0]",)),
        ),
        network=NetworkPlan(slow_channel=0, slow_factor=20, latency_ms_max=1),
        savepoints=(SavepointPlan(after_checkpoints=1), SavepointPlan(after_checkpoints=3)),
    )
    for trial in trials.all_valid(plan):
        triggered = [line.operation for line in trial.history.of(CheckpointTriggered)]
        taken = [trigger.checkpoint for trigger in triggered if trigger.savepoint is not None]
        happened(len(taken) == 2, "all were triggered", trial)
        completed = [line.operation.checkpoint for line in trial.history.of(CheckpointCompleted)]
        require(all(number in completed for number in taken), "every savepoint completes", trial)


MONEY: TrialPlan = msgspec.structs.replace(
    EXCHANGE,
    workload=WorkloadPlan("money", batches=20, batch_records=3, keys=5, records_per_second=300),
    checkpoints=msgspec.structs.replace(
        EXCHANGE.checkpoints, initiators=(("bank[1]",), ("orders[0]", "bank[0]"))
    ),
)
"""Accounts that pay each other, through all processes."""


@pytest.mark.long
@pytest.mark.nightly_on_clusters
@marked
@pytest.mark.clause("CHL-2")
def test_every_snapshot_holds_all_the_money_channels_counted(trials: Trials) -> None:
    for trial in trials.all_valid(MONEY):
        counts = trial.finding("conservation").counts
        happened(counts["checkpoints"] >= 2 and counts["balances"] >= 5, "snapshots with balances", trial)
        happened(counts["in_flight"] > 0, "money was in channels", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.long
@marked
@pytest.mark.clause("CHL-2", "REC-1")
def test_a_restore_neither_makes_money_nor_loses_any(trials: Trials) -> None:
    for trial in trials.all_valid(_killed_twice(MONEY)):
        happened(trial.record.recoveries >= 1, "the job recovered", trial)
        happened(trial.finding("conservation").counts["checkpoints"] >= 2, "snapshots", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.nightly
@loops
@pytest.mark.clause("CHL-5")
@pytest.mark.parametrize("shape", [pytest.param("bank", marks=pytest.mark.nightly_on_clusters), "banks"])
def test_barriers_in_a_loop_conserve_money_too(trials: Trials, shape: str) -> None:
    plan = msgspec.structs.replace(MONEY, job=JobPlan(shape), checkpoints=LOOP.checkpoints)
    for trial in trials.all_valid(_often(plan)):
        counts = trial.finding("conservation").counts
        happened(counts["checkpoints"] >= 1 and counts["in_flight"] > 0, "money was in channels", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.nightly
@recovers
@pytest.mark.clause("CHL-5", "REC-1")
@pytest.mark.parametrize(
    "mode", [pytest.param("exactly_once", marks=pytest.mark.nightly_on_clusters), "unaligned"]
)
def test_connected_components_survive_kills(trials: Trials, mode: CheckpointingMode) -> None:
    """An iterative algorithm whose messages depend on the interleaving, and whose result does not.

    The graph is a real one, so it does not grow with the plan: its edges come slowly instead.
    """
    plan = msgspec.structs.replace(
        LOOP,
        workload=WorkloadPlan("components", batches=8, batch_records=3, keys=60, records_per_second=10),
        job=JobPlan("labels"),
        checkpoints=CheckpointPlan(interval_ms=12, mode=mode),
    )
    for trial in trials.all_valid(_killed_twice(plan, second=2)):
        happened(trial.record.recoveries >= 1, "the job recovered", trial)
        counts = trial.finding("labels").counts
        happened(counts["checkpoints"] >= 2 and counts["labels"] >= 20, "checkpoints with labels", trial)


@marked
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("CHL-4")
def test_on_an_acyclic_graph_barriers_store_no_channel_state_and_markers_do(trials: Trials) -> None:
    """The same run with each protocol; the sink is slow, so that the markers of a process come at different times."""
    aligned = msgspec.structs.replace(
        LOOP,
        workload=WorkloadPlan(batches=24, batch_records=3, keys=5, records_per_second=600),
        job=JobPlan("line", {"source": 2, "totals": 2, "sink": 1}),
        deployment=DeploymentPlan(slow_vertex="sink", slow_batch_ms=4),
        network=NetworkPlan(latency_ms_max=2, channel_capacity=4),
    )
    marked_too = msgspec.structs.replace(
        aligned, checkpoints=msgspec.structs.replace(aligned.checkpoints, protocol="chandy_lamport")
    )
    for barriers, markers in zip(trials.all_valid(aligned), trials.all_valid(marked_too), strict=True):
        stored = [sum(part.channel_bytes for part in trial.record.snapshots) for trial in (barriers, markers)]
        require(stored[0] == 0, f"barriers store {stored[0]} bytes of channels", barriers)
        happened(stored[1] > 0, "markers store some", markers)


def _sent(trial: Trial) -> Counter[tuple[str, str]]:
    """Return how often each row was sent on each channel, in any attempt."""
    found: Counter[tuple[str, str]] = Counter()
    for line in trial.history.of(MessagesObserved):
        for event in line.operation.events:
            if event.kind == "sent":
                found.update((event.channel, row) for row in event.rows)
    return found


@pytest.mark.nightly
@pytest.mark.nightly_on_clusters
@observed
@pytest.mark.clause("CHL-3")
def test_the_application_sends_the_same_messages_with_and_without_snapshots(trials: Trials) -> None:
    """In a mesh where keys decide every way, no interleaving changes what is sent on a channel."""
    often = msgspec.structs.replace(EXCHANGE, job=JobPlan("mesh", {"out": 1}))
    often = msgspec.structs.replace(
        often, checkpoints=CheckpointPlan(protocol="chandy_lamport", interval_ms=6, max_concurrent=3)
    )
    seldom = msgspec.structs.replace(
        often, checkpoints=CheckpointPlan(protocol="chandy_lamport", interval_ms=1_000_000)
    )
    for busy, calm in zip(trials.all_valid(often), trials.all_valid(seldom), strict=True):
        taken = [trial.finding("dataflow").counts["checkpoints"] for trial in (busy, calm)]
        happened(taken[0] >= 4, f"many snapshots were taken, and not {taken[0]}", busy)
        require(taken[1] <= 1, f"{taken[1]} snapshots were taken, and one at most was due", calm)
        sent = _sent(busy)
        require(sent and sent == _sent(calm), "the same messages on every channel", busy)


OF_MANY_WAYS = JobPlan(
    "generated",
    vertices=(
        VertexPlan("read", SOURCE_KIND, 3, then=(OperatorPlan("read.mark", "pass"),)),
        VertexPlan("hub", "keep", 3, {"every": 1}),
        VertexPlan("aside", "keep", 1, {"every": 3}),
        VertexPlan("less", "drop", 1, {"modulo": 3, "gone": 2}),
        VertexPlan("twice", "rekey", 1, {"by": 3}, (OperatorPlan("twice.then", "rekey", {"by": 3}),)),
        VertexPlan("join", "pass", 1),
        VertexPlan("back", "again", 1, {"turns": 1}),
        VertexPlan("out", SINK_KIND, 1),
    ),
    edges=(
        EdgePlan("read", "hub", Spread.HASH, ("key",)),
        EdgePlan("read", "aside", Spread.HASH, ("key",)),
        EdgePlan("read", "less", Spread.REBALANCE),
        EdgePlan("hub", "twice", Spread.REBALANCE),
        EdgePlan("hub", "twice", Spread.REBALANCE),
        EdgePlan("hub", "join", Spread.REBALANCE),
        EdgePlan("aside", "join", Spread.HASH, ("key",)),
        EdgePlan("less", "out", Spread.FORWARD),
        EdgePlan("twice", "out", Spread.FORWARD),
        EdgePlan("join", "out", Spread.FORWARD),
        EdgePlan("hub", "back", Spread.REBALANCE),
        EdgePlan("back", "hub", Spread.HASH, ("key",), feedback=True),
    ),
)
"""A loop beside ways of several lengths, so that barriers of several checkpoints wait for each other."""


@pytest.mark.nightly
@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.clause("ALN-1", "ALN-2")
def test_channels_held_for_a_newer_checkpoint_stay_held_when_an_older_one_is_given_up(trials: Trials) -> None:
    """One subtask learns nothing from the coordinator for a while: checkpoints overlap, and expire while it aligns."""
    deaf = BlackHoleChannel("join[0]", COORDINATOR, duration_ms=102, direction=Direction.BACKWARD)
    plan = msgspec.structs.replace(
        with_faults(ScheduledFault(deaf, After(ProtocolPoint.ATTEMPT_RUNNING)), plan=LOOP),
        seed=23,  # the interleaving is rare: of 60 seeds five have it, and three of those that follow this one
        job=OF_MANY_WAYS,
        workload=WorkloadPlan("rounds", batches=34, batch_records=2, keys=6, records_per_second=600),
        checkpoints=CheckpointPlan(
            interval_ms=11, timeout_ms=180, max_concurrent=3, async_ms_max=31, tolerated_failures=1000
        ),
        restart=RestartPlan(attempts_max=20, delay_ms=27),
        network=NetworkPlan(latency_ms_max=9, channel_capacity=1),
    )
    given_up = [trial for trial in trials.all_valid(plan) if list(trial.history.of(CheckpointAborted))]
    happened(given_up, "checkpoints were given up")
