"""The exploration with new seeds writes down what it finds, and fails nothing; grain: its summaries."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests import fresh_exploration
from tests.fresh_exploration import CAMPAIGNS, EACH_TIME, STRATEGIES, main


def summary_of(directory: Path, **changes: Any) -> dict[str, Any]:
    counts = {"trials": 3, "valid": 2, "unknown": 0, "invalid": 1, "seed": 77}
    why = {"nothing_happened": 0, "checker_crashed": 0, "not_run": 0}
    there = {"groups": [{}], "interrupted": False, "run_directory": str(directory), "why_unknown": why}
    return {**counts, **there, **changes}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "issues").mkdir()
    (tmp_path / "issues" / "01-REC-1-input-reads.md").write_text("# `REC-1` broken\n")
    return tmp_path


def test_a_finding_is_printed_as_the_text_of_an_issue_and_fails_only_what_is_strict(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, float, tuple[str, ...]]] = []

    def explored(campaign: str, seconds: float, options: list[str]) -> dict[str, Any]:
        asked.append((campaign, seconds, tuple(options)))
        return summary_of(directory)

    monkeypatch.setattr(fresh_exploration, "explored", explored)
    assert main(["--all", "--seconds", "50", "--out", "runs", "--strategy", "pct"]) == 0
    said = capsys.readouterr().err
    assert said.count("# `REC-1` broken") == len(CAMPAIGNS)
    assert "graphs, seed 77: 3 trials: 2 valid, 0 unknown, 1 invalid" in said
    assert str(directory / "issues" / "01-REC-1-input-reads.md") in said
    given = ("--out", "runs", "--strategy", "pct")
    assert asked == [(campaign, 50 / len(CAMPAIGNS), given) for campaign in CAMPAIGNS]
    asked.clear()
    assert main(["--strict"]) == 1
    assert len({campaign for campaign, *_ in asked}) == EACH_TIME


def test_which_campaigns_are_explored_and_how_is_drawn_anew_each_time(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    strategies: list[str] = []

    def explored(campaign: str, _: float, options: list[str]) -> dict[str, Any]:
        asked.append(campaign)
        assert options[0] == "--strategy"
        strategies.append(options[1])
        return summary_of(directory, groups=[], invalid=0)

    monkeypatch.setattr(fresh_exploration, "explored", explored)
    for seed in range(12):
        random.seed(seed)
        assert main([]) == 0
    assert len(asked) == 12 * EACH_TIME and set(asked) == set(CAMPAIGNS)
    assert set(strategies) == set(STRATEGIES)


def test_a_campaign_that_finds_nothing_or_cannot_begin(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] | int = summary_of(directory, groups=[], invalid=0)
    monkeypatch.setattr(fresh_exploration, "explored", lambda *_: found)
    assert main(["--strict"]) == 0
    assert "FOUND" not in capsys.readouterr().err
    found = summary_of(directory, groups=[], interrupted=True)
    assert main([]) == 1
    found = 3
    assert main([]) == 3


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ({"checker_crashed": 2, "not_run": 1}, "3 of 60 trials were not judged, more than 2%"),
        ({"nothing_happened": 4}, "in 4 of 60 trials nothing happened, more than 5%"),
    ],
)
def test_more_unknown_trials_than_the_shares_allow_are_told_and_fail_what_is_strict(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    why: dict[str, int],
    said: str,
) -> None:
    unknown = sum(why.values())
    summary = summary_of(
        directory, groups=[], invalid=0, trials=60, valid=60 - unknown, unknown=unknown, why_unknown=why
    )
    monkeypatch.setattr(fresh_exploration, "explored", lambda *_: summary)
    assert main([]) == 0
    assert said in capsys.readouterr().err
    assert main(["--strict"]) == 1
