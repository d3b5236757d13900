"""Planted bugs of checkpoint storages, and which of them the suite catches as it catches a third party's (CER-2)."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

from barrier_tck.harness.certify.certificate import Strength
from barrier_tck.harness.certify.storage_suite import certify_storage

_MODULE = "barrier_tck.harness.reference.mutants.checkpoint_storage_bugs"


@dataclass(frozen=True, slots=True)
class StorageMutant:
    """One planted bug."""

    id: str
    name: str
    clause: str
    description: str
    caught_by: str
    """The property that must catch it."""

    @property
    def target(self) -> str:
        """Return the factory of the storage that has it."""
        return f"{_MODULE}:{self.name}"


STORAGE_MUTANTS: tuple[StorageMutant, ...] = (
    StorageMutant(
        "CS-01",
        "PublishesBeforeBytesAreThere",
        "STO-1",
        "Handles are given out, and checkpoints published, while files are still written in the background.",
        "state-files-are-read-as-written",
    ),
    StorageMutant(
        "CS-02",
        "OverwritesAnId",
        "STO-3",
        "Publishing an id again replaces the checkpoint that has it.",
        "an-id-is-published-once",
    ),
    StorageMutant(
        "CS-03",
        "ListsTheUnpublished",
        "STO-4",
        "Whatever has a directory is listed as complete.",
        "complete-means-published",
    ),
    StorageMutant(
        "CS-04",
        "DeletesMetadataLast",
        "STO-6",
        "The state files of a discarded checkpoint are deleted before its metadata.",
        "metadata-goes-first",
    ),
    StorageMutant(
        "CS-05",
        "SwallowsAFailedWrite",
        "STO-2",
        "A write that fails gives a handle for as much as was written.",
        "a-failed-write-leaves-nothing",
    ),
    StorageMutant(
        "CS-06",
        "LosesTheCounters",
        "STO-5",
        "Ids and attempts are reserved in memory only.",
        "counters-never-fall",
    ),
    StorageMutant(
        "CS-07",
        "PublishesInParts",
        "STO-4",
        "Metadata is written in place, so that a reader finds a part of it.",
        "readers-see-all-or-nothing",
    ),
    StorageMutant(
        "CS-08",
        "LeavesTornFiles",
        "STO-2",
        "What a failed write has written stays.",
        "a-failed-write-leaves-nothing",
    ),
    StorageMutant(
        "CS-09",
        "DeletesTheUsersSavepoint",
        "STO-7",
        "A savepoint is deleted with the checkpoint that it was.",
        "a-savepoint-belongs-to-the-user",
    ),
    StorageMutant(
        "CS-10",
        "DiscardsByPrefix",
        "STO-6",
        "Discarding checkpoint 1 deletes checkpoint 11, too.",
        "a-discarded-checkpoint-is-gone",
    ),
    StorageMutant(
        "CS-11",
        "ReadsUnchecked",
        "STO-1",
        "Size and checksum of a state file are not compared with its handle.",
        "another-content-is-refused",
    ),
    StorageMutant(
        "CS-12",
        "JoinsNamesUnescaped",
        "STO-3",
        "The parts of a file name are joined as they are, so that two operators meet in one file.",
        "files-do-not-meet",
    ),
    StorageMutant(
        "CS-13",
        "ForgetsWhatItStartedFrom",
        "STO-7",
        "A job that was started from a savepoint reserves ids from 1 again.",
        "a-start-from-a-savepoint-is-remembered",
    ),
    StorageMutant(
        "CS-14",
        "ReadsNothingForAMissingFile",
        "STO-1",
        "A state file that is gone is taken for an empty one.",
        "another-content-is-refused",
    ),
    StorageMutant(
        "CS-15",
        "DiscardsSharedFiles",
        "STO-6",
        "Shared files go with the checkpoint that they were written for, whoever else needs them.",
        "shared-files-stay-while-they-are-needed",
    ),
    StorageMutant(
        "CS-16",
        "DeletesClaimedMetadataLast",
        "STO-6",
        "The state files of a savepoint that the job has claimed are deleted before its metadata.",
        "metadata-goes-first",
    ),
    StorageMutant(
        "CS-17",
        "ForgetsAnEarlierClaim",
        "STO-7",
        "The claim of a savepoint takes the place of the claim that the job had before.",
        "what-is-needed-stays-and-nothing-else",
    ),
    StorageMutant(
        "CS-18",
        "CountsWhatIsOverwritten",
        "STO-2",
        "The driver's memory counts what was overwritten as used, so it is full one day.",
        "constant-data-never-fills-it",
    ),
    StorageMutant(
        "CS-19",
        "LeavesAClaimOfTwo",
        "STO-7",
        "If two savepoints with the same id are deleted, the claim of the first one stays.",
        "what-is-needed-stays-and-nothing-else",
    ),
    StorageMutant(
        "CS-20",
        "LeavesUploadsOfTheKept",
        "STO-6",
        "If a shared file of a discarded checkpoint is needed, what was being uploaded beside it stays.",
        "killed-in-the-middle-of-a-write",
    ),
    StorageMutant(
        "CS-21",
        "TrustsItsCounters",
        "STO-5",
        "When a write of the counters has failed, those from before count, though the new ones may be there.",
        "a-failed-request-leaves-all-with-the-same",
    ),
    StorageMutant(
        "CS-22",
        "EmptiesTheDirectory",
        "STO-7",
        "With a claimed savepoint everything goes that lies in its directory, whoever put it there.",
        "a-savepoint-belongs-to-the-user",
    ),
)


def catches(mutant: StorageMutant) -> bool:
    """Return whether the property that must catch a bug fails, and names its clause."""
    with tempfile.TemporaryDirectory() as directory:
        certificate = certify_storage(mutant.target, directory, only=(mutant.caught_by,))
    return any(one.violated == mutant.clause and one.status == "failed" for one in certificate.outcomes)


def measure_storage_strength() -> Strength:
    """Run every planted bug on this machine."""
    caught = [mutant.id for mutant in STORAGE_MUTANTS if catches(mutant)]
    missed = [mutant.id for mutant in STORAGE_MUTANTS if mutant.id not in caught]
    return Strength(measured=True, caught=tuple(caught), missed=tuple(missed))
