"""The properties that a checkpoint storage must have, by level: each with its clauses.

What is done to find a breach runs in the candidate's process (``storage/candidate/checks.py``).
"""

from __future__ import annotations

from barrier_tck.harness.certify.engine.property import Property
from barrier_tck.harness.certify.storage.stage import StorageProperty
from barrier_tck.harness.certify.storage.steps import RunCheck

LEVELS = ("contract", "crash")
"""Each level requires the levels before it."""


def _property(name: str, level: str, clauses: str, text: str) -> StorageProperty:
    return Property(name, level, tuple(clauses.split()), text, listed=lambda _scale: (RunCheck(name),))


PROPERTIES: tuple[StorageProperty, ...] = (
    _property(
        "state-files-are-read-as-written",
        "contract",
        "STO-1",
        "Files of no byte up to megabytes, in chunks of any size, are read by another instance as soon as their handle "
        "is there; size and checksum of the handle are those of the bytes.",
    ),
    _property(
        "another-content-is-refused",
        "contract",
        "STO-1",
        "A file that has not the size or the checksum of its handle, or that is missing, is refused.",
    ),
    _property(
        "a-failed-write-leaves-nothing",
        "contract",
        "STO-2",
        "A write whose chunks fail, before the first one or after megabytes, fails with the same error and leaves no "
        "file; the storage remains usable.",
    ),
    _property(
        "a-full-disk-fails-the-write",
        "contract",
        "STO-2",
        "A storage that writes local files and cannot write all bytes raises, and leaves no file.",
    ),
    _property(
        "files-do-not-meet",
        "contract",
        "STO-3",
        "Files of different jobs, checkpoints, attempts, subtasks, operators and names stay apart, however similar "
        "their names are; a writer refuses a name that it has used.",
    ),
    _property(
        "an-id-is-published-once",
        "contract",
        "STO-3",
        "Publishing an id again is refused, by the same instance and by another one, and changes nothing.",
    ),
    _property(
        "complete-means-published",
        "contract",
        "STO-4",
        "Only what was published is listed as complete, in the order of numbers, and is loaded as it was; what has "
        "files and was not published is listed as incomplete, and is not loaded.",
    ),
    _property(
        "readers-see-all-or-nothing",
        "contract",
        "STO-4",
        "Whoever looks while large metadata is published sees all of it, or none, and can read every file of it.",
    ),
    _property(
        "counters-never-fall",
        "contract",
        "STO-5",
        "What was reserved is found by another instance; reserving less lowers nothing; a new job has none.",
    ),
    _property(
        "a-discarded-checkpoint-is-gone",
        "contract",
        "STO-6",
        "Nothing of a discarded checkpoint is left, nothing of another one is touched; to discard again is harmless.",
    ),
    _property(
        "metadata-goes-first",
        "contract",
        "STO-6",
        "While a checkpoint is being discarded, or a savepoint that the job has claimed, it is never found complete "
        "when files of it are gone already.",
    ),
    _property(
        "files-are-deleted-one-by-one",
        "contract",
        "STO-6",
        "State files that are discarded are gone, missing ones are no error, and files of another job are refused.",
    ),
    _property(
        "shared-files-stay-while-they-are-needed",
        "contract",
        "STO-6",
        "Of the shared files that were written for a discarded checkpoint exactly those stay that are still needed, "
        "until they are discarded themselves.",
    ),
    _property(
        "a-savepoint-belongs-to-the-user",
        "contract",
        "STO-7",
        "A complete savepoint is read by another job, its directory is not free, and discarding the checkpoint or its "
        "files does not touch it, nor does deleting a claimed one in whose directory it lies; an incomplete one goes "
        "with its checkpoint.",
    ),
    _property(
        "a-start-from-a-savepoint-is-remembered",
        "contract",
        "STO-7",
        "Ids and attempts go on above those of the savepoint, in every instance; a second start changes nothing.",
    ),
    _property(
        "what-is-needed-stays-and-nothing-else",
        "contract",
        "STO-6 STO-7",
        "After any sequence of starts from savepoints, claimed or not, of checkpoints, shared files and deletions, "
        "exactly that is there what retained and unfinished checkpoints, unclaimed savepoints and pending claims need.",
    ),
    _property(
        "constant-data-never-fills-it",
        "contract",
        "STO-2",
        "Much that is written, overwritten and deleted takes no room: neither files nor bytes become more, and a "
        "storage that tells its limit, up to 64 MiB, takes three times as much.",
    ),
    _property(
        "a-failed-request-leaves-all-with-the-same",
        "contract",
        "STO-2 STO-4 STO-5 STO-6 STO-7",
        "If any one request of its medium fails, before or after it was carried out, the instance that goes on finds "
        "what a new one finds, and what it does next comes out as if nothing had failed. Asked of storage that derives "
        "from MediumCheckpointStorage.",
    ),
    _property(
        "what-was-written-survives-a-kill",
        "crash",
        "STO-1 STO-5",
        "A process that is killed right after it has written files and reserved ids loses none of them.",
    ),
    _property(
        "what-was-published-survives-a-kill",
        "crash",
        "STO-4",
        "A checkpoint whose process is killed right after it was published is complete.",
    ),
    _property(
        "killed-in-the-middle-of-a-write",
        "crash",
        "STO-4 STO-6",
        "What a process that is killed between two chunks of a file, also of a shared one or of a savepoint's, leaves "
        "is never complete, and is gone when its checkpoint is discarded, unfinished uploads included; shared files "
        "that others need stay.",
    ),
    _property(
        "killed-while-publishing",
        "crash",
        "STO-4",
        "A process that is killed at any moment of publishing leaves a checkpoint that is complete, with all its "
        "files, or incomplete.",
    ),
    _property(
        "killed-while-discarding",
        "crash",
        "STO-6",
        "A process that is killed at any moment of discarding leaves a checkpoint with all its files, or none that "
        "looks complete; discarding it again leaves nothing.",
    ),
)
