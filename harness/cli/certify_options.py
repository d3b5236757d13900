"""The options of ``barrier-tck certify``. Loads nothing heavy before the command runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from barrier_tck.harness.support.errors import UsageProblem


def add_certify_command(
    app: typer.Typer,
    console_for: Callable[[bool], Console],
    emit: Callable[[bool, dict[str, Any]], None],
) -> None:
    """Add the command; the command line hands in where it prints."""

    def certify(
        target: Annotated[
            str | None,
            typer.Argument(metavar="MODULE:NAME", help="What makes the backend, or: heap, rocksdb."),
        ] = None,
        level: Annotated[
            str, typer.Option("--level", metavar="contract|crash|chaos", help="Highest level to certify.")
        ] = "crash",
        seed: Annotated[
            int, typer.Option("--seed", metavar="N", help="Seed of all drawn examples.")
        ] = 20_260_101,
        out: Annotated[
            Path, typer.Option("--out", metavar="DIR", help="Where the new run directory is created.")
        ] = Path("runs"),
        require: Annotated[
            str,
            typer.Option("--require", metavar="NAME,...", help="Capabilities that the backend must declare."),
        ] = "",
        spark: Annotated[
            bool,
            typer.Option(
                "--spark/--no-spark",
                help="Run trials on a Spark cluster for the level chaos, or stop below it.",
            ),
        ] = True,
        strength: Annotated[
            bool,
            typer.Option(
                "--strength/--no-strength", help="Run the suite's planted bugs, for the certificate."
            ),
        ] = True,
        call_timeout: Annotated[
            float, typer.Option("--call-timeout", metavar="S", help="Seconds that one call may take.")
        ] = 20.0,
        replay_file: Annotated[
            Path | None,
            typer.Option("--replay", metavar="FILE.json", help="Repeat a failing sequence instead."),
        ] = None,
        as_json: Annotated[
            bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")
        ] = False,
    ) -> None:
        """Certify a state backend: in a process of its own, clause by clause, up to a level.

        Exit code 0 if the level was reached, 1 if a property failed, 2 if nothing can be said, 3 if the target
        does not import, is no backend, or lacks a capability, or if chaos is asked for and there is no Java.

        \b
        Examples:
          barrier-tck certify heap
          barrier-tck certify barrier_tck_lmdb:LmdbStateBackend --level chaos
          barrier-tck certify --replay runs/certify-20260101-120000/snapshots-are-isolated.json
        """
        from barrier_tck.harness.certify import run_certification as command
        from barrier_tck.reports.certificate_page import write_certificate

        console = console_for(as_json)
        if replay_file is not None:
            code, value = command.run_replay(replay_file, target, console)
            emit(as_json, value)
            raise typer.Exit(code)
        if target is None:
            raise UsageProblem("name a backend as MODULE:NAME, for instance: barrier-tck certify heap")
        certificate, value = command.run_certify(
            target, level, seed, out, require, spark, strength, call_timeout, console, write_certificate
        )
        emit(as_json, value)
        raise typer.Exit(command.EXIT_CODES[certificate.verdict])

    # Typer reads the annotations of the function, whose names are those of this module.
    app.command("certify")(certify)
