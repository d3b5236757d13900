"""How soon each strategy finds planted bugs that it does not know, in trials and in processor seconds.

Plans are drawn from the profiles of the default campaigns. Rows are written as they come, and what has a row already is
not measured again, so a measurement may be interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from barrier_tck.harness.campaign.mutant_hunt import Tried, first_invalid
from barrier_tck.harness.draw.profiles import OF_WORLD
from barrier_tck.harness.draw.search.strategies import StrategyName, new_search
from barrier_tck.harness.reference.bugs.bug_file import PlantedBug
from barrier_tck.harness.reference.bugs.drawn_plans import DrawnPlans
from barrier_tck.harness.reference.bugs.sought_bug import SoughtBug
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_under_test import SystemUnderTest

ROWS = "strategies.jsonl"
"""The file with a row for each hunt."""


class Hunted(msgspec.Struct, frozen=True):
    """One hunt for one bug."""

    id: str
    strategy: StrategyName
    seed: int
    trials_max: int
    found: bool
    """Whether a checker of the bug's clause said INVALID."""
    trials: int
    """How many trials there were, the one that found it included."""
    processor_seconds: float
    """For drawing, running and judging them."""
    unknown: int = 0
    """Trials whose verdict was UNKNOWN."""

    @property
    def same(self) -> tuple[str, str, int, int]:
        """Return what another hunt would have in common with it if it were the same."""
        return self.id, self.strategy, self.seed, self.trials_max


class Row(msgspec.Struct, frozen=True):
    """What one strategy needed for one bug, over all seeds. A miss counts as more than any find."""

    id: str
    strategy: StrategyName
    seeds: int
    found: int
    """With how many of the seeds it was found."""
    trials_median: float | None
    """None: it was missed with half of the seeds or more."""
    processor_seconds_median: float | None


def hunts(
    bugs: Sequence[PlantedBug],
    strategies: Sequence[StrategyName],
    seeds: Sequence[int],
    trials_max: int,
    system: SystemUnderTest,
    directory: Path,
    begins: Callable[[str], None] = lambda _: None,
) -> Iterator[Hunted]:
    """Yield every hunt: those of which the directory has rows, and then the others, whose rows are added there.

    ``begins`` is called with what begins. Raises UsageProblem if the rows cannot be read.
    """
    path = directory / ROWS
    done = {hunted.same: hunted for hunted in measured(directory)}
    for bug in bugs:
        for seed in seeds:
            for strategy in strategies:
                hunted = done.get((bug.id, strategy, seed, trials_max))
                if hunted is None:
                    begins(f"{bug.id}, {strategy}, seed {seed}")
                    hunted = hunt_once(bug, strategy, seed, trials_max, system, directory)
                    with path.open("ab") as file:
                        file.write(msgspec.json.encode(hunted) + b"\n")
                yield hunted


def hunt_once(
    bug: PlantedBug,
    strategy: StrategyName,
    seed: int,
    trials_max: int,
    system: SystemUnderTest,
    directory: Path,
) -> Hunted:
    """Draw plans until one shows the bug."""
    search = new_search(strategy, seed, seed * trials_max)
    sought = SoughtBug(bug, DrawnPlans(OF_WORLD[system.world], system, search), trials_max)
    tried = Tried(directory / f"{bug.id}-{strategy}-{seed}-failed.txt")
    started = time.process_time()
    found = first_invalid(sought, system, directory, None, tried, lambda _: None)
    seconds = time.process_time() - started
    return Hunted(
        bug.id, strategy, seed, trials_max, found is not None, tried.trials, seconds, len(tried.unknown)
    )


def table(found: Sequence[Hunted]) -> tuple[Row, ...]:
    """Return a row for each bug and strategy, in the order of the hunts."""
    groups: dict[tuple[str, StrategyName], list[Hunted]] = {}
    for hunted in found:
        groups.setdefault((hunted.id, hunted.strategy), []).append(hunted)
    return tuple(
        Row(
            name,
            strategy,
            len(group),
            sum(hunted.found for hunted in group),
            _median([hunted.trials if hunted.found else None for hunted in group]),
            _median([hunted.processor_seconds if hunted.found else None for hunted in group]),
        )
        for (name, strategy), group in groups.items()
    )


def _median(values: Sequence[float | None]) -> float | None:
    """Return the median, where None is larger than any number."""
    middle = median([float("inf") if value is None else value for value in values])
    return None if middle == float("inf") else middle


def measured(directory: Path) -> list[Hunted]:
    """Return the rows that a directory has, in their order; raises UsageProblem if they cannot be read."""
    path = directory / ROWS
    if not path.is_file():
        return []
    whole, end, cut_off = path.read_bytes().rpartition(b"\n")
    try:
        rows = [msgspec.json.decode(line, type=Hunted) for line in whole.splitlines()]
    except msgspec.MsgspecError as error:
        raise UsageProblem(f"{path} cannot be read: {error}; name another directory with --out") from error
    if cut_off:  # by a process that was killed while writing
        write_atomically(path, whole + end)
    return rows
