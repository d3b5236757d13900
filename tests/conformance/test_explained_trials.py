"""What a failed conformance test says of its trial; grain: text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.conformance.trials import Trial, explain
from barrier_tck.harness.record.history import End
from tests.reports.synthetic_run import record_of


@pytest.mark.parametrize(
    ("end", "reason", "says"),
    [
        (End.FINISHED, "", "the job finished"),
        (End.FAILED, "too many restarts", "the job failed: too many restarts"),
        (End.STUCK, "", "the job got stuck"),
        (End.ERROR, "no room", "the job could not be run: no room"),
    ],
)
def test_how_the_job_ended_is_a_sentence(end: End, reason: str, says: str) -> None:
    record = msgspec.structs.replace(record_of(0), end=end.value, end_reason=reason)
    unused: Any = None  # neither the history nor the job is explained
    told = explain(Trial(record, unused, Path("plan.json"), unused))
    assert told.splitlines()[0] == f"verdict {record.verdict.value}: {says}"
