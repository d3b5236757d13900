"""Seeds that nobody gave are new ones, and are said so that a run can be repeated; grain: commands and plans."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.record.records import CampaignRecord
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support import root_seed
from barrier_tck.harness.support.errors import InternalError


def test_a_seed_is_drawn_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    drawn = [root_seed.root_seed(None) for _ in range(5)]
    assert len({seed.value for seed in drawn}) > 1
    assert all(seed.drawn and f"--seed {seed.value}" in str(seed) for seed in drawn)
    assert str(root_seed.root_seed(7)) == "7 (given)"


def ran(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[CampaignRecord, str]:
    """Run a campaign of two trials; return its record, and what it printed."""
    out = tmp_path / f"runs{len(list(tmp_path.iterdir()))}"
    run(["campaign", "--trials", "2", "--controls", "0", "--out", str(out), "--json", *options])
    captured = capsys.readouterr()
    (directory,) = out.iterdir()
    return open_run(directory).campaign, captured.err + captured.out


def test_a_campaign_without_a_seed_draws_one_says_it_first_and_is_repeated_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter((101, 202))
    monkeypatch.setattr(root_seed, "new_seed", lambda: next(numbers))
    first, said = ran(tmp_path, capsys)
    assert first.seed == first.configuration["seed"] == 101
    assert said.splitlines()[0].strip() == "seed: 101 (drawn; to repeat: --seed 101)"
    second, _ = ran(tmp_path, capsys)
    assert second.seed == 202
    again, said = ran(tmp_path, capsys, "--seed", "101")
    assert again.seed == 101
    assert said.splitlines()[0].strip() == "seed: 101 (given)"

    def seeds_of(number: int) -> list[int | None]:
        (directory,) = (tmp_path / f"runs{number}").iterdir()
        return [trial.seed for trial in tuple(open_run(directory).rows())]

    assert seeds_of(0) == seeds_of(2) != seeds_of(1)


def test_a_campaign_file_that_names_a_seed_is_read_and_honoured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.toml"
    file.write_text("seed = 48\n")
    record, said = ran(tmp_path, capsys, str(file))
    assert record.seed == 48
    assert "seed: 48 (given)" in said
    assert ran(tmp_path, capsys, str(file), "--seed", "3")[0].seed == 3


def test_plans_are_not_drawn_from_a_seed_that_nobody_knows() -> None:
    unseeded = configuration_from({}, "test")
    with pytest.raises(InternalError, match="no seed"):
        next(campaign_plans(unseeded, ReferenceSimulated()))
    assert unseeded.seeded().root_seed == 0


@pytest.mark.long
def test_a_certificate_says_which_seed_was_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(root_seed, "new_seed", lambda: 5)
    options = [
        "--level",
        "contract",
        "--no-strength",
        "--only",
        "reads-in-every-form",
        "--out",
        str(tmp_path),
    ]
    run(["certify", "heap", *options])
    assert re.search(r"seed 5 \(drawn; to repeat: --seed 5\)", "".join(capsys.readouterr()))


SESSION = """
def test_seeds(request, state_backend):
    print("drawn from", request.config.getoption("--seed"), state_backend.seed)
"""


IN_PROCESSES = """
import os
import pytest

@pytest.mark.parametrize("number", range(4))
def test_seeds(request, number):
    with open(f"seed-{number}", "w") as file:
        file.write(f"{request.config.getoption('--seed')} {os.environ['PYTEST_XDIST_WORKER']}")
"""


@pytest.mark.parametrize(
    ("options", "header", "seed"),
    [
        (("--seed", "9"), "seed 9 (given)", "9"),
        (("--hypothesis-seed", "8"), "seed 8 (given)", "8"),
        (("--seed", "9", "--hypothesis-seed", "8"), "seed 9 (given)", "9"),
        ((), r"seed (\d+) (drawn; to repeat: --seed \1)", None),
    ],
    ids=["given", "of Hypothesis", "both", "drawn"],
)
@pytest.mark.nightly
def test_the_header_of_a_session_says_from_which_seed_is_drawn(
    options: tuple[str, ...], header: str, seed: str | None, tmp_path: Path
) -> None:
    (tmp_path / "test_one.py").write_text(SESSION)
    command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "test_one.py", *options]
    printed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    pattern = header.replace("(given)", r"\(given\)").replace("(drawn", r"\(drawn").replace(r"\1)", r"\1\)")
    found = re.search(pattern, printed)
    assert found, printed
    used = seed or found.group(1)
    assert f"drawn from {used} {used}" in printed


@pytest.mark.long
def test_all_processes_of_a_session_draw_from_the_same_seed(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(IN_PROCESSES)
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", "test_one.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    told = [file.read_text().split() for file in tmp_path.glob("seed-*")]
    assert len({seed for seed, _ in told}) == 1
    assert len({process for _, process in told}) == 2


def test_json_of_a_campaign_has_its_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["campaign", "--trials", "1", "--seed", "6", "--controls", "0", "--out", str(tmp_path), "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["seed"] == 6
