"""Measures again how soon drawn plans show each planted bug, and writes it into the bugs' files:

    python -m tests.measure_drawn_bugs            (about ten minutes of two cores)
    python -m tests.measure_drawn_bugs AB-01 UR-01
    python -m tests.measure_drawn_bugs --profile event-time --plans 40 --processes 1 ET-01 ET-02

With ``--profile`` bugs are measured whose files say nothing of it yet. What was measured is written at once, so that a
run that is ended leaves what it had. The page that lists them is made anew with
``python -m barrier_tck.harness.reference.bugs.page > docs/planted-bugs.md``.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path

from rich.progress import track

from barrier_tck.harness.draw.profiles import PROFILES
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from tests.harness.draw.test_drawn_bugs import PAIRS, SEEDS, WITHIN, plans_until_caught

_FILES = Path(__file__).parents[1] / "harness" / "reference" / "bugs"
_LINE = re.compile(r"(?m)^drawn = .*\n")


def _measured(pair: tuple[str, str], within: int, seeds: int) -> tuple[str, str, list[int]]:
    """Return how many plans it took from each seed, as far as it can still be few enough in the median."""
    profile, bug = pair
    found: list[int] = []
    with tempfile.TemporaryDirectory() as directory:
        for plans in islice(plans_until_caught(bug, profile, Path(directory), within), seeds):
            found.append(plans)
            if sum(number > within for number in found) > seeds // 2:
                break
    return profile, bug, found


def written(text: str, profile: str, plans: list[int]) -> str:
    """Return the text of a bug's file with what was measured, in place of what it said, ahead of the changes."""
    line = f'drawn = {{ profile = "{profile}", median = {round(statistics.median(plans))}, most = {max(plans)} }}\n'
    before, changes, behind = _LINE.sub("", text).partition("\n[[change]]")
    assert changes, text
    return f"{before}{line}{changes}{behind}"


def _write(profile: str, bug: str, plans: list[int]) -> None:
    path = _FILES / f"{bug}.toml"
    path.write_text(written(path.read_text(), profile, plans))


def main() -> int:
    """Measure; return 1 if a bug is not shown within the promised number of plans in the median."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "bug", nargs="*", help="ids of planted bugs; default: all with a profile that must show them"
    )
    parser.add_argument(
        "--profile",
        choices=[one.name for one in PROFILES],
        help="draw from this profile, whatever the files say; then the bugs must be named",
    )
    parser.add_argument(
        "--plans",
        type=int,
        default=WITHIN,
        help="give a seed up after so many plans; a bug whose median is above that is left as it is",
    )
    parser.add_argument("--seeds", type=int, default=len(SEEDS), choices=range(1, len(SEEDS) + 1))
    parser.add_argument("--processes", type=int, help="default: one for each core")
    asked = parser.parse_args()
    pairs = [pair for pair in PAIRS if not asked.bug or pair[1] in asked.bug]
    if asked.profile is not None:
        pairs = [(asked.profile, bug) for bug in asked.bug]
    known = set(planted_bugs()) if asked.profile is not None else {name for _, name in PAIRS}
    if unknown := [bug for bug in asked.bug if bug not in known]:
        parser.error(f"no profile must show {', '.join(unknown)}; planted bugs: {', '.join(planted_bugs())}")
    if not pairs:
        parser.error("--profile needs the ids of planted bugs")
    late = False
    with ProcessPoolExecutor(asked.processes) as processes:
        measured = processes.map(partial(_measured, within=asked.plans, seeds=asked.seeds), pairs)
        for profile, bug, plans in track(measured, "planted bugs", total=len(pairs)):
            sys.stdout.write(f"{bug}: {plans} plans of {profile}\n")
            if statistics.median(plans) > asked.plans:
                late = True
            else:
                _write(profile, bug, plans)
    return int(late)


if __name__ == "__main__":
    sys.exit(main())
