"""``barrier-tck mutants --strategies``: how soon each strategy finds planted bugs that it does not know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from barrier_tck.harness.campaign.phase_progress import PhaseProgress
from barrier_tck.harness.cli.opening import opened, start
from barrier_tck.harness.cli.options import listed
from barrier_tck.harness.cli.printing import VerdictConsole, console_for, emit
from barrier_tck.harness.cli.strategy_option import known_strategy

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.strategy_measurement import Row

SYSTEM_OF_WORLD = {"simulated": "reference-simulated", "spark": "reference-spark"}
"""The system in which planted bugs are run, by world."""
SEEDS_MEASURED = 20
"""With how many seeds each bug is looked for, unless the command line says otherwise."""
TRIALS_MEASURED = 200
"""How many plans are tried with each seed, unless the command line says otherwise."""


@dataclass(frozen=True)
class Measured:
    """What the command line says."""

    only: str | None
    seeds: int
    first_seed: int
    trials: int | None
    strategy: str | None
    """None: each of them."""
    world: str


def measure_strategies(asked: Measured, out: Path, as_json: bool) -> None:
    """Measure, and print a table; rows that are in the directory ``out`` already are taken as they are."""
    from barrier_tck.harness.campaign.mutant_hunt import choose
    from barrier_tck.harness.campaign.strategy_measurement import ROWS, hunts, table
    from barrier_tck.harness.draw.search.strategies import STRATEGIES
    from barrier_tck.harness.reference.bugs.catalogue import bugs_of_runtime

    console = console_for(as_json)
    known = bugs_of_runtime()
    chosen = choose(
        dict(known), [] if asked.only is None else list(listed("--only", asked.only)), asked.world
    )
    named = known_strategy(asked.strategy)
    strategies = list(STRATEGIES) if named is None else [named]
    seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
    trials = TRIALS_MEASURED if asked.trials is None else asked.trials
    out.mkdir(parents=True, exist_ok=True)
    with opened(SYSTEM_OF_WORLD[asked.world]) as system:
        start(system)
        with PhaseProgress(VerdictConsole(stderr=True), "strategies") as progress:
            bugs = [known[bug.id] for bug in chosen]
            found = list(hunts(bugs, strategies, seeds, trials, system, out, progress.show))
    rows = table(found)
    print_table(console, rows, trials)
    console.print(f"rows of all hunts: {out / ROWS}", markup=False)
    summary: dict[str, Any] = {
        "trials_max": trials,
        "seeds": list(seeds),
        "table": msgspec.to_builtins(rows),
        "hunts": msgspec.to_builtins(found),
    }
    emit(as_json, summary)


def print_table(console: Console, rows: Sequence[Row], trials: int) -> None:
    """Print for each bug and strategy how often it was found, and after how many trials and seconds in the median."""
    console.print("| bug | strategy | found | median trials | median processor seconds |", markup=False)
    console.print("|---|---|---|---|---|", markup=False)
    for row in rows:
        median = f"> {trials}" if row.trials_median is None else f"{row.trials_median:g}"
        seconds = "" if row.processor_seconds_median is None else f"{row.processor_seconds_median:.1f}"
        console.print(
            f"| {row.id} | {row.strategy} | {row.found} of {row.seeds} | {median} | {seconds} |", markup=False
        )
