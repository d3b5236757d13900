"""Campaign files and budgets."""

from __future__ import annotations

import socket
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.harness.campaign.budget import DEFAULT_TRIALS, Budget, parse_duration
from barrier_tck.harness.campaign.configuration import (
    CampaignConfiguration,
    configuration_from,
    read_configuration,
)
from barrier_tck.harness.campaign.configuration_checks import check_configuration, import_system
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.cluster.cluster_config import ClusterKind, DockerClusterConfig, LocalClusterConfig
from barrier_tck.harness.plan.trial_plan import SavepointPlan, TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_names import open_system
from tests.harness.fake_system import FakeSystem

AIMED = """
name = "aimed"
seed = 9
timeout = "2m"
[workload]
batches = 7
[[trial]]
repeat = 2
note = "between the synchronous and the asynchronous part"
[[trial.faults]]
fault = { type = "kill_executor", subtask = "totals[0]" }
trigger = { type = "after", point = "snapshot_taken" }
[[trial]]
[trial.workload]
batches = 3
"""


def checked(value: dict[str, Any]) -> CampaignConfiguration:
    """Return a campaign, checked with its own system as a command does."""
    configuration = configuration_from({"seed": 0} | value, "c.toml")
    import_system(configuration, "c.toml")
    check_configuration(configuration, open_system(configuration.system.name), "c.toml")
    return configuration


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m", 300.0), ("90s", 90.0), ("1h30m", 5400.0), ("500ms", 0.5), ("1.5s", 1.5)]
)
def test_durations_are_numbers_with_units(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["5", "m", "5 m", "five", "-3s", "0s", ""])
def test_anything_else_is_no_duration_and_the_value_is_shown(text: str) -> None:
    with pytest.raises(UsageProblem, match=f"'{text}'"):
        parse_duration(text, "budget")


def test_a_budget_of_trials_counts_and_a_budget_of_time_measures() -> None:
    assert Budget(trials=2).allows(1, 1e9) and not Budget(trials=2).allows(2, 0)
    timed = Budget(trials=None, seconds=5.0)
    assert timed.allows(10**6, 4.9) and not timed.allows(1, 5.0)
    assert timed.allows(0, 5.0), "the first one begins in any case"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"sytem": "x"}, ["'sytem'", "did you mean 'system'"]),
        ({"system": "reference-spork"}, ["did you mean 'reference-spark'"]),
        ({"profile": "lit"}, ["did you mean 'lite'"]),
        ({"checkpoints": {"intervall_ms": 1}}, ["'checkpoints.intervall_ms'", "did you mean 'interval_ms'"]),
        ({"checkpoints": {"interval_ms": 0}}, ["checkpoints.interval_ms is 0"]),
        ({"checkpoints": {"interval_ms": "soon"}}, ["checkpoints.interval_ms", "int"]),
        ({"trial": [{"workload": {"key": 1}}]}, ["'trial[0].workload.key'", "did you mean 'keys'"]),
        ({"trial": [{"repeat": 0}]}, ["trial[0].repeat is 0"]),
        ({"trials": 3, "budget": "5m"}, ["keep one"]),
        ({"trials": 0}, ["trials is 0"]),
        ({"budget": "soon"}, ["budget is 'soon'"]),
        ({"timeout": "soon"}, ["timeout is 'soon'"]),
        ({"mixt": {}}, ["'mixt'", "did you mean 'mix'"]),
        ({"mix": {"modes": {}}}, ["'mix.modes'", "did you mean 'mode'"]),
        ({"mix": {"mode": {"exactly-once": 1}}}, ["'mix.mode.exactly-once'", "did you mean 'exactly_once'"]),
        ({"mix": {"workload": {"flight": 1}}}, ["'mix.workload.flight'", "did you mean 'flights'"]),
        ({"mix": {"state_backend": {"rockdb": 1}}}, ["did you mean 'rocksdb'"]),
        ({"mix": {"local_recovery": {"yes": 1}}}, ["'mix.local_recovery.yes'", "known: on, off"]),
        ({"mix": {"local_recovery": {"on": 1}}, "local_recovery": True}, ["keep one"]),
        ({"mix": {"mode": {"exactly_once": 0}}}, ["every weight of mix.mode is 0"]),
        ({"mix": {"mode": {"exactly_once": -2}}}, ["mix.mode.exactly_once is -2"]),
        ({"mix": {"mode": {"exactly_once": 1}}, "checkpoints": {"mode": "at_least_once"}}, ["keep one"]),
        ({"mix": {"state_backend": {"heap": 1}}, "state_backend": "rocksdb"}, ["keep one"]),
        (
            {"faults": {"packages": {"delays": 1}}},
            ["'faults.packages.delays'", "did you mean 'delay'"],
        ),
        ({"faults": {"kinds": {"executer": 1}}}, ["'faults.kinds.executer'", "did you mean 'executor'"]),
        ({"faults": {"kinds": {"executor": 0}}}, ["every weight of faults.kinds is 0"]),
        ({"faults": {"kinds": {"executor": 1}, "packages": {"kill": 1}}}, ["keep one"]),
        ({"faults": {"per_trial": [2, 1]}}, ["faults.per_trial is [2, 1]"]),
        ({"faults": {"per_trial": 2}}, ["faults.per_trial", "array"]),
        ({"seed": -1}, ["seed is -1"]),
        ({"name": "x" * 300}, ["name", "100"]),
        ({"version": 99}, ["version 99", "newer"]),
    ],
)
def test_a_wrong_campaign_is_refused_with_the_key_and_the_nearest(
    value: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageProblem) as caught:
        checked(value)
    assert all(word in str(caught.value) for word in ["c.toml", *words]), str(caught.value)


def test_listed_trials_take_turns_with_growing_seeds_and_layered_overrides(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(AIMED)
    configuration = read_configuration(tmp_path / "c.toml")
    assert configuration.budget_of_trials() == Budget(trials=3)
    plans = list(islice(campaign_plans(configuration, FakeSystem()), 4))
    assert [plan.seed for plan in plans] == [9, 10, 11, 12]
    assert [plan.workload.batches for plan in plans] == [7, 7, 3, 7]
    assert [len(plan.faults) for plan in plans] == [1, 1, 0, 1]
    assert plans[0].note and plans[0].limits.wall_s == 120


def test_a_listed_trial_that_aims_at_nothing_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(AIMED.replace("totals[0]", "totls[0]"))
    with pytest.raises(UsageProblem, match=r"did you mean 'totals\[0\]'"):
        campaign_plans(read_configuration(tmp_path / "c.toml"), FakeSystem())


@pytest.mark.long
def test_drawn_plans_keep_the_overrides_and_aim_within_them() -> None:
    configuration = configuration_from(
        {"seed": 0, "job": {"widths": {"source": 1, "totals": 1, "sink": 1}}}, "c"
    )
    assert configuration.budget_of_trials().trials == DEFAULT_TRIALS
    plans = list(islice(campaign_plans(configuration, FakeSystem()), 60))
    assert {vertex.parallelism for plan in plans for vertex in plan.job.vertices} == {1}
    assert "[1]" not in repr([plan.faults for plan in plans])


def test_a_file_that_is_no_toml_is_named_with_the_position(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text("name = = 1\n")
    with pytest.raises(UsageProblem, match=r"c\.toml is not valid TOML.*line 1"):
        read_configuration(tmp_path / "c.toml")


def test_a_cluster_section_is_refused_by_a_system_without_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "campaign.toml"
    file.write_text('system = "reference-simulated"\ntrials = 1\n[cluster]\nworkers = 2\n')
    assert cli.run(["campaign", str(file), "--out", str(tmp_path)]) == 3
    assert "remove the section [cluster]" in capsys.readouterr().err


def test_a_cluster_is_a_name_or_a_table_with_a_shape() -> None:
    docker = configuration_from({"cluster": "docker"}, "test").cluster
    assert docker is not None
    assert (docker.name, docker.workers) == (ClusterKind.DOCKER, 3)
    assert isinstance(docker.config, DockerClusterConfig)
    shaped = configuration_from(
        {"cluster": {"name": "docker", "workers": 2, "host_memory_mb": 3_000}}, "test"
    ).cluster
    assert shaped is not None
    assert (shaped.config.workers, shaped.host_memory_mb) == (2, 3_000)
    local = configuration_from({"cluster": {"workers": 2}}, "test").cluster
    assert local is not None
    assert isinstance(local.config, LocalClusterConfig)
    with pytest.raises(UsageProblem, match=r"cluster\.name"):
        configuration_from({"cluster": "moon"}, "test")


def test_the_option_cluster_wins_over_the_file_and_keeps_its_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'nobody.sock'}")
    file = tmp_path / "campaign.toml"
    file.write_text('system = "reference-spark"\ntrials = 1\n[cluster]\nname = "local"\nworkers = 2\n')
    assert cli.run(["campaign", str(file), "--cluster", "docker", "--out", str(tmp_path / "out")]) == 3
    printed = capsys.readouterr().err
    assert "No container engine can be reached" in printed
    assert "(No such file or directory)" in printed and "Connection aborted" not in printed
    assert not (tmp_path / "out").exists(), "nothing half-written"
    assert cli.run(["campaign", "--cluster", "docker", "--out", str(tmp_path / "out")]) == 3
    assert "runs on no cluster of its own" in capsys.readouterr().err


def test_a_taken_master_port_exits_with_3_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file = tmp_path / "campaign.toml"
        file.write_text(f'system = "reference-spark"\ntrials = 1\n[cluster]\nmaster_port = {port}\n')
        assert cli.run(["campaign", str(file), "--out", str(tmp_path / "out")]) == 3
    assert str(port) in capsys.readouterr().err
    assert not (tmp_path / "out").exists(), "nothing half-written"


def test_a_campaign_file_chooses_the_state_backend_of_every_plan() -> None:
    target = "examples.minimal_backend.backend:SortedDictBackend"
    for name in ("rocksdb", target):
        configuration = checked({"state_backend": name, "trial": [{}]})
        plans = islice(campaign_plans(configuration, FakeSystem()), 2)
        assert [plan.state_backend for plan in plans] == [name, name]
    with pytest.raises(UsageProblem, match="has no 'SortedDictBackends'; did you mean 'SortedDictBackend'"):
        checked({"state_backend": "examples.minimal_backend.backend:SortedDictBackends"})


def test_savepoints_are_prescribed_for_all_trials_or_for_listed_ones(tmp_path: Path) -> None:
    file = tmp_path / "stop.toml"
    file.write_text(
        'name = "stop"\n[[savepoints]]\nafter_checkpoints = 2\nstop = true\n'
        "[[trial]]\n[[trial]]\n[[trial.savepoints]]\ndelay_ms = 5\n"
    )
    configuration = read_configuration(file)
    everywhere = SavepointPlan(after_checkpoints=2, stop=True)
    assert configuration.adjusted(TrialPlan()).savepoints == (everywhere,)
    plans = [configuration.aimed_plan(trial, 1) for trial in configuration.trial]
    assert [plan.savepoints for plan in plans] == [(everywhere,), (SavepointPlan(delay_ms=5),)]
