"""The command ``barrier-tck certify``; ``harness.cli.main`` registers it and hands in what writes the page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from barrier_tck.harness.certify.certificate import Certificate, replay_line
from barrier_tck.harness.certify.planted import measure_strength
from barrier_tck.harness.certify.pool import Limits
from barrier_tck.harness.certify.properties import Outcome
from barrier_tck.harness.certify.suite import certify, read_failure, replay, require_level, require_target
from barrier_tck.harness.record.run_directory import make_output_directory, new_run_path, write_atomically
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem

EXIT_CODES = {"certified": 0, "failed": 1, "unknown": 2}
"""Verdict of a certificate -> exit code."""
_SIGNS = {"passed": "✓", "failed": "✗", "unknown": "?", "skipped": "–"}

WritePage = Callable[[Certificate, Path], None]
"""Writes the certificate as a page to a path."""


def run_certify(
    target: str,
    level: str,
    seed: int,
    out: Path,
    require: str,
    spark: bool,
    strength: bool,
    call_timeout_s: float,
    console: Console,
    write_page: WritePage,
) -> tuple[Certificate, dict[str, Any]]:
    """Certify, write ``certificate.json`` and ``certificate.html``, print; returns what ``--json`` prints.

    Raises UsageProblem if target or level cannot be, EnvironmentProblem without Java for chaos; nothing is left then.
    """
    require_target(target)
    require_level(level)
    if call_timeout_s <= 0:
        raise UsageProblem(f"--call-timeout is {call_timeout_s:g}; give seconds above 0")
    path = new_run_path(out, "certify", datetime.now())
    make_output_directory(path)
    console.print(f"certifying {target} up to {level}, seed {seed}, in {path}", markup=False)
    try:
        certificate = certify(
            target,
            level,
            seed,
            directory=path,
            limits=Limits(call_s=call_timeout_s),
            require=tuple(name.strip() for name in require.split(",") if name.strip()),
            spark=spark,
            progress=lambda outcome: _print_outcome(console, outcome, path),
        )
    except (UsageProblem, EnvironmentProblem):
        path.rmdir()
        raise
    if strength:
        certificate = msgspec.structs.replace(certificate, strength=measure_strength(seed))
    write_atomically(path / "certificate.json", as_json(certificate))
    write_page(certificate, path / "certificate.html")
    _print_result(console, certificate, path)
    return certificate, summary(certificate, path)


def run_replay(file: Path, target: str | None, console: Console) -> tuple[int, dict[str, Any]]:
    """Play a replay file again; returns the exit code and what ``--json`` prints."""
    failure = read_failure(file)
    violation = replay(failure, target)
    console.print(f"{failure.property}: {len(failure.steps)} steps", markup=False)
    console.print(violation or "nothing is violated any more", markup=False)
    verdict = "failed" if violation is not None else "passed"
    value = {
        "verdict": verdict,
        "property": failure.property,
        "violation": violation,
        "recorded": failure.violation,
    }
    return (1 if violation is not None else 0), value


def as_json(certificate: Certificate) -> bytes:
    """Return the certificate as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(certificate), indent=2) + b"\n"


def summary(certificate: Certificate, path: Path) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    outcomes = certificate.outcomes
    return {
        "verdict": certificate.verdict,
        "level": certificate.level,
        "asked_level": certificate.asked_level,
        "backend": certificate.backend,
        "target": certificate.target,
        "seed": certificate.seed,
        "seconds": certificate.seconds,
        "clauses": {result.clause: result.status for result in certificate.clauses},
        "properties": {outcome.name: outcome.status for outcome in outcomes},
        "failed": [
            {
                "property": outcome.name,
                "clauses": list(outcome.clauses),
                "reason": outcome.reason,
                "sequence": list(outcome.sequence),
                "replay": str(path / outcome.replay) if outcome.replay else None,
                "replay_line": replay_line(outcome, f"{path}/") or None,
            }
            for outcome in outcomes
            if outcome.status == "failed"
        ],
        "certificate": str(path / "certificate.json"),
        "page": str(path / "certificate.html"),
    }


def _print_outcome(console: Console, outcome: Outcome, path: Path) -> None:
    said = [outcome.status]
    if outcome.examples:
        said.append(f"{outcome.examples} {'trials' if outcome.level == 'chaos' else 'examples'}")
        said.append(f"{outcome.seconds:.1f} s")
    elif outcome.status == "skipped":
        said.append(outcome.reason)
    clauses = " ".join(outcome.clauses)
    line = f"{_SIGNS[outcome.status]} {outcome.level:<9}{outcome.name} ({clauses}): {', '.join(said)}"
    console.print(_printable(line), markup=False)
    if outcome.status in ("failed", "unknown"):
        console.print(_printable(f"    {outcome.reason}"), markup=False)
    for number, step in enumerate(outcome.sequence, 1):
        console.print(_printable(f"    {number}. {step}"), markup=False)
    line = replay_line(outcome, f"{path}/")
    if line:
        # One line, however narrow the terminal: it is there to be pasted.
        console.print(f"    repeat: {line}", markup=False, soft_wrap=True)


def _print_result(console: Console, certificate: Certificate, path: Path) -> None:
    for result in certificate.clauses:
        need = "required" if result.required else "optional"
        reason = f" ({result.reason.splitlines()[0]})" if result.reason else ""
        console.print(_printable(f"{result.clause}  {result.status}, {need}{reason}"), markup=False)
    if certificate.verdict == "certified":
        said = f"certified: level {certificate.level}"
    else:
        reached = (
            f"only level {certificate.level} was reached" if certificate.level else "no level was reached"
        )
        said = f"{certificate.verdict}: {reached}, {certificate.asked_level} was asked for"
    console.print(f"{said}; {certificate.seconds:.0f} s", markup=False)
    console.print(f"certificate: {path / 'certificate.html'}", markup=False)


def _printable(text: str) -> str:
    """Spell out control characters: an escape sequence of a candidate must not reach a terminal."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape", "backslashreplace").decode()
        for c in text
    )
