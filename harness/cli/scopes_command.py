"""``barrier-tck scopes``: search small jobs completely, interleaving by interleaving."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.exit_codes import EXIT_CODES
from barrier_tck.harness.cli.options import DEFAULT_OUT, JsonOption, OutOption
from barrier_tck.harness.cli.patched_run import run_with_patch
from barrier_tck.harness.cli.printing import console_for, emit
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.reference.exhaustive.scope_search import ScopeResult


def scopes(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            autocompletion=completion.SCOPES,
            help="The scope to search. Default: list all scopes.",
        ),
    ] = None,
    mutant: Annotated[
        str | None,
        typer.Option(
            "--mutant",
            metavar="ID",
            autocompletion=completion.PLANTED_BUG,
            help="Search it with this planted bug.",
        ),
    ] = None,
    patch: Annotated[
        Path | None,
        typer.Option(
            "--patch",
            metavar="FILE",
            help="Search it with a bug of your own: a unified diff against reference_impl/, or a file like those in "
            "harness/reference/bugs. It runs as code.",
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", min=0, help="Give up after so much processor time, and say how far it came."
        ),
    ] = 3_600,
    replay: Annotated[
        Path | None, typer.Option("--replay", metavar="FILE", help="Take the choices of a finding again.")
    ] = None,
    out: OutOption = DEFAULT_OUT,
    as_json: JsonOption = False,
) -> None:
    """Search all interleavings of a small job.

    The search runs in the simulator, and leaves out those that do not differ. Without NAME, the scopes are listed. A
    search ends at the first end that is not VALID; the choices that lead to it are saved in a file, which --replay
    takes again. A search that does not end in time says how many states it reached, and nothing is known about the
    others. last-exactly-once, last-at-least-once and last-unaligned end in one to two minutes.

    Exit code 0: the scope was searched completely, and every end is VALID. 1: an end is INVALID. 2: the search did not
    end, or an end is UNKNOWN.

    \b
    Examples:
      barrier-tck scopes
      barrier-tck scopes line-exactly-once
      barrier-tck scopes line-unaligned --mutant UC-01 --seconds 300
    """
    from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
    from barrier_tck.harness.reference.bugs.patched_copy import patch_of_this_process
    from barrier_tck.harness.reference.bugs.users_bug import read_patch
    from barrier_tck.harness.reference.exhaustive import scope_search
    from barrier_tck.harness.reference.exhaustive.scopes import SCOPES
    from barrier_tck.harness.support.strict_input import nearest, read_text

    console = console_for(as_json)
    if replay is not None:
        scope, choices = scope_search.read_path(read_text(replay), str(replay))
        found = scope_search.replay_path(scope, choices)
        verdict = Verdict.VALID if found is None else found.verdict
        shown = (
            "VALID" if found is None else f"{found.verdict.value.upper()}: {found.checker}: {found.summary}"
        )
        console.print(f"{len(choices)} choices in {scope.name}: {shown}", markup=False)
        emit(as_json, {"scope": scope.name, "verdict": verdict.value})
        raise typer.Exit(EXIT_CODES[verdict])
    if name is None:
        for one in SCOPES.values():
            console.print(f"{one.name}: {one.about}", markup=False)
        emit(as_json, {"scopes": {one.name: one.about for one in SCOPES.values()}})
        return
    if name not in SCOPES:
        raise UsageProblem(f"there is no scope {name!r}{nearest(name, SCOPES)}")
    if mutant is not None and patch is not None:
        raise UsageProblem("--mutant and --patch plant a bug each: give one of them")
    if mutant is not None and mutant not in planted_bugs():
        raise UsageProblem(f"there is no planted bug {mutant!r}{nearest(mutant, planted_bugs())}")
    if patch is not None and patch_of_this_process() is None:
        run_with_patch(read_patch(patch), str(patch), context.obj, "simulated")
    scope = SCOPES[name] if mutant is None else scope_search.planted_in(SCOPES[name], mutant)
    with console.status(name) as status:  # only on a terminal
        result = scope_search.search_scope(
            scope,
            seconds=seconds,
            shown=lambda progress: status.update(f"{name}: {progress.states} states, {progress.ends} ends"),
        )
    saved = None
    for finding in result.findings:
        saved = out / f"{name}-{datetime.now():%Y%m%d-%H%M%S}.json"
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(saved, scope_search.path_file(scope, finding))
    print_result(console, result, saved)
    emit(as_json, {**msgspec.to_builtins(result), "path": None if saved is None else str(saved)})
    raise typer.Exit(EXIT_CODES[verdict_of(result)])


def verdict_of(result: ScopeResult) -> Verdict:
    """Return what is known of a scope: UNKNOWN if its search did not end and found nothing."""
    if result.findings:
        return Verdict.worst(finding.verdict for finding in result.findings)
    return Verdict.VALID if result.complete else Verdict.UNKNOWN


def print_result(console: Console, result: ScopeResult, saved: Path | None) -> None:
    """Print how far a search came, and what it found."""
    how = "complete" if result.complete else "NOT COMPLETE"
    if result.findings:
        how = "ended at a finding"
    console.print(
        f"{result.scope}: {how}: {result.states} distinct states, {result.steps} steps, {result.ends} ends, "
        f"{result.histories} histories judged, {result.seconds} s",
        markup=False,
    )
    for finding in result.findings:
        clauses = ", ".join(finding.clauses)
        console.print(
            f"{finding.verdict.value.upper()}: {finding.checker} ({clauses}): {finding.summary}", markup=False
        )
        console.print(
            f"  after {len(finding.choices)} choices; barrier-tck scopes --replay {saved}", markup=False
        )
