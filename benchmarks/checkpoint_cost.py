"""What checkpoints cost, as a median over pairs of neighbouring runs, with the spread of that median.

A single pair says little on a shared machine. So pairs are run until the median is known closely enough, or until
there are as many as were asked for. How closely it is known is given by an interval between two of the ordered costs,
the sign test's: it needs no assumption about how the costs are distributed.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.measured_runs import Run, Side

WITHOUT_CHECKPOINTS = "_without_checkpoints"
"""What the name of a side ends with whose runs take no checkpoints."""
SPREAD_MAX = 3.0
"""The interval of the median should be narrower than this, in points of percent."""
CONFIDENCE = 0.95
PAIRS_MIN = 6
"""With fewer pairs there is no interval of this confidence."""


def checkpoint_costs(runs: Sequence[Run]) -> list[float]:
    """Return what checkpoints cost in each pair of neighbouring runs, in percent of the rate without them.

    Runs of other sides are passed over. Raises RuntimeError if the runs with and without checkpoints do not come in
    pairs, or if there are none.
    """
    names = ("reference", "reference" + WITHOUT_CHECKPOINTS)
    paired = [done for done in runs if done.side in names]
    costs = []
    for first, second in zip(paired[::2], paired[1::2], strict=False):
        rates = {done.side: done.rows_per_second for done in (first, second)}
        if len(rates) != 2:
            raise RuntimeError(f"two runs of {first.side} follow each other; they must take turns")
        costs.append(100.0 * (1.0 - rates[names[0]] / rates[names[1]]))
    if not costs:
        raise RuntimeError("there is no pair of runs with and without checkpoints")
    return costs


def alternating(pair: tuple[Side, Side]) -> Iterator[tuple[Side, Side]]:
    """Yield the pair without end, every other time the other way round."""
    for number in itertools.count():
        yield pair if number % 2 == 0 else (pair[1], pair[0])


def interval_of_median(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Return the narrowest pair of ordered values that holds the median with this confidence, by the sign test.

    None if there are too few values for it.
    """
    count = len(values)
    outside, below = (1.0 - confidence) / 2.0, 0.0
    rank = 0
    while True:
        below += math.comb(count, rank) / 2.0**count
        if below > outside:
            break
        rank += 1
    if rank == 0:
        return None
    ordered = sorted(values)
    return ordered[rank - 1], ordered[count - rank]


def measured_costs(
    pair: tuple[Side, Side],
    run: Callable[[Side], Run],
    pairs_max: int,
    progress: Callable[[str, float], None],
) -> list[Run]:
    """Run pairs until the interval of the median is narrow enough, or there are ``pairs_max``; return all runs."""
    runs: list[Run] = []
    for number, both in enumerate(alternating(pair)):
        progress(f"pair {number + 1} of at most {pairs_max}", number / pairs_max)
        runs += [run(side) for side in both]
        if number + 1 == pairs_max or _narrow_enough(checkpoint_costs(runs)):
            break
    return runs


def costs_as_json(costs: Sequence[float]) -> dict[str, Any]:
    """Return median, quartiles and interval of the costs, and the costs themselves, all in percent."""
    interval = interval_of_median(costs)
    quartiles = statistics.quantiles(costs, n=4) if len(costs) > 1 else [costs[0]] * 3
    return {
        "checkpoint_cost_percent": round(statistics.median(costs), 2),
        "checkpoint_cost_percent_interval": [round(end, 2) for end in interval] if interval else None,
        "checkpoint_cost_percent_quartiles": [round(quartiles[0], 2), round(quartiles[2], 2)],
        "checkpoint_cost_percent_of_pairs": [round(cost, 2) for cost in costs],
    }


def _narrow_enough(costs: Sequence[float]) -> bool:
    interval = interval_of_median(costs)
    return interval is not None and interval[1] - interval[0] < SPREAD_MAX
