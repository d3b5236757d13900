"""The example of a job in event time runs as a user would run it, and gives what its records give."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.test_tidy import ROOT


@pytest.mark.spark
@pytest.mark.long
def test_the_example_gives_hours_and_what_came_too_late() -> None:
    command = [sys.executable, "-m", "examples.event_time.departures"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr[-2_000:]
    assert finished.stdout.splitlines() == [
        "hour 0: AA 2",
        "hour 0: AA 3, again (1)",
        "hour 0: UA 1",
        "hour 1: UA 1",
        "hour 2: AA 1",
        "hour 2: UA 1",
        "too late: AA of minute 40",
    ]
