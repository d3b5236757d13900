"""Runs the certification of a state backend, with levels and properties in order; also runs replays."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from barrier_tck.harness.certify.backend import chaos
from barrier_tck.harness.certify.backend.capabilities import CAPABILITIES, CONCURRENT
from barrier_tck.harness.certify.backend.pool import Candidate, CandidateDied, CandidateRaised, Limits, Pool
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.stage import BackendFailure, BackendProperty, BackendStage, check
from barrier_tck.harness.certify.backend.steps import AnyStep
from barrier_tck.harness.certify.engine.certificate import PLAN_SUFFIX, Certificate, PropertyOutcome
from barrier_tck.harness.certify.engine.certification import (
    Certification,
    Keep,
    Progress,
    Subject,
    drop_certificate,
)
from barrier_tck.harness.certify.engine.check import skipped
from barrier_tck.harness.certify.engine.failure import read_replay, saved
from barrier_tck.harness.certify.engine.identity import identity_of
from barrier_tck.harness.certify.engine.levels import DEFAULT_SEED, TOTAL_S, require_level, seed_of
from barrier_tck.harness.certify.engine.playing import Watch, breach_of
from barrier_tck.harness.certify.engine.property import Property
from barrier_tck.harness.plan.backend_targets import SHIPPED_BACKENDS
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import is_target, shown

_STARTS: BackendProperty = Property(
    "the-backend-can-be-made",
    "contract",
    (),
    "The target can be imported and makes a backend in time, without ending its process.",
)


def require_target(target: str) -> None:
    """Raise UsageProblem unless the target has the form MODULE:NAME, or is a short name."""
    if target not in SHIPPED_BACKENDS and not is_target(target):
        known = ", ".join(SHIPPED_BACKENDS)
        raise UsageProblem(
            f"{shown(target)} is not the name of a backend; use MODULE:NAME, or one of: {known}"
        )


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
    only: Sequence[str] = (),
    earlier: Certificate | None = None,
) -> Certificate:
    """Certify a backend up to a level; replay files go into ``directory``. ``only`` names properties, instead of all.

    After each property ``keep`` is given what has been shown so far, as a certificate that says it was interrupted.
    ``earlier`` is an interrupted certificate of the same: what passed or failed there is not run again.

    A level is not begun if the level before it failed: then its outcomes are ``skipped``, with the reason. Raises
    UsageProblem if the target is no backend or lacks a required capability, or is not what ``earlier`` is about;
    EnvironmentProblem if Spark is needed but cannot run.
    """
    require_target(target)
    require_level(level)
    java = {"java": chaos.require_spark().version} if level == "chaos" and spark else {}
    pool = Pool(target, limits, TOTAL_S[level])
    name, identity = "", identity_of(SHIPPED_BACKENDS.get(target, target))
    capabilities: tuple[str, ...] = ()

    def subject() -> Subject:
        return Subject(
            kind="state backend",
            target=target,
            backend=name,
            capabilities=capabilities,
            seed=seed,
            log=pool.log,
            identity=identity,
            settings=java,
        )

    def why_not(one: BackendProperty) -> PropertyOutcome | None:
        if one.name == chaos.SPARK and not spark:
            return skipped(one, "switched off with --no-spark")
        if one.name == chaos.SPARK and certification.outcomes[-1].status != "passed":
            return skipped(one, f"{chaos.SIMULATED} did not pass")
        cannot_open = one.level != "chaos" and _cannot_open(certification.outcomes)
        return skipped(one, "no store could be opened, see above") if cannot_open else None

    def shown_trials(one: BackendProperty) -> chaos.ShownTrials:
        return chaos.ShownTrials(
            certification.trials_before(one.name), functools.partial(certification.keep_trials, one.name)
        )

    def checked(one: BackendProperty, broken: frozenset[str]) -> PropertyOutcome:
        if one.name == chaos.SIMULATED:
            trials = max(1, round(scale * chaos.SIMULATED_TRIALS))
            concurrent = CONCURRENT in capabilities
            own_seed = seed_of(seed, one.name)
            found = chaos.check_simulated(pool, own_seed, concurrent, trials, shown_trials(one))
            return _plan_saved(*found, directory)
        if one.name == chaos.SPARK:
            return _plan_saved(*chaos.check_on_spark(pool, seed, shown_trials(one)), directory)
        own_seed = seed_of(seed, one.name)
        return saved(*check(one, pool, own_seed, scale, declared=capabilities, broken=broken), directory)

    try:
        certification = Certification(
            level, (*PROPERTIES, *chaos.CHAOS), subject, progress, keep, only, earlier
        )
        problem = ""
        try:
            loaded = _loaded(pool)
        except (CandidateDied, CandidateRaised) as error:
            problem = str(error)
        else:
            name, capabilities = str(loaded["name"]), tuple(loaded["capabilities"])
            _require_capabilities(target, capabilities, require)
        certification.starts(_STARTS, problem)
        certification.run(checked, why_not)
        return certification.certificate()
    finally:
        pool.close()


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


def _cannot_open(outcomes: list[PropertyOutcome]) -> bool:
    """Return whether a property failed before its first step; then all others would fail too, each after a time
    limit."""
    return any(o.status == "failed" and not o.sequence and o.name != _STARTS.name for o in outcomes)


def _plan_saved(outcome: PropertyOutcome, plan: TrialPlan | None, directory: Path | None) -> PropertyOutcome:
    if plan is None or directory is None:
        return outcome
    path = directory / f"{outcome.name}{PLAN_SUFFIX}"
    write_atomically(path, to_json(plan).encode())
    return msgspec.structs.replace(outcome, replay=path.name)


def read_failure(path: Path) -> BackendFailure:
    """Read a replay file; raises UsageProblem if it is no replay file."""
    return read_replay(path, BackendFailure, "a certification")


def replay(
    failure: BackendFailure,
    target: str | None = None,
    limits: Limits | None = None,
    watch: Watch[AnyStep] = lambda number, step: None,
) -> str | None:
    """Play a saved sequence again; return what is violated, or None. Raises UsageProblem for no backend."""
    chosen = target or failure.target
    require_target(chosen)
    pool = Pool(chosen, limits, 300.0)
    try:
        _loaded(pool)
        breach = breach_of(BackendStage(pool), failure.steps, watch)
        return None if breach is None else str(breach.violation)
    except (CandidateDied, CandidateRaised) as error:
        return f"the backend could not be made: {error}"
    finally:
        pool.close()
