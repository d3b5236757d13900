"""What GitHub Actions shows of a run, and that no record can break out of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.reports.github import ANNOTATIONS_MAX, error_lines, step_summary
from barrier_tck.reports.loading import ReportedRun, load_run
from tests.reports.synthetic_run import record_of, spark_campaign, write_run

HOSTILE = "a|b\n::error::owned <script>`x` %0A [link](http://x) | @everyone"


@pytest.fixture
def run(tmp_path: Path) -> ReportedRun:
    return load_run(spark_campaign(tmp_path / "run"))


def test_each_bad_finding_is_an_error_with_trial_clause_and_replay_command(run: ReportedRun) -> None:
    invalid, unknown = error_lines(run, "campaigns/flights.toml")
    assert invalid.startswith(
        "::error file=campaigns/flights.toml,title=trial 6 invalid%3A exactly-once-output (SNK-1"
    )
    assert f"%0Areplay: barrier-tck replay {run.directory}/trials/00006/plan.json" in invalid
    assert unknown.startswith("::error file=campaigns/flights.toml,title=trial 9 unknown")


def test_a_valid_run_has_no_annotation(tmp_path: Path) -> None:
    assert error_lines(load_run(write_run(tmp_path / "run", [record_of(0)]))) == ()


def test_more_errors_than_github_shows_end_with_how_many_there_are(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [_with(trial, "no") for trial in range(ANNOTATIONS_MAX + 3)]))
    lines = error_lines(run)
    assert len(lines) == ANNOTATIONS_MAX
    assert "4 findings more" in lines[-1]


def test_a_run_without_trials_is_an_error_of_its_own(tmp_path: Path) -> None:
    assert len(error_lines(load_run(write_run(tmp_path / "run", [])))) == 1


def test_a_summary_has_verdict_counts_findings_and_the_matrix(run: ReportedRun) -> None:
    text = step_summary(run)
    assert text.startswith("## ✗ INVALID: flights on reference-spark\n")
    assert "12 trials: 10 valid, 1 unknown, 1 invalid; 15 of 16 faults fired" in text
    assert (
        f"`replay: barrier-tck replay {run.directory}/trials/00006/plan.json --system reference-spark`"
        in text
    )
    assert "### Faults by phase: 6 of 18 combinations tried" in text
    assert "| phase | kill executor | kill worker | crash coordinator |" in text
    assert "not valid: SNK-1 invalid" in text.replace("ALN-1 invalid, REC-1 invalid, ", "")


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [_with(0, HOSTILE)]))
    for line in error_lines(run, "a,b:c.toml"):
        assert "\n" not in line
        assert line.startswith("::error file=a%2Cb%3Ac.toml,title=")
        assert line.index("::error::owned") > line.index("::", 2)
    rows = [line for line in step_summary(run).splitlines() if "everyone" in line]
    assert len(rows) == 1
    assert "<script>" not in rows[0] and "\\<script\\>" in rows[0] and "\\@everyone" in rows[0]
    assert len(rows[0].replace("\\|", "").split("|")) == 8


def _with(trial: int, summary: str) -> Any:
    finding = Finding("checker", ("SNK-1",), Verdict.INVALID, summary)
    return msgspec.structs.replace(
        record_of(trial % 6), trial=trial, findings=(finding,), verdict=Verdict.INVALID
    )


def test_the_command_tells_github_and_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, page = tmp_path / "c.toml", tmp_path / "summary.md"
    fault = 'fault = { type = "kill_worker", subtask = "totals[0]" }'
    trigger = 'trigger = { type = "after", point = "restored" }'
    file.write_text(f"[[trial]]\nfaults = [{{ {fault}, {trigger} }}]\n")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(page))
    assert cli.run(["campaign", str(file), "--out", str(tmp_path / "runs")]) == 2
    assert "::error" not in capsys.readouterr().out and not page.exists()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert cli.run(["campaign", str(file), "--out", str(tmp_path / "others")]) == 2
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("::error")]
    assert line.startswith("::error file=c.toml,title=trial 0 unknown%3A faults-fired (CAM-3)")
    assert "? UNKNOWN" in page.read_text()
