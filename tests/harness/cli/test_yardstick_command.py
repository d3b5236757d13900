"""The command that runs the yardstick, and its page; grain: the command, with a search that is scripted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from barrier_tck.harness.cli.main import run
from barrier_tck.harness.cli.yardstick_page import rendered
from barrier_tck.harness.yardstick.bugs import KnownBug, known_bugs
from barrier_tck.harness.yardstick.looking import Looked
from barrier_tck.harness.yardstick.results import Finding, Played, Result, Round, Status
from tests.harness.yardstick.known_bug import BUG, bug
from tests.test_tidy import ROOT

FIRST, SECOND = "SPARK-55892", "SPARK-49829"


class Scripted:
    """Finds the first bug, and of the second one nothing."""

    asked: ClassVar[list[str]] = []

    def __init__(self, out: Path, work: Path) -> None:
        assert out.is_dir()
        assert (work / ".gitignore").is_file()

    def look(self, bug: KnownBug, seed: int, seconds: float) -> Looked:
        Scripted.asked.append(bug.id)
        findings = (
            Finding("versions-are-exact (versions)", "a | b", "findings/a.json", "barrier-tck certify"),
        )
        return Looked(Round(seed, 40, seconds, seconds, findings if bug.id == FIRST else ()))

    def play(self, bug: KnownBug, finding: Finding, release: str) -> tuple[Played, str]:
        return (Played.THERE if release == bug.pyspark else Played.GONE), ""


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barrier_tck.harness.yardstick.running.InEnvironments", Scripted)
    monkeypatch.setattr(Scripted, "asked", [])


def yardstick(tmp_path: Path, *arguments: str) -> int:
    """Run the command with its results in a directory."""
    return run(["yardstick", "--out", str(tmp_path / "out"), *arguments])


def test_bugs_are_looked_for_and_the_page_has_the_misses(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert yardstick(tmp_path, "--only", FIRST, "--only", SECOND, "--minutes", "2", "--page", str(page)) == 0
    assert Scripted.asked == [SECOND, FIRST], "in the order of the file"
    text = page.read_text()
    assert (
        f"Of {len(known_bugs())} bugs: 1 found; 1 not found; {len(known_bugs()) - 2} not tried yet." in text
    )
    assert "| found | 1 | 40 | 2.0 |" in text
    assert "| not found | 1 | 40 | 2.0 |" in text
    assert "a \\| b" in text
    assert "what the generators lack: not looked into yet" in text


def test_a_result_that_is_kept_is_not_run_again_unless_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert yardstick(tmp_path, "--only", SECOND) == 0
    path = tmp_path / "out" / f"{SECOND}.json"
    path.write_text(path.read_text().replace('"lacks": ""', '"lacks": "rows out of order"'))
    assert yardstick(tmp_path, "--only", SECOND) == 0
    assert Scripted.asked == [SECOND]
    assert "(kept)" in capsys.readouterr().out
    assert "what the generators lack: rows out of order" in (tmp_path / "out" / "yardstick.md").read_text()
    assert yardstick(tmp_path, "--only", SECOND, "--again") == 0
    assert Scripted.asked == [SECOND, SECOND]
    assert json.loads(path.read_text())["lacks"] == "rows out of order", "what a person wrote stays"


def test_the_list_runs_nothing_and_says_what_became_of_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert yardstick(tmp_path, "--only", FIRST) == 0
    capsys.readouterr()
    assert yardstick(tmp_path, "--list", "--json") == 0
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert len(lines) == len(known_bugs())
    assert sum("not tried yet" in line for line in lines) == len(known_bugs()) - 1
    (result,) = json.loads(printed.out.splitlines()[-1])["results"]
    assert (result["id"], result["status"]) == (FIRST, "found")
    assert Scripted.asked == [FIRST]


@pytest.mark.parametrize("arguments", [["--only", "SPARK-1"], ["--minutes", "0"], ["--minutes", "nan"]])
def test_bad_input_is_refused(
    tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert yardstick(tmp_path, *arguments) == 3
    assert Scripted.asked == []
    assert capsys.readouterr().err


def test_a_file_that_is_no_result_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f"{FIRST}.json").write_text("{}")
    assert yardstick(tmp_path, "--only", FIRST) == 3
    assert f"{FIRST}.json" in capsys.readouterr().err


def test_the_page_of_the_project_is_made_of_the_results_that_are_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert run(["yardstick", "--list", "--out", str(ROOT / "docs" / "yardstick"), "--page", str(page)]) == 0
    assert page.read_text() == (ROOT / "docs" / "yardstick.md").read_text(), (
        "barrier-tck yardstick --list --out docs/yardstick --page docs/yardstick.md"
    )


def test_a_page_says_why_a_bug_cannot_be_run_and_what_could_not_be_compared() -> None:
    cannot = bug(id="SPARK-2", cannot_run="no release has it", pyspark="", compared="", first_affected="")
    results = {
        "SPARK-1": Result(
            "SPARK-1",
            "4.0.0",
            "4.0.3",
            Status.UNCLEAR,
            rounds=(Round(1, 3, 60.0, 70.0, (Finding("c", "<s>", "f", "r", why="it ended"),)),),
        ),
        "SPARK-2": Result("SPARK-2", "", "", Status.CANNOT_RUN, "no release has it"),
    }
    text = rendered((BUG, cannot), results, 1_200)
    assert "- cannot run: no release has it" in text
    assert "none that can be installed" in text
    assert "With 4.0.3 it could not be judged (it ended)" in text
    assert "&lt;s>" in text
    assert "at most 20 minutes" in text
