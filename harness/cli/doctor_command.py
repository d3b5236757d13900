"""``barrier-tck doctor``: what is installed, what is missing, and what to do about it."""

from __future__ import annotations

import typer
from rich.table import Table

from barrier_tck.harness.cli.exit_codes import EXIT_USAGE
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit

WIDTH_MAX = 120
"""Characters of a line at most."""


def doctor(as_json: JsonOption = False) -> None:
    """Show what is installed and what is missing.

    It says what to do about the latter. Exit code 0 if campaigns on Spark can run, 3 if something that they need is
    missing or too old.
    """
    from barrier_tck.harness.cli.diagnosis import diagnose

    findings = diagnose()
    table = Table("", "found", "status", "what to do", box=None)
    for finding in findings:
        table.add_row(finding.name, finding.found, finding.status.value, finding.advice)
    console = console_for(as_json)
    # Also in a pipe its lines are those of a page: advice is wrapped, and nothing is cut off.
    console.print(table, width=min(console.width, WIDTH_MAX), soft_wrap=False)
    blocked = [finding.name for finding in findings if finding.blocks]
    console.print("cannot run on Spark yet: " + ", ".join(blocked) if blocked else "ready")
    rows = [
        {"name": f.name, "status": f.status.value, "found": f.found, "advice": f.advice} for f in findings
    ]
    emit(as_json, {"ready": not blocked, "findings": rows})
    raise typer.Exit(EXIT_USAGE if blocked else 0)
