"""Planted bugs of checkpoint storages."""

from __future__ import annotations

import tempfile

from barrier_tck.harness.certify.engine.certificate import PropertyOutcome, Strength
from barrier_tck.harness.certify.engine.planted_bugs import (
    NO_STRENGTH,
    KeepStrength,
    PlantedBug,
    drop_strength,
    strength_of,
)
from barrier_tck.harness.certify.storage.suite import certify

_MODULE = "barrier_tck.harness.reference.mutants.checkpoint_storage_bugs"


def _bug(identifier: str, name: str, clause: str, description: str, caught_by: str) -> PlantedBug:
    return PlantedBug(identifier, name, clause, "of our own", description, caught_by, _MODULE)


PLANTED_BUGS: tuple[PlantedBug, ...] = (
    _bug(
        "CS-01",
        "PublishesBeforeBytesAreThere",
        "STO-1",
        "Handles are given out, and checkpoints published, while files are still written in the background.",
        "state-files-are-read-as-written",
    ),
    _bug(
        "CS-02",
        "OverwritesAnId",
        "STO-3",
        "Publishing an id again replaces the checkpoint that has it.",
        "an-id-is-published-once",
    ),
    _bug(
        "CS-03",
        "ListsTheUnpublished",
        "STO-4",
        "Whatever has a directory is listed as complete.",
        "complete-means-published",
    ),
    _bug(
        "CS-04",
        "DeletesMetadataLast",
        "STO-6",
        "The state files of a discarded checkpoint are deleted before its metadata.",
        "metadata-goes-first",
    ),
    _bug(
        "CS-05",
        "SwallowsAFailedWrite",
        "STO-2",
        "A write that fails gives a handle for as much as was written.",
        "a-failed-write-leaves-nothing",
    ),
    _bug(
        "CS-06",
        "LosesTheCounters",
        "STO-5",
        "Ids and attempts are reserved in memory only.",
        "counters-never-fall",
    ),
    _bug(
        "CS-07",
        "PublishesInParts",
        "STO-4",
        "Metadata is written in place, so that a reader finds a part of it.",
        "readers-see-all-or-nothing",
    ),
    _bug(
        "CS-08",
        "LeavesTornFiles",
        "STO-2",
        "What a failed write has written stays.",
        "a-failed-write-leaves-nothing",
    ),
    _bug(
        "CS-09",
        "DeletesTheUsersSavepoint",
        "STO-7",
        "A savepoint is deleted with the checkpoint that it was.",
        "a-savepoint-belongs-to-the-user",
    ),
    _bug(
        "CS-10",
        "DiscardsByPrefix",
        "STO-6",
        "Discarding checkpoint 1 deletes checkpoint 11, too.",
        "a-discarded-checkpoint-is-gone",
    ),
    _bug(
        "CS-11",
        "ReadsUnchecked",
        "STO-1",
        "Size and checksum of a state file are not compared with its handle.",
        "another-content-is-refused",
    ),
    _bug(
        "CS-12",
        "JoinsNamesUnescaped",
        "STO-3",
        "The parts of a file name are joined as they are, so that two operators meet in one file.",
        "files-do-not-meet",
    ),
    _bug(
        "CS-13",
        "ForgetsWhatItStartedFrom",
        "STO-7",
        "A job that was started from a savepoint reserves ids from 1 again.",
        "a-start-from-a-savepoint-is-remembered",
    ),
    _bug(
        "CS-14",
        "ReadsNothingForAMissingFile",
        "STO-1",
        "A state file that is gone is taken for an empty one.",
        "another-content-is-refused",
    ),
    _bug(
        "CS-15",
        "DiscardsSharedFiles",
        "STO-6",
        "Shared files go with the checkpoint that they were written for, whoever else needs them.",
        "shared-files-stay-while-they-are-needed",
    ),
    _bug(
        "CS-16",
        "DeletesClaimedMetadataLast",
        "STO-6",
        "The state files of a savepoint that the job has claimed are deleted before its metadata.",
        "metadata-goes-first",
    ),
    _bug(
        "CS-17",
        "ForgetsAnEarlierClaim",
        "STO-7",
        "The claim of a savepoint takes the place of the claim that the job had before.",
        "what-is-needed-stays-and-nothing-else",
    ),
    _bug(
        "CS-18",
        "CountsWhatIsOverwritten",
        "STO-2",
        "The driver's memory counts what was overwritten as used, so it is full one day.",
        "constant-data-never-fills-it",
    ),
    _bug(
        "CS-19",
        "LeavesAClaimOfTwo",
        "STO-7",
        "If two savepoints with the same id are deleted, the claim of the first one stays.",
        "what-is-needed-stays-and-nothing-else",
    ),
    _bug(
        "CS-20",
        "LeavesUploadsOfTheKept",
        "STO-6",
        "If a shared file of a discarded checkpoint is needed, what was being uploaded beside it stays.",
        "killed-in-the-middle-of-a-write",
    ),
    _bug(
        "CS-21",
        "TrustsItsCounters",
        "STO-5",
        "When a write of the counters has failed, those from before count, though the new ones may be there.",
        "a-failed-request-leaves-all-with-the-same",
    ),
    _bug(
        "CS-22",
        "EmptiesTheDirectory",
        "STO-7",
        "With a claimed savepoint everything goes that lies in its directory, whoever put it there.",
        "a-savepoint-belongs-to-the-user",
    ),
)


def hunt_planted(bug: PlantedBug) -> PropertyOutcome:
    """Run the property that must catch a bug, as for a third party's storage."""
    with tempfile.TemporaryDirectory() as directory:
        outcomes = certify(bug.target, directory, only=(bug.caught_by,)).outcomes
    return next(outcome for outcome in outcomes if outcome.name == bug.caught_by)


def measure_strength(before: Strength = NO_STRENGTH, keep: KeepStrength = drop_strength) -> Strength:
    """Run every planted bug on this machine that was not run before; the score goes on the certificate."""
    return strength_of(PLANTED_BUGS, hunt_planted, before, keep)
