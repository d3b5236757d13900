"""CONTRIBUTING's "Add a checker" is followed to the letter in a copy of the tree: one file, and everybody knows it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from barrier_tck.harness.oracle.standard_checker import StandardChecker
from tests.test_maps import CONTRIBUTING, codes, table
from tests.test_tidy import ROOT

SECTION = CONTRIBUTING.partition("## Add a checker\n")[2].partition("\n## ")[0]
RUN = "from barrier_tck.harness.cli.main import main; main()"


@pytest.fixture(name="tree", scope="module")
def _tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Link to the tree, but for the folder of the checkers, which is copied and gets the file of the section."""
    root = tmp_path_factory.mktemp("tree")
    original, package = ROOT / "src" / "barrier_tck", root / "src" / "barrier_tck"
    folders = [Path(), Path("harness"), Path("harness/oracle"), Path("harness/oracle/checkers")]
    for folder in folders:
        (package / folder).mkdir(parents=True)
        for entry in (original / folder).iterdir():
            if folder / entry.name not in folders and entry.name != "__pycache__":
                (package / folder / entry.name).symlink_to(entry.resolve())
    named = re.findall(r"`(harness/oracle/checkers/\w+\.py)`:\n", SECTION)
    assert len(named) == 1, "the section names the file that it shows"
    (text,) = re.findall(r"^ *```python\n(.*?)^ *```$", SECTION, re.DOTALL | re.MULTILINE)
    (package / named[0]).write_text(textwrap.dedent(text))
    return root


def in_tree(tree: Path, *command: str, expected: int = 0) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    done = subprocess.run(
        [sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_a_checker_is_added_with_one_file_and_then_judges_and_is_counted_by_campaigns(tree: Path) -> None:
    in_tree(tree, "-c", RUN, "campaign", "--trials", "12", "--seed", "0", "--out", "runs")
    (directory,) = (tree / "runs").iterdir()
    trials = [json.loads(line) for line in (directory / "trials.jsonl").read_text().splitlines()]
    found = [one for trial in trials for one in trial["findings"] if one["checker"] == "attempts-numbered"]
    assert [one["verdict"] for one in found] == ["valid"] * 12
    restarted = [one["counts"]["restarts"] > 0 for one in found]
    assert [bool(one["clauses"]) for one in found] == restarted, (
        "a trial with one attempt says nothing of REC-2"
    )
    record = json.loads((directory / "campaign.json").read_text())
    (sometimes,) = [one for one in record["findings"] if one["checker"] == "sometimes-started-again"]
    assert sometimes["verdict"] == "valid"
    assert sometimes["counts"]["trials"] == 12 and sometimes["counts"]["with_restarts"] == sum(restarted) > 3


@pytest.mark.nightly
def test_what_its_campaign_never_saw_makes_the_campaign_unknown(tree: Path) -> None:
    (tree / "calm.toml").write_text('name = "calm"\nseed = 1\ntrials = 3\n[faults]\nper_trial = [0, 0]\n')
    in_tree(tree, "-c", RUN, "campaign", "calm.toml", "--out", "calm", expected=2)
    (directory,) = (tree / "calm").iterdir()
    record = json.loads((directory / "campaign.json").read_text())
    (sometimes,) = [one for one in record["findings"] if one["checker"] == "sometimes-started-again"]
    assert (sometimes["verdict"], record["verdict"]) == ("unknown", "unknown")
    assert "none of 3 trials had more than one attempt" in sometimes["summary"]


@pytest.mark.long
def test_an_added_checker_is_on_the_generated_page(tree: Path) -> None:
    (command,) = re.findall(r"`python (-m [\w.]+) > docs/checkers.md`", SECTION)
    page = in_tree(tree, *shlex.split(command))
    assert "| `attempts-numbered` | Every attempt has a higher number than the one before. | REC-2 |" in page
    assert "| `sometimes-started-again` | REC-2 | `attempts-numbered` |" in page
    # Beside its two rows, what must have happened: no checker of the suite needs that.
    assert len(page.splitlines()) == len((ROOT / "docs" / "checkers.md").read_text().splitlines()) + 3


def test_attributes_of_checkers_are_listed() -> None:
    listed = [trait for row in table(SECTION, "| attribute |") for trait in codes(row[0])]
    traits = [each for each in {**vars(StandardChecker), **StandardChecker.__annotations__} if each[0] != "_"]
    assert sorted(listed) == sorted(each for each in traits if each != "check")
