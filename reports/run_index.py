"""An index over run directories, newest first, as a page and as data. Trials are read one by one and never kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from barrier_tck.harness.record.hit_cells import HitCells, hit_cells
from barrier_tck.harness.record.records import CampaignRecord, TrialSummary
from barrier_tck.harness.record.run_reader import RunDirectoryError, read_campaign, stored_trials
from barrier_tck.harness.record.unknown_trials import counted, why_unknown
from barrier_tck.reports.html import page_source, templates


@dataclass(frozen=True, slots=True)
class IndexedRun:
    """A run directory, as its line of the index shows it."""

    name: str
    """Its path below the directory of the index."""
    campaign: CampaignRecord
    cells: HitCells
    why_unknown: dict[str, int]
    report: str
    """Its page, relative to the index; empty if there is none."""

    @property
    def not_judged(self) -> int:
        """Return how many trials are UNKNOWN because a checker crashed or they could not be run."""
        return self.why_unknown["checker_crashed"] + self.why_unknown["not_run"]


@dataclass(frozen=True, slots=True)
class Index:
    """All run directories below a directory."""

    runs: tuple[IndexedRun, ...]
    """The newest first."""
    unreadable: tuple[str, ...]
    """Why others cannot be shown."""

    def pairs(self) -> tuple[tuple[IndexedRun, IndexedRun], ...]:
        """Return the newest run of each campaign and system, behind the one before it."""
        by_name: dict[tuple[str, str], list[IndexedRun]] = {}
        for run in self.runs:
            by_name.setdefault((run.campaign.name, run.campaign.system), []).append(run)
        return tuple((runs[1], runs[0]) for runs in by_name.values() if len(runs) > 1)


def index_of(directory: Path) -> Index:
    """Read every run directory below a directory, at most two levels deep."""
    found, unreadable = [], []
    for file in sorted([*directory.glob("*/campaign.json"), *directory.glob("*/*/campaign.json")]):
        path = file.parent
        try:
            found.append(_indexed(path, directory))
        except RunDirectoryError as error:
            unreadable.append(str(error))
    found.sort(key=lambda run: (run.campaign.started_at, run.name), reverse=True)
    return Index(tuple(found), tuple(unreadable))


def _indexed(path: Path, directory: Path) -> IndexedRun:
    campaign = read_campaign(path)
    counts = dict.fromkeys(counted(()), 0)

    def passing(trial: TrialSummary) -> TrialSummary:
        for reason, count in counted([why_unknown(trial.verdict, trial.findings)]).items():
            counts[reason] += count
        return trial

    cells = hit_cells(campaign, map(passing, stored_trials(path)))
    report = path / "report.html"
    return IndexedRun(
        name=path.relative_to(directory).as_posix(),
        campaign=campaign,
        cells=cells,
        why_unknown=counts,
        report=report.relative_to(directory).as_posix() if report.is_file() else "",
    )


def index_object(index: Index) -> dict[str, Any]:
    """Return the index as JSON-compatible values."""
    return {
        "runs": [
            {
                "run": run.name,
                "campaign": run.campaign.name,
                "system": run.campaign.system,
                "seed": run.campaign.seed,
                "started_at": run.campaign.started_at,
                "verdict": run.campaign.verdict.value,
                "interrupted": run.campaign.interrupted,
                "trials": run.campaign.trials,
                "valid": run.campaign.valid,
                "unknown": run.campaign.unknown,
                "invalid": run.campaign.invalid,
                "why_unknown": run.why_unknown,
                "findings": len(run.campaign.groups),
                "cells_hit": len(run.cells.hit),
                "cells_possible": run.cells.possible,
                "wall_seconds": run.campaign.wall_seconds,
            }
            for run in index.runs
        ],
        "unreadable": list(index.unreadable),
    }


def render_index(index: Index, comparisons: Sequence[tuple[str, str]] = ()) -> str:
    """Return the page; ``comparisons`` are titles with the pages, relative to the index, that compare two runs."""
    return (
        templates()
        .get_template("runs.html.j2")
        .render(
            index=index,
            comparisons=comparisons,
            style=Markup(page_source("page.css")),  # our own file
        )
    )
