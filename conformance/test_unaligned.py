"""Barriers that overtake records: records in flight are part of the checkpoint, come first on restore, and count once.

One vertex is slow, so that records queue up in front of it in every world.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import msgspec
import pytest

from barrier_tck.conformance.plans import (
    SINK,
    STATEFUL,
    kill_executor,
    kill_worker,
    varied,
    with_faults,
)
from barrier_tck.conformance.replays import STILL_THERE, still_replayed
from barrier_tck.conformance.trials import Trial, Trials, happened, require
from barrier_tck.faults.kinds.fail_primary_writes import FailPrimaryWrites
from barrier_tck.faults.kinds.fail_snapshot import FailSnapshot
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointingMode,
    CheckpointPlan,
    DeploymentPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import AbortLearned, Restored, ServedFrom
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.lineage import hashed
from barrier_tck.harness.workloads.staged_jobs import MEETS_BROADCAST, TWO_WAYS, meeting

pytestmark = pytest.mark.needs(
    Capability.UNALIGNED_CHECKPOINTS, Capability.SNAPSHOT_INSPECTION, Capability.ATTEMPTS
)

QUEUED: TrialPlan = msgspec.structs.replace(
    varied(
        workload=WorkloadPlan("keyed-totals", batches=16, batch_records=3, keys=8, records_per_second=900),
        deployment=DeploymentPlan(slow_vertex="totals", slow_batch_ms=3),
        checkpoints=CheckpointPlan(mode="unaligned", interval_ms=15, max_concurrent=2),
    ),
    network=NetworkPlan(channel_capacity=8),
)
"""Records queue up before the keyed subtasks."""


def before_two_inputs(job: JobPlan, batches: int) -> TrialPlan:
    """Return a plan in which records queue up in front of subtasks with two inputs, one of them keyed."""
    return varied(
        QUEUED,
        workload=WorkloadPlan("lineage", batches=batches, batch_records=3, keys=8, records_per_second=900),
        job=job,
        deployment=DeploymentPlan(slow_vertex="met", slow_batch_ms=3),
    )


_ALIGNED_AND_NOT: tuple[CheckpointingMode, ...] = ("exactly_once", "unaligned")

KEYED_AND_BROADCAST = before_two_inputs(MEETS_BROADCAST, 20)
TWO_INPUTS = before_two_inputs(meeting("left", hashed("right", "met", 1)), 12)


def in_mode(mode: CheckpointingMode, plan: TrialPlan = QUEUED, timeout_ms: int = 20) -> TrialPlan:
    checkpoints = msgspec.structs.replace(plan.checkpoints, mode=mode, alignment_timeout_ms=timeout_ms)
    return varied(plan, checkpoints=checkpoints)


def after_a_kill(plan: TrialPlan) -> TrialPlan:
    """Return the plan with a kill after a few checkpoints, so that records in flight are restored."""
    return with_faults(kill_executor(STATEFUL, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2)), plan=plan)


def in_flight(views: Iterable[SnapshotView]) -> int:
    """Return how many records in flight the checkpoints hold."""
    return sum(len(channel.rows) for view in views for channel in view.in_flight)


@pytest.mark.clause("UNA-1")
def test_what_a_barrier_overtakes_is_in_the_checkpoint_and_comes_first_after_a_restore(
    trials: Trials,
) -> None:
    found = []
    for trial in trials.all_valid(after_a_kill(QUEUED)):
        found.append(in_flight(trial.history.checkpoints))
        happened(len(trial.record.attempts) > 1, "a checkpoint was restored", trial)
    happened(any(found), "records were in flight in some checkpoint")


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("UNA-1")
def test_a_barrier_passes_between_two_buffers_of_one_batch(trials: Trials) -> None:
    small = msgspec.structs.replace(
        after_a_kill(QUEUED), network=msgspec.structs.replace(QUEUED.network, buffer_bytes=24)
    )
    cut = 0
    for trial in trials.all_valid(small):
        cut += sum(
            bool(channel.at_receiver and channel.at_sender)
            for view in trial.history.checkpoints
            for channel in view.in_flight
        )
    happened(cut, "both ends of some channel held records in flight")


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("UNA-1")
def test_what_is_overtaken_on_every_input_of_a_vertex_is_in_the_checkpoint(trials: Trials) -> None:
    found = {"left": 0, "right": 0}
    for trial in trials.all_valid(after_a_kill(TWO_INPUTS)):
        for view in trial.history.checkpoints:
            for channel in view.in_flight:
                sender = channel.sender.partition("[")[0]
                found[sender] = found.get(sender, 0) + len(channel.rows)
    happened(found["left"] and found["right"], f"records of both inputs were in flight: {found}")


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("ALN-1", "UNA-1")
def test_aligned_barriers_overtake_nothing(trials: Trials) -> None:
    for trial in trials.all_valid(after_a_kill(in_mode("exactly_once"))):
        require(not in_flight(trial.history.checkpoints), "no record is in flight", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("UNA-2")
def test_a_checkpoint_overtakes_once_its_alignment_has_lasted_too_long_and_not_before(
    trials: Trials,
) -> None:
    patient = trials.all_valid(after_a_kill(in_mode("aligned_timeout", timeout_ms=100_000)))
    for trial in patient:
        require(not in_flight(trial.history.checkpoints), "no barrier overtakes before the timeout", trial)
    hurried = trials.all_valid(after_a_kill(in_mode("aligned_timeout", timeout_ms=2)))
    happened(
        any(in_flight(trial.history.checkpoints) for trial in hurried),
        "some barrier overtakes after the timeout",
    )


@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("UNA-2", "UNA-3")
@pytest.mark.parametrize("mode", ["aligned_timeout", "unaligned"])
def test_a_barrier_does_not_wait_in_a_full_output_buffer_for_longer_than_the_timeout(
    trials: Trials, mode: CheckpointingMode
) -> None:
    """Only in virtual time is it known how long one may take. The sources are much faster than what follows."""
    plan = msgspec.structs.replace(
        varied(
            workload=WorkloadPlan(batches=150, batch_records=3, keys=8, records_per_second=2_000),
            deployment=DeploymentPlan(slow_vertex="totals", slow_batch_ms=8),
            checkpoints=CheckpointPlan(mode=mode, interval_ms=60, alignment_timeout_ms=2, async_ms_max=2),
        ),
        network=NetworkPlan(latency_ms_max=1, channel_capacity=16),
    )
    for trial in trials.all_valid(plan):
        happened(
            trial.finding("overtaking-in-time").counts["ahead"], "a barrier went ahead of records", trial
        )


CROWDED: TrialPlan = msgspec.structs.replace(
    varied(
        workload=WorkloadPlan("lineage", batches=15, batch_records=3, keys=8, records_per_second=600),
        job=JobPlan("shuffles"),
        deployment=DeploymentPlan(slow_vertex="out", slow_batch_ms=4),
        checkpoints=CheckpointPlan(
            mode="aligned_timeout", interval_ms=6, max_concurrent=4, alignment_timeout_ms=15, async_ms_max=4
        ),
    ),
    network=NetworkPlan(channel_capacity=1),
)
"""The channels are full, and barriers of several checkpoints wait in each."""


@pytest.mark.long
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("UNA-2", "UNA-1", "BAR-4")
def test_if_barriers_of_several_checkpoints_wait_in_one_buffer_each_has_recorded_what_it_overtakes(
    trials: Trials,
) -> None:
    """Only in virtual time is it certain that a newer barrier goes ahead while an older one waits in the buffer."""
    crowded = 0
    for trial in trials.all_valid(CROWDED):
        ended = {
            checkpoint.checkpoint: checkpoint
            for checkpoint in trial.record.checkpoints
            if checkpoint.status == "completed"
        }
        views = [view for view in trial.history.checkpoints if view.checkpoint in ended and view.in_flight]
        crowded += sum(
            ended[later.checkpoint].triggered_at_ms < ended[earlier.checkpoint].ended_at_ms
            for earlier, later in pairwise(views)
        )
    happened(crowded, "two checkpoints with records in flight were under way at once")


def longest_ms(trial: Trial) -> float:
    """Return the longest time from the trigger of a completed checkpoint until its last subtask began its part.

    Checkpoints in which some subtask had finished do not count: the end of a channel overtakes nothing.
    """
    begun: dict[int, dict[str, float]] = {}
    for part in trial.record.snapshots:
        ended = part.alignment_started_ms + part.alignment_ms
        begun.setdefault(part.checkpoint, {})[part.subtask] = ended
    return max(
        max(begun[checkpoint.checkpoint].values()) - checkpoint.triggered_at_ms
        for checkpoint in trial.record.checkpoints
        if checkpoint.status == "completed"
        and begun.get(checkpoint.checkpoint, {}).keys() == set(trial.record.subtasks)
    )


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("SNP-7", "UNA-1")
def test_the_bytes_of_records_in_flight_are_measured(trials: Trials) -> None:
    """The measured bytes are compared with the files of the checkpoints that are retained at the end."""
    checkpoints, held = msgspec.structs.replace(QUEUED.checkpoints, retained=30), 0
    for trial in trials.all_valid(varied(QUEUED, checkpoints=checkpoints)):
        measured = {(part.checkpoint, part.subtask): part.channel_bytes for part in trial.record.snapshots}
        stored = trial.history.storage.stored if trial.history.storage is not None else None
        for checkpoint in stored or ():
            for part in checkpoint.parts:
                size = part.channels.size if part.channels is not None else 0
                said = measured.get((checkpoint.checkpoint, part.subtask), size)
                require(
                    said == size, f"{part.subtask} stored {size} bytes in flight, but reported {said}", trial
                )
                held += size
    happened(held, "records were in flight in checkpoints that are retained")


@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("UNA-3")
def test_the_delay_grows_with_the_queue_only_if_barriers_are_aligned_and_the_bytes_only_if_they_overtake(
    trials: Trials,
) -> None:
    """Only virtual time compares two runs to the millisecond; on a real machine the next test compares them roughly."""
    delays: dict[tuple[str, int], float] = {}
    sizes: dict[tuple[str, int], int] = {}
    for mode in _ALIGNED_AND_NOT:
        for capacity in (2, 16):
            plan = msgspec.structs.replace(
                varied(in_mode(mode), workload=WorkloadPlan("keyed-totals", batches=40, batch_records=3)),
                network=NetworkPlan(channel_capacity=capacity),
            )
            trial = trials.valid(plan)
            delays[mode, capacity] = longest_ms(trial)
            largest: dict[int, int] = {}
            for part in trial.record.snapshots:
                largest[part.checkpoint] = largest.get(part.checkpoint, 0) + part.bytes_written
            sizes[mode, capacity] = max(largest.values())
    assert delays["exactly_once", 16] > 2 * delays["exactly_once", 2], delays
    assert delays["unaligned", 16] < delays["exactly_once", 2], delays
    assert delays["unaligned", 16] < 50, delays
    assert sizes["unaligned", 16] > 2 * sizes["unaligned", 2], sizes
    assert sizes["exactly_once", 16] < sizes["unaligned", 2], sizes


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("UNA-3")
def test_before_a_slow_vertex_barriers_that_overtake_come_sooner_and_their_checkpoints_hold_the_queue(
    trials: Trials,
) -> None:
    plans = (in_mode(mode) for mode in _ALIGNED_AND_NOT)
    aligned, ahead = (
        trials.valid(msgspec.structs.replace(plan, network=NetworkPlan(channel_capacity=16)))
        for plan in plans
    )
    stored = [sum(part.channel_bytes for part in trial.record.snapshots) for trial in (aligned, ahead)]
    require(stored[0] == 0, f"aligned barriers store no records in flight, not {stored[0]} bytes", aligned)
    happened(stored[1] > 0, "barriers that overtake store records in flight", ahead)
    waited_ms = longest_ms(aligned), longest_ms(ahead)
    claim = f"overtaking barriers come much sooner ({waited_ms[1]} ms) than aligned ones ({waited_ms[0]} ms)"
    happened(2 * waited_ms[1] < waited_ms[0], claim, aligned, ahead)


@pytest.mark.nightly_on_clusters
@pytest.mark.parametrize(
    "mode", ["unaligned", pytest.param("aligned_timeout", marks=pytest.mark.nightly_on_clusters)]
)
@pytest.mark.clause("UNA-4")
def test_a_checkpoint_that_starts_while_restored_records_wait_holds_what_is_left_of_them_once(
    trials: Trials, mode: CheckpointingMode
) -> None:
    """The first checkpoint after a restore is restored in turn. Every checkpoint in between is judged on its own."""
    _replayed(trials, in_mode(mode, TWO_INPUTS, timeout_ms=2))


@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.parametrize("mode", ["unaligned", "aligned_timeout"])
@pytest.mark.clause("UNA-4", "UNA-5")
def test_what_is_left_of_restored_records_is_in_a_checkpoint_whose_last_barrier_comes_behind_a_broadcast(
    trials: Trials, mode: CheckpointingMode
) -> None:
    """Broadcast channels are aligned. Only in virtual time do their barriers surely come before the replay is over."""
    _replayed(trials, in_mode(mode, KEYED_AND_BROADCAST, timeout_ms=2))


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("UNA-4", "UNA-5")
def test_behind_a_broadcast_too_a_checkpoint_holds_what_is_left_of_a_long_replay(trials: Trials) -> None:
    """Checkpoints are so frequent that few broadcast records come before each barrier, and queues are long at the first
    failure. So the barrier comes before the replay is over on a real machine, too."""
    often = msgspec.structs.replace(KEYED_AND_BROADCAST.checkpoints, interval_ms=5)
    _replayed(trials, varied(KEYED_AND_BROADCAST, checkpoints=often), first_after=4)


def _replayed(trials: Trials, plan: TrialPlan, first_after: int = 1) -> None:
    first = kill_executor(STATEFUL, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, first_after))
    second = kill_worker(STATEFUL, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, first_after + 1))
    trials.valid_until(with_faults(first, second, plan=plan), still_replayed, STILL_THERE)


@pytest.mark.needs(Capability.STORAGE_FAULTS)
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("COO-2", "SNP-2")
def test_what_was_recorded_for_a_checkpoint_that_failed_is_not_kept_in_memory(trials: Trials) -> None:
    """One subtask cannot store its snapshot. When subtasks learn of the abort, they report what they still keep."""
    refused = ScheduledFault(FailPrimaryWrites(STATEFUL, 2), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2))
    learned = 0
    for trial in trials.all_valid(with_faults(refused, plan=QUEUED)):
        happened(trial.record.checkpoints_completed >= 1, "a checkpoint completes", trial)
        finding = trial.finding("aborts-obeyed")
        happened("SNP-2" in finding.clauses, "subtasks learned of an abort", trial)
        learned += finding.counts["learned"]
    happened(learned, "subtasks learned of an abort")


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.SNAPSHOT_FAULTS)
@pytest.mark.clause("UNA-5", "COO-2")
def test_a_checkpoint_that_is_given_up_releases_no_channel_that_another_one_holds(trials: Trials) -> None:
    """Barriers come late on one of two ways to the sink, so that older checkpoints still wait there."""
    plan = varied(
        workload=WorkloadPlan("lineage", batches=24, batch_records=1, keys=3, records_per_second=400),
        job=TWO_WAYS,
        checkpoints=CheckpointPlan(
            mode="aligned_timeout", interval_ms=9, max_concurrent=5, alignment_timeout_ms=20
        ),
    )
    late = NetworkPlan(latency_ms_max=1, slow_channel=2, channel_capacity=8)
    declines = ScheduledFault(FailSnapshot("kept[0]"), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2))
    under_way = [
        line.operation.under_way
        for trial in trials.all_valid(with_faults(declines, plan=msgspec.structs.replace(plan, network=late)))
        for line in trial.history.of(AbortLearned)
    ]
    happened(any(under_way), "a subtask learned of it while another checkpoint was under way there")


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("UNA-5")
def test_every_receiver_has_applied_a_broadcast_or_none_has_at_every_cut(trials: Trials) -> None:
    found = 0
    for trial in trials.all_valid(after_a_kill(KEYED_AND_BROADCAST)):
        for view in trial.history.checkpoints:
            broadcast = [channel for channel in view.in_flight if channel.sender.startswith("told[")]
            require(not broadcast, f"checkpoint {view.checkpoint} holds no broadcast in flight", trial)
        found += in_flight(trial.history.checkpoints)
    happened(found, "records of keyed edges were in flight")


@pytest.mark.long_on_clusters
@pytest.mark.needs(Capability.LOCAL_RECOVERY)
@pytest.mark.clause("LOC-11")
def test_records_in_flight_are_restored_from_the_copy_on_the_host(trials: Trials) -> None:
    plan = msgspec.structs.replace(
        with_faults(kill_worker(STATEFUL, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, 2)), plan=QUEUED),
        local_recovery=True,
    )
    near = 0
    for trial in trials.all_valid(plan):
        views = {view.checkpoint: view for view in trial.history.checkpoints}
        for line in trial.history.operations:
            restored = line.operation
            if isinstance(restored, Restored) and views[restored.checkpoint].in_flight:
                kept = [file for file in restored.files if file.key_groups == (0, 0)]
                near += sum(file.served_by is ServedFrom.SECONDARY for file in kept)
    happened(near, "some subtask read its records in flight from the copy on its host")


@pytest.mark.nightly
@pytest.mark.needs(Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("UNA-1", "UNA-4", "UNA-5")
def test_generated_jobs_in_every_mode_are_right(trials: Trials) -> None:
    trials.generated("modes")
