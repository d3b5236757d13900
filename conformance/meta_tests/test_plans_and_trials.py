"""Plans keep their meaning in every world, and a session's plans depend on its seed alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.conformance.meta_tests.do_nothing import DoNothing
from barrier_tck.conformance.plans import (
    CALM,
    SCALES,
    SIX_AIMS,
    kill_executor,
    profile_for,
    scale_of,
    scaled,
    varied,
    with_faults,
)
from barrier_tck.conformance.trials import Trial, Trials
from barrier_tck.faults.schedule import validate
from barrier_tck.faults.vocabulary import At
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.reading import check_backend
from barrier_tck.harness.plan.trial_plan import TrialPlan, WorkloadPlan
from barrier_tck.harness.workloads.barrier_jobs import barrier_view


@pytest.mark.parametrize("aim", SIX_AIMS)
@pytest.mark.parametrize("world", SCALES)
def test_an_aimed_kill_is_the_same_in_every_world(world: str, aim: str) -> None:
    plan = scaled(SIX_AIMS[aim], world)
    assert plan.faults == SIX_AIMS[aim].faults
    check_backend(plan, aim)
    validate(plan.faults, barrier_view(plan).names)


def test_in_simulated_time_a_plan_runs_as_it_was_written() -> None:
    assert scaled(CALM, "simulated") == CALM


@pytest.mark.parametrize("world", SCALES)
@pytest.mark.parametrize(
    "workload", [WorkloadPlan(batches=0), WorkloadPlan(batches=1, batch_records=1)], ids=["none", "one"]
)
def test_tiny_inputs_stay_tiny(world: str, workload: WorkloadPlan) -> None:
    assert scaled(varied(workload=workload), world).workload == workload


def test_on_a_cluster_intervals_and_times_of_faults_are_stretched_alike() -> None:
    plan = with_faults(kill_executor("totals[0]", At(20)))
    stretched = scaled(plan, "spark")
    trigger = stretched.faults[0].trigger
    assert isinstance(trigger, At)
    assert trigger.time_ms / 20 == stretched.checkpoints.interval_ms / plan.checkpoints.interval_ms


def test_on_a_cluster_the_standard_job_takes_several_checkpoints_and_few_seconds() -> None:
    plan = scaled(CALM, "spark")
    workload = plan.workload
    assert workload.records_per_second is not None
    seconds = workload.batches * workload.batch_records / workload.records_per_second
    assert 3 * plan.checkpoints.interval_ms / 1_000 <= seconds <= 4


def test_an_unknown_world_is_named() -> None:
    with pytest.raises(LookupError, match="no scale for the world 'moon'; it has simulated, spark"):
        scale_of("moon")


@pytest.mark.parametrize("world", SCALES)
def test_faultless_means_without_faults_in_every_world(world: str) -> None:
    assert profile_for("faultless", world).faults == (0, 0)


def _drawn(directory: Path, seed: int) -> list[TrialPlan]:
    plans: list[TrialPlan] = []

    def collect(trial: Trial) -> None:
        plans.append(trial.record.plan)

    directory.mkdir()
    Trials(DoNothing(), directory, seed).generated("standard", collect)
    return plans


def test_the_sessions_seed_decides_the_generated_plans(tmp_path: Path) -> None:
    first, again, other = (_drawn(tmp_path / name, seed) for name, seed in (("a", 7), ("b", 7), ("c", 8)))
    assert len(first) == SCALES["simulated"].examples_max
    assert first == again
    assert first != other


def test_a_plan_that_two_tests_look_at_is_run_once(tmp_path: Path) -> None:
    trials = Trials(DoNothing(), tmp_path)
    assert trials.one(CALM) is trials.one(varied())
    assert trials.one(CALM) is not trials.one(varied(job=JobPlan(widths={"totals": 3})))
