"""The example of savepoints and its guide: a job is stopped, and a second one goes on, on Spark in one process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guide" / "savepoints.md").read_text()
EXAMPLE = (ROOT / "examples" / "savepoints" / "totals.py").read_text()
TIMEOUT_S = 300


def test_code_in_the_guide_is_code_of_the_example() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
    assert len(blocks) == 2
    assert all(block in EXAMPLE for block in blocks)


@pytest.mark.spark
@pytest.mark.long
def test_the_example_prints_what_the_guide_shows() -> None:
    shown = re.search(r"```console\n\$ python (-m [^\n]*)\n(.*?)```", GUIDE, re.DOTALL)
    assert shown is not None
    command = [sys.executable, *shown[1].split()]
    finished = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert (finished.returncode, finished.stdout) == (0, shown[2]), finished.stderr[-2_000:]
