"""``barrier-tck runs``: an index over run directories, and two of them side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barrier_tck.harness.cli.options import DEFAULT_OUT, JsonOption
from barrier_tck.harness.cli.printing import console_for, emit


def runs(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="A directory of run directories.")
    ] = DEFAULT_OUT,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--compare",
            metavar="RUN_DIR RUN_DIR",
            help="Compare these two runs instead of the newest two of each campaign.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page of all runs, and compare two of them.

    The page DIR/index.html lists all run directories below DIR. Of each campaign on each system, the newest run is
    compared with the one before it, on a page in DIR/compared/: what was run otherwise, verdicts, findings, cells of
    phase and fault, and trials of the same plan with another verdict.

    Exit code 0, whatever the verdicts are.

    \b
    Examples:
      barrier-tck runs
      barrier-tck runs runs --compare runs/modes-20260101-120000 runs/modes-20260102-120000
    """
    from rich.table import Table
    from rich.text import Text

    from barrier_tck.harness.record.run_directory import open_directory
    from barrier_tck.harness.support.atomic_files import write_atomically
    from barrier_tck.harness.support.errors import UsageProblem
    from barrier_tck.reports.loading import load_run
    from barrier_tck.reports.run_comparison import compared, comparison_object, page_name, render_comparison
    from barrier_tck.reports.run_index import index_object, index_of, render_index
    from barrier_tck.reports.wording import SYMBOL, duration, one_line

    if not directory.is_dir():
        raise UsageProblem(f"{directory} is no directory; name one that holds run directories")
    console = console_for(as_json)
    index = index_of(directory)
    wanted = (
        [compare]
        if compare is not None
        else [(directory / before.name, directory / newest.name) for before, newest in index.pairs()]
    )
    comparisons = [(one, other, compared(load_run(one), load_run(other))) for one, other in wanted]
    if comparisons:
        open_directory(directory / "compared")
    pages = []
    for one, other, comparison in comparisons:
        page = page_name(one, other)
        write_atomically(directory / page, render_comparison(comparison).encode("utf-8", "backslashreplace"))
        pages.append((" and ".join(comparison.names), page))
    path = directory / "index.html"
    write_atomically(path, render_index(index, pages).encode("utf-8", "backslashreplace"))
    table = Table(box=None, pad_edge=False)
    for name in ("run", "verdict", "trials", "not judged", "findings", "combinations tried", "took"):
        table.add_column(name, justify="left" if name in ("run", "verdict") else "right", overflow="fold")
    for run in index.runs:
        verdict = run.campaign.verdict
        table.add_row(
            Text(one_line(run.name)),
            f"{SYMBOL[verdict]} {verdict.value}",
            f"{run.campaign.trials:,}",
            str(run.not_judged),
            str(len(run.campaign.groups)),
            f"{len(run.cells.hit)} / {run.cells.possible}",
            duration(run.campaign.wall_seconds * 1_000),
        )
    console.print(table)
    for problem in index.unreadable:
        console.print(f"left out: {problem}", markup=False)
    for _, page in pages:
        console.print(f"compared: {directory / page}", markup=False)
    console.print(f"index: {path}", markup=False)
    emit(
        as_json,
        {
            **index_object(index),
            "index": str(path),
            "compared": [
                {"page": str(directory / page), **comparison_object(comparison)}
                for (_, page), (*_, comparison) in zip(pages, comparisons, strict=True)
            ],
        },
    )
