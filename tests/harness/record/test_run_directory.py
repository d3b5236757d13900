"""Run directories: written whole or not at all, and read with clear errors."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.replay import sources_of
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.record.run_directory import (
    RunDirectory,
    latest_run,
    new_run_path,
)
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from tests.harness.fake_system import TABLE, FakeSystem


@pytest.fixture
def run(tmp_path: Path) -> Path:
    run_campaign(configuration_from({"trials": 2}, "test"), FakeSystem(), tmp_path / "runs" / "a", TABLE)
    return tmp_path / "runs" / "a"


def test_a_kept_trial_has_every_file_and_nothing_half_written(run: Path) -> None:
    names = sorted(path.name for path in (run / "trials" / "00000").iterdir())
    assert names == [
        "faults.jsonl",
        "history.jsonl",
        "metrics.jsonl",
        "outcome.json",
        "plan.json",
        "record.json",
        "trace.txt",
    ]
    assert not list(run.rglob("*.tmp"))


def test_an_atomic_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    with pytest.raises(EnvironmentProblem, match="cannot write"):
        write_atomically(tmp_path / "f", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_an_output_directory_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    system = FakeSystem()
    with pytest.raises(EnvironmentProblem, match="--out"):
        run_campaign(configuration_from({}, "test"), system, tmp_path / "file" / "run", TABLE)
    assert system.runs == 0


def test_a_directory_with_something_in_it_is_not_written_into(run: Path) -> None:
    with pytest.raises(UsageProblem, match="not empty"):
        RunDirectory.create(run)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("{}", "no version"),
        ('{"version": 99}', "newer"),
        ('{"version": 1}', "is not a CampaignRecord"),
    ],
)
def test_a_corrupt_or_newer_campaign_is_named(run: Path, content: str, words: str) -> None:
    (run / "campaign.json").write_text(content)
    with pytest.raises(UsageProblem, match=words) as caught:
        tuple(open_run(run).rows())
    assert "campaign.json" in str(caught.value)


def test_missing_directories_and_records_are_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="does not exist"):
        sources_of(tmp_path / "nowhere")
    with pytest.raises(UsageProblem, match=r"campaign\.json"):
        open_run(run / "trials")
    (run / "trials" / "00000" / "plan.json").unlink()
    with pytest.raises(UsageProblem, match=r"plan\.json does not exist"):
        sources_of(run)


def test_a_half_written_last_line_is_accepted_and_a_broken_one_before_it_is_not(run: Path) -> None:
    lines = (run / "trials.jsonl").read_text().splitlines()
    (run / "trials.jsonl").write_text("\n".join([*lines, lines[0][:20]]))
    assert len(tuple(open_run(run).rows())) == 2
    (run / "trials.jsonl").write_text("\n".join([lines[0][:20], *lines]))
    with pytest.raises(UsageProblem, match="line 1"):
        tuple(open_run(run).rows())


def test_new_runs_get_new_names_and_the_newest_is_found(run: Path) -> None:
    now = datetime(2026, 1, 2, 3, 4, 5)
    first = new_run_path(run.parent, "a b", now)
    assert first.name == "a-b-20260102-030405"
    first.mkdir()
    assert new_run_path(run.parent, "a b", now).name == "a-b-20260102-030405-2"
    assert latest_run(run.parent) == run and latest_run(run) == run


def test_the_record_names_versions(run: Path) -> None:
    record = json.loads((run / "trials" / "00000" / "record.json").read_text())
    assert {"python", "barrier-tck", "hash_seed"} <= set(record["environment"])
