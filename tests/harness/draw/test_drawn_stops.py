"""Drawn plans in which savepoints fail while the job goes on, the last one of a job that is to be stopped, too."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from barrier_tck.harness.draw.catalogue import known_scenarios
from barrier_tck.harness.draw.constraints import Constraints, Drawing
from barrier_tck.harness.draw.drawn_job import DrawnJob
from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plan, draw_plans
from barrier_tck.harness.oracle.checkers.timers import LATE_MS
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.operations import (
    CheckpointAborted,
    CheckpointTriggered,
    SavepointRefused,
    SavepointRequested,
    StartedFromSavepoint,
)
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.dataflow_model import windows_of
from barrier_tck.reference_impl.protocol.subtask import SubtaskCommands, SubtaskMachine
from barrier_tck.reference_impl.protocol.subtask_commands import EndInput

SEED = 991
PLANS = 60
OFTEN = profile_named("savepoints").with_shares(failing_stops=1_000, held_timers=0, copies=0)


def only(scenario: str, profile: str) -> Profile:
    """Return a profile all of whose plans are part of a scenario."""
    known = known_scenarios()
    none = {name: 0 for name, other in known.items() if other.excludes(known[scenario])}
    return profile_named(profile).with_shares(**{**none, scenario: 1_000})


def failed(history: History) -> tuple[int, int]:
    """Return how many stops failed while the attempt went on, and how many savepoints while a stop was waiting."""
    stops: list[int] = []
    savepoints: list[int] = []
    waiting: list[str] = []
    failed_stops = beside = 0
    for line in history.operations:
        match line.operation:
            case SavepointRequested(savepoint=place, stops=True):
                waiting.append(place)
            case SavepointRefused(savepoint=place) if place in waiting:
                waiting.remove(place)
            case CheckpointTriggered(checkpoint=number, savepoint=str(place), stops=stop):
                (stops if stop else savepoints).append(number)
                waiting = [one for one in waiting if one != place]
            case CheckpointAborted(checkpoint=number, reason=reason) if reason is not Reason.ATTEMPT_FAILED:
                failed_stops += number in stops
                beside += number in savepoints and bool(waiting)
    return failed_stops, beside


@pytest.mark.nightly
def test_stops_fail_in_every_mode_while_the_job_goes_on_and_savepoints_while_a_stop_waits(
    tmp_path: Path,
) -> None:
    system = ReferenceSimulated()
    constraints = Constraints(system.job, system.capabilities)
    failures: Counter[str] = Counter()
    waited = 0
    for number in range(PLANS):
        plan = draw_plan(SEED + number, OFTEN, constraints)
        directory = tmp_path / str(number)
        directory.mkdir()
        trial = execute(plan, system, directory)
        assert trial.record.verdict is Verdict.VALID, (plan, trial.record.findings)
        assert trial.history is not None
        stops, beside = failed(trial.history)
        failures[plan.checkpoints.mode] += stops
        waited += beside
    assert all(failures[mode] >= 2 for mode in OFTEN.checkpoints.modes), failures
    assert failures.total() >= 15, failures
    assert waited >= 2


@pytest.mark.long
def test_some_plans_of_savepoints_are_made_for_stops_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TrialPlan] = []
    scenario = known_scenarios()["failing_stops"]

    def noted(drawing: Drawing, plan: TrialPlan) -> TrialPlan:
        made.append(plan)
        return scenario.savepoints(drawing, plan)

    monkeypatch.setitem(known_scenarios(), "failing_stops", replace(scenario, savepoints=noted))
    draw_plans(SEED + 2, 180, profile_named("savepoints"))
    assert 20 <= len(made) <= 80
    assert {plan.checkpoints.mode for plan in made} == set(OFTEN.checkpoints.modes)


@pytest.mark.nightly
def test_many_plans_with_early_ends_have_savepoints_and_some_a_slow_vertex() -> None:
    plans = draw_plans(SEED, 300, profile_named("ends"))
    assert sum(bool(plan.savepoints) for plan in plans) >= 30
    assert sum(bool(plan.deployment.slow_vertex and plan.workload.early_ends) for plan in plans) >= 20


def test_after_a_stop_that_holds_timers_up_nothing_else_happens_for_long() -> None:
    system = ReferenceSimulated()
    constraints = Constraints(system.job, system.capabilities)
    profile = profile_named("savepoints").with_shares(held_timers=1_000)
    plans = [draw_plan(seed, profile, constraints) for seed in range(12)]
    for plan in plans:
        (stop,) = plan.savepoints
        reads_ms = (
            plan.workload.batches
            * plan.workload.batch_records
            * 1_000
            / (plan.workload.records_per_second or 1)
        )
        assert stop.stop
        assert not plan.faults
        assert reads_ms >= 2 * LATE_MS
        assert plan.network.slow_channel is None
    assert sum(bool(windows_of(plan.job)) for plan in plans) >= 4


@pytest.mark.nightly
@pytest.mark.parametrize("profile", ["savepoints", "loops", "chandy-lamport"])
def test_drawn_savepoints_are_declined_while_stops_wait_for_them(profile: str, tmp_path: Path) -> None:
    system = ReferenceSimulated()
    constraints = Constraints(system.job, system.capabilities)
    reached = 0
    for number in range(8):
        plan = draw_plan(SEED + number, only("failing_savepoints", profile), constraints)
        directory = tmp_path / str(number)
        directory.mkdir()
        trial = execute(plan, system, directory)
        assert trial.record.verdict is Verdict.VALID, (plan, trial.record.findings)
        assert trial.history is not None
        reached += failed(trial.history)[1] > 0
    assert reached >= 3


@pytest.mark.long
def test_stops_at_the_end_are_asked_for_when_the_sources_end_and_one_channel_is_slow() -> None:
    system = ReferenceSimulated()
    constraints = Constraints(system.job, system.capabilities)
    profile = only("stops_at_the_end", "chandy-lamport")
    plans = [draw_plan(seed, profile, constraints) for seed in range(12)]
    for plan in plans:
        reads_ms = DrawnJob(plan, system.job(plan)).reads_ms
        assert reads_ms is not None
        assert len(plan.savepoints) >= 5 and all(asked.stop for asked in plan.savepoints)
        assert reads_ms - 12 <= plan.savepoints[0].delay_ms <= reads_ms + 15
        assert plan.savepoints[-1].delay_ms > reads_ms + 30
        assert plan.network.slow_channel is not None
        sender, _ = plan.job.channels[plan.network.slow_channel]
        assert any(sender in vertex.subtasks for vertex in plan.job.sources)
        assert not plan.faults


@pytest.mark.nightly
def test_a_channel_ends_while_its_receiver_is_held_for_a_stop_that_then_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = SubtaskMachine._release
    due: list[bool] = []

    def noted(machine: SubtaskMachine) -> SubtaskCommands:
        commands = released(machine)
        due.append(EndInput() in commands)
        return commands

    monkeypatch.setattr(SubtaskMachine, "_release", noted)
    system = ReferenceSimulated()
    constraints = Constraints(system.job, system.capabilities)
    profile = only("stops_at_the_end", "loops")
    reached = 0
    for number in range(30):
        due.clear()
        directory = tmp_path / str(number)
        directory.mkdir()
        execute(draw_plan(SEED + number, profile, constraints), system, directory, [])
        reached += any(due)
    assert reached >= 2


@pytest.mark.nightly
def test_jobs_start_again_from_savepoints_with_newer_checkpoints_under_way(tmp_path: Path) -> None:
    system = ReferenceSimulated()
    constraints = Constraints(system.job, system.capabilities)
    profile = only("from_savepoint", "savepoints")
    started = 0
    for number in range(16):
        directory = tmp_path / str(number)
        directory.mkdir()
        plan = draw_plan(SEED + number, profile, constraints)
        trial = execute(plan, system, directory)
        assert trial.record.verdict is Verdict.VALID, (plan, trial.record.findings)
        assert trial.history is not None
        operations = [line.operation for line in trial.history.operations]
        for place, operation in enumerate(operations):
            if isinstance(operation, StartedFromSavepoint):
                before = [
                    one.checkpoint for one in operations[:place] if isinstance(one, CheckpointTriggered)
                ]
                after = [one.checkpoint for one in operations[place:] if isinstance(one, CheckpointTriggered)]
                assert operation.checkpoint < max(before)
                assert min(after) > max(before)
                started += 1
    assert started >= 5
