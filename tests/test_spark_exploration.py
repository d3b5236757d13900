"""The exploration of CI ends with its campaign; grain: a process and its child, in virtual time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import eventually

ROOT = Path(__file__).parents[1]
SIMULATED = """
import sys
from tests import spark_exploration
spark_exploration.CAMPAIGN = spark_exploration.ROOT / "campaigns" / "graphs.toml"
sys.exit(spark_exploration.main(sys.argv[1:]))
"""
"""The exploration with a campaign that needs no cluster."""


def children_of(process: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except FileNotFoundError:
        return []


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc to find children in")
def test_a_terminated_exploration_ends_its_campaign_and_tells_what_it_saw(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SIMULATED, "--trials", "100000", "--out", str(tmp_path)]
    log = tmp_path / "log"
    with (
        log.open("wb") as written,
        subprocess.Popen(command, cwd=ROOT, stdout=written, stderr=written) as exploration,
    ):
        eventually("some trials ran", lambda: log.read_text().lower().count("valid") >= 3)
        (campaign,) = children_of(exploration.pid)
        exploration.send_signal(signal.SIGTERM)
        assert exploration.wait() == 1, log.read_text()
    assert not alive(campaign)
    assert "exploration: the campaign was interrupted; run it again" in log.read_text()
