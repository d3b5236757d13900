"""The command: exit codes, and one JSON object as the last line of standard output."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import barrier_tck.harness.campaign.runner
import barrier_tck.harness.trial.trial_run
from barrier_tck.harness.certify.backend.capabilities import CAPABILITIES
from barrier_tck.harness.certify.spark_store.layouts import CAPABILITIES as STORE_CAPABILITIES
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.plan.trial_plan import TrialPlan, write
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import OperatingError
from barrier_tck.harness.system import system_names as registry
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from tests.harness.fake_system import TABLE, Behaviour, FakeSystem, interrupting


def use(monkeypatch: pytest.MonkeyPatch, system: FakeSystem) -> FakeSystem:
    def opened(name: str) -> SystemUnderTest:
        registry.require_system(name)
        return system

    monkeypatch.setattr(registry, "open_system", opened)
    monkeypatch.setattr(
        barrier_tck.harness.trial.trial_run, "standard_checkers", lambda plan, deployed: TABLE
    )
    return system


def last_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return value


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        (lambda plan: Verdict.VALID, 0),
        (lambda plan: Verdict.INVALID, 1),
        (lambda plan: Verdict.UNKNOWN, 2),
        (interrupting(after=3), 2),
    ],
    ids=["valid", "invalid", "unknown", "interrupted"],
)
def test_a_campaign_exits_with_its_verdict(
    behaviour: Behaviour,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    system = use(monkeypatch, FakeSystem(behaviour))
    assert cli.run(["campaign", "--trials", "5", "--out", str(tmp_path), "--json"]) == code
    result = last_json(capsys)
    for key in (
        "trials",
        "valid",
        "invalid",
        "unknown",
        "faults_fired",
        "checkpoints_completed",
    ):
        assert isinstance(result[key], int)
    assert result["recoveries"] is None, "the system reports no attempts"
    assert result["verdict"] in ("valid", "invalid", "unknown") and system.closed == 1
    assert (Path(result["run_directory"]) / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["campain"], "campaign"),
        (["campaign", "--trials", "many"], "--trials"),
        (["campaign", "--trials", "0"], "trials is 0"),
        (["campaign", "--trials", "3", "--budget", "5m"], "keep one"),
        (["campaign", "--budget", "soon"], "'soon'"),
        (["campaign", "--system", "reference-simulatd"], "did you mean 'reference-simulated'"),
        (["campaign", "nowhere.toml"], "nowhere.toml does not exist"),
        (["campaign", "grahps"], "did you mean 'graphs'"),
        (["replay", "nowhere"], "nowhere does not exist"),
        (["report", "nowhere"], "nowhere"),
        (["bench", "thruput"], "did you mean 'throughput'"),
        (["campaign", "--state-backend", "rocksbd"], "did you mean 'rocksdb'"),
        (["campaign", "--workload", "passthrouh"], "did you mean 'passthrough'"),
        (["campaign", "--state-backend", "no_such_module:Backend"], "No module named 'no_such_module'"),
        (["mutants", "--world", "spork"], "did you mean 'spark'"),
        (["mutants", "--only", "ZZ-99"], "ZZ-99"),
        (["campaign", "--out", "/proc/nowhere", "--trials", "1"], "--out"),
    ],
)
def test_bad_input_exits_with_3_and_says_what_to_change(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FakeSystem())
    assert cli.run([*arguments, "--json"]) == 3
    captured = capsys.readouterr()
    assert words in captured.err
    assert json.loads(captured.out.splitlines()[-1])["exit_code"] == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def job(:\n", "SyntaxError: invalid syntax (job_of_mine.py, line 1)"),
        ("\nraise KeyError('x')\n", "KeyError: 'x' (job_of_mine.py, line 2)"),
        ("job = 3\n", "is an int"),
    ],
)
def test_a_mistake_in_a_module_of_the_user_is_said_with_its_place(
    text: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "job_of_mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "job_of_mine", raising=False)
    assert cli.run(["campaign", "--query", "job_of_mine:job", "--trials", "1"]) == 3
    message = capsys.readouterr().err
    assert words in message and "importlib" not in message and "factory" not in message


def test_a_working_directory_that_was_deleted_is_no_bug_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert cli.run(["campaign", "--trials", "1"]) == 3
    assert "the working directory was deleted; change to one that exists" in capsys.readouterr().err


def test_a_bug_of_ours_exits_with_4_and_keeps_the_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def broken(*_: object, **__: object) -> None:
        raise AssertionError("cannot be")

    use(monkeypatch, FakeSystem())
    monkeypatch.setattr(barrier_tck.harness.campaign.runner, "run_campaign", broken)
    assert cli.run(["campaign", "--trials", "1", "--out", str(tmp_path)]) == 4
    message = capsys.readouterr().err
    (crash,) = tmp_path.glob("barrier-tck-crash-*.txt")
    assert "a bug in barrier-tck" in message and str(crash) in message and "cannot be" in crash.read_text()


def test_a_system_that_fails_at_its_job_is_told_with_the_place(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(plan: TrialPlan) -> tuple[str, ...]:
        raise KeyError("width")

    system = use(monkeypatch, FakeSystem())
    monkeypatch.setattr(system, "job", broken)
    assert cli.run(["campaign", "--trials", "1", "--out", str(tmp_path / "out")]) == 3
    message = capsys.readouterr().err
    assert "fake fails when it is asked for its job: KeyError: 'width' (test_cli.py, line " in message
    assert not (tmp_path / "out").exists()


def test_an_operating_error_outside_a_trial_exits_with_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(name: str) -> SystemUnderTest:
        raise OperatingError("no cluster")

    monkeypatch.setattr(registry, "open_system", failing)
    assert cli.run(["campaign", "--trials", "1"]) == 2


def test_a_failing_trial_leaves_one_line_that_repeats_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FakeSystem(lambda plan: Verdict.INVALID))
    assert cli.run(["campaign", "--trials", "1", "--seed", "8", "--out", str(tmp_path)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("repeat trial 0:")]
    plan = line.split()[5]
    assert "shrunk/00000.json" in plan and "seed 8" in line
    assert cli.run(["replay", plan]) == 1
    assert cli.run(["report", str(tmp_path), "--json"]) == 1


def test_a_kept_plan_that_does_not_fail_any_more_says_what_it_showed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FakeSystem(lambda plan: Verdict.INVALID))
    assert cli.run(["campaign", "--trials", "1", "--seed", "8", "--out", str(tmp_path)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("repeat trial 0:")]
    plan = line.split()[5]
    use(monkeypatch, FakeSystem(lambda plan: Verdict.VALID))
    assert cli.run(["replay", plan]) == 0
    said = capsys.readouterr().out
    assert (
        "this plan is kept because it failed (ALN-2, table; in 1 of 1 run), and now it did not fail" in said
    )
    assert "--times" not in said
    racing = use(monkeypatch, FakeSystem(lambda plan: Verdict.VALID))
    monkeypatch.setattr(racing, "capabilities", frozenset(Capability) - {Capability.DETERMINISTIC_REPLAY})
    assert cli.run(["replay", plan]) == 0
    assert "a race that shows in more runs: --times 10" in capsys.readouterr().out


def test_a_race_is_replayed_until_it_shows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(TrialPlan(), tmp_path / "plan.json")
    verdicts = iter([Verdict.VALID, Verdict.VALID, Verdict.INVALID, Verdict.VALID])
    racing = use(monkeypatch, FakeSystem(lambda plan: next(verdicts)))
    monkeypatch.setattr(racing, "capabilities", frozenset(Capability) - {Capability.DETERMINISTIC_REPLAY})
    assert cli.run(["replay", str(tmp_path / "plan.json"), "--times", "10"]) == 1
    captured = capsys.readouterr()
    assert "invalid, in the last of 3 runs" in captured.out and "run" not in captured.err
    monkeypatch.setattr(racing, "world", "spark")
    assert cli.run(["replay", str(tmp_path / "plan.json"), "--times", "1"]) == 0
    assert f"{tmp_path / 'plan.json'}: run 1 of 1" in capsys.readouterr().err


def test_a_trial_of_a_system_from_elsewhere_is_repeated_on_that_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    system = "barrier_tck.conformance.meta_tests.do_nothing:DoNothing"
    assert cli.run(["campaign", "--system", system, "--trials", "1", "--out", str(tmp_path)]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("repeat trial 0:")]
    assert cli.run([*line.partition("barrier-tck ")[2].partition("   (")[0].split()]) == 1
    assert "the job finished without a single checkpoint" in capsys.readouterr().out
    (run,) = tmp_path.iterdir()
    assert f" --system {system}" in (run / "report.html").read_text()
    assert cli.run(["replay", str(run), "--trust"]) == 1


def test_a_plan_alone_is_replayed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, FakeSystem())
    write(TrialPlan(), tmp_path / "plan.json")
    assert cli.run(["replay", str(tmp_path / "plan.json")]) == 0
    use(monkeypatch, FakeSystem(flaky=True))
    assert cli.run(["replay", str(tmp_path / "plan.json")]) == 2


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("campaign", "replay", "report", "doctor", "mutants", "bench"):
        assert cli.run([command, "--help"]) == 0
        assert "--json" in capsys.readouterr().out


def test_the_command_starts_without_pyspark_or_hypothesis() -> None:
    code = (
        "import sys, barrier_tck.harness.cli.main, barrier_tck.harness.pytest_plugin; "
        "print('pyspark' in sys.modules, 'hypothesis' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert found.stdout.split() == ["False", "False"]


def test_a_campaign_of_a_users_own_code_is_not_named_as_one_of_ours(tmp_path: Path) -> None:
    own = {
        "--system": "examples.echo_system.echo:EchoSystem",
        "--state-backend": "examples.minimal_backend.backend:SortedDictBackend",
    }
    for option, target in own.items():
        few = ["campaign", option, target, "--trials", "1", "--seed", "1", "--controls", "0"]
        out = tmp_path / option
        cli.run([*few, "--out", str(out)])
        (run,) = out.iterdir()
        name = json.loads((run / "campaign.json").read_text())["name"]
        assert name == target.replace(":", ".")
        assert run.name.startswith(f"{name}-")


def test_a_workload_on_the_command_line_and_a_mix_of_workloads_contradict_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mixed.toml"
    file.write_text('name = "mixed"\ntrials = 2\n[mix.workload]\nkeyed-totals = 3\npassthrough = 1\n')
    few = ["campaign", str(file), "--seed", "1", "--controls", "0", "--out", str(tmp_path / "runs")]
    assert cli.run([*few, "--workload", "passthrough"]) == 3
    told = " ".join(capsys.readouterr().err.split())
    assert "mixes workloads; leave --workload out, or its key mix.workload" in told
    assert not (tmp_path / "runs").exists()
    assert cli.run(few) in (0, 2), "without --workload it is right"
    file.write_text('name = "mixed"\ntrials = 2\n[mix.mode]\nexactly_once = 1\n')
    assert cli.run([*few, "--workload", "passthrough"]) in (0, 2), "another mix is no contradiction"


def test_the_help_of_require_lists_every_capability(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["certify", "--help"]) == 0
    _, _, told = capsys.readouterr().out.partition("--require")
    told = " ".join(told.partition("Default: none.")[0].split()).replace("- ", "-")  # lines break at hyphens
    of_backends, of_stores = re.findall(r"must (?:declare|have): ([a-z, -]+)[;.]", told)
    assert of_backends.split(", ") == list(CAPABILITIES)
    assert of_stores.split(", ") == list(STORE_CAPABILITIES)


def test_a_campaign_runs_the_workload_that_its_command_line_names(tmp_path: Path) -> None:
    few = ["campaign", "--trials", "2", "--seed", "1", "--controls", "0", "--out", str(tmp_path)]
    assert cli.run([*few, "--workload", "passthrough"]) in (0, 2)
    (run,) = tmp_path.iterdir()
    assert json.loads((run / "campaign.json").read_text())["configuration"]["workload"] == {
        "name": "passthrough"
    }


def test_a_replay_says_that_both_runs_took_the_same_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(TrialPlan(), tmp_path / "plan.json")
    assert cli.run(["replay", str(tmp_path / "plan.json")]) == 0
    assert re.search(r"^  ran twice with identical steps \([0-9a-f]{16}\)$", capsys.readouterr().out, re.M)


def test_a_replay_of_a_recorded_trial_says_that_it_took_the_same_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = ["campaign", "--trials", "1", "--seed", "1", "--controls", "0", "--out", str(tmp_path)]
    assert cli.run(campaign) == 0
    capsys.readouterr()
    (trial,) = tmp_path.glob("*/trials/00000")
    assert cli.run(["replay", str(trial)]) == 0
    assert "  ran with the same steps as recorded (" in capsys.readouterr().out


def test_the_help_says_what_each_strategy_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["mutants", "--help"]) == 0
    assert "pct: processes get random priorities" in " ".join(capsys.readouterr().out.split())


def test_no_summary_of_a_command_is_cut_off_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run(["--help"]) == 0
    summaries = capsys.readouterr().out.partition("Commands:")[2]
    assert "  certify " in summaries
    assert "..." not in summaries


def test_each_fault_is_listed_with_a_whole_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["faults"]) == 0
    printed = capsys.readouterr().out
    assert "`" not in printed
    for text in (
        "in the middle of an upload; start it again duration_ms later with what it had stored",
        "fail, for one or more of its next checkpoints",
        "let it go on (SIGCONT), for longer than the heartbeat",
    ):
        assert text in printed
    assert not [line for line in printed.splitlines() if line.rstrip().endswith((",", " and", " the"))]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--system", "os:sep"],
            "--system: 'os:sep' is a str, which makes no system; name a class or a function that makes the system",
        ),
        (["--workload", "keyed-totls"], "the command line: "),
    ],
)
def test_a_mistake_on_the_command_line_names_where_it_is(
    arguments: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["campaign", *arguments, "--out", str(tmp_path / "runs")]) == 3
    assert says in capsys.readouterr().err
