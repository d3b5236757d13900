"""The page of how soon strategies find planted bugs; grain: rows that are made up."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.campaign.strategy_measurement import ROWS, Hunted
from barrier_tck.harness.cli import strategies_page
from barrier_tck.harness.cli.strategies_page import measured_bugs, page
from barrier_tck.harness.draw.search.strategies import STRATEGIES
from barrier_tck.harness.support.errors import UsageProblem


def hunts(bug: str, seconds: dict[str, float], seeds: int = 4, missed: tuple[str, ...] = ()) -> list[Hunted]:
    """Return hunts of every strategy, with the same seconds for each seed; those of a missed bug found nothing."""
    return [
        Hunted(
            bug,
            strategy,
            seed,
            50,
            strategy not in missed,
            50 if strategy in missed else 7,
            seconds.get(strategy, 1.0),
        )
        for seed in range(seeds)
        for strategy in STRATEGIES
    ]


FOUND = [
    *hunts("AA-01", {}),
    *hunts("AA-02", {"uniform": 2.0}),
    *hunts("AA-03", {"uniform": 30.0, "guided": 6.0}, missed=("uniform",)),
    *hunts("AA-04", {"uniform": 3.0, "guided": 8.0}),
]


def line_of(text: str, beginning: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(beginning)]
    return line


def test_the_slowest_quarter_is_that_of_uniform_drawing_and_a_miss_counts_with_what_it_took() -> None:
    text = page(FOUND)
    short = text.split("## In short")[1].split("## ")[0]
    assert line_of(short, "| `uniform`") == "| `uniform` | 12 of 16 | 3.00 | 30 | 1.0 |"
    assert line_of(short, "| `guided`") == "| `guided` | 16 of 16 | 6.00 | 6 | 5.0 |"
    longest = text.split("needs longest for")[1].split("## Missed")[0]
    assert [line[2:7] for line in longest.splitlines() if line.startswith("| AA")] == [
        "AA-03",
        "AA-04",
        "AA-02",
        "AA-01",
    ]


def test_a_bug_that_half_of_the_seeds_miss_is_named_too() -> None:
    some = [
        msgspec.structs.replace(hunted, found=hunted.seed >= 2 or hunted.strategy != "pct")
        for hunted in hunts("AA-07", {})
    ]
    assert (
        line_of(page(some), "- `pct`") == "- `pct`, with every seed: none; with half of them or more: AA-07."
    )


def test_misses_are_named_and_shown_in_the_table() -> None:
    text = page(FOUND)
    assert (
        line_of(text, "- `uniform`")
        == "- `uniform`, with every seed: AA-03; with half of them or more: none."
    )
    every = text.split("## Every bug")[1]
    assert line_of(every, "| AA-03").startswith("| AA-03 | 0 of 4, > 50 | 4 of 4, 7, ")


def test_a_bug_that_is_measured_in_part_is_left_out() -> None:
    part = [hunted for hunted in hunts("AA-05", {}) if hunted.strategy != "pct"]
    fewer = hunts("AA-06", {}, seeds=3)
    bugs, seeds, trials = measured_bugs([*FOUND, *part, *fewer])
    assert ([bug.id for bug in bugs], seeds, trials) == (["AA-01", "AA-02", "AA-03", "AA-04"], 4, 50)
    assert {row.seeds for bug in bugs for row in bug.rows.values()} == {4}


def test_the_seeds_are_those_of_most_bugs_whatever_comes_first() -> None:
    bugs, seeds, _ = measured_bugs([*hunts("AA-00", {}, seeds=1), *FOUND])
    assert ([bug.id for bug in bugs], seeds) == (["AA-01", "AA-02", "AA-03", "AA-04"], 4)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(UsageProblem, match="by every strategy"):
        page([hunted for hunted in FOUND if hunted.strategy != "pct"])
    other = msgspec.structs.replace(FOUND[0], trials_max=60)
    with pytest.raises(UsageProblem, match=r"have \[50, 60\]"):
        page([*FOUND, other])


def test_the_command_reads_the_rows_of_a_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [msgspec.json.encode(hunted) for hunted in FOUND]
    (tmp_path / ROWS).write_bytes(b"\n".join(lines) + b"\n")
    monkeypatch.setattr("sys.argv", ["strategies_page", str(tmp_path)])
    strategies_page.main()
    assert capsys.readouterr().out == page(FOUND)


def test_a_directory_without_rows_is_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["strategies_page", str(tmp_path)])
    with pytest.raises(SystemExit):
        strategies_page.main()
    assert "nothing was measured there yet" in capsys.readouterr().err
