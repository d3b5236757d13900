"""The door to the reports: a run directory in, three files beside its records out."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.harness.support.errors import UsageError
from barrier_tck.reports.html import render
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.machine_readable import as_junit, as_object


class ReportNotWritable(UsageError):
    """A report could not be written; the message names the file and the reason."""


@dataclass(frozen=True, slots=True)
class ReportPaths:
    """Where the reports of a run are."""

    html: Path
    json: Path
    junit: Path


def write_reports(run_directory: Path) -> ReportPaths:
    """Write ``report.html``, ``report.json`` and ``junit.xml`` into a run directory, each in one atomic step.

    All are rendered before the first is written. Raises the errors of `barrier_tck.reports.loading.load_run`, and
    ReportNotWritable.
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
        write_atomically(path, text)
    return paths


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the whole new one."""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise ReportNotWritable(f"{path} cannot be written: {error.strerror or error}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        # mkstemp is private to its user; a report is as readable as its neighbours.
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise ReportNotWritable(f"{path} cannot be written: {error.strerror or error}") from error
