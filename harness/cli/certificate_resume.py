"""``--resume`` of ``certify`` and ``certify-storage``: what is taken from a run directory, and how it is advised."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.certify.engine.certificate import Certificate

CERTIFICATE = "certificate.json"
_RESUME, _OUT = "--resume", "--out"
_REPLACED = (_RESUME, _OUT)
"""Options that have a value, and no place in a command that goes on."""

ResumeOption = Annotated[
    Path | None,
    typer.Option(
        _RESUME,
        metavar="RUN_DIR",
        help="Go on with the interrupted certificate in this run directory, instead of a new one in --out: what passed "
        "or failed is not run again. Level, seed and --only are the certificate's. Refused if files of the target, "
        "its settings or the version of barrier-tck have changed.",
    ),
]


def to_resume(path: Path | None, strength: bool) -> Certificate | None:
    """Return the certificate that is gone on with; None if no directory is named.

    Raises UsageProblem if there is none, or if it is complete.
    """
    from barrier_tck.harness.certify.engine.continuation import is_complete
    from barrier_tck.harness.certify.engine.verification import read_certificate

    if path is None:
        return None
    if not (path / CERTIFICATE).is_file():
        raise UsageProblem(
            f"{path} has no {CERTIFICATE}: name the run directory of a certificate that was interrupted, or leave "
            f"{_RESUME} out to begin anew"
        )
    earlier = read_certificate(path / CERTIFICATE)
    if is_complete(earlier, strength):
        raise UsageProblem(
            f"{path} is complete, nothing is left to run: {earlier.verdict}; see: barrier-tck verify-certificate {path}"
        )
    return earlier


def resumed_line(earlier: Certificate, path: Path) -> str:
    """Say what of a certificate is not run again."""
    from barrier_tck.harness.certify.engine.continuation import ended

    count = len(ended(earlier))
    what = "1 property has ended and is" if count == 1 else f"{count} properties have ended and are"
    bugs = len(earlier.strength.caught) + len(earlier.strength.missed)
    measured = f", nor are {bugs} planted bugs" if bugs else ""
    valid = sum(len(outcome.trials) for outcome in earlier.outcomes)
    trials = (
        f", nor {'is' if valid == 1 else 'are'} {valid} trial{'s' * (valid > 1)} of chaos" if valid else ""
    )
    return f"resuming {path}: {what} not run again{trials}{measured}"


def command_to_resume(arguments: Sequence[str], path: Path) -> str:
    """Return the command that goes on with what the given arguments began."""
    kept: list[str] = []
    left_out = False
    for argument in arguments:
        if left_out:
            left_out = False
        elif argument in _REPLACED:
            left_out = True
        elif not argument.startswith(tuple(f"{option}=" for option in _REPLACED)):
            kept.append(argument)
    return shlex.join(("barrier-tck", *kept, _RESUME, str(path)))


def last_interrupted(out: Path, command: str, target: str) -> Path | None:
    """Return the newest run directory of a command, if the certificate in it is of this target and was interrupted."""
    from barrier_tck.harness.certify.engine.verification import read_certificate

    found = sorted(out.glob(f"{command}-[0-9]*/{CERTIFICATE}"), key=lambda file: file.stat().st_mtime_ns)
    if not found:
        return None
    try:
        last = read_certificate(found[-1])
    except UsageProblem:
        return None  # another release wrote it
    same = last.target + last.arguments == target
    return found[-1].parent if last.interrupted and same else None
