"""Whether a certificate holds: what it says follows from its outcomes, and the files are those that were certified."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from barrier_tck.harness.certify.engine.certificate import (
    CERTIFICATE_VERSION,
    Certificate,
    achieved,
    clause_results,
    verdict_of,
)
from barrier_tck.harness.certify.engine.identity import Identity
from barrier_tck.harness.certify.engine.levels import LEVELS
from barrier_tck.harness.support.errors import UsageProblem

_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found."""

    problems: tuple[str, ...]
    """Why the certificate does not hold for what is there."""
    unsure: tuple[str, ...]
    """What could not be compared."""


def read_certificate(path: Path) -> Certificate:
    """Read ``certificate.json``; raises UsageProblem if it is none, or that of a newer release."""
    try:
        certificate = msgspec.json.decode(path.read_bytes(), type=Certificate)
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageProblem(f"{path} is no certificate: {error}") from error
    if certificate.version > CERTIFICATE_VERSION:
        raise UsageProblem(
            f"{path} has version {certificate.version}; this release reads up to {CERTIFICATE_VERSION}"
        )
    if certificate.asked_level not in LEVELS:
        raise UsageProblem(f"{path} asks for the level {certificate.asked_level!r}, which there is not")
    return certificate


def verify(
    certificate: Certificate, target: str, present: Identity, suite_version: str, level: str = ""
) -> Verification:
    """Compare a certificate with itself and with the target that is present, of which nothing is run.

    ``level``: for which level it is to hold; empty: for the one that was asked for. What was reached below a level that
    was not finished, because of an interruption or a violation, is no less shown.
    """
    problems = [*_contradictions(certificate), *_why_not(certificate, level)]
    if target != certificate.target:  # one file may have several
        problems.append(f"{certificate.target} was certified, and not {target}")
    unsure = []
    if not certificate.files:
        unsure.append("it names no files, so it does not say what was certified")
    elif not present.files:
        unsure.append("the candidate is not there, so its files were not compared")
    else:
        problems += differences(certificate.files, present.files)
        if certificate.distribution != present.distribution:
            problems.append(
                f"{certificate.distribution or 'no distribution'} was certified, and "
                f"{present.distribution or 'none'} is installed"
            )
    if certificate.suite_version != suite_version:
        unsure.append(
            f"it is by the suite of version {certificate.suite_version}, and this is {suite_version}, which may "
            "ask for more"
        )
    return Verification(tuple(problems), tuple(unsure))


def _contradictions(certificate: Certificate) -> list[str]:
    """Return where a certificate says more than its outcomes."""
    outcomes, asked = certificate.outcomes, certificate.asked_level
    said = {"level": certificate.level, "verdict": certificate.verdict}
    follow = {"level": achieved(outcomes), "verdict": verdict_of(outcomes, asked)}
    problems = [
        f"it says {name} {said[name] or 'none'}, but {follow[name] or 'none'} follows from its outcomes"
        for name in said
        if said[name] != follow[name]
    ]
    results = {result.clause: result.status for result in clause_results(outcomes, asked)}
    problems += [
        f"it says that {result.clause} is {result.status}, but {results.get(result.clause, 'nothing')} follows from "
        "its outcomes"
        for result in certificate.clauses
        if result.status != results.get(result.clause)
    ]
    return problems


def _why_not(certificate: Certificate, level: str) -> list[str]:
    """Return why a certificate does not hold for a level, or for the one that was asked for."""
    reached = achieved(certificate.outcomes)
    if level and reached is not None and LEVELS.index(reached) >= LEVELS.index(level):
        return []
    problems = [f"it reached {reached or 'no level'}, and not {level}"] if level else []
    if certificate.verdict != "certified":
        problems.append(_not_certified(certificate))
    if certificate.interrupted:
        problems.append("the certification was interrupted")
    if not level and problems and reached is not None:
        problems.append(f"it reached the level {reached}: with --level {reached} it is asked for no more")
    return problems


def _not_certified(certificate: Certificate) -> str:
    """Return why nothing is certified: only some properties were asked for, or some did not pass."""
    if not certificate.only or certificate.verdict == "failed":
        return f"its verdict is {certificate.verdict}"
    asked = len(certificate.only)
    what = "1 property was" if asked == 1 else f"{asked} properties were"
    return f"only {what} checked, so nothing was certified"


def differences(certified: dict[str, str], present: dict[str, str]) -> list[str]:
    """Return which files changed, are missing, or are new, a sentence for each of these kinds."""
    kinds = {
        "changed": [name for name in certified if name in present and present[name] != certified[name]],
        "missing": [name for name in certified if name not in present],
        "not certified": [name for name in present if name not in certified],
    }
    return [
        f"{len(names)} file{'s' * (len(names) > 1)} {kind}: {', '.join(names[:_NAMED_MAX])}"
        + (", ..." if len(names) > _NAMED_MAX else "")
        for kind, names in kinds.items()
        if names
    ]
