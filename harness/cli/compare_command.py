"""``barrier-tck compare``: run a plan in two systems and compare what both promise."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.exit_codes import EXIT_CODES
from barrier_tck.harness.cli.opening import opened, start
from barrier_tck.harness.cli.options import JsonOption, listed
from barrier_tck.harness.cli.printing import console_for, emit
from barrier_tck.harness.cli.untrusted_code import TrustOption, UntrustedCode, code_of, require_named
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.third_party import search_working_directory

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.world_comparison import Comparison

_BOTH_WORLDS = "reference-simulated,reference-spark"


def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PLAN.json|RUN_DIR...", help="Plan files, trials' directories or run directories."
        ),
    ],
    systems: Annotated[
        str,
        typer.Option(
            "--systems",
            metavar="NAME,NAME",
            autocompletion=completion.COMPARED_SYSTEMS,
            help="The two systems: reference-simulated, reference-spark, or package.module:Factory.",
        ),
    ] = _BOTH_WORLDS,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a plan in two systems, and compare the results.

    Compared is what both promise, whatever the schedule: the verdict, how the job ends, the records of its output, the
    state of checkpoints that stand at the same positions, and which faults struck. The systems are by default the two
    worlds of the reference runtime. If they differ, one of the worlds is wrong, or the plan asks for what only one of
    them can do.

    Exit code 0: no difference. 1: they differ. 2: a trial could not be judged.

    \b
    Examples:
      barrier-tck compare plan.json
      barrier-tck compare runs/modes-20260101-120000 --systems reference-simulated,your_package:YourSystem
    """
    from barrier_tck.harness.campaign.replay import sources_of
    from barrier_tck.harness.campaign.world_comparison import compared

    names = listed("--systems", systems)
    if len(names) != 2:
        raise UsageProblem(f"--systems is {systems!r}, but a comparison has two sides: give two names")
    sources = tuple(source for path in paths for source in sources_of(path))
    for source in sources:
        if source.plan.patch is not None:
            raise UsageProblem(f"{source.path} carries a patch, which is for one system: replay it")
    if not trust:
        given = tuple(UntrustedCode("system", name) for name in names)
        for source in sources:
            for name in names:
                require_named(code_of(source.plan, name), given, str(source.path))
    search_working_directory()
    console = console_for(as_json)
    comparisons: list[Comparison] = []
    with opened(names[0]) as one, opened(names[1]) as other:
        for system in (one, other):
            start(system)
        for source in sources:
            comparison = compared(source.plan, one, other, str(source.path))
            comparisons.append(comparison)
            _print_comparison(console, str(source.path), comparison)
    verdict = Verdict.worst(comparison.verdict for comparison in comparisons)
    emit(
        as_json,
        {
            "verdict": verdict.value,
            "compared": [
                {"plan": str(source.path), **msgspec.to_builtins(comparison)}
                for source, comparison in zip(sources, comparisons, strict=True)
            ],
        },
    )
    raise typer.Exit(EXIT_CODES[verdict])


def _print_comparison(console: Console, plan: str, comparison: Comparison) -> None:
    """Print what was compared, and each difference."""
    looked_at = f"{comparison.rows} records, {comparison.checkpoints} checkpoints, {comparison.faults} faults"
    summary = {
        Verdict.VALID: f"no difference in {looked_at}",
        Verdict.INVALID: f"{len(comparison.differences)} differences in {looked_at}",
        Verdict.UNKNOWN: "no verdict is possible",
    }
    console.print(f"{plan}: {summary[comparison.verdict]}", markup=False)
    for difference in comparison.differences:
        console.print(f"  {difference.what}: {difference.sentence}", markup=False)
    for why in (*comparison.notes, *comparison.unknown):
        console.print(f"  {why}", markup=False)
