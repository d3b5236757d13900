"""The certificate as data: what was asked, what was found, with which seeds, counts and environment (CER-1)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from barrier_tck.harness.certify.properties import LEVELS, PropertyOutcome

CERTIFICATE_VERSION = 1
PLAN_SUFFIX = ".plan.json"
"""How the names of saved trial plans end; all other replay files hold sequences of calls."""


class ClauseResult(msgspec.Struct, frozen=True):
    """One clause: what its properties came to."""

    clause: str
    status: str
    """``passed``, ``failed``, ``unknown``, or ``skipped``."""
    required: bool
    """The level that was asked for requires it."""
    properties: tuple[str, ...]
    reason: str = ""


class Strength(msgspec.Struct, frozen=True):
    """How strong the suite is: its planted backend bugs, and which of them it caught (CER-2)."""

    measured: bool
    caught: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    note: str = ""


class Certificate(msgspec.Struct, frozen=True):
    """The result of a certification."""

    version: int
    suite_version: str
    target: str
    backend: str
    """The name that the backend gives itself; empty if it could not be made."""
    capabilities: tuple[str, ...]
    asked_level: str
    level: str | None
    """The highest level all of whose requirements passed; None: not certified."""
    verdict: str
    """``certified``, ``failed``, or ``unknown``, of the level that was asked for."""
    outcomes: tuple[PropertyOutcome, ...]
    clauses: tuple[ClauseResult, ...]
    seed: int
    seconds: float
    started_at: str
    environment: dict[str, str] = {}
    strength: Strength = Strength(measured=False)
    log: str = ""
    """The end of what the candidate printed."""


def replay_line(outcome: PropertyOutcome, directory: str = "") -> str:
    """Return the command that repeats a failure, for files below ``directory``; empty if nothing was saved."""
    if not outcome.replay:
        return ""
    file = f"{directory}{outcome.replay}"
    if not outcome.replay.endswith(PLAN_SUFFIX):
        return f"barrier-tck certify --replay {file}"
    return f"barrier-tck replay {file}" + (" --system reference-spark" if "spark" in outcome.name else "")


def achieved(outcomes: Sequence[PropertyOutcome]) -> str | None:
    """Return the highest level that passed: every property of it and of the levels below was run and passed.

    A skipped optional property (the backend declares no such thing) does not count; a level with nothing passed
    is none.
    """
    reached = None
    for level in LEVELS:
        own = [outcome for outcome in outcomes if outcome.level == level]
        required = [outcome for outcome in own if not _optional(outcome)]
        if not required or any(outcome.status != "passed" for outcome in required):
            return reached
        if any(outcome.status in ("failed", "unknown") for outcome in own):
            return reached
        reached = level
    return reached


def verdict_of(outcomes: Sequence[PropertyOutcome], asked: str) -> str:
    """Return ``certified`` only if the level asked for was reached."""
    reached = achieved(outcomes)
    if reached is not None and LEVELS.index(reached) >= LEVELS.index(asked):
        return "certified"
    return "failed" if any(outcome.status == "failed" for outcome in outcomes) else "unknown"


def clause_results(outcomes: Sequence[PropertyOutcome], asked: str) -> tuple[ClauseResult, ...]:
    """Return each clause that some property speaks for, in the order of first mention; the worst status wins."""
    severity = ("skipped", "passed", "unknown", "failed")
    names = dict.fromkeys(clause for outcome in outcomes for clause in outcome.clauses)
    found = []
    for clause in names:
        own = [outcome for outcome in outcomes if clause in outcome.clauses]
        status = max((outcome.status for outcome in own), key=severity.index)
        required = any(LEVELS.index(o.level) <= LEVELS.index(asked) and not _optional(o) for o in own)
        reasons = [f"{o.name}: {o.reason}" for o in own if o.status == status and o.reason]
        found.append(
            ClauseResult(clause, status, required, tuple(o.name for o in own), reasons[0] if reasons else "")
        )
    return tuple(found)


def _optional(outcome: PropertyOutcome) -> bool:
    """What a backend does not declare is not asked of it; what it declares must pass."""
    return outcome.status == "skipped" and outcome.optional
