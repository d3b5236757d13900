"""The texts behind `barrier_tck.conformance.clauses`: in full by heading, id and source, and in short where long."""

from __future__ import annotations

FULL: dict[str, dict[tuple[str, str], str]] = {
    "Barriers and alignment": {
        ("BAR-1", "A D"): (
            "The coordinator triggers a checkpoint at the sources. Each source injects barrier n at its "
            "current position S_n, reports S_n, and goes on. A barrier carries its checkpoint id."
        ),
        ("BAR-2", "A C D"): (
            "Channels are FIFO. In aligned and at-least-once mode a barrier never overtakes a record and "
            "no record overtakes it."
        ),
        ("BAR-3", "A D"): (
            "An operator forwards barrier n to all its outputs once it has it from all its inputs; in "
            "aligned mode it snapshots after the last barrier arrives and before it forwards."
        ),
        ("BAR-4", "A"): (
            "Several checkpoints may be in flight at once; the number is bounded by configuration, and so"
            " is the minimum pause between them."
        ),
        ("BAR-5", "A D"): (
            "A barrier does not stop the stream: records before and after it keep flowing wherever "
            "alignment does not hold them."
        ),
        ("BAR-6", "(+)"): (
            "Channels that have ended (end of input) count as aligned; a checkpoint can complete after "
            "some subtasks finished."
        ),
        ("ALN-1", "A D"): (
            "Exactly-once mode: after barrier n on a channel, nothing more of that channel is processed "
            "until barrier n arrived on all others; what arrives is buffered and is processed before "
            "newer input, in order."
        ),
        ("ALN-2", "A D"): (
            "The snapshot of an operator for n reflects exactly the records before barrier n on every "
            "input, and none after: S(C_n) = f({r in R_i : index(r) < index(barrier_n) for every input "
            "i}). This is checked for every completed checkpoint by itself, not only after a recovery."
        ),
        ("ALN-3", "D B"): (
            "Alignment time and bytes buffered are measured per subtask and checkpoint and reported."
        ),
        ("ALO-1", "A"): (
            "At-least-once mode skips blocking: all inputs go on being processed, the snapshot is still "
            "taken when barrier n has come from each input."
        ),
        ("ALO-2", "A"): (
            "At-least-once mode after a recovery: nothing is lost; a record can be counted more than once"
            " only if it lies after barrier n on its channel and was processed before the snapshot n that"
            " was restored. Duplicates outside that set are a violation, and a campaign must show that "
            "duplicates do occur."
        ),
        ("ALO-3", "A"): (
            "A dataflow with only one-input, one-sender-per-receiver operators (map, filter, flat map) "
            "gives exactly-once results in at-least-once mode too."
        ),
        ("UNA-1", "D"): (
            "Unaligned mode: a barrier overtakes the buffered records of its channel; the overtaken "
            "in-flight records of input and output buffers become part of the snapshot; on restore they "
            "are processed before any newer input, and the result is exactly-once."
        ),
        ("UNA-2", "(+)"): (
            "Aligned-then-unaligned: a checkpoint starts aligned and switches to unaligned when alignment"
            " passes a timeout."
        ),
        ("UNA-3", "D"): (
            "Alignment delay of a checkpoint under backpressure does not grow with the queued data in "
            "unaligned mode; snapshot size does. Both are measured."
        ),
        ("UNA-4", "(+)"): (
            "A checkpoint can be taken while recovered in-flight records are still being replayed: what is"
            " not yet replayed is part of it, once; a checkpoint never waits for the replay to end, and "
            "none is taken that misses a recovered record. It works in every mode, after a change of "
            "parallelism too."
        ),
        ("UNA-5", "(+)"): (
            "Records that were broadcast are applied by all receivers or by none of them at every restored"
            " cut: broadcast edges stay aligned in unaligned mode, or give the same guarantee in another "
            "way."
        ),
        ("CHL-1", "C"): (
            "Chandy-Lamport on a general directed graph, cycles included: any process may initiate; it "
            "records its state, sends a marker on every outgoing channel at once, and records each "
            "incoming channel until the marker arrives on it; the first marker on a process makes it "
            "record itself and marks that channel empty; it ends when every process has recorded itself "
            "and every incoming channel is closed; a collector assembles the global snapshot."
        ),
        ("CHL-2", "C"): (
            "Every global snapshot is a consistent cut: no message is in it as received but not as sent, "
            "and each channel state is exactly the messages sent before the sender's record and not "
            "received before the receiver's."
        ),
        ("CHL-3", "C"): (
            "Snapshotting neither stops the application nor changes the messages it sends or receives."
        ),
        ("CHL-4", "C"): (
            "On an acyclic dataflow the barrier protocol stores no channel state; its snapshot is smaller"
            " than Chandy-Lamport's on the same run, and the difference is measured."
        ),
        ("CHL-5", "C (+)"): (
            "A dataflow with a feedback edge (iteration) is checkpointed and recovered exactly-once: "
            "in-flight records of the loop are part of the snapshot."
        ),
    },
    "State and snapshots": {
        ("STA-1", "A"): (
            "User-defined state (value, list, map, reducing, aggregating) and system state (window "
            "buffers, timers, join buffers, in-flight two-phase commits) are part of the snapshot."
        ),
        ("STA-2", "A"): (
            "Where state is kept is configurable: in the driver's memory (small state), or in durable "
            "storage (local file system, HDFS- or S3-like)."
        ),
        ("STA-3", "A D"): (
            "A completed checkpoint holds, for each source subtask its position, for each operator "
            "subtask a pointer to its state; metadata is versioned and each file has its size and "
            "checksum."
        ),
        ("SNP-1", "A D"): (
            "A backend's snapshot has a synchronous part, which ends when the call returns, and an "
            "asynchronous part that runs in the background; the subtask goes on as soon as the "
            "synchronous part ended; later changes to live state never show in the snapshot. A backend "
            "that is purely synchronous returns an already finished future."
        ),
        ("SNP-2", "A"): (
            "The asynchronous part can be cancelled; streams, files and threads it held are released, "
            "partial files removed."
        ),
        ("SNP-3", "A"): (
            "The barrier is forwarded right after the synchronous part. The checkpoint completes only "
            "when all sinks have seen the barrier and all stateful subtasks have acknowledged their "
            "finished copies, in whatever order."
        ),
        ("SNP-4", "A B D"): (
            "Backends: a heap backend with copy-on-write snapshots, and a RocksDB backend that flushes "
            "its memtable and hard-links its files, with later writes kept apart until it has."
        ),
        ("SNP-5", "A B"): (
            "Incremental snapshots: only new files are uploaded; shared files are reference-counted; "
            "restore starts from the last full snapshot and applies the increments in order; no file that"
            " a retained checkpoint needs is ever deleted, and no file outlives all its users."
        ),
        ("SNP-6", "B"): (
            "Snapshots can be compressed per key group, each key group readable on its own; incremental "
            "RocksDB files are left as they are."
        ),
        ("SNP-7", "D"): (
            "Length of the synchronous part, length of the asynchronous part and bytes written are "
            "measured per subtask and checkpoint."
        ),
        ("SNP-8", "(+)"): (
            "A snapshot costs what it holds explains: no more files than the backend needs, whatever the number of "
            "keys; requests bounded by files and a constant; no file read twice; few bytes beside its entries."
        ),
    },
    "Coordinator": {
        ("COO-1", "A D"): (
            "A checkpoint is complete only when every subtask acknowledged it for that id; then it is "
            "made durable in one atomic step, and only then are subtasks notified."
        ),
        ("COO-2", "D"): (
            "A decline, a failed storage write or an expired timeout aborts checkpoint n: it is marked "
            "failed, its partial data is cleaned up, processing goes on, and the next checkpoint can "
            "succeed. How many consecutive failures are tolerated is configurable."
        ),
        ("COO-3", "(+)"): (
            "Late, duplicate and unknown acknowledgements are recognised, do not complete anything, and "
            "what they wrote is removed."
        ),
        ("COO-4", "(+)"): (
            "A newer complete checkpoint subsumes older pending ones. How many completed ones are "
            "retained is configurable. Ids grow strictly, across restarts of the coordinator too."
        ),
        ("COO-5", "B"): (
            "Savepoints: self-contained, owned by the user, never subsumed or deleted by retention; a job"
            " can stop with one and start from one, with another parallelism."
        ),
        ("COO-6", "(+)"): (
            "The coordinator's process can die at any instant and the job be resumed from durable "
            "storage, from the last complete checkpoint."
        ),
        ("COO-7", "A"): "Checkpointing is off unless configured.",
    },
    "Recovery": {
        ("REC-1", "A"): (
            "On a failure the whole dataflow is stopped and redeployed; every operator gets its state of "
            "the latest completed checkpoint k; every source resumes at S_k; nothing from before S_k is "
            "asked of the source again."
        ),
        ("REC-2", "A (+)"): (
            "Nothing of a stopped attempt reaches the new one: records, barriers, acknowledgements, files"
            " and commits of an older attempt are fenced off, those of a partitioned process that is "
            "still running included."
        ),
        ("REC-3", "A"): "Restart strategies: none, fixed delay, failure rate, exponential delay.",
        ("REC-4", "B"): (
            "If checkpoint k cannot be read, an older retained one is used where configuration allows; if"
            " none can, recovery fails with an error that names what was tried, and no data is deleted."
        ),
        ("REC-5", "(+)"): (
            "A failure during recovery, and a checkpoint taken right after recovery, are ordinary cases: "
            "chains of recover, checkpoint, rescale, recover again keep every property."
        ),
        ("REC-6", "(+)"): (
            "After faults stop, the job makes progress: a checkpoint completes and input is consumed "
            "within a bound; a stuck job names what is pending."
        ),
        ("SNK-1", "A (+)"): (
            "A transactional sink pre-commits on the barrier and commits when notified that the checkpoint is"
            " complete; a commit that was prepared in checkpoint k is finished after a restore of k; "
            "visible output is exactly-once."
        ),
        ("SRC-1", "A"): "Sources can be rewound to a position. Reading is deterministic from a position.",
    },
    "Task-local recovery": {
        ("LOC-1", "B"): (
            "With local recovery on, each subtask writes, besides its primary copy in durable storage, a "
            "secondary copy on its own host. It is off by default."
        ),
        ("LOC-2", "B"): (
            "The primary must succeed; a failed secondary never fails a checkpoint; a failed primary "
            "fails it even if the secondary succeeded."
        ),
        ("LOC-3", "B"): (
            "The coordinator knows of primaries only. Secondaries have a lifetime of their own, which may be "
            "shorter: for instance, of three retained checkpoints there are three primaries and one "
            "secondary, that of the newest."
        ),
        ("LOC-4", "B"): (
            "Recovery tries the matching secondary first. Whatever is wrong with it (missing, truncated, "
            "flipped bits, another checkpoint's, another key-group range's, another attempt's, "
            "unreadable) it falls back to the primary without failing, and says which copy served each "
            "key group."
        ),
        ("LOC-5", "B"): "Recovery fails only if primary and secondary both fail; then REC-4 applies.",
        ("LOC-6", "B"): (
            "A partial secondary serves what it has; the rest comes from the primary. The primary is "
            "always complete and a superset."
        ),
        ("LOC-7", "B"): "The secondary may have another format than the primary.",
        ("LOC-8", "B"): (
            "A lost host loses its secondaries; its subtasks restore from the primary while the others "
            "restore locally."
        ),
        ("LOC-9", "B"): (
            "Placement preserves allocation: each subtask asks for the slot it had; one that lost its "
            "slot takes a free one and never evicts a subtask that could go back to its own."
        ),
        ("LOC-10", "B"): (
            "Heap state is copied to a local file. RocksDB state keeps its local checkpoint directory by "
            "hard links, which costs no extra disk; a local directory on another file system than "
            "RocksDB's is refused with a clear error at start."
        ),
        ("LOC-11", "(+)"): (
            "Local recovery works with unaligned checkpoints too (Flink documents that its own does not)."
        ),
    },
    "Rescaling": {
        ("RSC-1", "B"): (
            "Keyed state is split into key groups; their number is the maximum parallelism and never "
            "changes for a job; each subtask owns a contiguous range; every key group is owned exactly "
            "once at every parallelism up to the maximum."
        ),
        ("RSC-2", "B"): (
            "Restoring with another parallelism gives the same result as without. A parallelism above the"
            " maximum is refused with a clear error."
        ),
        ("RSC-3", "B (+)"): (
            "Source positions, list state, timers and in-flight records (unaligned) are redistributed too."
        ),
    },
    "State backends": {
        ("BCK-1", "(+)"): (
            "Reads of one key, of many keys and by scan give what was written last, in whatever form it was "
            "written or read before, also after a restore; different names, key groups and keys stay separate, "
            "at every size; a foreign key group is refused."
        ),
        ("BCK-2", "(+)"): (
            "A store that is opened from the files of one or more snapshots holds exactly the entries of its "
            "key groups, in any process, and needs only the files that the handles name; the handles "
            "name the key groups that their files hold, and no key groups of another store."
        ),
        ("BCK-3", "(+)"): (
            "A snapshot is complete or fails: a failed storage operation makes it fail; after a failed, cancelled or "
            "aborted snapshot the store remains usable; confirm and abort are harmless in any order."
        ),
        ("BCK-4", "(+)"): (
            "A restore from a file that is empty, truncated or of another format is refused with an error that says so."
        ),
        ("BCK-5", "(+)"): (
            "Snapshots of a state that does not grow do not make an open store hold more memory, "
            "descriptors, threads or files; a closed one holds nothing."
        ),
        ("BCK-6", "(+)"): (
            "The capabilities that a backend declares beyond the contract are true; without threads of its own, a "
            "store leaves files with the same names and sizes after the same calls."
        ),
    },
    "Event time": {
        ("EVT-1", "A D (+)"): (
            "Watermarks travel in channels with the records, in order. The watermark of a subtask is the smallest of "
            "its active inputs; idle and ended ones do not hold it; it never goes back, also not across a restore, a "
            "change of parallelism or a split that moves."
        ),
        ("EVT-2", "A B D"): (
            "Windows (tumbling, sliding, session) are system state: their buffers and timers are part of every "
            "snapshot. A window fires when the watermark passes its end, and again for allowed late rows; each firing "
            "happens once in the committed output, whatever number of restores. Rows beyond the allowed lateness go to "
            "a side output or are counted."
        ),
        ("EVT-3", "D (+)"): (
            "The result under unaligned checkpoints is that of aligned ones, watermarks that were overtaken included "
            "(Flink documents that its own may differ)."
        ),
        ("EVT-4", "A (+)"): (
            "Joins by window and by interval, inner and outer: their buffers are state, cleaned by the watermark; "
            "every match is given once, every unmatched row once."
        ),
        ("EVT-5", "A (+)"): (
            "Timers in event time and in processing time go off once each, those set for a time that has passed too; "
            "state with a time to live goes when its time is over, counted from its last use, not from the restore."
        ),
        ("EVT-6", "(+)"): (
            "Sources may be aligned by watermark within a bound; an idle, paused or ended one never holds the others."
        ),
    },
    "Checkpoint storages": {
        ("STO-1", "(+)"): (
            "A state file is durable, bytes and name, when its handle is given out, and any process reads it "
            "then; a missing file is refused, and so is one of another size or checksum than its handle says."
        ),
        ("STO-2", "(+)"): (
            "A write that fails raises, and leaves no file; the storage remains usable; what was overwritten or "
            "deleted takes no room."
        ),
        ("STO-3", "(+)"): (
            "Files of different jobs, checkpoints, attempts, subtasks, operators and names never meet; a published "
            "checkpoint is never replaced."
        ),
        ("STO-4", "(+)"): (
            "A checkpoint is complete exactly if it was published: its metadata is there as a whole, with all its "
            "files, or not at all, also after a crash; what was published is listed, and nothing else."
        ),
        ("STO-5", "(+)"): "Ids and attempts that were reserved stay reserved, also after a crash.",
        ("STO-6", "(+)"): (
            "A discarded checkpoint is gone with everything that was written for it, its metadata first; nothing "
            "else goes with it; to discard again is harmless."
        ),
        ("STO-7", "(+)"): (
            "A complete savepoint belongs to the user: any job can read it, and nothing that a job discards touches "
            "it; a job that starts from one goes on above its ids; one that claims it deletes it in the end."
        ),
    },
    "Running it": {
        ("CAP-1", "B"): (
            "Backpressure is observable per subtask; a benchmark reports throughput with checkpointing "
            "off and on, and how long catching up after a recovery takes."
        ),
        ("CAM-1", "mission"): (
            "A chaos campaign kills executors, partitions the network and delays channels on a real Spark"
            " cluster, checks every property above that applies, runs from one command and in CI, and "
            "leaves a report."
        ),
        ("CAM-2", "mission (+)"): (
            "Any failing trial leaves one file that replays it, made smaller automatically: topology, "
            "input, schedule and faults."
        ),
        ("CAM-3", "(+)"): (
            "Every fault that a trial planned is shown to have fired, or the trial is unknown, not passed."
        ),
        ("CER-1", "mission"): (
            "A third party certifies its own state backend from outside this repository with pytest "
            "or one command, and gets a report that says which clauses were required, "
            "optional, passed, failed, skipped and why. A certificate's level means that all that it "
            "requires passed."
        ),
        ("CER-2", "(+)"): (
            "The suite states how strong it is: a list of planted bugs that really happened elsewhere, "
            "and which of them it catches."
        ),
    },
}
"""Heading -> (id, source) -> the clause in full."""

SHORT: dict[str, str] = {
    "BAR-1": (
        "The coordinator triggers a checkpoint at the sources. Each source injects barrier n, with "
        "its checkpoint id, at its position S_n, reports S_n, and goes on."
    ),
    "BAR-3": (
        "An operator forwards barrier n once it has it from all inputs. In aligned mode it snapshots "
        "after the last barrier arrives and before it forwards."
    ),
    "ALN-1": (
        "In exactly-once mode a channel whose barrier n has arrived is not processed until barrier n "
        "arrived on all others. What arrives meanwhile is buffered and processed first, in order."
    ),
    "ALN-2": (
        "The snapshot of an operator for n reflects exactly the records before barrier n on every "
        "input, and none after. This is checked for every completed checkpoint by itself."
    ),
    "ALO-2": (
        "After a recovery in at-least-once mode nothing is lost, and only records after barrier n "
        "that were processed before the restored snapshot n may be counted more than once."
    ),
    "UNA-1": (
        "In unaligned mode a barrier overtakes buffered records, which become part of the snapshot. "
        "On restore they are processed before newer input, and the result is exactly-once."
    ),
    "UNA-4": (
        "A checkpoint can be taken while recovered in-flight records are still being replayed: what is "
        "left of them is part of it, once, in every mode and after a change of parallelism too."
    ),
    "UNA-5": (
        "Records that were broadcast are applied by all receivers or by none of them at every restored cut."
    ),
    "CHL-1": (
        "Chandy-Lamport works on any directed graph, cycles included, whichever process initiates. A collector "
        "assembles the global snapshot once every process and every incoming channel is recorded."
    ),
    "CHL-2": (
        "Every global snapshot is a consistent cut. Each channel state is exactly the messages sent "
        "before the sender's record and not received before the receiver's."
    ),
    "CHL-4": (
        "On an acyclic dataflow the barrier protocol stores no channel state. Its snapshot is smaller"
        " than Chandy-Lamport's on the same run, and the difference is measured."
    ),
    "STA-3": (
        "A completed checkpoint holds each source's position and a pointer to each operator's state. "
        "Metadata is versioned and each file has its size and checksum."
    ),
    "SNP-1": (
        "The subtask goes on as soon as the synchronous part of a snapshot ended, while the "
        "asynchronous part runs in the background. Later changes to live state never show in the "
        "snapshot."
    ),
    "SNP-3": (
        "The barrier is forwarded right after the synchronous part. A checkpoint completes only when "
        "all sinks saw the barrier and all stateful subtasks acknowledged their finished copies."
    ),
    "SNP-5": (
        "Incremental snapshots upload only new files, and shared files are reference-counted. No file"
        " that a retained checkpoint needs is deleted, and none outlives its users."
    ),
    "COO-1": (
        "A checkpoint is complete only when every subtask acknowledged it. Then it is made durable in"
        " one atomic step, and only then are subtasks notified."
    ),
    "COO-2": (
        "A decline, a failed storage write or a timeout aborts a checkpoint and its partial data is "
        "removed. Processing goes on, and the next checkpoint can succeed."
    ),
    "COO-4": (
        "A newer complete checkpoint subsumes older pending ones. Ids grow strictly, across restarts "
        "of the coordinator too."
    ),
    "COO-5": (
        "Savepoints are self-contained, owned by the user and never deleted by retention. A job can "
        "start from one with another parallelism."
    ),
    "REC-1": (
        "On a failure the whole dataflow is redeployed from the latest completed checkpoint k. "
        "Sources resume at S_k, and nothing from before it is read again."
    ),
    "REC-2": (
        "Nothing of a stopped attempt reaches the new one: records, barriers, acknowledgements, files"
        " and commits of older attempts are fenced off."
    ),
    "REC-4": (
        "If checkpoint k cannot be read, an older retained one is used where configuration allows. If"
        " none can, recovery fails, names what was tried, and deletes nothing."
    ),
    "REC-6": (
        "After faults stop, a checkpoint completes and input is consumed within a bound. A stuck job "
        "names what is pending."
    ),
    "SNK-1": (
        "A transactional sink pre-commits on the barrier and commits when the checkpoint is complete,"
        " also after a restore. Visible output is exactly-once."
    ),
    "EVT-1": (
        "Watermarks travel with the records, in order. A subtask's is the smallest of its active inputs; it never goes "
        "back, over restores, rescales and moved splits."
    ),
    "EVT-2": (
        "Windows are state. One fires when the watermark passes its end, and again for allowed late rows; each firing "
        "is in the output once. Later rows go to a side output."
    ),
    "EVT-3": (
        "The result under unaligned checkpoints is that of aligned ones, watermarks that were overtaken included."
    ),
    "EVT-5": (
        "Timers in event time and in processing time go off once each, those set for the past too. A time to live is "
        "counted from the last use."
    ),
    "LOC-3": (
        "The coordinator knows of primaries only. Secondaries have a lifetime of their own: only the newest "
        "is kept."
    ),
    "LOC-4": (
        "Recovery tries the matching secondary first. Whatever is wrong with it, recovery falls back "
        "to the primary and says which copy served each key group."
    ),
    "LOC-9": (
        "Each subtask asks for the slot it had. One that lost its slot takes a free one and never "
        "evicts a subtask that could go back to its own."
    ),
    "LOC-10": (
        "Heap state is copied to a local file; RocksDB state keeps its local directory by hard links."
        " A local directory on another file system is refused at start."
    ),
    "RSC-1": (
        "Keyed state is split into key groups whose number never changes for a job. Every key group "
        "is owned exactly once at every parallelism."
    ),
    "BCK-1": (
        "Reads in every form give what was written last, also after a restore. Different names, key groups and keys "
        "stay separate, at every size."
    ),
    "BCK-2": (
        "A restored store holds exactly the entries of its key groups, in any process. It needs only the files "
        "that the handles name."
    ),
    "BCK-3": (
        "A snapshot is complete or fails. After a failed, cancelled or aborted snapshot the store remains usable."
    ),
    "CAM-1": (
        "A chaos campaign kills executors, partitions the network and delays channels on a real Spark"
        " cluster, checks every property that applies, and leaves a report."
    ),
    "CER-1": (
        "A third party certifies its own state backend from outside this repository with one command."
        " The report says which clauses passed, failed or were skipped, and why."
    ),
}
"""Id -> one or two plain sentences, where the clause in full is longer."""
