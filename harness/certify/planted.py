"""Planted bugs of backends, and how many of them the suite catches, run as a third party would run it (CER-2)."""

from __future__ import annotations

from dataclasses import dataclass

from barrier_tck.harness.certify.certificate import Strength
from barrier_tck.harness.certify.pool import Pool
from barrier_tck.harness.certify.properties import PROPERTIES, PropertyOutcome, check
from barrier_tck.harness.certify.suite import probe

_MODULE = "barrier_tck.harness.reference.mutants.backend_bugs"


@dataclass(frozen=True, slots=True)
class BackendMutant:
    """One planted bug."""

    id: str
    target: str
    clause: str
    source: str
    description: str
    property: str
    """The property that is to catch it."""


def _mutant(
    identifier: str, name: str, clause: str, source: str, description: str, caught_by: str
) -> BackendMutant:
    return BackendMutant(identifier, f"{_MODULE}:{name}", clause, source, description, caught_by)


BACKEND_MUTANTS: tuple[BackendMutant, ...] = (
    _mutant(
        "BE-01",
        "SnapshotsLiveTables",
        "SNP-1",
        "FLINK-9269, FLINK-8699, bytewax f21f0f40",
        "The asynchronous part of a snapshot reads the live tables.",
        "snapshots-are-isolated",
    ),
    _mutant(
        "BE-03",
        "LosesOneOfTwoStates",
        "RSC-2",
        "FLINK-6690",
        "Of several restored files only the states of the first are registered.",
        "key-groups-move",
    ),
    _mutant(
        "BE-03-range",
        "HalvesTheRange",
        "RSC-1",
        "FLINK-21650",
        "The last key group of the range is not restored.",
        "key-groups-move",
    ),
    _mutant(
        "BE-06",
        "IgnoresFailedWrites",
        "COO-2",
        "risingwave #17730, SPARK-18342",
        "A failed write is not noticed; the snapshot succeeds without the file.",
        "a-failed-write-fails-the-snapshot",
    ),
    _mutant(
        "BE-07",
        "KeepsFailedSnapshots",
        "SNP-2",
        "FLINK-13469",
        "A failed snapshot stays registered, and its tables with it.",
        "a-failed-snapshot-keeps-nothing",
    ),
    _mutant(
        "BE-07-twice",
        "ReleasesTwice",
        "SNP-1",
        "FLINK-13469",
        "A failed and aborted snapshot is released twice; a later one is not isolated.",
        "snapshots-after-a-failed-one-are-isolated",
    ),
    _mutant(
        "BE-keys",
        "CutsLongKeys",
        "STA-1",
        "of our own",
        "Keys are cut at 511 bytes, the length that some engines allow.",
        "what-differs-stays-apart",
    ),
    _mutant(
        "BE-cancel",
        "RunsAfterCancel",
        "SNP-2",
        "of our own",
        "A cancelled asynchronous part fails with an error of its own.",
        "a-cancelled-snapshot-stops",
    ),
)
"""Every planted backend bug."""


def hunt_planted(mutant: BackendMutant, seed: int, scale: float = 1.0) -> PropertyOutcome:
    """Run the property that is to catch a bug, in a process of its own like any candidate."""
    one = next(entry for entry in PROPERTIES if entry.name == mutant.property)
    pool = Pool(mutant.target, total_s=120.0)
    try:
        declared = tuple(probe(mutant.target)["capabilities"])
        return check(one, pool, seed, scale, shrink_s=0.0, declared=declared)[0]
    finally:
        pool.close()


def measure_strength(seed: int) -> Strength:
    """Run all planted bugs; the score goes on the certificate."""
    results = {mutant.id: hunt_planted(mutant, seed).status == "failed" for mutant in BACKEND_MUTANTS}
    return Strength(
        measured=True,
        caught=tuple(name for name, caught in results.items() if caught),
        missed=tuple(name for name, caught in results.items() if not caught),
    )
