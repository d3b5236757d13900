"""``barrier-tck nights``: what the last night showed, beside those before it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from barrier_tck.harness.cli.exit_codes import EXIT_CODES
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit

_OUT = Path("nights")


def nights(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...",
            help="What the night left: run directories, those of barrier-tck mutants, JUnit reports of tests.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Directory of the page. Its nights.jsonl has the nights before; this night is added.",
        ),
    ] = _OUT,
    as_json: JsonOption = False,
) -> None:
    """Gather the runs of a night into a page and issues.

    The page is that of the last nights, and each finding gets the text of an issue, with a plan. What fails in the same
    way in several campaigns is one finding, with the smallest plan of all. A night fails if anything is INVALID, if a
    planted bug was missed, or if more trials are UNKNOWN than allowed: 5 % because nothing happened, 2 % because a
    checker crashed or the trial could not be run; of each campaign, one always may.

    Exit code 0: the night passes. 1: something is INVALID. 2: too much is UNKNOWN.

    \b
    Examples:
      barrier-tck nights runs
      barrier-tck nights artifacts --out nights
    """
    import msgspec

    from barrier_tck.harness.campaign.nights import gathered, history_lines, read_history, with_night
    from barrier_tck.harness.record.run_directory import open_directory, require_place
    from barrier_tck.harness.support.atomic_files import write_atomically
    from barrier_tck.reports.issue_text import issue_text
    from barrier_tck.reports.loading import load_run
    from barrier_tck.reports.nights_page import render_nights

    console = console_for(as_json)
    require_place(out)
    history = out / "nights.jsonl"
    before = read_history(history)
    night, plans = gathered(directories, os.environ.get("GITHUB_SHA", ""), before)
    all_nights = with_night(before, night)
    out.mkdir(parents=True, exist_ok=True)
    open_directory(out / "findings")
    for old in (out / "findings").iterdir():  # of the night before
        old.unlink()
    for name, (path, group) in plans.items():
        run = load_run(path)
        plan = run.plan_path(group.smallest_trial)
        assert plan is not None
        write_atomically(out / name, plan.read_bytes())
        write_atomically(
            (out / name).with_suffix(".md"), issue_text(run, group).encode("utf-8", "backslashreplace")
        )
    write_atomically(history, history_lines(all_nights))
    page = out / "index.html"
    write_atomically(page, render_nights(all_nights).encode("utf-8", "backslashreplace"))
    console.print(
        f"{night.verdict.value.upper()}: {night.trials:,} trials of {len(night.campaigns)} campaigns, "
        f"{len(night.findings)} findings",
        markup=False,
    )
    for problem in night.problems:
        console.print(f"- {problem}", markup=False, soft_wrap=True)
    console.print(f"page of {len(all_nights)} nights: {page}", markup=False)
    emit(as_json, {"verdict": night.verdict.value, "page": str(page), **msgspec.to_builtins(night)})
    raise typer.Exit(EXIT_CODES[night.verdict])
