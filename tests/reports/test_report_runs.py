"""The index over run directories, and two of them compared; grain: synthetic run directories, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.cli.main import run
from barrier_tck.harness.record.records import FindingGroup
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.run_comparison import compared, render_comparison
from barrier_tck.reports.run_index import index_of, render_index
from tests.reports.synthetic_run import INVALID_TRIAL, campaign_of, record_of, write_run

GROUP = FindingGroup(
    "SNK-1",
    "exactly-once-output",
    "an attempt fails",
    1,
    (INVALID_TRIAL,),
    INVALID_TRIAL,
    summary="<b>twice</b>",
)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs of one campaign, of which the newer shows no finding, and a directory that cannot be read."""
    old = [record_of(trial) for trial in range(12)]
    mended = msgspec.structs.replace(
        old[INVALID_TRIAL], verdict=Verdict.VALID, findings=old[0].findings, faults=()
    )
    new = [mended if record.trial == INVALID_TRIAL else record for record in old]
    first = campaign_of(old, started_at="2026-01-01T03:00:00+00:00", groups=(GROUP,))
    write_run(tmp_path / "old", old, first)
    write_run(tmp_path / "new", new, campaign_of(new, started_at="2026-01-02T03:00:00+00:00"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "campaign.json").write_text("{")
    (tmp_path / "old" / "report.html").touch()
    return tmp_path


def test_the_index_has_every_run_newest_first_with_the_numbers_of_its_record(runs: Path) -> None:
    index = index_of(runs)
    assert [run.name for run in index.runs] == ["new", "old"]
    assert len(index.unreadable) == 1 and "broken" in index.unreadable[0]
    new, old = index.runs
    assert index.pairs() == ((old, new),)
    assert 0 < len(old.cells.hit) <= old.cells.possible
    assert old.why_unknown == {"nothing_happened": 1, "checker_crashed": 0, "not_run": 0}
    page = render_index(index)
    assert 'href="old/report.html"' in page and 'href="new' not in page
    assert page.index("new<br>") < page.index("old</a>")
    assert "broken" in page


def test_a_comparison_says_what_only_one_of_two_runs_shows(runs: Path) -> None:
    one, other = load_run(runs / "new"), load_run(runs / "old")
    found = compared(one, other)
    assert found.names == ("new", "old")
    facts = {line.name: (line.one, line.other) for line in found.facts}
    assert facts["findings"] == ("0", "1")
    assert facts["trials"] == ("12", "12")
    assert found.findings == ((), (), (GROUP,))
    assert found.same_plans == 12
    page = render_comparison(found)
    assert "&lt;b&gt;twice&lt;/b&gt;" in page and "<b>twice</b>" not in page
    assert compared(one, one).findings == ((), (), ())
    assert not [line for line in compared(one, one).facts if line.differs]


def test_a_trial_of_the_same_plan_with_another_verdict_is_listed_only_if_the_seed_is_the_same(
    runs: Path,
) -> None:
    found = compared(load_run(runs / "new"), load_run(runs / "old"))
    (changed,) = found.other_verdicts
    assert (changed.trial, changed.one, changed.other) == (INVALID_TRIAL, Verdict.VALID, Verdict.INVALID)
    other = msgspec.structs.replace(open_run(runs / "new").campaign, seed=99)
    (runs / "new" / "campaign.json").write_bytes(msgspec.json.encode(other))
    assert compared(load_run(runs / "new"), load_run(runs / "old")).same_plans == 0


def test_the_command_writes_index_and_comparison(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["runs", str(runs), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [line["run"] for line in printed["runs"]] == ["new", "old"]
    assert (runs / "compared" / "old--new.html").is_file()
    assert "compared/old--new.html" in (runs / "index.html").read_text()
    assert printed["compared"][0]["findings"]["first"][0]["clause"] == "SNK-1"
    assert run(["runs", str(runs), "--compare", str(runs / "new"), str(runs / "old")]) == 0
    assert (runs / "compared" / "new--old.html").is_file()
    assert run(["runs", str(runs / "none")]) == 3
    assert "is no directory" in " ".join(capsys.readouterr().err.split())
