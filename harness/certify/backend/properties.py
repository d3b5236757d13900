"""The properties that a backend must have, by level: each with its clauses, and what is played to find a breach."""

from __future__ import annotations

from barrier_tck.harness.certify.backend import listed_steps as sequences
from barrier_tck.harness.certify.backend import reached
from barrier_tck.harness.certify.backend.capabilities import (
    ASYNCHRONOUS,
    CONCURRENT,
    DETERMINISTIC,
    INCREMENTAL,
    LOCAL,
    ORDERED,
)
from barrier_tck.harness.certify.backend.shapes import Shape
from barrier_tck.harness.certify.backend.stage import BackendProperty
from barrier_tck.harness.certify.backend.state_machine import Moves
from barrier_tck.harness.certify.engine.property import Property

PROPERTIES: tuple[BackendProperty, ...] = (
    Property(
        "reads-see-the-writes",
        "contract",
        ("BCK-1",),
        "Reads, scans and batch reads give what was written last; unusual keys and values are kept unchanged.",
        Moves("write read"),
        examples=50,
        needs=("put", "delete", "put_many", "get", "scan"),
    ),
    Property(
        "reads-in-every-form",
        "contract",
        ("BCK-1",),
        "Each form of read is right before and after each form of write, in an empty, a full and a restored store.",
        listed=lambda _scale: sequences.reads_in_every_form(),
    ),
    Property(
        "what-differs-stays-apart",
        "contract",
        ("BCK-1", "BCK-2"),
        "Names, key groups, keys and values that are easily confused are not; scans are undisturbed and complete; all "
        "of it once more after a restore.",
        listed=lambda _scale: sequences.what_differs(),
    ),
    Property(
        "sizes-up-the-ladder",
        "contract",
        ("BCK-1", "BCK-2"),
        "Keys and values up to megabytes, 100,000 entries, megabytes of state that is restored into other key groups, "
        "or written over while a snapshot is unfinished, key groups up to 32,767.",
        listed=sequences.ladder,
    ),
    Property(
        "hints-change-no-content",
        "contract",
        ("SNP-1", "BCK-2"),
        "Snapshots are isolated and exact with and without compression, own threads and more files. They "
        "are restored with other hints than they were taken with, also into a store that is only read.",
        listed=lambda _scale: sequences.hints(),
    ),
    Property(
        "the-same-files-without-own-threads",
        "contract",
        ("BCK-6",),
        "A store that may have no threads of its own leaves files with the same names and sizes after the same calls, "
        "however much time passes between them.",
        listed=lambda _scale: sequences.without_own_threads(),
    ),
    Property(
        "snapshots-are-isolated",
        "contract",
        ("SNP-1",),
        "Changes after the synchronous part never show in the snapshot, even while its asynchronous part runs.",
        Shape("run run start", unfinished_max=6),
        examples=30,
        needs=("snapshot", "run", "start", "finish", "verify"),
        reaches=((reached.CHANGED, 20), (reached.DELETED, 10), (reached.ADDED, 10), (reached.MEANWHILE, 5)),
    ),
    Property(
        "stores-go-on-from-any-snapshot",
        "contract",
        ("SNP-1", "BCK-2"),
        "Stores are closed and opened again in the same process, several times, from older snapshots and newer ones, "
        "after others failed, were aborted, cancelled or never heard of again: each life begins with exactly "
        "what its snapshot "
        "holds.",
        Shape("run run start cancel abort abort fail", unfinished_max=6, lives=4, lives_min=2),
        examples=15,
        needs=("restart", "abort", "cancel", "verify"),
        reaches=(
            *((reached.OLDER, 10), (reached.OLDER_AFTER_MANY, 3)),
            *((reached.COMPRESSED, 30), (reached.COMPRESSED_OTHERWISE, 30), (reached.READ_ONLY, 20)),
        ),
    ),
    Property(
        "writers-run-freely",
        "contract",
        ("SNP-1",),
        "A snapshot is isolated from writes that are made without a pause while a thread stores it.",
        listed=sequences.free_writers,
    ),
    Property(
        "a-restore-is-exact",
        "contract",
        ("BCK-2",),
        "A snapshot restores to exactly its content: twice, in a new process, and as a store that is used further.",
        Moves("write checkpoint verify close", finale="elsewhere"),
        examples=12,
        needs=("verify", "restart"),
    ),
    Property(
        "handles-name-all-that-is-needed",
        "contract",
        ("BCK-2",),
        "A restore needs the files that the handles name and nothing else: no other file, no process, no memory.",
        listed=lambda _scale: sequences.only_the_files(),
    ),
    Property(
        "a-restored-store-starts-anew",
        "contract",
        ("BCK-2",),
        "After a restore of an older snapshot in the same process, nothing of the newer ones comes back.",
        listed=lambda _scale: sequences.starts_anew(),
    ),
    Property(
        "any-number-of-snapshots",
        "contract",
        ("SNP-1", "BCK-2"),
        "Snapshots are isolated and exact after hundreds of others of the same open store, and whatever their ids are.",
        listed=sequences.any_number,
    ),
    Property(
        "many-deletes-between-snapshots",
        "contract",
        ("SNP-1", "BCK-2"),
        "Snapshots and restores are exact after thousands of entries were deleted between two snapshots: every second "
        "one, those of a key group, those of a state, and all; some are written again before the next.",
        listed=sequences.many_deletes,
    ),
    Property(
        "key-groups-move",
        "contract",
        ("BCK-2",),
        "Restored into another range of key groups, from one or two snapshots, a store holds its own groups "
        "and no others.",
        Moves("write checkpoint rescale"),
        examples=40,
        needs=("rescale",),
    ),
    Property(
        "key-groups-part-and-meet",
        "contract",
        ("BCK-2",),
        "Stores go on with a part of a snapshot, delete and write, and meet again: what was deleted does not return.",
        listed=lambda _scale: sequences.parted_and_joined(),
    ),
    Property(
        "redistributed-stores-go-on",
        "contract",
        ("BCK-2",),
        "Stores that go on with other key groups are exact, in any sequence of writes, snapshots and redistributions.",
        Moves("write checkpoint verify rescale redistribute close"),
        examples=15,
        needs=("redistribute", "rescale"),
    ),
    Property(
        "what-is-no-snapshot-is-refused",
        "contract",
        ("BCK-4",),
        "A restore from a file that is empty, cut off, or of another format is refused; it is never a wrong state.",
        listed=sequences.damaged_files,
    ),
    Property(
        "a-refused-restore-keeps-nothing-open",
        "contract",
        ("BCK-5",),
        "After restores that were refused, no descriptor, thread, process or working file of theirs is left.",
        listed=lambda _scale: sequences.refused_opens(),
    ),
    Property(
        "a-closed-store-refuses-calls",
        "contract",
        ("BCK-1", "SNP-2"),
        "A closed store refuses every call with JobUsageError, and its unfinished snapshots are cancelled, also those "
        "that another thread runs; so are sequences refused that are out of step.",
        listed=lambda _scale: sequences.closed_stores(),
    ),
    Property(
        "stores-side-by-side-stay-apart",
        "contract",
        ("BCK-1", "BCK-2"),
        "Stores of several jobs, vertices, operators and subtasks that are open at once, also restored from the same "
        "files, do not meet; a store is restored from many snapshots in any order.",
        listed=lambda _scale: sequences.stores_side_by_side(),
    ),
    Property(
        "a-failed-checkpoint-is-forgotten",
        "contract",
        ("BCK-2", "BCK-3"),
        "After a failed checkpoint the store goes on; after a restart on the same disk with other data "
        "nothing of the failed one comes back.",
        Moves("write checkpoint fail snapshot close"),
        examples=30,
        needs=("snapshot", "abort", "restart"),
    ),
    Property(
        "notifications-come-in-any-order",
        "contract",
        ("BCK-3",),
        "Confirm, abort and cancel come in any order, late and twice, while snapshots end out of order.",
        Shape("run run start cancel cancel abort abort", lives=2),
        examples=25,
        needs=("cancel", "confirm", "abort", "run"),
    ),
    Property(
        "words-about-others-change-no-snapshot",
        "contract",
        ("SNP-1", "BCK-2"),
        "What was written last before a snapshot and first after it is apart, also if another checkpoint was confirmed "
        "or aborted between them: an older or a newer one, or one that the store never saw.",
        listed=lambda _scale: sequences.words_amid(),
    ),
    Property(
        "large-batches-change-no-snapshot",
        "contract",
        ("SNP-1", "BCK-2"),
        "What one call writes over shows in no unfinished snapshot, however many entries there are, in one key group "
        "or in several; also if the values of the beginning come back.",
        listed=sequences.batches_written_over,
    ),
    Property(
        "a-cancelled-snapshot-stops",
        "contract",
        ("SNP-2",),
        "A cancelled asynchronous part raises SnapshotCancelled or had already succeeded, and the store goes on.",
        Shape("run start start cancel cancel cancel abort", unfinished_max=6),
        examples=25,
        needs=("cancel", "run"),
    ),
    Property(
        "any-thread-runs-and-cancels",
        "contract",
        ("SNP-1", "SNP-2"),
        "An asynchronous part may run on the thread that writes, and be cancelled from a third one at any moment, also "
        "while the store is written without a pause.",
        listed=lambda _scale: sequences.any_thread(),
    ),
    Property(
        "nothing-is-left-behind",
        "contract",
        ("SNP-2", "BCK-5"),
        "After close no descriptor, thread, process, working file or partial file is left.",
        listed=lambda _scale: sequences.lives(),
    ),
    Property(
        "snapshots-keep-nothing",
        "contract",
        ("BCK-5",),
        "Snapshots of a state that does not grow do not make an open store hold ever more memory, descriptors, "
        "threads or files.",
        listed=sequences.held_by_snapshots,
    ),
    Property(
        "dropped-snapshots-keep-nothing",
        "contract",
        ("BCK-5",),
        "Snapshots that are cancelled before or while they run, aborted, or deleted without a word do not make an open "
        "store hold ever more.",
        listed=sequences.held_by_dropped_snapshots,
    ),
    Property(
        "all-at-once",
        "contract",
        ("BCK-2",),
        "All of the above in any mixture.",
        Moves("write read snapshot background verify checkpoint rescale notify close", steps_max=40),
        examples=30,
    ),
    Property(
        "unfinished-snapshots-end-in-any-order",
        "contract",
        ("SNP-1",),
        "Several snapshots of a store are unfinished at once, end, fail or are cancelled in any order, and stay "
        "isolated from each other and from what is written between them.",
        Shape("run run run start cancel abort fail", lives=2),
        examples=25,
        capability=CONCURRENT,
        needs=("snapshot", "run", "verify"),
        reaches=(
            (reached.CHANGED, 20),
            (reached.DELETED, 10),
            (reached.ADDED, 10),
            (reached.at_once(2), 20),
            (reached.at_once(4), 10),
            (reached.at_once(8), 5),
            (reached.TAKEN_AMID, 5),
            *(
                (f"{how}, {which}", 5)
                for how in (reached.ENDED, reached.CANCELLED, reached.FAILED)
                for which in (reached.THE_OLDER, reached.THE_NEWER)
            ),
        ),
        # The storage of an older one can only fail after a newer one was taken if something was left to store.
        only_with=((f"{reached.FAILED}, {reached.THE_OLDER}", reached.STORED_LATER),),
    ),
    *(
        Property(
            name,
            "contract",
            ("BCK-6",),
            text,
            Moves("promise", steps_max=2),
            examples=4,
            capability=capability,
            needs=("promise",),
        )
        for name, capability, text in (
            (
                "snapshots-are-asynchronous",
                ASYNCHRONOUS,
                "The synchronous part writes nothing to storage and leaves something to the asynchronous part.",
            ),
            ("scans-are-ordered", ORDERED, "Scans give entries in ascending order of their keys' bytes."),
            (
                "files-stay-in-the-working-directory",
                LOCAL,
                "State is kept in files below the working directory and nowhere else.",
            ),
            (
                "files-are-deterministic",
                DETERMINISTIC,
                "The same calls in the same order write files with the same bytes, in another process too.",
            ),
            (
                "increments-build-on-what-is-confirmed",
                INCREMENTAL,
                "A snapshot after a small change refers to confirmed files, and not to failed ones (SNP-5).",
            ),
        )
    ),
    Property(
        "increments-go-on-after-many-failures",
        "contract",
        ("BCK-2",),
        "However many snapshots in a row failed, or were not heard of, the next increment holds all that has changed.",
        listed=sequences.failures_in_a_row,
        capability=INCREMENTAL,
    ),
    Property(
        "increments-pass-over-what-is-not-confirmed",
        "contract",
        ("BCK-2",),
        "An increment refers to no file of a snapshot that was stored and is not confirmed, however late word comes.",
        listed=lambda _scale: sequences.increments_beside_unheard(),
        capability=INCREMENTAL,
    ),
    Property(
        "increments-in-a-long-chain",
        "contract",
        ("BCK-2",),
        "Increments are exact at every length of their chain, with deletions between them, also after a restore.",
        listed=sequences.long_chain,
        capability=INCREMENTAL,
    ),
    Property(
        "increments-hold-what-comes-again",
        "contract",
        ("BCK-2",),
        "Increments are exact if one has the same content as an earlier one, with another between them.",
        listed=lambda _scale: sequences.contents_that_come_again(),
        capability=INCREMENTAL,
    ),
    Property(
        "increments-of-large-batches",
        "contract",
        ("SNP-1", "BCK-2"),
        "What one call writes over shows in no unfinished increment, and in each later one.",
        listed=lambda scale: sequences.batches_written_over(scale, incremental=True),
        capability=INCREMENTAL,
    ),
    Property(
        "increments-hold-many-deletes",
        "contract",
        ("BCK-2",),
        "What was deleted in thousands between two increments does not come back, and what was written again does.",
        listed=lambda scale: sequences.many_deletes(scale, incremental=True),
        capability=INCREMENTAL,
    ),
    Property(
        "increments-part-and-meet",
        "contract",
        ("BCK-2",),
        "Increments of stores that part and meet are exact, and refer to nothing of stores with other key groups.",
        listed=lambda _scale: sequences.parted_and_joined(incremental=True),
        capability=INCREMENTAL,
    ),
    Property(
        "increments-in-any-order",
        "contract",
        ("BCK-2",),
        "All this with stores that are asked for increments: a snapshot refers to own, confirmed or restored files.",
        Moves("write snapshot background verify checkpoint rescale redistribute notify close"),
        examples=20,
        capability=INCREMENTAL,
        needs=("snapshot", "verify", "delete"),
    ),
    Property(
        "increments-end-in-any-order",
        "contract",
        ("SNP-1", "BCK-2"),
        "Increments are isolated and exact, whichever of the unfinished ones ended, failed or were cancelled before, "
        "and whatever was deleted and written again between them.",
        Shape("run run run start cancel abort fail", lives=3),
        examples=30,
        capability=INCREMENTAL,
        needs=("snapshot", "verify", "restart"),
        reaches=(
            *((reached.CHANGED, 10), (reached.DELETED, 5), (reached.ADDED, 5)),
            *((reached.INCREMENT, 40), (reached.LATE_WORD, 60), (reached.BASE_GONE, 8)),
            *((reached.COMPRESSED, 40), (reached.COMPRESSED_OTHERWISE, 40), (reached.READ_ONLY, 20)),
        ),
    ),
    Property(
        "killed-anywhere",
        "crash",
        ("BCK-2",),
        "After SIGKILL between two calls, inside a call or in the middle of an asynchronous part, the last "
        "completed snapshot restores to exactly its content, on the disk that the dead process left.",
        Moves("write checkpoint snapshot background verify kill", restarts_max=2),
        examples=25,
        needs=("restart",),
    ),
    Property(
        "a-failed-write-fails-the-snapshot",
        "crash",
        ("BCK-3",),
        "If the k-th storage operation fails, is cut short or closing fails, the snapshot fails too (BE-06).",
        Moves("write fail verify checkpoint"),
        examples=50,
        needs=("snapshot", "abort"),
    ),
    Property(
        "snapshots-after-a-failed-one-are-isolated",
        "crash",
        ("SNP-1", "BCK-3"),
        "After a failed snapshot the store is usable and the next snapshots are isolated (BE-07).",
        Shape("run run start fail fail abort"),
        examples=50,
        needs=("snapshot", "abort", "run"),
        reaches=((reached.CHANGED, 20), (reached.DELETED, 10), (reached.ADDED, 10)),
    ),
    Property(
        "a-failed-snapshot-keeps-nothing",
        "crash",
        ("BCK-5",),
        "Failed snapshots do not make an open store hold ever more (BE-07).",
        listed=sequences.held_by_failed_snapshots,
    ),
    Property(
        "killed-amid-many-snapshots",
        "crash",
        ("SNP-1", "BCK-2"),
        "After SIGKILL, whatever snapshots of the dead process ended, failed or were cancelled, any completed one "
        "restores exactly, and those of the next life are isolated.",
        Shape("run run run start cancel abort fail", lives=3, how="kill"),
        examples=8,
        needs=("restart", "verify"),
        reaches=((reached.CHANGED, 5), (reached.DELETED, 3), (reached.ADDED, 3)),
    ),
    Property(
        "crashes-and-failures-mixed",
        "crash",
        ("BCK-2", "BCK-3"),
        "Kills, failed writes, restarts and all else in any mixture.",
        Moves(
            "write read snapshot background verify checkpoint rescale notify fail close kill",
            steps_max=40,
            restarts_max=2,
        ),
        examples=20,
        needs=("restart",),
    ),
)
"""The properties of the levels contract and crash; the level chaos is in ``chaos.py``."""
