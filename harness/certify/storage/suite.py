"""Runs the certification of a checkpoint storage: levels and properties in order, in processes of the candidate."""

from __future__ import annotations

from collections.abc import Sequence

from barrier_tck.harness.certify.engine.certificate import Certificate, PropertyOutcome
from barrier_tck.harness.certify.engine.certification import (
    Certification,
    Keep,
    Progress,
    Subject,
    drop_certificate,
)
from barrier_tck.harness.certify.engine.check import check, skipped
from barrier_tck.harness.certify.engine.identity import identity_of
from barrier_tck.harness.certify.engine.levels import require_level
from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.certify.storage.properties import LEVELS, PROPERTIES
from barrier_tck.harness.certify.storage.stage import StorageProperty, StorageStage
from barrier_tck.harness.plan.storage_targets import storage_target

PROPERTY_S = 120.0
"""How long a property may take, in seconds; starting the process counts for the first one."""


def certify(
    target: str,
    location: str,
    level: str = "crash",
    only: Sequence[str] = (),
    property_s: float = PROPERTY_S,
    progress: Progress = lambda outcome: None,
    keep: Keep = drop_certificate,
    earlier: Certificate | None = None,
) -> Certificate:
    """Certify a checkpoint storage up to a level.

    ``location`` is a directory, or the beginning of a URL, below which nothing is; ``only`` names the properties that
    are checked, instead of all; others are skipped. After each property ``keep`` is given what has been shown so far.
    ``earlier`` is an interrupted certificate of the same: what passed or failed there is not run again.

    Raises UsageProblem if the target makes no checkpoint storage, or is not what ``earlier`` is about.
    """
    require_level(level, LEVELS)
    stage = StorageStage(target, location, property_s)
    identity = identity_of(storage_target(target))

    def subject() -> Subject:
        loaded = stage.loaded
        return Subject(
            kind="checkpoint storage",
            target=target,
            backend=loaded.name if loaded else "",
            capabilities=("outlives-its-process",) if loaded and loaded.outlives_its_process else (),
            log=stage.log,
            identity=identity,
        )

    def why_not(one: StorageProperty) -> PropertyOutcome | None:
        try:
            outlives = one.level != "crash" or stage.start().outlives_its_process
        except Violation:
            return None  # its check says so
        return None if outlives else skipped(one, "it says that it does not outlive its process")

    def checked(one: StorageProperty, broken: frozenset[str]) -> PropertyOutcome:
        return check(one, stage, seed=0, broken=broken)[0]

    properties = [one for one in PROPERTIES if LEVELS.index(one.level) <= LEVELS.index(level)]
    certification = Certification(level, properties, subject, progress, keep, only, earlier)
    try:
        certification.run(checked, why_not)
    finally:
        stage.renew()
    return certification.certificate()
