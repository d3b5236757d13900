"""How certificates are printed and written: for people, as a page, and as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console

from barrier_tck.harness.cli.certificate_resume import CERTIFICATE, last_interrupted, resumed_line
from barrier_tck.harness.cli.printing import emit, printable
from barrier_tck.harness.cli.signals import sigterm_like_ctrl_c
from barrier_tck.harness.record.run_directory import held
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem

if TYPE_CHECKING:
    from barrier_tck.harness.certify.engine.certificate import (
        Certificate,
        ClauseResult,
        PropertyOutcome,
        Strength,
    )
    from barrier_tck.harness.certify.engine.failure import Failure
    from barrier_tck.harness.certify.engine.planted_bugs import KeepStrength
    from barrier_tck.harness.certify.engine.playing import Watch

_EXIT_CODES = {"certified": 0, "failed": 1, "unknown": 2}
"""Verdict of a certificate -> exit code."""
_PAGE, _JUNIT = "certificate.html", "junit.xml"
_SIGNS = {"passed": "✓", "failed": "✗", "unknown": "?", "skipped": "–"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks of a certification."""

    level: str
    seed: int
    path: Path
    """The run directory."""
    require: tuple[str, ...]
    only: tuple[str, ...]
    strength: bool
    call_timeout_s: float
    progress: Callable[[PropertyOutcome], None]
    to_resume: str
    """The command that goes on with it, after an interruption."""
    earlier: Certificate | None = None
    """The interrupted certificate that is gone on with."""


def certified(
    run: Callable[[Callable[[Certificate], None]], Certificate],
    measure: Callable[[Strength, KeepStrength], Strength] | None,
    path: Path,
    console: Console,
    to_resume: str,
) -> Certificate:
    """Run a certification, and measure the strength of its suite unless ``measure`` is None.

    What was shown so far is kept in a directory meanwhile: ``run`` is given the function that keeps it, and ``measure``
    what was measured before an interruption and the function that keeps it. If nothing can be certified, the directory,
    which is empty then, is removed. Raises UsageProblem if another command writes into the directory.
    """
    with held(path), sigterm_like_ctrl_c():
        return _certified(run, measure, path, console, to_resume)


def _certified(
    run: Callable[[Callable[[Certificate], None]], Certificate],
    measure: Callable[[Strength, KeepStrength], Strength] | None,
    path: Path,
    console: Console,
    to_resume: str,
) -> Certificate:
    from barrier_tck.harness.certify.engine.planted_bugs import NO_STRENGTH, NOT_YET

    reached: str | None = None

    def keep(so_far: Certificate) -> None:
        nonlocal reached
        reached = so_far.level
        _keep(so_far, path)

    try:
        certificate = run(keep)
        if measure is None or certificate.strength.measured:
            return certificate

        def keep_strength(so_far: Strength) -> None:
            _keep(msgspec.structs.replace(certificate, strength=so_far), path)

        before = certificate.strength if certificate.strength.note == NOT_YET else NO_STRENGTH
        keep_strength(before)
        return msgspec.structs.replace(certificate, strength=measure(before, keep_strength))
    except (UsageProblem, EnvironmentProblem):
        if not any(path.iterdir()):
            path.rmdir()
        raise
    except KeyboardInterrupt:
        if reached is not None:
            console.print(
                f"the level {reached} was reached; barrier-tck verify-certificate {path} --level {reached} holds it",
                markup=False,
            )
        if (path / _PAGE).is_file():
            console.print(f"interrupted; what was shown is kept: {path / _PAGE}", markup=False)
            # Kept on one line, however narrow the terminal is: people paste it.
            console.print(f"to go on: {to_resume}", markup=False, soft_wrap=True)
        raise


def output_certificate(certificate: Certificate, path: Path, console: Console, as_json: bool) -> int:
    """Write a certificate and its page into a directory, print what it says, and return the exit code."""
    _keep(certificate, path)
    _print_result(console, certificate, path)
    emit(as_json, _summary(certificate, path))
    return _EXIT_CODES[certificate.verdict] if not certificate.only else _code_of_only(certificate)


def _code_of_only(certificate: Certificate) -> int:
    """Return the exit code of a run of a few properties: that of the worst of them."""
    statuses = {one.status for one in certificate.outcomes if one.name in certificate.only}
    return 1 if "failed" in statuses else 0 if statuses == {"passed"} else 2


def _keep(certificate: Certificate, path: Path) -> None:
    """Write a certificate and its page into a directory, over those that are there."""
    from barrier_tck.reports.certificate_junit import certificate_as_junit
    from barrier_tck.reports.certificate_page import write_certificate

    write_atomically(path / CERTIFICATE, _as_json(certificate))
    write_atomically(path / _JUNIT, certificate_as_junit(certificate).encode("utf-8", "backslashreplace"))
    write_certificate(certificate, path / _PAGE)


def output_replay(
    failure: Failure[Any],
    replay: Callable[[Watch[Any]], str | None],
    console: Console,
    as_json: bool,
) -> int:
    """Play a saved failure again, print its steps and what they violate, and return the exit code."""

    idle: list[int] = []

    def print_step(number: int, step: Any) -> Callable[[bool], None]:
        console.print(printable(f"    {number}. {step.description()}"), markup=False)

        def passed(did_something: bool) -> None:
            if not did_something:
                idle.append(number)
                console.print("       did nothing: it was not possible then", markup=False)

        return passed

    console.print(f"{failure.property}: {len(failure.steps)} steps", markup=False)
    violation = replay(print_step)
    passed = "nothing is violated"
    if idle:
        passed += f", but {len(idle)} of {len(failure.steps)} steps did nothing"
    if any(getattr(step, "of_threads", False) for step in failure.steps):
        passed = "nothing was violated this time; threads meet in another way in each run, so repeat it a few times"
    result = passed if violation is None else f"✗ {violation}"
    console.print(printable(result), markup=False)
    verdict = "failed" if violation is not None else "passed"
    emit(
        as_json,
        {
            "verdict": verdict,
            "property": failure.property,
            "violation": violation,
            "recorded": failure.violation,
        },
    )
    return 1 if violation is not None else 0


def short(path: Path) -> Path:
    """Return a path below the current directory as people would type it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path


def _as_json(certificate: Certificate) -> bytes:
    """Return the certificate as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(certificate), indent=2) + b"\n"


def _summary(certificate: Certificate, path: Path) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    from barrier_tck.harness.certify.engine.certificate import levels_took, replay_line

    outcomes = certificate.outcomes
    return {
        "verdict": certificate.verdict,
        "level": certificate.level,
        "asked_level": certificate.asked_level,
        "backend": certificate.backend,
        "target": certificate.target,
        "seed": certificate.seed,
        "seconds": certificate.seconds,
        "levels": {
            took.level: {
                "seconds": round(took.seconds, 2),
                "processor_seconds": round(took.processor_seconds, 2),
            }
            for took in levels_took(outcomes)
        },
        "distribution": certificate.distribution,
        "files": len(certificate.files),
        "clauses": {result.clause: result.status for result in certificate.clauses},
        "properties": {outcome.name: outcome.status for outcome in outcomes},
        "shown": {result.clause: result.times for result in certificate.clauses},
        "strength": msgspec.to_builtins(certificate.strength),
        "failed": [
            {
                "property": outcome.name,
                "clauses": list(outcome.clauses),
                "violated": outcome.violated,
                "reason": outcome.reason,
                "sequence": list(outcome.sequence),
                "replay": str(path / outcome.replay) if outcome.replay else None,
                "replay_line": replay_line(outcome, certificate.target + certificate.arguments, f"{path}/")
                or None,
            }
            for outcome in outcomes
            if outcome.status == "failed"
        ],
        "certificate": str(path / CERTIFICATE),
        "page": str(path / _PAGE),
        "junit": str(path / _JUNIT),
    }


def beginning(begins: str, path: Path, command: str, target: str, earlier: Certificate | None) -> str:
    """Return what is printed when the target was found: what begins or goes on, or how one could go on instead."""
    if earlier is not None:
        return f"{resumed_line(earlier, path)}\n{begins}"
    last = last_interrupted(path.parent, command, target)
    if last is None:
        return begins
    return f"{begins}\n{last} was interrupted; --resume {last} would go on with it instead"


def printed_outcomes(
    console: Console, begins: str, target: str, path: Path, only: Sequence[str]
) -> Callable[[PropertyOutcome], None]:
    """Return what prints each outcome, and before the first one, when the target was found, what is certified.

    Of what ``--only`` leaves out nothing is printed, and a level that was not asked for has one line in the end.
    """
    announced = False

    def progress(outcome: PropertyOutcome) -> None:
        nonlocal announced
        if not announced:
            console.print(begins, markup=False)
            announced = True
        if not _is_of_higher_level(outcome) and (
            not only or outcome.name in only or outcome.status == "failed"
        ):
            _print_outcome(console, outcome, target, path)

    return progress


def _is_of_higher_level(outcome: PropertyOutcome) -> bool:
    """Return whether a property was skipped because its level was not asked for."""
    return outcome.status == "skipped" and outcome.reason == f"the level {outcome.level} was not asked for"


def _levels_not_asked_for(certificate: Certificate) -> str:
    """Return a line that counts the properties of levels that were not asked for; empty if there are none."""
    counts = Counter(one.level for one in certificate.outcomes if _is_of_higher_level(one))
    levels = [
        f"{level} ({number} {'property' if number == 1 else 'properties'})"
        for level, number in counts.items()
    ]
    return f"{_SIGNS['skipped']} not asked for: {', '.join(levels)}" if levels else ""


def _print_outcome(console: Console, outcome: PropertyOutcome, target: str, path: Path) -> None:
    """Print what became of one property, and the line that repeats a failure."""
    from barrier_tck.harness.certify.engine.certificate import replay_line

    facts = [outcome.status]
    if outcome.examples:
        unit = "trial" if outcome.level == "chaos" else "example"
        facts.append(f"{outcome.examples} {unit}{'s' * (outcome.examples > 1)}")
        facts.append(f"{outcome.seconds:.1f} s")
    elif outcome.status == "skipped":
        facts.append(outcome.reason)
    clauses = outcome.violated or " ".join(outcome.clauses)
    named = f"{outcome.name} ({clauses})" if clauses else outcome.name
    line = f"{_SIGNS[outcome.status]} {outcome.level:<9}{named}: {', '.join(facts)}"
    console.print(printable(line), markup=False)
    if outcome.status in ("failed", "unknown"):
        console.print(printable(f"    {outcome.reason}"), markup=False)
    for situation, why in outcome.not_asked.items():
        console.print(printable(f"    not asked: {situation}; {why}"), markup=False)
    for number, step in enumerate(outcome.sequence, 1):
        console.print(printable(f"    {number}. {step}"), markup=False)
    line = replay_line(outcome, target, f"{path}/")
    if line:
        # Kept on one line, however narrow the terminal is: people paste it.
        console.print(f"    repeat: {line}", markup=False, soft_wrap=True)


def _print_result(console: Console, certificate: Certificate, path: Path) -> None:
    not_asked_for = _levels_not_asked_for(certificate)
    if not_asked_for and not certificate.only:
        console.print(not_asked_for, markup=False)
    for result in certificate.clauses:
        if certificate.only and result.status == "skipped":
            continue
        console.print(printable(_clause_rendered(result)), markup=False)
    console.print(printable(_strength_rendered(certificate)), markup=False)
    took = _took_rendered(certificate)
    if took:
        console.print(took, markup=False)
    if certificate.only:
        line = _subset_rendered(certificate)
    elif certificate.verdict == "certified":
        line = f"certified: level {certificate.level}"
    else:
        reached = (
            f"only level {certificate.level} was reached" if certificate.level else "no level was reached"
        )
        line = f"{certificate.verdict}: {reached}, but {certificate.asked_level} was asked for"
    console.print(f"{line}; {certificate.seconds:.0f} s", markup=False)
    console.print(f"certificate: {path / _PAGE}", markup=False)


def _clause_rendered(result: ClauseResult) -> str:
    """Return what became of a clause, or of a promise of a candidate without clauses."""
    need = "required" if result.required else "optional"
    if result.status == "shown":
        times, count = result.times, len(result.shown_by)
        return (
            f"{result.clause}  holds in {times:,} {'comparison' if times == 1 else 'comparisons'} of "
            f"{count} {'property' if count == 1 else 'properties'} ({need})"
        )
    reason = f" ({result.reason.splitlines()[0]})" if result.reason else ""
    return f"{result.clause}  {result.status}, {need}{reason}"


def _subset_rendered(certificate: Certificate) -> str:
    """Return what became of a few properties: no certificate failed, because none was asked for."""
    by_status: dict[str, list[str]] = {}
    for one in certificate.outcomes:
        if one.name in certificate.only:
            by_status.setdefault(one.status, []).append(one.name)
    counts = [
        f"{len(names)} {status}" + (f" ({', '.join(names)})" if status != "passed" else "")
        for status, names in by_status.items()
    ]
    asked = len(certificate.only)
    what = "1 property was" if asked == 1 else f"{asked} properties were"
    return f"only {what} checked: {', '.join(counts) or 'none was reached'}; nothing is certified by that"


def _took_rendered(certificate: Certificate) -> str:
    """Return a line that says what each level took; empty if nothing was run."""
    from barrier_tck.harness.certify.engine.certificate import levels_took

    levels = [
        f"{took.level} {took.seconds:,.0f} s"
        + (f" ({took.processor_seconds:,.0f} s of CPU)" if took.processor_seconds else "")
        for took in levels_took(certificate.outcomes)
    ]
    return f"took: {', '.join(levels)}" if levels else ""


def _strength_rendered(certificate: Certificate) -> str:
    """Return a line that says which planted bugs the suite caught."""
    from barrier_tck.harness.certify.engine.certification import NOT_MEASURED

    strength = certificate.strength
    if not strength.measured and strength.note == NOT_MEASURED:
        option = "--only" if certificate.only else "--no-strength"
        return f"planted bugs: not run ({'interrupted before them' if certificate.interrupted else option})"
    if not strength.measured:
        return f"planted bugs: not run ({strength.note})"
    planted = len(strength.caught) + len(strength.missed)
    missed = f"; missed: {', '.join(strength.missed)}" if strength.missed else ""
    note = f" ({strength.note})" if strength.note else ""
    return f"planted bugs: the suite caught {len(strength.caught)} of {planted}{missed}{note}"
