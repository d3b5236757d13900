"""Runs a certification, with levels and properties in order, each property with its own seed; also runs replays."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.harness.certify import chaos
from barrier_tck.harness.certify.certificate import (
    CERTIFICATE_VERSION,
    PLAN_SUFFIX,
    Certificate,
    PropertyOutcome,
    Strength,
    achieved,
    clause_results,
    verdict_of,
)
from barrier_tck.harness.certify.declared_capabilities import CAPABILITIES, CONCURRENT
from barrier_tck.harness.certify.hunting import Failure, check, play, skipped
from barrier_tck.harness.certify.pool import (
    Candidate,
    CandidateDied,
    CandidateRaised,
    Limits,
    Pool,
)
from barrier_tck.harness.certify.properties import LEVELS, PROPERTIES
from barrier_tck.harness.certify.session_steps import AnyStep
from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.outside import is_target, shown
from barrier_tck.harness.support.strict_input import nearest

DEFAULT_SEED = 20_260_101
TOTAL_S = {"contract": 600.0, "crash": 1_200.0, "chaos": 2_400.0}
"""Level -> total time in seconds; properties that are left after it are unknown."""
_STARTS = "the-backend-can-be-made"

Progress = Callable[[PropertyOutcome], None]
"""Called with the outcome of every property as soon as it is known."""


def require_target(target: str) -> None:
    """Raise UsageProblem unless the target has the form MODULE:NAME, or is a short name."""
    if target not in SHIPPED_BACKENDS and not is_target(target):
        known = ", ".join(SHIPPED_BACKENDS)
        raise UsageProblem(
            f"{shown(target)} is not the name of a backend; use MODULE:NAME, or one of: {known}"
        )


def require_level(level: str) -> None:
    """Raise UsageProblem for a level that does not exist."""
    if level not in LEVELS:
        raise UsageProblem(f"--level is {level!r}{nearest(level, LEVELS)}")


def seed_of(seed: int, name: str) -> int:
    """Return a property's own seed, so that an additional property does not change the examples of others."""
    return zlib.crc32(f"{seed} {name}".encode())


def probe(target: str, limits: Limits | None = None) -> dict[str, Any]:
    """Make the backend once, in its own process; return its name and capabilities.

    Raises UsageProblem if the target is no backend, CandidateDied or CandidateRaised if making it fails.
    """
    pool = Pool(target, limits)
    try:
        return _loaded(pool)
    finally:
        pool.close()


def _loaded(pool: Pool) -> dict[str, Any]:
    candidate = None
    try:
        candidate = Candidate(pool.target, pool.limits)
        return candidate.load()
    except CandidateRaised as error:
        if error.kind in ("import", "no-backend"):
            raise UsageProblem(str(error)) from error
        raise
    finally:
        if candidate is not None:
            candidate.kill()
            pool.log = candidate.log()


def certify(
    target: str,
    level: str = "crash",
    seed: int = DEFAULT_SEED,
    directory: Path | None = None,
    limits: Limits | None = None,
    require: tuple[str, ...] = (),
    spark: bool = True,
    scale: float = 1.0,
    progress: Progress = lambda outcome: None,
) -> Certificate:
    """Certify a backend up to a level; replay files go into ``directory``.

    A level is not begun if the level before it failed: then its outcomes are ``skipped``, with the reason. Raises
    UsageProblem if the target is no backend or lacks a required capability, EnvironmentProblem if Spark is needed but
    cannot run.
    """
    require_target(target)
    require_level(level)
    if level == "chaos" and spark:
        chaos.require_spark()
    began, started_at = time.monotonic(), datetime.now(UTC)
    pool = Pool(target, limits, TOTAL_S[level])
    outcomes: list[PropertyOutcome] = []
    name = ""
    capabilities: tuple[str, ...] = ()

    def add(outcome: PropertyOutcome) -> None:
        outcomes.append(outcome)
        progress(outcome)

    try:
        try:
            loaded = _loaded(pool)
        except (CandidateDied, CandidateRaised) as error:
            add(_cannot_be_made(str(error)))
        else:
            name, capabilities = str(loaded["name"]), tuple(loaded["capabilities"])
            _require_capabilities(target, capabilities, require)
            add(PropertyOutcome(_STARTS, "contract", (), _STARTS_TEXT, "passed"))
        _run_levels(level, seed, pool, directory, spark, scale, capabilities, outcomes, add)
        log = pool.log
    finally:
        pool.close()
    return Certificate(
        version=CERTIFICATE_VERSION,
        suite_version=environment()["barrier-tck"],
        target=target,
        backend=name,
        capabilities=capabilities,
        asked_level=level,
        level=achieved(outcomes),
        verdict=verdict_of(outcomes, level),
        outcomes=tuple(outcomes),
        clauses=clause_results(outcomes, level),
        seed=seed,
        seconds=round(time.monotonic() - began, 2),
        started_at=started_at.isoformat(timespec="seconds"),
        environment=environment(),
        strength=Strength(measured=False, note="not measured in this run"),
        log=log,
    )


_STARTS_TEXT = "The target can be imported and makes a backend in time, without ending its process."


def _cannot_be_made(reason: str) -> PropertyOutcome:
    return PropertyOutcome(_STARTS, "contract", (), _STARTS_TEXT, "failed", reason)


def _require_capabilities(target: str, declared: tuple[str, ...], required: tuple[str, ...]) -> None:
    unknown = [name for name in required if name not in CAPABILITIES]
    if unknown:
        raise UsageProblem(f"--require names {unknown[0]!r}{nearest(unknown[0], CAPABILITIES)}")
    missing = [name for name in required if name not in declared]
    if missing:
        has = ", ".join(declared) or "none"
        raise UsageProblem(
            f"{target} does not declare the capabilities {', '.join(missing)}; it declares {has}"
        )


def _run_levels(
    asked: str,
    seed: int,
    pool: Pool,
    directory: Path | None,
    spark: bool,
    scale: float,
    capabilities: tuple[str, ...],
    outcomes: list[PropertyOutcome],
    add: Progress,
) -> None:
    for level in LEVELS:
        own = [one for one in PROPERTIES if one.level == level]
        reason = _why_not(level, asked, outcomes)
        if reason:
            for one in own:
                add(skipped(one, reason))
            if level == "chaos":
                for name in (chaos.SIMULATED, chaos.SPARK):
                    add(chaos.skipped(name, reason))
            continue
        for one in own:
            if _cannot_open(outcomes):
                reason = "no store could be opened, see above"
                add(skipped(one, reason))
                continue
            broken = frozenset(outcome.violated for outcome in outcomes)
            outcome, failure = check(
                one, pool, seed_of(seed, one.name), scale, declared=capabilities, broken=broken
            )
            add(_saved(outcome, failure, directory))
        if level == "chaos":
            _run_chaos(seed, pool, directory, spark, scale, capabilities, add)


def _cannot_open(outcomes: list[PropertyOutcome]) -> bool:
    """Tell whether a property failed before its first step; then all others would fail too, each after a time limit."""
    return any(o.status == "failed" and not o.sequence and o.name != _STARTS for o in outcomes)


def _run_chaos(
    seed: int,
    pool: Pool,
    directory: Path | None,
    spark: bool,
    scale: float,
    capabilities: tuple[str, ...],
    add: Progress,
) -> None:
    concurrent = CONCURRENT in capabilities
    outcome, plan = chaos.check_simulated(
        pool, seed_of(seed, chaos.SIMULATED), concurrent, max(1, round(scale * chaos.SIMULATED_TRIALS))
    )
    add(_plan_saved(outcome, plan, directory))
    if outcome.status != "passed":
        add(chaos.skipped(chaos.SPARK, f"{outcome.name} did not pass"))
    elif not spark:
        add(chaos.skipped(chaos.SPARK, "switched off with --no-spark"))
    else:
        outcome, plan = chaos.check_on_spark(pool, seed)
        add(_plan_saved(outcome, plan, directory))


def _plan_saved(outcome: PropertyOutcome, plan: TrialPlan | None, directory: Path | None) -> PropertyOutcome:
    if plan is None or directory is None:
        return outcome
    path = directory / f"{outcome.name}{PLAN_SUFFIX}"
    write_atomically(path, to_json(plan).encode())
    return msgspec.structs.replace(outcome, replay=path.name)


def _why_not(level: str, asked: str, outcomes: list[PropertyOutcome]) -> str:
    """Return why a level is not run, or an empty text."""
    if LEVELS.index(level) > LEVELS.index(asked):
        return f"the level {level} was not asked for"
    failed = [outcome.name for outcome in outcomes if outcome.status == "failed"]
    if failed and (level != "contract" or failed == [_STARTS]):
        return f"{failed[0]} failed"
    return ""


def _saved(outcome: PropertyOutcome, failure: Failure | None, directory: Path | None) -> PropertyOutcome:
    if failure is None or directory is None:
        return outcome
    path = directory / f"{outcome.name}.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(failure), indent=2) + b"\n")
    return msgspec.structs.replace(outcome, replay=path.name)


def read_failure(path: Path) -> Failure:
    """Read a replay file; raises UsageProblem if it is no replay file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Failure)
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}; name a replay file") from error
    except msgspec.DecodeError as error:
        raise UsageProblem(f"{path} is not a replay file of a certification: {error}") from error


def replay(
    failure: Failure,
    target: str | None = None,
    limits: Limits | None = None,
    tell: Callable[[int, AnyStep], None] | None = None,
) -> str | None:
    """Play a saved sequence again; return what is violated, or None. Raises UsageProblem if the target is no backend.

    ``tell`` is told of each step, by its number from 1, before it is played.
    """
    chosen = target or failure.target
    require_target(chosen)
    pool = Pool(chosen, limits, 300.0)
    try:
        try:
            _loaded(pool)
        except (CandidateDied, CandidateRaised) as error:
            return f"the backend could not be made: {error}"
        violation = play(pool, failure.steps, tell)
        return None if violation is None else str(violation)
    finally:
        pool.close()
