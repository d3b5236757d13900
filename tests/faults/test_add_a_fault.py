"""CONTRIBUTING's "Add a fault" is followed to the letter in a copy of the tree: one file, its line, and a campaign."""

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

from tests.test_tidy import ROOT

SECTION = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a fault\n")[2].partition("\n## ")[0]
RUN = "from barrier_tck.harness.cli.main import main; main()"


def block(language: str) -> str:
    (text,) = re.findall(rf"^ *```{language}\n(.*?)^ *```$", SECTION, re.DOTALL | re.MULTILINE)
    return textwrap.dedent(text)


@pytest.fixture(name="tree")
def _tree(tmp_path: Path) -> Path:
    """Copy the files that the section changes, and link to the rest."""
    package = tmp_path / "src" / "barrier_tck"
    package.mkdir(parents=True)
    for entry in (ROOT / "src" / "barrier_tck").iterdir():
        if entry.name != "faults" and not entry.name.startswith("__pycache__"):
            (package / entry.name).symlink_to(entry.resolve())
    for source in (ROOT / "faults").rglob("*.py"):
        target = package / "faults" / source.relative_to(ROOT / "faults")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text())
    return package


def add_the_fault(package: Path) -> None:
    named = re.findall(r"`(faults/kinds/\w+\.py)`:\n", SECTION)
    assert len(named) == 1, "the section names the file that it shows"
    (package / named[0]).write_text(block("python"))
    catalogue = package / "faults" / "catalogue.py"
    importing, entry = (line.removeprefix("+") for line in block("diff").splitlines())
    text = catalogue.read_text()
    assert text.count("\n)\n") == 1, "the table of faults"
    catalogue.write_text(
        text.replace("\n)\n", f"\n{entry}\n)\n").replace("\nFAULTS", f"\n{importing}\n\nFAULTS")
    )


def in_tree(package: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    return subprocess.run(
        [sys.executable, *command],
        cwd=package.parents[1],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
def test_a_fault_is_added_with_one_file_and_its_line_and_then_drawn_run_and_told(tree: Path) -> None:
    add_the_fault(tree)
    run = tree.parents[1]
    (run / "workers.toml").write_text(block("toml"))
    program, *arguments = shlex.split(block("sh"))
    assert program == "barrier-tck"
    done = in_tree(tree, "-c", RUN, *arguments, "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    (directory,) = (run / "runs").iterdir()
    trials = [json.loads(line) for line in (directory / "trials.jsonl").read_text().splitlines()]
    faults = [fault for trial in trials for fault in trial["faults"]]
    assert [(fault["kind"], fault["outcome"]) for fault in faults] == [("kill_workers", "fired")] * 40
    assert any(", " in fault["label"] for fault in faults), "sometimes two are killed at once"
    page = (directory / "report.html").read_text()
    assert faults[0]["label"] in page and "kill workers" in page and "#a0522d" in page
    plan = json.loads((directory / "trials" / "00000" / "plan.json").read_text())
    assert plan["faults"][0]["fault"]["type"] == "kill_workers"


def test_the_page_of_faults_written_again_tells_of_the_new_one(tree: Path) -> None:
    add_the_fault(tree)
    (command,) = re.findall(r"`python (-m [\w.]+) > docs/faults\.md`", SECTION)
    done = in_tree(tree, *shlex.split(command))
    assert done.returncode == 0, done.stderr
    assert (
        "### kill_workers\n" in done.stdout and "| `kill` | `workers` | `kill_workers` | 1 |" in done.stdout
    )


def test_the_fault_that_the_section_shows_meets_the_house_rules(tree: Path) -> None:
    add_the_fault(tree)
    files = [str(tree / "faults" / "kinds" / "kill_workers.py")]
    checks = in_tree(tree, "-m", "ruff", "check", "--config", str(ROOT / "pyproject.toml"), *files)
    assert checks.returncode == 0, checks.stdout
    layout = in_tree(
        tree, "-m", "ruff", "format", "--check", "--config", str(ROOT / "pyproject.toml"), *files
    )
    assert layout.returncode == 0, layout.stdout
