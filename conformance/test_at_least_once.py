"""At-least-once mode, and several checkpoints in flight: what may come twice, what may not, and that duplicates do
come.

Duplicates are sure to happen only where a channel is slow: a simulated network has one that the plan names, and in
both worlds a fault can delay one. Elsewhere they may happen, and whatever happens must be accounted for.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from barrier_tck.conformance.plans import (
    OTHER_SINK,
    OTHER_SOURCE,
    OTHER_STATEFUL,
    SINK,
    SOURCE,
    STATEFUL,
    STATELESS,
    kill_worker,
    varied,
    with_faults,
)
from barrier_tck.conformance.trials import Trial, Trials, assert_valid, happened, require
from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.system.system_under_test import Capability

inspects = pytest.mark.needs(Capability.SNAPSHOT_INSPECTION)
recovers = pytest.mark.needs(Capability.ATTEMPTS, Capability.SNAPSHOT_INSPECTION)

SLOW: TrialPlan = msgspec.structs.replace(
    varied(
        workload=WorkloadPlan(batches=24, batch_records=3, keys=5, records_per_second=600),
        checkpoints=CheckpointPlan(mode="at_least_once", interval_ms=12, max_concurrent=2),
    ),
    network=NetworkPlan(slow_channel=0, slow_factor=6),
)
"""Two sources; the channel from the first of them to the first keyed subtask is slow."""

KILLED_TWICE = with_faults(
    kill_worker(STATEFUL, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2)),
    kill_worker(OTHER_STATEFUL, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 4)),
    plan=SLOW,
)
"""Each kill comes when a checkpoint is complete, so that it is restored with all that came early."""

DELAYED_AND_KILLED = with_faults(
    ScheduledFault(
        DelayChannel(SOURCE, STATEFUL, latency_ms=10, duration_ms=150),
        After(ProtocolPoint.ATTEMPT_RUNNING),
    ),
    kill_worker(STATEFUL, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2)),
    plan=msgspec.structs.replace(
        SLOW,
        workload=msgspec.structs.replace(SLOW.workload, batches=36),
        network=NetworkPlan(),
    ),
)
"""One of two input channels is late by about a checkpoint interval; what overtook its barrier is restored, too.

The kill comes long before the input ends: on a busy cluster, too, records follow the barrier of its checkpoint.
"""

OTHER_CHANNEL_SLOW = msgspec.structs.replace(
    varied(
        SLOW,
        workload=WorkloadPlan(batches=40, records_per_second=600),
        job=JobPlan(widths={"totals": 1}),
        checkpoints=CheckpointPlan(
            mode="at_least_once", interval_ms=8, max_concurrent=3, async_ms_max=20, retained=1
        ),
    ),
    network=NetworkPlan(slow_channel=1, slow_factor=10),
)
"""Three checkpoints in flight; the second source is heard of late, and barriers of the first pile up."""

PASSTHROUGH = varied(
    KILLED_TWICE,
    workload=WorkloadPlan("passthrough", batches=24, batch_records=3, records_per_second=600),
    job=JobPlan(widths={"source": 2}),
)


def _counts(trial: Trial) -> dict[str, int]:
    return trial.finding("at-least-once-output").counts


@pytest.mark.long_on_clusters
@inspects
@pytest.mark.clause("ALO-1")
def test_every_checkpoint_holds_its_prefix_and_nothing_that_is_not_accounted_for(trials: Trials) -> None:
    for trial in trials.all_valid(SLOW):
        snapshots = trial.finding("at-least-once-snapshots")
        happened(snapshots.counts["checkpoints"] >= 1, "a checkpoint was there to check", trial)


@inspects
@pytest.mark.clause("ALO-1", "ALN-3")
def test_no_channel_is_held_back(trials: Trials) -> None:
    for trial in trials.all_valid(SLOW):
        held = [part for part in trial.record.snapshots if part.alignment_buffered_bytes]
        require(not held, f"nothing waits in a channel that is held back, but in {held}", trial)


@pytest.mark.clause("ALO-2")
def test_without_a_failure_nothing_comes_twice(trials: Trials) -> None:
    for trial in trials.all_valid(SLOW):
        counts = _counts(trial)
        require(counts["duplicated"] == 0, "no record comes twice", trial)
        require(counts["committed"] == counts["expected"] > 0, "every record comes", trial)


@recovers
@pytest.mark.clause("ALO-2", "REC-1")
def test_after_recoveries_nothing_is_lost_and_every_duplicate_was_to_be_expected(trials: Trials) -> None:
    for trial in trials.all_valid(KILLED_TWICE):
        counts = _counts(trial)
        require(counts["lost"] == counts["unexplained"] == counts["wrong_totals"] == 0, "two-sided", trial)
        happened(trial.record.recoveries >= 1, "the job recovered", trial)
        require(counts["committed"] == counts["expected"] + counts["duplicated"], "rows add up", trial)


@pytest.mark.needs(
    Capability.DETERMINISTIC_REPLAY,  # the network is simulated: a channel is slow because the plan says so
    Capability.ATTEMPTS,
    Capability.SNAPSHOT_INSPECTION,
)
@pytest.mark.clause("ALO-2")
def test_duplicates_do_occur_in_the_output_and_in_the_state(trials: Trials) -> None:
    seen = [_counts(trial) for trial in trials.all_valid(KILLED_TWICE)]
    happened(sum(counts["duplicated"] for counts in seen), f"a record came twice in some trial: {seen}")
    happened(sum(counts["carried"] for counts in seen), f"a restored state had counted ahead: {seen}")


@pytest.mark.long_on_clusters
@pytest.mark.needs(
    Capability.ATTEMPTS,
    Capability.SNAPSHOT_INSPECTION,
)
@pytest.mark.clause("ALO-2")
def test_with_a_delayed_channel_duplicates_occur_and_each_was_to_be_expected(trials: Trials) -> None:
    seen = [_counts(trial) for trial in trials.all_valid(DELAYED_AND_KILLED)]
    happened(sum(counts["duplicated"] for counts in seen), f"a record came twice in some trial: {seen}")
    assert not sum(counts["unexplained"] + counts["lost"] for counts in seen), seen


@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.clause("ALO-3")
@pytest.mark.parametrize(
    "mode", [pytest.param("exactly_once", marks=pytest.mark.nightly_on_clusters), "at_least_once"]
)
def test_a_pipeline_without_shuffle_is_exact_in_both_modes(trials: Trials, mode: str) -> None:
    plan = varied(PASSTHROUGH, checkpoints=msgspec.structs.replace(PASSTHROUGH.checkpoints, mode=mode))
    # There is no subtask named after totals in this job: the middle of it is hit instead.
    plan = with_faults(
        kill_worker(STATELESS, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2)),
        kill_worker(OTHER_SOURCE, After(ProtocolPoint.COMPLETION_NOTIFIED, OTHER_SINK, 4)),
        plan=plan,
    )
    for trial in trials.all_valid(plan):
        counts = trial.finding("exactly-once-output").counts
        require(counts["committed"] == counts["expected"] > 0, "each record has one row", trial)
        happened(trial.record.recoveries >= 1, "the job recovered", trial)


@pytest.mark.needs(Capability.SLOW_SNAPSHOTS, Capability.SNAPSHOT_INSPECTION)
@pytest.mark.clause("BAR-4", "BAR-2")
@pytest.mark.parametrize(
    "mode", [pytest.param("exactly_once", marks=pytest.mark.nightly_on_clusters), "at_least_once"]
)
def test_barriers_of_several_checkpoints_in_flight_keep_their_order(trials: Trials, mode: str) -> None:
    checkpoints = msgspec.structs.replace(OTHER_CHANNEL_SLOW.checkpoints, mode=mode)
    overlapping = 0
    for trial in trials.all_valid(varied(OTHER_CHANNEL_SLOW, checkpoints=checkpoints)):
        ended = sorted(trial.record.checkpoints, key=lambda c: c.checkpoint)
        overlapping += sum(later.triggered_at_ms < earlier.ended_at_ms for earlier, later in pairwise(ended))
        views = sorted(trial.history.checkpoints, key=lambda view: view.checkpoint)
        for earlier, later in pairwise(views):
            back = [split for split, at in later.positions.items() if at < earlier.positions.get(split, 0)]
            require(not back, f"no source goes back from {earlier.checkpoint}, but {back} did", trial)
    happened(overlapping, "two checkpoints were in flight at once")


@pytest.mark.long_on_clusters
@pytest.mark.needs(
    Capability.SLOW_SNAPSHOTS,
    Capability.ATTEMPTS,
    Capability.SNAPSHOT_INSPECTION,
)
@pytest.mark.clause("BAR-4", "REC-1")
@pytest.mark.parametrize(
    "mode", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.nightly_on_clusters)]
)
def test_a_failure_with_several_in_flight_restores_the_latest_that_completed(
    trials: Trials, mode: CheckpointingMode
) -> None:
    plan = with_faults(
        kill_worker(STATEFUL, After(ProtocolPoint.SNAPSHOT_TAKEN, STATEFUL, 2)),
        plan=varied(
            workload=WorkloadPlan(batches=40, records_per_second=600),
            checkpoints=CheckpointPlan(mode=mode, interval_ms=6, max_concurrent=3, async_ms_max=30),
        ),
    )
    in_flight = 0
    for trial in trials.all_valid(plan):
        second = trial.record.attempts[1]
        ended = [c for c in trial.record.checkpoints if c.ended_at_ms <= second.started_at_ms]
        done = max((c.checkpoint for c in ended if c.status == "completed"), default=None)
        require(second.restored_checkpoint == done, f"attempt 2 restores {done}", trial)
        in_flight += sum(c.status == "aborted" for c in ended) > 1
    happened(in_flight, "several checkpoints were in flight when the job failed")


@pytest.mark.long
@pytest.mark.nightly_on_clusters
@recovers
@pytest.mark.clause("ALO-1", "ALO-2")
def test_generated_jobs_in_at_least_once_mode_are_accounted_for(trials: Trials) -> None:
    trials.generated("at-least-once", assert_valid)
