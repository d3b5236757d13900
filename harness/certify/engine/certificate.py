"""The certificate as data: what was asked for and what was found, with seeds, counts and environment (CER-1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from barrier_tck.harness.certify.engine.levels import LEVELS

CERTIFICATE_VERSION = 2
PLAN_SUFFIX = ".plan.json"
"""The ending of the names of saved trial plans; all other replay files contain sequences of calls."""


class TrialShown(msgspec.Struct, frozen=True):
    """A trial of the level chaos that was valid, of a property that has not ended."""

    plan: str
    """The SHA-256 of its plan: what was shown counts for the same plan only."""
    faults_fired: int
    shown: tuple[str, ...]
    """Clauses that it showed."""
    seconds: float
    processor_seconds: float = 0.0


class PropertyOutcome(msgspec.Struct, frozen=True):
    """The result of one property."""

    name: str
    level: str
    clauses: tuple[str, ...]
    """The clauses that it is meant to show."""
    text: str
    status: str
    """``passed``, ``failed``, ``unknown``, or ``skipped``."""
    reason: str = ""
    """Why it failed, was skipped, or is unknown."""
    examples: int = 0
    """Examples that failed or showed one of the clauses."""
    idle: int = 0
    """Examples that showed none of the clauses; they are not among ``examples``."""
    calls: int = 0
    processes: int = 0
    seconds: float = 0.0
    processor_seconds: float = 0.0
    """Processor seconds of the command and of all that it started meanwhile; 0 if it was not measured."""
    seed: int = 0
    shown: dict[str, int] = {}
    """How often each clause was shown by a comparison that could have failed."""
    reached: dict[str, int] = {}
    """Situation -> how often something was compared in it."""
    not_asked: dict[str, str] = {}
    """Situation that the property would demand -> why it cannot come about with this candidate."""
    violated: str = ""
    """The one clause that the failure breaks; it need not be one that the property is meant to show."""
    sequence: tuple[str, ...] = ()
    """The smallest failing sequence of calls, as text."""
    replay: str | None = None
    """Name of the replay file."""
    optional: bool = False
    """Whether it needs a capability that a backend need not declare; if the property was run, it must have passed."""
    trials: tuple[TrialShown, ...] = ()
    """The trials that were valid before an interruption, or before no verdict was possible; ``--resume`` does not run
    them again. Empty if it has passed or failed."""


class ClauseResult(msgspec.Struct, frozen=True):
    """The result of one clause."""

    clause: str
    status: str
    """``shown``, ``failed``, ``unknown``, or ``skipped``."""
    required: bool
    """Whether the level that was asked for requires it."""
    properties: tuple[str, ...]
    """All properties that are meant to show it."""
    reason: str = ""
    shown_by: tuple[str, ...] = ()
    """The properties that passed and showed it."""
    times: int = 0
    """How often they showed it, by comparisons that could have failed."""


class Strength(msgspec.Struct, frozen=True):
    """The strength of the suite: its planted bugs, and which of them it caught (CER-2)."""

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
    """The highest level of which every requirement passed; None if not certified."""
    verdict: str
    """``certified``, ``failed`` or ``unknown``, for the level that was asked for."""
    outcomes: tuple[PropertyOutcome, ...]
    clauses: tuple[ClauseResult, ...]
    seed: int
    seconds: float
    started_at: str
    environment: dict[str, str] = {}
    strength: Strength = Strength(measured=False)
    log: str = ""
    """The end of what the candidate printed."""
    kind: str = "state backend"
    """What was certified; or ``checkpoint storage``, or ``state store of Spark``."""
    arguments: str = ""
    """The options, besides the target, that name the candidate on a command line; begins with a space unless empty."""
    interrupted: bool = False
    """Whether the certification ended before everything was run; what was not run is ``skipped``."""
    distribution: str = ""
    """Name and version of the distribution that was certified; empty if it is not installed as one."""
    files: dict[str, str] = {}
    """Name -> SHA-256 of each file that was certified."""
    only: tuple[str, ...] = ()
    """If not empty, only these properties were to be checked, and nothing is certified."""
    resumed: tuple[str, ...] = ()
    """When it was gone on with after an interruption; what had passed or failed before was not run again."""
    asks: dict[str, str] = {}
    """Clause -> its text, for clauses that are not in the project's list."""


def replay_line(outcome: PropertyOutcome, target: str, directory: str = "") -> str:
    """Return the command that repeats a failure of a backend, for files below ``directory``; empty if none was saved.

    The command names the backend, because code that only a file names does not run.
    """
    if not outcome.replay:
        return ""
    file = f"{directory}{outcome.replay}"
    if not outcome.replay.endswith(PLAN_SUFFIX):
        return f"barrier-tck certify {target} --replay {file}"
    system = " --system reference-spark" if "spark" in outcome.name else ""
    return f"barrier-tck replay {file} --state-backend {target}{system}"


class LevelTook(NamedTuple):
    """What the properties of one level took together, whenever they were run."""

    level: str
    seconds: float
    processor_seconds: float


def levels_took(outcomes: Sequence[PropertyOutcome]) -> tuple[LevelTook, ...]:
    """Return what each level took of which a property was run; without the planted bugs, which are no level's."""
    took = []
    for level in LEVELS:
        own = [outcome for outcome in outcomes if outcome.level == level and outcome.seconds]
        if own:
            spent = sum(outcome.processor_seconds for outcome in own)
            took.append(LevelTook(level, sum(outcome.seconds for outcome in own), spent))
    return tuple(took)


def achieved(outcomes: Sequence[PropertyOutcome]) -> str | None:
    """Return the highest level that passed: all its properties, and those of the levels below, were run and passed.

    A skipped optional property (the backend does not declare the capability) does not count; a level without any
    passed property is not reached.
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
    """Return the verdict, which is ``certified`` only if the level that was asked for was reached."""
    reached = achieved(outcomes)
    if reached is not None and LEVELS.index(reached) >= LEVELS.index(asked):
        return "certified"
    return "failed" if any(outcome.status == "failed" for outcome in outcomes) else "unknown"


def clause_results(outcomes: Sequence[PropertyOutcome], asked: str) -> tuple[ClauseResult, ...]:
    """Return each clause that a property is meant to show or that a failure breaks, in order of first mention."""
    names = dict.fromkeys(
        clause for outcome in outcomes for clause in (*outcome.clauses, outcome.violated) if clause
    )
    return tuple(_clause_result(clause, outcomes, asked) for clause in names)


def _clause_result(clause: str, outcomes: Sequence[PropertyOutcome], asked: str) -> ClauseResult:
    """Return the result of one clause.

    A failure violates one clause. Other clauses of the failed property are unknown, whatever other properties showed.
    """
    own = [outcome for outcome in outcomes if clause in outcome.clauses]
    breaking = [outcome for outcome in outcomes if outcome.violated == clause]
    cut_short = [o for o in own if o.status == "unknown" or (o.status == "failed" and o.violated != clause)]
    showing = [outcome for outcome in own if outcome.status == "passed" and outcome.shown.get(clause)]
    if breaking:
        status, reason = "failed", f"{breaking[0].name}: {breaking[0].reason}"
    elif cut_short:
        first = cut_short[0]
        why = f"it violated {first.violated} before {clause} was shown" if first.violated else first.reason
        status, reason = "unknown", f"{first.name}: {why}"
    elif showing:
        status, reason = "shown", ""
    else:
        status, reason = "skipped", next((f"{o.name}: {o.reason}" for o in own if o.reason), "")
    return ClauseResult(
        clause,
        status,
        required=any(LEVELS.index(o.level) <= LEVELS.index(asked) and not _optional(o) for o in own),
        properties=tuple(outcome.name for outcome in own),
        reason=reason,
        shown_by=tuple(outcome.name for outcome in showing),
        times=sum(outcome.shown[clause] for outcome in showing),
    )


def _optional(outcome: PropertyOutcome) -> bool:
    """Return whether a property was skipped because the backend does not declare the capability that it needs."""
    return outcome.status == "skipped" and outcome.optional
