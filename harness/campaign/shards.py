"""A part of a campaign: of each n trials one, so that n machines that know nothing of each other run the whole.

Shard i of n has the trials j with j mod n = i - 1, with the numbers and plans that they have in the whole campaign.
``joining`` puts the run directories of all shards together.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from barrier_tck.harness.campaign.budget import Budget
from barrier_tck.harness.campaign.configuration import CampaignConfiguration
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.third_party import shown

SHARDS_MAX = 10_000

_WRITTEN = re.compile(r"([1-9]\d{0,8})/([1-9]\d{0,8})")


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``of`` parts; ``index`` is from 1."""

    index: int = 1
    of: int = 1

    @property
    def is_part(self) -> bool:
        """Whether there are others."""
        return self.of > 1

    def owns(self, number: int) -> bool:
        """Return whether a trial of the whole campaign is in this part."""
        return number % self.of == self.index - 1

    def number(self, place: int) -> int:
        """Return the number of the trial that has this place, from 0, in this part."""
        return self.index - 1 + place * self.of

    def places(self, trials: int) -> int:
        """Return how many of the first trials of the whole campaign are in this part."""
        return len(range(self.index - 1, trials, self.of))

    def budget(self, whole: Budget) -> Budget:
        """Return how much of the campaign's budget this part has; a time is the same for each."""
        return whole if whole.trials is None or not self.is_part else Budget(self.places(whole.trials))

    def __str__(self) -> str:
        return f"{self.index}/{self.of}"


WHOLE = Shard()


def shard_of(text: str, source: str) -> Shard:
    """Return the shard that is written as ``i/n``, the whole campaign if nothing is; raises UsageProblem."""
    if not text:
        return WHOLE
    written = _WRITTEN.fullmatch(text)
    index, of = (int(written[1]), int(written[2])) if written else (0, 0)
    if not 1 <= index <= of <= SHARDS_MAX:
        raise UsageProblem(f"{source} is {shown(text)}; write which shard of how many, for instance 2/5")
    return Shard(index, of)


def require_shardable(shard: Shard, configuration: CampaignConfiguration) -> None:
    """Raise UsageProblem if the parts of a campaign would not be those of one campaign."""
    if not shard.is_part:
        return
    if configuration.seed is None:
        raise UsageProblem(f"--shard {shard}: all shards need the same seed; give one with --seed")
    if configuration.fail_fast:
        raise UsageProblem(
            f"--shard {shard}: a shard cannot know when another one fails; leave fail_fast out"
        )
    require_told_nothing(configuration, f"--shard {shard}")
    trials = configuration.budget_of_trials().trials
    if trials is None:
        raise UsageProblem(
            f"--shard {shard}: a budget of time gives each shard another number of trials; give --trials"
        )
    if not shard.places(trials):
        raise UsageProblem(f"--shard {shard}: of {trials} trials this shard has none; take fewer shards")


def require_told_nothing(configuration: CampaignConfiguration, option: str) -> None:
    """Raise UsageProblem if the campaign's plans follow from results of earlier trials, which a shard does not have."""
    if configuration.draws and configuration.strategy == "guided":
        raise UsageProblem(
            f"{option}: the strategy 'guided' draws plans by what all trials before reached, which only one process "
            "knows; choose uniform or swarm, or run more processes with --jobs"
        )
