"""Runs a certification of a state store of Spark's: first what it can do, then the properties of each level."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from barrier_tck.harness.certify.certificate import (
    CERTIFICATE_VERSION,
    Certificate,
    PropertyOutcome,
    Strength,
    achieved,
    clause_results,
    verdict_of,
)
from barrier_tck.harness.certify.properties import LEVELS
from barrier_tck.harness.certify.spark_stores.executor import StoreExecutor
from barrier_tck.harness.certify.spark_stores.java_process import Died, Raised
from barrier_tck.harness.certify.spark_stores.layouts import (
    CAPABILITIES,
    LAYOUTS,
    MANY,
    NEEDED,
    PLAIN,
    PREFIXED,
    RANGED,
    StoreLayout,
)
from barrier_tck.harness.certify.spark_stores.promises import PROMISES
from barrier_tck.harness.certify.spark_stores.session_settings import SETTINGS
from barrier_tck.harness.certify.spark_stores.store_hunting import (
    StoreFailure,
    check_store,
    replay_store,
    skipped_store,
)
from barrier_tck.harness.certify.spark_stores.store_processes import StoreProcesses
from barrier_tck.harness.certify.spark_stores.store_properties import STORE_PROPERTIES, StoreProperty
from barrier_tck.harness.certify.spark_stores.store_steps import AnyStep
from barrier_tck.harness.certify.spark_stores.store_targets import StoreTarget
from barrier_tck.harness.certify.suite import DEFAULT_SEED, TOTAL_S, Progress, seed_of
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.environment import environment
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.outside import shown
from barrier_tck.harness.support.strict_input import nearest

KIND = "state store of Spark"
"""What the certificate is of."""
_LEVELS = tuple(level for level in LEVELS if level != "chaos")
_STARTS = "the-store-can-be-opened"
_STARTS_TEXT = "The provider is made from its class, and its first batch is written, read and committed."


def require_store_level(level: str) -> None:
    """Raise UsageProblem for a level that state stores of Spark do not have."""
    if level == "chaos":
        raise UsageProblem(
            "--level is 'chaos', which runs our reference runtime on a state backend; a state store of Spark has "
            f"{' and '.join(_LEVELS)}"
        )
    if level not in _LEVELS:
        raise UsageProblem(f"--level is {level!r}{nearest(level, _LEVELS)}")


def certify_store(
    target: StoreTarget,
    level: str = "crash",
    seed: int = DEFAULT_SEED,
    directory: Path | None = None,
    call_s: float = 20.0,
    require: Sequence[str] = (),
    scale: float = 1.0,
    progress: Progress = lambda outcome: None,
    keep: Callable[[Certificate], None] = lambda certificate: None,
) -> Certificate:
    """Certify a state store up to a level; replay files go into ``directory``.

    After each property ``keep`` is given what has been shown so far, as a certificate that says it was interrupted.

    Raises UsageProblem if the class is no provider or lacks a required capability, EnvironmentProblem without a Java.
    """
    require_store_level(level)
    unknown = [name for name in require if name not in CAPABILITIES]
    if unknown:
        raise UsageProblem(f"--require names {unknown[0]!r}{nearest(unknown[0], CAPABILITIES)}")
    began, started_at = time.monotonic(), datetime.now(UTC)
    processes = StoreProcesses(target, call_s, TOTAL_S[level])
    outcomes: list[PropertyOutcome] = []
    lacking = dict.fromkeys(CAPABILITIES, "no store could be opened")

    def certificate(outcomes: Sequence[PropertyOutcome], interrupted: bool = False) -> Certificate:
        return Certificate(
            version=CERTIFICATE_VERSION,
            suite_version=environment()["barrier-tck"],
            target=target.name,
            backend=target.class_name,
            capabilities=tuple(name for name, reason in lacking.items() if not reason),
            asked_level=level,
            level=achieved(outcomes),
            verdict=verdict_of(outcomes, level),
            outcomes=tuple(outcomes),
            clauses=clause_results(outcomes, level),
            seed=seed,
            seconds=round(time.monotonic() - began, 2),
            started_at=started_at.isoformat(timespec="seconds"),
            environment=environment() | SETTINGS | dict(target.settings) | _jars(target),
            strength=Strength(measured=False, note="not measured in this run"),
            log=processes.log,
            kind=KIND,
            arguments=target.arguments,
            interrupted=interrupted,
            asks=PROMISES,
        )

    def add(outcome: PropertyOutcome) -> None:
        outcomes.append(outcome)
        progress(outcome)

    def add_and_keep(outcome: PropertyOutcome) -> None:
        add(outcome)
        keep(certificate((*outcomes, *_left_out(outcomes)), interrupted=True))

    try:
        _require_provider(processes)
        why = _lacks(processes, LAYOUTS[PLAIN])
        status = "failed" if why else "passed"
        add(PropertyOutcome(_STARTS, "contract", (), _STARTS_TEXT, status, why, processes=processes.started))
        if not why:
            lacking = {name: _lacks(processes, layout) for name, layout in NEEDED.items()}
        missing = [f"{name} ({lacking[name]})" for name in require if lacking[name]]
        if missing:
            raise UsageProblem(f"{target.name} lacks {'; '.join(missing)}")
        _run_levels(level, seed, processes, directory, scale, lacking, outcomes, add_and_keep)
    finally:
        processes.close()
    return certificate(outcomes)


def _left_out(outcomes: Sequence[PropertyOutcome]) -> Iterator[PropertyOutcome]:
    """Yield the outcomes of the properties that are still to come, for a certificate that is kept meanwhile."""
    run = {outcome.name for outcome in outcomes}
    for level in _LEVELS:
        for one in STORE_PROPERTIES:
            if one.level == level and one.name not in run:
                yield skipped_store(one, "the certification was interrupted before it was run")


def _jars(target: StoreTarget) -> dict[str, str]:
    return {"jars": ", ".join(target.jars)} if target.jars else {}


def _require_provider(processes: StoreProcesses) -> None:
    """Raise UsageProblem if the target names no class, or a class that is no provider."""
    target = processes.target
    try:
        is_provider = processes.is_provider(target.class_name)
    except Raised as error:
        raise UsageProblem(
            f"{shown(target.class_name)} cannot be loaded: {error}; is its jar in --jars?"
        ) from error
    if not is_provider:
        raise UsageProblem(f"{shown(target.class_name)} is not a StateStoreProvider")


def _lacks(processes: StoreProcesses, layout: StoreLayout) -> str:
    """Use each family of a layout once; return why that cannot be done, or an empty text."""
    try:
        executor = processes.executor(layout, processes.new_checkpoints(), SETTINGS)
        _use(executor, layout)
        executor.close()
    except Raised as error:
        return str(error)
    except Died as error:
        processes.replace()
        return str(error)
    return ""


def _use(executor: StoreExecutor, layout: StoreLayout) -> None:
    executor.begin(0)
    for family in layout.families:
        key = (1, "a")
        executor.put(family, key, "x")
        if family.kind == PREFIXED:
            executor.scan(family, 1)
        elif family.kind == RANGED:
            executor.range(family, key, None)
        elif family.kind == MANY:
            executor.merge(family, key, "y")
            executor.values(family, key)
        executor.iterate(family)
    executor.commit()


def _run_levels(
    asked: str,
    seed: int,
    processes: StoreProcesses,
    directory: Path | None,
    scale: float,
    lacking: dict[str, str],
    outcomes: list[PropertyOutcome],
    add: Progress,
) -> None:
    for level in _LEVELS:
        for one in (one for one in STORE_PROPERTIES if one.level == level):
            reason = _why_not(one, asked, outcomes)
            if reason:
                add(skipped_store(one, reason))
            elif one.capability and lacking[one.capability]:
                why = f"the store does not have {one.capability}: {lacking[one.capability]}"
                add(skipped_store(one, why, optional=True))
            else:
                broken = frozenset(outcome.violated for outcome in outcomes)
                outcome, failure = check_store(one, processes, seed_of(seed, one.name), scale, broken=broken)
                add(_saved(outcome, failure, directory))


def _why_not(one: StoreProperty, asked: str, outcomes: list[PropertyOutcome]) -> str:
    """Return why a property is not run, or an empty text."""
    if _LEVELS.index(one.level) > _LEVELS.index(asked):
        return f"the level {one.level} was not asked for"
    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    below = [outcome for outcome in failed if outcome.name == _STARTS or outcome.level != one.level]
    return f"{below[0].name} failed" if below else ""


def _saved(outcome: PropertyOutcome, failure: StoreFailure | None, directory: Path | None) -> PropertyOutcome:
    if failure is None or directory is None:
        return outcome
    path = directory / f"{outcome.name}.json"
    write_atomically(path, msgspec.json.format(msgspec.json.encode(failure), indent=2) + b"\n")
    return msgspec.structs.replace(outcome, replay=path.name)


def read_store_failure(path: Path) -> StoreFailure:
    """Read a replay file; raises UsageProblem if it is none of a state store."""
    try:
        failure = msgspec.json.decode(path.read_bytes(), type=StoreFailure)
    except OSError as error:
        raise UsageProblem(f"{path} cannot be read: {error.strerror}; name a replay file") from error
    except msgspec.DecodeError as error:
        raise UsageProblem(f"{path} is not a replay file of a state store: {error}") from error
    if failure.layout not in LAYOUTS:
        raise UsageProblem(f"{path} has the layout {failure.layout!r}{nearest(failure.layout, LAYOUTS)}")
    return failure


def replay_on_store(
    failure: StoreFailure,
    target: StoreTarget,
    call_s: float = 20.0,
    tell: Callable[[int, AnyStep], None] = lambda number, step: None,
) -> str | None:
    """Play a saved sequence on a state store; return what is violated, or None. Raises UsageProblem for no provider."""
    processes = StoreProcesses(target, call_s, 300.0)
    try:
        _require_provider(processes)
        violation = replay_store(failure, processes, tell)
        return None if violation is None else str(violation)
    finally:
        processes.close()
