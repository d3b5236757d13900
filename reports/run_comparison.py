"""Two runs side by side: what differs in how they were run, and in what they showed, as a page and as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from barrier_tck.harness.record.records import FindingGroup
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.reports.html import flattened, page_source, templates
from barrier_tck.reports.loading import ReportedRun
from barrier_tck.reports.run_totals import verdict_of
from barrier_tck.reports.wording import duration, fault_name, known

TRIALS_MAX = 50
"""How many trials with another verdict a comparison lists."""


@dataclass(frozen=True, slots=True)
class Line:
    """One fact of both runs."""

    name: str
    one: str
    other: str

    @property
    def differs(self) -> bool:
        return self.one != self.other


@dataclass(frozen=True, slots=True)
class OtherVerdict:
    """A trial of the same plan that has another verdict in the other run."""

    trial: int
    one: Verdict
    other: Verdict


@dataclass(frozen=True, slots=True)
class RunComparison:
    """What two runs have in common, and what not."""

    names: tuple[str, str]
    facts: tuple[Line, ...]
    configuration: tuple[Line, ...]
    """Values of the campaign file that differ."""
    clauses: tuple[Line, ...]
    """Clauses whose verdict differs."""
    cells: tuple[tuple[str, ...], tuple[str, ...]]
    """Cells of phase and fault that only the first run hit, and those that only the second hit."""
    findings: tuple[tuple[FindingGroup, ...], tuple[FindingGroup, ...], tuple[FindingGroup, ...]]
    """Findings of the first run alone, of both, of the second alone."""
    same_plans: int
    """Trials that have the same number and seed in both."""
    same_steps: int
    """Those of them that took the same steps, by the digest of their trace."""
    other_verdicts: tuple[OtherVerdict, ...]
    """Those of them whose verdict differs, by number."""


def compared(one: ReportedRun, other: ReportedRun) -> RunComparison:
    """Compare two runs, each in its own words: runs of other campaigns and systems have less in common."""
    mine, theirs = one.phases, other.phases
    pairs = _same_plans(one, other)
    keyed = [{_key(group): group for group in run.campaign.groups} for run in (one, other)]
    return RunComparison(
        names=(one.directory.name, other.directory.name),
        facts=tuple(
            Line(name, left, right)
            for (name, left), (_, right) in zip(
                _facts(one, len(mine.hit), mine.possible),
                _facts(other, len(theirs.hit), theirs.possible),
                strict=True,
            )
        ),
        configuration=_differing(
            dict(flattened(one.campaign.configuration)), dict(flattened(other.campaign.configuration))
        ),
        clauses=_differing(_verdicts(one), _verdicts(other)),
        cells=(
            tuple(_cell_name(cell) for cell in mine.hit if cell not in theirs.hit),
            tuple(_cell_name(cell) for cell in theirs.hit if cell not in mine.hit),
        ),
        findings=(
            tuple(group for key, group in keyed[0].items() if key not in keyed[1]),
            tuple(group for key, group in keyed[0].items() if key in keyed[1]),
            tuple(group for key, group in keyed[1].items() if key not in keyed[0]),
        ),
        same_plans=len(pairs),
        same_steps=sum(digests for _, digests in pairs),
        other_verdicts=tuple(entry for entry, _ in pairs if entry.one is not entry.other),
    )


def _same_plans(one: ReportedRun, other: ReportedRun) -> list[tuple[OtherVerdict, bool]]:
    """Return the trials with the same number and seed, with both verdicts, and whether they took the same steps."""
    if (one.campaign.name, one.campaign.seed) != (other.campaign.name, other.campaign.seed):
        return []
    there = {(trial.trial, trial.seed): (verdict_of(trial), trial.trace_digest) for trial in other.rows()}
    pairs = []
    for trial in one.rows():
        twin = there.get((trial.trial, trial.seed))
        if twin is not None:
            verdict, digest = twin
            same_steps = digest is not None and digest == trial.trace_digest
            pairs.append((OtherVerdict(trial.trial, verdict_of(trial), verdict), same_steps))
    return sorted(pairs, key=lambda pair: pair[0].trial)


def _key(group: FindingGroup) -> tuple[str, str, str]:
    return group.clause, group.checker, group.shape


def _cell_name(cell: tuple[str, str]) -> str:
    phase, kind = cell
    return f"{fault_name(kind)} in {phase.replace('_', ' ')}"


def _verdicts(run: ReportedRun) -> dict[str, str]:
    return {row.clause: row.verdict.value for row in run.clauses}


def _differing(one: dict[str, str], other: dict[str, str]) -> tuple[Line, ...]:
    names = dict.fromkeys((*one, *other))
    lines = (Line(name, one.get(name, "–"), other.get(name, "–")) for name in names)
    return tuple(line for line in lines if line.differs)


def _facts(run: ReportedRun, hit: int, possible: int) -> Iterator[tuple[str, str]]:
    """Yield what is worth comparing in any two runs."""
    campaign = run.campaign
    yield "campaign", campaign.name
    yield "system", campaign.system
    yield "seed", str(campaign.seed)
    yield "started", campaign.started_at[:19].replace("T", " ")
    for name in ("barrier-tck", "python", "pyspark"):
        yield name, campaign.environment.get(name, "–")
    yield "verdict", run.verdict.value + (", interrupted" if campaign.interrupted else "")
    yield "trials", f"{run.totals.trials:,}"
    for verdict in Verdict:
        yield verdict.value, f"{run.count(verdict):,}"
    why = run.why_unknown
    yield "not judged", str(why["checker_crashed"] + why["not_run"])
    yield "findings", str(len(campaign.groups))
    yield "faults fired", f"{run.totals.faults_fired:,}"
    yield "recoveries", known(run.recoveries)
    yield "combinations tried", f"{hit} / {possible}"
    yield "took", duration(campaign.wall_seconds * 1_000)
    minutes = campaign.wall_seconds / 60
    yield "trials per minute", f"{run.totals.trials / minutes:,.1f}" if minutes else "–"


def comparison_object(comparison: RunComparison) -> dict[str, Any]:
    """Return a comparison as JSON-compatible values."""

    def lines(of: tuple[Line, ...]) -> dict[str, list[str]]:
        return {line.name: [line.one, line.other] for line in of}

    def groups(of: tuple[FindingGroup, ...]) -> list[dict[str, Any]]:
        return [
            {"clause": group.clause, "checker": group.checker, "shape": group.shape, "trials": group.trials}
            for group in of
        ]

    only_one, both, only_other = map(groups, comparison.findings)
    return {
        "runs": list(comparison.names),
        "facts": lines(comparison.facts),
        "configuration": lines(comparison.configuration),
        "clauses": lines(comparison.clauses),
        "cells": [list(cells) for cells in comparison.cells],
        "findings": {"first": only_one, "both": both, "second": only_other},
        "same_plans": comparison.same_plans,
        "same_steps": comparison.same_steps,
        "other_verdicts": [
            {"trial": entry.trial, "verdicts": [entry.one.value, entry.other.value]}
            for entry in comparison.other_verdicts
        ],
    }


def page_name(one: Path, other: Path) -> str:
    """Return the file of a comparison, below the directory of the index."""
    return f"compared/{one.name}--{other.name}.html"


def render_comparison(comparison: RunComparison) -> str:
    """Return the page."""
    return (
        templates()
        .get_template("comparison.html.j2")
        .render(
            comparison=comparison,
            trials_max=TRIALS_MAX,
            style=Markup(page_source("page.css")),  # our own file
        )
    )
