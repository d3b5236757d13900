"""Planted bugs of Spark's state stores, in Java: compiled when they are needed, and run like a third party's."""

from __future__ import annotations

import shutil
from pathlib import Path

from barrier_tck.harness.certify.engine.certificate import PropertyOutcome, Strength
from barrier_tck.harness.certify.engine.planted_bugs import (
    NO_STRENGTH,
    KeepStrength,
    PlantedBug,
    drop_strength,
    strength_of,
)
from barrier_tck.harness.certify.spark_store.clauses import (
    ABORTS,
    CLEANUP,
    DAMAGE,
    FAMILIES,
    IDS,
    KILLS,
    MAINTENANCE,
    READS,
    SCANS,
    VALUES,
    VERSIONS,
    WRITES,
)
from barrier_tck.harness.certify.spark_store.processes import StoreProcesses
from barrier_tck.harness.certify.spark_store.properties import PROPERTIES
from barrier_tck.harness.certify.spark_store.stage import check
from barrier_tck.harness.certify.spark_store.store_capabilities import try_commit_ids
from barrier_tck.harness.certify.spark_store.targets import (
    CHANGELOG,
    PREFIX,
    StoreTarget,
    store_target,
)
from barrier_tck.harness.cluster.java_compiler import compiled_jar, java_compiler
from barrier_tck.harness.support.work_directories import new_work_directory

SOURCES = Path(__file__).parent / "planted_java"
"""The Java sources."""
NO_COMPILER = "there is no javac, which compiles the planted bugs; install a JDK to measure the strength"
STRENGTH_S = 900.0
"""For how many seconds, at most, planted bugs are hunted; a bug that was not hunted by then counts as missed."""


_OURS = "of our own"
_WITH_CHANGELOG = (f"{CHANGELOG}=true",)

_OF_STORES: tuple[PlantedBug, ...] = (
    PlantedBug(
        "SS-01",
        "LosesTheLastPut",
        VERSIONS,
        _OURS,
        "The last put before a commit is buffered and not written.",
        "versions-are-exact",
    ),
    PlantedBug(
        "SS-02",
        "KeepsTheRowsOfTheCaller",
        READS,
        _OURS,
        "Rows are buffered without a copy, and the caller uses them again.",
        "batches-read-their-writes",
    ),
    PlantedBug(
        "SS-03",
        "AbortKeepsWrites",
        ABORTS,
        _OURS,
        "What an aborted batch wrote is still in a buffer when the next batch begins.",
        "aborted-writes-vanish",
    ),
    PlantedBug(
        "BE-01",
        "SharesItsTable",
        ABORTS,
        "FLINK-9269, FLINK-8699, bytewax f21f0f40",
        "A batch writes to the table of the version on which it is based, not to a copy.",
        "aborted-writes-vanish",
    ),
    PlantedBug(
        "BE-07",
        "AbortGivesBackTwice",
        ABORTS,
        "FLINK-13469",
        "An aborted batch gives its copy of the table back twice, and the batches after it get none.",
        "aborts-leave-nothing-behind",
    ),
    PlantedBug(
        "BE-06",
        "IgnoresAFailedRename",
        VERSIONS,
        "SPARK-18342, risingwave #17730",
        "A file was not renamed into place, and the result that says so is not read.",
        "versions-are-exact",
    ),
    PlantedBug(
        "SS-04",
        "LoadsTheNextVersion",
        VERSIONS,
        _OURS,
        "Asked for version n, the provider loads n + 1 if it is there.",
        "versions-are-exact",
    ),
    PlantedBug(
        "SS-05",
        "RemovesOutsideTheChangelog",
        VERSIONS,
        _OURS,
        "A removal is made in the store, but not written to the changelog.",
        "versions-are-exact",
        settings=_WITH_CHANGELOG,
    ),
    PlantedBug(
        "SS-06",
        "PrefixScanMissesARow",
        SCANS,
        _OURS,
        "A prefix scan begins behind its first key.",
        "prefix-scans-are-complete",
    ),
    PlantedBug(
        "SS-07",
        "RangeScanMissesItsStart",
        SCANS,
        _OURS,
        "A range scan does not give the key with which it begins.",
        "range-scans-are-ordered",
    ),
    PlantedBug(
        "BE-09",
        "ReadsTheDefaultFamily",
        FAMILIES,
        "FLINK-7700, FLINK-8679, FLINK-9804",
        "A read in a column family falls through to the default family.",
        "families-stay-apart",
    ),
    PlantedBug(
        "SS-08",
        "MergeOverwrites",
        VALUES,
        _OURS,
        "A merge overwrites the values that are there.",
        "equal-values-are-merged",
    ),
    PlantedBug(
        "SS-17",
        "KeepsARemovedFamily",
        VERSIONS,
        _OURS,
        "A column family that is removed keeps its keys.",
        "removed-families-are-empty",
    ),
    PlantedBug(
        "SS-18",
        "MergesEqualValuesOnce",
        VALUES,
        _OURS,
        "Of equal values that are merged only one is kept.",
        "equal-values-are-merged",
    ),
    PlantedBug(
        "IN-01",
        "PublishesBeforeItsFiles",
        VERSIONS,
        "FLINK-6640, FLINK-6633",
        "A snapshot is published before the files to which it refers.",
        "versions-are-exact",
    ),
    PlantedBug(
        "IN-02",
        "GivesUpFilesTwice",
        MAINTENANCE,
        "FLINK-7268",
        "Old snapshots give up their files late, when another executor has counted anew who uses a file.",
        "maintenance-keeps-what-is-retained",
    ),
    PlantedBug(
        "IN-03",
        "AbortDeletesSharedFiles",
        VERSIONS,
        "FLINK-24611",
        "An aborted batch deletes files that committed versions share with it.",
        "versions-are-exact",
    ),
    PlantedBug(
        "SS-09",
        "DeletesARetainedVersion",
        MAINTENANCE,
        _OURS,
        "Maintenance takes one version too many for old.",
        "maintenance-keeps-what-is-retained",
    ),
    PlantedBug(
        "IN-09",
        "UploadsALateSnapshot",
        MAINTENANCE,
        "SPARK-55892",
        "A snapshot is uploaded late, and refers to files that another executor's maintenance has deleted.",
        "a-late-snapshot-is-whole",
        settings=_WITH_CHANGELOG,
    ),
    PlantedBug(
        "SS-12",
        "DeletesNothing",
        CLEANUP,
        _OURS,
        "Maintenance uploads snapshots and deletes nothing.",
        "storage-does-not-grow",
    ),
    PlantedBug(
        "IN-07",
        "LeavesAbortedUploads",
        CLEANUP,
        "FLINK-30461",
        "What a batch had uploaded before it was aborted stays for ever.",
        "storage-does-not-grow",
    ),
    PlantedBug(
        "IN-05",
        "DeletesFilesOfOthers",
        MAINTENANCE,
        "FLINK-26985",
        "Maintenance deletes shared files that another executor has uploaded.",
        "maintenance-keeps-what-is-retained",
    ),
    PlantedBug(
        "IN-06",
        "TakesFilesForTheSame",
        VERSIONS,
        "FLINK-29913",
        "Two executors give different files the same name, and the first is taken for both.",
        "any-executor-goes-on",
    ),
    PlantedBug(
        "BE-03",
        "RestoresOneFamily",
        VERSIONS,
        "FLINK-6690, FLINK-21650, FLINK-12064",
        "An executor that restores a version finds the keys of the first family only.",
        "families-stay-apart",
    ),
    PlantedBug(
        "SS-13",
        "WritesAHundredRows",
        VERSIONS,
        _OURS,
        "A batch of more than a hundred rows loses the others.",
        "many-rows-are-kept",
    ),
    PlantedBug(
        "SS-14",
        "CutsLongKeys",
        VERSIONS,
        _OURS,
        "Two long keys that begin alike are taken for one.",
        "many-rows-are-kept",
    ),
    PlantedBug(
        "SS-15",
        "IteratesByPosition",
        READS,
        _OURS,
        "An iterator passes over a row if one that it gave is removed.",
        "batches-read-their-writes",
    ),
    PlantedBug(
        "SS-10",
        "PublishesInTwoParts",
        KILLS,
        _OURS,
        "A version is published with half of its writes, and again with all of them.",
        "killed-anywhere",
    ),
    PlantedBug(
        "SS-11",
        "ServesAnOlderVersion",
        DAMAGE,
        _OURS,
        "If a version cannot be loaded, the one before is served instead.",
        "damaged-files-are-refused",
    ),
    PlantedBug(
        "SS-16",
        "TakesAFailedCommitForDone",
        WRITES,
        _OURS,
        "A commit whose files could not be written is taken for done.",
        "failed-writes-are-survived",
    ),
)
_OF_SETTINGS: tuple[PlantedBug, ...] = (
    PlantedBug(
        "SS-19",
        "OpensTheLastCommit",
        IDS,
        _OURS,
        "With ids of commits, that which was written last is opened, whichever is asked for.",
        "commits-have-ids",
    ),
    PlantedBug(
        "SS-20",
        "KeepsItsLateCommit",
        IDS,
        _OURS,
        "An executor whose commit came late takes it for that which counts.",
        "commits-have-ids",
    ),
    PlantedBug(
        "SS-21",
        "TellsTheIdOfTheBase",
        IDS,
        _OURS,
        "A commit tells the id of the one on which it is based.",
        "commits-have-ids",
    ),
    PlantedBug(
        "SS-22",
        "KeepsTheLastCommitOnly",
        IDS,
        _OURS,
        "Of the commits of a version, maintenance keeps that which was written last.",
        "commits-have-ids",
    ),
    PlantedBug(
        "SS-23",
        "DropsFormerChangelogs",
        VERSIONS,
        _OURS,
        "A run without changelogs deletes those of former runs.",
        "settings-may-change",
    ),
    PlantedBug(
        "SS-24",
        "RepeatsAChangelog",
        VERSIONS,
        _OURS,
        "A run without changelogs writes the first row of those of former runs once more.",
        "settings-may-change",
    ),
    PlantedBug(
        "SS-25",
        "BeginsWithItsRows",
        IDS,
        _OURS,
        "A version, opened again, has the rows of the batch that this executor committed on it.",
        "commits-have-ids",
    ),
    PlantedBug(
        "SS-26",
        "CompactionLosesARow",
        VERSIONS,
        _OURS,
        "Compaction at a commit loses the row that was written last.",
        "versions-are-exact",
    ),
    PlantedBug(
        "SS-27",
        "FillsItsMemory",
        VERSIONS,
        _OURS,
        "With bounded memory, a batch of several rows has the first one only.",
        "versions-are-exact",
    ),
    PlantedBug(
        "SS-28",
        "ChecksumsKeepRows",
        READS,
        _OURS,
        "With checksums of rows, a row that is removed stays.",
        "batches-read-their-writes",
    ),
    PlantedBug(
        "SS-29",
        "RemovesWhatItCounts",
        VERSIONS,
        _OURS,
        "Where rows are not counted, a removal in a version that was loaded is not made.",
        "versions-are-exact",
    ),
    PlantedBug(
        "SS-30",
        "KeepsTheRowsOfAFailedCommit",
        WRITES,
        _OURS,
        "Behind a commit that failed, the version on which it was based has its rows, in this executor.",
        "failed-writes-are-survived",
    ),
)
PLANTED_BUGS = (*_OF_STORES, *_OF_SETTINGS)
"""Every planted bug: those that show with any settings, and those that need some, ids of commits, or a failure."""


def compiled_planted(compiler: Path, otherwise: Path) -> Path:
    """Return the jar with all of them, which is below ``otherwise`` if it can be kept nowhere else.

    Raises InternalError with what the compiler said.
    """
    return compiled_jar(compiler, sorted(SOURCES.glob("*.java")), "planted-stores", otherwise)


def target_of(bug: PlantedBug, classes: Path) -> StoreTarget:
    """Return the target that has a bug, for a jar with compiled classes."""
    source = "PlantedSettings" if bug in _OF_SETTINGS else "PlantedStores"
    return store_target(f"{PREFIX}barriertck.{source}${bug.name}", (str(classes),), bug.settings)


def hunt_planted(bug: PlantedBug, processes: StoreProcesses, classes: Path, seed: int) -> PropertyOutcome:
    """Run the property that must catch a bug; the JVM must have ``classes`` on its class path."""
    one = next(entry for entry in PROPERTIES if entry.name == bug.caught_by)
    processes.target = target_of(bug, classes)
    try_commit_ids(processes)
    return check(one, processes, seed, shrink=False)[0]


def measure_strength(
    seed: int, call_s: float = 20.0, before: Strength = NO_STRENGTH, keep: KeepStrength = drop_strength
) -> Strength:
    """Run all planted bugs, except for those that were run before, one after the other in one JVM.

    The score goes on the certificate.
    """
    compiler = java_compiler()
    if compiler is None:
        return Strength(measured=False, note=NO_COMPILER)
    directory = new_work_directory("planted")
    try:
        classes = compiled_planted(compiler, directory)
        processes = StoreProcesses(target_of(PLANTED_BUGS[0], classes), call_s, STRENGTH_S)
        try:
            return strength_of(
                PLANTED_BUGS, lambda bug: hunt_planted(bug, processes, classes, seed), before, keep
            )
        finally:
            processes.close()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
