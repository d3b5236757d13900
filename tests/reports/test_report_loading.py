"""A run directory is read whole, or refused with an error that names the file and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.plan.trial_plan import PLAN_VERSION
from barrier_tck.harness.record.run_reader import (
    RunDirectoryCorrupt,
    RunDirectoryMissing,
    RunDirectoryNewer,
)
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import UsageError
from barrier_tck.reports.loading import load_run, planned_faults
from barrier_tck.reports.run_totals import verdict_of
from tests.reports.synthetic_run import campaign_of, record_of, spark_campaign, write_run


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", [record_of(trial) for trial in (0, 6, 9)])


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_whole_run_is_read_without_notices(run_directory: Path) -> None:
    run = load_run(run_directory)
    assert [trial.trial for trial in run.listed] == [0, 6, 9]
    assert sorted(run.details) == [0, 6, 9]
    assert run.details[6] == record_of(6)
    assert run.notices == ()
    assert run.verdict is Verdict.INVALID


def test_valid_trials_beyond_the_first_need_no_directory(tmp_path: Path) -> None:
    run = load_run(spark_campaign(tmp_path / "run"))
    assert len(run.listed) == 12
    assert sorted(run.details) == [0, 1, 2, 6, 9]
    assert run.plan_path(11) is None


def test_the_smallest_plan_is_the_one_to_replay(run_directory: Path) -> None:
    assert load_run(run_directory).plan_path(6) == run_directory / "trials" / "00006" / "plan.json"
    (run_directory / "shrunk").mkdir()
    (run_directory / "shrunk" / "00006.json").write_text("{}")
    change(run_directory / "campaign.json", shrunk={"6": "shrunk/00006.json"})
    assert load_run(run_directory).plan_path(6) == run_directory / "shrunk" / "00006.json"


def test_a_shrunk_plan_that_is_gone_falls_back_to_the_kept_one(run_directory: Path) -> None:
    change(run_directory / "campaign.json", shrunk={"6": "shrunk/gone.json"})
    assert load_run(run_directory).plan_path(6) == run_directory / "trials" / "00006" / "plan.json"


@pytest.mark.parametrize("name", ["campaign.json", "trials.jsonl"])
def test_a_missing_file_is_named(run_directory: Path, name: str) -> None:
    (run_directory / name).unlink()
    with pytest.raises(RunDirectoryMissing, match=name):
        load_run(run_directory)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryMissing, match="nowhere is not a directory"):
        load_run(tmp_path / "nowhere")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}', b"\xff\xfe", b"[" * 100_000])
def test_a_corrupt_file_is_named(run_directory: Path, content: bytes) -> None:
    for path in (run_directory / "campaign.json", run_directory / "trials" / "00006" / "record.json"):
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(RunDirectoryCorrupt, match=path.name):
            load_run(run_directory)
        path.write_bytes(before)


def test_a_line_that_is_no_trial_is_named_by_its_number(run_directory: Path) -> None:
    path = run_directory / "trials.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text(lines[0] + '{"verdict": "splendid"}\n' + lines[2])
    with pytest.raises(RunDirectoryCorrupt, match="line 2"):
        load_run(run_directory)


def test_a_trial_that_is_there_twice_is_refused(run_directory: Path) -> None:
    path = run_directory / "trials.jsonl"
    path.write_text(path.read_text() + path.read_text())
    with pytest.raises(RunDirectoryCorrupt, match="trial 0 is there twice"):
        load_run(run_directory)


def test_half_a_last_line_is_left_out_with_a_notice(run_directory: Path) -> None:
    path = run_directory / "trials.jsonl"
    path.write_text(path.read_text() + '{"trial": 10, "verd')
    run = load_run(run_directory)
    assert len(run.listed) == 3
    assert any("incomplete" in notice for notice in run.notices)


@pytest.mark.parametrize("name", ["campaign.json", "trials/00006/record.json"])
def test_a_newer_version_is_refused_even_if_nothing_else_of_it_is_known(
    run_directory: Path, name: str
) -> None:
    (run_directory / name).write_text('{"version": 2, "novel": true}')
    with pytest.raises(RunDirectoryNewer, match=r"version 2 is newer than version 1.*upgrade"):
        load_run(run_directory)


def test_a_newer_plan_within_a_record_is_refused(run_directory: Path) -> None:
    path = run_directory / "trials" / "00006" / "record.json"
    record = json.loads(path.read_text())
    change(path, plan=record["plan"] | {"version": 7})
    with pytest.raises(RunDirectoryNewer, match="plan version 7"):
        load_run(run_directory)


def test_a_record_with_a_plan_of_an_older_version_is_read(run_directory: Path) -> None:
    path = run_directory / "trials" / "00006" / "record.json"
    record = json.loads(path.read_text())
    old = {"version": 1, "seed": 7, "topology": {"sources": 3}, "faults": record["plan"]["faults"]}
    change(path, plan=old)
    plan = load_run(run_directory).details[6].plan
    assert (plan.version, plan.seed, plan.job.widths["source"]) == (PLAN_VERSION, 7, 3)


def test_an_impossible_plan_is_a_corrupt_record(run_directory: Path) -> None:
    path = run_directory / "trials" / "00006" / "record.json"
    change(path, plan=json.loads(path.read_text())["plan"] | {"sead": 7})
    with pytest.raises(RunDirectoryCorrupt, match=r"record\.json.*sead"):
        load_run(run_directory)


def test_every_error_is_a_usage_error() -> None:
    for error in (RunDirectoryMissing, RunDirectoryCorrupt, RunDirectoryNewer):
        assert issubclass(error, UsageError)
        assert error.exit_code == 3


def test_a_valid_trial_that_nobody_checked_is_unknown(tmp_path: Path) -> None:
    unchecked = msgspec.structs.replace(record_of(0), findings=())
    run = load_run(write_run(tmp_path / "run", [unchecked]))
    assert verdict_of(run.listed[0]) is Verdict.UNKNOWN
    assert run.verdict is Verdict.UNKNOWN
    assert any("nothing was checked" in notice for notice in run.notices)


def test_a_campaign_without_trials_is_unknown_whatever_it_claims(tmp_path: Path) -> None:
    campaign = campaign_of([], verdict=Verdict.VALID)
    assert load_run(write_run(tmp_path / "run", [], campaign)).verdict is Verdict.UNKNOWN


def test_a_trial_is_never_better_than_its_worst_finding(tmp_path: Path) -> None:
    flattered = msgspec.structs.replace(record_of(6), verdict=Verdict.VALID)
    run = load_run(write_run(tmp_path / "run", [flattered]))
    assert verdict_of(run.listed[0]) is Verdict.INVALID
    assert run.count(Verdict.VALID) == 0


def test_counts_that_disagree_are_reported(run_directory: Path) -> None:
    change(run_directory / "campaign.json", trials=4, valid=2)
    notices = load_run(run_directory).notices
    assert any("counts 4 trials, the trials themselves 3" in notice for notice in notices)


def test_a_planned_fault_without_a_record_counts_as_not_fired() -> None:
    forgotten = msgspec.structs.replace(record_of(2), faults=record_of(2).faults[:1])
    faults = planned_faults(forgotten)
    assert [fault.outcome for fault in faults] == ["fired", "not_fired"]
    assert faults[1].label == "kill worker of flights[1]"
    assert faults[1].trigger == "at 9500 ms"
