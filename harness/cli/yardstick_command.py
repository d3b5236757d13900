"""``barrier-tck yardstick``: which real bugs of released Sparks are found by drawn trials that are told nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit
from barrier_tck.harness.cli.signals import sigterm_like_ctrl_c

if TYPE_CHECKING:
    from rich.console import Console

    from barrier_tck.harness.yardstick.bugs import KnownBug
    from barrier_tck.harness.yardstick.results import Result

_OUT = Path("yardstick")
_PAGE = "yardstick.md"
_MINUTES_MAX = 1_440.0


def yardstick(
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="ID",
            help="A bug; may be given several times. Default: all.",
            autocompletion=completion.KNOWN_BUGS,
        ),
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="List the bugs, and what became of them, and run nothing.")
    ] = False,
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes",
            metavar="N",
            min=0.1,
            max=_MINUTES_MAX,
            help="Processor time of one core for each bug.",
        ),
    ] = 20.0,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Where results are kept, with the plans and sequences that were found.",
        ),
    ] = _OUT,
    work: Annotated[
        Path | None,
        typer.Option(
            "--work",
            metavar="DIR",
            help="Where environments and run directories are kept, which may be deleted. Default: work in --out.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--page", metavar="FILE.md", help=f"The page. Default: {_PAGE} in --out; with --list, none."
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Run bugs anew whose results are kept; what was written by hand stays."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Look for real bugs of released Sparks, blind.

    Each bug is looked for in a release of PySpark that has it, with a certificate or a drawn campaign, fresh seeds, and
    a job or state store that is named as a user would. What is found counts if it is gone in a release without the bug.
    Each release is installed once, which takes minutes.

    A bug whose result is kept is not run again; one that was interrupted, or was looked for with fewer minutes and not
    found, is gone on with. Exit code 0: all that was asked for has a result, misses included.

    \b
    Examples:
      barrier-tck yardstick --list
      barrier-tck yardstick --only SPARK-55892
      barrier-tck yardstick --minutes 60 --out results --page results.md
    """
    import msgspec

    from barrier_tck.harness.cli.yardstick_page import rendered
    from barrier_tck.harness.support.atomic_files import write_atomically
    from barrier_tck.harness.yardstick.bugs import chosen_bugs, known_bugs

    console = console_for(as_json)
    bugs = known_bugs()
    chosen = chosen_bugs(bugs, only or ())
    seconds = 60 * minutes
    if not listed:
        with sigterm_like_ctrl_c():
            for bug in chosen:
                _look_for(bug, seconds, out, work or out / "work", again, console)
    kept = {bug.id: _kept(out, bug) for bug in bugs}
    results = {name: result for name, result in kept.items() if result is not None}
    for bug in chosen if listed else ():
        console.print(_line(bug, results.get(bug.id)), markup=False, soft_wrap=True)
    if page is not None or not listed:
        page = page or out / _PAGE
        write_atomically(page, rendered(bugs, results, seconds).encode("utf-8", "backslashreplace"))
        console.print(f"page: {page}", markup=False)
    emit(as_json, {"results": [msgspec.to_builtins(results[bug.id]) for bug in chosen if bug.id in results]})


def _look_for(bug: KnownBug, seconds: float, out: Path, work: Path, again: bool, console: Console) -> None:
    """Look for one bug unless its result is kept, and keep what became of it."""
    from importlib import metadata

    import msgspec

    from barrier_tck.harness.support.root_seed import new_seed
    from barrier_tck.harness.yardstick.looking import look_for
    from barrier_tck.harness.yardstick.results import Result, write_result, written_by_hand
    from barrier_tck.harness.yardstick.running import InEnvironments

    if again:
        before = Result(bug.id, bug.pyspark, bug.compared, lacks=written_by_hand(out, bug.id))
    else:
        kept = _kept(out, bug)
        if kept is not None and kept.is_over(seconds):
            console.print(f"{_line(bug, kept)} (kept)", markup=False, soft_wrap=True)
            return
        before = kept or Result(bug.id, bug.pyspark, bug.compared)
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    (work / ".gitignore").write_text("*\n")
    console.print(f"looking for {bug.id} in PySpark {bug.pyspark or 'none'}", markup=False)

    def keep(result: Result) -> None:
        today = datetime.now(UTC).date().isoformat()
        write_result(
            out, msgspec.structs.replace(result, on=today, with_version=metadata.version("barrier-tck"))
        )

    result = look_for(bug, before, seconds, InEnvironments(out, work), new_seed, keep)
    console.print(_line(bug, result), markup=False, soft_wrap=True)


def _kept(out: Path, bug: KnownBug) -> Result | None:
    """Return the result of a bug that is kept, without what a person has dismissed."""
    from barrier_tck.harness.yardstick.looking import reconsidered
    from barrier_tck.harness.yardstick.results import read_result

    result = read_result(out, bug)
    return None if result is None else reconsidered(result)


def _line(bug: KnownBug, result: Result | None) -> str:
    if result is None:
        became = "not tried yet"
    else:
        spent = (
            f" after {result.processor_seconds / 60:.1f} min, {result.tried} tried" if result.rounds else ""
        )
        became = f"{result.status.value}{spent}{f': {result.reason}' if result.reason else ''}"
    return f"{bug.id}  {bug.title}  [{bug.pyspark or 'no release'}]  {became}"
