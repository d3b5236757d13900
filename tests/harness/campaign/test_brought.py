"""What a system or a workload brings along, and what it leaves unused; grain: campaigns on a fake system."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import barrier_tck.harness.trial.trial_run
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, configuration_from
from barrier_tck.harness.campaign.configuration_checks import check_configuration
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.oracle.checker import Checker
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.reading import plan_from, read_plan
from barrier_tck.harness.plan.trial_plan import NetworkPlan, TrialPlan, to_builtins
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import UsageError, UsageProblem
from barrier_tck.harness.system.plan_fields import in_short, optional_fields, unused_by, value_of
from barrier_tck.harness.trial.plan_check import check_plan
from barrier_tck.harness.trial.trial_run import run_trial
from tests.harness.fake_system import TABLE, FakeSystem
from tests.harness.system.peculiar_system import Boastful, Choosy, Mumbles, Peculiar, Says, Stumbles

PECULIAR = "tests.harness.system.peculiar_system:Peculiar"


@pytest.fixture(autouse=True)
def _table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the table the standard checkers."""
    monkeypatch.setattr(
        barrier_tck.harness.trial.trial_run, "standard_checkers", lambda plan, deployed: TABLE
    )


def configured(**values: Any) -> CampaignConfiguration:
    configuration = configuration_from({"trials": 20, "seed": 5, "system": PECULIAR} | values, "c.toml")
    check_configuration(configuration, Peculiar(), "c.toml")
    return configuration


def plans_of(**values: Any) -> list[TrialPlan]:
    return list(islice(campaign_plans(configured(**values), Peculiar()), 20))


# --- profiles -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_without_a_profile_a_campaign_draws_from_the_first_one_of_its_system() -> None:
    intervals = {plan.checkpoints.interval_ms for plan in plans_of()}
    assert intervals <= set(range(70, 91))
    assert configuration_from({}, "c").profile_for(FakeSystem()).name == "standard"


def test_a_campaign_names_profiles_of_its_system_and_of_its_workload() -> None:
    assert configured(profile="peculiar-too").profile_for(Peculiar()).name == "peculiar-too"
    brief = plans_of(profile="brief", workload={"name": "brief-load"})
    assert {(plan.workload.name, plan.workload.batches) for plan in brief} == {("brief-load", 1)}
    with pytest.raises(UsageProblem, match="no profile 'peculiar-to'; did you mean 'peculiar-too'"):
        configured(profile="peculiar-to")


def test_two_profiles_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Peculiar, "profiles", (*Peculiar.profiles, Peculiar.profiles[0]))
    with pytest.raises(UsageError, match="2 profiles are called 'peculiar'"):
        configured()


# --- checkers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("brings", "verdict", "words"),
    [
        ((Says("is-peculiar", Verdict.VALID),), Verdict.VALID, "it is valid"),
        ((Says("is-peculiar", Verdict.INVALID),), Verdict.INVALID, "it is invalid"),
        (
            (Stumbles("is-peculiar", Verdict.VALID),),
            Verdict.UNKNOWN,
            "the checker itself crashed: SystemExit: 0",
        ),
        ((Mumbles("is-peculiar", Verdict.VALID),), Verdict.UNKNOWN, "'fine', which is no Finding"),
    ],
)
def test_checkers_from_outside_judge_beside_the_standard_ones_and_a_crash_is_unknown(
    brings: tuple[Checker, ...], verdict: Verdict, words: str, tmp_path: Path
) -> None:
    system = Peculiar()
    system.brings = brings
    record = run_trial(TrialPlan(), system, tmp_path)
    invalid_first = ["is-peculiar", "table"] if verdict is Verdict.INVALID else ["table", "is-peculiar"]
    assert [finding.checker for finding in record.findings] == invalid_first
    brought = record.findings[invalid_first.index("is-peculiar")]
    assert (record.verdict, brought.verdict) == (verdict, verdict)
    assert words in brought.summary


def test_a_system_that_fails_to_bring_its_checkers_leaves_the_trial_unknown(tmp_path: Path) -> None:
    record = run_trial(TrialPlan(), Choosy(), tmp_path)
    assert record.verdict is Verdict.UNKNOWN
    assert record.findings[1].checker == "checkers of peculiar"
    assert "no checkers today" in record.findings[1].summary


def test_a_workload_brings_checkers_too(tmp_path: Path) -> None:
    plan = plan_from({"workload": {"name": "brief-load"}}, "plan")
    record = run_trial(plan, FakeSystem(), tmp_path)
    assert [finding.checker for finding in record.findings] == ["table", "load-is-brief"]


def test_two_checkers_of_one_name_are_refused(tmp_path: Path) -> None:
    system = Peculiar()
    system.brings = (Says("table", Verdict.VALID),)
    with pytest.raises(UsageError, match=r"two checkers of peculiar .* are called 'table'"):
        run_trial(TrialPlan(), system, tmp_path)


# --- settings -----------------------------------------------------------------------------------------------


def test_settings_go_from_the_campaign_into_every_plan_and_a_trial_changes_some() -> None:
    nested = {"deep": [1, 2.5, True, None, "x"]}
    table = {"name": PECULIAR, "speed": 3, "nested": nested}
    listed = [{"system": {"speed": 9}}, {}]
    first, second, *drawn = plans_of(system=table, trial=listed, faults={"per_trial": [0, 1]})
    assert first.system == {"speed": 9, "nested": nested}
    assert second.system == {"speed": 3, "nested": nested}
    assert all(plan.system == second.system for plan in drawn)
    assert plan_from(json.loads(json.dumps(to_builtins(first))), "memory") == first
    assert len({first, second, first}) == 2


def test_settings_are_kept_in_the_record(tmp_path: Path) -> None:
    configuration = configured(system={"name": PECULIAR, "speed": 3}, trials=1)
    run_campaign(configuration, Peculiar(), tmp_path / "run")
    assert read_plan(tmp_path / "run" / "trials" / "00000" / "plan.json").system == {"speed": 3}
    campaign = json.loads((tmp_path / "run" / "campaign.json").read_text())
    assert campaign["configuration"]["system"] == {"name": PECULIAR, "settings": {"speed": 3}}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"sped": 3}, ["c.toml: system: 'sped' is no setting; it has speed and nested"]),
        ({"speed": "fast"}, ["c.toml: system: speed is 'fast'; give a number"]),
        ({"name": 7}, ["system.name", "str"]),
        ({"nested": {"at": float("nan")}}, ["system.nested.at is nan"]),
        ({"nested": [b"bytes"]}, ["system.nested[0] is b'bytes', a bytes"]),
    ],
)
def test_settings_that_a_system_does_not_understand_are_refused(
    table: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageProblem) as caught:
        configured(system={"name": PECULIAR} | table)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_settings_may_not_be_nested_without_end() -> None:
    deep: Any = 1
    for _ in range(30):
        deep = [deep]
    with pytest.raises(UsageProblem, match="nested more than 20 deep"):
        configured(system={"nested": deep})
    with pytest.raises(UsageProblem, match="nested more than 20 deep"):
        plan_from({"system": {"nested": deep}}, "plan.json")


def test_a_system_without_settings_refuses_any() -> None:
    with pytest.raises(UsageProblem, match="system has 'speed', but fake takes no settings; remove it"):
        check_plan(TrialPlan(system={"speed": 1}), FakeSystem())
    check_plan(TrialPlan(), FakeSystem())


def test_a_listed_trial_chooses_no_other_system() -> None:
    with pytest.raises(
        UsageProblem, match=r"trial\[0\]\.system\.name: all trials run on the campaign's system"
    ):
        configured(trial=[{"system": {"name": "reference-spark"}}])


# --- fields of a plan that a system does not use -------------------------------------------------------------


def test_fields_that_a_system_does_not_use_are_not_drawn() -> None:
    default, unused = TrialPlan(), unused_by(Peculiar())
    assert {"network.slow_channel", "checkpoints.timeout_ms", "job", "state_backend"} <= set(unused)
    drawn = plans_of(profile="standard")
    for plan in drawn:
        assert [field for field in unused if value_of(plan, field) != value_of(default, field)] == ["job"]
        assert [vertex.parallelism for vertex in plan.job.vertices] == [2, 2, 1], "the workload's own"
        check_plan(plan, Peculiar())
    assert len({plan.checkpoints.interval_ms for plan in drawn}) > 5
    assert len({plan.restart for plan in drawn}) > 5


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"network": {"slow_channel": 1}}, ["network.slow_channel is 1", "peculiar does not use it"]),
        ({"checkpoints": {"max_concurrent": 3}}, ["checkpoints.max_concurrent is 3"]),
        ({"timeout": "5m"}, ["limits.wall_s is 300"]),
        ({"local_recovery": True}, ["local_recovery is True"]),
        ({"job": {"widths": {"totals": 7}}}, ["job is not the workload's own"]),
        ({"trial": [{"job": {"shape": "chained"}}]}, ["trial[0]", "job is not the workload's own"]),
        ({"trial": [{"network": {"slow_factor": 2}}]}, ["trial[0]: network.slow_factor is 2"]),
        ({"mix": {"mode": {"at_least_once": 1}}}, ["mix.mode", "does not use checkpoints.mode"]),
        ({"mix": {"state_backend": {"heap": 1}}}, ["mix.state_backend"]),
        ({"mix": {"local_recovery": {"on": 1}}}, ["mix.local_recovery"]),
    ],
)
def test_fields_that_a_system_does_not_use_are_refused_where_somebody_sets_them(
    values: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageProblem) as caught:
        configured(**values)
    assert all(word in str(caught.value) for word in ["c.toml", *words]), str(caught.value)


def test_fields_that_a_system_uses_may_be_set() -> None:
    configured(checkpoints={"interval_ms": 99}, restart={"delay_ms": 3}, workload={"start_offset": 2})
    configured(network={"slow_factor": TrialPlan().network.slow_factor})


def test_a_plan_for_another_system_is_refused_by_the_name_of_the_field() -> None:
    plan = TrialPlan(network=NetworkPlan(latency_ms_max=9))
    with pytest.raises(
        UsageProblem, match=r"plan\.json: network\.latency_ms_max is 9, but peculiar does not use it"
    ):
        check_plan(plan, Peculiar(), "plan.json")
    check_plan(plan, FakeSystem(), "plan.json")
    check_plan(TrialPlan(mutant=None, job=JobPlan()), Peculiar())


def test_a_system_that_claims_to_use_an_unknown_field_is_told_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"'checkpoint\.interval_ms', .* did you mean 'checkpoints\.interval_ms'"
    ):
        check_plan(TrialPlan(), Boastful())


def test_all_fields_of_a_part_are_told_as_the_part() -> None:
    unused = unused_by(Peculiar())
    told = in_short(unused).split(", ")
    assert "network" in told and "checkpoints" not in told and "checkpoints.timeout_ms" in told
    assert in_short(optional_fields()).startswith(
        "the rest of workload, the rest of deployment, checkpoints, restart, network, the rest of limits, job"
    )


def test_shrinking_keeps_what_is_unused_as_it_is(tmp_path: Path) -> None:
    def fails(plan: TrialPlan) -> Verdict:
        return Verdict.INVALID if plan.faults else Verdict.VALID

    system = Peculiar(fails)
    fault = {
        "fault": {"type": "kill_worker", "subtask": "totals[0]"},
        "trigger": {"type": "at", "time_ms": 1},
    }
    configuration = configured(trials=1, trial=[{"faults": [fault, fault]}])
    record = run_campaign(configuration, system, tmp_path / "run")
    (name,) = record.shrunk.values()
    plan = read_plan(tmp_path / "run" / name)
    assert plan.faults == (ScheduledFault(KillWorker("totals[0]"), At(0)),)
    check_plan(plan, system)


# --- on the command line ------------------------------------------------------------------------------------

LATE = """
from tests.harness.system.peculiar_system import BriefLoad, Peculiar
from barrier_tck.harness.workloads.workload_names import register_workload

class Late(BriefLoad):
    name = "late-load"

register_workload("late-load", Late)
"""


def test_what_a_system_registers_when_it_is_imported_is_known_to_the_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "late_system.py").write_text(LATE)
    (tmp_path / "c.toml").write_text(
        'trials = 3\nprofile = "peculiar-too"\n[workload]\nname = "late-load"\n'
        '[system]\nname = "late_system:Peculiar"\nspeed = 4\n'
    )
    monkeypatch.chdir(tmp_path)
    assert cli.run(["campaign", "c.toml", "--out", "runs"]) == 0
    printed = capsys.readouterr().out
    for line in (
        "  system: late_system:Peculiar",
        "  settings of the system: speed 4",
        "  profile: peculiar-too: The same, with more.",
        "  checkers: the standard ones, and is-peculiar, load-is-brief",
    ):
        assert line in printed.splitlines()
    (unused,) = [
        line for line in printed.splitlines() if line.startswith("  plan settings this system ignores: ")
    ]
    assert "network" in unused and "restart" not in unused


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[system]\nname = "tests.harness.system.peculiar_system:Peculiar"\nsped = 4\n',
            "'sped' is no setting",
        ),
        (
            'system = "tests.harness.system.peculiar_system:Peculiar"\n[network]\nslow_factor = 2\n',
            "network.slow_factor",
        ),
        ('system = "tests.harness.system.peculiar_system:Nobody"\n', "has no 'Nobody'"),
        ("[system]\nspeed = 4\n", "reference-simulated takes no settings"),
    ],
)
def test_impossible_settings_exit_with_3_before_anything_is_written(
    text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    assert cli.run(["campaign", str(file), "--out", str(tmp_path / "out")]) == 3
    assert words in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_another_system_on_the_command_line_is_told_the_files_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text('trials = 1\n[system]\nname = "reference-spark"\nspeed = 4\n')
    assert cli.run(["campaign", str(file), "--system", PECULIAR, "--out", str(tmp_path / "out")]) == 0
    assert "settings of the system: speed 4" in capsys.readouterr().out
