"""Runs a certification of a Spark state store: first what it can do, then the properties of each level."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barrier_tck.harness.certify.engine.certificate import Certificate, PropertyOutcome
from barrier_tck.harness.certify.engine.certification import (
    Certification,
    Keep,
    Progress,
    Subject,
    drop_certificate,
)
from barrier_tck.harness.certify.engine.check import skipped
from barrier_tck.harness.certify.engine.failure import read_replay, saved
from barrier_tck.harness.certify.engine.levels import DEFAULT_SEED, LEVELS, TOTAL_S, require_level, seed_of
from barrier_tck.harness.certify.engine.playing import Watch, breach_of
from barrier_tck.harness.certify.engine.property import Property
from barrier_tck.harness.certify.spark_store.clauses import CLAUSES
from barrier_tck.harness.certify.spark_store.java_process import Raised
from barrier_tck.harness.certify.spark_store.layouts import (
    CAPABILITIES,
    CHECKPOINT_IDS,
    LAYOUTS,
    NEEDED,
    PLAIN,
)
from barrier_tck.harness.certify.spark_store.processes import NO_DISTURBED_WRITES, StoreProcesses
from barrier_tck.harness.certify.spark_store.properties import PROPERTIES, disturbs_writes
from barrier_tck.harness.certify.spark_store.session_settings import SETTINGS
from barrier_tck.harness.certify.spark_store.stage import StoreFailure, StoreProperty, StoreStage, check
from barrier_tck.harness.certify.spark_store.steps import AnyStep
from barrier_tck.harness.certify.spark_store.store_capabilities import lacks, try_commit_ids
from barrier_tck.harness.certify.spark_store.targets import StoreTarget, identity_of_store
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.cluster.java_compiler import has_java_compiler
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import shown

KIND = "state store of Spark"
"""What the certificate is of."""
_LEVELS = tuple(level for level in LEVELS if level != "chaos")
_STARTS: StoreProperty = Property(
    "the-store-can-be-opened",
    "contract",
    (),
    "The provider is made from its class, and its first batch is written, read and committed.",
)


def require_store_level(level: str) -> None:
    """Raise UsageProblem for a level that Spark state stores do not have."""
    if level == "chaos":
        raise UsageProblem(
            "--level is 'chaos', which runs our reference runtime on a state backend; a Spark state store has "
            f"{' and '.join(_LEVELS)}"
        )
    require_level(level, _LEVELS)


def certify(
    target: StoreTarget,
    level: str = "crash",
    seed: int = DEFAULT_SEED,
    directory: Path | None = None,
    call_s: float = 20.0,
    require: Sequence[str] = (),
    scale: float = 1.0,
    progress: Progress = lambda outcome: None,
    keep: Keep = drop_certificate,
    only: Sequence[str] = (),
    earlier: Certificate | None = None,
) -> Certificate:
    """Certify a state store up to a level; replay files go into ``directory``. ``only`` names properties.

    After each property ``keep`` is given what has been shown so far, as a certificate that says it was interrupted.
    ``earlier`` is an interrupted certificate of the same: what passed or failed there is not run again.

    Raises UsageProblem if the class is no provider or lacks a required capability, or is not what ``earlier`` is about;
    EnvironmentProblem without a Java.
    """
    require_store_level(level)
    unknown = [name for name in require if name not in CAPABILITIES]
    if unknown:
        raise UsageProblem(f"--require names {unknown[0]!r}{nearest(unknown[0], CAPABILITIES)}")
    processes = StoreProcesses(target, call_s, TOTAL_S[level])
    identity, java = identity_of_store(target), find_java().version
    lacking = dict.fromkeys(CAPABILITIES, "no store could be opened")

    def subject() -> Subject:
        return Subject(
            kind=KIND,
            target=target.name,
            backend=target.class_name,
            capabilities=tuple(name for name, reason in lacking.items() if not reason),
            seed=seed,
            log=processes.log,
            arguments=target.arguments,
            settings=SETTINGS | dict(target.settings) | _jars(target) | {"java": java},
            asks=CLAUSES,
            identity=identity,
        )

    def why_not(one: StoreProperty) -> PropertyOutcome | None:
        if disturbs_writes(one) and not has_java_compiler():
            return skipped(one, NO_DISTURBED_WRITES, optional=True)
        if not one.capability or not lacking[one.capability]:
            return None
        why = f"the store does not have {one.capability}: {lacking[one.capability]}"
        return skipped(one, why, optional=True)

    def checked(one: StoreProperty, broken: frozenset[str]) -> PropertyOutcome:
        found = check(one, processes, seed_of(seed, one.name), scale, broken=broken)
        return saved(*found, directory)

    try:
        certification = Certification(level, PROPERTIES, subject, progress, keep, only, earlier)
        _require_provider(processes)
        problem, started = lacks(processes, LAYOUTS[PLAIN]), processes.started
        if not problem:
            lacking = {name: lacks(processes, layout) for name, layout in NEEDED.items()}
            lacking[CHECKPOINT_IDS] = try_commit_ids(processes)
        missing = [f"{name} ({lacking[name]})" for name in require if lacking[name]]
        if missing:
            raise UsageProblem(f"{target.name} lacks {'; '.join(missing)}")
        certification.starts(_STARTS, problem, started)
        certification.run(checked, why_not)
    finally:
        processes.close()
    return certification.certificate()


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


def read_failure(path: Path) -> StoreFailure:
    """Read a replay file; raises UsageProblem if it is none of a state store."""
    failure = read_replay(path, StoreFailure, "a state store")
    if failure.layout not in LAYOUTS:
        raise UsageProblem(f"{path} has the layout {failure.layout!r}{nearest(failure.layout, LAYOUTS)}")
    return failure


def replay(
    failure: StoreFailure,
    target: StoreTarget,
    call_s: float = 20.0,
    watch: Watch[AnyStep] = lambda number, step: None,
) -> str | None:
    """Play a saved sequence on a state store; return what is violated, or None. Raises UsageProblem for no provider."""
    processes = StoreProcesses(target, call_s, 300.0)
    try:
        _require_provider(processes)
        try_commit_ids(processes)
        breach = breach_of(StoreStage(processes, failure.layout), failure.steps, watch)
        return None if breach is None else str(breach.violation)
    finally:
        processes.close()
