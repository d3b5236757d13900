"""Third-party code: whatever it does wrong is reported, and never read as a verdict."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.support import third_party
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.workloads.workload_names import workload_named

FACTORIES = "tests.harness.support.third_party_factories"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("os:getpid", ["'os:getpid' makes an int, which is no system", "it has no name", "run"]),
        (f"{FACTORIES}:Halfway", ["makes a Halfway", "it has no capabilities, job, run, close"]),
        (f"{FACTORIES}:makes_a_class", ["a class, and not an instance"]),
        (
            f"{FACTORIES}:NO_FACTORY",
            ["is an int, which makes no ", "name a class or a function that makes the "],
        ),
        (
            f"{FACTORIES}:raises",
            ["cannot be made: ZeroDivisionError: nothing to divide by (third_party_factories.py, line "],
        ),
        (f"{FACTORIES}:exits", ["it tried to end the program with exit code 0"]),
        (f"{FACTORIES}:nowhere", ["cannot be imported", "has no 'nowhere'"]),
        (f"{FACTORIES}:Halfwy", ["has no 'Halfwy'; did you mean 'Halfway'?"]),
        (
            "tests.harness.support.third_party_unfinished:System",
            [
                "cannot be imported: ModuleNotFoundError: No module named 'a_library_that_is_not_there'",
                "(third_party_unfinished.py, line 5)",
            ],
        ),
        ("tests.harness.nowhere.at_all:System", ["No module named 'tests.harness.nowhere'"]),
        (f"{'x' * 300}:System", ["cannot be imported: No module named 'xxx", "x…'"]),
        ("no_such_module:System", ["cannot be imported: No module named 'no_such_module'"]),
        ("x" * 300, ["there is no system 'xxx", "x…'; known: reference-simulated"]),
    ],
)
def test_a_target_that_makes_no_system_is_refused_with_the_reason(target: str, words: list[str]) -> None:
    with pytest.raises(UsageProblem) as caught:
        open_system(target)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_target_that_makes_no_workload_is_refused_likewise() -> None:
    with pytest.raises(UsageProblem, match="'os:getpid' makes an int, which is no workload: it has no name"):
        workload_named("os:getpid")


@pytest.mark.long
def test_a_factory_that_never_returns_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(third_party, "SECONDS_MAX", 0.2)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(UsageProblem, match=r"took longer than 0\.2 s"):
        open_system(f"{FACTORIES}:hangs")
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


LONG = "x" * 300
DEEP = '{"seed":' * 3_000 + "1" + "}" * 3_000


@pytest.mark.parametrize(
    "arguments",
    [
        ["campaign", "--system", "os:getpid"],
        ["campaign", "--system", f"{FACTORIES}:exits"],
        ["campaign", "--system", LONG],
        ["campaign", LONG],
        ["campaign", "--out", LONG, "--trials", "1"],
        ["campaign", "--state-backend", LONG],
        ["replay", LONG],
        ["replay", "deep.json"],
        ["campaign", "deep.toml"],
        ["report", LONG],
        ["bench", LONG],
        ["certify", LONG],
        ["mutants", "--only", LONG],
        ["mutants", "--only", ","],
        ["campaign", "--only", " ,"],
        ["replay", "digits.json"],
        ["campaign", "digits.toml"],
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_a_hostile_command_line_exits_with_3_and_says_why(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "deep.json").write_text(DEEP)
    (tmp_path / "digits.json").write_text(f'{{"seed": {"9" * 5_000}}}')
    (tmp_path / "digits.toml").write_text(f"seed = {'9' * 5_000}")
    (tmp_path / "deep.toml").write_text("seed = " + "[" * 3_000 + "]" * 3_000)
    monkeypatch.chdir(tmp_path)
    assert cli.run([*arguments, "--json"]) == 3
    printed = capsys.readouterr()
    assert json.loads(printed.out.splitlines()[-1])["exit_code"] == 3
    assert "a bug in barrier-tck" not in printed.err


def test_a_trial_that_ends_the_program_is_unknown_and_the_campaign_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["campaign", "--system", f"{FACTORIES}:Exiting", "--trials", "2", "--out", str(tmp_path)]
    assert cli.run([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["unknown"] == 2


@pytest.mark.parametrize("name", ["Quitting", "Exiting"])
def test_a_trial_may_raise_whatever_it_likes_and_is_unknown(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["campaign", "--system", f"{FACTORIES}:{name}", "--trials", "1", "--out", str(tmp_path)]
    assert cli.run([*arguments, "--json"]) == 2
    [finding] = json.loads(capsys.readouterr().out.splitlines()[-1])["findings"]
    assert "the trial could not be run" in finding["summary"]
    assert "(third_party_factories.py, line " in finding["summary"]


@pytest.mark.parametrize(
    ("option", "name", "code", "words"),
    [
        ("--system", "ExitingAtItsJob", 3, "fails when it is asked for its job: SystemExit: 0"),
        ("--system", "ExitingAtTheEnd", 3, "tried to end the program with exit code 0"),
        ("--state-backend", "ExitingBackend", 2, "the trial could not be run: SystemExit: 0"),
        ("--state-backend", "exits", 3, "it tried to end the program with exit code 0"),
        ("--state-backend", "hanging_backend", 3, "took longer than 0.2 s"),
    ],
)
def test_what_ends_the_program_or_hangs_is_told_with_its_place(
    option: str,
    name: str,
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(third_party, "SECONDS_MAX", 0.2 if "hanging" in name else 60.0)
    arguments = [option, f"{FACTORIES}:{name}", "--trials", "1", "--out", str(tmp_path)]
    assert cli.run(["campaign", *arguments]) == code
    printed = capsys.readouterr()
    assert words in printed.err + printed.out


def test_an_exit_outside_a_trial_is_no_verdict_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def leave(arguments: list[str], **_: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(cli, "app", leave)
    assert cli.run(["doctor"]) == 3
    message = capsys.readouterr().err
    assert "tried to end the program with exit code 0: SystemExit: 0 (test_third_party.py, line " in message
