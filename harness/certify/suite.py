"""Runs a certification, with levels and properties in order, each property with its own seed; also runs replays."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.harness.certify import chaos
from barrier_tck.harness.certify.certificate import PLAN_SUFFIX, Certificate, PropertyOutcome
from barrier_tck.harness.certify.certification import (
    INTERRUPTED,
    Certification,
    Keep,
    Progress,
    Subject,
    drop_certificate,
    read_replay,
    saved,
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
from barrier_tck.harness.certify.properties import LEVELS, PROPERTIES, Property
from barrier_tck.harness.certify.session_steps import AnyStep
from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.outside import is_target, shown
from barrier_tck.harness.support.strict_input import nearest

DEFAULT_SEED = 20_260_101
TOTAL_S = {"contract": 600.0, "crash": 1_200.0, "chaos": 2_400.0}
"""Level -> total time in seconds; properties that are left after it are unknown."""
_STARTS = "the-backend-can-be-made"
_TRIALS = (chaos.SIMULATED, chaos.SPARK)


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
    keep: Keep = drop_certificate,
) -> Certificate:
    """Certify a backend up to a level; replay files go into ``directory``.

    After each property ``keep`` is given what has been shown so far, as a certificate that says it was interrupted.

    A level is not begun if the level before it failed: then its outcomes are ``skipped``, with the reason. Raises
    UsageProblem if the target is no backend or lacks a required capability, EnvironmentProblem if Spark is needed but
    cannot run.
    """
    require_target(target)
    require_level(level)
    if level == "chaos" and spark:
        chaos.require_spark()
    pool = Pool(target, limits, TOTAL_S[level])
    name = ""
    capabilities: tuple[str, ...] = ()

    def subject() -> Subject:
        return Subject(
            kind="state backend",
            target=target,
            backend=name,
            capabilities=capabilities,
            seed=seed,
            log=pool.log,
        )

    certification = Certification(level, _planned(), subject, _STARTS, progress, keep)
    try:
        try:
            loaded = _loaded(pool)
        except (CandidateDied, CandidateRaised) as error:
            certification.add(_cannot_be_made(str(error)))
        else:
            name, capabilities = str(loaded["name"]), tuple(loaded["capabilities"])
            _require_capabilities(target, capabilities, require)
            certification.add(PropertyOutcome(_STARTS, "contract", (), _STARTS_TEXT, "passed"))
        _run_levels(certification, seed, pool, directory, scale, capabilities)
        _run_chaos(certification, seed, pool, directory, spark, scale, capabilities)
        return certification.certificate()
    finally:
        pool.close()


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


def _planned() -> list[PropertyOutcome]:
    """Return the outcome of every property in the order of the levels, as if none had been run."""
    own = [skipped(one, INTERRUPTED) for level in LEVELS for one in PROPERTIES if one.level == level]
    return own + [chaos.skipped(name, INTERRUPTED) for name in _TRIALS]


def _run_levels(
    certification: Certification,
    seed: int,
    pool: Pool,
    directory: Path | None,
    scale: float,
    capabilities: tuple[str, ...],
) -> None:
    def checked(one: Property, broken: frozenset[str]) -> PropertyOutcome:
        found = check(one, pool, seed_of(seed, one.name), scale, declared=capabilities, broken=broken)
        return saved(*found, directory)

    def no_store(one: Property) -> PropertyOutcome | None:
        if not _cannot_open(certification.outcomes):
            return None
        return skipped(one, "no store could be opened, see above")

    for level in LEVELS:
        certification.run((one for one in PROPERTIES if one.level == level), skipped, checked, no_store)


def _cannot_open(outcomes: list[PropertyOutcome]) -> bool:
    """Return whether a property failed before its first step; then all others would fail too, each after a time
    limit."""
    return any(o.status == "failed" and not o.sequence and o.name != _STARTS for o in outcomes)


def _run_chaos(
    certification: Certification,
    seed: int,
    pool: Pool,
    directory: Path | None,
    spark: bool,
    scale: float,
    capabilities: tuple[str, ...],
) -> None:
    """Run our reference runtime on the backend: many simulated trials, then some on Spark."""
    reason = certification.why_not("chaos")
    if reason:
        for name in _TRIALS:
            certification.add(chaos.skipped(name, reason))
        return
    concurrent = CONCURRENT in capabilities
    outcome, plan = chaos.check_simulated(
        pool, seed_of(seed, chaos.SIMULATED), concurrent, max(1, round(scale * chaos.SIMULATED_TRIALS))
    )
    certification.add(_plan_saved(outcome, plan, directory))
    if outcome.status != "passed":
        certification.add(chaos.skipped(chaos.SPARK, f"{outcome.name} did not pass"))
    elif not spark:
        certification.add(chaos.skipped(chaos.SPARK, "switched off with --no-spark"))
    else:
        outcome, plan = chaos.check_on_spark(pool, seed)
        certification.add(_plan_saved(outcome, plan, directory))


def _plan_saved(outcome: PropertyOutcome, plan: TrialPlan | None, directory: Path | None) -> PropertyOutcome:
    if plan is None or directory is None:
        return outcome
    path = directory / f"{outcome.name}{PLAN_SUFFIX}"
    write_atomically(path, to_json(plan).encode())
    return msgspec.structs.replace(outcome, replay=path.name)


def read_failure(path: Path) -> Failure:
    """Read a replay file; raises UsageProblem if it is no replay file."""
    return read_replay(path, Failure, "a certification")


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
