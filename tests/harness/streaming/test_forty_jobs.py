"""Right jobs and wrong ones under drawn trials; grain: real kills (`nightly`).

A right job is VALID in every trial, a wrong one INVALID within thirty.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from barrier_tck.harness import Verdict
from barrier_tck.harness.streaming import stock_job
from barrier_tck.harness.streaming.structured_streaming import StructuredStreaming
from tests.harness.streaming.forty_jobs import (
    _SPARKS_OWN,
    ALL,
    RIGHT,
    WRONG,
    KnownJob,
    main,
    page_of,
    trials,
    until_caught,
)

TRIALS, WITHIN = 10, 30
"""Trials of a right job here; those within which a wrong one is caught."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[StructuredStreaming]:
    with contextlib.closing(StructuredStreaming(stock_job.job)) as system:
        yield system


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("known", RIGHT, ids=lambda known: known.name)
def test_a_right_job_is_valid(cluster: StructuredStreaming, tmp_path: Path, known: KnownJob) -> None:
    for record in trials(cluster, known, range(TRIALS), tmp_path):
        assert record.verdict is Verdict.VALID, record.findings


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("known", WRONG, ids=lambda known: known.name)
def test_a_wrong_job_is_invalid_within_thirty_trials(
    cluster: StructuredStreaming, tmp_path: Path, known: KnownJob
) -> None:
    verdicts = [record.verdict for record in until_caught(trials(cluster, known, range(WITHIN), tmp_path))]
    assert verdicts[-1] is Verdict.INVALID, verdicts


def test_there_are_twenty_of_each_and_each_can_be_found() -> None:
    for jobs in (RIGHT, WRONG):
        assert len({one.address for one in jobs}) == len(jobs) >= 20
    assert len({one.name for one in ALL}) == len(ALL), "lines of a run tell jobs apart by their names"
    for known in ALL:
        assert known.job.address == known.address


def test_the_page_in_docs_is_made_of_the_lines_that_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    main(["page"])
    assert capsys.readouterr().out == Path("docs/forty-jobs.md").read_text()


def test_the_page_tells_in_which_trial_a_wrong_job_was_caught_and_what_became_of_each_right_one() -> None:
    def line(job: str, trial: int, verdict: str, commit: str = "a1") -> dict[str, object]:
        found = {"clause": "SNK-1", "summaries": ["committed-output: 4 duplicated; 12 rows committed"]}
        return {"job": job, "commit": commit, "seed": 0, "trial": trial, "verdict": verdict, **found}

    page = page_of(
        [
            *(line("noted", 0, "valid"), line("noted", 1, "invalid"), line("taken", 0, "unknown")),
            *(line("pairs", 0, "valid"), line("pairs", 1, "unknown")),
            line("pairs", 2, "invalid") | {"summaries": [f"progress: [{_SPARKS_OWN}] is not empty"]},
            line("pairs", 1, "valid", "b2"),
        ]
    )
    assert "7 trials ran: 3 VALID, 2 UNKNOWN, 2 INVALID." in page
    assert "| 2 | 2 | SNK-1 | 4 duplicated |" in page
    assert "| `taken` | a directory that exists is taken for a complete one | in none | 1 | | |" in page
    assert "| `pairs` | inner join | 4 | 2 | 1 | 0 | 1 |" in page
    assert "| `pairs` | 2 | a1 | UNKNOWN | 4 duplicated; 12 rows committed | VALID at b2 |" in page
    assert f"| `pairs` | 3 | a1 | INVALID | [{_SPARKS_OWN}] is not empty | not run again |" in page
    assert "| `taken` | 1 |" not in page, "a wrong job need not be VALID"
