"""Plans made for moments that chance next to never draws: what they have, and that the product passes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.fault import Ends, OnProgress
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.targets import COORDINATOR, TargetKind
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.scenarios.scarce_restarts import counted_at_most
from barrier_tck.harness.draw.strategies import draw_plan, draw_plans
from barrier_tck.harness.plan.trial_plan import RestartPlan, TrialPlan
from barrier_tck.harness.record.operations import AttemptRunning, AttemptStarted, JobFailed, Narrowed
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.kinds.changes import AT_THE_END
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot

SYSTEM = ReferenceSimulated()
MADE = (
    ("refused_deletions", "standard"),
    ("overlapping_copies", "standard"),
    ("late_ends", "at-least-once"),
    ("failed_snapshots", "standard"),
    ("failed_publications", "standard"),
    ("fallbacks", "rescale"),
    ("last_totals", "ends"),
    ("ends_apart", "ends"),
    ("late_messages", "loops"),
    ("outages_in_restore", "object-store"),
    ("outages_in_publication", "object-store"),
    ("failed_deployments", "standard"),
    ("failed_deployments", "modes"),
    ("merged_increments", "incremental"),
    ("merged_increments", "graphs"),
    ("scarce_restarts", "standard"),
    ("scarce_restarts", "chains"),
    ("scarce_restarts", "savepoints"),
    ("ends_in_publication", "graphs"),
    ("ends_in_publication", "ends"),
    ("zombies", "standard"),
    ("zombies", "modes"),
    ("zombies", "incremental"),
    ("last_savepoints", "savepoints"),
    ("last_savepoints", "ends"),
    ("restored_savepoints", "incremental"),
    ("restored_savepoints", "standard"),
    ("in_flight", "modes"),
    ("in_flight", "loops"),
    ("full_outputs", "modes"),
    ("full_outputs", "savepoints"),
    ("torn_commits", "standard"),
    ("torn_last_commits", "standard"),
    ("torn_last_commits", "graphs"),
)


def drawn(scenario: str, profile: str, number: int) -> tuple[TrialPlan, ...]:
    known = known_scenarios()
    others = {name: 0 for name, other in known.items() if other.excludes(known[scenario])}
    made = profile_named(profile).with_shares(**{**others, scenario: 1_000})
    constraints = Constraints(SYSTEM.job, SYSTEM.capabilities)
    return tuple(draw_plan(seed, made, constraints) for seed in range(number))


def shown_by(bug_id: str, plans: Sequence[TrialPlan], directory: Path) -> bool:
    """Return whether one of the plans is INVALID with a planted bug; then it is VALID without."""
    bug = planted_bugs()[bug_id]
    for number, plan in enumerate(plans):
        place = directory / str(number)
        place.mkdir()
        if execute(bug.planted_in(plan), SYSTEM, place / "planted").record.verdict is Verdict.INVALID:
            assert execute(plan, SYSTEM, place / "plain").record.verdict is Verdict.VALID
            return True
    return False


def test_deletions_are_refused_where_some_are_certain_to_follow() -> None:
    refused = 0
    for plan in drawn("refused_deletions", "standard", 20):
        of_deletions = [one for one in plan.faults if one.fault.needs is TargetKind.DELETIONS]
        refused += len(of_deletions)
        assert plan.checkpoints.retained <= 2 and plan.checkpoints.max_concurrent == 1
        assert len(of_deletions) <= 1
    assert refused >= 10


def test_snapshots_fail_where_some_are_certain_to_follow() -> None:
    failing, overlapping = 0, 0
    for plan in drawn("failed_snapshots", "standard", 20):
        fails = [one.fault for one in plan.faults if one.fault.needs is TargetKind.SNAPSHOTS]
        assert len(fails) <= 1
        failing += len(fails)
        overlapping += bool(fails) and plan.checkpoints.max_concurrent > 1
    assert failing >= 10 and overlapping >= 2


def test_an_attempt_fails_while_a_checkpoint_is_published() -> None:
    failing, written, crashed = 0, 0, 0
    for plan in drawn("failed_publications", "standard", 40):
        triggers = [one.trigger for one in plan.faults if isinstance(one.trigger, After)]
        numbers = {trigger.point: trigger.nth for trigger in triggers}
        if ProtocolPoint.ALL_ACKNOWLEDGED not in numbers or plan.checkpoints.async_ms_max < 15:
            continue  # its input is too short
        assert plan.checkpoints.max_concurrent == 1
        crashed += ProtocolPoint.ATTEMPT_FAILED in numbers
        if ProtocolPoint.CHECKPOINT_TRIGGERED not in numbers:
            written += 1
            continue
        failing += 1
        assert numbers[ProtocolPoint.CHECKPOINT_TRIGGERED] == numbers[ProtocolPoint.ALL_ACKNOWLEDGED]
        assert plan.faults[0].fault.fails_metadata
    assert failing >= 20 and written >= 4 and crashed >= 4


def test_copies_of_several_checkpoints_are_there_when_a_sink_dies() -> None:
    died = 0
    for plan in drawn("overlapping_copies", "standard", 20):
        assert plan.local_recovery and plan.checkpoints.max_concurrent > 1
        points = [getattr(one.trigger, "point", None) for one in plan.faults]
        died += ProtocolPoint.COMPLETION_NOTIFIED in points
    assert died >= 10


def test_the_slow_channel_leads_out_of_a_source_that_ends_early() -> None:
    for plan in drawn("late_ends", "at-least-once", 20):
        sources = [name for vertex in plan.job.sources for name in vertex.subtasks]
        slow = plan.network.slow_channel
        assert slow is not None and plan.checkpoints.max_concurrent > 1
        assert plan.job.channels[slow][0] in sources[: plan.workload.early_ends]


def test_a_job_becomes_narrower_and_falls_back_before_its_sinks_have_committed() -> None:
    wide_again, damaged = 0, 0
    for plan in drawn("fallbacks", "rescale", 30):
        if plan.deployment.elastic_wait_ms is None or not plan.faults:
            continue  # this plan has another purpose, or its input is too short
        gone, crash, *damage = plan.faults
        assert plan.on_unreadable == "older" and not plan.local_recovery
        assert isinstance(gone.trigger, After) and isinstance(crash.trigger, After)
        assert gone.trigger.point is crash.trigger.point is ProtocolPoint.CHECKPOINT_COMPLETED
        assert gone.trigger.nth < crash.trigger.nth
        wide_again += plan.deployment.replaced_after_ms > 0
        damaged += bool(damage)
    assert wide_again >= 10 and damaged >= 4


def test_the_input_ends_while_the_snapshot_is_stored_that_is_restored() -> None:
    died = 0
    for plan in drawn("last_totals", "ends", 20):
        vertices = [vertex for vertex in plan.job.vertices if AT_THE_END in vertex.parameters]
        checkpoints, workload = plan.checkpoints, plan.workload
        assert vertices and workload.records_per_second is not None
        ends_ms = workload.batches * workload.batch_records * 1_000 // workload.records_per_second
        assert checkpoints.interval_ms < ends_ms + 2 < checkpoints.interval_ms + checkpoints.async_ms_max
        points = [getattr(one.trigger, "point", None) for one in plan.faults]
        died += points == [ProtocolPoint.COMPLETION_NOTIFIED]
    assert died >= 18


def test_a_job_that_emits_at_its_end_stays_as_wide_as_it_is_if_barriers_overtake_that_end() -> None:
    made = profile_named("ends").with_shares(elastic=1_000, savepoints=1_000, changed_totals=1_000)
    elastic: dict[bool, int] = {True: 0, False: 0}
    for plan in draw_plans(5, 80, made, Constraints(SYSTEM.job, SYSTEM.capabilities)):
        last = [vertex.name for vertex in plan.job.vertices if AT_THE_END in vertex.parameters]
        if last and plan.checkpoints.overtakes:
            elastic[True] += plan.deployment.elastic_wait_ms is not None
            assert not any(name in rescale.widths for rescale in plan.rescales for name in last)
        else:
            elastic[False] += plan.deployment.elastic_wait_ms is not None
    assert elastic[True] == 0 and elastic[False] >= 10


def _one_has_ended(of: Sequence[OperatorSnapshot]) -> bool:
    return any(one.input_ended for one in of)


def test_a_job_is_restored_narrower_that_is_at_its_end_in_some_subtasks_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = drawn("ends_apart", "ends", 20)
    for plan in plans:
        assert plan.checkpoints.overtakes and [one.fault.needs for one in plan.faults] == [
            TargetKind.CAPACITY
        ]

    def wrong_ones(scratch: Path) -> Iterator[TrialPlan]:
        for number, plan in enumerate(plans):
            directory = scratch / str(number)
            directory.mkdir(parents=True)
            if execute(plan, SYSTEM, directory).record.verdict is Verdict.INVALID:
                yield plan

    with monkeypatch.context() as broken:
        broken.setattr("barrier_tck.reference_impl.protocol.rescale._ended", _one_has_ended)
        wrong = next(wrong_ones(tmp_path / "broken"))
    assert execute(wrong, SYSTEM, tmp_path).record.verdict is Verdict.VALID


def test_a_member_of_a_loop_and_the_coordinator_hear_late_of_each_other() -> None:
    members = 0
    for plan in drawn("late_messages", "loops", 20):
        late, checkpoints = plan.faults[0].fault, plan.checkpoints
        assert late.link is not None and late.link[1] == COORDINATOR
        assert late.on_progress is OnProgress.SLOWS and checkpoints.max_concurrent > 2
        vertex = late.link[0].partition("[")[0]
        members += any(vertex in loop for loop in plan.job.loops)
    assert members >= 15


def test_storage_is_away_where_a_restore_is_certain() -> None:
    storages: set[str] = set()
    points: set[ProtocolPoint] = set()
    for plan in drawn("outages_in_restore", "object-store", 30):
        failure, outage = plan.faults
        assert isinstance(failure.trigger, After) and isinstance(outage.trigger, After)
        assert failure.fault.ends is not None and failure.trigger.point is ProtocolPoint.COMPLETION_NOTIFIED
        assert outage.fault.needs is TargetKind.OBJECT_STORE and not plan.local_recovery
        storages.add(plan.checkpoints.storage)
        points.add(outage.trigger.point)
    assert storages == {"s3", "hdfs"}
    assert points == {
        ProtocolPoint.RESTORE_STARTED,
        ProtocolPoint.COORDINATOR_STARTING,
        ProtocolPoint.ATTEMPT_STARTED,
    }


def test_storage_goes_away_between_two_steps_of_a_savepoint() -> None:
    steps: set[int] = set()
    for plan in drawn("outages_in_publication", "object-store", 30):
        if not plan.savepoints:
            continue  # this job takes no checkpoints
        (outage,) = plan.faults
        assert outage.fault.needs is TargetKind.OBJECT_STORE and isinstance(outage.trigger, After)
        assert outage.trigger.point is ProtocolPoint.PUBLICATION_STEP
        steps.add(outage.trigger.nth - 2 * plan.savepoints[0].after_checkpoints)
    assert steps == {1, 2, 3}


def test_attempts_fail_before_they_run_again_and_again(tmp_path: Path) -> None:
    """Often the one before the last fails so, too: whether it made the delay grow shows after the next failure."""
    in_row, near_a_good_run = 0, 0
    plans = drawn("failed_deployments", "standard", 20)
    for plan in plans:
        restart, points = plan.restart, [getattr(one.trigger, "point", None) for one in plan.faults]
        assert restart.strategy == "exponential_delay" and restart.factor > 1
        assert points[0] is ProtocolPoint.CHECKPOINT_COMPLETED
        dying = [point in (ProtocolPoint.RESTORE_STARTED, ProtocolPoint.RESTORED) for point in points]
        assert any(dying)
        in_row += any(dying[1:-1])
        near_a_good_run += restart.reset_after_ms <= plan.network.latency_ms_max
    assert in_row >= 8 and near_a_good_run >= 8
    for number, plan in enumerate(plans[:4]):
        directory = tmp_path / str(number)
        directory.mkdir()
        result = execute(plan, SYSTEM, directory)
        assert result.record.verdict is Verdict.VALID, (plan, result.record.findings)
        assert result.history is not None
        started, ran = (len(list(result.history.of(kind))) for kind in (AttemptStarted, AttemptRunning))
        assert started > ran


def kill(point: ProtocolPoint, nth: int) -> ScheduledFault:
    return ScheduledFault(KillWorker("totals[0]"), After(point, nth=nth))


def crash(nth: int) -> ScheduledFault:
    return ScheduledFault(CrashCoordinator(), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=nth))


COMPLETED, RUNNING = ProtocolPoint.CHECKPOINT_COMPLETED, ProtocolPoint.ATTEMPT_RUNNING


@pytest.mark.parametrize(
    ("restart", "failures", "counted"),
    [
        (RestartPlan("fixed_delay"), (kill(COMPLETED, 1), kill(COMPLETED, 4), kill(RUNNING, 3)), [1, 2, 3]),
        (RestartPlan("fixed_delay"), (kill(COMPLETED, 1), crash(2), kill(COMPLETED, 3)), [1, 0, 1]),
        (
            RestartPlan("exponential_delay", reset_after_ms=20),
            (kill(COMPLETED, 1), kill(COMPLETED, 2), kill(COMPLETED, 4), kill(RUNNING, 4)),
            [1, 2, 1, 2],
        ),
        # Of three failures the first is long past when the last comes; the second is not.
        (
            RestartPlan("failure_rate", interval_ms=26, delay_ms=8),
            (kill(COMPLETED, 1), kill(RUNNING, 2), kill(COMPLETED, 2), kill(COMPLETED, 4)),
            [1, 2, 2, 1],
        ),
    ],
)
def test_what_strategies_count_at_the_most(
    restart: RestartPlan, failures: tuple[ScheduledFault, ...], counted: list[int]
) -> None:
    assert list(counted_at_most(restart, 10, failures)) == counted


def test_a_job_has_the_restarts_that_it_needs_and_is_given_up_where_one_is_missing(tmp_path: Path) -> None:
    """A strategy that counts failures of a row that is over gives up jobs that the product ends."""
    scarce, given_up, wrong = 0, 0, 0
    for number, plan in enumerate(drawn("scarce_restarts", "standard", 24)):
        restart = plan.restart
        scarce += restart.attempts_max < len(plan.faults)
        results = []
        for mutant in (None, "RK-04"):
            directory = tmp_path / f"{number}-{mutant}"
            directory.mkdir()
            results.append(execute(msgspec.structs.replace(plan, mutant=mutant), SYSTEM, directory))
        right, broken = (result.record for result in results)
        assert right.verdict is Verdict.VALID, (plan, right.findings)
        assert [fault.outcome for fault in right.faults] == ["fired"] * len(plan.faults)
        assert results[0].history is not None
        given_up += any(results[0].history.of(JobFailed))
        wrong += broken.verdict is Verdict.INVALID
    assert scarce >= 8 and given_up >= 2 and wrong >= 3


def test_what_a_sink_had_moved_when_it_died_is_at_stake_when_its_host_is_lost(tmp_path: Path) -> None:
    """Without the sync that finishes a commit of others, the product would lose output in most of these plans."""
    lost, of_sinks = 0, 0
    for number, plan in enumerate(drawn("torn_commits", "standard", 12)):
        trigger = plan.faults[0].trigger
        assert isinstance(trigger, After)
        of_sinks += trigger.point is ProtocolPoint.COMMIT_STEP
        directory = tmp_path / str(number)
        directory.mkdir()
        record = execute(msgspec.structs.replace(plan, mutant="FS-01"), SYSTEM, directory).record
        lost += record.verdict is Verdict.INVALID
    assert of_sinks >= 8 and lost >= 7


def test_processes_end_while_what_they_acknowledged_is_published(tmp_path: Path) -> None:
    """A process that deletes then what it has acknowledged destroys most of these checkpoints."""
    broken, breaks, again = 0, 0, 0
    for number, plan in enumerate(drawn("ends_in_publication", "standard", 16)):
        triggers = [one.trigger for one in plan.faults if isinstance(one.trigger, After)]
        if [trigger.point for trigger in triggers[:1]] != [ProtocolPoint.ALL_ACKNOWLEDGED]:
            continue  # its input is too short
        breaks += any(one.fault.needs is TargetKind.CHANNEL for one in plan.faults)
        again += len(plan.faults) > 1
        directory = tmp_path / str(number)
        directory.mkdir()
        record = execute(msgspec.structs.replace(plan, mutant="UN-01"), SYSTEM, directory).record
        assert record.faults[0].outcome == "fired"
        broken += record.verdict is Verdict.INVALID
    assert broken >= 10 and breaks >= 3 and again >= 2


def test_zombies_go_on_when_their_successors_have_something_to_lose(tmp_path: Path) -> None:
    """A sink of an older attempt that sweeps away its successor's files does so in some of these plans."""
    swept, opening, sinks = 0, 0, 0
    for number, plan in enumerate(drawn("zombies", "standard", 44)):
        if not plan.faults or (paused := plan.faults[-1]).fault.needs is not TargetKind.PAUSE:
            continue  # its input is too short
        assert isinstance(paused.trigger, After)
        opening += paused.trigger.point in (ProtocolPoint.RESTORE_STARTED, ProtocolPoint.RESTORED)
        sinks += paused.fault.subtasks[0].startswith("sink")
        directory = tmp_path / str(number)
        directory.mkdir()
        result = execute(msgspec.structs.replace(plan, mutant="FE-02"), SYSTEM, directory)
        assert [fault.outcome for fault in result.record.faults] == ["fired"] * len(plan.faults)
        swept += result.record.verdict is Verdict.INVALID
    assert swept >= 5 and opening >= 4 and sinks >= 8


def test_zombies_go_on_when_the_checkpoint_is_gone_whose_files_their_successors_share(tmp_path: Path) -> None:
    """One that deletes what it has written does harm in some of these plans; by chance it did in next to none."""
    harmed, sharing, unheard, dying = 0, 0, 0, 0
    for number, plan in enumerate(drawn("zombies", "incremental", 16)):
        if not plan.faults:
            continue  # its input is too short
        *others, paused = plan.faults
        acknowledged = (
            isinstance(paused.trigger, After) and paused.trigger.point is ProtocolPoint.ACKNOWLEDGED
        )
        if not (acknowledged and paused.fault.needs is TargetKind.PAUSE and plan.checkpoints.incremental):
            continue  # one that has written nothing that is shared
        sharing += 1
        unheard += any(one.fault.needs is TargetKind.COORDINATOR for one in others)
        dying += any(one.fault.needs is not TargetKind.COORDINATOR for one in others)
        directory = tmp_path / str(number)
        directory.mkdir()
        result = execute(msgspec.structs.replace(plan, mutant="UN-03"), SYSTEM, directory)
        assert result.record.faults[-1].outcome == "fired"
        harmed += result.record.verdict is Verdict.INVALID
    assert sharing >= 6 and unheard >= 4 and dying >= 2 and harmed >= 2


def test_zombies_go_on_when_the_savepoint_that_they_acknowledged_is_the_users(tmp_path: Path) -> None:
    """One that deletes what it has written, though the savepoint is complete, does harm in some of these plans."""
    saved, harmed = 0, 0
    for number, plan in enumerate(drawn("zombies", "standard", 44)):
        if len(plan.savepoints) != 1 or not plan.faults or plan.faults[0].fault.ends is not Ends.COORDINATOR:
            continue
        assert plan.checkpoints.retained == 1 and not plan.savepoints[0].stop
        saved += 1
        directory = tmp_path / str(number)
        directory.mkdir()
        result = execute(msgspec.structs.replace(plan, mutant="SV-24"), SYSTEM, directory)
        assert [fault.outcome for fault in result.record.faults] == ["fired", "fired"]
        harmed += result.record.verdict is Verdict.INVALID
    assert saved >= 6 and harmed >= 3


def test_key_groups_of_several_subtasks_are_merged_where_increments_are_certain(tmp_path: Path) -> None:
    halved = 0
    plans = drawn("merged_increments", "incremental", 20)
    for plan in plans:
        deployment, points = plan.deployment, [getattr(one.trigger, "point", None) for one in plan.faults]
        assert plan.checkpoints.incremental and deployment.elastic_wait_ms is not None
        assert points == [ProtocolPoint.CHECKPOINT_COMPLETED] * len(points) and len(points) >= 2
        half = sum(-(-vertex.parallelism // 2) for vertex in plan.job.vertices)
        halved += deployment.slots_per_executor == half
        assert (deployment.executors - 1) * (deployment.slots_per_executor or 0) < len(plan.job.subtasks)
    assert halved >= 10
    for number, plan in enumerate(plans[:4]):
        directory = tmp_path / str(number)
        directory.mkdir()
        result = execute(plan, SYSTEM, directory)
        assert result.record.verdict is Verdict.VALID, (plan, result.record.findings)
        assert result.history is not None
        assert list(result.history.of(Narrowed))


@pytest.mark.nightly
@pytest.mark.parametrize(("scenario", "profile"), MADE, ids=["-".join(made) for made in MADE])
def test_the_product_passes_them(scenario: str, profile: str, tmp_path: Path) -> None:
    for number, plan in enumerate(drawn(scenario, profile, 12)):
        directory = tmp_path / str(number)
        directory.mkdir()
        record = execute(plan, SYSTEM, directory).record
        assert record.verdict is Verdict.VALID, (plan, record.findings)
