"""Runs of the sides of a benchmark: what each measured, and how long it has to be."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

LEAST_SECONDS, AIMED_SECONDS = 5.0, 8.0
PASSES_MAX = 200
_TRIES = 4


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run."""

    side: str
    rows: int
    """Rows processed: the rows of the input times the passes."""
    seconds: float
    passes: int
    checkpoints: int
    """Completed checkpoints; for Structured Streaming: micro-batches with data, each of which is one."""

    @property
    def rows_per_second(self) -> float:
        """Rows processed per second."""
        return self.rows / self.seconds

    def as_json(self) -> dict[str, Any]:
        """Return the fields, and the rate, in round numbers."""
        return {
            **asdict(self),
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows_per_second),
        }


class Side(Protocol):
    """Something to be measured."""

    @property
    def name(self) -> str:
        """Return what reports call it."""

    def run(self, passes: int) -> Run:
        """Read the input ``passes`` times; raises RuntimeError if the run fails or its output is wrong."""


def long_enough(side: Side, passes: int, passes_max: int = PASSES_MAX) -> Run:
    """Run a side, with more and more passes until a run takes at least five seconds, and return the last run.

    Raises RuntimeError if none does.
    """
    for _ in range(_TRIES):
        done = side.run(passes)
        if done.seconds >= LEAST_SECONDS:
            return done
        passes = max(passes + 1, passes_for(done.rows_per_second, done.rows // done.passes, passes_max))
    raise RuntimeError(f"no run of {side.name} took {LEAST_SECONDS} s; the last one was {done}")


def passes_for(rows_per_second: float, rows: int, passes_max: int = PASSES_MAX) -> int:
    """Return how often an input of ``rows`` rows must be read for a run of the intended length."""
    return min(passes_max, max(1, math.ceil(rows_per_second * AIMED_SECONDS / rows)))


def median_rate(runs: Sequence[Run], side: str) -> float:
    """Return the median of the rates of one side's runs."""
    rates = [done.rows_per_second for done in runs if done.side == side]
    if not rates:
        raise RuntimeError(f"{side} has no run to measure")
    return statistics.median(rates)
