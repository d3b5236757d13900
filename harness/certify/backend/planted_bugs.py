"""Planted bugs of backends."""

from __future__ import annotations

from barrier_tck.harness.certify.backend.pool import Pool
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.stage import check
from barrier_tck.harness.certify.backend.suite import probe
from barrier_tck.harness.certify.engine.certificate import PropertyOutcome, Strength
from barrier_tck.harness.certify.engine.planted_bugs import (
    NO_STRENGTH,
    KeepStrength,
    PlantedBug,
    drop_strength,
    strength_of,
)

_MODULE = "barrier_tck.harness.reference.mutants.backend_bugs"
_HELD_OUT = "barrier_tck.harness.reference.mutants.held_out_backend_bugs"
_HELD_OUT_FILES = "barrier_tck.harness.reference.mutants.held_out_file_bugs"
_DROPPED = "barrier_tck.harness.reference.mutants.dropped_and_deleted_bugs"
_CHAINED = "barrier_tck.harness.reference.mutants.chained_and_closed_bugs"
_ROCKSDB = "barrier_tck.harness.reference.mutants.rocksdb_bugs"
_SMALL = 0.3
"""The scale of listed sequences: the share of their sizes and rounds that is played."""


def _bug(
    identifier: str,
    name: str,
    clause: str,
    source: str,
    description: str,
    caught_by: str,
    module: str = _MODULE,
    scale: float | None = None,
) -> PlantedBug:
    if scale is None:
        scale = 1.0 if module == _MODULE else _SMALL
    return PlantedBug(identifier, name, clause, source, description, caught_by, module, scale)


PLANTED_BUGS: tuple[PlantedBug, ...] = (
    _bug(
        "BE-01",
        "SnapshotsLiveTables",
        "SNP-1",
        "FLINK-9269, FLINK-8699, bytewax f21f0f40",
        "The asynchronous part of a snapshot reads the live tables.",
        "snapshots-are-isolated",
    ),
    _bug(
        "BE-03",
        "LosesOneOfTwoStates",
        "BCK-2",
        "FLINK-6690",
        "If several files are restored, only the states of the first are registered.",
        "key-groups-move",
    ),
    _bug(
        "BE-03-range",
        "HalvesTheRange",
        "BCK-2",
        "FLINK-21650",
        "The last key group of the range is not restored.",
        "key-groups-move",
    ),
    _bug(
        "BE-06",
        "IgnoresFailedWrites",
        "BCK-3",
        "risingwave #17730, SPARK-18342",
        "A failed write is not noticed; the snapshot succeeds without the file.",
        "a-failed-write-fails-the-snapshot",
    ),
    _bug(
        "BE-07",
        "KeepsFailedSnapshots",
        "BCK-5",
        "FLINK-13469",
        "A failed snapshot stays registered, and its tables with it.",
        "a-failed-snapshot-keeps-nothing",
    ),
    _bug(
        "BE-07-twice",
        "ReleasesTwice",
        "SNP-1",
        "FLINK-13469",
        "A failed and aborted snapshot is released twice; a later one is not isolated.",
        "snapshots-after-a-failed-one-are-isolated",
    ),
    _bug(
        "BE-keys",
        "CutsLongKeys",
        "BCK-1",
        "of our own",
        "Keys are cut at 511 bytes, the length that some engines allow.",
        "what-differs-stays-apart",
    ),
    _bug(
        "BE-cancel",
        "RunsAfterCancel",
        "SNP-2",
        "of our own",
        "A cancelled asynchronous part fails with an error of its own.",
        "a-cancelled-snapshot-stops",
    ),
    _bug(
        "IN-15",
        "BuildsOnOtherRanges",
        "BCK-6",
        "of our own",
        "Increments build on whatever was restored, also on what stores with other key groups wrote.",
        "increments-build-on-what-is-confirmed",
    ),
    _bug(
        "SB-01",
        "ReadsStaleValues",
        "BCK-1",
        "certified by version 0.1.0",
        "Writing several values bypasses the cache that reading a single value fills.",
        "reads-in-every-form",
        module=_HELD_OUT,
    ),
    _bug(
        "SB-02",
        "LosesLongKeys",
        "BCK-2",
        "certified by version 0.1.0",
        "A snapshot loses keys longer than 100 kB.",
        "sizes-up-the-ladder",
        module=_HELD_OUT,
    ),
    _bug(
        "SB-02-values",
        "CutsLargeValues",
        "BCK-2",
        "certified by version 0.1.0",
        "A snapshot cuts values at 1 MiB.",
        "sizes-up-the-ladder",
        module=_HELD_OUT,
    ),
    _bug(
        "SB-03",
        "KeepsStateElsewhere",
        "BCK-2",
        "of our own",
        "The files that the handles name only point to another directory on the machine.",
        "handles-name-all-that-is-needed",
        module=_HELD_OUT_FILES,
    ),
    _bug(
        "SB-04",
        "NamesForeignGroups",
        "BCK-2",
        "of our own",
        "Handles name all key groups of the job instead of their store's key groups.",
        "a-restored-store-starts-anew",
        module=_HELD_OUT_FILES,
    ),
    _bug(
        "SB-05",
        "ReusesOldFiles",
        "BCK-2",
        "of our own",
        "After a restore, an older file with the same number and length is taken for the new one.",
        "a-restored-store-starts-anew",
        module=_HELD_OUT_FILES,
    ),
    _bug(
        "SB-06",
        "FoldsKeyGroups",
        "BCK-1",
        "certified by version 0.1.0",
        "Key groups above 1,023 collide with smaller ones.",
        "sizes-up-the-ladder",
        module=_HELD_OUT,
    ),
    _bug(
        "SB-07",
        "SkipsInLongScans",
        "BCK-1",
        "certified by version 0.1.0",
        "A scan skips one entry every 10,000.",
        "sizes-up-the-ladder",
        module=_HELD_OUT,
    ),
    _bug(
        "SB-08",
        "CopiesWithoutALock",
        "SNP-1",
        "certified by version 0.1.0",
        "The writer changes tables in place while the snapshot's thread copies them.",
        "writers-run-freely",
        module=_HELD_OUT_FILES,
    ),
    _bug(
        "SB-09",
        "KeepsDescriptors",
        "BCK-5",
        "certified by version 0.1.0",
        "Each snapshot keeps a file descriptor until the store is closed.",
        "snapshots-keep-nothing",
        module=_HELD_OUT,
    ),
    _bug(
        "SB-10",
        "LooksUpByHash",
        "BCK-1",
        "certified by version 0.1.0",
        "After a restore, single keys are looked up by a hash that differs from process to process.",
        "handles-name-all-that-is-needed",
        module=_HELD_OUT_FILES,
    ),
    _bug(
        "SB-10-order",
        "WritesInTheOrderOfASet",
        "BCK-6",
        "certified by version 0.1.0",
        "The content of files follows the order of a set, but is declared to be deterministic.",
        "files-are-deterministic",
        module=_HELD_OUT_FILES,
    ),
    _bug(
        "SB-11",
        "AcceptsCutFiles",
        "BCK-4",
        "of our own",
        "An empty file is taken for an empty state, and a truncated file for a smaller state.",
        "what-is-no-snapshot-is-refused",
        module=_HELD_OUT_FILES,
    ),
    _bug(
        "SB-12",
        "KeepsSnapshots",
        "BCK-5",
        "certified by version 0.1.0",
        "Every snapshot that succeeded is kept in memory.",
        "snapshots-keep-nothing",
        module=_HELD_OUT,
    ),
    _bug(
        "SB-13",
        "MisplacesBlocks",
        "BCK-2",
        "certified by version 0.1.0",
        "Offsets in the file are wrong after a buffer of 1 MiB was flushed.",
        "sizes-up-the-ladder",
        module=_HELD_OUT_FILES,
    ),
    _bug(
        "SB-14",
        "NumbersInTwoBytes",
        "BCK-2",
        "certified before this property was there",
        "A snapshot whose id is known, as far as two bytes can tell, is taken for a repetition.",
        "any-number-of-snapshots",
        module=_HELD_OUT,
    ),
    _bug(
        "SB-15",
        "CountsInOneByte",
        "SNP-1",
        "certified before this property was there",
        "After 255 snapshots of an open store, later ones are not isolated.",
        "any-number-of-snapshots",
        module=_HELD_OUT,
        scale=1.0,
    ),
    _bug(
        "SB-16",
        "ComparesTheBeginning",
        "BCK-1",
        "certified before values were compared byte by byte",
        "A value with the length and the first 16 bytes of the old one is not written.",
        "what-differs-stays-apart",
        module=_HELD_OUT,
    ),
    _bug(
        "SB-17",
        "ForgetsOldChanges",
        "BCK-2",
        "certified before this property was there",
        "What changed before 64 snapshots that failed is missing in the next increment.",
        "increments-go-on-after-many-failures",
        module=_HELD_OUT,
    ),
    _bug(
        "SB-18",
        "KeepsForeignGroups",
        "BCK-2",
        "certified before this property was there",
        "A store keeps key groups above its own of the files from which it is restored, and stores them, too.",
        "key-groups-part-and-meet",
        module=_ROCKSDB,
    ),
    _bug(
        "SB-19",
        "GoesBackToAnOlderBase",
        "BCK-2",
        "the heap backend, before this property was there",
        "A snapshot that ends and is confirmed after a newer one becomes the base of the next increment.",
        "increments-end-in-any-order",
        module=_HELD_OUT,
        scale=1.0,
    ),
    _bug(
        "SB-20",
        "ReleasesOlderOnes",
        "SNP-1",
        "of our own",
        "When a snapshot ends, older ones that are unfinished are not isolated any more.",
        "unfinished-snapshots-end-in-any-order",
        module=_HELD_OUT,
        scale=1.0,
    ),
    _bug(
        "SB-21",
        "CancelsOnItsOwnThread",
        "SNP-2",
        "certified before this property was there",
        "A snapshot can only be cancelled by the thread that took it.",
        "any-thread-runs-and-cancels",
        module=_DROPPED,
    ),
    _bug(
        "SB-22",
        "KeepsCancelledSnapshots",
        "BCK-5",
        "certified before this property was there",
        "A snapshot that is cancelled and never run is kept in memory.",
        "dropped-snapshots-keep-nothing",
        module=_DROPPED,
    ),
    _bug(
        "SB-23",
        "KeepsEmptiedGroups",
        "BCK-2",
        "certified before this property was there",
        "A snapshot has the last entries of a key group that was emptied.",
        "many-deletes-between-snapshots",
        module=_DROPPED,
    ),
    _bug(
        "SB-24",
        "LosesManyDeletions",
        "BCK-2",
        "certified before this property was there",
        "An increment has 500 deletions of a key group at most; what else was deleted comes back.",
        "increments-hold-many-deletes",
        module=_DROPPED,
        scale=1.0,
    ),
    _bug(
        "SB-25",
        "KeepsClosedStores",
        "BCK-5",
        "certified before this property looked at memory",
        "The state of a store that was closed stays in a register of all stores.",
        "nothing-is-left-behind",
        module=_DROPPED,
    ),
    _bug(
        "SB-26",
        "RemembersWhatMayBeReused",
        "BCK-6",
        "certified before this was checked",
        "Whether the files of a checkpoint may be reused is asked once.",
        "increments-end-in-any-order",
        module=_CHAINED,
        scale=1.0,
    ),
    _bug(
        "SB-27",
        "LosesLateDeletions",
        "BCK-2",
        "certified before this was checked",
        "From the fifth increment of a chain on, deletions are lost.",
        "increments-in-a-long-chain",
        module=_CHAINED,
    ),
    _bug(
        "SB-28",
        "ClosesWhatIsRead",
        "SNP-2",
        "certified before this was checked",
        "A store is closed while another thread still reads it for a snapshot.",
        "a-closed-store-refuses-calls",
        module=_CHAINED,
    ),
    _bug(
        "SB-29",
        "ScansLateAmidASnapshot",
        "BCK-1",
        "certified before this was checked",
        "While a snapshot is unfinished, a scan gives what is there when its first entry is read.",
        "what-differs-stays-apart",
        module=_CHAINED,
    ),
    _bug(
        "SB-30",
        "InflatesValues",
        "BCK-1",
        "certified before this was checked",
        "Values that look compressed are inflated when they are read.",
        "what-differs-stays-apart",
        module=_CHAINED,
    ),
    _bug(
        "SB-31",
        "HasRoomForFewStates",
        "BCK-1",
        "certified before this was checked",
        "A store has room for 128 states.",
        "sizes-up-the-ladder",
        module=_CHAINED,
    ),
    _bug(
        "SB-32",
        "KeepsItsSweeper",
        "BCK-5",
        "certified before this was checked",
        "A store with 1,000 entries or more has a thread that close does not end.",
        "nothing-is-left-behind",
        module=_CHAINED,
    ),
    _bug(
        "SB-33",
        "BlamesTheFirstFile",
        "BCK-4",
        "certified before this was checked",
        "Whichever of several restored files is damaged, the message names the first one.",
        "what-is-no-snapshot-is-refused",
        module=_CHAINED,
    ),
    _bug(
        "SB-34",
        "CompactsUnderASnapshot",
        "SNP-1",
        "a backend with a log, which 13 properties passed",
        "When 4 MiB were written while a snapshot is unfinished, the snapshot has the later values.",
        "sizes-up-the-ladder",
        module=_CHAINED,
    ),
    _bug(
        "SB-35",
        "ForgetsDeletionsSinceItsBase",
        "BCK-2",
        "passed by this property with two of three seeds",
        "An increment does not say what was deleted since the confirmed snapshot on which it builds.",
        "increments-in-any-order",
        module=_CHAINED,
    ),
)
"""Every planted backend bug."""


def hunt_planted(bug: PlantedBug, seed: int) -> PropertyOutcome:
    """Run the property that must catch a bug, in its own process like any candidate."""
    one = next(entry for entry in PROPERTIES if entry.name == bug.caught_by)
    pool = Pool(bug.target, total_s=120.0)
    try:
        declared = tuple(probe(bug.target)["capabilities"])
        return check(one, pool, seed, bug.scale, shrink=False, declared=declared)[0]
    finally:
        pool.close()


def measure_strength(
    seed: int, before: Strength = NO_STRENGTH, keep: KeepStrength = drop_strength
) -> Strength:
    """Run all planted bugs, except for those that were run before; the score goes on the certificate."""
    return strength_of(PLANTED_BUGS, lambda bug: hunt_planted(bug, seed), before, keep)
