"""Makes a page of a measurement: how soon each strategy of drawing finds planted bugs that it does not know.

``barrier-tck mutants --strategies --out DIR`` measures, and
``python -m barrier_tck.harness.cli.strategies_page DIR > docs/strategies.md`` makes the page of its rows. Only bugs are
shown that every strategy was given the same seeds for, so a measurement may be interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from barrier_tck.harness.campaign.strategy_measurement import Hunted, Row, measured, table
from barrier_tck.harness.draw.search.strategies import STRATEGIES, StrategyName
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.reports.wording import plural

USUAL: StrategyName = "uniform"
"""The strategy with which the others are compared."""
SLOWEST = 12
"""How many bugs are named that take longest."""

_HEAD = """\
# How soon each strategy finds planted bugs

For each planted bug, plans are drawn from the profiles of the default campaigns until a checker of its clause says
INVALID. A strategy knows nothing of the bug, and its own plan is not used.
[Strategies of drawing](guide/search.md) says what each of them does.

<!-- Generated: barrier-tck mutants --strategies --out measured
     python -m barrier_tck.harness.cli.strategies_page measured > docs/strategies.md -->
"""


@dataclass(frozen=True)
class BugMeasured:
    """What all strategies needed for one bug, with the same seeds."""

    id: str
    rows: Mapping[StrategyName, Row]
    seconds: Mapping[StrategyName, float]
    """Strategy -> processor seconds in the mean; a hunt that found nothing counts with what it took."""


def measured_bugs(found: Sequence[Hunted]) -> tuple[tuple[BugMeasured, ...], int, int]:
    """Return the bugs that were measured whole, with how many seeds, and how many trials a hunt had at the most.

    The seeds are those with which every strategy has looked for the most bugs, counted for each seed. Raises
    UsageProblem if there are none, or if hunts had different numbers of trials.
    """
    if not found:
        raise UsageProblem("nothing was measured there yet")
    limits = sorted({hunted.trials_max for hunted in found})
    if len(limits) != 1:
        raise UsageProblem(
            f"the hunts must all have the same number of trials at the most, and have {limits}"
        )
    of_bug: dict[str, dict[int, dict[StrategyName, Hunted]]] = {}
    for hunted in found:
        of_bug.setdefault(hunted.id, {}).setdefault(hunted.seed, {})[hunted.strategy] = hunted
    whole = {
        name: {seed: hunts for seed, hunts in seeds.items() if len(hunts) == len(STRATEGIES)}
        for name, seeds in of_bug.items()
    }
    known = sorted({frozenset(hunts) for hunts in whole.values()}, key=sorted)
    seeds = max(
        known,
        key=lambda some: len(some) * sum(some <= hunts.keys() for hunts in whole.values()),
        default=None,
    )
    if not seeds:
        raise UsageProblem("no bug was looked for by every strategy with the same seed yet")
    chosen = {name: hunts for name, hunts in whole.items() if seeds <= hunts.keys()}
    bugs = tuple(
        _bug(name, [hunts[seed][strategy] for seed in sorted(seeds) for strategy in STRATEGIES])
        for name, hunts in sorted(chosen.items())
    )
    return bugs, len(seeds), limits[0]


def _bug(name: str, found: Sequence[Hunted]) -> BugMeasured:
    seconds: dict[StrategyName, list[float]] = {}
    for hunted in found:
        seconds.setdefault(hunted.strategy, []).append(hunted.processor_seconds)
    rows = {row.strategy: row for row in table(found)}
    return BugMeasured(name, rows, {strategy: mean(each) for strategy, each in seconds.items()})


def page(found: Sequence[Hunted]) -> str:
    """Return the page."""
    bugs, seeds, trials = measured_bugs(found)
    slowest = sorted(bugs, key=lambda bug: -bug.seconds[USUAL])
    quarter = slowest[: max(1, len(bugs) // 4)]
    how = (
        f"{plural(len(bugs), 'bug')}, each with {plural(seeds, 'seed')}, at most {trials} trials for each seed. "
        "Seconds are of a processor, for drawing, running and judging; a hunt that found nothing counts with all that "
        "it took.\n"
    )
    parts = [
        _HEAD,
        how,
        "## In short\n",
        *_in_short(bugs, quarter),
        f"\nThe slowest quarter are the {len(quarter)} bugs that `{USUAL}` needs most seconds for.\n",
        f"## The {min(SLOWEST, len(bugs))} that `{USUAL}` needs longest for\n",
        _named(slowest[:SLOWEST], trials),
        "\n## Missed\n",
        *_missed(bugs, seeds),
        "\n## Every bug\n",
        "Found with how many of the seeds, after how many trials and seconds in the median.\n",
        _named(bugs, trials),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def _in_short(bugs: Sequence[BugMeasured], quarter: Sequence[BugMeasured]) -> Iterator[str]:
    yield (
        "| strategy | hunts that found their bug | seconds for a bug, in the median | seconds for the slowest quarter "
        f"| `{USUAL}` takes so many times as long there |"
    )
    yield "|---|---|---|---|---|"
    usual = sum(bug.seconds[USUAL] for bug in quarter)
    for strategy in STRATEGIES:
        rows = [bug.rows[strategy] for bug in bugs]
        seconds = sorted(bug.seconds[strategy] for bug in bugs)
        of_quarter = sum(bug.seconds[strategy] for bug in quarter)
        share = f"{sum(row.found for row in rows)} of {sum(row.seeds for row in rows)}"
        ratio = f"{usual / of_quarter:.1f}" if of_quarter else ""
        yield f"| `{strategy}` | {share} | {seconds[len(seconds) // 2]:.2f} | {of_quarter:.0f} | {ratio} |"


def _named(bugs: Iterable[BugMeasured], trials: int) -> str:
    lines = [
        f"| bug | {' | '.join(f'`{strategy}`' for strategy in STRATEGIES)} |",
        f"|---|{'---|' * len(STRATEGIES)}",
    ]
    lines += [
        f"| {bug.id} | {' | '.join(_cell(bug.rows[strategy], trials) for strategy in STRATEGIES)} |"
        for bug in bugs
    ]
    return "\n".join(lines)


def _cell(row: Row, trials: int) -> str:
    found = f"{row.found} of {row.seeds}"
    if row.trials_median is None or row.processor_seconds_median is None:
        return f"{found}, > {trials}"
    return f"{found}, {row.trials_median:g}, {row.processor_seconds_median:.1f} s"


def _missed(bugs: Sequence[BugMeasured], seeds: int) -> Iterator[str]:
    for strategy in STRATEGIES:
        never = [bug.id for bug in bugs if not bug.rows[strategy].found]
        often = [bug.id for bug in bugs if 0 < bug.rows[strategy].found <= seeds // 2]
        by_half = f"with half of them or more: {', '.join(often) or 'none'}"
        yield f"- `{strategy}`, with every seed: {', '.join(never) or 'none'}; {by_half}."


def main() -> None:
    """Write the page to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="what --out of barrier-tck mutants --strategies was")
    try:
        sys.stdout.write(page(measured(parser.parse_args().directory)))
    except UsageProblem as problem:
        parser.error(str(problem))


if __name__ == "__main__":
    main()
