"""What a campaign must see at least once: a checker says it, with a name, a condition on a trial, and two sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp, lgamma, log, log1p

from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding

BY_CHANCE = 1e-4
"""In which share of all campaigns something may be missed by mere chance."""

Sightings = Mapping[str, int]
"""What a trial was to show -> how often it did."""


@dataclass(frozen=True)
class Sometimes:
    """Something that must happen now and then where it can, or a campaign has not tested it.

    Sentences are format strings, and name counts of the campaign's finding: ``{trials}``, and those in ``things``.
    """

    name: str
    """The name of the campaign's finding, for instance ``sometimes-duplicates``."""
    clauses: tuple[str, ...]
    """What it covers; if the findings of trials cover some of these only, then for those."""
    seen: Callable[[Finding, TrialSummary], Sightings | None]
    """Return, from a finding of a checker that lists this, what the trial showed; None if it had nothing to show."""
    shown: str
    """The summary if all was seen."""
    not_shown: str
    """The summary, with what to do, if it was not. It may name what was ``{missed}``, and the ``{first}`` of that."""
    things: Mapping[str, str] = field(default_factory=dict)
    """What is to be seen -> the name of the count of trials that saw it, for instance ``duplicates`` ->
    ``with_duplicates``; if both names are the same, only trials are counted. If it is empty, trials name their own
    cases, and the counts are how many ``cells`` there were, and how many of them were ``met``."""
    trials_min: int = 1
    """With fewer trials that had something to show, a campaign owes nothing."""
    usual: float | None = None
    """The share of the trials in which each thing is seen, at the least, in what campaigns draw. It is missed if it was
    seen so seldom that this happens by chance in BY_CHANCE of all campaigns. None: if it was not seen at all."""

    def is_missed(self, seen_in: int, trials: int) -> bool:
        """Return whether a thing was seen in too few of the trials that had something to show."""
        if self.usual is None:
            return seen_in == 0
        if seen_in >= self.usual * trials:
            return False
        rarer = sum(_probability(seen, trials, self.usual) for seen in range(seen_in + 1))
        return rarer < BY_CHANCE


def _probability(seen: int, trials: int, share: float) -> float:
    """Return the probability that a thing that has this share is seen in exactly so many trials."""
    ways = lgamma(trials + 1) - lgamma(seen + 1) - lgamma(trials - seen + 1)
    return exp(ways + seen * log(share) + (trials - seen) * log1p(-share))


def counted(thing: str, count: str | None = None) -> Callable[[Finding, TrialSummary], Sightings | None]:
    """Return the condition that a checker has counted a thing; ``count`` is the name of its count, if it is another."""
    name = thing if count is None else count

    def seen(finding: Finding, _: TrialSummary) -> Sightings | None:
        return {thing: finding.counts[name]} if name in finding.counts else None

    return seen
