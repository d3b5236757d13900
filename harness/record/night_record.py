"""What one night showed: a line of the history of nights, which the page of the last nights renders."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.record.verdict import Verdict

NIGHT_VERSION = 1


class NightCampaign(msgspec.Struct, frozen=True):
    """One campaign of a night."""

    name: str
    system: str
    seed: int
    verdict: Verdict
    trials: int
    invalid: int
    why_unknown: dict[str, int]
    """How many trials are UNKNOWN, by reason (``record.unknown_trials``)."""
    cells_hit: int
    """Cells of phase and fault in which a fault fired."""
    cells_possible: int
    wall_seconds: float
    interrupted: bool = False
    findings: tuple[str, ...] = ()
    """What only all its trials together show to be missing or wrong, as sentences."""


class NightFinding(msgspec.Struct, frozen=True):
    """What failed in one way, however many trials and campaigns showed it."""

    clause: str
    checker: str
    shape: str
    """What its smallest plan needs."""
    trials: int
    campaigns: tuple[str, ...]
    summary: str
    faults: int
    """Of its smallest plan."""
    plan: str = ""
    """The smallest plan, relative to the page; empty if none was kept."""
    system: str = ""
    """On which that plan failed."""
    failed_runs: int = 1
    """In how many of ``runs`` runs of that plan it was seen."""
    runs: int = 1

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what is the same in every night that shows it."""
        return self.clause, self.checker, self.shape


class NightBug(msgspec.Struct, frozen=True):
    """How soon a planted bug was found."""

    id: str
    world: str
    caught: bool
    trials: int
    seconds: float
    """From the first trial until its smallest plan had shown it again."""


class NightTests(msgspec.Struct, frozen=True):
    """One session of tests."""

    name: str
    tests: int
    failed: tuple[str, ...]
    seconds: float
    tried_again: dict[str, int] = {}
    """Test -> how often it ran, where what it is about did not happen at first."""
    slowest: dict[str, float] = {}
    """The tests that took longest, in seconds."""


class NightRecord(msgspec.Struct, frozen=True):
    """One night."""

    version: int
    night: str
    """When its first campaign or session began, ISO 8601."""
    commit: str
    """Empty: not known."""
    on_version: str
    campaigns: tuple[NightCampaign, ...] = ()
    findings: tuple[NightFinding, ...] = ()
    bugs: tuple[NightBug, ...] = ()
    tests: tuple[NightTests, ...] = ()
    problems: tuple[str, ...] = ()
    """Why it fails, as sentences; none if it passes."""

    @property
    def trials(self) -> int:
        return sum(campaign.trials for campaign in self.campaigns)

    @property
    def wall_seconds(self) -> float:
        """Return how long campaigns, tests and the hunt for planted bugs took together, one after the other."""
        of_campaigns = sum(campaign.wall_seconds for campaign in self.campaigns)
        return (
            of_campaigns
            + sum(session.seconds for session in self.tests)
            + sum(bug.seconds for bug in self.bugs)
        )

    @property
    def verdict(self) -> Verdict:
        """INVALID if something was found or a bug was missed, UNKNOWN if it fails otherwise."""
        wrong = self.findings or any(campaign.invalid for campaign in self.campaigns)
        if wrong or any(not bug.caught for bug in self.bugs) or any(session.failed for session in self.tests):
            return Verdict.INVALID
        return Verdict.UNKNOWN if self.problems or not (self.campaigns or self.tests) else Verdict.VALID
