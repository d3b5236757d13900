"""``barrier-tck verify-certificate``: whether a certificate holds for what is installed here."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.options import JsonOption
from barrier_tck.harness.cli.printing import console_for, emit, printable
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.third_party import search_working_directory

if TYPE_CHECKING:
    from barrier_tck.harness.certify.engine.identity import Identity


def verify_certificate(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="certificate.json, or the run directory with it.")
    ],
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="What is to be as certified. Default: the target that the certificate names.",
        ),
    ] = None,
    jars: Annotated[
        str, typer.Option("--jars", metavar="JAR,...", help="Where the jars of a Spark state store are now.")
    ] = "",
    level: Annotated[
        str,
        typer.Option(
            "--level",
            metavar="contract|crash|chaos",
            autocompletion=completion.LEVELS,
            help="Level for which the certificate is to hold. Default: the one that was asked for. What was reached "
            "before an interruption counts.",
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Say whether a certificate holds for the files here.

    It does if it follows from its outcomes, and if the files here are those that were certified. Nothing of the target
    is run. Exit code 0 if both hold, 1 if not, 2 if the files cannot be compared, 3 if the file is no certificate.

    \b
    Examples:
      barrier-tck verify-certificate runs/certify-20260101-120000
      barrier-tck verify-certificate certificate.json your_package.your_module:YourBackend
      barrier-tck verify-certificate runs/certify-20260101-120000 --level crash    chaos was interrupted
    """
    from barrier_tck.harness.certify.engine.levels import require_level
    from barrier_tck.harness.certify.engine.verification import read_certificate, verify

    console = console_for(as_json)
    if level:
        require_level(level)
    search_working_directory()
    certificate = read_certificate(file / "certificate.json" if file.is_dir() else file)
    named = target or certificate.target
    found = verify(certificate, named, _present(named, jars), metadata.version("barrier-tck"), level)
    subject = f"{certificate.kind} {certificate.target}, level {certificate.level or 'none'}"
    console.print(printable(f"{subject}, suite {certificate.suite_version}, seed {certificate.seed}"))
    files = len(certificate.files)
    origin = certificate.distribution or "not from an installed package"
    console.print(printable(f"certified: {files:,} {'file' if files == 1 else 'files'}, {origin}"))
    for problem in found.problems:
        console.print(printable(f"✗ {problem}"))
    for note in found.unsure:
        console.print(printable(f"? {note}"))
    compared = bool(certificate.files) and not any("not compared" in note for note in found.unsure)
    code = 1 if found.problems else 0 if compared else 2
    if code == 0:
        console.print(
            printable(f"✓ the certificate holds for {named}, level {level or certificate.asked_level}")
        )
    emit(
        as_json,
        {
            "holds": code == 0,
            "target": named,
            "level": certificate.level,
            "problems": list(found.problems),
            "unsure": list(found.unsure),
        },
    )
    raise typer.Exit(code)


def _present(target: str, jars: str) -> Identity:
    """Return the identity of what is here."""
    from barrier_tck.harness.certify.engine.identity import identity_of
    from barrier_tck.harness.certify.spark_store.targets import (
        identity_of_store,
        is_store_target,
        store_target,
    )
    from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
    from barrier_tck.harness.plan.storage_targets import SHIPPED_STORAGES
    from barrier_tck.harness.support.third_party import is_target, shown

    if is_store_target(target):
        return identity_of_store(store_target(target, [jar for jar in jars.split(",") if jar]))
    named = (SHIPPED_BACKENDS | SHIPPED_STORAGES).get(target, target)
    if not is_target(named):
        raise UsageProblem(f"{shown(target)} is no target; name it as MODULE:NAME")
    return identity_of(named)
