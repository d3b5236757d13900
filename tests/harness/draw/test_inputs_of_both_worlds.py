"""A source subtask reads the same splits in both worlds, and they are those that the plan says."""

from __future__ import annotations

from pathlib import Path

import pytest

from barrier_tck.harness.draw.profile import Profile
from barrier_tck.harness.draw.profiles import PROFILES
from barrier_tck.harness.draw.strategies import draw_plans
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.reference.jobs import parquet_sources
from barrier_tck.harness.workloads.workload import job_of_plan, split_name
from barrier_tck.harness.workloads.workload_names import filled, workload_named
from barrier_tck.reference_impl.operators.sources import ParquetSource


def problems(plan: TrialPlan, directory: Path) -> list[str]:
    """Return every split that somebody else reads than the plan says, in either world."""
    workload, found = workload_named(plan.workload.name), list[str]()
    for vertex in job_of_plan(workload, plan).sources:
        splits = [split for split in workload.splits(plan) if split.vertex == vertex.name]
        (directory / vertex.name).mkdir(parents=True)
        for split in splits:
            (directory / vertex.name / f"{split.name}.parquet").touch()
        source = parquet_sources(plan, workload, directory)[vertex.name]
        assert isinstance(source, ParquetSource)
        on_spark = [split_name(name) for name in source.split_files()] if splits else []
        for world, names in (("simulated", [split.name for split in splits]), ("on Spark", on_spark)):
            read = {name: place % vertex.parallelism for place, name in enumerate(names)}
            found += [
                f"{world}: {split.name} of {vertex.name}[{split.subtask}] is read by {read[split.name]}"
                for split in splits
                if read[split.name] != split.subtask
            ]
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)
def test_every_split_is_read_by_the_subtask_that_the_plan_says(profile: Profile, tmp_path: Path) -> None:
    plans = draw_plans(11, 12, profile)
    found = [
        problem
        for number, plan in enumerate(plans)
        if workload_named(plan.workload.name).input_directory is None
        for problem in problems(filled(plan), tmp_path / str(number))
    ]
    assert plans and not found
