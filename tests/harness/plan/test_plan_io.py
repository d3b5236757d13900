"""Reading plans: every mistake is reported with its key path and the nearest right key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import trial_plans
from barrier_tck.harness.plan.reading import plan_from, read_plan
from barrier_tck.harness.plan.trial_plan import PLAN_VERSION, TrialPlan, to_builtins, write
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.trial.plan_check import check_plan
from tests.harness.fake_system import FakeSystem


@settings(max_examples=25, deadline=None)
@given(trial_plans(profile_named("standard")))
def test_every_plan_survives_json(plan: TrialPlan) -> None:
    assert plan_from(json.loads(json.dumps(to_builtins(plan))), "memory") == plan


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"deploymnt": {}}, ["'deploymnt'", "did you mean 'deployment'"]),
        ({"workload": {"batchs": 3}}, ["'workload.batchs'", "did you mean 'batches'"]),
        ({"workload": {"batches": "3"}}, ["workload.batches", "int", "str"]),
        ({"workload": {"batches": -3}}, ["workload.batches is -3", "0 or more"]),
        ({"checkpoints": {"mode": "exactly_onc"}}, ["checkpoints.mode", "did you mean 'exactly_once'"]),
        ({"state_backend": "rocksb"}, ["state_backend is 'rocksb'", "did you mean 'rocksdb'"]),
        ({"state_backend": "my backend:x"}, ["state_backend", "package.module:Factory"]),
        ({"version": PLAN_VERSION + 1}, [f"version {PLAN_VERSION + 1}", "newer"]),
        (
            {"deployment": {"max_parallelism": 10**12}},
            ["deployment.max_parallelism is 1000000000000", "32768"],
        ),
        (
            {"faults": [{"fault": {"type": "kill_exector", "subtask": "a[0]"}, "trigger": {"type": "at"}}]},
            ["faults[0].fault.type", "did you mean 'kill_executor'"],
        ),
        (
            {
                "faults": [
                    {
                        "fault": {"type": "crash_coordinator"},
                        "trigger": {"type": "after", "point": "snapshot_take"},
                    }
                ]
            },
            ["faults[0].trigger.point", "did you mean 'snapshot_taken'"],
        ),
        (
            {"faults": [{"fault": {"type": "crash_coordinator"}, "trigger": {"type": "at"}}]},
            ["'faults[0].trigger.time_ms' is missing"],
        ),
        ([1], ["a plan is an object"]),
    ],
)
def test_a_wrong_plan_is_refused_with_key_path_and_nearest_key(value: Any, words: list[str]) -> None:
    with pytest.raises(UsageProblem) as caught:
        plan_from(value, "plan.json")
    assert all(word in str(caught.value) for word in ["plan.json", *words]), str(caught.value)


def test_missing_and_malformed_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="does not exist"):
        read_plan(tmp_path / "nowhere.json")
    (tmp_path / "half.json").write_text('{"seed": ')
    with pytest.raises(UsageProblem, match=r"half\.json is not valid JSON: line 1"):
        read_plan(tmp_path / "half.json")
    write(TrialPlan(seed=4), tmp_path / "whole.json")
    assert read_plan(tmp_path / "whole.json").seed == 4


@pytest.mark.parametrize("text", ['{"seed": 1, "seed": 2}', '{"workload": {"batches": 1, "batches": 2}}'])
def test_a_key_that_comes_twice_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "twice.json"
    path.write_text(text)
    with pytest.raises(
        UsageProblem, match=r"twice\.json: the key '(seed|batches)' comes twice in one object"
    ):
        read_plan(path)


def test_a_plan_that_names_a_missing_subtask_is_refused() -> None:
    plan = plan_from(
        {
            "faults": [
                {
                    "fault": {"type": "kill_worker", "subtask": "total[0]"},
                    "trigger": {"type": "at", "time_ms": 1},
                }
            ]
        },
        "plan",
    )
    with pytest.raises(UsageProblem, match=r"did you mean 'totals\[0\]'"):
        check_plan(plan, FakeSystem())
