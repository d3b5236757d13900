"""``barrier-tck bisect``: since which commit does a plan fail?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.exit_codes import EXIT_CODES
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit
from barrier_tck.harness.record.verdict import Verdict


def bisect(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.json", help="The plan.")],
    good: Annotated[str, typer.Argument(metavar="GOOD", help="A commit or tag at which the plan passes.")],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="A later one at which it fails.")],
    repository: Annotated[
        Path, typer.Option("--repository", metavar="DIR", help="A checkout of barrier-tck, or of a fork.")
    ] = Path(),
    system: Annotated[
        str | None,
        typer.Option(
            "--system",
            metavar="NAME",
            autocompletion=completion.SYSTEMS,
            help="System under test. Default: reference-simulated.",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            "--runs", min=1, help="Where time is real: it fails at a commit if one of so many runs does."
        ),
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Find the commit since which a plan fails.

    The plan is run on about log2 of the commits between. Each commit is checked out in a temporary directory, and the
    plan is run with its code and the packages of this environment. A commit that cannot read or run the plan is passed
    over.

    Exit code 0: one commit was found. 2: several are left, because those between could not be tried.

    \b
    Examples:
      barrier-tck bisect plan.json v0.1.0 main
      barrier-tck bisect plan.json HEAD~20 HEAD --system reference-spark --runs 4
    """
    from barrier_tck.harness.campaign.bisection import Commit, commits_between, trying
    from barrier_tck.harness.campaign.bisection import bisect as bisected
    from barrier_tck.harness.plan.reading import read_plan

    read_plan(plan)
    console = console_for(as_json)
    commits = commits_between(repository, good, bad)
    console.print(f"{len(commits)} commits from {commits[0]} to {commits[-1]}", markup=False, soft_wrap=True)
    with console.status("") as status, trying(repository, plan, system, runs) as tries:  # only on a terminal

        def try_commit(commit: Commit) -> Verdict:
            status.update(f"trying {commit.identifier[:10]}")
            verdict = tries(commit)
            console.print(f"{verdict.value:8} {commit}", markup=False, soft_wrap=True)
            return verdict

        found = bisected(commits, try_commit)
    many = len(found.suspects) > 1
    console.print("one of these:" if many else "the first commit that fails:", markup=False)
    for commit in found.suspects:
        console.print(f"  {commit}", markup=False, soft_wrap=True)
    emit(
        as_json,
        {
            "suspects": [commit.identifier for commit in found.suspects],
            "tried": {commit.identifier: verdict.value for commit, verdict in found.tried},
        },
    )
    raise typer.Exit(EXIT_CODES[Verdict.UNKNOWN if many else Verdict.VALID])
