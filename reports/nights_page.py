"""The page of the last nights: trials, cells reached, findings, time to each planted bug, durations, flakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from markupsafe import Markup

from barrier_tck.harness.record.night_record import NightCampaign, NightFinding, NightRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.html import page_source, templates
from barrier_tck.reports.wording import duration, plural

NIGHTS_MAX = 30
"""How many nights the page shows, the newest first."""
COLUMNS_MAX = 10
"""How many of them the table of campaigns shows."""


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding of one of the nights."""

    finding: NightFinding
    """As the newest night that shows it has it."""
    first: str
    """The first of the nights shown that shows it."""
    last: str
    nights: int
    is_now: bool
    """Whether the newest night shows it."""


@dataclass(frozen=True, slots=True)
class BugRow:
    """How soon one planted bug was found."""

    id: str
    world: str
    caught: bool
    trials: int
    """In the newest night that hunted it."""
    seconds: float
    median_trials: float
    """Over all nights shown in which it was caught; 0 if in none."""
    most_trials: int
    missed: int
    """In how many nights it was missed."""


@dataclass(frozen=True, slots=True)
class Flake:
    """What went otherwise from one run to the next, without anything being wrong in the runs that passed."""

    name: str
    what: str
    nights: int


@dataclass(frozen=True, slots=True)
class CampaignRow:
    """One campaign in the newest nights."""

    name: str
    system: str
    cells: tuple[NightCampaign | None, ...]
    """The newest night first; None: it did not run."""


def render_nights(nights: Sequence[NightRecord]) -> str:
    """Return the page of the newest nights of a history, which has at least one."""
    shown = sorted(nights, key=lambda night: night.night, reverse=True)[:NIGHTS_MAX]
    newest = shown[0]
    return (
        templates()
        .get_template("nights.html.j2")
        .render(
            nights=shown,
            newest=newest,
            title=_title(newest),
            tiles=_tiles(newest, shown),
            columns=shown[:COLUMNS_MAX],
            campaigns=_campaigns(shown[:COLUMNS_MAX]),
            findings=finding_rows(shown),
            bugs=bug_rows(shown),
            flakes=flakes(shown),
            nothing_happened=_nothing_happened,
            not_judged=_not_judged,
            of_all=lambda night, count: sum(map(count, night.campaigns)),
            flaky=lambda night: len(_flakes_of(night)),
            style=Markup(page_source("page.css")),  # our own file
        )
    )


def _title(newest: NightRecord) -> str:
    if newest.verdict is Verdict.VALID:
        return "The last night passed"
    return f"The last night failed: {plural(len(newest.problems), 'reason')}"


def _tiles(newest: NightRecord, shown: Sequence[NightRecord]) -> tuple[tuple[str, str], ...]:
    caught = sum(bug.caught for bug in newest.bugs)
    hit = sum(campaign.cells_hit for campaign in newest.campaigns)
    possible = sum(campaign.cells_possible for campaign in newest.campaigns)
    return (
        (f"{newest.trials:,}", "trials in the last night"),
        (str(len(newest.campaigns)), "campaigns"),
        (f"{hit:,} / {possible:,}", "combinations tried"),
        (str(len(newest.findings)), "findings"),
        (f"{caught} / {len(newest.bugs)}", "planted bugs caught"),
        (str(len(_flakes_of(newest))), "flakes"),
        (duration(newest.wall_seconds * 1_000), "run time"),
        (f"{sum(night.trials for night in shown):,}", f"trials in {plural(len(shown), 'night')}"),
    )


def _nothing_happened(campaign: NightCampaign) -> int:
    return campaign.why_unknown.get("nothing_happened", 0)


def _not_judged(campaign: NightCampaign) -> int:
    return campaign.why_unknown.get("checker_crashed", 0) + campaign.why_unknown.get("not_run", 0)


def _campaigns(shown: Sequence[NightRecord]) -> tuple[CampaignRow, ...]:
    by_night = [{(one.name, one.system): one for one in night.campaigns} for night in shown]
    names = sorted(dict.fromkeys(key for night in by_night for key in night))
    return tuple(CampaignRow(*key, tuple(night.get(key) for night in by_night)) for key in names)


def finding_rows(shown: Sequence[NightRecord]) -> tuple[FindingRow, ...]:
    """Return each finding of some nights, newest first, once: those of the newest night before all others."""
    seen: dict[tuple[str, str, str], list[tuple[NightRecord, NightFinding]]] = {}
    for night in shown:
        for finding in night.findings:
            seen.setdefault(finding.key, []).append((night, finding))
    return tuple(
        FindingRow(
            found[0][1], found[-1][0].night, found[0][0].night, len(found), is_now=found[0][0] is shown[0]
        )
        for found in seen.values()
    )


def bug_rows(shown: Sequence[NightRecord]) -> tuple[BugRow, ...]:
    """Return how soon each planted bug was found; those that take most trials first, missed ones before them."""
    rows = []
    for name, world in dict.fromkeys((bug.id, bug.world) for night in shown for bug in night.bugs):
        hunted = [bug for night in shown for bug in night.bugs if (bug.id, bug.world) == (name, world)]
        needed = [bug.trials for bug in hunted if bug.caught]
        rows.append(
            BugRow(
                id=name,
                world=world,
                caught=hunted[0].caught,
                trials=hunted[0].trials,
                seconds=hunted[0].seconds,
                median_trials=float(median(needed)) if needed else 0.0,
                most_trials=max(needed, default=0),
                missed=len(hunted) - len(needed),
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.missed, -row.median_trials, row.id, row.world)))


def flakes(shown: Sequence[NightRecord]) -> tuple[Flake, ...]:
    """Return what was flaky in some nights, the most frequent first."""
    counts: dict[tuple[str, str], int] = {}
    for night in shown:
        for found in _flakes_of(night):
            counts[found] = counts.get(found, 0) + 1
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return tuple(Flake(name, what, number) for (name, what), number in ordered)


def _flakes_of(night: NightRecord) -> tuple[tuple[str, str], ...]:
    """Return the flakes of a night: tests that were run again, plans that fail now and then, idle trials."""
    tests = [(name, "a test that ran again") for session in night.tests for name in session.tried_again]
    plans = [
        (f"{one.clause} {one.checker}: {one.shape}", "a smallest plan that failed in some of its runs")
        for one in night.findings
        if one.failed_runs < one.runs
    ]
    nothing = [
        (campaign.name, "a campaign with trials in which nothing happened")
        for campaign in night.campaigns
        if _nothing_happened(campaign)
    ]
    return (*tests, *plans, *nothing)
