"""What a job has in the memory of executors is seen from outside, as its files on hosts are (LOC-1)."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path
from typing import Any

from barrier_tck.harness.reference.spark.executor_memories import ExecutorMemories
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.spark.spark_observer import SubtaskProcess
from barrier_tck.reference_impl.storage.copy_memory import MemoryFileSystem, SharedMemory
from barrier_tck.reference_impl.storage.local_copies import local_root

SPAWNING = multiprocessing.get_context("spawn")
"""A daemon has no open files of this process, which may have memory for copies of its own."""
JOB, ROOT = "job", Path("/checkpoints")


def _daemon(connection: Any) -> None:
    """Stand for the daemon of an executor, with files of two jobs."""
    memory = SharedMemory.create()
    for job in (JOB, "another"):
        files = MemoryFileSystem(memory, str(local_root("", job, str(ROOT))), 1_000)
        stream = files.create("totals-0/copy")
        stream.write(b"x")
        stream.close()
    connection.send("written")
    connection.recv()


def test_every_file_of_the_job_is_seen_and_none_of_another_job_until_they_are_wiped() -> None:
    here, there = SPAWNING.Pipe()
    daemon = SPAWNING.Process(target=_daemon, args=(there,))
    daemon.start()
    there.close()  # if the daemon dies, nobody waits for its words
    try:
        assert here.recv() == "written"
        process = SubtaskProcess(SubtaskId("totals", 0), 1, "10.0.0.1", 0, os.getpid(), "0")
        memories = ExecutorMemories(lambda: [process], JOB, ROOT)
        assert memories.files() == (f"10.0.0.1/daemon-{daemon.pid}:totals-0/copy",)
        memories.wipe_all()
        assert ExecutorMemories(lambda: [process], JOB, ROOT).files() == ()
        assert ExecutorMemories(lambda: [process], "another", ROOT).files() != ()
    finally:
        here.send("go on")
        daemon.join()
    assert ExecutorMemories(lambda: [process], "another", ROOT).files() == ()
