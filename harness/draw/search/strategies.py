"""Every strategy by its name."""

from __future__ import annotations

from typing import Literal

from barrier_tck.harness.draw.search.crossed import Crossed
from barrier_tck.harness.draw.search.guided import Guided
from barrier_tck.harness.draw.search.pct import Priorities
from barrier_tck.harness.draw.search.search import Search, Uniform
from barrier_tck.harness.draw.search.swarm import Swarm

StrategyName = Literal["uniform", "swarm", "guided", "pct", "crossed"]

STRATEGIES: dict[StrategyName, str] = {
    "uniform": "each plan by itself, with the probabilities of its profile",
    "swarm": "in each plan only about half of the scenarios, kinds of faults, and other choices of its profile",
    "guided": "many plans nearly like earlier ones whose trials reached something new",
    "pct": "each plan by itself; in its schedule, processes have priorities that change a few times (simulator only)",
    "crossed": "each plan has parts of its profile and of another one",
}
"""Name -> how plans are drawn."""


def new_search(strategy: StrategyName, seed: int, first_seed: int) -> Search:
    """Return a strategy that begins anew. ``first_seed``: from which uniform drawing counts its plans' seeds."""
    match strategy:
        case "uniform":
            return Uniform(first_seed)
        case "swarm":
            return Swarm(seed)
        case "guided":
            return Guided(seed)
        case "pct":
            return Priorities(seed)
        case "crossed":
            return Crossed(seed)
