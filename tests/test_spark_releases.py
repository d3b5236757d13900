"""The page of releases: made of the lines that runs leave, and nothing else."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.harness.cluster import spark_releases
from barrier_tck.harness.support.errors import EnvironmentProblem
from tests import tox_file
from tests.spark_releases import LINES, TRYINGS, line_of, main, newest, page_of, read_lines

ROOT = Path(__file__).resolve().parents[1]
BY_NAME = {trying.name: trying for trying in TRYINGS}
CERTIFICATE: dict[str, Any] = {
    "outcomes": [
        {"name": "versions-are-exact", "status": "passed", "reason": ""},
        {"name": "killed-anywhere", "status": "failed", "reason": "version 3 has 2 rows"},
        {"name": "families-stay-apart", "status": "skipped", "reason": "it has one family"},
    ],
    "verdict": "refused",
    "level": "contract",
    "environment": {"pyspark": "4.0.5"},
    "seconds": 81.6,
    "seed": 7,
    "started_at": "2026-12-01T10:00:00+00:00",
}
CAMPAIGN: dict[str, Any] = {
    "verdict": "invalid",
    "valid": 17,
    "unknown": 0,
    "invalid": 1,
    "findings": [{"checker": "progress", "summary": "the query never starts again"}],
    "notices": [],
    "environment": {"pyspark": "3.5.9"},
    "wall_seconds": 301.2,
    "seed": 9,
    "started_at": "2026-12-02T10:00:00+00:00",
}


def test_a_run_is_kept_with_what_it_found_and_what_it_could_not_check() -> None:
    line = line_of(BY_NAME["certify spark:rocksdb"], CERTIFICATE, "abc")
    assert (line["release"], line["verdict"], line["seconds"]) == ("4.0.5", "refused", 82)
    assert line["counts"] == {"passed": 1, "failed": 1, "skipped": 1}
    assert line["found"] == ["killed-anywhere: version 3 has 2 rows"]
    assert line["lacks"] == ["it has one family"]
    line = line_of(BY_NAME["structured_streaming"], CAMPAIGN, "abc")
    assert line["counts"] == {"valid": 17, "unknown": 0, "invalid": 1}
    assert line["found"] == ["progress: the query never starts again"]


def test_the_page_has_the_last_run_of_each_release_and_says_what_was_not_run() -> None:
    lines = [
        line_of(BY_NAME["certify spark:rocksdb"], {**CERTIFICATE, "verdict": "certified"}, "old"),
        line_of(BY_NAME["certify spark:rocksdb"], CERTIFICATE, "new"),
        line_of(BY_NAME["structured_streaming"], CAMPAIGN, "new"),
    ]
    page = page_of(lines)
    assert "| 3.5.9 | 4.0.5 |" in page
    assert "| refused (1 passed, 1 failed, 1 skipped) |" in page
    assert "| INVALID (17 valid, 1 invalid) | not run |" in page
    assert "| not supported | not run |" in page, "the reference runtime"
    assert "- 3.5.9, `structured_streaming`: progress: the query never starts again" in page
    assert "old" not in page
    assert len(newest(lines)) == 2


def test_the_page_in_the_repository_is_that_of_the_lines_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["page"]) == 0
    assert (ROOT / "docs" / "releases.md").read_text() == capsys.readouterr().out
    assert LINES.read_text().splitlines() == [json.dumps(line) for line in read_lines()]


def test_each_release_that_is_called_tested_has_an_environment_and_was_run() -> None:
    section = tox_file.environments()["spark35"]
    pinned = tox_file.read()[section]["deps"].split()
    assert [pin.partition("==")[2] for pin in pinned if "==" in pin] == list(spark_releases.TESTED)
    run = {(line["release"], line["tried"]) for line in read_lines()}
    assert {release for release, _ in run} == set(spark_releases.TESTED)


@pytest.mark.parametrize(("release", "whole"), [("3.5.9", False), ("4.0.0", True), ("4.3.0", True)])
def test_the_reference_runtime_and_the_source_of_state_need_spark_4(
    release: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: release)
    assert spark_releases.reads_state() is whole
    if whole:
        spark_releases.check_reference()
    else:
        with pytest.raises(EnvironmentProblem, match=r"runs on Spark 4\.0 and newer; PySpark 3\.5\.9"):
            spark_releases.check_reference()
