"""``barrier-tck join``: one run directory and one report of all shards of a campaign."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from barrier_tck.harness.cli.exit_codes import exit_code_of
from barrier_tck.harness.cli.options import DEFAULT_OUT, JsonOption, OutOption
from barrier_tck.harness.cli.printing import console_for, emit


def join(
    directories: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR...", help="Run directories of shards, or directories that hold some, in any order."
        ),
    ],
    out: OutOption = DEFAULT_OUT,
    as_json: JsonOption = False,
) -> None:
    """Join the shards of a campaign into one run.

    Its run directory has a report. Shards are run with ``barrier-tck campaign --shard i/n``. Exit code: that of the
    whole campaign.

    \b
    Examples:
      barrier-tck join shards/ --out runs
      barrier-tck join shards/1 shards/2 shards/3
    """
    from barrier_tck.harness.campaign import joining
    from barrier_tck.harness.cli import campaign_output
    from barrier_tck.harness.record.run_directory import new_run_path, require_place
    from barrier_tck.harness.record.run_reader import read_campaign
    from barrier_tck.reports.loading import load_run

    console = console_for(as_json)
    require_place(out)
    paths = joining.run_directories(directories)
    path = new_run_path(out, read_campaign(paths[0]).name, datetime.now())
    joining.join(paths, path)
    console.print(f"joined {len(paths)} shards: {path}", markup=False)
    run = load_run(path)
    campaign_output.print_campaign(console, run)
    emit(as_json, campaign_output.as_object(run))
    raise typer.Exit(exit_code_of(run.campaign.verdict, run.campaign.interrupted))
