"""A property that a candidate must have: its clauses, and the steps that are played to find a breach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol

from barrier_tck.harness.certify.engine.hunt import Hunt
from barrier_tck.harness.certify.engine.steps import StepT


class Drawn(Protocol[StepT]):
    """How the examples of a property are drawn."""

    def run(self, one: Property[StepT], hunt: Hunt[StepT], seed: int, examples: int) -> None:
        """Play examples until one fails or so many have passed; the hunt holds what they found."""


@dataclass(frozen=True, slots=True)
class Property(Generic[StepT]):
    """One property: steps are drawn for it, or listed, or it is checked in another way, by who has neither."""

    name: str
    level: str
    clauses: tuple[str, ...]
    text: str
    drawn: Drawn[StepT] | None = None
    listed: Callable[[float], tuple[StepT, ...]] | None = None
    """Returns steps to play once, instead of drawn ones; its argument is the scale of the run."""
    examples: int = 20
    capability: str = ""
    """Only candidates that have this capability must have the property; empty if all must."""
    needs: tuple[str, ...] = ()
    """Kinds of steps that at least one example must have had; otherwise nothing was shown."""
    reaches: tuple[tuple[str, int], ...] = ()
    """Situations in which something must have been compared, and how often at least; fewer show too little."""
    only_with: tuple[tuple[str, str], ...] = ()
    """A situation of ``reaches``, and another one without which it cannot come about: if that one was never reached,
    the first is not asked for."""
    layout: str = ""
    """How the candidate is laid out for it; empty if there is one way only."""
