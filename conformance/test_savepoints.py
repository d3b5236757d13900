"""Savepoints are the user's, and a job can be stopped with one and started from one."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from barrier_tck.conformance.plans import SINK, SOURCE, STATEFUL, crash_coordinator, kill_worker, varied
from barrier_tck.conformance.trials import Trial, Trials, exactly_one, happened, require
from barrier_tck.faults.kinds.fail_snapshot import FailSnapshot
from barrier_tck.faults.kinds.pause_worker import PauseWorker
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
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import (
    AbortLearned,
    AttemptStarted,
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointTriggered,
    Committed,
    InputRead,
    JobFinished,
    JobStopped,
    SavepointRequested,
)
from barrier_tck.harness.record.records import SnapshotRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.harness.workloads.staged_jobs import short_cut

pytestmark = pytest.mark.needs(Capability.SAVEPOINTS, Capability.CHECKPOINTS, Capability.SNAPSHOT_INSPECTION)

SELDOM_MS = 50
"""An interval in which no other checkpoint begins between the first one and the savepoint."""
ONE, STOPPED = "one savepoint was taken", "the job was stopped once"
STOP = SavepointPlan(after_checkpoints=1, stop=True)


def _plan(
    *savepoints: SavepointPlan, faults: tuple[ScheduledFault, ...] = (), **changes: object
) -> TrialPlan:
    checkpoints = msgspec.structs.replace(CheckpointPlan(interval_ms=12, retained=1), **changes)
    return msgspec.structs.replace(varied(checkpoints=checkpoints), savepoints=savepoints, faults=faults)


def _views(trial: Trial) -> list[SnapshotView]:
    return [view for view in trial.history.checkpoints if view.savepoint is not None]


def _meant_to_stop(trial: Trial) -> list[int]:
    """Return the savepoints with which the job was to be stopped, whatever became of them."""
    triggered = [line.operation for line in trial.history.of(CheckpointTriggered)]
    return [trigger.checkpoint for trigger in triggered if trigger.stops]


def _stops(trial: Trial) -> list[int | None]:
    return [line.operation.checkpoint for line in trial.history.of(JobStopped)]


@pytest.mark.long_on_clusters
@pytest.mark.clause("COO-5")
def test_a_savepoint_outlives_the_checkpoints_after_it_and_needs_none_of_their_files(trials: Trials) -> None:
    for trial in trials.all_valid(_plan(SavepointPlan(after_checkpoints=1))):
        view = exactly_one(_views(trial), ONE, trial)
        storage = trial.history.storage
        assert storage is not None
        happened(storage.retained[-1] > view.checkpoint, "newer checkpoints completed", trial)
        require(view.checkpoint not in storage.retained, "retention has let go of it", trial)
        (kept,) = storage.savepoints
        require(kept.contents.problem is None and not kept.outside, "it is there, and whole", trial)
        positions = dict(position for part in kept.contents.parts for position in part.positions)
        require(positions == view.positions, f"it holds {view.positions}, and not {positions}", trial)


@pytest.mark.needs(
    *(Capability.COORDINATOR_CRASH, Capability.PAUSE, Capability.SLOW_SNAPSHOTS),
    Capability.DETERMINISTIC_REPLAY,
)
@pytest.mark.clause("COO-5", "REC-2")
def test_a_process_that_never_heard_that_its_savepoint_is_complete_leaves_it_to_the_user(
    trials: Trials,
) -> None:
    """It stood still from its acknowledgement on. It goes on when a newer checkpoint of its successor is complete, and
    deletes what it has written for nothing."""
    longer = WorkloadPlan(batches=120, batch_records=3, keys=5, records_per_second=600)
    plan = _plan(
        SavepointPlan(after_checkpoints=1),
        faults=(
            crash_coordinator(After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),
            ScheduledFault(PauseWorker(STATEFUL, 200), After(ProtocolPoint.ACKNOWLEDGED, STATEFUL, 2)),
        ),
        min_pause_ms=SELDOM_MS,  # nothing else completes beside the savepoint
        async_ms_max=20,
    )
    for trial in trials.all_valid(msgspec.structs.replace(plan, workload=longer)):
        view = exactly_one(_views(trial), ONE, trial)
        healed_ms = [record.healed_at_ms for record in trial.record.faults][-1]
        newer = [
            line.time_ms
            for line in trial.history.of(CheckpointCompleted)
            if line.operation.checkpoint > view.checkpoint
        ]
        happened(
            healed_ms is not None and any(at_ms < healed_ms for at_ms in newer),
            "the process went on when a newer checkpoint was complete",
            trial,
        )
        storage = trial.history.storage
        assert storage is not None
        (kept,) = storage.savepoints
        require(kept.contents.problem is None, f"the savepoint can be read: {kept.contents.problem}", trial)


@pytest.mark.needs(Capability.SLOW_SNAPSHOTS)
@pytest.mark.clause("COO-5")
def test_a_savepoint_is_taken_while_a_checkpoint_is_in_flight_and_is_not_subsumed(trials: Trials) -> None:
    plan = _plan(
        *(SavepointPlan(after_checkpoints=1, delay_ms=delay) for delay in (0, 2, 4, 8)),
        max_concurrent=2,
        async_ms_max=12,
    )
    for trial in trials.all_valid(plan):
        open_ones: list[int] = []
        beside = 0
        for line in trial.history.operations:
            match line.operation:
                case CheckpointTriggered(checkpoint=number, savepoint=place):
                    beside += place is not None and bool(open_ones)
                    open_ones.append(number)
                case CheckpointCompleted(checkpoint=number) | CheckpointAborted(checkpoint=number):
                    open_ones.remove(number)
        happened(beside > 0, "some savepoint began while a checkpoint was in flight", trial)
        completed = [line.operation.checkpoint for line in trial.history.of(CheckpointCompleted)]
        require(
            all(view.checkpoint in completed for view in _views(trial)), "every savepoint completes", trial
        )
        happened(len(_views(trial)) == 4, "all were taken", trial)


def _waited_for_a_savepoint(trial: Trial) -> bool:
    """Return whether the last checkpoint began with the end of a savepoint."""
    savepoints, ended = [], 0
    for line in trial.history.operations:
        match line.operation:
            case CheckpointTriggered(final=True):
                return ended in savepoints
            case CheckpointTriggered(checkpoint=number, savepoint=str()):
                savepoints.append(number)
            case CheckpointCompleted(checkpoint=number) | CheckpointAborted(checkpoint=number):
                ended = number
    return False


@pytest.mark.needs(Capability.SLOW_SNAPSHOTS, Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("COO-5", "BAR-4", "REC-6")
def test_the_last_checkpoint_waits_for_the_savepoints_in_flight(trials: Trials) -> None:
    """Only in virtual time do savepoints that end at other times surely meet the end of the input."""
    plan = msgspec.structs.replace(
        varied(
            workload=WorkloadPlan(batches=12, batch_records=3, records_per_second=600),
            checkpoints=CheckpointPlan(interval_ms=31, async_ms_max=60, max_concurrent=2),
        ),
        savepoints=tuple(SavepointPlan(after_checkpoints=0, delay_ms=20 + 6 * number) for number in range(8)),
    )
    claim = "did the last checkpoint begin with the end of a savepoint"
    trials.valid_until(plan, _waited_for_a_savepoint, claim)


@pytest.mark.clause("COO-5", "SNK-1")
@pytest.mark.parametrize(
    "mode", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.long_on_clusters)]
)
def test_a_job_that_is_stopped_does_nothing_behind_the_barrier_and_a_second_one_goes_on_there(
    trials: Trials, mode: str
) -> None:
    for trial in trials.all_valid(_plan(STOP, mode=mode)):
        stopped = exactly_one(_stops(trial), STOPPED, trial)
        view = exactly_one(_views(trial), ONE, trial)
        require(stopped == view.checkpoint, f"it stopped with {view.checkpoint}, not {stopped}", trial)
        finding = trial.finding("stop-with-savepoint")
        require(finding.verdict is Verdict.VALID and "COO-5" in finding.clauses, finding.summary, trial)
        started = list(trial.history.of(AttemptStarted))
        happened(len(started) == 2, "one attempt before the stop and one after it", trial)
        second = started[1]
        require(second.operation.restored_checkpoint == stopped, "the second job started from it", trial)
        later = {
            line.operation.split: line.operation.offset
            for line in trial.history.of(InputRead)
            if line.operation.attempt == second.operation.attempt
        }
        happened(later, "the second job read what was left", trial)
        require(all(view.positions[split] == offset for split, offset in later.items()), f"{later}", trial)
        require(any(trial.history.of(JobFinished)), "and finished", trial)


OVERTAKEN: TrialPlan = msgspec.structs.replace(
    varied(
        workload=WorkloadPlan("lineage", batches=40, batch_records=3, keys=8, records_per_second=2_000),
        job=short_cut(readers=1),
        deployment=DeploymentPlan(slow_vertex="met", slow_batch_ms=3),
        checkpoints=CheckpointPlan(mode="unaligned", interval_ms=20),
    ),
    network=NetworkPlan(latency_ms_max=2, channel_capacity=2),
    savepoints=(STOP,),
)
"""A stop whose barrier overtakes records on one way, and waits for records on another one, where a broadcast is."""


@pytest.mark.needs(Capability.UNALIGNED_CHECKPOINTS)
@pytest.mark.nightly_on_clusters
@pytest.mark.clause("COO-5", "BAR-3", "UNA-5")
def test_a_stopped_subtask_still_takes_in_what_comes_before_the_barriers_of_others(trials: Trials) -> None:
    """It reads nothing more. If it took in nothing either, its sender would wait for room, and never reach the
    barrier."""
    for trial in trials.all_valid(OVERTAKEN):
        require(_stops(trial) == [view.checkpoint for view in _views(trial)], "the job was stopped", trial)
        view = exactly_one(_views(trial), ONE, trial)
        happened(view.in_flight, "records were in flight in the savepoint", trial)


@pytest.mark.long_on_clusters
@pytest.mark.clause("COO-5", "REC-1")
@pytest.mark.needs(Capability.WORKER_KILL, Capability.ATTEMPTS)
def test_a_job_whose_sink_dies_before_it_commits_for_the_last_savepoint_commits_and_stops_all_the_same(
    trials: Trials,
) -> None:
    kill = kill_worker(SINK, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, nth=2))
    for trial in trials.all_valid(_plan(STOP, faults=(kill,), interval_ms=SELDOM_MS)):
        stopped = exactly_one(_stops(trial), STOPPED, trial)
        restored = [line.operation.restored_checkpoint for line in trial.history.of(AttemptStarted)]
        # Another checkpoint between the first one and the savepoint is the one for which the sink commits when it dies.
        happened(restored[1:] == [stopped, stopped], f"an attempt finished the commits: {restored}", trial)
        between = list(trial.history.of(AttemptStarted))[1].operation.attempt
        read = [line.operation for line in trial.history.of(InputRead) if line.operation.attempt == between]
        require(not read, f"it read nothing, and not {read}", trial)
        committed = {
            line.operation.subtask
            for line in trial.history.of(Committed)
            if line.operation.checkpoint == stopped
        }
        happened(committed, "sinks committed for the savepoint", trial)


@pytest.mark.clause("COO-5", "COO-2")
@pytest.mark.needs(Capability.WORKER_KILL, Capability.ATTEMPTS)
@pytest.mark.parametrize("killed", [SOURCE, pytest.param(STATEFUL, marks=pytest.mark.long_on_clusters)])
def test_if_the_savepoint_fails_the_job_goes_on(trials: Trials, killed: str) -> None:
    kill = kill_worker(killed, After(ProtocolPoint.SNAPSHOT_TAKEN, killed, nth=2))
    for trial in trials.all_valid(_plan(STOP, faults=(kill,), interval_ms=SELDOM_MS)):
        stops = [line.operation for line in trial.history.of(CheckpointTriggered) if line.operation.stops]
        aborted = [line.operation.checkpoint for line in trial.history.of(CheckpointAborted)]
        # Another checkpoint between the first one and the savepoint would fail in its place.
        happened(len(stops) == 1 and stops[0].checkpoint in aborted, "the savepoint failed", trial)
        require(not _stops(trial), "the job was not stopped", trial)
        require(any(trial.history.of(JobFinished)), "it went on to its end", trial)
        storage = trial.history.storage
        require(storage is not None and not storage.savepoints, "nothing looks like a savepoint", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.clause("COO-5", "COO-2")
@pytest.mark.needs(Capability.SNAPSHOT_FAULTS)
def test_a_savepoint_that_a_subtask_declines_has_failed_and_leaves_nothing(trials: Trials) -> None:
    """Its snapshot fails while it is taken, so there is nothing to wait for: the user learns of it at once."""
    declines = ScheduledFault(FailSnapshot(STATEFUL), After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=2))
    asked = SavepointPlan(after_checkpoints=1)
    for trial in trials.all_valid(_plan(asked, faults=(declines,), interval_ms=SELDOM_MS)):
        taken = {
            line.operation.checkpoint
            for line in trial.history.of(CheckpointTriggered)
            if line.operation.savepoint is not None
        }
        aborted = {line.operation.checkpoint for line in trial.history.of(CheckpointAborted)}
        # Another checkpoint between the first one and the savepoint would fail in its place.
        happened(len(taken) == 1, "the savepoint was triggered once", trial)
        require(taken <= aborted, "it was given up", trial)
        storage = trial.history.storage
        require(storage is not None and not storage.savepoints, "nothing looks like a savepoint", trial)
        require(trial.record.recoveries == 0, "the job goes on", trial)


def _stop_outlived_a_savepoint(trial: Trial) -> bool:
    """Return whether a savepoint failed while a stop that had been asked for was still waiting, and then was tried."""
    waiting = failed = False
    taken: list[int] = []
    for line in trial.history.operations:
        match line.operation:
            case SavepointRequested(stops=True):
                waiting = True
            case CheckpointTriggered(stops=True):
                return failed
            case CheckpointTriggered(checkpoint=number, savepoint=str()):
                taken.append(number)
            case CheckpointAborted(checkpoint=number) if waiting and number in taken:
                failed = True
    return False


@pytest.mark.needs(Capability.PAUSE, Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("COO-5", "COO-2")
def test_a_stop_that_waits_is_not_forgotten_when_a_savepoint_fails(trials: Trials) -> None:
    """A subtask stands still until a savepoint has expired; meanwhile the stop is asked for.

    In real time checkpoints have seconds, and so long a pause would be taken for a loss.
    """
    pause = PauseWorker(STATEFUL, duration_ms=60)
    plan = _plan(
        SavepointPlan(after_checkpoints=1),
        SavepointPlan(after_checkpoints=1, delay_ms=10, stop=True),
        faults=(ScheduledFault(pause, After(ProtocolPoint.SNAPSHOT_TAKEN, STATEFUL, nth=2)),),
        interval_ms=SELDOM_MS,
        timeout_ms=40,
    )
    for trial in trials.all_valid(plan):
        happened(
            _stop_outlived_a_savepoint(trial),
            "a savepoint failed while a stop was waiting for its end",
            trial,
        )


@pytest.mark.long_on_clusters
@pytest.mark.needs(Capability.MESSAGE_FAULTS, Capability.PAUSE)
@pytest.mark.clause("COO-5", "COO-3", "SNK-1")
def test_a_job_is_not_over_before_its_sinks_have_committed_for_the_last_savepoint(trials: Trials) -> None:
    """They have committed for an earlier checkpoint, and the report of that comes again while one stands still."""
    again = RepeatMessages(SINK, direction=Direction.FORWARD, late_ms=40, duration_ms=1_000)
    pause = PauseWorker(SINK, duration_ms=100)
    faults = (
        ScheduledFault(again, After(ProtocolPoint.ATTEMPT_RUNNING)),
        ScheduledFault(pause, After(ProtocolPoint.COMPLETION_NOTIFIED, SINK, nth=2)),
    )
    for trial in trials.all_valid(_plan(STOP, faults=faults, interval_ms=SELDOM_MS)):
        stopped = exactly_one(_stops(trial), STOPPED, trial)
        earlier = [line.operation for line in trial.history.of(Committed)]
        happened(
            any((entry.checkpoint or 0) < (stopped or 0) for entry in earlier),
            "an earlier commit came",
            trial,
        )


def _heard_late(trial: Trial) -> bool:
    """Return whether a source learned of the abort of an earlier checkpoint when it had to be stopped."""
    stops: list[int] = []
    for line in trial.history.operations:
        match line.operation:
            case CheckpointTriggered(checkpoint=number, stops=True):
                stops.append(number)
            case CheckpointCompleted(checkpoint=number) if number in stops:
                return False
            case AbortLearned(checkpoint=number, subtask=subtask) if stops and number < stops[0]:
                if subtask == trial.subtask(SOURCE) and _taken(trial, subtask, stops[0]) < line.time_ms:
                    return bool(_stops(trial))
    return False


def _taken(trial: Trial, subtask: str, checkpoint: int) -> float:
    """Return when a subtask took its part of a checkpoint; infinity if it did not."""
    parts = [
        snapshot
        for snapshot in trial.record.snapshots
        if (snapshot.subtask, snapshot.checkpoint) == (subtask, checkpoint)
    ]
    return max((_began_ms(part) for part in parts), default=inf)


def _began_ms(part: SnapshotRecord) -> float:
    """Return when a subtask began its part, after all that it waited for."""
    return part.alignment_started_ms + part.alignment_ms


@pytest.mark.needs(Capability.MESSAGE_FAULTS, Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("COO-5", "COO-2", "COO-3")
def test_a_stopped_subtask_is_not_released_when_the_abort_of_an_earlier_checkpoint_comes_again(
    trials: Trials,
) -> None:
    """Only in virtual time does a checkpoint expire just before the stop, and the news of that come just after it."""
    again = RepeatMessages(SOURCE, direction=Direction.BACKWARD, late_ms=10, duration_ms=1_000)
    plan = msgspec.structs.replace(
        _plan(
            SavepointPlan(after_checkpoints=0, delay_ms=20, stop=True),
            faults=(ScheduledFault(again, After(ProtocolPoint.ATTEMPT_RUNNING)),),
            interval_ms=16,
            timeout_ms=14,
            async_ms_max=14,
        ),
        network=NetworkPlan(latency_ms_max=2),
    )
    trials.valid_until(plan, _heard_late, "did a source that had stopped learn of an earlier abort")


def _expires(delay_ms: int, slow_channel: int, latency_ms_max: int) -> TrialPlan:
    """Return a stop that expires, as do checkpoints before it: one channel is slow, and messages pass each other."""
    return msgspec.structs.replace(
        varied(
            workload=WorkloadPlan(
                "keyed-totals", batches=60, batch_records=3, keys=8, records_per_second=600
            ),
            deployment=DeploymentPlan(slow_vertex="totals", slow_batch_ms=3),
            checkpoints=CheckpointPlan(mode="unaligned", interval_ms=12, timeout_ms=90, max_concurrent=3),
        ),
        network=NetworkPlan(latency_ms_max=latency_ms_max, slow_channel=slow_channel, slow_factor=20),
        savepoints=(SavepointPlan(after_checkpoints=0, delay_ms=delay_ms, stop=True),),
    )


@pytest.mark.needs(Capability.UNALIGNED_CHECKPOINTS, Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("COO-5", "COO-2", "REC-6")
def test_a_stopped_subtask_goes_on_when_a_newer_barrier_comes_before_the_abort_of_the_savepoint(
    trials: Trials,
) -> None:
    """Only in virtual time is it certain that a barrier overtakes the coordinator's notice."""
    overtaken = 0
    for trial in trials.all_valid(_expires(delay_ms=40, slow_channel=1, latency_ms_max=10)):
        stops = _meant_to_stop(trial)
        for line in trial.history.of(AbortLearned):
            if line.operation.checkpoint in stops:
                begun = [
                    snapshot.checkpoint
                    for snapshot in trial.record.snapshots
                    if snapshot.subtask == line.operation.subtask and _began_ms(snapshot) < line.time_ms
                ]
                overtaken += any(checkpoint > line.operation.checkpoint for checkpoint in begun)
    happened(overtaken, "a subtask began a newer part before it learned that the savepoint had failed")


@pytest.mark.long
@pytest.mark.needs(
    Capability.UNALIGNED_CHECKPOINTS,
    Capability.EARLY_FINISH,
    Capability.SLOW_SNAPSHOTS,
    Capability.DETERMINISTIC_REPLAY,
)
@pytest.mark.clause("COO-5", "COO-2", "ALN-1", "REC-6")
def test_a_job_goes_on_as_before_after_each_stop_that_expires(trials: Trials) -> None:
    """Channels wait for each other as ever, and a source that has come to its end is not read again.

    In real time checkpoints have seconds.
    """
    plan = msgspec.structs.replace(
        varied(
            workload=WorkloadPlan(
                "lineage", batches=60, batch_records=3, keys=5, records_per_second=300, early_ends=1
            ),
            job=JobPlan("joined"),
            checkpoints=CheckpointPlan(
                mode="aligned_timeout",
                interval_ms=15,
                timeout_ms=32,
                async_ms_max=30,
                alignment_timeout_ms=20,
            ),
        ),
        network=NetworkPlan(latency_ms_max=6, slow_channel=1, slow_factor=4),
        savepoints=tuple(SavepointPlan(after_checkpoints=number, stop=True) for number in range(4)),
    )
    expired = 0
    for trial in trials.all_valid(plan):
        stops = _meant_to_stop(trial)
        expired += sum(line.operation.checkpoint in stops for line in trial.history.of(CheckpointAborted))
    happened(expired, "a stop expired", trial)


@pytest.mark.needs(Capability.UNALIGNED_CHECKPOINTS, Capability.DETERMINISTIC_REPLAY)
@pytest.mark.clause("COO-5", "COO-2")
def test_a_stopped_subtask_reads_nothing_when_an_earlier_checkpoint_is_aborted(trials: Trials) -> None:
    """Its channels are still being recorded for that one."""
    given_up = 0
    for trial in trials.all_valid(_expires(delay_ms=25, slow_channel=2, latency_ms_max=6)):
        stops = _meant_to_stop(trial)
        failed = {
            (line.operation.subtask, line.operation.checkpoint): line.time_ms
            for line in trial.history.of(AbortLearned)
        }
        for (subtask, checkpoint), learned_ms in failed.items():
            for stop in stops:
                if checkpoint < stop:
                    held_ms = _taken(trial, subtask, stop)
                    given_up += held_ms < learned_ms < failed.get((subtask, stop), inf)
    happened(given_up, "a subtask that had stopped learned that an earlier checkpoint had failed")


@pytest.mark.long_on_clusters
@pytest.mark.clause("COO-5", "SNP-5")
@pytest.mark.parametrize("claim", [False, True], ids=["not claimed", "claimed"])
def test_a_job_deletes_the_savepoint_that_it_started_from_if_it_claimed_it_and_only_then(
    trials: Trials, claim: bool
) -> None:
    """Records come slowly, so that some state is the same in the savepoint and in the first checkpoint after it."""
    plan = _plan(msgspec.structs.replace(STOP, claim=claim))
    slowly = msgspec.structs.replace(plan.workload, batches=20, batch_records=1, records_per_second=50)
    plan = msgspec.structs.replace(plan, workload=slowly)
    for trial in trials.all_valid(plan):
        view = exactly_one(_views(trial), ONE, trial)
        storage = trial.history.storage
        assert storage is not None
        require(
            [line.operation.claimed for line in trial.history.of(JobStopped)] == [claim],
            f"the system reports claim={claim}",
            trial,
        )
        kept = [savepoint.directory for savepoint in storage.savepoints]
        require(kept == ([] if claim else [view.savepoint]), f"{kept} is left", trial)
        newer = [
            checkpoint for checkpoint in trial.history.checkpoints if checkpoint.checkpoint > view.checkpoint
        ]
        happened(newer, "newer checkpoints completed", trial)
        place = f"{view.savepoint}/"
        named = [file.path for entry in newer for files in entry.files.values() for file in files]
        require(not any(path.startswith(place) for path in named), "none refers to the savepoint", trial)


@pytest.mark.long_on_clusters
@pytest.mark.clause("COO-5", "REC-1")
@pytest.mark.needs(Capability.WORKER_KILL, Capability.ATTEMPTS)
def test_a_savepoint_that_was_claimed_stays_until_a_newer_checkpoint_is_complete(trials: Trials) -> None:
    claimed = msgspec.structs.replace(STOP, claim=True)
    # The first checkpoint, the savepoint, and the first one of the job that claimed it.
    kill = kill_worker(STATEFUL, After(ProtocolPoint.CHECKPOINT_TRIGGERED, nth=3))
    for trial in trials.all_valid(_plan(claimed, faults=(kill,), interval_ms=SELDOM_MS)):
        stopped = exactly_one(_stops(trial), STOPPED, trial)
        restored = [line.operation.restored_checkpoint for line in trial.history.of(AttemptStarted)]
        happened(restored.count(stopped) >= 2, f"it was started from twice, in {restored}", trial)


@pytest.mark.nightly_on_clusters
@pytest.mark.needs(Capability.UNALIGNED_CHECKPOINTS)
@pytest.mark.clause("REC-6", "COO-5")
def test_a_stopped_subtask_reads_nothing_when_it_gives_an_overlapping_checkpoint_up(trials: Trials) -> None:
    """Checkpoints overlap before a slow vertex, so that a subtask stops while an older one is still being taken."""
    plan = msgspec.structs.replace(
        _plan(
            SavepointPlan(after_checkpoints=0, delay_ms=25, stop=True, claim=False),
            mode="unaligned",
            timeout_ms=90,
            max_concurrent=3,
        ),
        workload=WorkloadPlan(batches=60, keys=8, records_per_second=600),
        deployment=DeploymentPlan(slow_vertex="totals", slow_batch_ms=3),
        network=NetworkPlan(latency_ms_max=6, slow_channel=2),
    )
    for trial in trials.all_valid(plan):
        happened(_meant_to_stop(trial), STOPPED, trial)
