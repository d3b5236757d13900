"""The example of a system with attempts and checkpoints: the right one is VALID, and the broken one is not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from barrier_tck.harness.cli import main as cli

ROOT = Path(__file__).resolve().parents[3]

EXAMPLE = ROOT / "examples" / "micro_batches" / "micro_batches.py"


@pytest.mark.parametrize(
    ("system", "exit_code", "broken"), [("MicroBatches", 0, []), ("TwoSteps", 1, ["SNK-1"])]
)
def test_the_commands_that_it_shows_tell_the_right_one_from_the_broken_one(
    system: str, exit_code: int, broken: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = f"barrier-tck campaign --system examples.micro_batches.micro_batches:{system} --trials 60"
    assert re.search(rf"^ +{re.escape(shown)}$", EXAMPLE.read_text(), re.MULTILINE)
    options = ["--seed", "1", "--no-store", "--out", str(tmp_path), "--json"]
    assert cli.run([*shown.split()[1:], *options]) == exit_code
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["trials"], result["unknown"]) == (60, 0)
    assert result["invalid"] == 0 if not exit_code else result["invalid"] > 5
    assert sorted({finding["broken"] for finding in result["findings"]}) == broken


def test_the_one_that_shows_its_checkpoints_is_judged_by_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "examples.micro_batches.micro_batches:OpenMicroBatches"
    options = ["--trials", "60", "--seed", "1", "--no-store", "--out", str(tmp_path)]
    assert cli.run(["campaign", "--system", target, *options]) == 0
    table = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    judges = {"ALN-2": "snapshot-formula", "STA-3": "reachability", "SNK-1": "committed-transactions"}
    for clause, checker in judges.items():
        assert int(table[clause][3]) > 30 and any(checker in word for word in table[clause]), table[clause]


def test_every_fault_that_is_drawn_for_it_fires(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It passes no point once more because of a restart, so two kills at the last passing would be one too many."""
    target = "examples.micro_batches.micro_batches:MicroBatches"
    options = ["--trials", "180", "--seed", "1", "--no-store", "--out", str(tmp_path), "--json"]
    assert cli.run(["campaign", "--system", target, *options]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["valid"], result["unknown"]) == (180, 0)
    assert result["faults_fired"] > 250
