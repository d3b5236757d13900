"""``barrier-tck report``: write the reports of a run directory again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barrier_tck.harness.cli.exit_codes import exit_code_of
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit
from barrier_tck.harness.cli.untrusted_code import TrustOption
from barrier_tck.harness.support.third_party import search_working_directory


def report(
    run_directory: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_DIR", help="A run directory, or a directory of several, of which the newest is used."
        ),
    ],
    cut: Annotated[
        list[str] | None,
        typer.Option(
            "--cut",
            metavar="TRIAL:CHECKPOINT",
            help="Also draw the cut of this checkpoint, as a space-time diagram in the report and in cuts/; may be "
            "given several times. A simulated trial runs again for it.",
        ),
    ] = None,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a run directory, and print it.

    Written are report.html, report.json and junit.xml; printed is the summary. The report shows the cut of the failing
    checkpoint of each invalid trial with a timeline, and that of a valid checkpoint with records in flight, if there is
    one. Exit code: the verdict's, as of the campaign; 2 at best if that was interrupted.

    \b
    Examples:
      barrier-tck report runs/standard-20260101-120000
      barrier-tck report runs/standard-20260101-120000 --cut 0:2 --cut 3:1
    """
    from barrier_tck.harness.cli.cut_diagrams import trace_cuts_shown, trace_requested_cuts
    from barrier_tck.harness.record.run_directory import latest_run
    from barrier_tck.reports.cuts import Wanted
    from barrier_tck.reports.loading import load_run
    from barrier_tck.reports.machine_readable import finding_objects
    from barrier_tck.reports.summary import print_run
    from barrier_tck.reports.write import write_reports

    console = console_for(as_json)
    search_working_directory()
    path = latest_run(run_directory)
    wanted = tuple(map(Wanted.parse, cut or ()))
    run = load_run(path)
    trace_requested_cuts(run, wanted, trust)
    trace_cuts_shown(run, console, trust)
    paths = write_reports(run, wanted)
    print_run(run, console)
    console.print(f"report: {paths.html}")
    for request in wanted:
        console.print(f"cut: {path / request.page}")
    emit(
        as_json,
        {
            "verdict": run.verdict.value,
            "run_directory": str(path),
            "interrupted": run.campaign.interrupted,
            "findings": finding_objects(run),
            "html": str(paths.html),
            "report_json": str(paths.json),
            "junit": str(paths.junit),
            "cuts": [str(page) for page in paths.cuts],
        },
    )
    raise typer.Exit(exit_code_of(run.verdict, run.campaign.interrupted))
