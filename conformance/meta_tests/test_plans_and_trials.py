"""Plans keep their meaning in every world, and a session's plans depend on its seed alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.conformance.fitting import CannotBeShown, fitted
from barrier_tck.conformance.meta_tests.do_nothing import DoNothing
from barrier_tck.conformance.plans import (
    CALM,
    OTHER_SINK,
    OTHER_STATEFUL,
    SINK,
    SIX_AIMS,
    STATEFUL,
    kill_executor,
    profile_for,
    scaled,
    varied,
    with_faults,
)
from barrier_tck.conformance.trials import Trial, Trials
from barrier_tck.faults.vocabulary import At
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.system.role_aims import resolved
from barrier_tck.harness.system.scale import Scale, scale_of
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.system.system_under_test import NemesisHooks, SystemUnderTest, TrialOutcome
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.workloads.barrier_jobs import barrier_view

SYSTEMS = [open_system(name) for name in ("reference-simulated", "reference-spark")]
SPARK = scale_of(SYSTEMS[1])


@pytest.mark.parametrize("aim", SIX_AIMS)
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_an_aimed_kill_is_the_same_in_every_world(system: SystemUnderTest, aim: str) -> None:
    plan = fitted(SIX_AIMS[aim], system)
    view = barrier_view(plan)
    assert plan.faults == resolved(SIX_AIMS[aim], view, system.name).faults
    check_plan(plan, system, aim)


def test_roles_become_the_names_of_the_system() -> None:
    plan = fitted(with_faults(kill_executor(OTHER_STATEFUL, At(20)), kill_executor(SINK, At(1))), SYSTEMS[0])
    assert [scheduled.fault.subtasks for scheduled in plan.faults] == [("totals[1]",), ("sink[0]",)]
    with pytest.raises(CannotBeShown, match="'@sink:1' is number 2 of the subtasks with the role sink"):
        fitted(with_faults(kill_executor(OTHER_SINK, At(1))), SYSTEMS[0])


def test_in_simulated_time_a_plan_runs_as_it_was_written() -> None:
    assert fitted(CALM, SYSTEMS[0]) == CALM == scaled(CALM, Scale())


@pytest.mark.parametrize("scale", [Scale(), SPARK], ids=["default", "spark"])
@pytest.mark.parametrize(
    "workload", [WorkloadPlan(batches=0), WorkloadPlan(batches=1, batch_records=1)], ids=["none", "one"]
)
def test_tiny_inputs_stay_tiny(scale: Scale, workload: WorkloadPlan) -> None:
    assert scaled(varied(workload=workload), scale).workload == workload


def test_on_a_cluster_intervals_and_times_of_faults_are_stretched_alike() -> None:
    plan = with_faults(kill_executor(STATEFUL, At(20)))
    stretched = scaled(plan, SPARK)
    trigger = stretched.faults[0].trigger
    assert isinstance(trigger, At)
    assert trigger.time_ms / 20 == stretched.checkpoints.interval_ms / plan.checkpoints.interval_ms


def test_on_a_cluster_the_standard_job_takes_several_checkpoints_and_few_seconds() -> None:
    plan = scaled(CALM, SPARK)
    workload = plan.workload
    assert workload.records_per_second is not None
    seconds = workload.batches * workload.batch_records / workload.records_per_second
    assert 3 * plan.checkpoints.interval_ms / 1_000 <= seconds <= 4


def test_a_system_that_says_nothing_of_its_scale_runs_plans_as_they_are_written() -> None:
    assert scale_of(DoNothing()) == Scale()


@pytest.mark.parametrize("system", [*SYSTEMS, DoNothing()], ids=lambda system: system.name)
def test_faultless_means_without_faults_in_every_system(system: SystemUnderTest) -> None:
    assert profile_for("faultless", system).faults.number == (0, 0)
    assert profile_for("at-least-once", system).checkpoints.modes == ("at_least_once",)


def _drawn(directory: Path, seed: int) -> list[TrialPlan]:
    plans: list[TrialPlan] = []

    def collect(trial: Trial) -> None:
        plans.append(trial.record.plan)

    directory.mkdir()
    Trials(DoNothing(), directory, seed).generated("standard", collect)
    return plans


def test_the_sessions_seed_decides_the_generated_plans(tmp_path: Path) -> None:
    first, again, other = (_drawn(tmp_path / name, seed) for name, seed in (("a", 7), ("b", 7), ("c", 8)))
    assert len(first) == scale_of(DoNothing()).examples_max
    assert first == again
    assert first != other


def test_a_plan_that_two_tests_look_at_is_run_once(tmp_path: Path) -> None:
    trials = Trials(DoNothing(), tmp_path)
    assert trials.run(CALM) is trials.run(varied())
    assert trials.run(CALM) is not trials.run(varied(job=JobPlan(widths={"totals": 3})))


def test_a_plan_that_runs_again_has_a_directory_of_its_own(tmp_path: Path) -> None:
    found: list[list[str]] = []

    class Leaves(DoNothing):
        def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
            found.append(sorted(path.name for path in directory.iterdir()))
            (directory / "left").touch()
            return super().run(plan, nemesis, directory)

    trials = Trials(Leaves(), tmp_path)
    for _ in range(2):  # the same plans
        trials.generated("standard", lambda _: None)
    assert len(found) == 2 * scale_of(DoNothing()).examples_max
    assert {tuple(names) for names in found} == {("plan.json",)}
