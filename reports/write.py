"""The door to the reports: a run directory in, three files beside its records out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.reports.html import render
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.machine_readable import as_junit, as_object


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """Where the reports of a run are."""

    html: Path
    json: Path
    junit: Path


def write_reports(run_directory: Path) -> ReportPaths:
    """Write ``report.html``, ``report.json`` and ``junit.xml`` into a run directory, each in one atomic step.

    All are rendered before the first is written. Raises the errors of `barrier_tck.reports.loading.load_run`, and
    EnvironmentProblem if a file cannot be written.
    """
    run = load_run(run_directory)
    paths = ReportPaths(
        run_directory / "report.html", run_directory / "report.json", run_directory / "junit.xml"
    )
    texts = (
        (paths.json, json.dumps(as_object(run), indent=2, ensure_ascii=False) + "\n"),
        (paths.junit, as_junit(run)),
        (paths.html, render(run)),
    )
    for path, text in texts:
        write_atomically(path, text.encode("utf-8", "backslashreplace"))
    return paths
