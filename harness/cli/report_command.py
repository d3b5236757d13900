"""``barrier-tck report``: write the reports of a run directory again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barrier_tck.harness.cli.exit_codes import EXIT_CODES
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit


def report(
    run_directory: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR", help="A run directory, or a directory of several, of which the newest is used."
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Write report.html, report.json and junit.xml into a run directory and print the summary.

    \b
    Example:
      barrier-tck report runs/standard-20260101-120000
    """
    from barrier_tck.harness.record.run_directory import latest_run
    from barrier_tck.reports.summary import print_summary
    from barrier_tck.reports.write import write_reports

    console = console_for(as_json)
    path = latest_run(run_directory)
    paths = write_reports(path)
    verdict = print_summary(path, console)
    console.print(f"report: {paths.html}", markup=False)
    files = {"html": str(paths.html), "report_json": str(paths.json), "junit": str(paths.junit)}
    emit(as_json, {"verdict": verdict.value, "run_directory": str(path)} | files)
    raise typer.Exit(EXIT_CODES[verdict])
