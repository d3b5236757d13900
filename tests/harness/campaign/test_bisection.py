"""Bisection: which commits are tried, and what is found. Grain: lists of commits, and a small repository."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from barrier_tck.harness.campaign.bisected_commits import Commit, trying_commits
from barrier_tck.harness.campaign.bisection import Bisected, Outcome, PlanRuns, bisect, run_elsewhere
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support import child_program
from barrier_tck.harness.support.errors import UsageProblem

MANY = tuple(Commit(f"{number:040x}", f"change {number}") for number in range(100))


def found(first_bad: int, without: range = range(0), commits: tuple[Commit, ...] = MANY) -> Bisected[Commit]:
    """Bisect commits of which those from a number on fail, and some cannot be tried."""

    def tries(commit: Commit) -> Outcome:
        number = commits.index(commit)
        if number in without:
            return Outcome(Verdict.UNKNOWN, "it cannot be run")
        return Outcome(Verdict.INVALID if number >= first_bad else Verdict.VALID)

    return bisect(commits, tries)


@pytest.mark.parametrize("first_bad", [1, 2, 49, 50, 51, 98, 99])
def test_the_first_failing_commit_is_found_with_few_tries(first_bad: int) -> None:
    result = found(first_bad)
    assert result.suspects == (MANY[first_bad],)
    assert len(result.tried) <= 2 + 7
    assert len({commit for commit, _ in result.tried}) == len(result.tried), "each is tried once"


def test_commits_that_cannot_be_tried_are_passed_over() -> None:
    assert found(80, range(40, 60)).suspects == (MANY[80],)


def test_if_the_first_failing_one_cannot_be_tried_it_is_one_of_several() -> None:
    assert found(50, range(45, 55)).suspects == MANY[45:56]


@pytest.mark.parametrize(("first_bad", "name"), [(0, "good"), (100, "bad")])
def test_the_ends_are_tried_first_and_must_be_as_said(first_bad: int, name: str) -> None:
    with pytest.raises(UsageProblem, match=f"the {name} commit is to be"):
        found(first_bad)


def test_of_two_commits_the_second_is_it() -> None:
    assert found(1, commits=MANY[:2]).suspects == (MANY[1],)


MAIN = """
import json, sys
from pathlib import Path
code = Path(__file__).with_name("verdict").read_text().strip()
print("replaying", sys.argv[1:])
if code != "broken":
    print(json.dumps({"verdict": code}))
"""


def git(repository: Path, *arguments: str) -> str:
    settings = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(repository), *settings, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(name="repository")
def _repository(tmp_path: Path) -> Path:
    """Make a repository with a command that prints a verdict: valid, broken, valid, invalid, invalid."""
    repository = tmp_path / "repository"
    package = repository / "src" / "barrier_tck" / "harness" / "cli"
    package.mkdir(parents=True)
    git(repository, "init", "--quiet")
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").write_text("")
    (package / "main.py").write_text(MAIN)
    for number, verdict in enumerate(("valid", "broken", "valid", "invalid", "invalid")):
        (package / "verdict").write_text(verdict)
        (package / "number").write_text(str(number))
        git(repository, "add", ".")
        git(repository, "commit", "--quiet", "-m", f"change {number}")
    return repository


def test_the_command_runs_the_plan_with_the_code_of_each_commit_and_leaves_no_checkout(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(TrialPlan()))
    arguments = ["bisect", str(plan), "HEAD~4", "HEAD", "--repository", str(repository)]
    assert run([*arguments, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["suspects"] == [git(repository, "rev-parse", "HEAD~1")]
    assert sorted(printed["tried"].values()) == ["invalid", "invalid", "valid", "valid"]
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert git(repository, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("HEAD", "HEAD~2", "is no ancestor of"),
        ("HEAD", "HEAD", "HEAD and HEAD are the same commit"),
        ("nothing", "HEAD", "nothing is no commit of the repository"),
        ("HEAD~1", "HEAD", "the good commit is to be valid, but the plan is invalid"),
        ("--upload-pack=x", "HEAD", "--upload-pack=x"),
    ],
)
def test_what_cannot_be_bisected_is_refused(
    good: str, bad: str, said: str, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(TrialPlan()))
    assert run(["bisect", str(plan), "--repository", str(repository), "--", good, bad]) == 3
    assert said in " ".join(capsys.readouterr().err.split())
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_without_git_or_a_repository_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(TrialPlan()))
    for folder, said in (
        (tmp_path / "none", "No such file or directory"),
        (tmp_path, "not a git repository"),
    ):
        assert run(["bisect", str(plan), "HEAD~1", "HEAD", "--repository", str(folder)]) == 3
        told = " ".join(capsys.readouterr().err.split())
        assert "git finds no repository in" in told and said in told and "is no commit" not in told
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["bisect", str(plan), "HEAD~1", "HEAD", "--repository", str(tmp_path)]) == 3
    assert "git is not installed" in " ".join(capsys.readouterr().err.split())


def test_an_unknown_system_is_refused_before_anything_is_checked_out(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(to_json(TrialPlan()))
    words = ["bisect", str(plan), "HEAD~4", "HEAD", "--repository", str(repository), "--system"]
    assert run([*words, "nope"]) == 3
    printed = capsys.readouterr()
    assert "there is no system 'nope'" in printed.err and printed.out == ""
    assert run([*words, "in_the_commits_alone:System"]) == 0


@pytest.mark.parametrize("dies", [False, True], ids=["git tidies up", "git is killed"])
def test_an_interrupt_during_a_checkout_is_not_hidden_and_nothing_is_left(
    dies: bool, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(child_program, "_PATIENCE_S", 0.0 if dies else 1.0)
    if dies:
        monkeypatch.setattr(signal, "SIGINT", signal.SIGKILL)
    (repository / ".git" / "info" / "attributes").write_text("verdict filter=slow\n")
    git(repository, "config", "filter.slow.smudge", f"kill -USR1 {os.getpid()}; sleep 60")
    made: list[Path] = []

    def check_out() -> None:
        with trying_commits(repository, PlanRuns(Path("plan.json"))) as tries:
            try:
                tries(Commit("HEAD", "change 4"))
            finally:
                made.extend((repository / ".git").glob("worktrees/*"))

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            check_out()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert bool(made) == dies, "whether git has left a half-made checkout to us"
    assert list((repository / ".git").glob("worktrees/*")) == []


def elsewhere(tmp_path: Path, main: str, runs: int = 1) -> Outcome:
    """Run a plan with a command that is a few lines."""
    package = tmp_path / "barrier_tck" / "harness" / "cli"
    package.mkdir(parents=True, exist_ok=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").write_text("")
    (package / "main.py").write_text(main)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return run_elsewhere(sys.executable, environment, PlanRuns(Path("plan.json"), runs=runs))


THIRD = """
from pathlib import Path
with Path(__file__).with_name("ran").open("a") as ran:
    ran.write(".")
print('{"verdict": "%s"}' % ("invalid" if len(Path(ran.name).read_text()) == 3 else "valid"))
"""


@pytest.mark.parametrize(
    ("runs", "verdict", "ran"), [(2, Verdict.VALID, 2), (3, Verdict.INVALID, 3), (5, Verdict.INVALID, 3)]
)
def test_a_plan_runs_as_often_as_asked_until_a_run_is_invalid(
    runs: int, verdict: Verdict, ran: int, tmp_path: Path
) -> None:
    assert elsewhere(tmp_path, THIRD, runs) == Outcome(verdict)
    assert len(next(tmp_path.rglob("ran")).read_text()) == ran


@pytest.mark.parametrize(
    ("main", "why"),
    [
        ("print('{\"verdict\": \"unknown\"}')\nsys.exit('a host was lost')", "a host was lost"),
        ('print(\'{"error": "no such field\\\\nsecond line"}\')', "no such field"),
        ("sys.exit(5)", "it ended with exit code 5 and said nothing"),
    ],
)
def test_why_a_run_is_unknown_is_kept(main: str, why: str, tmp_path: Path) -> None:
    assert elsewhere(tmp_path, f"import sys\n{main}\n") == Outcome(Verdict.UNKNOWN, why)
