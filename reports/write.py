"""The entry point of the reports: a run directory in, three files and the texts of issues beside its records out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.harness.record.run_directory import open_directory
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.reports.cut_page import render_cut
from barrier_tck.reports.cuts import (
    DIRECTORY,
    Wanted,
    cut_views,
    requested_before,
    require_cuts,
    shown_by_default,
)
from barrier_tck.reports.html import render
from barrier_tck.reports.issue_text import DIRECTORY as ISSUES
from barrier_tck.reports.issue_text import issue_texts
from barrier_tck.reports.loading import ReportedRun
from barrier_tck.reports.machine_readable import as_junit, as_object


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """Where the reports of a run are."""

    html: Path
    json: Path
    junit: Path
    cuts: tuple[Path, ...] = ()
    """The pages of cuts, worst trial first."""


def write_reports(run: ReportedRun, cuts: Iterable[Wanted] = ()) -> ReportPaths:
    """Write ``report.html``, ``report.json`` and ``junit.xml`` into a run's directory, each in one atomic step.

    ``cuts`` are shown besides those that a report shows anyway, as far as their messages were traced, each on a page of
    its own in ``cuts/`` too. All is rendered before the first file is written. Raises UsageProblem for a checkpoint in
    ``cuts`` of which there is no cut, and EnvironmentProblem if a file cannot be written.
    """
    run_directory, asked = run.directory, tuple(cuts)
    require_cuts(run, asked)
    views = cut_views(run, (*asked, *shown_by_default(run), *requested_before(run_directory)))
    paths = ReportPaths(
        run_directory / "report.html",
        run_directory / "report.json",
        run_directory / "junit.xml",
        tuple(run_directory / view.wanted.page for view in views),
    )
    pages = zip(paths.cuts, [render_cut(run, view) for view in views], strict=True)
    texts = (
        (paths.json, json.dumps(as_object(run), indent=2, ensure_ascii=False) + "\n"),
        (paths.junit, as_junit(run)),
        *pages,
        (paths.html, render(run, views)),
    )
    issues = issue_texts(run)
    if views:
        open_directory(run_directory / DIRECTORY)
    if issues:
        open_directory(run_directory / ISSUES)
    for path, text in (*texts, *((run_directory / ISSUES / name, text) for name, text in issues.items())):
        write_atomically(path, text.encode("utf-8", "backslashreplace"))
    return paths
