"""A finding as the text of an issue: what it says, and that no record can break out of it; grain: text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from barrier_tck.harness.record.records import NOT_SMALLER, FindingGroup
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.issue_text import issue_texts
from barrier_tck.reports.loading import ReportedRun, load_run
from tests.reports.synthetic_run import campaign_of, record_of, write_run

HOSTILE = "a `b`\n# owned\n[link](http://x) @everyone"


def run_with(tmp_path: Path, group: FindingGroup) -> ReportedRun:
    records = [record_of(number) for number in range(8)]
    campaign = msgspec.structs.replace(campaign_of(records), groups=(group,))
    return load_run(write_run(tmp_path / "run", records, campaign))


def test_an_issue_has_clause_seed_version_command_and_plan(tmp_path: Path) -> None:
    invalid = next(number for number in range(8) if record_of(number).verdict is Verdict.INVALID)
    group = FindingGroup(
        clause="SNK-1",
        checker="exactly-once-output",
        shape="an attempt fails",
        trials=40,
        numbers=(invalid,),
        smallest_trial=invalid,
        faults=1,
        summary="lost: id 7",
        failed_runs=2,
        runs=3,
        presumed=4,
    )
    run = run_with(tmp_path, group)
    ((name, text),) = issue_texts(run).items()
    assert name == "01-SNK-1-exactly-once-output.md"
    assert text.splitlines()[0] == "# `SNK-1` broken: `lost: id 7`"
    for part in (
        f"seen in 40 trials of {run.campaign.trials}, 4 of them presumed, first in trial {invalid}",
        "it needs: `an attempt fails`",
        f"seed {run.campaign.seed}",
        "failed in 2 of 3 runs",
        f"    {run.replay_command(invalid)}",
        '"version"',
    ):
        assert part in text, part


def test_no_record_breaks_out_of_an_issue(tmp_path: Path) -> None:
    group = FindingGroup(HOSTILE, HOSTILE, HOSTILE, 1, (0,), 0, summary=HOSTILE)
    ((name, text),) = issue_texts(run_with(tmp_path, group)).items()
    assert "/" not in name and "\n" not in name and len(name) < 100
    assert [line for line in text.splitlines() if line.startswith("#")] == text.splitlines()[:1]
    assert "\n[link]" not in text


def test_a_plan_that_was_not_made_smaller_is_not_called_smallest_and_its_faults_are_named(
    tmp_path: Path,
) -> None:
    invalid = next(number for number in range(8) if record_of(number).verdict is Verdict.INVALID)
    seen = "lost: " + "x" * 200
    group = FindingGroup("SNK-1", "exactly-once-output", NOT_SMALLER, 1, (invalid,), invalid, summary=seen)
    ((_, text),) = issue_texts(run_with(tmp_path, group)).items()
    title, whole = text.splitlines()[0], text.splitlines()[2]
    assert len(title) < 140 and title.endswith("...`")
    assert whole == f"`{seen}`"
    assert "it needs" not in text and "smallest plan" not in text.lower()
    assert f"The plan of trial {invalid}:" in text
    fired = [fault for fault in record_of(invalid).faults if fault.fired_at_ms is not None]
    assert fired and all(f"{fault.label} ({fault.trigger})" in text for fault in fired)


def test_a_fault_that_did_not_fire_is_not_said_to_have_struck(tmp_path: Path) -> None:
    invalid = next(number for number in range(8) if record_of(number).verdict is Verdict.INVALID)
    group = FindingGroup("SNK-1", "exactly-once-output", NOT_SMALLER, 1, (invalid,), invalid, summary="lost")
    run = run_with(tmp_path, group)
    record = run.details[invalid]
    quiet = msgspec.structs.replace(
        record, faults=tuple(msgspec.structs.replace(one, fired_at_ms=None) for one in record.faults)
    )
    ((_, text),) = issue_texts(replace(run, details={invalid: quiet})).items()
    assert "there struck" not in text
