"""What a night left becomes one record, one finding for each way to fail, and a page. Grain: directories, commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.campaign.nights import gathered, read_history
from barrier_tck.harness.cli.main import run
from barrier_tck.harness.record.night_record import NightRecord
from barrier_tck.harness.record.records import CampaignRecord, FindingGroup, TrialRecord
from barrier_tck.harness.record.unknown_trials import NOT_RUN_CHECKER
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.reports.nights_page import bug_rows, finding_rows, flakes, render_nights
from tests.reports.synthetic_run import INVALID_TRIAL, campaign_of, record_of, write_run

GROUP = FindingGroup(
    "SNK-1",
    "exactly-once-output",
    "an attempt fails",
    3,
    (INVALID_TRIAL,),
    INVALID_TRIAL,
    summary="<b>twice</b>",
)
JUNIT = """<testsuites><testsuite name="pytest" timestamp="2026-01-01T04:00:00+00:00">
<testcase classname="conformance.test_loops" name="test_a" time="12.5"><properties><property name="tried" value="2"/>
<property name="tried" value="3"/></properties></testcase>
<testcase classname="conformance.test_loops" name="test_b" time="2.5"/>{more}</testsuite></testsuites>
"""
FAILED = '<testcase classname="tests" name="test_c" time="1"><failure message="no">no</failure></testcase>'


def trials(*, bad: bool) -> list[TrialRecord]:
    """Return twelve trials, one UNKNOWN because its fault did not fire and, if wanted, one INVALID."""
    found = [record_of(trial) for trial in range(12)]
    if not bad:
        found[INVALID_TRIAL] = msgspec.structs.replace(found[0], trial=INVALID_TRIAL)
    return found


def campaign(directory: Path, name: str, records: list[TrialRecord], **changes: Any) -> CampaignRecord:
    record = campaign_of(records, name=name, started_at="2026-01-01T03:00:00+00:00", **changes)
    write_run(directory / "deep" / name, records, record)
    return record


def not_run(record: TrialRecord) -> TrialRecord:
    finding = Finding(NOT_RUN_CHECKER, (), Verdict.UNKNOWN, "the trial could not be run: no machine")
    return msgspec.structs.replace(record, verdict=Verdict.UNKNOWN, findings=(finding,), faults=())


def bugs(directory: Path, *hunted: tuple[str, bool, int]) -> None:
    (directory / "mutants").mkdir(parents=True)
    rows = [{"id": name, "caught": caught, "trials": tried, "seconds": 1.5} for name, caught, tried in hunted]
    (directory / "mutants" / "mutants.json").write_text(json.dumps({"world": "simulated", "mutants": rows}))


@pytest.fixture
def calm(tmp_path: Path) -> Path:
    """A night that passes: one trial showed nothing, one test ran again."""
    campaign(tmp_path / "calm", "graphs", trials(bad=False))
    bugs(tmp_path / "calm", ("AL-01", True, 1))
    (tmp_path / "calm" / "conformance.xml").write_text(JUNIT.format(more=""))
    return tmp_path / "calm"


@pytest.fixture
def wild(tmp_path: Path) -> Path:
    """A night in which two campaigns show one finding, of which the second has the smaller plan."""
    larger = msgspec.structs.replace(GROUP, faults=3)
    campaign(tmp_path / "wild", "graphs", trials(bad=True), groups=(larger,), opened_as="here")
    smaller = msgspec.structs.replace(GROUP, trials=4, faults=1, failed_runs=2, runs=5)
    campaign(tmp_path / "wild", "modes", trials(bad=True), groups=(smaller,), opened_as="there")
    bugs(tmp_path / "wild", ("AL-01", True, 3), ("SO-02", False, 40))
    (tmp_path / "wild" / "conformance.xml").write_text(JUNIT.format(more=FAILED))
    return tmp_path / "wild"


def test_what_fails_alike_in_two_campaigns_is_one_finding_with_the_smallest_plan(wild: Path) -> None:
    night, plans = gathered([wild], "c0ffee")
    (finding,) = night.findings
    assert (finding.trials, finding.campaigns) == (7, ("graphs", "modes"))
    assert (finding.system, finding.faults, finding.failed_runs) == ("there", 1, 2)
    ((path, group),) = plans.values()
    assert list(plans) == [finding.plan] and path.name == "modes" and group.faults == 1
    assert night.verdict is Verdict.INVALID and night.trials == 24
    said = "\n".join(night.problems)
    for part in ("SNK-1 is broken", "bug SO-02 was missed in 40", "tests::test_c"):
        assert part in said


def test_a_night_passes_although_one_trial_showed_nothing_and_a_test_ran_again(calm: Path) -> None:
    night, plans = gathered([calm], "")
    assert (night.verdict, night.problems, plans) == (Verdict.VALID, (), {})
    assert night.night == "2026-01-01T03:00:00+00:00"
    (session,) = night.tests
    assert (session.tests, session.seconds) == (2, 15.0)
    assert session.tried_again == {"conformance.test_loops::test_a": 3}
    assert [flake.what for flake in flakes([night])] == [
        "a test that ran again",
        "a campaign with trials in which nothing happened",
    ]


@pytest.mark.parametrize(("lost", "passes"), [(1, True), (2, False)])
def test_trials_that_could_not_be_run_are_counted_and_fail_the_night_beyond_a_share(
    lost: int, passes: bool, tmp_path: Path
) -> None:
    records = [not_run(record) if record.trial < lost else record for record in trials(bad=False)]
    campaign(tmp_path, "graphs", records)
    night, _ = gathered([tmp_path], "")
    assert night.campaigns[0].why_unknown == {"nothing_happened": 1, "checker_crashed": 0, "not_run": lost}
    assert (night.verdict is Verdict.VALID) is passes
    assert passes or "2 of 12 trials were not judged" in night.problems[0]


def test_a_campaign_that_was_interrupted_fails_the_night(tmp_path: Path) -> None:
    campaign(tmp_path, "graphs", trials(bad=False), interrupted=True)
    night, _ = gathered([tmp_path], "")
    assert night.verdict is Verdict.UNKNOWN
    assert night.problems == ("graphs was interrupted after 12 trials",)


def test_a_campaign_that_leaves_nothing_fails_the_night_if_it_ran_the_night_before(
    calm: Path, wild: Path
) -> None:
    earlier = msgspec.structs.replace(gathered([wild], "")[0], night="2025-12-31T03:00:00+00:00")
    night, _ = gathered([calm], "", [earlier])
    assert night.problems == ("modes left nothing, and it ran the night before",)
    assert night.verdict is Verdict.UNKNOWN
    assert not gathered([calm], "", [moved(earlier, 2)])[0].problems, "a later night is not one before"


def moved(night: NightRecord, day: int) -> NightRecord:
    return msgspec.structs.replace(night, night=f"2026-01-{day:02d}T03:00:00+00:00")


def test_the_page_says_since_when_a_finding_is_there_and_how_soon_bugs_were_found(
    calm: Path, wild: Path
) -> None:
    good, bad = gathered([calm], "")[0], gathered([wild], "")[0]
    nights = [moved(bad, 4), moved(bad, 3), moved(good, 2)]
    (row,) = finding_rows(nights)
    assert (row.first[:10], row.last[:10], row.nights, row.is_now) == ("2026-01-03", "2026-01-04", 2, True)
    assert not finding_rows([moved(good, 5), *nights])[0].is_now
    missed, caught = bug_rows(nights)
    assert (missed.id, missed.missed, missed.caught) == ("SO-02", 2, False)
    assert (caught.trials, caught.median_trials, caught.most_trials) == (3, 3.0, 3)
    page = render_nights(nights)
    assert "&lt;b&gt;twice&lt;/b&gt;" in page and "<b>twice</b>" not in page
    assert "In 2 nights since 2026-01-03" in page
    assert f"barrier-tck replay {bad.findings[0].plan} --system there" in page


def test_the_command_adds_a_night_to_the_history_and_keeps_plans_of_the_last_one(
    calm: Path,
    wild: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GITHUB_SHA", "c0ffee" * 6)
    out = tmp_path / "nights"
    assert run(["nights", str(wild), "--out", str(out), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["verdict"] == "invalid" and printed["commit"].startswith("c0ffee")
    plan = wild / "deep" / "modes" / "trials" / f"{INVALID_TRIAL:05d}" / "plan.json"
    assert (out / "findings" / "01.json").read_bytes() == plan.read_bytes()
    assert "# `SNK-1` broken" in (out / "findings" / "01.md").read_text()
    assert run(["nights", str(wild), "--out", str(out)]) == 1
    assert len(read_history(out / "nights.jsonl")) == 1, "the same night again"
    later = msgspec.json.decode((calm / "deep" / "graphs" / "campaign.json").read_bytes())
    later["started_at"] = "2026-01-01T03:30:00+00:00"
    (calm / "deep" / "graphs" / "campaign.json").write_bytes(msgspec.json.encode(later))
    assert run(["nights", str(calm), "--out", str(out)]) == 2
    assert "modes left nothing" in capsys.readouterr().out
    shutil.copytree(calm / "deep" / "graphs", calm / "deep" / "modes")
    later["name"] = "modes"
    (calm / "deep" / "modes" / "campaign.json").write_bytes(msgspec.json.encode(later))
    assert run(["nights", str(calm), "--out", str(out)]) == 0
    assert len(read_history(out / "nights.jsonl")) == 2
    assert list((out / "findings").iterdir()) == []
    assert "The last night passed" in (out / "index.html").read_text()


def test_a_night_in_which_nothing_ran_is_no_night(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nights", str(tmp_path), "--out", str(tmp_path / "out")]) == 3
    assert "nothing ran that night" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
    campaign(tmp_path, "graphs", trials(bad=False))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "nights.jsonl").write_text("{}\n")
    assert run(["nights", str(tmp_path), "--out", str(tmp_path / "out")]) == 3
    assert "line 1, is no night" in " ".join(capsys.readouterr().err.split())
