"""Twenty right jobs and twenty wrong ones, without late rows, under drawn trials; grain: real kills (`nightly`).

A right job is VALID in every trial, a wrong one INVALID within thirty. ``python -m
tests.harness.streaming.test_forty_jobs`` runs them without pytest, as long as asked for, and prints a table.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import pytest

from barrier_tck.harness import StreamingJob, TrialRecord, Verdict, run_trial
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, SystemSection
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.streaming import stock_job
from barrier_tck.harness.streaming.structured_streaming import StructuredStreaming

STOCK = "barrier_tck.harness.streaming"
HERE = "tests.harness.streaming"
RIGHT = (
    *(f"{STOCK}.driver.stock_jobs:{name}" for name in ("windows", "pairs", "files")),
    *(
        f"{HERE}.unusual_jobs:{name}"
        for name in ("left_outer", "right_outer", "full_outer", "merged", "deleted")
    ),
    *(f"{HERE}.unusual_jobs:{name}" for name in ("load_time_left_out", "within_watermark", "pandas_state")),
    *(f"{HERE}.unusual_jobs:{name}" for name in ("first_rows", "long_windows")),
    *(f"{HERE}.reported_jobs:{name}" for name in ("two_tables", "upserted_windows", "windows_added_once")),
    *(f"{HERE}.reported_jobs:{name}" for name in ("upserted_totals", "nested_windows", "sessions")),
    f"{HERE}.reported_jobs:one_file_a_partition",
)
WRONG = (
    *(f"{HERE}.planted_sinks:{name}" for name in ("appended_rows", "taken", "noted", "remembered")),
    *(f"{HERE}.unusual_jobs:{name}" for name in ("left_outer_appended", "merged_all", "merged_any")),
    *(f"{HERE}.unusual_jobs:{name}" for name in ("deleted_too_late", "load_time_appended")),
    *(f"{HERE}.unusual_jobs:{name}" for name in ("within_watermark_appended", "first_rows_appended")),
    *(f"{HERE}.reported_jobs:{name}" for name in ("errors_logged", "in_background", "without_log")),
    *(
        f"{HERE}.reported_jobs:{name}"
        for name in ("two_tables_asked", "added_windows", "windows_noted_first")
    ),
    *(f"{HERE}.reported_jobs:{name}" for name in ("added_totals", "sessions_appended", "inserted_by_uuid")),
)
TRIALS, WITHIN = 10, 30
"""Trials of a right job here; those within which a wrong one is caught."""


def job_named(address: str) -> StreamingJob:
    module, _, name = address.partition(":")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, StreamingJob)
    return found


def trials(
    system: StructuredStreaming, address: str, number: int, directory: Path, seed: int = 0
) -> Iterator[TrialRecord]:
    """Yield the records of trials that are drawn for a job, on a cluster that is kept from job to job."""
    system._job = job_named(address)
    own_seed = 100 * seed + (*RIGHT, *WRONG).index(address)
    configuration = CampaignConfiguration(system=SystemSection(address), seed=own_seed, trials=number)
    for trial, plan in enumerate(islice(campaign_plans(configuration, system), number)):
        place = directory / f"{address.partition(':')[2]}-{trial}"
        place.mkdir()
        yield run_trial(plan, system, place)


@pytest.fixture(scope="module")
def cluster() -> Iterator[StructuredStreaming]:
    with contextlib.closing(StructuredStreaming(stock_job.job)) as system:
        yield system


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("address", RIGHT)
def test_a_right_job_is_valid(cluster: StructuredStreaming, tmp_path: Path, address: str) -> None:
    for record in trials(cluster, address, TRIALS, tmp_path):
        assert record.verdict is Verdict.VALID, record.findings


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize("address", WRONG)
def test_a_wrong_job_is_invalid_within_thirty_trials(
    cluster: StructuredStreaming, tmp_path: Path, address: str
) -> None:
    verdicts = [
        record.verdict for record in islice(until_caught(trials(cluster, address, WITHIN, tmp_path)), WITHIN)
    ]
    assert verdicts[-1] is Verdict.INVALID, verdicts


def test_there_are_twenty_of_each_and_each_can_be_found() -> None:
    for addresses in (RIGHT, WRONG):
        assert len(set(addresses)) == 20
        for address in addresses:
            assert job_named(address).address == address


def until_caught(records: Iterator[TrialRecord]) -> Iterator[TrialRecord]:
    """Yield records until one is INVALID, that one included."""
    for record in records:
        yield record
        if record.verdict is Verdict.INVALID:
            return


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the jobs in turn, and print what each trial of each said."""
    parser = argparse.ArgumentParser(description="Drawn trials of twenty right jobs and twenty wrong ones.")
    parser.add_argument("--right", type=int, default=TRIALS, help="trials of each right job")
    parser.add_argument("--wrong", type=int, default=WITHIN, help="the most trials of each wrong job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="jobs whose address contains this")
    options = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory() as directory,
        contextlib.closing(StructuredStreaming(stock_job.job)) as system,
    ):
        for kind, addresses, number in (("wrong", WRONG, options.wrong), ("right", RIGHT, options.right)):
            for address in addresses:
                if options.only not in address or not number:
                    continue
                began, letters = time.monotonic(), ""
                records = trials(system, address, number, Path(directory), options.seed)
                for record in until_caught(records) if kind == "wrong" else records:
                    letters += {"valid": "v", "invalid": "I", "unknown": "?"}[record.verdict.value]
                    unusual = Verdict.UNKNOWN if kind == "wrong" else Verdict.VALID
                    if record.verdict is not unusual and record.verdict is not Verdict.VALID:
                        for finding in record.findings:
                            if finding.verdict is not Verdict.VALID:
                                print(f"  {finding.checker}: {finding.summary} {finding.examples[:3]}")
                seconds = time.monotonic() - began
                print(f"{kind} {address.rpartition('.')[2]}: {letters} ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
