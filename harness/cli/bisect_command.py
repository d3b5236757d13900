"""``barrier-tck bisect``: since which commit, or since which released version, does a plan fail?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.exit_codes import EXIT_CODES
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit
from barrier_tck.harness.cli.signals import sigterm_like_ctrl_c
from barrier_tck.harness.cli.untrusted_code import code_of, require_named
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.bisection import Candidate, Outcome, Tries

C = TypeVar("C", bound="Candidate")


def bisect(
    plan: Annotated[Path, typer.Argument(metavar="PLAN.json", help="The plan.")],
    good: Annotated[
        str, typer.Argument(metavar="GOOD", help="A commit, tag or released version with which it passes.")
    ],
    bad: Annotated[str, typer.Argument(metavar="BAD", help="A later one with which it fails.")],
    repository: Annotated[
        Path | None,
        typer.Option(
            "--repository",
            metavar="DIR",
            help="A checkout of barrier-tck, or of a fork. Default: the working directory.",
        ),
    ] = None,
    releases: Annotated[
        bool, typer.Option("--releases", help="GOOD and BAD are released versions, which pip installs.")
    ] = False,
    package: Annotated[
        str | None,
        typer.Option(
            "--package",
            metavar="NAME",
            autocompletion=completion.one_of("barrier-tck", "pyspark"),
            help="Whose releases they are, for instance pyspark. Default: barrier-tck. Implies --releases.",
        ),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            "--index",
            metavar="URL",
            help="The package index that has them. Default: the one that pip is configured with. Implies --releases.",
        ),
    ] = None,
    find_links: Annotated[
        Path | None,
        typer.Option(
            "--find-links",
            metavar="DIR",
            help="A folder of wheels that has them; without --index, only it is searched for them. "
            "Implies --releases.",
        ),
    ] = None,
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
        typer.Option("--runs", min=1, help="Where time is real: it fails if one of so many runs does."),
    ] = 1,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Run whatever code the plan names: a state backend, checkpoint storage or workload that is named "
            "package.module:Factory, or a patch.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find the commit or release since which a plan fails.

    The plan is run on about log2 of those between. One that cannot read or run the plan is passed over.

    Commits: each is checked out in a temporary directory, and the plan is run with its code and the packages of this
    environment.

    Releases: each is installed into a temporary environment that has the packages of this one too, and what else the
    release needs. --package names another package than barrier-tck: which release of Spark does the plan fail with?

    Exit code 0: one was found. 2: several are left, because those between could not be tried.

    \b
    Examples:
      barrier-tck bisect plan.json v0.1.0 main
      barrier-tck bisect plan.json HEAD~20 HEAD --system reference-spark --runs 4
      barrier-tck bisect plan.json 0.1.0 0.3.0 --releases
      barrier-tck bisect plan.json 0.1.0 0.3.0 --find-links wheels/
      barrier-tck bisect plan.json 4.0.0 4.3.0 --package pyspark --system structured-streaming
    """
    from barrier_tck.harness.campaign.bisected_commits import commits_between, trying_commits
    from barrier_tck.harness.campaign.bisected_releases import (
        OURS,
        ReleasePlace,
        releases_between,
        trying_releases,
    )
    from barrier_tck.harness.campaign.bisection import PlanRuns
    from barrier_tck.harness.plan.reading import read_plan
    from barrier_tck.harness.support.third_party import is_target
    from barrier_tck.harness.system.system_names import require_system

    # Not what it imports: a system of one's own may be in the releases or commits alone.
    if system is not None and not is_target(system):
        require_system(system)
    read = read_plan(plan)
    if not trust:
        require_named(code_of(read), None, str(plan))
    wanted = PlanRuns(plan, system, runs, trust)
    if releases or package is not None or index is not None or find_links is not None:
        if repository is not None:
            raise UsageProblem("--repository is for commits, and not for releases; leave one of the two out")
        place = ReleasePlace(index, find_links)
        with sigterm_like_ctrl_c():
            _find(
                releases_between(package or OURS, good, bad, place), trying_releases(wanted, place), as_json
            )
    else:
        where = repository or Path()
        with sigterm_like_ctrl_c():
            _find(commits_between(where, good, bad), trying_commits(where, wanted), as_json)


def _find(candidates: Sequence[C], trying: AbstractContextManager[Tries[C]], as_json: bool) -> None:
    """Bisect, print what is found, and exit."""
    from barrier_tck.harness.campaign import bisection

    console = console_for(as_json)
    kind = candidates[0].kind
    console.print(
        f"{len(candidates)} {kind}s from {candidates[0]} to {candidates[-1]}", markup=False, soft_wrap=True
    )
    with console.status("") as status, trying as tries:  # only on a terminal

        def try_one(candidate: C) -> Outcome:
            status.update(f"trying {candidate}")
            outcome = tries(candidate)
            why = f": {outcome.why}" if outcome.why else ""
            console.print(f"{outcome.verdict.value:8} {candidate}{why}", markup=False, soft_wrap=True)
            return outcome

        found = bisection.bisect(candidates, try_one)
    many = len(found.suspects) > 1
    console.print("one of these:" if many else f"the first {kind} that fails:", markup=False)
    for suspect in found.suspects:
        console.print(f"  {suspect}", markup=False, soft_wrap=True)
    emit(
        as_json,
        {
            "suspects": [suspect.identifier for suspect in found.suspects],
            "tried": {candidate.identifier: outcome.verdict.value for candidate, outcome in found.tried},
        },
    )
    raise typer.Exit(EXIT_CODES[Verdict.UNKNOWN if many else Verdict.VALID])
