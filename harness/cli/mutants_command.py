"""``barrier-tck mutants``: run planted bugs and see whether the suite catches them."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from barrier_tck.harness.campaign.phase_progress import PhaseProgress
from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.exit_codes import EXIT_CODES
from barrier_tck.harness.cli.opening import opened, start
from barrier_tck.harness.cli.options import DEFAULT_OUT, JsonOption, OutOption, listed
from barrier_tck.harness.cli.patched_run import run_with_patch, without_patch
from barrier_tck.harness.cli.printing import VerdictConsole, console_for, emit
from barrier_tck.harness.cli.strategies_table import (
    SEEDS_MEASURED,
    SYSTEM_OF_WORLD,
    TRIALS_MEASURED,
    Measured,
    measure_strategies,
)
from barrier_tck.harness.cli.strategy_option import StrategyOption, known_strategy
from barrier_tck.harness.plan.reading import read_plan
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.root_seed import root_seed
from barrier_tck.reports.wording import plural, replay_command

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.mutant_hunt import MutantResult, PlantedBug


TRIALS = 400
"""Plans that are tried with a patch, unless the command line says otherwise."""


def mutants(
    context: typer.Context,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="ID,...",
            autocompletion=completion.PLANTED_BUGS,
            help="Run only these bugs, for instance AL-01,SO-02. Default: all.",
        ),
    ] = None,
    patch: Annotated[
        list[Path] | None,
        typer.Option(
            "--patch",
            metavar="FILE",
            help="Plant a bug of your own instead: a unified diff against reference_impl/, or a file like those in "
            "harness/reference/bugs. It runs as code.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials",
            min=1,
            help="With --patch or --strategies: how many plans are tried at the most. Default: "
            f"{TRIALS}; with --strategies {TRIALS_MEASURED}.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            help="With --patch: the seed from which plans are drawn. Default: a new one, which is printed. With "
            "--strategies: the first seed. Default: 1.",
        ),
    ] = None,
    strategy: StrategyOption = None,
    strategies: Annotated[
        bool,
        typer.Option(
            "--strategies",
            help="Measure instead how soon each strategy finds the bugs among the plans of the default campaigns. Rows "
            "are kept in DIR/strategies.jsonl of --out DIR; what has a row there is not measured again.",
        ),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            "--seeds", min=1, help="With --strategies: with how many seeds. Default: 20, from --seed on."
        ),
    ] = None,
    world: Annotated[
        str,
        typer.Option(
            "--world",
            metavar="simulated|spark",
            autocompletion=completion.WORLDS,
            help="World in which they run.",
        ),
    ] = "simulated",
    out: OutOption = DEFAULT_OUT,
    as_json: JsonOption = False,
) -> None:
    """Run planted bugs, and see whether they are caught.

    The smallest plan that shows each bug is saved. A bug is caught if a checker of its clause says INVALID, and MISSED
    if none does in any trial. A diff names no clause: any checker may catch it.

    A bug of your own is NOT REACHED if its lines ran in no trial, and ENDLESS if a trial did not end within its limit
    of wall time. Its saved plan is also run on the reference as it is, and FAILS WITHOUT IT if that is INVALID, too. In
    these three cases nothing is known about the bug.

    Exit code 0: all were caught, and their saved plans show them again. 1: one was missed, or its plan does not show
    it again. 2: nothing is known about one, and none was missed. 3: a patch cannot be planted.

    \b
    Examples:
      barrier-tck mutants
      barrier-tck mutants --only AL-01,SO-02 --world spark
      barrier-tck mutants --patch my_bug.diff --trials 1000
      barrier-tck mutants --patch my_bug.diff --strategy guided
      barrier-tck mutants --strategies --only LP-02,SV-05 --seeds 5 --out measured
    """
    from barrier_tck.harness.campaign.mutant_hunt import TRIAL_PREFIX, choose, hunt
    from barrier_tck.harness.draw.search.strategies import new_search
    from barrier_tck.harness.record.run_directory import make_output_directory, new_run_path
    from barrier_tck.harness.reference.bugs.bug_file import SEEDS
    from barrier_tck.harness.reference.bugs.catalogue import bugs_of_runtime
    from barrier_tck.harness.reference.bugs.patched_copy import patch_of_this_process
    from barrier_tck.harness.reference.bugs.users_bug import read_patch, users_bug

    _check_options(only, patch, world, strategies)
    if strategies:
        first_seed = 1 if seed is None else seed
        asked = Measured(only, seeds or SEEDS_MEASURED, first_seed, trials, strategy, world)
        measure_strategies(asked, out, as_json)
        return
    _require_patch(patch, {"--trials": trials, "--seed": seed, "--strategy": strategy})
    if seeds is not None:
        raise UsageProblem("--seeds is for --strategies")
    names = [] if only is None else list(listed("--only", only))
    file = None if patch is None else patch[0]
    if file is not None and patch_of_this_process() is None:
        # It runs where the patched copy of the package is imported, and prints what there is to say.
        run_with_patch(read_patch(file), str(file), context.obj, world)
    console = console_for(as_json)
    from_seed = root_seed(seed)
    if file is not None:
        console.print(f"plans are drawn from the seed {from_seed}", markup=False)
    search = new_search(known_strategy(strategy) or "uniform", from_seed.value, from_seed.value)
    path = new_run_path(out, "mutants", datetime.now())
    results: list[MutantResult] = []
    with opened(SYSTEM_OF_WORLD[world]) as system:
        own = patch_of_this_process()
        chosen: Sequence[PlantedBug] = (
            choose(dict(bugs_of_runtime()), names, world)
            if file is None or own is None
            else (users_bug(own, file, system, TRIALS if trials is None else trials, search),)
        )
        make_output_directory(path)
        try:
            start(system)
            for mutant in chosen:
                with PhaseProgress(VerdictConsole(stderr=True), mutant.id) as progress:
                    result = hunt(mutant, system, path, replays_max=SEEDS[world], begins=progress.show)
                if result.plan is not None and own is not None:
                    plain = path / _without_patch(mutant.id)
                    fails = without_patch(path / result.plan, plain, SYSTEM_OF_WORLD[world])
                    result = msgspec.structs.replace(result, without_patch=fails)
                results.append(result)
                print_mutant(console, result, path, _replay_command(path, result, system.name, file))
        except BaseException:
            # Ctrl-C may come when a trial's directory is made, and nobody has yet been told to remove it.
            for begun in path.glob(f"{TRIAL_PREFIX}*"):
                shutil.rmtree(begun, ignore_errors=True)
            with contextlib.suppress(OSError):
                path.rmdir()  # after Ctrl-C, for instance; if a plan was saved already, it stays
            raise
    caught = sum(result.shown for result in results)
    summary = {
        "caught": caught,
        "total": len(results),
        "world": world,
        "mutants": [{**msgspec.to_builtins(result), "caught": result.shown} for result in results],
        "run_directory": str(path),
        **({"seed": from_seed.value} if file is not None else {}),
    }
    write_atomically(path / "mutants.json", json.dumps(summary, indent=2).encode() + b"\n")
    console.print(f"{caught} of {len(results)} planted bugs caught; plans in {path}", markup=False)
    emit(as_json, summary)
    raise typer.Exit(_exit_code(results))


def _check_options(only: str | None, patch: Sequence[Path] | None, world: str, strategies: bool) -> None:
    """Raise UsageProblem for options that contradict each other, and for an unknown world."""
    from barrier_tck.harness.support.strict_input import nearest

    if world not in SYSTEM_OF_WORLD:
        raise UsageProblem(f"--world is {world!r}{nearest(world, SYSTEM_OF_WORLD)}")
    if only is not None and patch is not None:
        raise UsageProblem(
            "--only chooses among the planted bugs, and --patch plants another one: give one of them"
        )
    if strategies and patch is not None:
        raise UsageProblem(
            "--strategies is for planted bugs, and --patch plants another one: give one of them"
        )
    if patch is not None and len(patch) > 1:
        raise UsageProblem(f"--patch is given {len(patch)} times: plant one bug at a time")


def _require_patch(patch: Sequence[Path] | None, given: dict[str, object]) -> None:
    """Raise UsageProblem for an option that only a bug of one's own has."""
    for option, value in given.items():
        if patch is None and value is not None:
            raise UsageProblem(f"{option} is for --patch: a planted bug has the plans that its file gives")


def _exit_code(results: Sequence[MutantResult]) -> int:
    """Return the command's exit code; its help says what each means."""
    if all(result.shown and result.replays for result in results):
        return EXIT_CODES[Verdict.VALID]
    if all((result.shown and result.replays) or _nothing_known(result) for result in results):
        return EXIT_CODES[Verdict.UNKNOWN]
    return EXIT_CODES[Verdict.INVALID]


def _nothing_known(result: MutantResult) -> bool:
    return not result.shown and (result.caught or result.endless or result.ran_in == 0)


def _without_patch(identifier: str) -> str:
    return f"{identifier}-without-patch.json"


def _replay_command(path: Path, result: MutantResult, system: str, patch: Path | None) -> str | None:
    """Return the command that shows again what was found; None if nothing was."""
    if result.plan is None:
        return None
    if not result.shown:
        return replay_command(path / _without_patch(result.id), system)
    saved = path / result.plan
    return replay_command(saved, system, read_plan(saved), patch)


def print_mutant(console: Console, result: MutantResult, path: Path, command: str | None) -> None:
    """Print what became of one planted bug; ``command`` shows again what was found."""
    for line in _harness_failures(result, path):
        console.print(line, markup=False)
    if not result.caught:
        for line in _not_caught(result):
            console.print(line, markup=False)
        return
    clauses = result.clause or result.named or ", ".join(result.clauses)
    if not result.shown:
        console.print(
            f"{result.id} FAILS WITHOUT IT: of its plan {result.checker} says INVALID on the reference as it is, too "
            f"({clauses}): {path / (result.plan or '')}",
            markup=False,
        )
        console.print(
            f"  the plan asks too much, or this is a bug of the reference; to see: {command}",
            markup=False,
        )
        return
    console.print(
        f"{result.id} caught by {result.checker} in trial {result.trials} after {result.seconds:.1f} s "
        f"({clauses}); smallest plan has {plural(result.faults, 'fault') if result.faults else 'no faults'}",
        markup=False,
    )
    console.print(f"  {_replays(result)}: {command}", markup=False)
    if result.named is not None:
        console.print(f"  {result.named}: {result.seen}", markup=False)
    if result.also:
        console.print(f"  also: {', '.join(result.also)}", markup=False)


def _not_caught(result: MutantResult) -> Iterator[str]:
    """Yield the lines about a bug that was not caught."""
    clause = f" ({result.clause})" if result.clause is not None else ""
    if result.endless:
        yield f"{result.id} ENDLESS{clause}: trial {result.trials}: {result.why_unknown}"
    elif result.ran_in == 0:
        unknown = f", {result.unknown} of them UNKNOWN" if result.unknown else ""
        yield f"{result.id} NOT REACHED{clause}: the patched lines never ran in {result.trials} trials{unknown}"
    else:
        ran = f"; the patched lines ran in {result.ran_in} of them" if result.ran_in is not None else ""
        unknown = f", {result.unknown} of them UNKNOWN" if result.unknown else ""
        yield f"{result.id} MISSED in {result.trials} trials{clause}{unknown}{ran}"
    if result.unknown and not result.endless:
        yield f"  the first UNKNOWN: {result.why_unknown}"
    for other in result.seen_by:
        yield f"  {other.checker} ({', '.join(other.clauses)}) said INVALID in {other.trials} trials"


def _harness_failures(result: MutantResult, path: Path) -> Iterator[str]:
    """Yield the line about exceptions of the harness, which are bugs of this project."""
    if result.failed:
        yield (
            f"{result.id}: {result.failed} times {result.why_failed}; the traceback is in "
            f"{path / (result.traceback or '')}; please report it"
        )


def _replays(result: MutantResult) -> str:
    """Say whether the saved plan showed the bug again, and where runs of one plan may differ also in which run."""
    if not result.replays:
        return "DOES NOT REPLAY" + (f" in {result.replay_runs} runs" if result.replay_runs > 1 else "")
    if result.replay_runs_max == 1:
        return "replays"
    return f"replayed in run {result.replay_runs} of {result.replay_runs_max}"
