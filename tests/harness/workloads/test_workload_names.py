"""What a plan says of its job must fit the workload, and the rest of the plan."""

from __future__ import annotations

import pytest

from barrier_tck.harness.cli.main import run
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import RescalePlan, SavepointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.workloads.workload_names import filled

STOP = SavepointPlan(after_checkpoints=1, stop=True)


def test_a_rescale_that_an_edge_forbids_is_a_problem_of_the_plan() -> None:
    plan = TrialPlan(
        workload=WorkloadPlan("lineage"),
        job=JobPlan("windows"),
        savepoints=(STOP,),
        rescales=(RescalePlan({"last": 4}),),
    )
    with pytest.raises(UsageProblem, match="last -> out is a forward edge and needs equal parallelism"):
        filled(plan)


@pytest.mark.long
def test_a_campaign_may_rescale_to_more_subtasks_than_there_would_be_key_groups(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("campaign")
    (directory / "wide.toml").write_text(
        "seed = 1\ntrials = 12\ncontrols = 0\n"
        "savepoints = [{ after_checkpoints = 1, stop = true }]\nrescales = [{ widths = { totals = 4 } }]\n"
    )
    assert run(["campaign", str(directory / "wide.toml"), "--out", str(directory)]) in (0, 2)
