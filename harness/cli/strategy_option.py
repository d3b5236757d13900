"""The option ``--strategy`` of the commands that draw plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.draw.search.strategies import StrategyName

StrategyOption = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="uniform|swarm|guided|pct|crossed",
        autocompletion=completion.STRATEGIES,
        help="How plans are drawn. uniform: each by itself; swarm: about half of all features in each; guided: many "
        "like those that reached something new; pct: processes get random priorities in the simulator's schedule; "
        "crossed: each has parts of two profiles. "
        "Default: the campaign file's, else uniform.",
    ),
]


def known_strategy(given: str | None) -> StrategyName | None:
    """Return the strategy of that name; raises UsageProblem if there is none."""
    from barrier_tck.harness.draw.search.strategies import STRATEGIES
    from barrier_tck.harness.support.strict_input import nearest

    if given is None:
        return None
    for name in STRATEGIES:
        if name == given:
            return name
    raise UsageProblem(f"--strategy is {given!r}{nearest(given, STRATEGIES)}")
