"""Measures again how soon drawn plans show each planted bug, and writes it into the bugs' files:

    python -m tests.measure_drawn_bugs            (about ten minutes of two cores)
    python -m tests.measure_drawn_bugs AB-01 UR-01

The page that lists them is made anew with ``python -m barrier_tck.harness.reference.bugs.page > docs/planted-bugs.md``.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rich.progress import track

from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from tests.harness.draw.test_drawn_bugs import PAIRS, WITHIN, plans_until_caught

_FILES = Path(__file__).parents[1] / "harness" / "reference" / "bugs"
_LINE = re.compile(r"(?m)^drawn = .*$")


def _measured(pair: tuple[str, str]) -> tuple[str, str, list[int]]:
    profile, bug = pair
    with tempfile.TemporaryDirectory() as directory:
        return profile, bug, list(plans_until_caught(bug, profile, Path(directory)))


def _write(profile: str, bug: str, plans: list[int]) -> str:
    """Write what was measured into the bug's file, and return it as one line."""
    path = _FILES / f"{bug}.toml"
    line = f'drawn = {{ profile = "{profile}", median = {round(statistics.median(plans))}, most = {max(plans)} }}'
    text, lines = _LINE.subn(line, path.read_text())
    assert lines == 1, path
    path.write_text(text)
    return f"{bug}: {plans} plans of {profile}"


def main() -> int:
    """Measure; return 1 if a bug is no longer shown within the promised number of plans in the median."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "bug", nargs="*", help="ids of planted bugs; default: all with a profile that must show them"
    )
    chosen = parser.parse_args().bug
    if unknown := [bug for bug in chosen if bug not in {name for _, name in PAIRS}]:
        parser.error(f"no profile must show {', '.join(unknown)}; planted bugs: {', '.join(planted_bugs())}")
    pairs = [pair for pair in PAIRS if not chosen or pair[1] in chosen]
    late = False
    with ProcessPoolExecutor() as processes:
        for profile, bug, plans in track(processes.map(_measured, pairs), "planted bugs", total=len(pairs)):
            sys.stdout.write(f"{_write(profile, bug, plans)}\n")
            late |= statistics.median(plans) > WITHIN
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
